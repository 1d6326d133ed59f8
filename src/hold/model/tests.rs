//! The promises of docs/THEORY.md, and the guards that they need.

use super::checker::{check, reaches, size};
use super::race::{Guards, RaceModel, State, Violation};
use crate::hold::{ReleaseEnd, ReleaseReason};

fn promise_one() -> RaceModel {
    let size = size();
    RaceModel { passes: 2, user_changes: 1 + size, lost_answers: size, ..RaceModel::BASE }
}

/// Time passes, writes are slow, and leaders use answers late.
fn fresh_reads() -> RaceModel {
    RaceModel {
        leaders: 1,
        passes: size(),
        user_changes: 0,
        lost_answers: 0,
        ticks: 6 + size(),
        write_delay: 1,
        delayed_answers: true,
        ..RaceModel::BASE
    }
}

/// The model begins before the DELETE, with a slow create.
fn promise_two() -> RaceModel {
    RaceModel {
        leaders: 2,
        passes: 1,
        user_changes: 0,
        lost_answers: 0,
        ticks: 8 + size(),
        write_delay: 3,
        starts_before_delete: true,
        ..RaceModel::BASE
    }
}

/// A user re-creates the target from a manifest with its token.
fn recreation() -> RaceModel {
    RaceModel {
        leaders: 1,
        passes: 1 + size(),
        user_changes: 0,
        recreates: true,
        ..RaceModel::BASE
    }
}

fn without(race: RaceModel, disable: impl FnOnce(&mut Guards)) -> RaceModel {
    let mut guards = race.guards;
    disable(&mut guards);
    RaceModel { guards, ..race }
}

/// Asserts that the checker finds this violation.
fn assert_violates(name: &str, race: RaceModel, expected: Violation) {
    let path = check(name, race).unwrap_or_else(|| panic!("{name}: no violation"));
    assert_eq!(path.last_state().violation, Some(expected));
}

#[test]
fn s34_two_leaders_with_lost_answers_remove_no_hold_while_a_user_exists() {
    assert!(check("Promise I, two leaders", promise_one()).is_none());
}

#[test]
fn every_user_whose_create_began_before_the_delete_keeps_the_hold() {
    assert!(check("Promise II", promise_two()).is_none());
}

#[test]
fn a_fresh_pass_removes_the_hold_after_any_stop_of_the_leader() {
    assert!(check("fresh, paused", fresh_reads()).is_none());
}

#[test]
fn a_recreated_target_keeps_its_hold() {
    assert!(check("re-created", recreation()).is_none());
}

#[test]
fn each_model_can_release_the_target() {
    for (name, race) in [
        ("Promise I", promise_one()),
        ("Promise II", promise_two()),
        ("fresh", fresh_reads()),
        ("re-created", recreation()),
    ] {
        assert!(reaches(&race, |state| state.target.is_none()), "{name}");
    }
    let released = Some(ReleaseEnd::Released(ReleaseReason::Unused));
    let by = |l: usize| move |state: &State| state.leaders[l].release.ended() == released;
    assert!(reaches(&promise_one(), by(0)) && reaches(&promise_one(), by(1)));
    // A late removal can arrive after another leader has begun a pass.
    assert!(reaches(&promise_one(), |state| {
        let token = state.target.as_ref().and_then(|target| target.token.as_deref());
        let late = state.leaders[0].abandoned_write.as_ref();
        late.is_some_and(|w| w.is_removal() && token.is_some_and(|token| token != w.token()))
    }));
    // A slow create can be stored before the hold is removed.
    assert!(reaches(&promise_two(), |state| {
        state.now > 4 && state.users[2].object().is_some() && state.target.is_some()
    }));
}

#[test]
fn without_settle_a_slow_create_loses_the_target() {
    assert_violates(
        "without settle",
        without(promise_two(), |g| g.settle = false),
        Violation::PromiseTwo,
    );
}

/// Promise II assumes that no write takes longer than the settle time.
#[test]
fn a_create_that_takes_longer_than_settle_loses_the_target() {
    let race = RaceModel { write_delay: 6, ticks: 10, ..promise_two() };
    assert_violates("writes slower than settle", race, Violation::PromiseTwo);
}

#[test]
fn without_a_live_pass_a_stale_cache_releases() {
    assert_violates(
        "without a live pass",
        without(promise_one(), |g| g.live = false),
        Violation::PromiseOne,
    );
}

#[test]
fn with_lists_from_before_the_token_a_user_is_missed() {
    assert_violates(
        "lists before the token",
        without(promise_one(), |g| g.lists_after_token = false),
        Violation::PromiseOne,
    );
}

#[test]
fn with_owners_last_an_object_created_between_two_lists_is_missed() {
    let race = without(promise_one(), |g| g.owners_first = false);
    assert_violates("owners last", race, Violation::PromiseOne);
}

#[test]
fn with_all_lists_at_the_same_time_an_object_created_between_two_lists_is_missed() {
    let race = without(promise_one(), |g| g.batches = false);
    assert_violates("all lists at once", race, Violation::PromiseOne);
}

#[test]
fn without_the_token_a_paused_leader_overrules_a_newer_pass() {
    // Without lost answers, only a second leader can cause this.
    let race = without(RaceModel { lost_answers: 0, ..promise_one() }, |g| g.tests.token = false);
    assert_violates("without the token", race, Violation::PromiseOne);
}

#[test]
fn without_the_age_limit_a_paused_leader_releases_after_an_old_pass() {
    assert_violates(
        "without the age limit",
        without(fresh_reads(), |g| g.fresh = false),
        Violation::StalePass,
    );
}

#[test]
fn without_the_uid_a_recreated_target_loses_its_hold_to_a_late_write() {
    assert_violates(
        "without the uid",
        without(recreation(), |g| g.tests.uid = false),
        Violation::NoPass,
    );
}

/// The test of the deletionTimestamp is redundant: a re-created object has another uid.
#[test]
fn without_the_deletion_timestamp_the_uid_is_enough() {
    let race = without(recreation(), |g| g.tests.deletion_timestamp = false);
    assert!(check("without the deletionTimestamp", race).is_none());
}
