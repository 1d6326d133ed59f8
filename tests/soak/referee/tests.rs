//! Each finding has a test: logs with an error of belay, and the same logs with an excuse.

mod owners;
mod users;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Event, Finding, Referee, Sentence};

const BELAY: &str = "system:serviceaccount:belay:belay";

const GC: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// A log that a test writes line by line. Each line is a second after the last.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
    second: i64,
    version: u64,
}

fn stamp(second: i64) -> String {
    (jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1_700_000_000 + second))
        .to_string()
}

impl Log {
    /// A log with a namespace and a policy that has long been in force.
    fn with(protect: Value) -> Self {
        let mut log = Self::default();
        let labels = json!({"kubernetes.io/metadata.name": "room-0"});
        log.write(
            "create",
            "alice",
            "",
            "namespaces",
            json!({"metadata": {"name": "room-0",
            "labels": labels}, "spec": {"finalizers": ["kubernetes"]}}),
        );
        log.policy(protect, "True");
        log.wait(30);
        log
    }

    fn policy(&mut self, protect: Value, ready: &str) {
        let condition = |kind: &str| json!({"type": kind, "status": ready});
        let target = json!({"apiGroups": [""], "resources": ["configmaps"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "room-0"}},
            "objectSelector": {"matchLabels": {"keep": "yes"}}});
        self.write(
            "patch",
            BELAY,
            "belay.dev",
            "deletionpolicies",
            json!({
            "metadata": {"name": "kept", "generation": 1},
            "spec": {"targets": [target], "protect": protect},
            "status": {"observedGeneration": 1,
                "conditions": [condition("Ready"), condition("Watching")]}}),
        );
    }

    fn wait(&mut self, seconds: i64) {
        self.second += seconds;
    }

    fn line(
        &mut self,
        verb: &str,
        user: &str,
        group: &str,
        resource: &str,
        code: u16,
        answer: &Value,
    ) {
        self.second += 1;
        let namespace = answer["metadata"]["namespace"].as_str().unwrap_or_default();
        let name = answer["metadata"]["name"].as_str().unwrap_or_default();
        self.lines.push(
            json!({
                "auditID": self.second.to_string(), "stage": "ResponseComplete", "verb": verb,
                "requestURI": format!("/x/{resource}"), "user": {"username": user},
                "objectRef": {"resource": resource, "apiGroup": group, "namespace": namespace,
                    "name": name},
                "responseStatus": {"code": code},
                "requestReceivedTimestamp": stamp(self.second),
                // The response comes later than the request.
                "stageTimestamp": stamp(self.second).replace('Z', ".2Z"),
                "responseObject": answer,
            })
            .to_string(),
        );
    }

    /// A DELETE that removes the object with this uid at once.
    fn remove(&mut self, user: &str, group: &str, resource: &str, uid: &str) {
        let answer = json!({"kind": "Status", "details": {"uid": uid}});
        self.line("delete", user, group, resource, 200, &answer);
    }

    /// A write with this object in its response; its uid is its name.
    fn write(&mut self, verb: &str, user: &str, group: &str, resource: &str, mut object: Value) {
        self.version += 1;
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = metadata["name"].clone();
        }
        metadata["resourceVersion"] = json!(self.version.to_string());
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = json!(stamp(self.second));
        }
        self.line(verb, user, group, resource, 200, &object);
    }

    /// A protected ConfigMap, with these fields in addition to the usual ones.
    fn config(&mut self, verb: &str, user: &str, more: Value) {
        let mut metadata = json!({"name": "settings", "namespace": "room-0",
            "labels": {"keep": "yes"}, "finalizers": ["belay.dev/hold"],
            "creationTimestamp": stamp(31)});
        for (key, value) in more.as_object().unwrap() {
            metadata[key] = value.clone();
        }
        self.write(verb, user, "", "configmaps", json!({"metadata": metadata}));
    }

    /// A Pod that uses it.
    fn pod(&mut self, verb: &str, more: Value) {
        let mut pod = json!({"metadata": {"name": "user", "namespace": "room-0"},
            "spec": {"volumes": [{"configMap": {"name": "settings"}}]}});
        for (key, value) in more.as_object().unwrap() {
            pod[key] = value.clone();
        }
        self.write(verb, "alice", "", "pods", pod);
    }

    /// The settings are deleted and belay releases them.
    fn deleted_and_released(&mut self) {
        let now = stamp(self.second + 1);
        self.config("delete", "alice", json!({"deletionTimestamp": now}));
        self.config("patch", BELAY, json!({"deletionTimestamp": now}));
        self.config("patch", BELAY, json!({"deletionTimestamp": now, "finalizers": []}));
    }

    fn approve(&mut self, uid: &str, scope: &str) {
        self.write(
            "create",
            "bob",
            "belay.dev",
            "deletionapprovals",
            json!({
            "metadata": {"name": "yes"},
            "spec": {"targetRef": {"uid": uid}, "approver": "bob", "scope": scope,
                "expirationTime": stamp(self.second + 60)}}),
        );
    }

    fn judge(&self, there: &[&str]) -> Sentence {
        let referee = Referee::read(self.lines.join("\n").as_bytes()).unwrap();
        let there: BTreeSet<String> = there.iter().map(ToString::to_string).collect();
        referee.judge(BELAY, &there, &|key| key.1 == "configmaps")
    }

    fn found(&self, there: &[&str]) -> Vec<&'static str> {
        self.judge(there).findings.iter().map(Finding::name).collect()
    }
}

