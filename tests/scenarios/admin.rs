//! Administration of an installation: CRDs are updated and deleted, the self-test runs, the
//! installation is deleted with its Namespace, and one invalid policy does not stop its
//! writes.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::kubectl::{Output, run};
use crate::harness::manifest::{Manifest as _, config_map};
use crate::harness::rbac::rule;
use crate::harness::{ControlPlane, Install, Options, Shared, eventually, lock};
use crate::{World, policy, program};

const SOON: Duration = Duration::from_secs(60);
const HELD: &str = r#"["belay.dev/hold"]"#;

/// A control plane for these tests, one caller at a time: its belay adds three holds late,
/// its CRDs are changed, and a webhook configuration is deleted.
fn world() -> Arc<Mutex<World>> {
    static WORLD: Shared<Mutex<World>> = Shared::new();
    WORLD.get(|| {
        let plane = ControlPlane::start_with(&Options::default())?;
        let serve = vec!["--backfill-max-objects=3".to_owned()];
        let belay = Install { serve, ..Install::of_everything(1) }.on(&plane, program())?;
        Ok(Mutex::new(World { plane, belay }))
    })
}

/// Runs `belay admin …` as the user of a kubeconfig.
fn admin(kubeconfig: &Path, arguments: &[&str]) -> Output {
    run(program(), kubeconfig, &[&["admin"], arguments].concat(), None).unwrap()
}

fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> String {
    plane.kubectl(arguments).unwrap().success().unwrap()
}

/// A service account in namespace belay with these rules: in one namespace, or (`None`) in
/// the whole cluster.
fn account(
    plane: &ControlPlane,
    name: &str,
    namespace: Option<&str>,
    rules: &[Value],
) -> std::path::PathBuf {
    kubectl(plane, &["create", "serviceaccount", name, "-n", "belay"]);
    let account = json!({"kind": "ServiceAccount", "name": name, "namespace": "belay"});
    plane.grant(name, namespace, rules, &[account]).unwrap();
    plane.account("belay", name).unwrap()
}

#[test]
fn the_selftest_passes_with_few_rights_and_reports_errors() {
    let world = world();
    let world = lock(&world);
    let plane = &world.plane;
    // The rights that `--help` names.
    let rights = [rule("", "configmaps", "create"), rule("", "events", "create, delete")];
    let tester = account(plane, "tester", Some("default"), &rights);
    let passed = admin(&tester, &["selftest", "--namespace=default"]);
    assert!(passed.ok(), "{passed:?}");
    let lines: Vec<&str> = passed.stdout.lines().collect();
    assert!(lines[0].starts_with("1 of 3  the hold is added     ok after"), "{lines:?}");
    assert!(lines[1].starts_with("2 of 3  a DELETE is refused   ok after"), "{lines:?}");
    assert!(lines[1].contains("delete.belay.dev\" denied the request: event "), "{lines:?}");
    assert!(lines[2].starts_with("3 of 3  cleanup               only Event"), "{lines:?}");
    // Only an Event is stored.
    let [maps, events] = ["configmaps", "events"].map(|kind| {
        let mut names = plane.api().fields(kind, "default", "", ".metadata.name").unwrap();
        names.retain(|name| name.contains("selftest"));
        names
    });
    assert_eq!((maps.len(), events.len()), (0, 1), "{maps:?} {events:?}");
    assert!(events[0].starts_with("belay-selftest-"), "{events:?}");

    // Without the rights, where belay is not called, and without an installation.
    let stranger = account(plane, "stranger", Some("default"), &[]);
    let refused = admin(&stranger, &["selftest", "--namespace=default"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("bind the RBAC verbs create on configmaps"), "{refused:?}");
    let own = admin(plane.kubeconfig(), &["selftest", "--namespace=belay", "--timeout=2"]);
    assert_eq!(own.code, 1, "{own:?}");
    assert!(own.stdout.starts_with("1 of 3  the hold is added     FAILED"), "{own:?}");
    assert!(own.stderr.contains("the namespace is not belay's own"), "{own:?}");
    let nowhere = admin(plane.kubeconfig(), &["selftest", "--namespace=nowhere"]);
    assert_eq!(nowhere.code, 1, "{nowhere:?}");
    assert!(nowhere.stderr.contains("namespaces \"nowhere\" not found"), "{nowhere:?}");

    // Another check that answers for belay, and an API server that does not ask
    // it: neither leaves anything behind.
    let entry = "validatingwebhookconfiguration/belay";
    let aside = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n\
         metadata: {name: aside}\nspec:\n  matchConstraints: {resourceRules: [{apiGroups: [''], \
         apiVersions: ['*'], operations: [DELETE], resources: [events]}]}\n  validations: \
         [{expression: 'false', message: not today}]\n---\napiVersion: \
         admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: \
         aside}\nspec: {policyName: aside, validationActions: [Deny]}\n";
    plane.apply(aside).unwrap();
    let other = eventually("the other check", SOON, || {
        let other = admin(plane.kubeconfig(), &["selftest", "--namespace=default"]);
        if other.code == 1 { Ok(other) } else { Err(format!("{other:?}").into()) }
    })
    .unwrap();
    assert!(other.stderr.contains("belay did not deny it: "), "{other:?}");
    kubectl(plane, &["delete", "validatingadmissionpolicybinding/aside"]);
    kubectl(plane, &["delete", "validatingadmissionpolicy/aside"]);
    let mut again = plane.api().get(entry, "").unwrap().unwrap();
    kubectl(plane, &["delete", entry]);
    let unasked = eventually("an API server that does not ask", SOON, || {
        let args = ["selftest", "--namespace=default", "--timeout=5s"];
        let unasked = admin(plane.kubeconfig(), &args);
        // The other check still refuses for a moment after it was deleted.
        let is_said = unasked.code == 1 && !unasked.stderr.contains("not today");
        if is_said { Ok(unasked) } else { Err(format!("{unasked:?}").into()) }
    })
    .unwrap();
    assert!(unasked.stdout.contains("2 of 3  a DELETE is refused   FAILED"), "{unasked:?}");
    assert!(unasked.stdout.ends_with("no objects remain\n"), "{unasked:?}");
    assert!(unasked.stderr.contains("after 5 s: it was allowed"), "{unasked:?}");
    again["metadata"] = json!({"name": "belay"});
    plane.apply(&again).unwrap();
}

