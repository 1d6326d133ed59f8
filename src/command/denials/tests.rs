use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::report::SHOWN;
use super::*;
use crate::command::report::{Format, Report, View};
use crate::command::screen::Screen;
use crate::command::webhooks::UNINSTALLED;
use crate::policy::api::LastDay;

const PIPE: View = View { screen: Screen::pipe(), all: false, wide: false, verbose: false };

fn at(second: i64) -> String {
    Timestamp::from_second(second).unwrap().to_string()
}

fn policy(name: &str, recent: &[(i64, &str, &str)]) -> DeletionPolicy {
    let recent: Vec<_> = recent
        .iter()
        .map(|(second, target, verdict)| {
            json!({"time": at(*second), "target": target, "verdict": verdict, "user": "alice",
                "message": format!("{target} is protected")})
        })
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy", "metadata": {"name": name},
        "spec": {"targets": [], "protect": {}},
        "status": {"last24h": {"denied": 12, "wouldDeny": 3, "held": 0}, "recent": recent}
    }))
    .unwrap()
}

fn event(second: i64, name: &str, kind: &str, count: i32) -> Event {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop"}, "type": kind, "reason": "Protected", "count": count,
        "reportingComponent": "belay", "lastTimestamp": at(second),
        "message": format!("configmap \"{name}\" is protected"),
        "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": name}
    }))
    .unwrap()
}

fn filter(would: bool, since: i64) -> DenialFilter {
    let time = |second| Timestamp::from_second(second).unwrap();
    DenialFilter { would, since: time(since), now: time(5120) }
}

fn denials_of(policies: &[DeletionPolicy], events: &[Event], filter: DenialFilter) -> Vec<Denial> {
    items(policies, events, &Kinds::default(), filter)
}

fn summaries(items: &[Denial]) -> Vec<(i64, &str, String)> {
    items
        .iter()
        .map(|item| (item.time.as_second(), item.target.as_str(), item.policies.join("+")))
        .collect()
}

#[test]
fn one_request_in_several_policies_and_events_is_listed_once() {
    let policies = [
        policy("one", &[(5000, "configmaps shop/a", "Deny"), (4000, "configmaps shop/b", "Audit")]),
        policy("two", &[(5000, "configmaps shop/a", "Deny"), (100, "configmaps shop/c", "Deny")]),
    ];
    let events = [event(5300, "a", "Warning", 7), event(4500, "d", "Warning", 1)];
    let since = filter(false, 1000);
    let since = DenialFilter { now: Timestamp::from_second(9000).unwrap(), ..since };
    let listed = denials_of(&policies, &events, since);
    assert_eq!(
        summaries(&listed),
        [
            (5000, "configmaps shop/a", "one+two".to_owned()),
            (4500, "configmaps shop/d", String::new()),
        ]
    );
    assert_eq!((listed[0].count, listed[1].subject.as_deref()), (Some(7), None));
    // A much later Event reports another request.
    let later = [event(9000, "a", "Warning", 1)];
    assert_eq!(denials_of(&policies, &later, since).len(), 2);
    // The same applies to an object of another kind with the same name.
    let mut secret = event(5100, "a", "Warning", 1);
    secret.involved_object.kind = Some("Secret".to_owned());
    assert_eq!(denials_of(&policies, &[secret], since).len(), 2);
    // The kind of the object decides, not the message.
    let mut other = event(5100, "a", "Warning", 3);
    other.message = Some("it would lose its owner".to_owned());
    assert_eq!(denials_of(&policies, &[other], since)[0].count, Some(3));
    // A held deletion was not refused, and Events of other components are not counted.
    let mut others = event(4500, "d", "Warning", 1);
    others.reporting_component = Some("kubelet".to_owned());
    let events = [event(4500, "d", "Normal", 1), others];
    assert_eq!(denials_of(&policies, &events, since).len(), 1);
}

