//! The machine step by step, its patches, and the plans.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::decide::{Cause, LiveRead};
use crate::objects::HOLD;

const DELETED: &str = "2026-01-01T12:00:00Z";

fn target() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
        "name": "s", "namespace": "a", "uid": "u", "resourceVersion": "7",
        "deletionTimestamp": DELETED, "finalizers": ["x/y", HOLD],
    }})
}

fn observed(object: &Value) -> TargetState {
    TargetState::read(object).unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn list(group: &str, resource: &str) -> LiveRead {
    let (group, resource) = (group.to_owned(), resource.to_owned());
    LiveRead::List { group, resource, namespace: "a".to_owned(), first: false }
}

/// A release that is about to write its token.
fn marking(object: &mut Value) -> (Release, TokenWrite) {
    let mut release = Release::new("u".into(), "r".into(), ReleaseTiming::default());
    release.step(seconds(0), Input::Observed(observed(object)));
    match release.step(seconds(45), Input::StartPass).pop() {
        Some(Output::WriteToken(mark)) => (release, mark),
        other => panic!("{other:?}"),
    }
}

/// One whose token is there, and that asks what counts.
fn counting(object: &mut Value) -> Release {
    let (mut release, mark) = marking(object);
    json_patch::patch(object, &mark.patch()).unwrap();
    object["metadata"]["resourceVersion"] = json!("8");
    let outputs =
        release.step(seconds(46), Input::TokenWritten(RequestResult::Object(observed(object))));
    assert_eq!(outputs, [Output::CheckUse]);
    release
}

/// One that has just sent the removal.
fn removing(object: &mut Value) -> (Release, HoldRemoval) {
    let mut release = counting(object);
    match release
        .step(seconds(47), Input::UseChecked(UseCheck::Releasable(ReleaseReason::Unused)))
        .pop()
    {
        Some(Output::Remove(removal)) => (release, removal),
        other => panic!("{other:?}"),
    }
}

fn unknown(outputs: &[Output]) -> &str {
    let said = outputs.iter().find_map(|output| match output {
        Output::Waits(WaitReason::Unknown(what)) => Some(&**what),
        _ => None,
    });
    said.unwrap_or_else(|| panic!("{outputs:?}"))
}

#[test]
fn a_pass_begins_when_settle_has_passed_by_our_own_clock() {
    let mut release = Release::new("u".into(), "r".into(), ReleaseTiming::default());
    assert_eq!(release.step(seconds(10), Input::StartPass), []);
    let outputs = release.step(seconds(10), Input::Observed(observed(&target())));
    assert_eq!(outputs, [Output::SchedulePass(seconds(55))]);
    assert_eq!(release.step(seconds(54), Input::StartPass), [Output::SchedulePass(seconds(55))]);
    assert!(matches!(release.step(seconds(55), Input::StartPass)[..], [Output::WriteToken(_)]));
}

#[test]
fn what_is_not_terminating_or_not_held_is_left_alone() {
    let mut living = target();
    living["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    let mut release = Release::new("u".into(), "r".into(), ReleaseTiming::default());
    assert_eq!(release.step(seconds(0), Input::Observed(observed(&living))), []);
    assert_eq!(release.step(seconds(99), Input::StartPass), []);
    let mut bare = target();
    bare["metadata"]["finalizers"] = json!(["x/y"]);
    assert_eq!(
        release.step(seconds(99), Input::Observed(observed(&bare))),
        [Output::Ended(ReleaseEnd::Gone)]
    );
    let mut other = target();
    other["metadata"]["uid"] = json!("v");
    let mut release = Release::new("u".into(), "r".into(), ReleaseTiming::default());
    assert_eq!(
        release.step(seconds(0), Input::Observed(observed(&other))),
        [Output::Ended(ReleaseEnd::Gone)]
    );
    assert_eq!(release.step(seconds(0), Input::Observed(observed(&target()))), [], "it is over");
}

#[test]
fn a_whole_pass_takes_the_hold_off_and_nothing_else() {
    let mut object = target();
    object["metadata"]["annotations"] = json!({"other": "stays"});
    let mut release = counting(&mut object);
    let reads = vec![list("apps", "deployments"), list("", "pods")];
    let read = |read: &LiveRead| Output::Read(read.clone());
    let outputs = release.step(seconds(46), Input::UseChecked(UseCheck::NeedsReads(reads.clone())));
    assert_eq!(outputs, [read(&reads[0])]);
    let answered = Input::Read { asked: None };
    assert_eq!(release.step(seconds(47), answered.clone()), [read(&reads[1])]);
    assert_eq!(release.step(seconds(47), answered), [Output::CheckUse]);
    let outputs =
        release.step(seconds(49), Input::UseChecked(UseCheck::Releasable(ReleaseReason::Unused)));
    let [Output::DropReads, Output::Remove(removal)] = &outputs[..] else { panic!("{outputs:?}") };
    json_patch::patch(&mut object, &removal.patch()).unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["x/y"]));
    assert_eq!(object["metadata"]["annotations"], json!({"other": "stays"}));
    let outputs =
        release.step(seconds(49), Input::Removed(RequestResult::Object(observed(&object))));
    assert_eq!(outputs, [Output::Ended(ReleaseEnd::Released(ReleaseReason::Unused))]);
}

