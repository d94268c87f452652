//! The binary.

use ranklab::tui::{self, Look, Start};

fn main() -> std::process::ExitCode {
    let start = match std::env::args().nth(1) {
        Some(name) if std::path::Path::new(&name).is_file() => match ranklab::scenario::read(&name) {
            Ok(source) => Start::Scenario(source),
            Err(problems) => {
                eprintln!("{}", problems.render(false, 100));
                return std::process::ExitCode::from(2);
            }
        },
        Some(name) => Start::Lesson(name),
        None => Start::Lessons,
    };
    match tui::open(start, Look::of_environment(), None) {
        Ok(exit) => std::process::ExitCode::from(exit.code()),
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::from(2)
        }
    }
}