#[test]
fn denials_of_one_object_with_other_reasons_or_users_are_other_denials() {
    let with = |mut policy: DeletionPolicy, changes: &[(&str, &str)]| {
        let recent = &mut policy.status.as_mut().unwrap().recent;
        for (recent, (user, reason)) in recent.iter_mut().zip(changes) {
            (recent.user, recent.reason) = ((*user).to_owned(), Some((*reason).to_owned()));
        }
        policy
    };
    let event = |second, reason: &str, count| {
        let event = event(second, "a", "Warning", count);
        Event { reason: Some(reason.to_owned()), ..event }
    };
    let rows = |policies: &[DeletionPolicy], events: &[Event]| -> Vec<String> {
        let items = denials_of(policies, events, filter(false, 0));
        let row = |item: &Denial| {
            let user = item.subject.as_deref().unwrap_or("-");
            format!(
                "{} {user} {} {:?}",
                item.time.as_second(),
                item.reason.as_deref().unwrap_or("-"),
                item.count
            )
        };
        items.iter().map(row).collect()
    };
    // Both refusals are in the same second.
    let denied = (5000, "configmaps shop/a", "Deny");
    let one = with(policy("one", &[denied; 2]), &[("dev", "InUse"), ("dev", "FinalizerGuarded")]);
    let events = [event(5000, "FinalizerGuarded", 3), event(5000, "InUse", 1)];
    let expected = ["5000 dev InUse Some(1)", "5000 dev FinalizerGuarded Some(3)"];
    assert_eq!(rows(&[one], &events), expected);
    // The same without a policy, as for a denial of the label. Each replica has its own Event.
    let events = [events, [event(5010, "InUse", 2), event(4990, "InUse", 4)]].concat();
    let expected = ["5010 - InUse Some(7)", "5000 - FinalizerGuarded Some(3)"];
    assert_eq!(rows(&[], &events), expected);
    // An Event counts the requests of all users, so only the last denial has the count.
    let earlier = (4990, "configmaps shop/a", "Deny");
    let two = with(policy("two", &[earlier, denied]), &[("dev", "InUse"), ("admin", "InUse")]);
    let expected = ["5000 admin InUse Some(4)", "4990 dev InUse None"];
    assert_eq!(rows(&[two], &[event(5000, "InUse", 4)]), expected);
}

#[test]
fn audited_denials_have_their_own_option() {
    let recent = [
        (5000, "x a", "Deny"),
        (4000, "x b", "Audit"),
        (3000, "x c", "Warn"),
        (2000, "x d", "Hold"),
    ];
    let policies = [policy("one", &recent)];
    let events = [event(4500, "e", "Warning", 1)];
    let items = denials_of(&policies, &events, filter(true, 0));
    let targets: Vec<&str> = items.iter().map(|item| item.target.as_str()).collect();
    assert_eq!(targets, ["x b", "x c"]);
}

#[test]
fn the_table_has_the_sums_of_each_policy() {
    let policies = [policy("kept", &[(5000, "configmaps shop/a", "Deny")])];
    let report = Denials {
        items: denials_of(&policies, &[event(5001, "a", "Warning", 2)], filter(false, 0)),
        policies: policy_counts(&policies),
        age_seconds: None,
        not_read: vec![FailedRead { resource: "events".to_owned(), why: "forbidden".to_owned() }],
        would: false,
        has_no_leader: false,
        uninstalled: None,
    };
    assert_eq!(
        report.render(Format::Table, PIPE).unwrap(),
        "AGE   VERDICT   OBJECT                 USER    MESSAGE\n\
         2m    denied    configmaps/a -n shop   alice   2 requests (of all users together), the last one: configmaps shop/a is protected\n\
         policy kept, whole cluster, last 24h: 12 denied, 3 would be denied, 0 kept Terminating\n\
         not read: events: forbidden\n"
    );
    assert_eq!(report.exit_code(), 1);
    let mut blind = Denials { items: Vec::new(), would: true, ..report };
    assert_eq!(blind.exit_code(), 3);
    blind.would = false;
    assert_eq!(blind.exit_code(), 3);
    let text = blind.text(PIPE);
    assert!(text.starts_with("no denials found, but some reads failed\n"), "{text}");
    let report = Denials { items: denials_of(&policies, &[], filter(false, 0)), ..blind };
    let nothing = |would: bool, has_no_leader: bool| Denials {
        items: Vec::new(),
        policies: Vec::new(),
        age_seconds: (would && !has_no_leader).then(delay),
        not_read: Vec::new(),
        would,
        has_no_leader,
        uninstalled: None,
    };
    assert_eq!(nothing(false, false).exit_code(), 0);
    let text = |would, has_no_leader| nothing(would, has_no_leader).text(PIPE);
    assert_eq!(text(false, false), "no denials\n");
    assert_eq!(
        text(true, false),
        "belay would have denied none of the allowed requests; those of the last 12 s may be missing\n"
    );
    let stale = text(true, true);
    assert!(
        stale.contains("\nbelay has no leader, so no policy reports newer requests"),
        "{stale}"
    );
    let removed =
        Denials { uninstalled: Some(UNINSTALLED.to_owned()), ..nothing(false, true) }.text(PIPE);
    assert!(removed.starts_with("no denials\nbelay is not installed (its CRDs"), "{removed}");
    assert!(!removed.contains("leader"), "{removed}");
    let json = report.render(Format::Json, PIPE).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["kind"], "DenialList");
    assert_eq!(json["items"][0]["time"], "1970-01-01T01:23:20Z");
    assert_eq!(json["policies"][0]["wouldDenyLast24h"], 3);
}

