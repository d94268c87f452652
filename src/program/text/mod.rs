//! The text form of a program: prints with `to_string`, reads back with `parse` to an equal program.
//!
//! Unindented lines open sections, indented lines are their entries, `#` starts a comment, names with odd characters stand in quotes.
//! First come declarations (`setting`, `streams`, `channels`, `groups`, `collectives`, `kernels`, `layouts`, `parameters`, `buffers`), which
//! a reader may skip; then every rank's ops in issue order:
//!
//! ```text
//! rank 0
//!   %12  compute   0F0  forward blocks.3 x3.0 p37..p48 -> x4.0 saved4.0  after %9  free x3.0  by lower
//!   %40  pp+1.out  0F0  send x4.0 -> r1  after %12  by messages
//! ```
//!
//! An op is: its id, its stream, the slot that asked for it, what it does to which buffers, the ops that it waits for, the buffers whose
//! last use it is, and the pass of the compiler that made it. `step 1` says that the ops below it belong to that step.
//! Buffers are told by their names, those of another rank as `x4.0@r1`, neighbours as a range. A collective's operands are named once:
//! it reads and writes them.
//!
//! Much may be left out of a text written by hand: ids of ops that nobody waits for, slots, passes, costs of kernels. A section of
//! declarations that is not there declares what the ops name: streams, channels that are not buffered, kernels without cost, collectives
//! of all ranks, buffers of one f32.

mod fields;
mod lookup;
mod operations;
mod parse;
mod print;
mod sections;
mod shapes;
mod words;

pub use parse::parse;

use super::name::Name;

/// What is wrong with a line of a program's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{text}` {problem}{}", hint_text(.hint.as_deref()))]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The word that is wrong.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
    /// What may help.
    pub hint: Option<String>,
}

fn hint_text(hint: Option<&str>) -> String {
    hint.map_or(String::new(), |hint| format!(" ({hint})"))
}

/// Cuts `items` into runs in which each is followed by its `next`.
fn runs<T: PartialEq + Copy>(items: &[T], next: impl Fn(T) -> Option<T>) -> impl Iterator<Item = &[T]> {
    items.chunk_by(move |&a, &b| next(a) == Some(b))
}

/// Reads a name, or a range of names such as `p3..p9`, as its first and last.
fn range(text: &str) -> Option<(Name, Name)> {
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (Name::parse(first)?, Name::parse(last)?),
        None => (Name::parse(text)?, Name::parse(text)?),
    };
    first.distance(last).map(|_| (first, last))
}
