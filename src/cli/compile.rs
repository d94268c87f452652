//! `ranklab compile FILE [--after PASS]`: the plan, or the program behind a pass.

use super::failure::{note, print};
use super::input::Input;
use super::{Exit, Failure, Outcome};
use crate::compile;
use crate::program::sheet::Sheet;
use crate::scenario::{Order, Task, Training};

/// What to compile, and where to stop.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Print the program behind this pass; `plan` prints the plan as PyTorch's CSV, `sheet` the plan with its messages as
    /// `PyTorch` loads it. Default: behind the last pass
    #[arg(long, value_name = "PASS")]
    after: Option<String>,
}

/// Prints plan or program.
pub fn run(arguments: &Arguments) -> Outcome {
    let scenario = arguments.input.scenario()?.scenario;
    let text = match arguments.after.as_deref() {
        None => compile::compile(&scenario).program.to_string(),
        Some(form @ ("plan" | "sheet")) => match &scenario.task {
            Task::Train(training) if form == "plan" => plan(training),
            Task::Train(training) => sheet(training)?,
            Task::Collective(_) | Task::Layer(_) | Task::Experts(_) => {
                return Err(Failure::Input("a bare piece has no plan; its passes are the same".to_owned()));
            }
        },
        Some(pass) => match compile::compile_until(&scenario, pass) {
            Some(compiled) => compiled.program.to_string(),
            None => return Err(unknown(pass)),
        },
    };
    print(&text)?;
    Ok(Exit::Done)
}

/// The plan as PyTorch's CSV; a sheet with all its actions, in the letters of today. What PyTorch would not take is said beside it.
fn plan(training: &Training) -> String {
    let Order::Sheet(sheet) = &training.pipeline.order else {
        let plan = compile::plan(training);
        let text = plan.to_string();
        if let Err(errors) = Sheet::parse(&text) {
            let why = errors.first().map_or(String::new(), ToString::to_string);
            note(format_args!("note: PyTorch does not load this plan: {why}"));
        } else if plan.micro_batches() < plan.rows.len() {
            note(format_args!("note: PyTorch warns of fewer micro-batches than ranks"));
        }
        return text;
    };
    sheet.to_string()
}

/// The plan with its messages; a sheet that says where they stand as it is.
fn sheet(training: &Training) -> Result<String, Failure> {
    if let Order::Sheet(sheet) = &training.pipeline.order
        && sheet.has_messages()
    {
        return Ok(sheet.to_string());
    }
    let lowered = Sheet::with_messages(&compile::plan(training));
    lowered.map(|sheet| sheet.to_string()).map_err(|errors| {
        let why = errors.first().map_or(String::new(), ToString::to_string);
        Failure::Input(format!("PyTorch does not load this plan: {why}"))
    })
}

fn unknown(pass: &str) -> Failure {
    let names: Vec<&str> = ["plan", "sheet"].into_iter().chain(compile::pass_names()).collect();
    let nearest = names.iter().max_by(|a, b| strsim::jaro_winkler(a, pass).total_cmp(&strsim::jaro_winkler(b, pass)));
    let hint = nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
    Failure::Input(format!("there is no pass `{pass}`; the passes are {}{hint}", names.join(", ")))
}