#[test]
fn only_policies_of_listed_requests_are_counted_below_the_list() {
    let listed = policy("kept", &[(5000, "configmaps shop/a", "Deny")]);
    let (by_label, other) = (event(5001, "labelled", "Warning", 1), policy("other", &[]));
    let report_of = |policies: &[DeletionPolicy]| Denials {
        policies: policy_counts(&[listed.clone(), other.clone()]),
        age_seconds: Some(delay()),
        ..complete(denials_of(policies, std::slice::from_ref(&by_label), filter(false, 0)))
    };
    let text = report_of(std::slice::from_ref(&listed)).text(PIPE);
    assert!(text.contains("policy kept, whole cluster") && !text.contains("other"), "{text}");
    assert!(text.ends_with("\nthe counts may lack the requests of the last 12 s\n"), "{text}");
    let only_label = report_of(&[]);
    let text = only_label.text(PIPE);
    assert!(!text.contains("whole cluster") && !text.contains("counts"), "{text}");
    // The status of a policy had the time to contain it, unless the policy is newer.
    assert!(text.contains("Only the log of belay at that time names the user\n"), "{text}");
    assert!(!text.contains("later"), "{text}");
    let mut recent = report_of(&[]);
    recent.items[0].ago = 3;
    let text = recent.text(PIPE);
    assert!(text.contains("the status of the policy adds the user later"), "{text}");
    // A user who may not read policies never sees the user.
    let forbidden = ApiError::Forbidden(String::new());
    recent.not_read = vec![FailedRead::new("deletionpolicies.belay.dev", &forbidden)];
    let text = recent.text(PIPE);
    assert!(text.contains("names the user, but you may not read policies"), "{text}");
    assert!(!text.contains("later"), "{text}");
    // Without belay, no status is updated.
    let text =
        Denials { has_no_leader: true, uninstalled: Some(UNINSTALLED.to_owned()), ..only_label }
            .text(PIPE);
    assert!(text.contains("Events name no user\n") && !text.contains("later"), "{text}");
}

#[test]
fn a_policy_whose_requests_were_all_held_is_counted_below_the_list() {
    let held = |denied, would_deny| {
        let mut policy = policy("holding", &[]);
        policy.status.as_mut().unwrap().last_24h = LastDay { denied, would_deny, held: 2 };
        let policies = policy_counts(&[policy]);
        Denials { policies, age_seconds: Some(delay()), ..complete(Vec::new()) }.text(PIPE)
    };
    assert_eq!(
        held(0, 0),
        "no denials\n\
         policy holding, whole cluster, last 24h: 0 denied, 0 would be denied, 2 kept Terminating\n\
         the counts may lack the requests of the last 12 s\n"
    );
    assert_eq!([held(1, 0), held(0, 1)], ["no denials\n"; 2]);
}

