//! Saving breaks off at every boundary: one checkpoint is whole, the old or the new.

use ranklab::checkpoint::{self, Checkpoint, MANIFEST};

use super::folder::{Failure, Memory};
use super::{finish, text};
use crate::support::scenario;

/// An earlier and a later checkpoint of one training, on different ranks.
fn two() -> [Checkpoint; 2] {
    [("zero-3", (3, 1), 1), ("fsdp", (2, 2), 2)].map(|(strategy, mesh, steps)| {
        let settings = if strategy == "fsdp" { "[pipeline]\nschedule = \"gpipe\"\n" } else { "" };
        finish(&scenario(&text(strategy, mesh, 1, steps, settings))).1
    })
}

fn saved(state: &Checkpoint) -> Memory {
    let mut folder = Memory::default();
    checkpoint::save(&mut folder, state).expect("memory is large");
    Memory { changes: 0, ..folder }
}

fn ranks(folder: &Memory) -> Option<Vec<Vec<ranklab::engine::state::Piece>>> {
    checkpoint::load("test", folder).ok().map(|checkpoint| checkpoint.ranks)
}

/// Saves `new` over `old`, and lets each of its changes fail in turn; at last none.
fn check(old: Option<&Checkpoint>, new: &Checkpoint, failure: Failure) {
    let before = old.map_or_else(Memory::default, saved);
    let mut after = before.clone();
    checkpoint::save(&mut after, new).expect("memory is large");
    let mut outcomes = Vec::new();
    for at in 0..=after.changes {
        let mut folder = Memory { fails: Some((at, failure)), ..before.clone() };
        let result = checkpoint::save(&mut folder, new);
        let there = ranks(&folder);
        let is_new = there.as_ref() == Some(&new.ranks);
        assert!(is_new || there == old.map(|old| old.ranks.clone()), "change {at}, {failure:?}: neither old nor new");
        if failure == Failure::Full {
            let expected = if result.is_ok() { &after.files } else { &before.files };
            assert_eq!(&folder.files, expected, "change {at}: a full disk leaves what was there, and nothing else");
        }
        // Once there is room again, or the process runs again, saving does what it always does.
        folder.fails = None;
        checkpoint::save(&mut folder, new).expect("memory is large");
        assert_eq!(folder.files, after.files, "change {at}: nothing is left lying about");
        outcomes.push(is_new);
    }
    assert!(!outcomes[0] && outcomes[after.changes], "the first failure leaves the old, no failure the new");
    assert!(outcomes.is_sorted(), "from one moment on the new one is there: {outcomes:?}");
}

#[test]
fn whatever_breaks_off_one_checkpoint_is_whole() {
    let [old, new] = two();
    for failure in [Failure::Crash, Failure::Full] {
        check(Some(&old), &new, failure);
        check(None, &new, failure);
        // A step back is a save as any other.
        check(Some(&new), &old, failure);
    }
}

#[test]
fn the_same_state_again_is_the_same_checkpoint() {
    let [old, _] = two();
    let mut folder = saved(&old);
    let before = folder.files.clone();
    checkpoint::save(&mut folder, &old).expect("memory is large");
    assert_eq!(folder.files, before);
    assert_eq!(folder.files.len(), old.ranks.len() + 1);
    assert!(folder.files.contains_key(MANIFEST));
}

#[test]
fn nothing_that_somebody_else_wrote_is_replaced() {
    let [old, _] = two();
    let check = |folder: &Memory, more: &str, expected: &str| {
        let scenario = scenario(&format!("{more}{}", text("ddp", (2, 1), 1, 3, "")));
        match checkpoint::place("dir", folder, &scenario) {
            Ok(()) => assert_eq!(expected, "", "{more}"),
            Err(problems) => assert!(!expected.is_empty() && problems.to_string().contains(expected), "{problems}"),
        }
    };
    check(&Memory::default(), "", "");
    check(&saved(&old), "", "");
    check(&saved(&old), "seed = 1\n", "another model or seed");
    let with = |name: &str| {
        let mut folder = saved(&old);
        folder.files.insert(name.to_owned(), b"mine".to_vec());
        folder
    };
    check(&with("thesis.tex"), "", "`thesis.tex`");
    check(&with("rank0-0123456789abcdef.safetensors.new"), "", "");
    check(&with("rank0-notes.safetensors"), "", "`rank0-notes.safetensors`");
    check(&with(MANIFEST), "", "no manifest");
}
