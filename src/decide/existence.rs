//! Whether the object of a review exists.
//!
//! The API server asks only about objects that it stores. Other callers, who
//! know the path, can name any object. An answer that says anything needs an
//! object that exists, with the uid that the review has: such a caller must not
//! learn what uses an object by guessing its name.

use super::content::Container;
use super::item::Item;
use super::{
    AdmissionPhase, Cause, Decision, LiveRead, Review, Situation, Verdict, decide_unknown,
};
use crate::objects::ApiError;

/// Whether an object exists, as far as the graph and live reads tell.
#[derive(Debug)]
pub enum Existence {
    /// It exists, with this uid.
    Exists,
    /// It doesn't exist. Another object may have its name.
    Absent,
    /// This has to be read first.
    Unread(LiveRead),
    /// It can't be read, and why.
    Unknown(String),
}

impl Existence {
    /// What a live read says of an object.
    pub(super) fn of_item(situation: &Situation<'_>, item: &Item<'_>) -> Self {
        Self::find(situation, item, true)
    }

    /// An eviction names a Pod without its uid.
    fn find(situation: &Situation<'_>, item: &Item<'_>, has_uid: bool) -> Self {
        let Some(kind) = item.kind else {
            return Self::Unknown("belay does not know its kind".to_owned());
        };
        let (namespace, name) = (item.facts.namespace, item.facts.name);
        if let Some(found) = situation.read_object(kind, namespace, name) {
            let exists = found.is_some_and(|node| !has_uid || node.uid() == item.uid());
            return if exists { Self::Exists } else { Self::Absent };
        }
        let read = situation.object_read(kind, namespace, name);
        if situation.is_unread(&read) {
            return Self::Unread(read);
        }
        let failed = situation.reads().and_then(|reads| reads.done.get(&read)?.as_ref().err());
        let why = failed.map_or_else(|| "it is not read live".to_owned(), ApiError::to_string);
        Self::Unknown(format!("objects of kind {}: {why}", situation.graph.kinds.info(kind).kind))
    }
}

/// Whether the object of a review exists, or the Pod of an eviction. What is
/// created doesn't exist yet.
pub fn target_existence(situation: &Situation<'_>, review: &Review<'_>) -> Existence {
    let has_uid = review.resource.subresource != "eviction";
    let object = if has_uid { &review.old_object } else { &review.object };
    let Some(object) = object else { return Existence::Absent };
    let item = Item::of_review(situation, review, object);
    let named = || {
        let (namespace, name) = (item.facts.namespace, item.facts.name);
        item.kind.is_some_and(|kind| situation.graph.object(kind, namespace, name).is_some())
    };
    if item.node.is_some() || (!has_uid && named()) {
        return Existence::Exists;
    }
    Existence::find(situation, &item, has_uid)
}

/// What is said of a container that the graph doesn't have, until it was read. Its
/// content goes by its name: without this, a review with a made-up uid would
/// have all of it walked.
pub(super) fn decide_unknown_container(
    situation: &Situation<'_>,
    review: &Review<'_>,
) -> Option<Verdict> {
    let object = review.old_object.as_ref()?;
    situation.reads()?;
    let item = Item::of_review(situation, review, object);
    let watched = item.kind.is_some_and(|kind| situation.graph.is_complete(kind));
    if review.phase == AdmissionPhase::Mutate || item.node.is_some() || !watched {
        return None;
    }
    Container::from_item(&item)?;
    match Existence::of_item(situation, &item) {
        Existence::Exists => None,
        Existence::Absent => Some(Verdict::allow(review.target())),
        Existence::Unread(read) => {
            let unread = decide_unknown(review, "there was no time left to read it".to_owned());
            Some(Verdict { confirm: vec![read], ..unread })
        }
        Existence::Unknown(why) => Some(decide_unknown(review, why)),
    }
}

/// The verdict, if the object of the review exists. If it doesn't, belay says
/// nothing: a request for an object that was deleted meanwhile fails anyway.
/// While that is unknown, a refusal stays a refusal and names nothing.
pub(super) fn decide_existing(
    situation: &Situation<'_>,
    review: &Review<'_>,
    verdict: Verdict,
) -> Verdict {
    let Some(object) = review.old_object.as_ref().filter(|_| situation.reads().is_some()) else {
        return verdict;
    };
    let item = Item::of_review(situation, review, object);
    let nothing = Verdict::allow(verdict.target.clone());
    // Labels protect objects of kinds that belay may not read, too.
    let watched = item.kind.is_some_and(|kind| situation.graph.is_complete(kind));
    if item.node.is_some() || verdict == nothing || (!watched && !names_others(&verdict)) {
        return verdict;
    }
    let (confirm, why) = match Existence::of_item(situation, &item) {
        Existence::Exists => return verdict,
        Existence::Absent => return nothing,
        Existence::Unread(read) => (vec![read], "there was no time left to read it".to_owned()),
        Existence::Unknown(why) => (verdict.confirm.clone(), why),
    };
    match verdict.decision {
        Decision::Deny => Verdict { confirm, ..decide_unknown(review, why) },
        _ => Verdict {
            decision: Decision::Allow,
            reason: None,
            blockers: Vec::new(),
            more: 0,
            confirm,
            ..verdict
        },
    }
}

/// Whether a verdict says more than that its target is protected, or may do so
/// once other objects have been read.
fn names_others(verdict: &Verdict) -> bool {
    let Verdict { target, blockers, more, confirm, .. } = verdict;
    *more > 0
        || !confirm.is_empty()
        || blockers.iter().any(|b| b.object != *target || b.causes != [Cause::Always] || b.more > 0)
}
