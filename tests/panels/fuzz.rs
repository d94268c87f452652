//! Any size, any event, any rank: nothing panics.

use super::{ASCII_MONO, BLOCKS_DARK, PANELS, Place, breaks, data, drawn};
use proptest::prelude::*;
use ranklab::tui::breaks::Breaks;
use ranklab::tui::data::RunData;
use std::sync::LazyLock;

/// Runs of every kind: complete, deadlocked, with and without compute.
static RUNS: LazyLock<Vec<RunData>> = LazyLock::new(|| {
    let paths = [
        "lessons/11-1f1b/scenario.toml",
        "scenarios/1f1b-blocking-p2.toml",
        "lessons/02-ring-all-reduce/scenario.toml",
        "lessons/04-ddp/skip.toml",
        "lessons/04-ddp/gpt2.toml",
        "scenarios/ring-attention-4.toml",
        "scenarios/all-gather-attention-4.toml",
        "scenarios/experts-capacity.toml",
        "scenarios/star-8.toml",
        "scenarios/tree-8.toml",
        "scenarios/ddp-pipeline.toml",
    ];
    paths.map(data).into()
});

#[test]
fn the_smallest_sizes_are_drawn() {
    for (_, draw) in PANELS {
        for run in RUNS.iter().chain([&RunData::empty()]) {
            for size in [(0, 0), (1, 1), (1, 40), (200, 1), (7, 3), (12, 7)] {
                let breaks = Breaks::default();
                drawn(run, draw, Place { event: 20, focus: 0, scroll: 0, breaks: &breaks, values: None }, size, ASCII_MONO);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_size_at_no_event_panics(
        panel in 0..PANELS.len(),
        run in 0..RUNS.len(),
        size in (0_u16..=300, 0_u16..=100),
        event in any::<prop::sample::Index>(),
        focus in any::<prop::sample::Index>(),
        scroll in 0_usize..200,
        blocks in any::<bool>(),
    ) {
        let run = &RUNS[run];
        let event = event.index(run.events() + 1);
        let focus = u32::try_from(focus.index(run.lanes.ranks.len())).expect("few ranks");
        let breaks = breaks(vec![event]);
        let place = Place { event, focus, scroll, breaks: &breaks, values: None };
        drawn(run, PANELS[panel].1, place, size, if blocks { BLOCKS_DARK } else { ASCII_MONO });
    }
}
