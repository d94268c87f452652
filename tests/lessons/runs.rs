//! The lessons' runs: knobs and stops fit them, and what the pages say about them is what they give.

use ranklab::lab::Lab;
use ranklab::scenario::Scenario;
use ranklab::teach::{Block, Lesson};

use super::claims::CLAIMS;
use super::facts::facts;
use super::shipped;

/// The scenario `name` of `lesson` with these settings.
fn scenario(lesson: &Lesson, name: &str, set: &[String]) -> Scenario {
    let text = &lesson.scenario(name).expect("a scenario of the lesson").text;
    Scenario::parse(name, text, set).unwrap_or_else(|problems| panic!("{}: {set:?}\n{problems}", lesson.name))
}

#[test]
fn scenarios_and_knobs_fit_each_other() {
    for lesson in shipped().lessons() {
        for file in &lesson.scenarios {
            scenario(lesson, &file.name, &[]);
        }
        let offered = lesson.knobs.iter().flat_map(|knob| knob.values.iter().map(|value| format!("{}={value}", knob.key)));
        offered.for_each(|set| _ = scenario(lesson, "scenario.toml", &[set]));
        for page in &lesson.pages {
            for block in &page.blocks {
                let Block::Try { key, values, .. } = block else { continue };
                values.iter().for_each(|value| _ = scenario(lesson, &page.scenario, &[format!("{key}={value}")]));
            }
        }
    }
}

#[test]
fn pages_stand_where_their_runs_come() {
    for lesson in shipped().lessons() {
        let mut lab = Lab::new();
        for file in &lesson.scenarios {
            let run = lab.run(&scenario(lesson, &file.name, &[])).expect("a run");
            for page in lesson.pages.iter().filter(|page| page.scenario == file.name) {
                let Some(stop) = &page.stop else { continue };
                let position = stop.position(run.session.program(), run.session.trace());
                assert!(position.is_some(), "{}, {}: {stop:?}", lesson.name, page.title);
            }
        }
    }
}

#[test]
fn what_pages_say_is_what_runs_give() {
    let library = shipped();
    let mut lab = Lab::new();
    let mut wrong = Vec::new();
    for (name, file, set, claim) in CLAIMS {
        let lesson = library.find(name).expect("a shipped lesson");
        let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
        let run = lab.run(&scenario(lesson, file, &set)).expect("a run");
        let facts = facts(&run);
        let missing: Vec<&str> = claim.split(", ").filter(|fact| !facts.iter().any(|known| known == fact)).collect();
        if !missing.is_empty() {
            wrong.push(format!("{name} {file} {set:?}: {missing:?} is not among {facts:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
