mod controller;
mod namespace;
mod webhooks;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::cluster::UnreadKind;
use crate::cluster::terminating::{
    BrokenApi, ClaimUser, DeadConversion, Dependent, Evidence, ObjectEvent, ServiceProblem, Survey,
    TerminatingObject, Webhook, WebhookAddress, Workload,
};
use crate::decide::{Blocker, Cause as DecidedCause, Decision, ObjectName, Reason, Verdict};
use crate::objects::{ApiError, KindInfo, Kinds, ObjectRef};
use crate::policy::PolicySource;

fn info(group: &str, resource: &str, namespaced: bool) -> KindInfo {
    Kinds::custom(group, "v1", "Any", resource, namespaced)
}

/// An object that is Terminating since 100 seconds after 1970.
fn found(info: KindInfo, mut object: Value) -> TerminatingObject {
    object["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:01:40Z");
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    TerminatingObject {
        object_ref: ObjectRef::of_kind(&info, namespace, name),
        uid: text("/metadata/uid").to_owned(),
        since: Timestamp::from_second(100).unwrap(),
        info,
        object,
        unread: None,
    }
}

/// A ConfigMap with one finalizer of this manager.
fn settings(finalizer: &str, manager: &str) -> TerminatingObject {
    let object = json!({"metadata": {"name": "settings", "namespace": "shop", "uid": "u-1",
        "finalizers": [finalizer], "managedFields": [{"manager": manager, "fieldsV1":
            {"f:metadata": {"f:finalizers": {".": {}, format!("v:\"{finalizer}\""): {}}}}}]}});
    found(info("", "configmaps", true), object)
}

fn namespace(conditions: &[(&str, &str)]) -> TerminatingObject {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, says)| json!({"type": kind, "status": "True", "message": says}))
        .chain([json!({"type": "NamespaceDeletionDiscoveryFailure", "status": "False",
            "message": "All resources successfully discovered"})])
        .collect();
    let object = json!({"metadata": {"name": "shop", "uid": "u-ns"},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"conditions": conditions}});
    found(info("", "namespaces", false), object)
}

fn workload(name: &str, image: &str, ready: i64) -> Workload {
    Workload {
        kind: "deploy",
        namespace: "operators".to_owned(),
        name: name.to_owned(),
        images: vec![image.to_owned()],
        ready,
    }
}

fn evidence(workloads: &[Workload]) -> Evidence {
    let groups = ["", "apps", "db.example.com"].map(str::to_owned);
    Evidence { groups: groups.into(), workloads: workloads.to_vec(), ..Evidence::default() }
}

/// A Service that does not exist.
fn missing_service(why: &str) -> ServiceProblem {
    ServiceProblem { missing: true, why: why.to_owned() }
}

/// The causes of an object without a known hold, long after its DELETE.
fn all_causes(found: &TerminatingObject, survey: &Survey, evidence: &Evidence) -> Vec<Finding> {
    find_causes(found, survey, evidence, &Hold::default(), Timestamp::MAX)
}

