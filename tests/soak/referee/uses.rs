//! The users of an object, according to the log.

use super::closure::takes;
use super::event::SECOND;
use super::history::{History, Key, Life};
use super::object::Version;

/// belay's finalizer.
pub const HOLD: &str = "belay.dev/hold";

/// A Relation counts for the referee when it has been there for so long.
const RELATION: i64 = 10 * SECOND;

/// The referee's decision about one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It kept the target.
    Counts,
    /// It did not.
    Excused,
    /// The referee can't decide.
    Unsure,
}

/// Whether this version uses the object at this key, with these Relations.
fn needs(relations: &[&Life], life: &Life, version: &Version, key: &Key) -> bool {
    let (group, resource, namespace, name) = key;
    let same_namespace = life.key.2 == *namespace;
    let built_in = version.needs().iter().any(|(g, r, n)| g == group && r == resource && n == name);
    same_namespace && (built_in || by_relation(relations, life, version, key))
}

/// The Relations that were in force all the time between. With the deletion of a Relation,
/// its uses end.
fn lasting(history: &History, from: i64, to: i64) -> Vec<&Life> {
    let mut relations = history.of_kind("relations");
    relations.retain(|relation| {
        relation.was_there(from)
            && relation.was_there(to)
            && relation.created().is_some_and(|made| made.to + RELATION <= from)
    });
    relations
}

fn by_relation(relations: &[&Life], life: &Life, version: &Version, key: &Key) -> bool {
    let Some(whole) = &version.whole else { return false };
    relations.iter().any(|relation| {
        let Some(spec) = relation.last().and_then(|v| v.whole.as_ref()).map(|w| &w["spec"]) else {
            return false;
        };
        let path = spec["nameFieldPath"].as_str().unwrap_or_default().replace('.', "/");
        let is = |end: &str, key: &Key| {
            spec[end]["group"].as_str().unwrap_or_default() == key.0
                && spec[end]["resource"].as_str() == Some(&key.1)
        };
        spec["strength"].as_str().unwrap_or("Needs") == "Needs"
            && is("from", &life.key)
            && is("to", key)
            && whole.pointer(&format!("/{path}")).and_then(|name| name.as_str()) == Some(&key.3)
    })
}

/// Whether this object needed the target all the time between and was not
/// finished.
pub fn needed(history: &History, user: &Life, target: &Key, from: i64, to: i64) -> bool {
    if !user.was_there(from) || !user.was_there(to) {
        return false;
    }
    let relations = lasting(history, from, to);
    user.between(from, to)
        .all(|version| !version.finished && needs(&relations, user, version, target))
}

/// Whether a user of the target counts at this moment. If a hold could be removed either
/// way, the referee decides in favour of belay.
pub fn counts(history: &History, target: &Life, user: &Life, moment: i64) -> Use {
    let Some(version) = user.at(moment) else { return Use::Excused };
    if user.uid == target.uid {
        return Use::Excused;
    }
    if version.deleted.is_some() {
        // A Terminating ancestor; or one with no finalizer but the hold, which may be in a
        // cycle with the target.
        let only_held = version.finalizers.iter().all(|f| f == HOLD) && version.has(HOLD);
        if is_ancestor(history, target, &user.uid, moment) {
            return Use::Excused;
        }
        if only_held {
            return Use::Unsure;
        }
    }
    match takes(history, target, user, moment) {
        Some(true) => Use::Excused,
        Some(false) => Use::Counts,
        None if is_ancestor(history, user, &target.uid, moment) => Use::Unsure,
        None => Use::Counts,
    }
}

fn is_ancestor(history: &History, of: &Life, uid: &str, moment: i64) -> bool {
    ancestors(history, of, moment).iter().any(|life| life.uid == uid)
}

/// Everything above an object by owner references.
fn ancestors<'h>(history: &'h History, of: &Life, moment: i64) -> Vec<&'h Life> {
    let mut found: Vec<&Life> = Vec::new();
    let mut next = vec![of.uid.as_str()];
    while let Some(life) = next.pop().and_then(|uid| history.lives.get(uid)) {
        for owner in life.at(moment).into_iter().flat_map(|version| &version.owners) {
            let owner = history.lives.get(owner);
            if let Some(owner) = owner.filter(|o| found.iter().all(|known| known.uid != o.uid)) {
                found.push(owner);
                next.push(&owner.uid);
            }
        }
    }
    found
}

/// A user that was created this long after the DELETE may or may not count for belay:
/// clocks differ, and times are truncated to seconds. If a user must count, the referee
/// requires an earlier creation than the first value; if it must not, a later creation than
/// the second.
pub const PERHAPS: (i64, i64) = (4 * SECOND, 10 * SECOND);

/// Whether a user was created long after the deletion of the target, with no older owner
/// above it.
pub fn is_newcomer(history: &History, target: &Life, user: &Life, moment: i64, after: i64) -> bool {
    // The log of a deletecollection does not list each object. The next write of an object
    // shows that it was deleted by then.
    let deleted = target.terminating().filter(|deleted| *deleted <= moment);
    let late = |life: &Life| match (deleted, life.versions.first()) {
        (Some(deleted), Some(first)) => first.created > deleted + after,
        _ => false,
    };
    let elder = |life: &Life| life.was_there(moment) && !late(life);
    late(user) && !ancestors(history, user, moment).into_iter().any(elder)
}
