//! Any keys at any size: nothing panics.

use super::{ASCII_MONO, BLOCKS_DARK, Lab};
use proptest::prelude::*;
use ranklab::tui::commands::TABLE;
use ranklab::tui::keys::Key;
use ranklab::tui::update::Message;
use ranklab::tui::view::view;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    Press(Key),
    Resize(u16, u16),
    Pass(u16),
    Paste,
}

fn size() -> impl Strategy<Value = (u16, u16)> {
    prop_oneof![(1_u16..=300, 1_u16..=100), (60_u16..=130, 18_u16..=40)]
}

fn step() -> impl Strategy<Value = Step> {
    let bound: Vec<Key> =
        TABLE.iter().flat_map(|line| line.keys).flat_map(|keys| keys.split(' ')).filter_map(Key::parse).collect();
    let key = prop_oneof![4 => prop::sample::select(bound), 1 => prop::char::range(' ', '~').prop_map(Key::Char)];
    prop_oneof![
        12 => key.prop_map(Step::Press),
        1 => size().prop_map(|(width, height)| Step::Resize(width, height)),
        1 => any::<u16>().prop_map(Step::Pass),
        1 => Just(Step::Paste),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_keys_at_no_size_panic(first in size(), blocks in any::<bool>(), steps in prop::collection::vec(step(), 1..60)) {
        let mut lab = Lab::opened_fast(first, if blocks { BLOCKS_DARK } else { ASCII_MONO });
        for step in steps {
            match step {
                Step::Press(key) => _ = lab.send(Message::Key(key)),
                Step::Resize(width, height) => _ = lab.send(Message::Resize(width, height)),
                Step::Pass(millis) => _ = lab.send(Message::Elapsed(Duration::from_millis(millis.into()))),
                Step::Paste => _ = lab.send(Message::Paste("two\nlines".to_owned())),
            }
            let mut buffer = Buffer::empty(Rect::new(0, 0, lab.model.size.0, lab.model.size.1));
            view(&lab.model, &mut buffer);
        }
    }
}
