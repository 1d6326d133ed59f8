use super::*;
use crate::objects::ApiError;
use crate::objects::{Flaw, Kinds, Unreadable};
use crate::policy::api::{DeletionPolicyStatus, Problem};

fn policy(problems: Vec<Problem>) -> StoredPolicy {
    StoredPolicy { generation: 3, status: DeletionPolicyStatus::default(), problems, loaded_at: 5 }
}

const MUTATING: &str = "MutatingWebhookConfiguration/belay";

fn registered(generation: Option<u64>, missing: &[&str]) -> Registered {
    let phase = |name: &str| match name {
        MUTATING => AdmissionPhase::Mutate,
        _ => AdmissionPhase::Validate,
    };
    let missing = missing.iter().map(|name| (phase(name), (*name).to_owned())).collect();
    let changed = Vec::new();
    Registered { generation, bundle: None, secret_path: None, missing, changed, any_exists: true }
}

#[test]
fn ready_depends_on_the_requests_that_the_api_server_sends() {
    let good = policy(Vec::new());
    for (registered, status, reason) in [
        (registered(None, &[]), "False", "NotRegistered"),
        (registered(Some(4), &[]), "False", "NotRegistered"),
        (registered(Some(5), &[]), "True", "Registered"),
        (registered(Some(9), &[]), "True", "Registered"),
        (registered(Some(9), &["x/belay"]), "False", "ConfigurationMissing"),
    ] {
        let finding = ready(&good, &registered, None);
        assert_eq!((finding.status, finding.reason), (status, reason), "{registered:?}");
    }
    let tampered = Registered {
        changed: vec!["V/belay webhook delete.belay.dev (failurePolicy)".to_owned()],
        ..registered(Some(9), &[])
    };
    let finding = ready(&good, &tampered, None);
    assert_eq!((finding.status, finding.reason), ("False", "ConfigurationChanged"));
    assert!(finding.message.starts_with(&tampered.changed[0]), "{}", finding.message);
    let missing = ready(&good, &registered(None, &["ValidatingWebhookConfiguration/belay"]), None);
    assert!(missing.message.starts_with("ValidatingWebhookConfiguration/belay does not exist"));
    let holds = ready(&good, &registered(None, &[MUTATING]), None);
    assert!(holds.message.contains("so new objects get no hold"), "{}", holds.message);
    let pause =
        Pause { name: "p".into(), by: "carol".into(), expires: 1_800_000_000, ..Pause::default() };
    let paused = ready(&good, &registered(Some(9), &[]), Some(&pause));
    assert_eq!((paused.status, paused.reason), ("True", "Paused"));
    let message = "pause p by carol: policies are not enforced until 2027-01-15T08:00:00Z";
    assert_eq!(paused.message, message);
    let problem = |field: &str| Problem { field: field.to_owned(), message: "is empty" };
    let bad = policy(vec![problem("spec.targets"), problem("spec.protect")]);
    let finding = ready(&bad, &registered(Some(9), &[]), None);
    assert_eq!((finding.status, finding.reason), ("False", "Invalid"));
    assert_eq!(finding.message, "spec.targets: is empty; spec.protect: is empty");
}

