//! `ranklab check FILE`: is the scenario well-formed, is its program sound, and does it come to an end? No numbers are computed. The table
//! of `nvidia-smi topo -m` is checked, too, and printed as the sections of a scenario.

use super::failure::print;
use super::input::Input;
use super::{Exit, Outcome};
use crate::base::words::counted;
use crate::lab::{self, Checked};

/// What to check.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
}

/// Prints what was found; the exit code says whether anything was.
pub fn run(arguments: &Arguments) -> Outcome {
    if let Some(topology) = arguments.input.topology()? {
        print(&format!("# {} GPUs, {} NICs\n{}", topology.gpus(), topology.nics(), topology.hardware()))?;
        return Ok(Exit::Done);
    }
    let asked = arguments.input.scenario()?;
    let checked = lab::check(&asked.scenario).map_err(|error| asked.failure(error))?;
    let mut lines: Vec<String> = checked.sheet.iter().map(|sheet| format!("sheet: {sheet}")).collect();
    lines.extend_from_slice(&checked.findings);
    if checked.findings.is_empty() {
        let Checked { ranks, ops, .. } = checked;
        let (ranks, ops) = (counted(ranks as u64, "rank"), if ops == 1 { "1 op".to_owned() } else { format!("{ops} ops") });
        lines.push(format!("ok: {ranks}, {ops}; every check passes, and a run of the shapes completes"));
    }
    print(&lines.join("\n"))?;
    Ok(if checked.findings.is_empty() { Exit::Done } else { Exit::CheckFailed })
}