fn always() -> Value {
    json!({"always": {}})
}

fn used() -> Value {
    json!({"whileUsed": {"onDelete": "Hold"}})
}

#[test]
fn finds_a_lost_object_with_protection_always() {
    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.wait(10);
    log.remove("alice", "", "configmaps", "settings");
    assert_eq!(log.found(&[]), ["lost"]);
}

#[test]
fn accepts_an_approved_deletion_but_no_later_approval() {
    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.approve("settings", "Object");
    log.wait(10);
    log.deleted_and_released();
    assert_eq!(log.found(&[]), [""; 0]);

    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.wait(10);
    log.deleted_and_released();
    log.approve("settings", "Object");
    assert_eq!(log.found(&[]), ["lost"]);

    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.approve("settings", "Object");
    log.wait(100);
    log.deleted_and_released();
    assert_eq!(log.found(&[]), ["lost"], "it had expired");

    // The dependents at the time of the approval are its content, and so are objects that
    // are created below it.
    let owners = |owner: &str| json!({"ownerReferences": [{"uid": owner}]});
    for (attached, found) in [("before", vec![]), ("at once", vec![]), ("after", vec!["lost"])] {
        let mut log = Log::with(always());
        log.config(
            "create",
            "alice",
            if attached == "at once" { owners("above") } else { json!({}) },
        );
        if attached == "before" {
            log.config("patch", "alice", owners("above"));
        }
        log.approve("above", "Content");
        log.config("patch", "alice", owners("above"));
        log.wait(10);
        log.deleted_and_released();
        assert_eq!(log.found(&[]), found, "{attached}");
    }

    // An approval of the namespace covers the objects in it only with scope Content.
    for (scope, found) in [("Object", vec!["lost"]), ("Content", vec![])] {
        let mut log = Log::with(always());
        log.config("create", "alice", json!({}));
        log.approve("room-0", scope);
        log.wait(10);
        log.deleted_and_released();
        assert_eq!(log.found(&[]), found, "{scope}");
    }
}

#[test]
fn a_policy_counts_from_its_readiness_to_its_deletion() {
    let mut log = Log::default();
    log.policy(always(), "False");
    log.wait(30);
    log.config("create", "alice", json!({"finalizers": []}));
    log.wait(10);
    log.deleted_and_released();
    assert_eq!(log.found(&[]), [""; 0]);

    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.wait(10);
    log.remove("bob", "belay.dev", "deletionpolicies", "kept");
    log.deleted_and_released();
    assert_eq!(log.found(&[]), [""; 0]);
}