#[test]
fn watching_names_incomplete_kinds_with_the_most_serious_reason_first() {
    let mut graph = Graph::default();
    let kind = |graph: &Graph, kind| graph.kinds.find("", kind).unwrap();
    let (pods, claims) = (kind(&graph, "Pod"), kind(&graph, "PersistentVolumeClaim"));
    let needs = BTreeSet::from([pods, claims]);
    graph.set_complete(pods, true);
    let finding = watching(&graph, &needs, &[]);
    assert_eq!((finding.status, finding.reason), ("False", "Reading"));
    assert_eq!(finding.message, "persistentvolumeclaims: they have not been read yet");

    for (error, reason) in [
        (ApiError::NotFound, "NotInstalled"),
        (ApiError::of_status(403, "no"), "Forbidden"),
        (ApiError::of_status(401, "who"), "Forbidden"),
        (ApiError::of_status(500, "conversion webhook"), "Failed"),
        (ApiError::Expired, "Failed"),
    ] {
        graph.set_incomplete(claims, error.clone());
        let finding = watching(&graph, &needs, &[]);
        assert_eq!(finding.reason, reason);
        let ready = ready(&policy(Vec::new()), &registered(Some(9), &[]), None);
        let ready = ready.with_watching(&finding);
        let expected = match reason {
            "NotInstalled" => ("True", "Registered"),
            _ => ("False", "NotWatched"),
        };
        assert_eq!((ready.status, ready.reason), expected);
        assert!(finding.message.contains(&error.to_string()), "{}", finding.message);
    }
    let unknown = ["gadgets.example.com".to_owned()];
    let finding = watching(&graph, &needs, &unknown);
    assert_eq!(finding.reason, "Failed");
    assert!(finding.message.starts_with("persistentvolumeclaims: the list changed"));
    assert!(finding.message.contains("; gadgets.example.com: the API server does not serve"));

    graph.set_complete(claims, true);
    assert_eq!(watching(&graph, &needs, &[]).status, "True");
    let name = Some(("shop".to_owned(), "bad".to_owned()));
    let bad = Unreadable { name, ..Unreadable::of_unknown_name() };
    graph.set_unreadable(pods, &Unreadable { flaw: Flaw::TooManyReferences, ..bad.clone() });
    assert_eq!(watching(&graph, &needs, &[]).status, "True", "every tenant can write these");
    graph.set_unreadable(pods, &bad);
    let finding = watching(&graph, &needs, &[]);
    assert_eq!((finding.status, finding.reason), ("False", "Unreadable"));
    assert_eq!(finding.message, "pods: Pod shop/bad can't be read, so it may use anything");
    let widget = graph.kinds.learn(Kinds::custom("x.dev", "v1", "Widget", "widgets", true));
    graph.kinds.forget(widget);
    let finding = watching(&graph, &BTreeSet::from([widget]), &[]);
    assert_eq!(finding.reason, "NotInstalled");
    // Each kind appears once.
    let twice = watching(&graph, &BTreeSet::from([widget]), &["widgets.x.dev".to_owned()]);
    assert_eq!(finding, twice);
}

#[test]
fn holding_reports_progress_and_kinds_without_holds() {
    let counts = HoldCounts { done: 120, total: 500, ..HoldCounts::default() };
    let mut progress = HoldProgress { counts, ..HoldProgress::default() };
    let finding = holding("p", &progress);
    assert_eq!((finding.status, finding.reason), ("False", "Progressing"));
    assert_eq!(finding.message, "120 of 500 objects have the hold");
    let unread = HoldProgress { unread: true, ..HoldProgress::default() };
    let finding = holding("p", &unread);
    assert_eq!((finding.status, finding.reason), ("False", "Counting"));
    assert_eq!(finding.message, "no object needs the hold; belay has not read all objects yet");
    let counts = HoldCounts { terminating: 3, ..HoldCounts::default() };
    let ending = HoldProgress { counts, ..HoldProgress::default() };
    let finding = holding("p", &ending);
    assert_eq!((finding.status, finding.reason), ("True", "InPlace"));
    assert_eq!(finding.message, "no object needs the hold, except Terminating ones (3)");
    let some = HoldProgress { binds_some: true, ..HoldProgress::default() };
    let finding = holding("p", &some);
    assert_eq!((finding.status, finding.reason), ("False", "BindsSome"));
    let no_right =
        HoldProgress { forbidden: vec!["jobs.batch".to_owned()], ..HoldProgress::default() };
    let finding = holding("p", &no_right);
    assert_eq!((finding.status, finding.reason), ("False", "Forbidden"));
    assert!(finding.message.contains("rbac.watchAlso"), "{}", finding.message);
    assert_eq!(not_held(&no_right)[0].resource, "jobs.batch");
    progress.refused = Some(RefusedHolds {
        objects: 2,
        first: "configmaps shop/big".to_owned(),
        why: "the API server answers 413: too large".to_owned(),
    });
    let finding = holding("p", &progress);
    assert_eq!((finding.status, finding.reason), ("False", "Refused"));
    let says = "; holds that the API server refuses: 2 (belay retries every minute): \
                configmaps shop/big: the API server answers 413: too large";
    assert!(finding.message.ends_with(says), "{}", finding.message);
    progress.refused = None;
    progress.counts.done = 500;
    progress.unsafe_kinds = vec!["pods".to_owned(), "nodes".to_owned()];
    let finding = holding("p", &progress);
    assert_eq!((finding.status, finding.reason), ("True", "InPlace"));
    assert!(finding.message.contains("adds none to pods, nodes, where"), "{}", finding.message);
}

