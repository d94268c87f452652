//! The texts that the table of keys makes: `show scenario`, `new`, and what a changed knob is saved as.

use insta::assert_snapshot;
use ranklab::scenario::keys::{KEYS, Unwritten};
use ranklab::scenario::{Scenario, Task, merged, new_scenario, show_scenario};

use super::toml_files;

fn parse(text: &str, overrides: &[&str]) -> Scenario {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    Scenario::parse("text.toml", text, &overrides).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn show_scenario_lists_every_key() {
    let shown = show_scenario();
    for key in KEYS {
        assert!(shown.contains(key.name), "{}", key.path());
    }
    assert_snapshot!("show-scenario", shown);
}

#[test]
fn a_new_scenario_means_the_defaults() {
    let text = new_scenario();
    assert_eq!(parse(&text, &[]), parse("# nothing", &[]));
    for key in KEYS {
        assert!(text.contains(&format!("{} =", key.name)), "{}", key.path());
    }
    assert_snapshot!("new-scenario", text);
}

/// Examples stand behind a single `#`: they are worth trying, and each may be.
#[test]
fn every_example_of_a_new_scenario_may_be_tried() {
    let text = new_scenario();
    let (training, pieces) = text.split_once("# [collective]").expect("the sections of bare pieces");
    let (collective, layer) = pieces.split_once("# [layer]").expect("the last section");
    let uncommented = |text: &str| {
        let line = |line: &str| match line.strip_prefix("# ") {
            Some(example) if example.starts_with('[') || example.split(' ').nth(1) == Some("=") => format!("{example}\n"),
            _ => format!("{line}\n"),
        };
        text.lines().map(line).collect::<String>()
    };
    // A section of experts means some, and either its skew or its loads say how often each is chosen.
    let (before, experts) = training.split_once("# [experts]").expect("the section of experts");
    let (experts, behind) = experts.split_once("[data_parallel]").expect("the section behind it");
    let training = &format!("{before}[data_parallel]{behind}");
    let skewed = experts.replace("\n# loads", "\n## loads");
    let Task::Train(task) = parse(&uncommented(&format!("# [experts]{skewed}")), &[]).task else { panic!("a training step") };
    assert!(task.model.has_experts());
    // Numbers of a device want a table, and slots want none.
    let (slots, _) = training.split_once("# [hardware.device]").expect("numbers of a table");
    parse(&uncommented(slots), &[]);
    let all = parse(&uncommented(training).replace("\noverlapped =", "\n# overlapped ="), &["hardware.costs=laptop"]);
    let Task::Train(task) = &all.task else { panic!("a training step") };
    let Task::Train(defaults) = parse("# nothing", &[]).task else { panic!("a training step") };
    assert_eq!(*task, defaults, "the examples are the tiny preset's values");
    assert_eq!(all.trouble.len(), 1);
    parse(&uncommented(&format!("# [collective]{collective}")), &[]);
    parse(&uncommented(&format!("# [layer]{layer}")), &[]);
}

#[test]
fn an_override_is_the_same_as_the_key_in_the_file() {
    let check = |text: &str, overrides: &[&str]| assert_eq!(parse("# nothing", overrides), parse(text, &[]), "{overrides:?}");
    check("title = 'a b'", &["title=a b"]);
    check("title = 'a=b'", &["title = \"a=b\""]);
    check("title = '7'", &["title=7"]);
    check("seed = 7", &["seed=7"]);
    check("pipeline.schedule = 'gpipe'", &["pipeline.schedule=gpipe"]);
    check("batch.steps = 5", &["batch.steps=4", "batch.steps=5"]);
    check("hardware.forward = 0.5", &["hardware.forward=0.5"]);
    check(
        "parallel.pipeline = 2\npipeline.layers_per_stage = [3, 5]",
        &["pipeline.layers_per_stage=[3, 5]", "parallel.pipeline=2"],
    );
    check("hardware = { costs = 'laptop', inside = { alpha = 3 } }", &["hardware.costs=laptop", "hardware.inside.alpha=3"]);
    check("[[trouble]]\nkind = 'slow-rank'\nfactor = 3", &["trouble.0.kind=slow-rank", "trouble.0.factor=3"]);
    check("[collective]\nranks = 5", &["collective.ranks=5"]);
}

#[test]
fn an_override_replaces_the_file_s_value() {
    let text = "[batch]\nsteps = 3\n[[trouble]]\nkind = 'slow-rank'\n[[trouble]]\nkind = 'slow-link'\nfactor = 3";
    let scenario = parse(text, &["trouble.1.factor=4", "batch.steps=7"]);
    let expected = parse(&text.replace("factor = 3", "factor = 4").replace("steps = 3", "steps = 7"), &[]);
    assert_eq!(scenario, expected);
}

#[test]
fn a_merged_scenario_means_the_same() {
    for (name, text) in toml_files("scenarios") {
        let overrides = ["seed=42".to_owned(), "title=a \"quoted\" \\ title".to_owned()];
        let merged = merged(&name, &text, &overrides).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(parse(&merged, &[]), Scenario::parse(&name, &text, &overrides).expect("it was merged"), "{merged}");
    }
    let text = "[hardware]\ncosts = 'laptop'\n[hardware.inside]\nalpha = 3\n[numerics]\ndtype = 'f64'";
    let overrides = ["trouble.0.kind=slow-rank".to_owned(), "optimizer.lr=1e-3".to_owned()];
    assert_snapshot!("merged", merged("text.toml", text, &overrides).expect("it is right"));
}

#[test]
fn every_key_has_its_words() {
    for key in KEYS {
        let (Unwritten::Is(text) | Unwritten::Like(_, text)) = key.unwritten;
        assert!(!text.is_empty() && !key.meaning.is_empty() && !key.meaning.ends_with('.'), "{}", key.path());
    }
}
