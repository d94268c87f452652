//! Pictures of the panels at the room that they have on screens of 80x24, 120x36 and 200x60, and on the smallest, of 60x18.

use super::{ASCII_MONO, BLOCKS_DARK, Draw, PANELS, Place, breaks, data, drawn};
use ranklab::base::BufferId;
use ranklab::tui::data::{BufferValue, QueryState, RunData, Values};
use ratatui::buffer::{Buffer, Cell};

/// The room that is left for a panel on a screen of the size in the name.
const ROOMS: [(&str, (u16, u16)); 4] = [("80x24", (80, 19)), ("120x36", (120, 30)), ("200x60", (200, 54)), ("60x18", (60, 15))];

#[test]
fn the_1f1b_lesson_in_its_middle() {
    let data = data("lessons/11-1f1b/scenario.toml");
    pictures("1f1b", &data, 71, 2, &["debugger", "waits", "memory", "links", "metrics"]);
}

#[test]
fn blocking_sends_at_their_deadlock() {
    let data = data("scenarios/1f1b-blocking-p2.toml");
    pictures("blocking", &data, data.events(), 0, &["debugger", "waits", "links"]);
}

#[test]
fn the_ring_lesson_in_its_third_step() {
    let data = data("lessons/02-ring-all-reduce/scenario.toml");
    pictures("ring", &data, 10, 1, &["debugger", "links", "waits", "metrics", "memory"]);
}

#[test]
fn eight_ranks_a_star_and_a_tree() {
    pictures("ring-8", &data("scenarios/ring-8.toml"), 30, 1, &["links"]);
    pictures("star", &data("lessons/02-ring-all-reduce/star.toml"), 4, 0, &["links"]);
    pictures("tree", &data("scenarios/tree-8.toml"), 9, 0, &["links"]);
}

#[test]
fn ring_attention_in_its_third_hop() {
    pictures("attention", &data("lessons/16-context-parallelism/scenario.toml"), 15, 3, &["links", "debugger"]);
    pictures("attention-8", &data("lessons/16-context-parallelism/eight.toml"), 120, 3, &["links"]);
}

#[test]
fn experts_while_tokens_are_on_their_way() {
    pictures("experts", &data("lessons/17-experts/scenario.toml"), 20, 1, &["links", "debugger"]);
    pictures("experts-8", &data("scenarios/experts-capacity.toml"), 40, 2, &["links"]);
    pictures("experts-step", &data("scenarios/experts-step.toml"), 60, 2, &["links", "mesh"]);
}

#[test]
fn the_ddp_lesson_while_buckets_leave() {
    let data = data("lessons/04-ddp/scenario.toml");
    pictures("ddp", &data, 48, 0, &["debugger", "memory", "links", "metrics"]);
}

#[test]
fn eight_ranks_along_three_axes() {
    let data = data("lessons/18-all-at-once/scenario.toml");
    pictures("cube", &data, data.events(), 5, &["mesh"]);
}

#[test]
fn collectives_that_are_one_op_each() {
    pictures("whole", &data("lessons/09-sequence-parallelism/scenario.toml"), 140, 1, &["links"]);
}

#[test]
fn a_rank_that_skips_its_part() {
    let data = data("lessons/04-ddp/skip.toml");
    pictures("skip", &data, data.events(), 0, &["waits"]);
}

#[test]
fn the_gpipe_lesson() {
    let data = data("lessons/10-gpipe/gpipe.toml");
    pictures("gpipe", &data, 60, 0, &["memory", "metrics"]);
}

/// One picture for each of `panels`, each size, without colour; and one at the middle size with block glyphs.
fn pictures(name: &str, data: &RunData, event: usize, focus: u32, panels: &[&str]) {
    let values = values(data, focus, event);
    let breaks = breaks(vec![event.saturating_sub(3), event + 5]);
    let place = Place { event, focus, scroll: 0, breaks: &breaks, values: data.has_values.then_some(&values) };
    for (panel, draw) in PANELS.into_iter().filter(|(panel, _)| panels.contains(panel)) {
        for (room, size) in ROOMS {
            let buffer = drawn(data, draw as Draw, place, size, ASCII_MONO);
            insta::assert_snapshot!(format!("{name}-{panel}@{room}"), text(&buffer));
        }
        let buffer = drawn(data, draw as Draw, place, ROOMS[1].1, BLOCKS_DARK);
        insta::assert_snapshot!(format!("{name}-{panel}@blocks"), text(&buffer));
    }
}

/// Made-up values of some buffers of the focus rank.
fn values(data: &RunData, focus: u32, event: usize) -> Values {
    let rank = ranklab::base::Rank(focus);
    let of_rank = |buffer: &BufferId| data.program().buffers[buffer.index()].rank == rank;
    let value = |buffer: BufferId| {
        let elements = usize::try_from(data.program().bytes(buffer).0 / 4).unwrap_or(0);
        let first = vec![0.12, -0.4, 1.08, 0.77, -0.02, 31.0];
        let shape = String::new();
        let dtype = data.program().setting.dtype;
        BufferValue { buffer, elements, dtype, shape, first, norm: 12.4417, abs_max: 3.08, nans: 0, checksum: 7 }
    };
    let buffers = (0..data.program().buffers.len()).map(BufferId::new).filter(of_rank).map(value).collect();
    let attention = data.program().setting.attention;
    let of_ranks = attention.iter().flat_map(|attention| (0..attention.slices).map(ranklab::base::Rank::new));
    let queries = of_ranks.map(|rank| QueryState { rank, row: 0, most: 0.42, total: 3.138, output: vec![0.12, -0.4, 31.0] });
    let gates =
        data.program().setting.experts.iter().flat_map(|experts| (0..experts.tokens_per_rank() * experts.top_k).map(made_up));
    Values { event, rank, buffers, queries: queries.collect(), gates: gates.collect() }
}

/// A weight.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn made_up(place: usize) -> f64 {
    0.6 / (1.0 + (place % 7) as f64)
}

fn text(buffer: &Buffer) -> String {
    let rows = buffer.content().chunks(usize::from(buffer.area.width));
    let line = |row: &[Cell]| row.iter().map(Cell::symbol).collect::<String>().trim_end().to_owned();
    rows.map(line).collect::<Vec<_>>().join("\n")
}