#[test]
fn a_stopped_backfill_says_how_to_continue() {
    let stopped = |resource: &str, missing| BackfillStop {
        resource: resource.to_owned(),
        missing,
        limit: 5000,
    };
    let stopped = vec![stopped("configmaps", 12_000), stopped("secrets", 7000)];
    let pods = vec!["pods".to_owned()];
    let progress = HoldProgress {
        counts: HoldCounts { done: 3, total: 19_003, ..HoldCounts::default() },
        unsafe_kinds: pods,
        stopped,
        ..HoldProgress::default()
    };
    let texts = not_held(&progress).into_iter().map(|one| (one.resource, one.objects, one.why));
    let why = "more existing objects lack the hold than the limit of 5000".to_owned();
    assert_eq!(
        texts.collect::<Vec<_>>(),
        [
            ("pods".to_owned(), None, "belay adds no hold to this kind".to_owned()),
            ("configmaps".to_owned(), Some(12_000), why.clone()),
            ("secrets".to_owned(), Some(7000), why),
        ]
    );
    let progress = HoldProgress { unsafe_kinds: Vec::new(), ..progress };
    let finding = holding("all-settings", &progress);
    assert_eq!((finding.status, finding.reason), ("False", "TooManyObjects"));
    assert_eq!(
        finding.message,
        "3 of 19003 objects have the hold; 12000 configmaps lack it, more than the limit of \
         5000, 7000 secrets lack it, more than the limit of 5000, so only new objects get the \
         hold. To continue, narrow the policy, or run: kubectl annotate --overwrite \
         deletionpolicy all-settings belay.dev/backfill-max-objects=12000"
    );
    let many = (0..7).map(|n| BackfillStop { resource: format!("k{n}"), missing: 9, limit: 1 });
    let many = HoldProgress { stopped: many.collect(), ..HoldProgress::default() };
    assert!(holding("p", &many).message.contains(", and 2 more kinds"));
}

#[test]
fn the_time_of_a_transition_stays_while_the_status_does() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let policy = policy(Vec::new());
    let waiting = || vec![ready(&policy, &registered(None, &[]), None), not_watching()];
    let first = conditions(&[], waiting(), 3, at(100));
    assert_eq!(first[0].last_transition_time, Time(at(100)));
    let missing = vec![ready(&policy, &registered(None, &["x"]), None), not_watching()];
    let second = conditions(&first, missing, 4, at(200));
    assert_eq!(second[0].last_transition_time, Time(at(100)));
    assert_eq!(second[0].reason, "ConfigurationMissing");
    assert_eq!(second[0].observed_generation, Some(4));
    let third =
        conditions(&second, vec![ready(&policy, &registered(Some(5), &[]), None)], 4, at(300));
    assert_eq!(third[0].last_transition_time, Time(at(300)));
    assert_eq!(third.len(), 1);
}