#[test]
fn what_was_read_too_long_ago_counts_for_nothing() {
    // The token was answered at 46 seconds.
    for (now, goes) in [(48, true), (49, false)] {
        let mut release = counting(&mut target());
        let outputs = release
            .step(seconds(now), Input::UseChecked(UseCheck::Releasable(ReleaseReason::Unused)));
        assert_eq!(outputs.iter().any(|o| matches!(o, Output::Remove(_))), goes, "{now}");
        assert_eq!(release.is_busy(), goes);
    }
    // A list may take longer: its last page counts.
    let mut release = counting(&mut target());
    let reads = vec![list("apps", "deployments")];
    release.step(seconds(46), Input::UseChecked(UseCheck::NeedsReads(reads)));
    release.step(seconds(57), Input::Read { asked: Some(seconds(55)) });
    let outputs =
        release.step(seconds(57), Input::UseChecked(UseCheck::Releasable(ReleaseReason::Unused)));
    assert!(matches!(outputs[..], [Output::DropReads, Output::Remove(_)]), "{outputs:?}");
    // And so does a pass that takes a minute, however fresh its last read is.
    let mut release = counting(&mut target());
    let reads = vec![list("apps", "deployments"), list("", "pods")];
    release.step(seconds(46), Input::UseChecked(UseCheck::NeedsReads(reads)));
    release.step(seconds(106), Input::Read { asked: None });
    release.step(seconds(106), Input::Read { asked: None });
    let outputs =
        release.step(seconds(106), Input::UseChecked(UseCheck::Releasable(ReleaseReason::Unused)));
    assert_eq!(unknown(&outputs), "the reads are too old to remove the hold");
}

/// A user that goes after its kind was listed is not waited for by the
/// back-off of a pass that could not see it.
#[test]
fn a_look_during_a_pass_is_not_lost() {
    let mut release = counting(&mut target());
    assert_eq!(release.step(seconds(46), Input::StartPass), []);
    let outputs = release.step(seconds(47), Input::UseChecked(UseCheck::InUse(vec![])));
    assert_eq!(outputs.last(), Some(&Output::SchedulePass(seconds(47))));
    // Once.
    let outputs = release.step(seconds(47), Input::StartPass);
    assert!(matches!(outputs[..], [Output::WriteToken(_)]), "{outputs:?}");
}

#[test]
fn a_write_that_always_fails_is_reported() {
    let mut object = target();
    let (mut release, _) = marking(&mut object);
    for at in 0..4 {
        let now = seconds(50 + 10 * at);
        assert_eq!(release.step(now, Input::TokenWritten(RequestResult::Conflict)), [Output::Get]);
        let outputs = release.step(now, Input::Got(RequestResult::Object(observed(&object))));
        let told = outputs.iter().any(|o| matches!(o, Output::Waits(WaitReason::Unknown(_))));
        assert_eq!(told, at == 3, "{outputs:?}");
        release.step(seconds(59 + 10 * at), Input::StartPass);
    }
}

#[test]
fn each_test_of_the_removal_refuses() {
    let mut object = target();
    let (_, removal) = removing(&mut object);
    assert!(json_patch::patch(&mut object.clone(), &removal.patch()).is_ok());
    let changes: [(&str, Value); 5] = [
        ("uid", json!("v")),
        ("deletionTimestamp", Value::Null),
        ("annotations", json!({TOKEN: "other/1"})),
        ("annotations", Value::Null),
        ("finalizers", json!([HOLD, "x/y"])),
    ];
    for (field, value) in changes {
        let mut changed = object.clone();
        json_patch::merge(&mut changed["metadata"], &json!({field: value}));
        let before = changed.clone();
        assert!(json_patch::patch(&mut changed, &removal.patch()).is_err(), "{field}");
        assert_eq!(changed, before);
    }
}

