//! Panels: each draws one part of the screen from the model, into a rectangle of any size, and changes nothing.

pub mod attention;
pub mod breakdown;
pub mod chrome;
pub mod compare;
pub mod debugger;
pub mod experts;
pub mod facts;
pub mod gaps;
pub mod graph;
pub mod held;
pub mod help;
pub mod links;
pub mod memory;
pub mod mesh;
pub mod metrics;
pub mod parts;
pub mod plan;
pub mod popup;
pub mod prepared;
pub mod selected;
pub mod shelf;
pub mod text;
pub mod timeline;
pub mod values;
pub mod waits;
pub mod wires;
