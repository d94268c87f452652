//! The binary.

use ranklab::tui::{demo, model::Model, run, theme};

fn main() -> std::process::ExitCode {
    let surroundings = theme::Surroundings::read();
    let theme = surroundings.theme(theme::ColourWish::Auto, None);
    let model = Model::new(run::terminal_size(), theme, surroundings.tier(), demo::lessons());
    if !run::is_terminal() {
        eprintln!("the lab needs a terminal");
        return std::process::ExitCode::from(2);
    }
    match run::run(model, demo::perform) {
        Ok(exit) => std::process::ExitCode::from(exit.code()),
        Err(error) => {
            eprintln!("cannot draw on this terminal: {error}");
            std::process::ExitCode::from(1)
        }
    }
}
