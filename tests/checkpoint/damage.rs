//! Damage: what is cut off, foreign, missing, swapped or hostile is told by its file, with a hint, and never believed.

use ranklab::checkpoint::{self, Broken, Checkpoint, MANIFEST};

use super::folder::Memory;
use super::{finish, small, text};
use crate::support::scenario;

/// A saved checkpoint of three ranks, and the names of their files.
fn saved() -> (Memory, [String; 3]) {
    let mut folder = Memory::default();
    let manifest = checkpoint::save(&mut folder, &small()).expect("memory is large");
    let name = |rank: usize| format!("rank{rank}-{}.safetensors", manifest.ranks[rank].digest);
    (folder, [name(0), name(1), name(2)])
}

/// What is said of the folder once `harm` was done to it.
#[track_caller]
fn check(is_damaged: bool, expected: &[&str], harm: impl FnOnce(&mut Memory, &[String; 3])) {
    let (mut folder, names) = saved();
    harm(&mut folder, &names);
    let found = checkpoint::load("dir", &folder).and_then(|checkpoint| checkpoint.whole("dir").map_err(Broken::Damaged));
    let broken = found.expect_err("it is not whole");
    let text = broken.problems().to_string();
    assert_eq!(matches!(broken, Broken::Damaged(_)), is_damaged, "{text}");
    for expected in expected.iter().copied().chain(["dir"]) {
        assert!(text.contains(expected), "`{expected}` in\n{text}");
    }
}

/// The manifest with one text in place of another.
fn replaced(folder: &mut Memory, from: &str, to: &str) {
    let text = String::from_utf8(folder.files[MANIFEST].clone()).expect("JSON");
    assert!(text.contains(from), "{from} in {text}");
    folder.files.insert(MANIFEST.to_owned(), text.replacen(from, to, 1).into_bytes());
}

#[test]
fn files_that_are_not_what_was_saved_are_told() {
    check(true, &["is cut off", "it has 100 of", "copy it again"], |folder, names| {
        folder.files.get_mut(&names[1]).expect("a file").truncate(100);
    });
    check(true, &["is cut off", "it has 0 of"], |folder, names| drop(folder.files.insert(names[0].clone(), Vec::new())));
    check(true, &["is longer than"], |folder, names| folder.files.get_mut(&names[2]).expect("a file").push(0));
    check(true, &["is not what rank 0 saved", "damaged"], |folder, names| {
        *folder.files.get_mut(&names[0]).expect("a file").last_mut().expect("a byte") ^= 1;
    });
    check(true, &["the file of rank 1", "is missing", "3 ranks saved"], |folder, names| drop(folder.files.remove(&names[1])));
    check(true, &["holds what rank 2 saved, not rank 1", "holds what rank 1 saved", "changed places"], |folder, names| {
        let (one, two) = (folder.files[&names[1]].clone(), folder.files[&names[2]].clone());
        folder.files.insert(names[1].clone(), two);
        folder.files.insert(names[2].clone(), one);
    });
}

#[test]
fn all_that_is_wrong_comes_at_once() {
    check(true, &["rank 0", "rank 1", "rank 2"], |folder, names| names.iter().for_each(|name| drop(folder.files.remove(name))));
}

#[test]
fn manifests_of_others_are_refused() {
    check(false, &["cannot read the checkpoint's manifest", "--save DIR"], |folder, _| drop(folder.files.remove(MANIFEST)));
    let with = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        move |folder: &mut Memory, _: &[String; 3]| drop(folder.files.insert(MANIFEST.to_owned(), bytes))
    };
    check(false, &["no manifest", "checkpoint.json"], with(b""));
    check(false, &["no manifest"], with(b"{\"format\": \"ranklab.checkpoint/1\""));
    check(false, &["no manifest"], with(b"[[[[[[[[[[[[[[[["));
    check(false, &["no manifest"], with(&[0xff; 100]));
    check(false, &["no manifest"], with(&b"[".repeat(1 << 20)));
    check(false, &["too large"], with(&vec![b' '; 9 << 20]));
    check(false, &["unknown field `weights`"], with(b"{\"weights\": 1}"));
    check(false, &["the form `ranklab.checkpoint/2` is not known"], |folder, _| replaced(folder, "checkpoint/1", "checkpoint/2"));
}