#[test]
fn a_hold_was_stripped_and_stayed_away() {
    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.wait(10);
    log.config("patch", "alice", json!({"finalizers": []}));
    assert_eq!(log.found(&["settings"]), ["stripped"]);
    log.wait(5);
    log.config("patch", BELAY, json!({}));
    assert_eq!(log.found(&["settings"]), [""; 0], "it was put back");

    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.wait(10);
    log.config("patch", BELAY, json!({"finalizers": []}));
    assert_eq!(log.found(&["settings"]), [""; 0], "belay itself may");
}

/// etcd carried the write out too late for the API server, and another answer shows it.
#[test]
fn a_hold_was_removed_by_a_write_that_was_cut_off() {
    for (by, found) in [(BELAY, vec![]), ("bob", vec!["stripped"])] {
        let mut log = Log::with(always());
        log.config("create", "alice", json!({}));
        log.wait(10);
        let failed = json!({"metadata": {"name": "settings", "namespace": "room-0"}});
        log.line("patch", by, "", "configmaps", 504, &failed);
        log.config("delete", "alice", json!({"finalizers": ["soak.dev/guard"]}));
        assert_eq!(log.found(&["settings"]), found, "{by}");
    }
}

#[test]
fn a_guarded_finalizer_was_stripped_by_a_person() {
    let guard = json!({"fromStripping": {"finalizers": ["soak.dev/*"]}});
    for (by, found) in [("alice", vec!["stripped"]), (GC, vec![])] {
        let mut log = Log::with(guard.clone());
        log.config("create", "alice", json!({"finalizers": ["soak.dev/guard", "other.dev/x"]}));
        log.wait(10);
        log.config("patch", by, json!({"finalizers": []}));
        assert_eq!(log.found(&["settings"]), found, "{by}");
    }
}

#[test]
fn the_label_was_removed_by_a_person() {
    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.wait(10);
    log.config("patch", "alice", json!({"labels": {}, "finalizers": []}));
    assert_eq!(log.found(&["settings"]), ["stripped", "released"]);
}

#[test]
fn an_object_waits_without_a_user() {
    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.wait(10);
    log.config("delete", "alice", json!({"deletionTimestamp": stamp(log.second)}));
    assert_eq!(log.found(&["settings"]), ["stuck"]);

    let mut log = Log::with(used());
    log.config("create", "alice", json!({}));
    log.pod("create", json!({}));
    log.wait(10);
    log.config("delete", "alice", json!({"deletionTimestamp": stamp(log.second)}));
    assert_eq!(log.found(&["settings"]), [""; 0], "the Pod is there");

    for (seconds, found) in [(5, &[][..]), (20, &["stuck"])] {
        let mut log = Log::with(used());
        log.config("create", "alice", json!({}));
        log.wait(10);
        log.config("delete", "alice", json!({"deletionTimestamp": stamp(log.second)}));
        log.wait(seconds);
        log.pod("create", json!({}));
        assert_eq!(log.found(&["settings"]), found, "made after {seconds} s");
    }

    // A leader that starts later doesn't know since when its owner is the approved one.
    for (approved, scope, found) in
        [("settings", "Object", &["stuck"][..]), ("above", "Content", &[])]
    {
        let mut log = Log::with(always());
        log.config("create", "alice", json!({"ownerReferences": [{"uid": "above"}]}));
        log.approve(approved, scope);
        log.config("delete", "alice", json!({"deletionTimestamp": stamp(log.second)}));
        assert_eq!(log.found(&["settings"]), found, "{approved}");
    }

    let mut log = Log::with(json!({"fromOrphaning": {}}));
    log.config("create", "alice", json!({}));
    assert_eq!(log.found(&["settings"]), ["stuck"], "nothing wants the hold that it has");
}

