//! Panels: each draws one part of the screen from the model, into a rectangle of any size, and changes nothing.

pub mod chrome;
pub mod debugger;
pub mod facts;
pub mod held;
pub mod help;
pub mod links;
pub mod memory;
pub mod metrics;
pub mod popup;
pub mod selected;
pub mod shelf;
pub mod text;
pub mod timeline;
pub mod waits;
