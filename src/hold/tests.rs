//! The state machine step by step, and its patches.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::decide::{Cause, ListPart, LiveRead};
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
    LiveRead::List { group, resource, namespace: "a".to_owned(), part: ListPart::All }
}

/// A release that writes its token.
fn writing_token(object: &mut Value) -> (Release, TokenWrite) {
    let mut release = Release::new("u".into(), "r".into(), ReleaseTiming::default());
    release.step(seconds(0), Input::Observed(observed(object)));
    match release.step(seconds(45), Input::StartPass).pop() {
        Some(Output::WriteToken(write)) => (release, write),
        other => panic!("{other:?}"),
    }
}

/// A release that has written its token and counts users.
fn counting(object: &mut Value) -> Release {
    let (mut release, write) = writing_token(object);
    json_patch::patch(object, &write.patch()).unwrap();
    object["metadata"]["resourceVersion"] = json!("8");
    let outputs =
        release.step(seconds(46), Input::TokenWritten(RequestResult::Object(observed(object))));
    assert_eq!(outputs, [Output::CheckUse]);
    release
}

/// A release that has just sent the removal.
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

fn unknown_reason(outputs: &[Output]) -> &str {
    let reason = outputs.iter().find_map(|output| match output {
        Output::ReportWait(WaitReason::Unknown(what)) => Some(&**what),
        _ => None,
    });
    reason.unwrap_or_else(|| panic!("{outputs:?}"))
}

#[test]
fn a_pass_begins_after_the_settle_time_of_this_process() {
    let mut release = Release::new("u".into(), "r".into(), ReleaseTiming::default());
    assert_eq!(release.step(seconds(10), Input::StartPass), []);
    let outputs = release.step(seconds(10), Input::Observed(observed(&target())));
    assert_eq!(outputs, [Output::SchedulePass(seconds(55))]);
    assert_eq!(release.step(seconds(54), Input::StartPass), [Output::SchedulePass(seconds(55))]);
    assert!(matches!(release.step(seconds(55), Input::StartPass)[..], [Output::WriteToken(_)]));
}