/// The garbage collector's patch is answered with the metadata alone.
#[test]
fn a_scaled_down_replica_set_is_a_user_unless_a_deployment_controls_it() {
    let owner = json!({"kind": "Deployment", "uid": "web", "controller": true});
    for (owners, orphaned, found) in [
        (json!([owner]), false, &["stuck"][..]),
        (json!([owner]), true, &[]),
        (json!([]), false, &[]),
    ] {
        let mut log = Log::with(used());
        log.config("create", "alice", json!({}));
        let metadata = json!({"name": "web-1", "namespace": "room-0", "ownerReferences": owners});
        let volumes = json!([{"configMap": {"name": "settings"}}]);
        let spec = json!({"replicas": 0, "template": {"spec": {"volumes": volumes}}});
        let object = json!({"metadata": metadata, "spec": spec});
        log.write("create", "alice", "apps", "replicasets", object);
        if orphaned {
            let metadata = json!({"name": "web-1", "namespace": "room-0"});
            let object = json!({"kind": "PartialObjectMetadata", "metadata": metadata});
            log.write("patch", GC, "apps", "replicasets", object);
        }
        log.wait(10);
        log.config("delete", "alice", json!({"deletionTimestamp": stamp(log.second)}));
        assert_eq!(log.found(&["settings"]), found, "{owners} {orphaned}");
    }
}

#[test]
fn belay_does_not_write_to_one_object_for_ever() {
    for (pause, found) in [(-1, vec!["busy"]), (9, vec![])] {
        let mut log = Log::with(always());
        log.config("create", "alice", json!({}));
        for _ in 0..200 {
            log.wait(pause);
            log.config("patch", BELAY, json!({}));
        }
        assert_eq!(log.found(&["settings"]), found, "{pause}");
    }
}

#[test]
fn an_object_that_was_deleted_without_a_trace_is_reported() {
    let mut log = Log::with(always());
    log.config("create", "alice", json!({"finalizers": []}));
    assert_eq!(log.found(&[]), ["disagree"]);
    assert_eq!(log.found(&["settings", "stranger"]), ["disagree"]);
}

#[test]
fn an_interrupted_deletecollection_may_have_deleted_it() {
    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.wait(10);
    log.line(
        "deletecollection",
        "alice",
        "",
        "configmaps",
        403,
        &json!({"metadata": {"namespace": "room-0"}}),
    );
    assert_eq!(log.found(&["settings"]), [""; 0]);
    assert_eq!(log.found(&[]), ["lost"]);
}

#[test]
fn a_custom_resource_was_deleted_with_its_crd() {
    let mut log = Log::with(always());
    let name = "widgets.soak.dev";
    log.write(
        "create",
        "alice",
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        json!({"metadata": {"name": name}}),
    );
    log.write(
        "create",
        "alice",
        "soak.dev",
        "widgets",
        json!({"metadata": {"name": "w", "namespace": "room-0"}}),
    );
    log.wait(10);
    log.remove("alice", "apiextensions.k8s.io", "customresourcedefinitions", name);
    let referee = Referee::read(log.lines.join("\n").as_bytes()).unwrap();
    assert!(referee.history.lives["w"].gone.is_some());
}

#[test]
fn a_dry_run_and_a_refusal_change_nothing() {
    let mut log = Log::with(always());
    log.config("create", "alice", json!({}));
    log.wait(10);
    let gone = json!({"kind": "Status", "details": {"uid": "settings"}});
    log.line("delete", "alice", "", "configmaps", 403, &gone);
    log.line("delete", "alice", "", "configmaps", 200, &gone);
    let last = log.lines.pop().unwrap().replace("/x/configmaps", "/x/configmaps?dryRun=All");
    log.lines.push(last);
    assert_eq!(log.found(&["settings"]), [""; 0]);
    assert_eq!(log.judge(&["settings"]).refused.values().sum::<usize>(), 1);
}

#[test]
fn watches_are_open_from_their_beginning_to_their_end() {
    let mut referee = Referee::default();
    let mut watch = |id: &str, stage: &str| {
        let line = json!({"auditID": id, "stage": stage, "verb": "watch",
            "requestURI": "/api/v1/pods?watch=true", "user": {"username": BELAY},
            "objectRef": {"resource": "pods"}, "responseStatus": {"code": 200},
            "requestReceivedTimestamp": stamp(1), "stageTimestamp": stamp(2)});
        referee.take(&Event::parse(&line.to_string()).unwrap());
        referee.watches.open().into_values().sum::<usize>()
    };
    assert_eq!(watch("a", "ResponseStarted"), 1);
    assert_eq!(watch("b", "ResponseStarted"), 2);
    assert_eq!(watch("a", "ResponseComplete"), 1);
}
