//! The verdict on a deletion, as `impact` tells it.

use serde::Serialize;

use crate::command::look::say::Object;
use crate::command::look::verdict::{Ruling, Word};
use crate::command::target::as_me;
use crate::decide::{Blocker, Decision, Verdict, named_by, sentence, ways};

/// The verdict.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// The word.
    pub decision: Word,
    /// Why not.
    pub blockers: Vec<Why>,
    /// How many more reasons there are.
    pub more: usize,
    /// What else than an approval helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
    /// The commands that approve it.
    pub approve: Vec<String>,
    /// Whether the one who asks may; not there if nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub you_may: Option<bool>,
}

/// One reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// What comes of it.
    pub outcome: &'static str,
    /// The fixed word.
    pub reason: &'static str,
    /// The reason in words.
    pub says: String,
    /// Whose rule it is.
    pub by: String,
}

impl Told {
    /// What is said of deleting these.
    pub fn new(ruling: &Ruling, targets: &[Object]) -> Self {
        let (way_out, approve) = match (&ruling.verdict, ruling.word) {
            (Some(verdict), Word::Denied) => ways(verdict),
            _ => (None, Vec::new()),
        };
        let blockers = ruling.verdict.iter().flat_map(|verdict| {
            verdict.blockers.iter().map(|blocker| Why {
                outcome: blocker.outcome.as_str(),
                reason: blocker.reason.as_str(),
                says: as_me(&said(verdict, blocker, targets)),
                by: named_by(blocker),
            })
        });
        Self {
            decision: ruling.word,
            blockers: blockers.collect(),
            more: ruling.verdict.as_ref().map_or(0, |verdict| verdict.more),
            way_out,
            approve,
            you_may: None,
        }
    }

    /// Those that decide it.
    pub fn deciding(&self) -> impl Iterator<Item = &Why> {
        let strictest = self.blockers.first().map(|why| why.outcome);
        let records = strictest == Some(Decision::Audit.as_str());
        self.blockers.iter().filter(move |why| Some(why.outcome) == strictest && !records)
    }
}

/// A reason in words. Admission has one target, and tells what goes along with
/// it; of a set each object is told by itself.
fn said(verdict: &Verdict, blocker: &Blocker, targets: &[Object]) -> String {
    let object = &blocker.object;
    let is = |target: &Object| {
        (&target.group, &target.resource, &target.namespace, &target.name)
            == (&object.group, &object.resource, &object.namespace, &object.name)
    };
    match targets {
        [_] => sentence(&verdict.target, blocker),
        all if all.iter().any(is) => sentence(object, blocker),
        _ => format!("{}, and would go along", sentence(object, blocker)),
    }
}