#[test]
fn an_object_that_is_not_terminating_or_not_held_is_not_changed() {
    let mut active = target();
    active["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    let mut release = Release::new("u".into(), "r".into(), ReleaseTiming::default());
    assert_eq!(release.step(seconds(0), Input::Observed(observed(&active))), []);
    assert_eq!(release.step(seconds(99), Input::StartPass), []);
    let mut without_hold = target();
    without_hold["metadata"]["finalizers"] = json!(["x/y"]);
    assert_eq!(
        release.step(seconds(99), Input::Observed(observed(&without_hold))),
        [Output::Ended(ReleaseEnd::NoLongerHeld)]
    );
    let mut other = target();
    other["metadata"]["uid"] = json!("v");
    let mut release = Release::new("u".into(), "r".into(), ReleaseTiming::default());
    assert_eq!(
        release.step(seconds(0), Input::Observed(observed(&other))),
        [Output::Ended(ReleaseEnd::NoLongerHeld)]
    );
    assert_eq!(
        release.step(seconds(0), Input::Observed(observed(&target()))),
        [],
        "the release has ended"
    );
}

#[test]
fn a_whole_pass_removes_only_the_hold() {
    let mut object = target();
    object["metadata"]["annotations"] = json!({"other": "stays"});
    let mut release = counting(&mut object);
    let reads =
        vec![vec![list("apps", "deployments"), list("batch", "cronjobs")], vec![list("", "pods")]];
    let read = |batch: &Vec<LiveRead>| Output::Read(batch.clone());
    let outputs = release.step(seconds(46), Input::UseChecked(UseCheck::NeedsReads(reads.clone())));
    assert_eq!(outputs, [read(&reads[0])]);
    let answered = Input::ReadSucceeded { requested_at: None };
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
fn old_reads_do_not_remove_the_hold() {
    // The answer to the token arrived at 46 seconds.
    for (now, removes) in [(48, true), (49, false)] {
        let mut release = counting(&mut target());
        let outputs = release
            .step(seconds(now), Input::UseChecked(UseCheck::Releasable(ReleaseReason::Unused)));
        assert_eq!(outputs.iter().any(|o| matches!(o, Output::Remove(_))), removes, "{now}");
        assert_eq!(release.is_busy(), removes);
    }
    // A list may take longer, because only the request of its last page counts.
    let mut release = counting(&mut target());
    let reads = vec![vec![list("apps", "deployments")]];
    release.step(seconds(46), Input::UseChecked(UseCheck::NeedsReads(reads)));
    release.step(seconds(57), Input::ReadSucceeded { requested_at: Some(seconds(55)) });
    let outputs =
        release.step(seconds(57), Input::UseChecked(UseCheck::Releasable(ReleaseReason::Unused)));
    assert!(matches!(outputs[..], [Output::DropReads, Output::Remove(_)]), "{outputs:?}");
    // A pass may not take longer than a minute, even if its last read is fresh.
    let mut release = counting(&mut target());
    let reads = vec![vec![list("apps", "deployments")], vec![list("", "pods")]];
    release.step(seconds(46), Input::UseChecked(UseCheck::NeedsReads(reads)));
    release.step(seconds(106), Input::ReadSucceeded { requested_at: None });
    release.step(seconds(106), Input::ReadSucceeded { requested_at: None });
    let outputs =
        release.step(seconds(106), Input::UseChecked(UseCheck::Releasable(ReleaseReason::Unused)));
    assert_eq!(unknown_reason(&outputs), "the reads are too old to remove the hold");
}

/// The pass may have listed a user that was deleted later.
#[test]
fn a_start_during_a_pass_starts_the_next_pass_immediately() {
    let mut release = counting(&mut target());
    assert_eq!(release.step(seconds(46), Input::StartPass), []);
    let outputs = release.step(seconds(47), Input::UseChecked(UseCheck::InUse(vec![])));
    assert_eq!(outputs.last(), Some(&Output::SchedulePass(seconds(47))));
    // Only one more pass starts.
    let outputs = release.step(seconds(47), Input::StartPass);
    assert!(matches!(outputs[..], [Output::WriteToken(_)]), "{outputs:?}");
}

#[test]
fn a_write_that_always_fails_is_reported() {
    let mut object = target();
    let (mut release, _) = writing_token(&mut object);
    for attempt in 0..4 {
        let now = seconds(50 + 10 * attempt);
        assert_eq!(release.step(now, Input::TokenWritten(RequestResult::Conflict)), [Output::Get]);
        let outputs = release.step(now, Input::Got(RequestResult::Object(observed(&object))));
        let is_reported =
            outputs.iter().any(|o| matches!(o, Output::ReportWait(WaitReason::Unknown(_))));
        assert_eq!(is_reported, attempt == 3, "{outputs:?}");
        release.step(seconds(59 + 10 * attempt), Input::StartPass);
    }
}

#[test]
fn each_test_of_the_removal_detects_a_change() {
    let mut object = target();
    let (_, removal) = removing(&mut object);
    assert!(json_patch::patch(&mut object.clone(), &removal.patch()).is_ok());
    let changes: [(&str, Value); 5] = [
        ("uid", json!("v")),
        ("deletionTimestamp", Value::Null),
        ("annotations", json!({TOKEN_ANNOTATION: "other/1"})),
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
fn the_token_is_written_only_to_the_observed_version() {
    let mut object = target();
    let (_, write) = writing_token(&mut object);
    for (field, value) in [("uid", "v"), ("resourceVersion", "8")] {
        let mut changed = object.clone();
        changed["metadata"][field] = json!(value);
        assert!(json_patch::patch(&mut changed, &write.patch()).is_err(), "{field}");
    }
    // The object may have annotations or not.
    json_patch::patch(&mut object, &write.patch()).unwrap();
    assert_eq!(object["metadata"]["annotations"], json!({TOKEN_ANNOTATION: "r/1"}));
    object["metadata"]["annotations"]["a"] = json!("b");
    let (_, write) = writing_token(&mut object);
    json_patch::patch(&mut object, &write.patch()).unwrap();
    assert_eq!(object["metadata"]["annotations"], json!({TOKEN_ANNOTATION: "r/1", "a": "b"}));
}

#[test]
fn each_answer_to_the_removal_has_its_output() {
    let outputs_after = |answer: RequestResult| {
        let (mut release, _) = removing(&mut target());
        release.step(seconds(47), Input::Removed(answer))
    };
    assert_eq!(
        outputs_after(RequestResult::TargetMissing),
        [Output::Ended(ReleaseEnd::NoLongerHeld)]
    );
    assert_eq!(outputs_after(RequestResult::Conflict), [Output::Get]);
    assert_eq!(outputs_after(RequestResult::Unknown), [Output::Get]);
    let outputs = outputs_after(RequestResult::NamespaceMissing);
    assert_eq!(outputs[0], Output::ReportWait(WaitReason::Stranded));
    assert!(matches!(outputs[1], Output::SchedulePass(_)), "its Namespace may be re-created");
    assert_eq!(unknown_reason(&outputs_after(RequestResult::Failed("403".into()))), "403");
}

#[test]
fn after_a_lost_answer_the_object_shows_the_result() {
    let mut object = target();
    let (release, _) = removing(&mut object);
    let mut reading = release.clone();
    reading.step(seconds(80), Input::Removed(RequestResult::Unknown));
    let missing = Input::Got(RequestResult::TargetMissing);
    assert_eq!(
        reading.clone().step(seconds(80), missing),
        [Output::Ended(ReleaseEnd::NoLongerHeld)]
    );
    // The removal failed, so a new pass starts with a new token.
    reading.step(seconds(80), Input::Got(RequestResult::Object(observed(&object))));
    let outputs = reading.step(seconds(81), Input::StartPass);
    let [Output::WriteToken(write)] = &outputs[..] else { panic!("{outputs:?}") };
    json_patch::patch(&mut object, &write.patch()).unwrap();
    assert_eq!(object["metadata"]["annotations"][TOKEN_ANNOTATION], json!("r/2"));
}

#[test]
fn a_read_that_fails_keeps_the_hold() {
    let reading = |read: LiveRead| {
        let mut release = counting(&mut target());
        release.step(seconds(46), Input::UseChecked(UseCheck::NeedsReads(vec![vec![read]])));
        release
    };
    let mut release = reading(list("apps", "deployments"));
    let outputs = release.step(seconds(46), Input::ReadFailed("pods: 403 Forbidden".into()));
    assert_eq!(unknown_reason(&outputs), "pods: 403 Forbidden");
    assert!(!release.is_busy() && release.ended().is_none());
}

#[test]
fn the_delay_between_passes_grows_up_to_the_limit() {
    let mut object = target();
    let mut release = counting(&mut object);
    let mut delays = Vec::new();
    for _ in 0..10 {
        let outputs =
            release.step(seconds(50), Input::UseChecked(UseCheck::InUse(vec![Cause::Always])));
        let [
            Output::ReportWait(WaitReason::InUse(_)),
            Output::DropReads,
            Output::SchedulePass(next),
        ] = outputs[..]
        else {
            panic!("{outputs:?}")
        };
        delays.push((next - seconds(50)).as_secs());
        let outputs = release.step(seconds(50), Input::StartPass);
        let [Output::WriteToken(write)] = &outputs[..] else { panic!("{outputs:?}") };
        json_patch::patch(&mut object, &write.patch()).unwrap_or(());
        object["metadata"]["annotations"][TOKEN_ANNOTATION] = json!(&*write.token);
        release.step(seconds(50), Input::TokenWritten(RequestResult::Object(observed(&object))));
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 120, 120, 120]);
}

#[test]
fn a_token_of_another_replica_starts_no_pass() {
    let mut object = target();
    let (mut release, write) = writing_token(&mut object);
    json_patch::patch(&mut object, &write.patch()).unwrap();
    object["metadata"]["annotations"][TOKEN_ANNOTATION] = json!("other/1");
    let outputs =
        release.step(seconds(46), Input::TokenWritten(RequestResult::Object(observed(&object))));
    assert!(matches!(outputs[..], [Output::SchedulePass(_)]), "{outputs:?}");
}

#[test]
fn the_graph_has_the_object_without_its_hold() {
    let released = without_hold(&target());
    assert_eq!(released["metadata"]["finalizers"], json!(["x/y"]));
}