#[test]
fn the_kinds_are_brought_up_to_date_and_stored_versions_stay() {
    let world = world();
    let world = lock(&world);
    let plane = &world.plane;
    // The rights that `--help` names.
    let verbs = "get, create, update";
    let rights = [rule("apiextensions.k8s.io", "customresourcedefinitions", verbs)];
    let keeper = account(plane, "keeper", None, &rights);
    let apply = || admin(&keeper, &["crds", "--apply"]);
    let all = |says: &str| {
        ["deletionpolicies", "relations", "deletionapprovals", "pauses"]
            .map(|name| format!("customresourcedefinition {name}.belay.dev {says}\n"))
            .concat()
    };
    // kubectl applied them, and they equal those of this belay.
    assert_eq!(apply().success().unwrap(), all("unchanged"));

    // An older belay had another schema, and Helm's word stays.
    let crd = "customresourcedefinition/relations.belay.dev";
    let annotations = json!({"helm.sh/resource-policy": "keep"});
    plane.patch(crd, "", &json!({"metadata": {"annotations": annotations}}));
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/old";
    plane.patch(crd, "", &json!([{"op": "add", "path": path, "value": {"type": "string"}}]));
    let changed = all("unchanged")
        .replace("relations.belay.dev unchanged", "relations.belay.dev brought up to date");
    assert_eq!(apply().success().unwrap(), changed);
    assert_eq!(apply().success().unwrap(), all("unchanged"));
    let stands = plane.api().get(crd, "").unwrap().unwrap();
    assert_eq!(stands["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    assert!(!stands["spec"].to_string().contains("\"old\""));

    // A later belay has stored objects in a version that this one does not have.
    let crd = "customresourcedefinition/pauses.belay.dev";
    let mut later = plane.api().get(crd, "").unwrap().unwrap();
    let mut version = later["spec"]["versions"][0].clone();
    version["name"] = "v2".into();
    later["spec"]["versions"][0]["storage"] = false.into();
    later["spec"]["versions"].as_array_mut().unwrap().push(version);
    plane.apply_to(&["replace", "-f", "-"], &later).unwrap().success().unwrap();
    let is_stored = |versions: &str| versions.contains("v2");
    plane.api().wait_field((crd, ""), SOON, ".status.storedVersions", is_stored).unwrap();
    let refused = apply();
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
    assert!(refused.stderr.contains("objects stored in version v2"), "{refused:?}");
    // Stored again in the version that it names.
    let mut back = later["spec"]["versions"].clone();
    back[0]["storage"] = true.into();
    back[1]["storage"] = false.into();
    plane.patch(crd, "", &json!({"spec": {"versions": back}}));
    let stored = json!({"status": {"storedVersions": ["v1alpha1"]}});
    plane.patch(&format!("{crd}/status"), "", &stored);
    let changed = all("unchanged")
        .replace("pauses.belay.dev unchanged", "pauses.belay.dev brought up to date");
    assert_eq!(apply().success().unwrap(), changed);

    let no_rights = account(plane, "nobody", None, &[]);
    let refused = admin(&no_rights, &["crds", "--apply"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains(" is forbidden: User "), "{refused:?}");
}

#[test]
fn a_backfill_that_is_too_large_needs_confirmation() {
    let world = world();
    let world = lock(&world);
    let plane = &world.plane;
    let ns = plane.namespace("wide").unwrap();
    let create = |name: &str| kubectl(plane, &["create", "configmap", name, "-n", &ns]);
    for name in ["a", "b", "c", "d"] {
        create(name);
    }
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    let holding = |says: &str| {
        let paths = ".status.conditions[?(@.type==\"Holding\")].reason \
                     .status.conditions[?(@.type==\"Holding\")].message";
        let policy = format!("deletionpolicy/{ns}");
        let is_met = |said: &str| said.starts_with(says);
        plane.api().wait_field((&policy, ""), SOON, paths, is_met).unwrap()
    };
    let finalizers = || {
        let paths = ".metadata.name .metadata.finalizers";
        let mut all = plane.api().fields("configmaps", &ns, "", paths).unwrap();
        all.retain(|one| !one.starts_with("kube-root-ca"));
        all.iter().map(|one| one.replace(' ', "")).collect::<Vec<_>>()
    };
    let said = holding("TooManyObjects");
    let way = format!(
        "kubectl annotate --overwrite deletionpolicy {ns} belay.dev/backfill-max-objects=4"
    );
    assert!(said.contains("4 configmaps lack it, more than the limit of 3"), "{said}");
    assert!(said.ends_with(&way), "{said}");
    assert_eq!(finalizers(), ["a", "b", "c", "d"]);
    let stopped = "belay_backfills_stopped ";
    eventually("the metric", SOON, || match world.belay.metric(stopped) {
        count if count >= 1.0 => Ok(()),
        count => Err(format!("{count}").into()),
    })
    .unwrap();
    // They are protected as well, and new objects are held.
    let refused = plane.kubectl(&["delete", "configmap", "a", "-n", &ns]).unwrap();
    assert!(refused.failure().unwrap().contains(&format!("policy {ns}")));
    create("new");
    let new = format!("new{HELD}");
    assert_eq!(finalizers(), ["a", "b", "c", "d", &new]);

    // The printed command works.
    kubectl(plane, &way.split(' ').skip(1).collect::<Vec<_>>());
    holding("InPlace 5 of 5");
    let held = ["a", "b", "c", "d", "new"].map(|name| format!("{name}{HELD}"));
    assert_eq!(finalizers(), held);
    kubectl(plane, &["delete", "deletionpolicy", &ns]);
}

/// A reference to an owner with the name belay.
fn owner(api_version: &str, kind: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": "belay", "uid": uid})
}

#[test]
fn the_configurations_belong_to_the_namespace_and_stay_so() {
    let world = world();
    let world = lock(&world);
    let plane = &world.plane;
    let uid = |object: &str| plane.api().field(object, "", ".metadata.uid").unwrap();
    let ours = owner("v1", "Namespace", &uid("namespace/belay"));
    for kind in ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"] {
        let object = format!("{kind}/belay");
        let owners = |wanted: &[&Value]| {
            let (object, wanted) = ((&*object, ""), json!(wanted).to_string());
            let is_met = |said: &str| said == wanted;
            plane.api().wait_field(object, SOON, ".metadata.ownerReferences", is_met).unwrap();
        };
        owners(&[&ours]);
        // Two users change the owner references, and one has no right to do it.
        let patch = |owners: Value| {
            plane.patch(&object, "", &json!({"metadata": {"ownerReferences": owners}}));
        };
        patch(Value::Null);
        owners(&[&ours]);
        let group = "rbac.authorization.k8s.io/v1";
        let other = owner(group, "ClusterRole", &uid("clusterrole/belay"));
        patch(json!([other]));
        owners(&[&other, &ours]);
    }
}

