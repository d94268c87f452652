//! `ranklab check FILE`: is the scenario well-formed, is its program sound, and does it come to an end? No numbers are computed.

use super::failure::print;
use super::input::Input;
use super::{Exit, Outcome};
use crate::lab::{self, Checked};

/// What to check.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
}

/// Prints what was found; the exit code says whether anything was.
pub fn run(arguments: &Arguments) -> Outcome {
    let scenario = arguments.input.scenario()?;
    let checked = lab::check(&scenario)?;
    let mut text = checked.sheet.map_or_else(String::new, |sheet| format!("sheet: {sheet}\n"));
    for finding in &checked.findings {
        text.push_str(finding);
        text.push('\n');
    }
    if checked.findings.is_empty() {
        let Checked { ranks, ops, .. } = checked;
        text.push_str(&format!("ok: {ranks} ranks, {ops} ops; every check passes, and a run of the shapes completes\n"));
    }
    print(&text)?;
    Ok(if checked.findings.is_empty() { Exit::Done } else { Exit::CheckFailed })
}
