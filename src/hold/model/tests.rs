//! The promises, and what each guard is there for.

use super::race::{Broken, Guards, RaceModel, State};
use super::story::{check, reaches, size};
use crate::hold::{ReleaseEnd, ReleaseReason};

fn one() -> RaceModel {
    let size = size();
    RaceModel { passes: 2, user_changes: 1 + size, losses: size, ..RaceModel::PROMISE_ONE }
}

/// Time passes, writes take some, and answers are looked at late.
fn fresh() -> RaceModel {
    RaceModel {
        leaders: 1,
        passes: size(),
        user_changes: 0,
        losses: 0,
        ticks: 6 + size(),
        write_delay: 1,
        delayed_answers: true,
        ..RaceModel::PROMISE_ONE
    }
}

/// From before the DELETE, with a create that takes its time.
fn two() -> RaceModel {
    RaceModel {
        leaders: 2,
        passes: 1,
        user_changes: 0,
        losses: 0,
        ticks: 8 + size(),
        write_delay: 3,
        from_delete: true,
        ..RaceModel::PROMISE_ONE
    }
}

/// The target is re-created from a manifest that has everything.
fn again() -> RaceModel {
    RaceModel {
        leaders: 1,
        passes: 1 + size(),
        user_changes: 0,
        recreates: true,
        ..RaceModel::PROMISE_ONE
    }
}

fn without(race: RaceModel, take_out: impl FnOnce(&mut Guards)) -> RaceModel {
    let mut guards = race.guards;
    take_out(&mut guards);
    RaceModel { guards, ..race }
}

/// Takes a guard out and sees the checker find what it is there for.
fn breaks(name: &str, race: RaceModel, expected: Broken) {
    let path = check(name, race).unwrap_or_else(|| panic!("{name}: nothing was found"));
    assert_eq!(path.last_state().broken, Some(expected));
}

#[test]
fn s34_two_leaders_with_lost_answers_remove_no_hold_while_a_user_exists() {
    assert!(check("Promise I, two leaders", one()).is_none());
}

#[test]
fn every_user_whose_write_began_before_the_delete_is_honoured() {
    assert!(check("Promise II", two()).is_none());
}

#[test]
fn a_fresh_pass_removes_the_hold_after_any_stop_of_the_leader() {
    assert!(check("fresh, paused", fresh()).is_none());
}

#[test]
fn a_recreated_target_keeps_its_hold() {
    assert!(check("re-created", again()).is_none());
}

/// None of that is true because nothing happens.
#[test]
fn the_hold_is_removed_in_more_than_one_way() {
    for (name, race) in [("one", one()), ("two", two()), ("fresh", fresh()), ("again", again())] {
        assert!(reaches(&race, |state| state.target.is_none()), "{name}");
    }
    let released = Some(ReleaseEnd::Released(ReleaseReason::Unused));
    let by = |l: usize| move |state: &State| state.leaders[l].release.ended() == released;
    assert!(reaches(&one(), by(0)) && reaches(&one(), by(1)));
    // A late write lands after another leader has begun a pass, and is refused.
    assert!(reaches(&one(), |state| {
        let token = state.target.as_ref().and_then(|target| target.token.as_deref());
        let stray = state.leaders[0].abandoned_write.as_ref();
        stray.is_some_and(|w| w.is_removal() && token.is_some_and(|token| token != w.token()))
    }));
    // A create that began before the DELETE is stored in time, and keeps it.
    assert!(reaches(&two(), |state| {
        state.now > 4 && state.users[2].object().is_some() && state.target.is_some()
    }));
}

#[test]
fn without_settle_a_slow_create_finds_nothing_left() {
    breaks("without settle", without(two(), |g| g.settle = false), Broken::PromiseTwo);
}

/// What Promise II assumes: with writes that take longer than settle it does
/// not hold.
#[test]
fn a_write_that_takes_longer_than_settle_finds_nothing_left() {
    let race = RaceModel { write_delay: 6, ticks: 10, ..two() };
    breaks("writes slower than settle", race, Broken::PromiseTwo);
}

#[test]
fn without_a_live_pass_a_stale_cache_releases() {
    breaks("without a live pass", without(one(), |g| g.live = false), Broken::PromiseOne);
}

#[test]
fn with_products_before_producers_what_is_made_between_two_lists_is_missed() {
    let race = without(one(), |g| g.producers_first = false);
    breaks("products before producers", race, Broken::PromiseOne);
}

#[test]
fn without_the_token_a_paused_leader_overrules_a_newer_pass() {
    // With no answer lost it takes two leaders.
    let race = without(RaceModel { losses: 0, ..one() }, |g| g.tests.token = false);
    breaks("without the token", race, Broken::PromiseOne);
}

#[test]
fn without_the_two_seconds_a_paused_leader_releases_by_an_old_pass() {
    breaks("without the two seconds", without(fresh(), |g| g.fresh = false), Broken::Stale);
}

#[test]
fn without_the_uid_a_recreated_target_loses_its_hold_to_a_late_write() {
    breaks("without the uid", without(again(), |g| g.tests.uid = false), Broken::Unasked);
}

/// The uid says it all: that this test is there as well costs nothing, and
/// nothing needs it.
#[test]
fn without_the_deletion_timestamp_the_uid_is_enough() {
    let race = without(again(), |g| g.tests.deleted = false);
    assert!(check("without the deletionTimestamp", race).is_none());
}