/// A separate control plane, which is left without belay.
#[test]
fn an_installation_whose_namespace_is_deleted_leaves_no_webhook_behind() {
    let plane = ControlPlane::start_with(&Options::default()).unwrap();
    // Its rights are deleted with the Namespace, and it may run a moment longer.
    let install = Install { may_be_forbidden: true, ..Install::of_everything(1) };
    let mut belay = install.on(&plane, program()).unwrap();
    let ns = plane.namespace("left").unwrap();
    policy::protect(&plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(&plane, &["create", "configmap", "kept", "-n", &ns]);
    let delete = ["delete", "configmap", "kept", "-n", &ns, "--dry-run=server"];
    let refused = || plane.kubectl(&delete).unwrap().failure();
    assert!(refused().unwrap().contains(&format!("policy {ns}")));
    let owned = |kind: &str| {
        let object = format!("{kind}/belay");
        plane.api().field(&object, "", ".metadata.ownerReferences[*].kind").unwrap() == "Namespace"
    };
    let kinds = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];
    assert!(kinds.iter().all(|kind| owned(kind)));

    // Its CRDs can't be deleted while it runs.
    let live = admin(plane.kubeconfig(), &["crds", "--delete"]).failure().unwrap();
    assert!(live.contains("belay/belay is installed") && live.contains("nothing was deleted"));

    // A finalizer keeps the Namespace for a while, and its Pods are deleted meanwhile.
    let lasts = config_map("lasts").with_namespace("belay").with_finalizers(&["x.dev/y"]);
    plane.apply(&lasts).unwrap();
    kubectl(&plane, &["delete", "namespace", "belay", "--wait=false"]);
    belay.replicas[0].process.kill();
    let answer = eventually("a refusal without belay", SOON, || {
        let said = refused()?;
        if said.contains("failed calling webhook") { Ok(said) } else { Err(said.into()) }
    })
    .unwrap();
    assert!(answer.contains("delete.belay.dev"), "{answer}");
    let phase = plane.api().field("namespace/belay", "", ".status.phase").unwrap();
    assert_eq!(phase, "Terminating");

    plane.patch("configmap/lasts", "belay", &json!({"metadata": {"finalizers": null}}));
    for kind in kinds {
        plane.api().wait_gone((&format!("{kind}/belay"), ""), SOON).unwrap();
    }
    let status = run(program(), plane.kubeconfig(), &["status"], None).unwrap();
    let policy = status.stdout.lines().find(|line| line.starts_with(&ns)).unwrap();
    assert!(status.code == 1 && policy.contains(" NO "), "{status:?}");

    // Users are no longer refused.
    eventually("an end of the refusals", SOON, || plane.kubectl(&delete)?.success()).unwrap();

    // Its CRDs remain. The command deletes them on request.
    let crds = rule("apiextensions.k8s.io", "customresourcedefinitions", "get, delete");
    let rights = [crds, rule("belay.dev", "*", "list")];
    plane.create_namespace("belay").unwrap();
    // A user who can't see whether a belay runs deletes nothing that it needs.
    let blind = account(&plane, "blind", None, &rights);
    let refused = admin(&blind, &["crds", "--delete"]).failure().unwrap();
    assert!(
        refused
            .contains("nothing was deleted\nhint: have an administrator bind the RBAC verb list"),
        "{refused}"
    );
    let configurations = "mutatingwebhookconfigurations, validatingwebhookconfigurations";
    let webhooks = rule("admissionregistration.k8s.io", configurations, "list");
    let remover = account(&plane, "remover", None, &[&rights[..], &[webhooks]].concat());
    let gone = admin(&remover, &["crds", "--delete"]).success().unwrap();
    let gone: Vec<&str> = gone.lines().collect();
    let first = "customresourcedefinition deletionpolicies.belay.dev deleted, and 1 object with it";
    assert_eq!((gone.len(), gone[0]), (4, first), "{gone:?}");
    assert!(gone[1].ends_with("relations.belay.dev deleted; it had no objects"), "{gone:?}");
    let again = admin(&remover, &["crds", "--delete"]).success().unwrap();
    assert_eq!(again.lines().filter(|line| line.ends_with("did not exist")).count(), 4, "{again}");
    // The next belay re-creates them.
    let made = admin(plane.kubeconfig(), &["crds", "--apply"]).success().unwrap();
    assert_eq!(made.lines().filter(|line| line.ends_with(" created")).count(), 4, "{made}");
}
