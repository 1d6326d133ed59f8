//! Whether the object of a review exists.
//!
//! The API server sends reviews only for objects that it stores. Other callers who know
//! the path can name any object. belay gives details only about an existing object with
//! the uid of the review, so that a caller can't learn the users of an object by guessing
//! its name.

use super::content::Container;
use super::item::JudgedObject;
use super::unreadable::decide_unknown_with;
use super::{
    AdmissionPhase, Blocker, Cause, Decision, LiveRead, NextStep, Review, Situation, Verdict,
    decide_unknown,
};

/// Whether an object exists, by the graph and live reads.
#[derive(Debug)]
pub enum Existence {
    /// The object exists, with this uid.
    Exists,
    /// The object does not exist. Another object may have its name.
    Absent,
    /// belay must make this read first.
    Unread(LiveRead),
    /// Unknown; the text gives the reason.
    Unknown(String, Option<NextStep>),
}

impl Existence {
    /// Whether an object exists, by live reads alone.
    pub(super) fn of_item(situation: &Situation<'_>, item: &JudgedObject<'_>) -> Self {
        Self::find(situation, item, true)
    }

    /// `has_uid` is false for an eviction, which names a Pod without its uid.
    fn find(situation: &Situation<'_>, item: &JudgedObject<'_>, has_uid: bool) -> Self {
        let Some(kind) = item.kind else {
            let why = "belay doesn't know its kind".to_owned();
            return Self::Unknown(why, Some(NextStep::ServeKind));
        };
        let (namespace, name) = (item.facts.namespace, item.facts.name);
        if let Some(found) = situation.live_object(kind, namespace, name) {
            let exists = found.is_some_and(|node| !has_uid || node.uid() == item.uid());
            return if exists { Self::Exists } else { Self::Absent };
        }
        let read = situation.read_of_object(kind, namespace, name);
        if situation.is_unread(&read) {
            return Self::Unread(read);
        }
        let failed = situation.reads().and_then(|reads| reads.results.get(&read)?.as_ref().err());
        match failed {
            Some(why) => {
                let next = NextStep::after(why, situation.graph.kinds.info(kind).group_resource());
                Self::Unknown(format!("belay can't read the object: {why}"), Some(next))
            }
            None => {
                let why = "belay has no live read of the object".to_owned();
                Self::Unknown(why, Some(NextStep::Retry))
            }
        }
    }
}

/// Whether the object of a review exists, or the Pod of an eviction. An object of a
/// CREATE doesn't exist yet.
pub fn target_existence(situation: &Situation<'_>, review: &Review<'_>) -> Existence {
    let has_uid = !review.is_eviction();
    let object = if has_uid { &review.old_object } else { &review.object };
    let Some(object) = object else { return Existence::Absent };
    let item = JudgedObject::of_review(situation, review, object);
    let name_exists = || {
        let (namespace, name) = (item.facts.namespace, item.facts.name);
        item.kind.is_some_and(|kind| situation.graph.object(kind, namespace, name).is_some())
    };
    if item.node.is_some() || (!has_uid && name_exists()) {
        return Existence::Exists;
    }
    Existence::find(situation, &item, has_uid)
}

/// The verdict on a container that is not in the graph, until belay has read the container live.
/// belay finds the content of a container by the name of the container. Without this check, a
/// review with a made-up uid would make belay check all content.
pub(super) fn decide_unknown_container(
    situation: &Situation<'_>,
    review: &Review<'_>,
) -> Option<Verdict> {
    let object = review.old_object.as_ref()?;
    // Objects from files need no proof.
    situation.reads()?;
    let item = JudgedObject::of_review(situation, review, object);
    let is_watched = item.kind.is_some_and(|kind| situation.graph.is_complete(kind));
    if review.phase == AdmissionPhase::Mutate || item.node.is_some() || !is_watched {
        return None;
    }
    Container::from_item(&item)?;
    match Existence::of_item(situation, &item) {
        Existence::Exists => None,
        Existence::Absent => Some(Verdict::allow(review.target())),
        Existence::Unread(read) => {
            let unread =
                decide_unknown(review, "there was no time left to read the object".to_owned());
            Some(Verdict { needed_reads: vec![read], ..unread })
        }
        Existence::Unknown(why, next) => Some(decide_unknown_with(review, why, next)),
    }
}

/// The verdict, if the object of the review exists. Otherwise belay allows the request,
/// which fails anyway because the object was deleted. While the existence is unknown, a
/// denial stays a denial but names no objects.
pub(super) fn limit_to_existing(
    situation: &Situation<'_>,
    review: &Review<'_>,
    verdict: Verdict,
) -> Verdict {
    let Some(object) = review.old_object.as_ref().filter(|_| situation.reads().is_some()) else {
        return verdict;
    };
    let item = JudgedObject::of_review(situation, review, object);
    let allow = Verdict::allow(verdict.target.clone());
    // Labels also protect objects of kinds that belay can't read.
    let is_watched = item.kind.is_some_and(|kind| situation.graph.is_complete(kind));
    if item.node.is_some() || verdict == allow || (!is_watched && !names_others(&verdict)) {
        return verdict;
    }
    let (needed_reads, why, next) = match Existence::of_item(situation, &item) {
        Existence::Exists => return verdict,
        Existence::Absent => return allow,
        Existence::Unread(read) => {
            let why = "there was no time left to read the object".to_owned();
            (vec![read], why, Some(NextStep::Retry))
        }
        Existence::Unknown(why, next) => (verdict.needed_reads.clone(), why, next),
    };
    match verdict.decision {
        Decision::Deny => {
            // A retry may pass without an approval.
            let required_people =
                people_to_approve_target(&verdict).filter(|_| next != Some(NextStep::Retry));
            let mut unproven = Verdict { needed_reads, ..decide_unknown_with(review, why, next) };
            let blockers = unproven.blockers.iter_mut();
            blockers.for_each(|blocker| {
                blocker.required_approvals = required_people.unwrap_or_default()
            });
            unproven
        }
        _ => Verdict {
            decision: Decision::Allow,
            reason: None,
            blockers: Vec::new(),
            more: 0,
            needed_reads,
            ..verdict
        },
    }
}

/// The number of people whose approvals of the target alone end a denial; `None` if the
/// request needs other approvals, because these would reveal which objects exist.
fn people_to_approve_target(verdict: &Verdict) -> Option<usize> {
    let Verdict { target, more, .. } = verdict;
    let is_of_target = |blocker: &&Blocker| {
        blocker.object == *target
            && !blocker.covered_by_content_approval
            && !blocker.policies.is_empty()
    };
    let all = *more == 0 && verdict.deciding_blockers().all(|blocker| is_of_target(&blocker));
    let required_people =
        verdict.deciding_blockers().map(|blocker| blocker.required_approvals).max();
    required_people.filter(|_| all)
}

/// Whether a verdict reports more than that its target is protected, or may do so after
/// more live reads.
fn names_others(verdict: &Verdict) -> bool {
    let Verdict { target, blockers, more, needed_reads, .. } = verdict;
    *more > 0
        || !needed_reads.is_empty()
        || blockers.iter().any(|b| b.object != *target || b.causes != [Cause::Always] || b.more > 0)
}
