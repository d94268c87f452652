//! The debugger: the ranks' programs, where each stands, and why it waits.

use crate::tui::data::{PanelView, RunData};
use crate::tui::pen::Pen;

/// Draws it at the position of `view`.
pub fn draw(_data: &RunData, _view: &PanelView, _pen: &mut Pen<'_>) {}
