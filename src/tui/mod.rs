//! The screen: model, update, view. Everything in it but `run` is pure.

pub mod axis;
pub mod commands;
pub mod coverage;
pub mod demo;
pub mod glyphs;
pub mod keys;
pub mod layout;
pub mod lesson;
pub mod model;
pub mod panels;
pub mod pen;
pub mod picture;
pub mod run;
pub mod theme;
pub mod update;
pub mod view;