#[test]
fn hostile_manifests_are_refused() {
    let check = |from: &str, to: &str, is_damaged: bool, expected: &str| {
        check(is_damaged, &[expected], |folder, _| replaced(folder, from, to));
    };
    check("\"layers\": 5", "\"layers\": 18446744073709551615", false, "layers");
    check("\"hidden\": 24", "\"hidden\": 0", false, "hidden = 0");
    check("\"heads\": 3", "\"heads\": 0", false, "heads = 0");
    check("\"heads\": 3", "\"heads\": 7", false, "hidden = 24 is not a multiple of heads = 7");
    check("\"vocab\": 61", "\"vocab\": 16777216", true, "no file has elements 1464..402653184 of model.embedding.tokens.weight");
    check("\"vocab\": 61", "\"vocab\": -1", false, "integer `-1`");
    check("\"vocab\": 61", "\"vocab\": NaN", false, "no manifest");
    check("\"dropout\": 0.0", "\"dropout\": 1e999", false, "no manifest");
    check("\"dropout\": 0.0", "\"dropout\": 2", false, "dropout = 2");
    check("\"step\": 1", "\"step\": 4294967295", false, "step 4294967295");
    check("\"step\": 1", "\"step\": 0", false, "step 0");
    check("\"samples\": 3", "\"samples\": 18446744073709551615", false, "18446744073709551615 sequences");
    check("\"data\": 3", "\"data\": 4", false, "files of 3 ranks, where 4 x 1 ranks saved");
    check("\"data\": 3", "\"data\": 18446744073709551615", false, "files of 3 ranks");
    check("\"dtype\": \"f32\"", "\"dtype\": \"f64\"", true, "in f32, and the manifest says f64");
    check("\"dtype\": \"f32\"", "\"dtype\": \"f31\"", false, "f31");
    check("\"exp_avg_sq\"", "\"master_param\"", true, "exp_avg_sq.");
    check("\"model\",", "", false, "must name `model`");
    let (folder, names) = saved();
    let digest = &names[0][6..22];
    drop(folder);
    check(digest, "../../../etc/pwd", false, "`../../../etc/pwd`");
    check(digest, "", false, "16 hexadecimal digits");
    check("\"bytes\": ", "\"bytes\": 9", true, "is cut off");
    check("\"bytes\": ", "\"bytes\": -", false, "no manifest");
    check("\"bytes\": ", "\"bytes\": 1e", false, "no manifest");
}

/// A checkpoint whose manifest and files agree, and whose contents do not.
fn check_state(expected: &[&str], harm: impl FnOnce(&mut Checkpoint)) {
    let mut state = small();
    harm(&mut state);
    let mut folder = Memory::default();
    checkpoint::save(&mut folder, &state).expect("memory is large");
    let found = checkpoint::load("dir", &folder).and_then(|checkpoint| checkpoint.whole("dir").map_err(Broken::Damaged));
    let text = found.expect_err("it is not whole").into_problems().to_string();
    assert!(expected.iter().all(|expected| text.contains(expected)), "{expected:?} in\n{text}");
}

#[test]
fn states_that_are_no_whole_model_are_told() {
    check_state(&["no file has elements", "of exp_avg_sq.head."], |state| drop(state.ranks[1].pop()));
    check_state(&["no file has elements 0.."], |state| state.ranks[0].clear());
    check_state(&["no such tensor"], |state| {
        let piece = state.ranks[1].iter_mut().find(|piece| piece.range.start > 0).expect("a piece");
        let length = piece.range.len();
        piece.range = (1 << 40)..(1 << 40) + length;
    });
}

#[test]
fn other_trainings_do_not_go_on_from_it() {
    let state = super::stored(&finish(&scenario(&text("zero-3", (3, 1), 2, 2, ""))).1);
    let check = |from: &str, to: &str, expected: &[&str]| {
        let text = text("zero-3", (3, 1), 2, 4, "[optimizer]\nkind = \"adamw\"\n[numerics]\ndtype = \"f32\"\n");
        assert!(text.contains(from));
        let problems = checkpoint::start("dir", &state, &scenario(&text.replace(from, to))).expect_err("another training");
        let text = problems.to_string();
        assert!(expected.iter().all(|expected| text.contains(expected)) && text.contains("--> dir"), "{expected:?} in\n{text}");
    };
    check("vocab = 61", "vocab = 62", &["model.vocab = 61, and the scenario has 62", "--set model.vocab=61"]);
    check("heads = 3", "heads = 4", &["model.heads = 3", "model.kv_heads = 3"]);
    check("layers = 5", "layers = 6\ntied = true", &["model.layers = 5", "model.tied = false"]);
    check("dtype = \"f32\"", "dtype = \"f64\"", &["model.parameter_dtype = f32, and the scenario has f64"]);
    check("kind = \"adamw\"", "kind = \"sgd\"", &["optimizer.kind = adamw, and the scenario has sgd"]);
    check("[model]", "seed = 7\n[model]", &["seed = 0, and the scenario has 7"]);
    check("steps = 4", "steps = 2", &["stands behind step 2", "--steps 3 does one more"]);
    check("dtype = \"f32\"", "values = \"shape\"", &["no numbers"]);
}