/// The only cause of an object.
fn of(found: &TerminatingObject, evidence: &Evidence) -> Finding {
    let mut all = all_causes(found, &Survey::default(), evidence);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// All texts of a finding.
fn words(finding: &Finding) -> String {
    format!("{}; {}; {}", finding.message, finding.evidence.join("; "), finding.next)
}

#[test]
fn a_controller_is_missing_when_no_workload_has_its_name() {
    let stuck = settings("db.example.com/drop", "db-operator");
    let removed =
        |workloads: &[Workload]| Evidence { groups: [String::new()].into(), ..evidence(workloads) };
    let gone = of(&stuck, &removed(&[workload("web", "nginx", 1)]));
    assert_eq!(gone.cause, Cause::ControllerGone);
    assert_eq!(gone.finalizer.as_deref(), Some("db.example.com/drop"));
    let says = words(&gone);
    assert!(says.contains("was added by db-operator. Its controller was not found; "), "{says}");
    assert!(says.contains("is called db-operator or runs an image of that name"), "{says}");
    assert!(says.contains("the API server serves no API group of example.com"), "{says}");
    let command = "if the controller no longer exists and you have cleaned up its resources: \
                   kubectl patch configmaps/settings -n shop --type=json -p ";
    assert!(gone.next.starts_with(command), "{says}");

    // Editors can change the name of the manager.
    let served = of(&stuck, &evidence(&[]));
    assert_eq!(served.cause, Cause::Unknown, "{served:?}");
    assert!(words(&served).contains("still served: db.example.com"), "{served:?}");
    let steps: Vec<&str> = served.next.lines().collect();
    assert_eq!(steps[0], "find the controller of db.example.com/drop (search its documentation)");
    assert!(steps[1].starts_with(command) && steps.len() == 2, "{served:?}");
    let of_domain = of(&stuck, &evidence(&[workload("example-operator", "x", 1)]));
    assert_eq!(of_domain.cause, Cause::Controller, "{of_domain:?}");

    // belay refuses the patch if a policy guards the finalizer.
    let guarded = [(stuck.uid.clone(), vec!["db.example.com/drop".to_owned()])].into();
    let guarded = of(&stuck, &Evidence { guarded, ..evidence(&[]) });
    let command = "resources: kubectl belay approve configmaps/settings -n shop --reason \"…\", and \
                   then: kubectl patch configmaps/settings -n shop --type=json -p ";
    assert!(guarded.next.contains(command), "{guarded:?}");

    // By its name, as a part of its name, or by its image.
    for one in [
        workload("db-operator", "x", 1),
        workload("my-db-operator", "x", 1),
        workload("db-operator-controller-manager", "x", 1),
        workload("databases", "db-operator", 1),
    ] {
        let name = one.name.clone();
        let there = of(&stuck, &evidence(&[one]));
        assert_eq!(there.cause, Cause::Controller, "{name}");
        assert!(
            there.message.ends_with(&format!(
                "was added by db-operator. Likely controller: Deployment operators/{name}, 1 ready \
                 Pod"
            )),
            "{there:?}"
        );
        let next = "if that workload is the controller: kubectl logs deploy/";
        assert_eq!(there.next, format!("{next}{name} -n operators"));
    }
    let down = of(&stuck, &evidence(&[workload("db-operator", "x", 0)]));
    assert_eq!(down.cause, Cause::ControllerDown);
    let only = "this is a guess from names and images of workloads; their creators can \
                choose any name and image";
    assert!(down.message.ends_with("Deployment operators/db-operator, 0 ready Pods"), "{down:?}");
    assert_eq!(down.evidence, [only]);
    // A user who may not read the workloads sees no conclusion from them.
    let unread = Evidence { more_workloads: true, ..evidence(&[]) };
    let unread = of(&stuck, &unread);
    assert_eq!((unread.cause, unread.next.contains("kubectl patch")), (Cause::Unknown, false));
}

#[test]
fn a_finalizer_added_with_a_tool_is_explained_by_the_kinds_of_its_domain() {
    let gone = of(&settings("gone.example.test/drop", "kubectl-create"), &evidence(&[]));
    assert_eq!(gone.cause, Cause::ControllerGone);
    let says = words(&gone);
    assert!(
        says.contains(
            "a user added it with kubectl-create, so managedFields don't show its controller"
        ),
        "{says}"
    );
    assert!(says.contains("the API server serves no API group of example.test"), "{says}");
    // The API server writes this for a client without a name.
    let unnamed = words(&of(&settings("gone.example.test/drop", "unknown"), &evidence(&[])));
    assert!(unnamed.contains("managedFields do not contain the client that added it"), "{unnamed}");
    assert!(!unnamed.contains("unknown"), "{unnamed}");
    // Only a dump can be created again.
    let mut bare = settings("gone.example.test/drop", "x");
    bare.object["metadata"].as_object_mut().unwrap().remove("managedFields");
    let says = |of_files| words(&of(&bare, &Evidence { of_files, ..evidence(&[]) }));
    assert!(says(true).contains("create the dump with --show-managed-fields"), "{}", says(true));
    assert!(!says(false).contains("dump"), "{}", says(false));
    // Another group of the same domain is served.
    let served = of(&settings("finalizers.example.com/drop", "kubectl-create"), &evidence(&[]));
    assert_eq!(served.cause, Cause::Unknown, "{served:?}");
    // A workload whose name contains the domain runs.
    let runs = evidence(&[workload("example-agent", "x", 1)]);
    assert_eq!(of(&settings("gone.example.test/drop", "kubectl"), &runs).cause, Cause::Controller);
    // A group whose server does not answer still exists.
    let stale =
        Evidence { unavailable_groups: ["x.example.test".to_owned()].into(), ..evidence(&[]) };
    let stale = of(&settings("gone.example.test/drop", "kubectl"), &stale);
    assert_eq!(stale.cause, Cause::Unknown);
    assert!(words(&stale).contains("the API of example.test does not answer"), "{stale:?}");
    // A word of no domain, and the domain of Kubernetes itself.
    for name in ["legacy", "external.k8s.io/x"] {
        assert_eq!(of(&settings(name, "manager"), &evidence(&[])).cause, Cause::Unknown, "{name}");
    }
    let system = of(&settings("x.dev/y", "kube-controller-manager"), &evidence(&[]));
    assert_eq!(system.cause, Cause::Controller);
}

#[test]
fn the_hold_of_belay_is_reported_with_its_users() {
    let stuck = settings("belay.dev/hold", "belay");
    let of = |state: Option<HoldState>, is_left_out, (installed, no_leader)| {
        let hold = Hold { state, is_left_out, installed, no_leader };
        let mut all =
            find_causes(&stuck, &Survey::default(), &Evidence::default(), &hold, Timestamp::MAX);
        assert_eq!((all.len(), all[0].cause), (1, Cause::HeldByBelay));
        words(&all.remove(0))
    };
    let waits = |free, says: &[&str]| HoldState {
        free,
        released_by_belay: true,
        known: true,
        reasons: says.iter().map(|says| (*says).to_owned()).collect(),
        step: None,
        unreleased: None,
        needs_no_approval: true,
    };
    let counted = |state| of(Some(state), false, (true, false));
    assert_eq!(
        counted(waits(false, &["Deployment shop/web", "Pod shop/x"])),
        "belay keeps the hold because the object is in use by: Deployment shop/web, Pod \
         shop/x; ; kubectl belay why configmaps/settings -n shop"
    );
    let forbidden = Some(Unreleased::forbidden("", "configmaps"));
    let forbidden = waits(true, &["nothing needs it"]).with_unreleased(forbidden);
    let unreleased = counted(forbidden.clone());
    assert_eq!(
        unreleased,
        "belay holds it: nothing needs it; belay may not watch and patch configmaps, so it \
         releases no hold on them; ; have an administrator add configmaps to the chart value \
         rbac.watchAlso (docs/guides/profiles.md) until belay has \
         removed the holds; to release only this object: kubectl belay release \
         configmaps/settings -n shop --force=settings"
    );
    // Without a leader, the command runs the release itself.
    let unled = of(Some(forbidden), false, (true, true));
    assert!(unled.ends_with("kubectl belay release configmaps/settings -n shop"), "{unled}");
    let free = of(Some(waits(true, &["nothing needs it"])), false, (true, true));
    assert!(free.starts_with("belay holds it, and can release it: nothing needs it; "), "{free}");
    assert!(free.contains("belay has no leader"), "{free}");
    assert!(free.ends_with("kubectl belay release configmaps/settings -n shop"), "{free}");
    let unknown = of(None, false, (true, false));
    assert!(unknown.contains("the objects that use it are unknown"), "{unknown}");
    let unsure = HoldState { known: false, ..waits(false, &["Pods may need it: you may not"]) };
    let unsure = counted(unsure);
    let says = "belay holds it, and it is unknown whether an object needs it: Pods may need it: \
                you may not; ";
    assert!(unsure.starts_with(says), "{unsure}");
    let many = of(None, true, (true, false));
    assert!(
        many.starts_with("belay holds it; use --all to list the objects that use it; "),
        "{many}"
    );
    let left = of(None, false, (false, false));
    assert!(left.contains("belay is not installed, so nothing removes its hold"), "{left}");
    assert!(left.contains("kubectl belay admin uninstall --dry-run; without --dry-run"), "{left}");
}

fn dependent(name: &str, terminating: bool) -> Dependent {
    Dependent {
        object_ref: ObjectRef::new(("", "pods"), "shop", name).with_kind("Pod"),
        uid: format!("u-{name}"),
        terminating,
        blocks_owner: true,
    }
}

#[test]
fn foreground_waits_for_children_and_reports_who_refused_their_deletion() {
    let stuck = settings("foregroundDeletion", "kube-apiserver");
    let children = vec![dependent("web-0", true), dependent("web-1", false)];
    let mut survey = Survey::default();
    survey.dependents.insert("u-1".to_owned(), children);
    let all = all_causes(&stuck, &survey, &evidence(&[]));
    let [waits] = &all[..] else { panic!("{all:?}") };
    assert_eq!(waits.cause, Cause::Foreground);
    assert!(
        waits.message.ends_with("waits for the deletion of Pod shop/web-0 and 1 more dependent"),
        "{}",
        waits.message
    );
    assert_eq!(
        waits.evidence,
        ["Pod shop/web-0 is Terminating as well", "Pod shop/web-1 is not Terminating"]
    );
    let asks =
        "to see who refuses its deletion: kubectl delete pods/web-1 -n shop --dry-run=server";
    assert_eq!(waits.next, asks);
    let mut evidence = evidence(&[]);
    let event = |by: &str, message: &str| ObjectEvent {
        by: by.to_owned(),
        reason: "InUse".to_owned(),
        message: message.to_owned(),
    };
    evidence.events.insert("u-web-1".to_owned(), vec![event("belay", "it is in use")]);
    evidence.events.insert("u-web-0".to_owned(), vec![event("kubelet", "Killing")]);
    let all = all_causes(&stuck, &survey, &evidence);
    assert_eq!((all.len(), all[0].cause), (2, Cause::Refused), "{all:?}");
    let refused = "it waits for its dependent Pod shop/web-1, whose deletion was refused";
    assert_eq!(all[0].message, refused);
    assert_eq!(all[0].evidence, ["Event InUse by belay: it is in use"]);
    assert_eq!(all[0].next, "kubectl belay why pods/web-1 -n shop");
    // The other finding has the same step, which a report shows once.
    assert_eq!(all[1].next, all[0].next);

    // A kind that could not be read may have the child.
    let survey = Survey {
        unread: vec![UnreadKind {
            resource: "secrets".to_owned(),
            why: ApiError::Forbidden("forbidden".to_owned()),
        }],
        ..Survey::default()
    };
    let blind = all_causes(&stuck, &survey, &Evidence::default());
    assert!(blind[0].evidence[0].starts_with("secrets could not be read"), "{blind:?}");
}

#[test]
fn an_owner_waits_for_references_that_belay_keeps() {
    let stuck = settings("orphan", "kube-apiserver");
    let denial = |name: &str| {
        let claim = ObjectRef::new(("", "persistentvolumeclaims"), "shop", name)
            .with_kind("PersistentVolumeClaim");
        let owner = ObjectName { object: stuck.object_ref.clone(), kind: "ConfigMap".to_owned() };
        let blocker = Blocker {
            causes: vec![DecidedCause::Owner(owner)],
            policies: vec![PolicySource::Policy("orphans".into())],
            ..Blocker::new(Decision::Deny, Reason::WouldOrphan, claim.clone())
        };
        Verdict::from_blockers(claim, vec![blocker])
    };
    let mut evidence = evidence(&[]);
    let denials = vec![denial("data-0"), denial("data-1")];
    evidence.orphaning_denials.insert("u-1".to_owned(), denials);
    let all = all_causes(&stuck, &Survey::default(), &evidence);
    assert_eq!((all.len(), all[0].cause), (2, Cause::Refused), "{all:?}");
    assert_eq!(
        all[0].message,
        "belay denies the removal of the owner reference of PersistentVolumeClaim \
         shop/data-0 and 1 more dependent; policy orphans"
    );
    let steps = [
        "kubectl belay approve persistentvolumeclaims/data-0 -n shop --reason \"…\" and kubectl \
         belay approve persistentvolumeclaims/data-1 -n shop --reason \"…\"",
        "the garbage collector, which was refused, waits longer before each retry",
    ];
    assert_eq!(all[0].next.lines().collect::<Vec<_>>(), steps);
    assert!(all[0].evidence[0].contains("would lose its owner ConfigMap"), "{all:?}");
}

#[test]
fn h153_no_event_of_a_user_passes_for_one_of_belay() {
    let stuck = settings("db.example.com/drop", "db-operator");
    let mut evidence = evidence(&[]);
    let event = |by: &str, reason: &str| ObjectEvent {
        by: by.to_owned(),
        reason: reason.to_owned(),
        message: "admission webhook \"x\" denied the request: no".to_owned(),
    };
    let events = vec![event("belay\u{200b}", "Protected"), event("x", "Protected by belay: no.")];
    evidence.events.insert("u-1".to_owned(), events);
    let all = all_causes(&stuck, &Survey::default(), &evidence);
    let denied = "admission webhook \"x\" denied the request: no";
    let shown = [
        format!("Event Protected by \"belay \": {denied}"),
        format!("Event \"Protected by belay: no.\" by x: {denied}"),
    ];
    assert_eq!(all[0].evidence, shown);
}

#[test]
fn a_pod_waits_for_its_node() {
    let pod = json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u-p"},
        "spec": {"nodeName": "n1"}});
    let pod = found(info("", "pods", true), pod);
    let with = |nodes: Option<&[(&str, bool)]>| Evidence {
        nodes: nodes
            .map(|nodes| nodes.iter().map(|(n, ready)| ((*n).to_owned(), *ready)).collect()),
        ..Evidence::default()
    };
    let gone = of(&pod, &with(Some(&[("n2", true)])));
    assert_eq!((gone.cause, &gone.message[..]), (Cause::NodeGone, "its node n1 does not exist"));
    assert!(gone.next.ends_with("kubectl delete pods/web-0 -n shop --grace-period=0 --force"));
    let down = of(&pod, &with(Some(&[("n1", false)])));
    assert_eq!(down.cause, Cause::NodeGone);
    let slow = of(&pod, &with(Some(&[("n1", true)])));
    assert_eq!((slow.cause, slow.next.contains("--force")), (Cause::Controller, false));
    assert_eq!(of(&pod, &with(None)).cause, Cause::Unknown);
}