#[test]
fn the_token_lands_on_the_version_that_was_looked_at_or_not_at_all() {
    let mut object = target();
    let (_, mark) = marking(&mut object);
    for (field, value) in [("uid", "v"), ("resourceVersion", "8")] {
        let mut changed = object.clone();
        changed["metadata"][field] = json!(value);
        assert!(json_patch::patch(&mut changed, &mark.patch()).is_err(), "{field}");
    }
    // With annotations and without.
    json_patch::patch(&mut object, &mark.patch()).unwrap();
    assert_eq!(object["metadata"]["annotations"], json!({TOKEN: "r/1"}));
    object["metadata"]["annotations"]["a"] = json!("b");
    let (_, mark) = marking(&mut object);
    json_patch::patch(&mut object, &mark.patch()).unwrap();
    assert_eq!(object["metadata"]["annotations"], json!({TOKEN: "r/1", "a": "b"}));
}

#[test]
fn answers_to_the_removal_mean_what_they_say() {
    let ask = |answer: RequestResult| {
        let (mut release, _) = removing(&mut target());
        release.step(seconds(47), Input::Removed(answer))
    };
    assert_eq!(ask(RequestResult::Missing { namespace: false }), [Output::Ended(ReleaseEnd::Gone)]);
    assert_eq!(ask(RequestResult::Conflict), [Output::Get]);
    assert_eq!(ask(RequestResult::NoAnswer), [Output::Get]);
    let outputs = ask(RequestResult::Missing { namespace: true });
    assert_eq!(outputs[0], Output::Waits(WaitReason::Stranded));
    assert!(matches!(outputs[1], Output::SchedulePass(_)), "its Namespace may be re-created");
    assert_eq!(unknown(&ask(RequestResult::Failed("403".into()))), "403");
}

#[test]
fn after_a_lost_answer_the_object_shows_the_result() {
    let mut object = target();
    let (release, _) = removing(&mut object);
    let mut ask = release.clone();
    ask.step(seconds(80), Input::Removed(RequestResult::NoAnswer));
    let gone = Input::Got(RequestResult::Missing { namespace: false });
    assert_eq!(ask.clone().step(seconds(80), gone), [Output::Ended(ReleaseEnd::Gone)]);
    // It did not land: a new pass with a new token, and the old one is void.
    ask.step(seconds(80), Input::Got(RequestResult::Object(observed(&object))));
    let outputs = ask.step(seconds(81), Input::StartPass);
    let [Output::WriteToken(mark)] = &outputs[..] else { panic!("{outputs:?}") };
    json_patch::patch(&mut object, &mark.patch()).unwrap();
    assert_eq!(object["metadata"]["annotations"][TOKEN], json!("r/2"));
}

#[test]
fn a_read_that_fails_keeps_the_hold_and_names_the_kind() {
    let reading = |read: LiveRead| {
        let mut release = counting(&mut target());
        release.step(seconds(46), Input::UseChecked(UseCheck::NeedsReads(vec![read])));
        release
    };
    let mut release = reading(list("apps", "deployments"));
    let outputs = release.step(seconds(46), Input::ReadFailed("403 Forbidden".into()));
    assert_eq!(unknown(&outputs), "deployments.apps: 403 Forbidden");
    assert!(!release.is_busy() && release.ended().is_none());
}

#[test]
fn who_is_kept_is_looked_at_again_later_and_later() {
    let mut object = target();
    let mut release = counting(&mut object);
    let mut waits = Vec::new();
    for _ in 0..10 {
        let outputs =
            release.step(seconds(50), Input::UseChecked(UseCheck::InUse(vec![Cause::Always])));
        let [Output::Waits(WaitReason::InUse(_)), Output::DropReads, Output::SchedulePass(at)] =
            outputs[..]
        else {
            panic!("{outputs:?}")
        };
        waits.push((at - seconds(50)).as_secs());
        let outputs = release.step(seconds(50), Input::StartPass);
        let [Output::WriteToken(mark)] = &outputs[..] else { panic!("{outputs:?}") };
        json_patch::patch(&mut object, &mark.patch()).unwrap_or(());
        object["metadata"]["annotations"][TOKEN] = json!(&*mark.token);
        release.step(seconds(50), Input::TokenWritten(RequestResult::Object(observed(&object))));
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 120, 120, 120]);
}

#[test]
fn a_token_of_another_replica_starts_no_pass() {
    let mut object = target();
    let (mut release, mark) = marking(&mut object);
    json_patch::patch(&mut object, &mark.patch()).unwrap();
    object["metadata"]["annotations"][TOKEN] = json!("other/1");
    let outputs =
        release.step(seconds(46), Input::TokenWritten(RequestResult::Object(observed(&object))));
    assert!(matches!(outputs[..], [Output::SchedulePass(_)]), "{outputs:?}");
}

#[test]
fn the_graph_has_the_object_without_its_hold() {
    let released = without_hold(&target());
    assert_eq!(released["metadata"]["finalizers"], json!(["x/y"]));
}
