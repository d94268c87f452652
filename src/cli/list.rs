//! `ranklab list`: what there is to learn, to run, and to choose from.

use std::fmt::Write;

use super::failure::{note, print};
use super::{Exit, Failure, Outcome};
use crate::base::PointToPoint;
use crate::base::tables::TABLES;
use crate::lab::semantics;
use crate::program::trouble::{FAULTS, Fault};
use crate::scenario::presets::PRESETS;
use crate::schedule::{SCHEDULES, Schedule};
use crate::teach::{Library, library};

/// What to list.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What to list
    #[arg(value_enum, default_value = "lessons")]
    what: What,
}

/// The lists.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    Lessons,
    Scenarios,
    Schedules,
    /// Which schedules deadlock, by point-to-point semantics
    Deadlocks,
    Presets,
    Hardware,
    Faults,
}

/// Prints the list.
pub fn run(arguments: &Arguments) -> Outcome {
    let rows: Vec<(String, &str)> = match arguments.what {
        What::Lessons => return lessons(),
        What::Scenarios => return scenarios(),
        What::Schedules => return schedules(),
        What::Deadlocks => return deadlocks(),
        What::Faults => return faults(),
        What::Presets => PRESETS.iter().map(|preset| (preset.name.to_owned(), preset.meaning)).collect(),
        What::Hardware => TABLES.iter().map(|table| (table.name.to_owned(), table.meaning)).collect(),
    };
    print(&columns(&rows))?;
    Ok(Exit::Done)
}

/// Prints the lessons; those that cannot be read go to standard error.
pub fn lessons() -> Outcome {
    let library = Library::open();
    let row = |lesson: &crate::teach::Lesson| {
        format!("{:>3}  {:<24} {:>3} min  {}", lesson.number, lesson.name, lesson.minutes, lesson.title)
    };
    let rows: Vec<String> = library.lessons().iter().map(row).collect();
    print(&format!(
        "{}\n\nnext: ranklab learn {}",
        rows.join("\n"),
        library.lessons().first().map_or(2, |lesson| lesson.number)
    ))?;
    for broken in library.broken() {
        for problem in &broken.problems {
            note(format_args!("lesson {}: {problem}", broken.name));
        }
    }
    Ok(Exit::Done)
}

/// Each schedule with what it does, how long ranks are idle, and where it is from.
fn schedules() -> Outcome {
    let lines = |schedule: &Schedule| {
        let about =
            [schedule.meaning.to_owned(), format!("idle: {}", schedule.theory.idle), format!("from: {}", schedule.source)];
        let names = [schedule.name, "", ""].map(str::to_owned);
        names.into_iter().zip(about)
    };
    let rows: Vec<(String, String)> = SCHEDULES.iter().flat_map(lines).collect();
    let rows: Vec<(String, &str)> = rows.iter().map(|(name, about)| (name.clone(), about.as_str())).collect();
    print(&columns(&rows))?;
    print("p ranks, v stages of each, m micro-batches; F, I and W are a stage's passes, B = I + W, t = F + B")?;
    Ok(Exit::Done)
}

/// Each fault with what goes wrong, what is seen of it, and what it needs.
fn faults() -> Outcome {
    let lines = |fault: &Fault| {
        let needs = fault.needs.iter().map(|key| key.name()).collect::<Vec<_>>().join(", ");
        let needs = (!needs.is_empty()).then(|| format!("needs: {needs}"));
        let wants = (!fault.wants.is_empty()).then(|| format!("only with: {}", fault.wants));
        let about = [Some(fault.meaning.to_owned()), Some(format!("seen: {}", fault.seen)), needs, wants];
        let names = std::iter::once(fault.name.to_owned()).chain(std::iter::repeat(String::new()));
        names.zip(about.into_iter().flatten()).collect::<Vec<_>>()
    };
    let rows: Vec<(String, String)> = FAULTS.iter().flat_map(lines).collect();
    let rows: Vec<(String, &str)> = rows.iter().map(|(name, about)| (name.clone(), about.as_str())).collect();
    print(&columns(&rows))?;
    print("a rule of a scenario: [[trouble]] with `kind`, and `rank`, `op`, `step` where it is to meet some alone")?;
    Ok(Exit::Done)
}

/// Each schedule with the semantics under which it completes or deadlocks, and the circle where sends hold their rank.
fn deadlocks() -> Outcome {
    let table = semantics::table().map_err(|error| Failure::Io(error.to_string()))?;
    let mut text = format!("{:<14}", "schedule");
    PointToPoint::ALL.iter().for_each(|p2p| {
        let _ = write!(text, " {p2p:>10}");
    });
    text.push('\n');
    for row in &table {
        let _ = write!(text, "{:<14}", row.schedule);
        for completes in &row.completes {
            let _ = write!(text, " {:>10}", if *completes { "ok" } else { "DEADLOCK" });
        }
        text.push('\n');
    }
    text.push_str("\n4 ranks, 8 micro-batches; each was run. The circle with blocking messages:\n");
    for row in table.iter().filter(|row| !row.why.is_empty()) {
        let _ = writeln!(text, "{:<14} {}", row.schedule, row.why);
    }
    print(text.trim_end())?;
    Ok(Exit::Done)
}

fn scenarios() -> Outcome {
    let title =
        |text: &str| text.lines().find_map(|line| line.strip_prefix("title = ")).unwrap_or("").trim_matches('"').to_owned();
    let rows: Vec<(String, String)> = library::scenarios()
        .map(|scenario| (scenario.name.trim_end_matches(".toml").to_owned(), title(&scenario.text)))
        .collect();
    let rows: Vec<(String, &str)> = rows.iter().map(|(name, title)| (name.clone(), title.as_str())).collect();
    print(&columns(&rows))?;
    Ok(Exit::Done)
}

/// Names and meanings in two columns.
fn columns(rows: &[(String, &str)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().fold(String::new(), |mut text, (name, meaning)| {
        let _ = writeln!(text, "{name:<width$}  {meaning}");
        text
    })
}
