//! Whether the deletion of one object certainly deletes another: computed by the oracle,
//! which simulates the garbage collector in every order.

use super::Propagation;
use super::history::{History, Life};
use super::oracle::{Obj, Ref, Rules, State};

/// The maximum number of objects that are simulated, and of states that are visited.
const OBJECTS: usize = 8;
const STATES: usize = 20_000;

/// Whether `user` is certainly deleted because `target` is. `None`: there are too many
/// orders to compute.
pub fn takes(history: &History, target: &Life, user: &Life, moment: i64) -> Option<bool> {
    let there = |life: &&Life| life.was_there(moment);
    let mut places: Vec<&Life> = vec![target];
    let mut at = 0;
    while let Some(owner) = places.get(at).copied() {
        at += 1;
        let owned = history.owned_by(&owner.uid).into_iter().filter(there).filter(|life| {
            life.at(moment).is_some_and(|version| version.owners.contains(&owner.uid))
        });
        for life in owned {
            if !places.iter().any(|known| known.uid == life.uid) {
                places.push(life);
            }
        }
        if places.len() > OBJECTS {
            return None;
        }
    }
    let goal = places.iter().position(|life| life.uid == user.uid)?;
    // Owners of the dependents that are not dependents themselves are listed after them.
    let below = places.clone();
    for life in below.iter().skip(1) {
        for uid in life.at(moment).into_iter().flat_map(|version| &version.owners) {
            let known = places.iter().any(|known| known.uid == *uid);
            if let Some(owner) = history.lives.get(uid).filter(there).filter(|_| !known) {
                places.push(owner);
            }
        }
    }
    let object = |(place, life): (usize, &&Life)| {
        let Some(version) = life.at(moment) else { return Obj::default() };
        let owners = if place == 0 { &[][..] } else { &version.owners[..] };
        let refs = owners.iter().map(|uid| {
            let at = places.iter().position(|known| known.uid == *uid);
            // A missing owner is a place without an object.
            let at = at.unwrap_or(places.len());
            Ref { number: at, uid: at, blocking: true, error: false }
        });
        Obj {
            refs: refs.collect(),
            foreground: version.has("foregroundDeletion"),
            orphan: version.has("orphan"),
            // The target's hold is about to be removed.
            other: place != 0
                && version.finalizers.iter().any(|f| f != "foregroundDeletion" && f != "orphan"),
            terminating: place != 0 && version.deleted.is_some(),
            ..Obj::default()
        }
    };
    let mut state = State::new(places.iter().enumerate().map(object).collect());
    state.terminating_at_start =
        state.objects.iter().filter(|(_, o)| o.terminating).map(|(place, _)| *place).collect();
    let propagation = match target.at(moment) {
        Some(version) if version.has("orphan") => Propagation::Orphan,
        Some(version) if version.has("foregroundDeletion") => Propagation::Foreground,
        _ => Propagation::Background,
    };
    state.requests.push((0, propagation));
    let ends = state.ends(Rules { strip: false, errors_dangle: false }, STATES)?;
    let goes = |end: &State| end.objects.get(&goal).is_none_or(|object| object.terminating);
    Some(ends.iter().all(goes))
}
