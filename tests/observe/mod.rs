//! What is learnt from runs: closed forms, recounts, documents and pictures.

mod closed_forms;
mod ledger;
mod scenes;
