//! The command line: what goes where, and the exit codes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A new, empty folder for one test's files.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for test files");
    folder
}

/// Writes a file into `folder`; its path.
fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

/// Runs `ranklab` with `arguments`, `input` on standard input.
fn ranklab(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ranklab"))
        .args(arguments)
        .env("NO_COLOR", "1")
        .env("RANKLAB_LESSONS", "")
        .current_dir(folder("work"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that does not read its input closes the pipe: that is no failure of the test.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("the binary ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Runs `ranklab`, compares the exit code, and looks for a text on standard output or, behind `!`, on standard error.
#[track_caller]
fn check_with(arguments: &[&str], input: &str, code: i32, expected: &str) -> String {
    let output = ranklab(arguments, input);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "ranklab {arguments:?}\n--- out\n{out}\n--- err\n{err}");
    match expected.strip_prefix('!') {
        Some(expected) => {
            assert!(err.contains(expected), "`{expected}` on standard error of ranklab {arguments:?}:\n{err}");
            assert!(out.is_empty(), "messages go to standard error, data to standard output:\n{out}");
        }
        None => assert!(out.contains(expected), "`{expected}` on standard output of ranklab {arguments:?}:\n{out}"),
    }
    out
}

#[track_caller]
fn check(arguments: &[&str], code: i32, expected: &str) {
    check_with(arguments, "", code, expected);
}

#[test]
fn every_outcome_has_its_exit_code() {
    check(&["run", "1f1b-p4m8"], 0, "33u");
    check(&["run", "1f1b-blocking-p2"], 11, "in a circle");
    check(&["run", "skip-all-reduce-all"], 13, "WRONG");
    check(&["run", "skip-all-reduce-one"], 11, "never issued by r1");
    check(&["run", "1f1b-p4m8", "--set", "hardware.memory_gb=0.002"], 12, "out-of-memory");
    check(&["check", "1f1b-p4m8"], 0, "ok: 4 ranks");
    check(&["check", "1f1b-blocking-p2"], 10, "deadlocks");
}

#[test]
fn a_sheet_is_a_scenario_and_may_be_named_by_one() {
    let folder = folder("sheet");
    let write = |name: &str, text: &str| write(&folder, name, text);
    let plan = write("plan.csv", "0F0,0F1,0BW0,0BW1\r\n1F0,1BW0,1F1,1BW1\r\n");
    check(&["run", &plan], 0, "equal to one device");
    check(&["check", &plan], 0, "sheet: PyTorch of 2024");
    check(&["check", &plan], 0, "it is 1F1B");
    check(&["run", &plan, "--json"], 0, "\"recognised\": \"1f1b\"");
    check(&["run", "zbv-p4m8", "--json"], 0, "\"recognised\": \"zbv\"");
    check(&["compile", &plan, "--after", "plan"], 0, "1F0,1B0,1F1,1B1\n");
    let scenario = write("scenario.toml", "title = \"mine\"\n[pipeline]\ncsv = \"plan.csv\"\n");
    check(&["run", &scenario], 0, "equal to one device");
    check(&["run", &scenario, "--set", "parallel.pipeline=3"], 2, "!the sheet has 2 rows");
    let bad = write("bad.csv", "0F0,0B0\n1F0xyz,1B0\n");
    check(&["run", &bad], 2, "!row 2, column 1: `1F0xyz`");
    check(&["check", &scenario, "--set", "pipeline.csv=bad.csv"], 2, "!bad.csv: row 2, column 1");
    check(&["check", &scenario, "--set", "pipeline.csv=none.csv"], 2, "!none.csv");
    check_with(&["check", "-"], "0F0,0B0\n", 0, "1 rank, 1 stage, 1 micro-batch");
    check(&["compile", "dualpipe-p4m8", "--after", "plan"], 0, "OVERLAP_F_B");
}

/// Every kind of bad sheet, through the binary: exit 2, with row, column, cell and what was expected.
#[test]
fn bad_sheets_are_refused_with_row_and_column() {
    let cases: [(&str, &str, &str); 14] = [
        ("0F0,0B0\n1F0xyz,1B0\n", "row 2, column 1: `1F0xyz`", "stage, letters, micro-batch"),
        (
            "0F0,0B0,0F2,0B2\n",
            "row 1, column 3: `0F2` runs micro-batch 2, and micro-batch 1 runs nowhere",
            "micro-batches 0, 1, 2",
        ),
        ("0F0,0B0\n2F0,2B0\n", "row 2, column 1: `2F0` runs stage 2, and stage 1 runs nowhere", "stages 0, 1, 2"),
        ("0F0,0B0\n1F0,1B0,0F0\n", "row 2, column 3: `0F0` runs stage 0 on a second rank", "allowed"),
        (
            "0F0,0B0,0F1,0B1\n1F0,1B0\n",
            "row 2, column 1: `1F0` is of stage 1, which never runs micro-batch 1's F",
            "every micro-batch",
        ),
        ("0F0,0F0,0B0\n", "row 1, column 2: `0F0` runs a second time", "allowed"),
        ("0F0,0X0\n", "row 1, column 2: `0X0` has unknown letters", "F, I, W, B"),
        ("0F0,0BW0,0I1\n", "row 1, column 3: `I` is a letter of 2025", "all through"),
        ("\u{feff}0F0,0B0\n", "row 1, column 1: `U+FEFF` is a byte-order mark", "UTF-8 without one"),
        ("0F0,0\"B0\n", "row 1, column 2: `0\"B0` has a stray quote", "allowed"),
        ("0F0,0B0\n\n1F0,1B0\n", "row 2, column 1: `` is a rank without any work", "a row for each rank"),
        ("0F0,0F1.5\n", "row 1, column 2: `0F1.5`", "allowed"),
        ("0F0,(0F1;0B0)\n", "row 1, column 2: `(0F1;0B0)` opens a pair", "OVERLAP_F_B"),
        ("0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0\n", "row 2, column 3: `1B0` makes a value that is never sent", "1SEND_B0"),
    ];
    for (sheet, place, expected) in cases {
        for command in ["run", "check"] {
            let output = ranklab(&[command, "-"], sheet);
            let err = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{sheet:?}: {err}");
            assert!(err.contains(place) && err.contains(expected), "{sheet:?}: {place} and {expected} in\n{err}");
        }
    }
    for good in ["0F0,0B0\r\n1F0,1B0\r\n", "\"0F0\",\"0B0\"\n1F0,1B0\n", "0F0 ,,0B0\n1F0,1B0"] {
        check_with(&["check", "-"], good, 0, "2 ranks, 2 stages, 1 micro-batch");
    }
    let million = vec!["0F0x"; 1_000_000].join(",");
    check_with(&["check", "-"], &million, 2, "!row 1, column 50: `0F0x`");
}

#[test]
fn mistakes_are_explained_on_standard_error() {
    check(&["run", "12f1b"], 2, "!11-1f1b");
    check(&["run", "no-such-file.toml"], 2, "!no-such-file.toml");
    check(&["run", "11", "--set", "pipeline.schedul=gpipe"], 2, "!schedule");
    check(&["run", "11", "--set", "pipeline.schedule=gpip"], 2, "!gpipe");
    check(&["compile", "11", "--after", "messgaes"], 2, "!did you mean `messages`");
    check(&["frobnicate"], 2, "!frobnicate");
    check(&["run", "11", "--set", "trouble.0.kind=skip-op", "--set", "trouble.0.op=all-reduce bucket0"], 2, "!meets no op");
    check(
        &["run", "11", "--set", "trouble.0.kind=skip-op", "--set", "trouble.0.op=1F0", "--set", "trouble.0.rank=0"],
        2,
        "!stands on r1",
    );
    check(&["learn"], 2, "!terminal");
    check(&["learn", "-"], 2, "!can't read a scenario there");
}

#[test]
fn an_idle_trouble_stands_at_its_place() {
    let idle = |kind: &str, op: &str, expected: &str| {
        let rule = format!("[[trouble]]\nkind = \"{kind}\"\nop = \"{op}\"\n");
        let scenario = format!("parallel.pipeline = 2\nnumerics.values = \"shape\"\n[[trouble]]\nkind = \"slow-rank\"\n{rule}");
        for command in ["run", "check"] {
            check_with(&[command, "-"], &scenario, 2, &format!("!{expected}"));
            check_with(&[command, "-"], &scenario, 2, "!<standard input>:7:6");
        }
    };
    idle("skip-op", "0F99", "the trouble `skip-op` with op `0F99` meets no op");
    idle("slow-rank", "0F99", "the trouble `slow-rank` with op `0F99` meets no op");
    idle("slow-rank", "send", "slow-rank does nothing to `send");
    idle("slow-link", "0F0", "slow-link does nothing to `0F0");
    check(&["run", "1f1b-p4m8", "--set", "trouble.0.kind=skip-op", "--set", "trouble.0.op=0F"], 2, "!--set:1:14");
    check(&["run", "1f1b-p4m8", "--set", "trouble.0.kind=slow-link", "--set", "trouble.0.op=send"], 0, "completed");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told() {
    for arguments in [&["show", "scenario"][..], &["--help"], &["run", "--help"], &["--version"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
        let output = Command::new(env!("CARGO_BIN_EXE_ranklab")).args(arguments).stdout(full).output().expect("it ends");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let message = text(&output.stderr);
        let is_told = message.starts_with("error: cannot write ") && message.contains(" to standard output: ");
        assert!(is_told, "{arguments:?}: {message}");
    }
}

/// What a command says beside its output may get lost; what it does, it does.
#[test]
#[cfg(target_os = "linux")]
fn notes_that_nobody_hears_break_nothing() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
    let file = new_path("unheard.toml");
    let status = Command::new(env!("CARGO_BIN_EXE_ranklab")).args(["new", &file]).stderr(full).status().expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert!(std::fs::read_to_string(&file).is_ok_and(|text| text.contains("[model]")), "the file is written");
}

#[test]
fn standard_input_is_a_scenario() {
    let scenario = "[parallel]\npipeline = 2\n[numerics]\nvalues = \"shape\"\n";
    check_with(&["run", "-"], scenario, 0, "completed");
    check_with(&["run", "-"], "[parallel]\npipelin = 2\n", 2, "!pipeline");
    check_with(&["run", "-"], "", 2, "!empty");
}

#[test]
fn without_a_terminal_the_bare_command_lists_lessons() {
    check(&[], 0, "11-1f1b");
    check(&["list", "schedules"], 0, "gpipe");
    check(&["list", "scenarios"], 0, "ring-8");
    check(&["list", "presets"], 0, "llama-7b");
    check(&["list", "hardware"], 0, "h100-nvlink");
    check(&["list", "faults"], 0, "fewer-steps");
    check(&["doctor"], 0, "device");
    check(&["completions", "bash"], 0, "ranklab");
    check(&["show", "scenario"], 0, "micro_batches");
    check(&["show", "schema"], 0, "ranklab.run/1");
    check(&["show", "ring-8"], 0, "[collective]");
}

#[test]
fn json_is_one_document_that_fits_its_schema() {
    let schema = serde_json::from_str(&check_with(&["show", "schema"], "", 0, "")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for (scenario, code) in [("1f1b-p4m8", 0), ("ddp-4", 0), ("ring-8", 0), ("1f1b-blocking-p2", 11), ("skip-all-reduce-all", 13)]
    {
        let document = check_with(&["run", scenario, "--json"], "", code, "");
        let document: serde_json::Value = serde_json::from_str(&document).expect("one JSON document");
        let problems: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(problems.is_empty(), "{scenario}: {problems:?}");
        assert_eq!(document["schema"], "ranklab.run/1");
    }
}

#[test]
fn the_document_has_the_numbers_of_the_run() {
    let document = |arguments: &[&str], code| -> serde_json::Value {
        serde_json::from_str(&check_with(arguments, "", code, "")).expect("one JSON document")
    };
    let run = document(&["run", "1f1b-p8m16", "--json", "--set", "numerics.values=shape"], 0);
    assert_eq!(run["makespan"], 69.0);
    assert_eq!(run["unit"], "slots");
    assert_eq!(run["clock"]["kind"], "modelled");
    assert_eq!(run["ranks"][0]["peak_in_flight"], 8);
    assert_eq!(run["verdict"]["kind"], "none");
    let fraction = run["bubble"]["fraction"].as_f64().expect("a number");
    assert!((fraction - 7.0 / 23.0).abs() < 1e-12, "{fraction}");

    let deadlock = document(&["run", "1f1b-blocking-p2", "--json"], 11);
    assert_eq!(deadlock["outcome"], "deadlocked");
    assert_eq!(deadlock["waits"]["cycles"], serde_json::json!([[0, 1]]));

    let wrong = document(&["run", "skip-all-reduce-all", "--json"], 13);
    assert_eq!(wrong["outcome"], "wrong");
    assert_eq!(wrong["verdict"]["first_difference"]["op"], "all-reduce bucket0");
}

#[test]
fn nothing_is_overwritten() {
    let folder = folder("files");
    let file = folder.join("mine.toml");
    let name = file.to_str().expect("UTF-8");
    std::fs::write(&file, "mine").expect("a file");
    check(&["new", name], 2, "!exists");
    check(&["export", "1f1b-p4m8", "-f", "svg", "-o", name], 2, "!exists");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "mine");
    std::fs::remove_file(&file).expect("a file");
    check(&["new", name], 0, "");
    check(&["new", "-"], 0, "[pipeline]");
    check(&["run", name, "--set", "numerics.values=shape"], 0, "completed");
}

#[test]
fn every_form_is_exported() {
    for (format, start) in [("text", ""), ("json", "{"), ("perfetto", "{"), ("svg", "<svg"), ("csv", "")] {
        let out = check_with(&["export", "1f1b-p4m8", "-f", format, "-o", "-"], "", 0, start);
        assert!(out.len() > 200, "{format}: {out}");
    }
}

#[test]
fn plans_and_programs_are_printed() {
    check(&["compile", "1f1b-p4m8", "--after", "plan"], 0, "0F0,0F1,0F2,0F3,0B0,0F4");
    check(&["compile", "1f1b-p4m8", "--after", "lower"], 0, "forward blocks.0");
    check(&["compile", "1f1b-p4m8"], 0, "send x2.0 -> r1");
}

#[test]
fn two_runs_are_compared() {
    check(&["compare", "1f1b-p4m8", "gpipe-p4m8"], 0, "first difference: event ");
    check(&["compare", "11", "11"], 0, "the runs are equal");
    let out = check_with(&["compare", "11", "11", "--set-b", "pipeline.schedule=gpipe", "--json"], "", 0, "ranklab.compare/1");
    let document: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let schema: serde_json::Value = serde_json::from_str(ranklab::observe::compare::JSON_SCHEMA).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let problems: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(document["equal"], false);
    let measure = |name: &str| document["measures"].as_array().expect("a list").iter().find(|measure| measure["name"] == name);
    assert_eq!(measure("makespan").expect("it is there")["change"], 0.0);
    assert_eq!(measure("peak in flight").expect("it is there")["change"], 4.0);

    let folder = folder("compare");
    let saved = folder.join("run.trace");
    let saved = saved.to_str().expect("UTF-8");
    check_with(&["export", "11", "-f", "trace", "-o", saved], "", 0, "");
    check(&["compare", "11", saved], 0, "the runs are equal");
    check(&["compare", saved, saved], 0, "0 at another, 0 only in A, 0 only in B");
    check(&["compare", "11", saved, "--set-b", "seed=3"], 2, "!nothing of it can be set");
    std::fs::write(folder.join("half.trace"), &std::fs::read_to_string(saved).expect("the file")[..500]).expect("a file");
    check(&["compare", "11", folder.join("half.trace").to_str().expect("UTF-8")], 2, "!half.trace: line ");
    check(&["compare", "11", "nonsense"], 2, "!nonsense");
    check(&["show", "schema-compare"], 0, "ranklab.compare/1");
    std::fs::remove_dir_all(folder).expect("it is there");
}

/// A folder's name for a checkpoint that no earlier test has left.
fn new_path(name: &str) -> String {
    let path = folder("checkpoints").join(name);
    let _ = std::fs::remove_dir_all(&path);
    let _ = std::fs::remove_file(&path);
    path.to_str().expect("UTF-8").to_owned()
}

/// What ranks saved goes on with others, in other processes, and is one model at last.
#[test]
fn a_checkpoint_goes_from_run_to_run() {
    let (saved, model) = (new_path("saved"), new_path("model.safetensors"));
    let zero_3 = ["run", "zero-3", "--json", "--set", "numerics.exact=true"];
    let with = |more: &[&str]| -> serde_json::Value {
        let arguments = [&zero_3[..], more].concat();
        serde_json::from_str(&check_with(&arguments, "", 0, "")).expect("one JSON document")
    };
    let losses = |document: &serde_json::Value| document["loss"].as_array().expect("losses").clone();
    let whole = losses(&with(&["--steps", "4"]));
    let first = losses(&with(&["--steps", "1", "--save", &saved]));
    let rest = losses(&with(&["--steps", "3", "--resume", &saved, "--save", &saved, "--set", "data_parallel.strategy=ddp"]));
    let last = with(&["--steps", "4", "--resume", &saved, "--set", "data_parallel.strategy=zero-1"]);
    assert_eq!(whole, [first, rest, losses(&last)].concat(), "three runs are one");
    assert_eq!(last["verdict"]["kind"], "equal");
    check(&["checkpoint", "check", &saved], 0, "ok: behind step 3, saved by ddp on 4 ranks");
    check(&["checkpoint", "export", &saved, "--out", &model], 0, "");
    check(&["checkpoint", "check", &model], 0, "ok: the whole model");
    check(&["checkpoint", "export", &saved, "--out", &model], 2, "!exists");
}

#[test]
fn checkpoints_are_refused_with_their_reasons() {
    let (saved, none, empty) = (new_path("refused"), new_path("none"), new_path("empty"));
    check(&["run", "zero-3", "--steps", "1", "--save", &saved], 0, "completed");
    check(&["run", "zero-3", "--steps", "1", "--resume", &saved], 2, "!--steps 2 does one more");
    check(&["run", "zero-3", "--steps", "2", "--resume", &saved, "--set", "model.vocab=99"], 2, "!model.vocab = 256");
    check(&["run", "zero-3", "--steps", "1", "--save", &saved, "--set", "seed=3"], 2, "!another model or seed");
    check(&["run", "zero-3", "--resume", &none], 2, "!cannot read the checkpoint's manifest");
    check(&["run", "ring-8", "--save", &none], 2, "!no state to keep");
    check(&["run", "pipedream-p4m8", "--save", &none], 2, "!older versions of their weights");
    check(&["run", "1f1b-blocking-p2", "--save", &none], 11, "deadlock");
    check(&["checkpoint", "check", &none], 2, "!cannot read it");
    check(&["checkpoint", "export", &none, "--out", &empty], 2, "!manifest");
    assert!(!std::path::Path::new(&none).exists() && !std::path::Path::new(&empty).exists(), "nothing is half-written");
    let mut files = std::fs::read_dir(&saved).expect("a folder").map(|file| file.expect("a file").path());
    let rank = files.find(|path| path.extension().is_some_and(|ending| ending == "safetensors")).expect("a rank's file");
    let half = std::fs::read(&rank).expect("a file").len() / 2;
    std::fs::OpenOptions::new().write(true).open(&rank).and_then(|file| file.set_len(half as u64)).expect("a shorter file");
    check(&["checkpoint", "check", &saved], 10, "is cut off");
    check(&["run", "zero-3", "--steps", "2", "--resume", &saved], 2, "!is cut off");
}

/// What lesson 6 lets one do, and what it says that one sees.
#[test]
fn lesson_6_saves_and_does_not_gather() {
    let (saved, model, whole) = (new_path("lesson-6"), new_path("lesson-6.safetensors"), new_path("lesson-6-whole.safetensors"));
    check(&["run", "6", "--save", &saved], 0, "completed");
    check(&["checkpoint", "export", &saved, "--out", &model, "--no-gather"], 0, "");
    check(&["checkpoint", "check", &model], 10, "49 of 49 tensors have the shape [0]");
    check(&["checkpoint", "check", &model], 10, "0 B of the model's 263.25 KiB");
    let (direct, alone) = (new_path("lesson-6-direct.safetensors"), new_path("lesson-6-alone.safetensors"));
    check(&["run", "6", "--export", &direct], 0, "ok: the whole model in 49 tensors");
    let fault = ["run", "6", "--export", &alone, "--set", "trouble.0.kind=save-without-gather"];
    check(&fault, 10, "49 of 49 tensors have the shape [0]");
    check(&fault, 2, "!exists");
    check(&["checkpoint", "export", &saved, "--out", &whole], 0, "");
    assert_eq!(std::fs::read(&whole).expect("a file"), std::fs::read(&direct).expect("a file"), "two ways to one file");
    check(&["checkpoint", "check", &whole], 0, "ok: the whole model in 49 tensors");
}

#[test]
fn a_run_is_debugged_without_a_screen() {
    check(&["debug", "11"], 0, "r0 F0 > r1 F0 > r2 F0 > r3 F0 B0");
    check(&["debug", "11"], 0, "bubble 4u to 10u (r0): r0 B0 waits for g0 of r1, which waits for g0 of r2");
    check(&["debug", "11", "--break", "r2 op 2B1", "--break", "nan"], 0, "r2 op 2B1: met 2 times");
    check(&["debug", "11", "--why", "r3 1"], 0, "`1F0 forward blocks.2` was running, until 1.5u");
    check(&["debug", "11", "--why", "r3@4"], 0, "B0 runs from 4u to 6u, slack 0u");
    check(&["debug", "1f1b-blocking-p2", "--why", "r0 99"], 11, "the run has ended");
    check(&["debug", "11", "--break", "whenever"], 2, "!a breakpoint is r2, op 1B3");
    check(&["debug", "11", "--why", "r3"], 2, "!is no rank with a time");
    check(&["debug", "11", "--why", "r9 1"], 2, "!there is no r9");
    // Of 64 ranks four are followed; each is named by its number among all.
    check(&["debug", "72b-tp8-pp4-dp2", "--why", "r17 1000"], 0, "r17 does the same as r16, which is followed for it");
    check(&["debug", "72b-tp8-pp4-dp2", "--break", "r33 op 2F0"], 0, "r33 op 2F0: met 1 time");
    check(&["debug", "72b-tp8-pp4-dp2", "--break", "r99 op 2F0"], 2, "!there is no r99; the run has 64 ranks");
}

#[test]
fn a_mistake_is_told_by_what_it_is() {
    let place = folder("mistakes");
    let file = |name: &str, text: &str| write(&place, name, text);
    check(&["run", place.to_str().expect("UTF-8")], 2, "!");
    check(&["run", "1f1b-p4m"], 2, "!did you mean the scenario `1f1b-p4m8`?");
    check(&["show", "bogus"], 2, "!`show` takes scenario, schema,");
    check(&["search", "11", "--room", "99999999999"], 2, "!is out of range: 0.1 to 1,000,000");
    check(&["run", "11", "--set", "batch.micro_batches=1e9"], 2, "!with all its digits: 1000000000");
    check(&["run", "11", "--steps", "-1"], 2, "!allowed: 1 to 1,000,000");
    check(&["run", "11", "--steps", "99999999999999999999"], 2, "!allowed: 1 to 1,000,000");
    check(&["run", "11", "--set", "foo.bar=1"], 2, "!`ranklab show scenario` lists all keys");
    check(&["run", &file("commas.csv", ",,,\n,,,\n")], 2, "!is no plan");
    check(&["run", &file("other.json", "{\"traceEvents\": []}")], 2, "!is JSON");
    let saved = place.join("saved.json").display().to_string();
    check(&["export", "1f1b-p4m8", "-f", "trace", "-o", &saved], 0, "");
    check(&["run", &saved], 2, "!which `ranklab compare` reads");
    let nowhere = place.join("nowhere/x.toml").display().to_string();
    check(&["new", &nowhere], 2, "!there is no folder");
    check(&["compare", "11", "8", "--set", "numerics.values=shape"], 0, "33u  ");
}