#[test]
fn a_pod_without_a_grace_period_waits_only_for_its_finalizers() {
    let is_kept_by_node = |grace: i64, ready: Option<bool>| {
        let pod = json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u-p",
            "finalizers": ["example.net/p"], "deletionGracePeriodSeconds": grace},
            "spec": {"nodeName": "n1"}});
        let nodes = ready.map(|ready| ("n1".to_owned(), ready)).into_iter().collect();
        let evidence = Evidence { nodes: Some(nodes), ..Evidence::default() };
        let all = all_causes(&found(info("", "pods", true), pod), &Survey::default(), &evidence);
        assert!(all.iter().any(|finding| finding.message.contains("example.net/p")), "{all:?}");
        all.iter().any(|finding| finding.cause == Cause::NodeGone)
    };
    assert_eq!([is_kept_by_node(30, None), is_kept_by_node(30, Some(false))], [true, true]);
    assert_eq!([is_kept_by_node(0, None), is_kept_by_node(0, Some(false))], [false, false]);
}

#[test]
fn a_volume_in_use_names_its_users() {
    let claim = json!({"metadata": {"name": "data", "namespace": "shop", "uid": "u-c",
        "finalizers": ["kubernetes.io/pvc-protection"]}});
    let claim = found(info("", "persistentvolumeclaims", true), claim);
    let mut evidence = Evidence::default();
    assert_eq!(of(&claim, &evidence).cause, Cause::Controller);
    let user = |pod: &str, controller: Option<&str>| ClaimUser {
        pod: pod.to_owned(),
        controller: controller.map(str::to_owned),
        has_ended: false,
        is_terminating: false,
    };
    let key = ("shop".to_owned(), "data".to_owned());
    evidence.users.insert(key.clone(), vec![user("web-0", None), user("web-1", None)]);
    let used = of(&claim, &evidence);
    assert_eq!((used.cause, &used.message[..]), (Cause::InUse, "Pod web-0 and 1 more Pod use it"));
    assert_eq!(used.next, "kubectl describe pods/web-0 -n shop");
    evidence.users.insert(key.clone(), vec![user("web-0", Some("StatefulSet web"))]);
    let used = of(&claim, &evidence);
    assert_eq!(used.message, "Pod web-0 of StatefulSet web uses it");
    assert_eq!(used.next, "kubectl describe pods/web-0 -n shop");
    let step = |used: &Finding| used.evidence.last().unwrap().clone();
    assert_eq!(step(&used), "to end the use, scale down or delete StatefulSet web");
    let mut ended = user("web-0", Some("Job web"));
    ended.has_ended = true;
    let of_job = Evidence { users: [(key.clone(), vec![ended])].into(), ..Evidence::default() };
    let used_by_job = of(&claim, &of_job);
    assert_eq!(used_by_job.message, "Pod web-0 of Job web, which has ended, uses it");
    assert_eq!(step(&used_by_job), "to end the use, delete Pod web-0");
    let mut ending = user("web-0", Some("StatefulSet web"));
    ending.is_terminating = true;
    let of_ending = Evidence { users: [(key.clone(), vec![ending])].into(), ..Evidence::default() };
    let mut used_by_ending = of(&claim, &of_ending);
    assert_eq!(
        used_by_ending.message,
        "Pod web-0 of StatefulSet web, which is Terminating, uses it"
    );
    assert_eq!(used_by_ending.next, "kubectl belay why pods/web-0 -n shop");
    assert_eq!(
        step(&used_by_ending),
        "to end the use, first find out what keeps Pod shop/web-0 Terminating: kubectl belay why \
         pods/web-0 -n shop"
    );
    // The step names another user.
    let mut all = of_ending;
    all.users.get_mut(&key).unwrap().push(user("web-1", None));
    used_by_ending = of(&claim, &all);
    assert_eq!(used_by_ending.message, "Pod web-1 and 1 more Pod use it");
    assert_eq!(step(&used_by_ending), "to end the use, delete Pod web-1");
    let mut bound = claim.clone();
    bound.object["spec"] = json!({"volumeName": "pv-1"});
    let loss = "; then the data of volume pv-1 is destroyed, unless its reclaimPolicy is Retain";
    assert!(step(&of(&bound, &evidence)).ends_with(loss));
    let mut held = claim.clone();
    held.object["metadata"]["finalizers"] =
        json!(["kubernetes.io/pvc-protection", "belay.dev/hold"]);
    let pods = all_causes(&held, &Survey::default(), &evidence);
    let used = pods.iter().find(|finding| finding.cause == Cause::InUse).unwrap();
    assert_eq!(step(used), "to end the use, delete StatefulSet web");
    let volume = |finalizer: &str, phase: &str| {
        let volume = json!({"metadata": {"name": "pv", "uid": "u-v",
            "finalizers": [finalizer]}, "status": {"phase": phase},
            "spec": {"claimRef": {"namespace": "shop", "name": "data"}}});
        found(info("", "persistentvolumes", false), volume)
    };
    for finalizer in ["kubernetes.io/pv-protection", "kubernetes.io/pv-controller"] {
        let bound = of(&volume(finalizer, "Bound"), &evidence);
        assert_eq!(
            (bound.cause, &bound.message[..]),
            (Cause::InUse, "the claim shop/data is bound to it")
        );
        assert_eq!(of(&volume(finalizer, "Released"), &evidence).cause, Cause::Controller);
        let mut deleted = volume(finalizer, "Bound");
        deleted.object["spec"]["persistentVolumeReclaimPolicy"] = "Delete".into();
        let lost = of(&deleted, &evidence).evidence;
        assert!(
            lost[1].starts_with("when the claim is deleted, the data is destroyed"),
            "{lost:?}"
        );
        assert!(lost[1].ends_with("set the volume's reclaim policy to Retain"), "{lost:?}");
        deleted.object["spec"]["persistentVolumeReclaimPolicy"] = "Retain".into();
        assert_eq!(of(&deleted, &evidence).evidence.len(), 1);
    }
}

#[test]
fn an_object_without_blockers_is_reported_as_such() {
    let bare = json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u"}});
    let finding = of(&found(info("", "configmaps", true), bare), &Evidence::default());
    assert_eq!((finding.cause, &finding.message[..]), (Cause::Unknown, "no finalizer keeps it"));
}
