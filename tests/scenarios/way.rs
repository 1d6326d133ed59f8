//! A refusal contains the commands that make the deletion possible, and they work.

mod commands;
mod denials;

use std::time::Duration;

use crate::harness::kubectl::Output;
use crate::harness::{ControlPlane, eventually};

/// The commands `kubectl belay VERB …` of a refusal, word by word.
pub fn commands_in(text: &str, verb: &str) -> Vec<Vec<String>> {
    let begin = format!("kubectl belay {verb} ");
    let mut commands = Vec::new();
    for rest in text.split(&begin).skip(1) {
        let ends = [". Details: ", ". To override", ". To make", " and kubectl ", " (", "\n"];
        let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        let words = rest[..end].split_whitespace().map(|word| match word.contains('…') {
            true => "it was agreed".to_owned(),
            false => word.trim_matches('"').to_owned(),
        });
        commands.push([verb.to_owned()].into_iter().chain(words).collect());
    }
    commands
}

/// Repeats the refused request until it passes: belay sees an approval by its watch a
/// moment later.
pub fn passes_now(mut request: impl FnMut() -> Output) {
    eventually("the request, after the approval", Duration::from_secs(20), || {
        request().success().map(drop)
    })
    .unwrap();
}

/// Waits until an object is deleted.
pub fn wait_until_deleted(plane: &ControlPlane, ns: &str, object: &str) {
    plane.api().wait_gone((object, ns), Duration::from_secs(60)).unwrap();
}
