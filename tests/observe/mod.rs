//! What is learnt from runs: closed forms, recounts, documents and pictures.

mod breakpoints;
mod closed_forms;
mod cube;
mod documents;
mod lanes;
mod derived;
mod ledger;
mod pictures;
mod routes;
mod scenes;
mod slack;
mod states;
mod utilization;
mod why;
