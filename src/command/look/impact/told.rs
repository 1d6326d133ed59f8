//! The verdict on a deletion, as `impact` tells it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::command::document::{Object, Word, policy_name};
use crate::command::look::verdict::Ruling;
use crate::decide::{Blocker, Verdict, named_by, sentence, ways};
use crate::objects::Kinds;

/// The verdict.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// The verdict on the DELETE.
    pub verdict: Word,
    /// What stands against it, or is told of it.
    pub blockers: Vec<Why>,
    /// How many more reasons there are.
    pub more: usize,
    /// What else than an approval helps; not there where nothing is known to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
    /// The commands that approve it, if it is refused.
    pub approve: Vec<String>,
    /// Whether the one who asks may; not there if it is not refused, or nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub you_may: Option<bool>,
}

/// One reason.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The verdict for this reason alone.
    pub verdict: Word,
    /// The fixed word of a refusal, as in `status.reason` of the API server's answer.
    pub reason: &'static str,
    /// The object that is protected.
    pub object: Object,
    /// The reason in words.
    pub says: String,
    /// The policies that say so.
    pub policies: Vec<String>,
    /// The same in words.
    #[serde(skip)]
    pub by: String,
}

impl Told {
    /// What is said of deleting these.
    pub fn new(ruling: &Ruling, targets: &[Object], kinds: &Kinds) -> Self {
        let (way_out, approve) = match (&ruling.verdict, ruling.word) {
            (Some(verdict), Word::Deny) => ways(verdict),
            _ => (None, Vec::new()),
        };
        let blockers = ruling.verdict.iter().flat_map(|verdict| {
            verdict.blockers.iter().map(|blocker| Why {
                verdict: blocker.outcome.into(),
                reason: blocker.reason.as_str(),
                object: Object::of(&blocker.object, kinds),
                says: said(verdict, blocker, targets),
                policies: blocker.policies.iter().map(policy_name).collect(),
                by: named_by(blocker),
            })
        });
        Self {
            verdict: ruling.word,
            blockers: blockers.collect(),
            more: ruling.verdict.as_ref().map_or(0, |verdict| verdict.more),
            way_out,
            approve,
            you_may: None,
        }
    }

    /// Those that decide it.
    pub fn deciding(&self) -> impl Iterator<Item = &Why> {
        let strictest = self.blockers.first().map(|why| why.verdict);
        let records = strictest == Some(Word::Audit);
        self.blockers.iter().filter(move |why| Some(why.verdict) == strictest && !records)
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
