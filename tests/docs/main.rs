//! The documentation, held to what it speaks of: alerts and their runbooks,
//! reason words, metrics, links, commands, documents. Needs no control plane.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../schema/mod.rs"]
mod schema;

mod alerts;
mod commands;
mod examples;
mod json;
mod links;
mod metrics;
mod pages;
mod reference;
mod refusals;
