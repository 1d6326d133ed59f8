//! Compares the documentation with the program: alerts and their runbooks, reasons,
//! metrics, links, commands, documents, language, tests of attacks, names of
//! code. Needs no control plane.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../schema/mod.rs"]
mod schema;

mod alerts;
mod code_names;
mod commands;
mod examples;
mod json;
mod language;
mod links;
mod metrics;
mod pages;
mod reference;
mod refusals;
mod rust_texts;
mod threats;