#[test]
fn an_object_has_the_form_that_it_has_in_all_documents() {
    let policies = [policy("one", &[(5000, "deployments.apps shop/a", "Deny")])];
    let object_of = |policies: &[DeletionPolicy], change: &dyn Fn(&mut Event)| {
        let mut event = event(5001, "a", "Warning", 1);
        change(&mut event);
        let items = denials_of(policies, &[event], filter(false, 0));
        serde_json::to_value(&items[0]).unwrap()["object"].clone()
    };
    let deployment = |event: &mut Event| {
        event.message = Some("deployment.apps \"a\" is protected".to_owned());
        event.involved_object.api_version = Some("apps/v1".to_owned());
        event.involved_object.kind = Some("Deployment".to_owned());
        event.involved_object.uid = Some("u".to_owned());
    };
    let known = json!({"group": "apps", "kind": "Deployment", "resource": "deployments",
        "namespace": "shop", "name": "a", "uid": "u", "typed": "deployments.apps/a -n shop"});
    // An Event adds the uid.
    assert_eq!(object_of(&policies, &deployment), known);
    assert_eq!(object_of(&[], &deployment), known);
    let gizmo = |message: &'static str| {
        move |event: &mut Event| {
            event.message = Some(message.to_owned());
            event.involved_object.api_version = Some("example.com/v1".to_owned());
            event.involved_object.kind = Some("Gizmo".to_owned());
        }
    };
    assert_eq!(
        object_of(&[], &gizmo("gizmo.example.com \"a\" is protected")),
        json!({"kind": "Gizmo", "namespace": "shop", "name": "a",
            "typed": "gizmo.example.com/a -n shop"})
    );
    let mut kinds = Kinds::default();
    kinds.learn(Kinds::custom("example.com", "v1", "Gizmo", "gizmos", true));
    let mut event = event(5001, "a", "Warning", 1);
    gizmo("gizmo.example.com \"a\" is protected")(&mut event);
    let events = [event];
    assert!(knows_all(&kinds, &policies, &events));
    assert!(!knows_all(&Kinds::default(), &policies, &events));
    let items = items(&[], &events, &kinds, filter(false, 0));
    assert_eq!(
        serde_json::to_value(&items[0]).unwrap()["object"],
        json!({"group": "example.com", "kind": "Gizmo", "resource": "gizmos", "namespace": "shop",
            "name": "a", "typed": "gizmos.example.com/a -n shop"})
    );
}

#[test]
fn a_namespace_selects_itself_and_the_objects_in_it() {
    let targets = [
        (5000, "configmaps shop/a", "Deny"),
        (4000, "namespaces shop", "Deny"),
        (3000, "configmaps shopping/a", "Deny"),
        (2000, "persistentvolumes shop", "Deny"),
    ];
    let items = denials_of(&[policy("one", &targets)], &[], filter(false, 0));
    let inside: Vec<bool> = items.iter().map(|item| item.is_in("shop")).collect();
    assert_eq!(inside, [true, true, false, false]);
}

#[test]
fn h122_an_event_that_belay_does_not_write_reports_no_denial() {
    let involved = |event: &mut Event, version: &str, kind: &str, namespace: Option<&str>| {
        let involved = &mut event.involved_object;
        involved.api_version = Some(version.to_owned());
        involved.kind = Some(kind.to_owned());
        involved.namespace = namespace.map(str::to_owned);
    };
    let is_listed = |change: &dyn Fn(&mut Event)| {
        let mut event = event(5000, "a", "Warning", 1);
        change(&mut event);
        denials_of(&[], &[event], filter(false, 0)).len() == 1
    };
    let at = |second: i64| Some(Time(Timestamp::from_second(second).unwrap()));
    let in_default = |event: &mut Event| event.metadata.namespace = Some("default".to_owned());
    assert!(is_listed(&|_| {}));
    assert!(!is_listed(&in_default), "an object of another namespace");
    assert!(!is_listed(&|e| involved(e, "v1", "Namespace", Some("shop"))));
    assert!(!is_listed(&|e| involved(e, "v1", "PersistentVolume", None)));
    assert!(is_listed(&|e| {
        involved(e, "v1", "Namespace", None);
        in_default(e);
    }));
    assert!(!is_listed(&|e| {
        involved(e, "v1", "Namespace", Some("default"));
        in_default(e);
    }));
    // An unknown kind may be cluster-scoped.
    assert!(is_listed(&|e| involved(e, "example.com/v1", "Gizmo", Some("shop"))));
    assert!(!is_listed(&|e| involved(e, "example.com/v1", "Gizmo", Some("other"))));
    assert!(is_listed(&|e| {
        involved(e, "example.com/v1", "Gizmo", None);
        in_default(e);
    }));
    assert!(!is_listed(&|e| involved(e, "example.com/v1", "Gizmo", None)));
    assert!(is_listed(&|e| e.last_timestamp = at(5120 + 60)));
    assert!(!is_listed(&|e| e.last_timestamp = at(5120 + 61)));
    assert!(is_listed(&|e| e.count = None));
    assert!(!is_listed(&|e| e.count = Some(0)));
    assert!(!is_listed(&|e| e.count = Some(-5)));
}

