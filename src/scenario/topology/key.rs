//! `hardware.topology`: a file with a node's table, whose numbers count where the scenario writes none of its own.

use super::Topology;
use crate::scenario::keys::hardware;
use crate::scenario::load;
use crate::scenario::problem::Problem;
use crate::scenario::written::Written;

/// Reads the file that the scenario names, and lets what it says count as written.
pub(in crate::scenario) fn read(written: &mut Written) {
    let Some(name) = written.text(&hardware::TOPOLOGY).filter(|name| name != "none") else { return };
    if written.text(&hardware::COSTS).as_deref() == Some("unit") {
        let problem = Problem::new("with unit costs messages are free: a node's links mean nothing").allowed("a hardware table");
        return written.refuse(&[&hardware::TOPOLOGY, &hardware::COSTS], problem.hint("costs = \"h100-nvlink\""));
    }
    let path = written.beside(&name);
    match load::read(&path).and_then(|source| Topology::parse(&name, &source.text)) {
        Ok(topology) => {
            for (key, value) in topology.settings() {
                if !written.has(key, 0) {
                    written.imply(key, value);
                }
            }
        }
        Err(problems) => {
            for problem in problems.list.iter().take(MOST_PROBLEMS) {
                let problem = Problem::new(format!("`{name}`: {}", problem.message)).allowed(problem.allowed.clone());
                written.refuse(&[&hardware::TOPOLOGY], problem.hint("`ranklab check` of that file shows the places"));
            }
        }
    }
}

/// A table that is wrong is wrong in every row.
const MOST_PROBLEMS: usize = 3;
