//! The command line: one file a subcommand, data to standard output, messages to standard error.

mod check;
mod checkpoint;
mod compare;
mod compile;
mod completions;
mod debug;
mod doctor;
mod export;
mod failure;
mod input;
mod learn;
mod list;
mod machine;
mod new;
mod run;
mod search;
mod show;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use failure::{Exit, Failure};

/// What a subcommand gives.
type Outcome = Result<Exit, Failure>;

/// Learn, see, break and debug the distributed training of large models.
#[derive(Debug, Parser)]
#[command(name = "ranklab", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Arguments {
    /// Without a command: the list of lessons, on a screen where there is a terminal.
    #[command(subcommand)]
    command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Open the lab, at a lesson if one is named
    Learn(learn::Arguments),
    /// Run a scenario or a lesson, and print what came out of it
    Run(run::Arguments),
    /// Print the plan or the program that a scenario compiles to
    Compile(compile::Arguments),
    /// Search for a better schedule of a scenario's pipeline, beside the named ones
    Search(search::Arguments),
    /// Check a scenario, and the program that it compiles to, without running its numbers
    Check(check::Arguments),
    /// Run two scenarios, or read saved traces, and say how they differ
    Compare(compare::Arguments),
    /// Say where idle time comes from, when breakpoints are met, and why a rank waits
    Debug(debug::Arguments),
    /// Run a scenario, and write its picture or its record to a file
    Export(export::Arguments),
    /// Export or check a checkpoint that `run --save` wrote
    Checkpoint(checkpoint::Arguments),
    /// List lessons, scenarios, schedules, presets, hardware tables and faults
    List(list::Arguments),
    /// Print the keys of a scenario, a schema, or the text of a scenario that ships with ranklab
    Show(show::Arguments),
    /// Write a commented scenario to a new file
    New(new::Arguments),
    /// Say what this terminal and this machine can do
    Doctor(doctor::Arguments),
    /// Print completions for a shell
    Completions(completions::Arguments),
}

const EXIT_CODES: &str = "Exit codes: 0 completed and not wrong, 1 unexpected error, 2 malformed or impossible input, 10 a check failed, \
11 deadlocked, 12 the modelled card is full, 13 wrong numbers, 20 device missing, 130 interrupted";

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors; clap knows where each belongs.
            return match (error.print(), error.use_stderr()) {
                (_, true) => Exit::Input,
                (Ok(()), false) => Exit::Done,
                (Err(problem), false) => {
                    let failure = Failure::of_output(&problem, error.render().to_string().len());
                    failure.report();
                    failure.exit()
                }
            }
            .into();
        }
    };
    match dispatch(arguments.command) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.report();
            failure.exit().into()
        }
    }
}

fn dispatch(command: Option<Command>) -> Outcome {
    match command {
        None if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() => learn::run(&learn::Arguments::default()),
        None => list::lessons(),
        Some(Command::Learn(arguments)) => learn::run(&arguments),
        Some(Command::Run(arguments)) => run::run(&arguments),
        Some(Command::Compile(arguments)) => compile::run(&arguments),
        Some(Command::Search(arguments)) => search::run(&arguments),
        Some(Command::Check(arguments)) => check::run(&arguments),
        Some(Command::Compare(arguments)) => compare::run(&arguments),
        Some(Command::Debug(arguments)) => debug::run(&arguments),
        Some(Command::Export(arguments)) => export::run(&arguments),
        Some(Command::Checkpoint(arguments)) => checkpoint::run(&arguments),
        Some(Command::List(arguments)) => list::run(&arguments),
        Some(Command::Show(arguments)) => show::run(&arguments),
        Some(Command::New(arguments)) => new::run(&arguments),
        Some(Command::Doctor(arguments)) => doctor::run(&arguments),
        Some(Command::Completions(arguments)) => completions::run(&arguments),
    }
}
