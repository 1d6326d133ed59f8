//! Tests of the report of `status`.

use super::*;
use crate::cluster::election::LeaderInfo;
use crate::command::document::Object;
use crate::command::report::Format;
use crate::command::screen::Screen;
use crate::command::status::leader::Outage;
use crate::command::status::policy::{NEVER, NO_MODE, ONLY_RECORDS, ONLY_WARNS};
use crate::command::webhooks::{UNINSTALLED, Webhooks};
use crate::policy::WHY_NO_HOLD_WITH_SUBJECTS;
use crate::policy::api::DeletionPolicy;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn policy(conditions: &Value, observed: i64) -> PolicyStatus {
    let policy: DeletionPolicy = serde_json::from_value(json!({
        "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy",
        "metadata": {"name": "kept", "generation": 2},
        "spec": {"targets": [], "protect": {"always": {}, "whileUsed": {}}, "action": "Warn"},
        "status": {"observedGeneration": observed, "protectedObjects": 40, "heldObjects": 38,
            "holdsEffectiveTime": "1970-01-01T00:00:31Z",
            "notHeld": [{"resource": "pods", "why": "harm"}],
            "unknownKinds": ["gadgets.test"], "last24h": {"denied": 3, "wouldDeny": 2, "held": 0},
            "conditions": conditions}
    }))
    .unwrap();
    PolicyStatus::new(&policy, None, NOW)
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn healthy_policy() -> PolicyStatus {
    policy(&json!([condition("Ready", "True", "Registered", "it is asked")]), 2)
}

fn report(policies: Vec<PolicyStatus>) -> StatusReport {
    let leader =
        LeaderInfo { replica: "belay-0".to_owned(), renewed: None, certificate_until: None };
    let object = Object {
        kind: "ValidatingWebhookConfiguration".to_owned(),
        name: "belay".to_owned(),
        ..Object::default()
    };
    StatusReport {
        policies,
        leader: Leader::from_lease(&Ok::<_, ()>(Some(leader))),
        pauses: Vec::new(),
        configurations: vec![WebhookConfiguration { object, present: true, has_rules: true }],
        uninstall: None,
        uninstalled: None,
        effect_of_outage: Webhooks::default().effect_of_outage(),
        unreleased_holds: Vec::new(),
        certificate: Some(Expiry { until: Timestamp::UNIX_EPOCH, remaining_seconds: 86_400 * 60 }),
        authority: None,
        not_read: Vec::new(),
    }
}

fn remove_configuration(report: &mut StatusReport) {
    (report.configurations[0].present, report.configurations[0].has_rules) = (false, false);
}

const PIPE: View = View { screen: Screen::pipe(), all: false, wide: false, verbose: false };

fn text(report: &StatusReport) -> String {
    report.render(Format::Table, PIPE).unwrap()
}

fn code(report: &StatusReport) -> u8 {
    report.exit_code()
}

#[test]
fn policies_are_reported_with_their_objects() {
    let report = report(vec![healthy_policy()]);
    assert_eq!(
        text(&report),
        "leader: belay-0\n\
         webhooks: validatingwebhookconfiguration/belay exists\n\
         certificates: the serving certificate expires 1970-01-01T00:00:00Z (60d left)\n\
         POLICY   ACTION   READY   PROTECTED   HOLDS   DENIED                  RULES\n\
         kept     Warn     yes     40          38      3 (2 would be denied)   always, whileUsed\n  \
         holds: belay relies on a hold only 45 s after adding it to an existing object (the newest \
         hold: in 31s). Before that, belay denies the deletion of the object if it is in use\n  \
         unknown kinds: gadgets.test; use plural names (kubectl api-resources) or install the CRDs\n"
    );
    assert_eq!(code(&report), 0);
    let policy: DeletionPolicy = serde_json::from_value(json!({
        "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy", "metadata": {"name": "kept"},
        "spec": {"targets": [], "protect": {}}, "status": {"holdsEffectiveTime": NOW.to_string()},
    }))
    .unwrap();
    assert_eq!(PolicyStatus::new(&policy, None, NOW).holds_effective_time, None);
}

#[test]
fn a_pause_is_reported_once_and_no_policy_is_ready_under_it() {
    let condition = json!({"type": "Ready", "status": "True", "reason": "Paused",
        "message": "pause p by admin: policies are not enforced until T",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let policy = json!({
        "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy",
        "metadata": {"name": "kept"},
        "spec": {"targets": [], "protect": {"always": {}}},
        "status": {"conditions": [condition]}
    });
    let policy: DeletionPolicy = serde_json::from_value(policy).unwrap();
    let mut paused = PolicyStatus::new(&policy, None, NOW);
    paused.note_ended_pause();
    let ended = text(&report(vec![paused]));
    assert!(
        ended.contains("  the pause has ended, and belay enforces its policies again; "),
        "{ended}"
    );
    let text = text(&report(vec![PolicyStatus::new(&policy, None, NOW)]));
    assert!(text.contains("kept     Deny     paused   0"), "{text}");
    assert!(!text.contains("not enforced until"), "{text}");
    assert!(!text.contains("the pause has ended"), "{text}");
    let mut enforced = healthy_policy();
    enforced.note_ended_pause();
    assert_eq!(enforced.notes, [""; 0]);
}

#[test]
fn without_webhooks_and_lease_belay_is_not_installed() {
    let mut report = report(vec![healthy_policy()]);
    report.leader = Leader::from_lease(&Ok::<_, ()>(None));
    remove_configuration(&mut report);
    report.uninstalled = Some(UNINSTALLED.to_owned());
    let text = text(&report);
    assert!(text.starts_with("belay is not installed (its CRDs remain)"), "{text}");
    assert!(!text.contains("Pods") && !text.contains("again"), "{text}");
    assert_eq!(code(&report), 1);
}

#[test]
fn objects_without_a_hold_are_reported_with_the_reason() {
    let not_held = |change: Value| {
        let mut policy = json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy",
            "metadata": {"name": "kept"},
            "spec": {"targets": [], "protect": {"whileUsed": {}}},
            "status": {"protectedObjects": 4, "notHeld": [{"resource": "pods", "why": "harm"}]}
        });
        let spec = policy["spec"].as_object_mut().unwrap();
        spec.extend(change.as_object().unwrap().clone());
        let policy: DeletionPolicy = serde_json::from_value(policy).unwrap();
        serde_json::to_value(PolicyStatus::new(&policy, None, NOW)).unwrap()["notHeld"].clone()
    };
    let all = |why: &str| json!([{"resource": "*", "why": why, "objects": 4}]);
    assert_eq!(not_held(json!({})), json!([{"resource": "pods", "why": "harm"}]));
    assert_eq!(not_held(json!({"hold": "Never"})), all(NEVER));
    assert_eq!(not_held(json!({"protect": {"fromOrphaning": {}}})), all(NO_MODE));
    let some = json!({"subjects": [{"kind": "User", "name": "bob"}]});
    assert_eq!(not_held(some), all(WHY_NO_HOLD_WITH_SUBJECTS));
    assert_eq!(not_held(json!({"action": "Audit"})), all(ONLY_RECORDS));
    assert_eq!(not_held(json!({"action": "Warn"})), all(ONLY_WARNS));
    let overrides = json!([{"namespaceSelector": {}, "action": "Deny"}]);
    let elsewhere = json!({"action": "Warn", "actionOverrides": overrides});
    assert_eq!(not_held(elsewhere), json!([{"resource": "pods", "why": "harm"}]));
}

#[test]
fn a_policy_reports_its_problems_and_where_it_holds_nothing() {
    let conditions = json!([
        condition("Ready", "True", "Registered", "it is asked"),
        condition("Watching", "False", "Forbidden", "secrets: you may not"),
        condition("Holding", "True", "InPlace", "2 of 2 objects; hold Auto adds none to pods"),
    ]);
    let stale = policy(&conditions, 1);
    assert_eq!((stale.ready, policy(&conditions, 2).ready), (Some(false), Some(true)));
    assert_eq!(
        stale.notes,
        [
            "belay has not processed the latest version yet",
            "Watching: Forbidden: secrets: you may not",
            "Holding: InPlace: 2 of 2 objects; hold Auto adds none to pods",
        ]
    );
    assert_eq!(healthy_policy().notes, [""; 0]);
}

#[test]
fn without_webhooks_or_a_leader_no_policy_is_ready() {
    let mut report = report(Vec::new());
    let policy: DeletionPolicy = serde_json::from_value(json!({
        "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy", "metadata": {"name": "p"},
        "spec": {"targets": [], "protect": {"whileUsed": {"onDelete": "Hold"}}},
        "status": {"conditions": [condition("Ready", "True", "Registered", "")]}
    }))
    .unwrap();
    let ready = |report: &StatusReport| {
        let outage = Outage::new(&report.leader, &report.configurations);
        PolicyStatus::new(&policy, outage, NOW).ready
    };
    assert_eq!(ready(&report), Some(true));
    report.leader = Leader::from_lease(&Err(()));
    assert_eq!(ready(&report), Some(true), "there may be a leader");
    report.leader = Leader::from_lease(&Ok::<_, ()>(None));
    assert_eq!(ready(&report), None);
    remove_configuration(&mut report);
    assert_eq!(ready(&report), Some(false));
    assert_eq!(PolicyStatus::new(&policy, None, NOW).effects, "Hold");
}

/// The note of a condition and the counts may be from different times.
#[test]
fn counts_that_change_are_not_printed() {
    for (reason, columns) in [
        ("InPlace", "40          38      "),
        ("Progressing", "40          counting   "),
        ("Counting", "counting    counting   "),
    ] {
        let conditions = json!([
            condition("Ready", "True", "Registered", ""),
            condition("Holding", "False", reason, "0 of 40 objects have the hold"),
        ]);
        let text = text(&report(vec![policy(&conditions, 2)]));
        assert!(text.contains(columns), "{text}");
    }
}

/// A second after an install, the condition is older than the webhook configurations.
#[test]
fn a_note_about_missing_webhooks_is_replaced_where_they_exist() {
    let message = "x does not exist; install belay again";
    let conditions = json!([condition("Ready", "False", "ConfigurationMissing", message)]);
    let mut fresh = policy(&conditions, 2);
    fresh.replace_note_of_missing_webhooks();
    let says = text(&report(vec![fresh]));
    assert!(says.contains("were missing and exist now; the leader updates this status"), "{says}");
    assert!(!says.contains("install belay again"), "{says}");
}

#[test]
fn holds_that_belay_may_not_release_are_a_problem() {
    let mut report = report(vec![healthy_policy()]);
    report.unreleased_holds = vec![UnreleasedHolds {
        resource: "secrets".to_owned(),
        objects: Some(2),
        message: "belay may not".to_owned(),
    }];
    let line = "holds: 2 objects have belay's hold on secrets; belay may not\n";
    assert!(text(&report).contains(line), "{}", text(&report));
    assert_eq!(code(&report), 1);
}

#[test]
fn a_note_of_several_policies_is_printed_once() {
    let unready = || policy(&json!([condition("Ready", "False", "ConfigurationMissing", "x")]), 2);
    let note = "Ready: ConfigurationMissing: x";
    let several = text(&report(vec![unready(), unready()]));
    assert_eq!(several.matches(note).count(), 1, "{several}");
    assert!(several.contains(&format!("all policies: {note}\n")), "{several}");
    let most = text(&report(vec![unready(), unready(), healthy_policy()]));
    assert_eq!(most.matches(note).count(), 1, "{most}");
    assert!(most.contains(&format!("policies kept, kept: {note}\n")), "{most}");
    let mixed = text(&report(vec![unready(), healthy_policy()]));
    assert!(mixed.contains(&format!("  {note}\n")), "{mixed}");
}

#[test]
fn problems_are_printed_and_decide_the_exit_code() {
    let ready = |status: &str| policy(&json!([condition("Ready", status, "Invalid", "x")]), 2);
    assert_eq!(code(&report(vec![ready("False")])), 1);
    assert!(text(&report(vec![ready("False")])).contains("   NO      "));
    assert_eq!(code(&report(vec![policy(&json!([]), 2)])), 1);
    let mut without_leader = report(vec![healthy_policy()]);
    without_leader.leader = Leader::from_lease(&Ok::<_, ()>(None));
    let says = "leader: none; while belay is down, the API server refuses every delete of a kind that \
                a policy names, and no replica updates the status of policies; next: ";
    assert!(text(&without_leader).starts_with(says), "{}", text(&without_leader));
    assert_eq!(code(&without_leader), 1);
    let mut missing = report(vec![healthy_policy()]);
    remove_configuration(&mut missing);
    assert!(text(&missing).contains("MISSING"));
    // Only helm install works after a complete uninstall.
    assert!(text(&missing).contains("to install it again: helm install, or if the release still"));
    assert_eq!(code(&missing), 1);
    let installation = Installation { namespace: "ops".to_owned(), name: "guard".to_owned() };
    let uninstall =
        |age| RunningUninstall::of_age(age).map(|lease| UninstallStatus::new(lease, &installation));
    missing.uninstall = uninstall(4);
    missing.certificate = None;
    let says = text(&missing);
    assert!(
        says.starts_with(
            "UNINSTALL in progress by uninstall-ann (last renewed 4s ago): belay denies nothing, and \
             the uninstall removes all holds, but without --abandon not those of Terminating objects \
             in use\n\
             webhooks: validatingwebhookconfiguration/belay was deleted by the uninstall\n\
             to see the remaining work: kubectl belay admin uninstall --dry-run \
             --installation=ops/guard\n"
        ),
        "{says}"
    );
    assert!(!says.contains("MISSING") && !says.contains("certificates:"), "{says}");
    assert_eq!(code(&missing), 1);
    missing.uninstall = uninstall(40);
    let says = text(&missing);
    let stopped = "(last renewed 40s ago; it may have stopped): belay denies nothing, and objects \
                   keep the holds that it has not removed\n";
    assert!(says.contains(stopped), "{says}");
    missing.configurations[0].present = true;
    let says = text(&missing);
    assert!(says.contains("/belay has no rules, so belay denies nothing; a replica"), "{says}");
    assert_eq!(code(&missing), 1);
    let mut blind = report(vec![healthy_policy()]);
    blind.leader = Leader::from_lease(&Err(()));
    blind.not_read.push(FailedRead { resource: "leases".to_owned(), why: "no".to_owned() });
    assert_eq!(code(&blind), 3);
    let now = Timestamp::from_second(1000).unwrap();
    for (ends, says, expected) in [
        (vec![900, 9_000_000], "EXPIRED", 1),
        (vec![1000 + 86_400], "24h left", 1),
        (vec![1000 + 86_400 * 30], "30d left", 0),
    ] {
        let mut report = report(vec![healthy_policy()]);
        let served = Expiry::first(ends.clone(), now);
        report.authority = Expiry::first(ends, now);
        assert!(text(&report).contains(says), "{}", text(&report));
        assert_eq!(code(&report), expected, "{says}");
        // A served certificate that expires soon is a problem as well.
        (report.certificate, report.authority) = (served, None);
        assert!(text(&report).contains(says), "{}", text(&report));
        assert_eq!(code(&report), expected, "{says}");
    }
    let mut silent = report(vec![healthy_policy()]);
    silent.certificate = None;
    assert!(
        text(&silent).contains("the expiry of the serving certificate is unknown"),
        "{}",
        text(&silent)
    );
    assert_eq!(code(&silent), 0);
}

#[test]
fn an_active_pause_is_printed_as_a_problem() {
    let pause = |expires: i64| -> Option<PauseReport> {
        let until = Timestamp::from_second(expires).unwrap().to_string();
        let pause = serde_json::from_value(json!({"apiVersion": "belay.dev/v1alpha1",
            "kind": "Pause", "metadata": {"name": "p"},
            "spec": {"by": "alice", "reason": "INC-1", "expirationTime": until}}));
        PauseReport::if_active(pause.unwrap(), Timestamp::from_second(1000).unwrap())
    };
    assert!(pause(1000).is_none());
    let mut report = report(vec![healthy_policy()]);
    report.pauses.extend(pause(1060));
    assert!(text(&report).contains("PAUSED: belay denies nothing until 1970-01-01T00:17:40Z"));
    let json: Value = serde_json::from_str(&report.render(Format::Json, PIPE).unwrap()).unwrap();
    assert_eq!(json["kind"], "Status");
    assert_eq!(json["leader"], json!({"state": "Replica", "name": "belay-0"}));
    assert_eq!(json["policies"][0]["protects"][1], "whileUsed");
    assert_eq!(json["pauses"][0]["by"], "alice");
    assert_eq!(code(&report), 1);
}

/// The counts are those of the last leader, and an uninstall removes the holds.
#[test]
fn without_a_leader_the_counts_are_unknown() {
    let mut report = report(vec![healthy_policy()]);
    report.leader = Leader::from_lease(&Ok::<_, ()>(None));
    let row = |report: &StatusReport| {
        let text = text(report);
        text.lines().find(|line| line.starts_with("kept ")).unwrap().to_owned()
    };
    assert!(
        row(&report).contains("   unknown     unknown   3 (2 would be denied)"),
        "{}",
        row(&report)
    );
    report.leader = Leader::from_lease(&Err(()));
    assert!(row(&report).contains("   40          38      3 (2"), "{}", row(&report));
}
