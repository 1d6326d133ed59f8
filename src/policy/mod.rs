//! Policies: what people write, and what verdicts read.

pub mod api;
