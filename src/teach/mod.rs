//! How it is taught: lessons, their format, and where they come from.
//!
//! A lesson is a folder with a text and scenarios; nothing about any one lesson is in Rust. [`lesson`] has the format.

pub mod book;
mod directive;
mod front;
pub mod lesson;
pub mod library;
mod markdown;
pub mod page;
mod problem;
mod stop;

pub use lesson::{Knob, Lesson, Origin, ScenarioText};
pub use library::Library;
pub use page::{Block, Page, Style, Text, View, Word};
pub use problem::Problem;
pub use stop::Stop;