#[test]
fn h122_an_event_with_another_uid_changes_no_denial_of_a_policy() {
    let mut denied = policy("one", &[(5000, "configmaps shop/a", "Deny")]);
    denied.status.as_mut().unwrap().recent[0].uid = Some("real".to_owned());
    let event = |uid: &str, count| {
        let mut event = event(5001, "a", "Warning", count);
        event.involved_object.uid = Some(uid.to_owned());
        event
    };
    let events = [event("forged", 99_999), event("real", 2)];
    let listed = denials_of(&[denied], &events, filter(false, 0));
    let of_policy = listed.iter().find(|item| !item.policies.is_empty()).unwrap();
    assert_eq!((of_policy.object.uid.as_str(), of_policy.count), ("real", Some(2)));
    assert_eq!(listed.len(), 2);

    // The Event has the rest of a long message.
    let mut denied = policy("one", &[(5000, "configmaps shop/a", "Deny")]);
    denied.status.as_mut().unwrap().recent[0].message = "It is used. …".to_owned();
    let mut whole = self::event(5001, "a", "Warning", 1);
    whole.message = Some("It is used. Details: kubectl belay why cm/a".to_owned());
    let listed = denials_of(&[denied], &[whole], filter(false, 0));
    assert_eq!(listed[0].message, "It is used. Details: kubectl belay why cm/a");
}

/// These denials, without a failed read or a missing part of belay.
fn complete(items: Vec<Denial>) -> Denials {
    Denials {
        items,
        policies: Vec::new(),
        age_seconds: None,
        not_read: Vec::new(),
        would: false,
        has_no_leader: false,
        uninstalled: None,
    }
}

#[test]
fn h133_denials_of_one_namespace_cannot_hide_others_on_a_terminal() {
    let event_in = |namespace: &str, name: &str, second| {
        let mut event = event(second, name, "Warning", 1);
        event.metadata.namespace = Some(namespace.to_owned());
        event.involved_object.namespace = Some(namespace.to_owned());
        event
    };
    let own = (0..40).map(|n| event_in("eve", &format!("own{n}"), 5000 + n));
    let events: Vec<Event> = own.chain([event_in("prod", "other", 4000)]).collect();
    let denials = complete(denials_of(&[], &events, filter(false, 0)));
    let text = denials.text(View { screen: Screen::terminal(200), ..PIPE });
    assert!(text.contains(" configmaps/other -n prod "), "{text}");
    assert_eq!(text.matches(" -n eve ").count(), SHOWN - 1);
    assert!(text.contains("… and 11 more denials; --all"), "{text}");
}

#[test]
fn h181_the_name_of_a_denied_object_has_quotation_marks_if_it_is_ambiguous() {
    let role = "roles.rbac.authorization.k8s.io shop/a  bob";
    let policies = [policy("one", &[(5000, role, "Deny")])];
    let text = complete(denials_of(&policies, &[], filter(false, 0))).text(PIPE);
    assert!(text.contains(" 'roles.rbac.authorization.k8s.io/a  bob' -n shop   alice "), "{text}");
}
