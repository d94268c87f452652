//! Lessons: the shipped ones are whole, fit the screen and are found; what is wrong is said with file and line.

mod book;
mod claims;
mod content;
mod facts;
mod find;
mod format;
mod own;
mod runs;
mod wrap;

use ranklab::teach::Library;

/// The shipped lessons, each of which can be read.
fn shipped() -> Library {
    let library = Library::shipped();
    assert_eq!(library.broken(), [], "every shipped lesson can be read");
    library
}
