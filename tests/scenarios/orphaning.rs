//! Every way of leaving a dependent without its owner.

use std::fmt::Display;
use std::time::Duration;

use serde_json::json;

use crate::deleting::wait_until_deleted;
use crate::harness::manifest::{Manifest as _, admission_policy, config_map};
use crate::harness::{ControlPlane, eventually};
use crate::people::{Person, field};
use crate::{policy, world};

/// Owners of several kinds, each with a ConfigMap whose owner is protected from orphaning.
/// No policy is about the owners.
struct Families<'w> {
    plane: &'w ControlPlane,
    ns: String,
}

impl<'w> Families<'w> {
    fn new(plane: &'w ControlPlane, prefix: &str) -> Self {
        Self { plane, ns: plane.namespace(prefix).unwrap() }
    }

    fn policy(&self) {
        let child = json!({"objectSelector": {"matchLabels": {"tier": "child"}}});
        let target = policy::target("", "configmaps", &self.ns).with(child);
        // The collector is no remover that the policy names.
        let guarded = json!({"removers": [{"kind": "User", "name": "somebody-else"}]});
        let protect = json!({"fromOrphaning": {}, "fromStripping": guarded});
        policy::apply(self.plane, &self.ns, json!({"targets": [target], "protect": protect}));
    }

    fn create(&self, manifest: &(impl Display + ?Sized)) {
        let args = ["create", "-n", &self.ns, "-f", "-"];
        self.plane.apply_to(&args, manifest).unwrap().success().unwrap();
    }

    /// An owner of kind ConfigMap with these finalizers, and its child.
    fn add(&self, name: &str, finalizers: &[&str], of_child: &[&str]) {
        self.create(&config_map(name).with_finalizers(finalizers));
        self.add_child("v1", "ConfigMap", name, of_child);
    }

    fn add_child(&self, version: &str, kind: &str, owner: &str, finalizers: &[&str]) {
        let uid = field(self.plane, &self.ns, &format!("{kind}/{owner}"), ".metadata.uid");
        let child = config_map(&format!("{owner}-child")).with_labels(json!({"tier": "child"}));
        let owner = json!({"apiVersion": version, "kind": kind, "name": owner, "uid": uid});
        self.create(&child.with_finalizers(finalizers).with_owner(owner));
    }

    fn owner_of(&self, child: &str) -> String {
        let path = ".metadata.ownerReferences[*].name";
        field(self.plane, &self.ns, &format!("configmap/{child}"), path)
    }

    /// Whose request about an object got this verdict, by the audit log.
    fn answered(&self, object: &str, verdict: &str) -> crate::harness::Result<Vec<String>> {
        let log = self.plane.audit_log()?;
        let events = log.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
        let answered = events.filter(|event| {
            let text = |path: &str| event.pointer(path).and_then(|t| t.as_str()).unwrap_or("");
            let annotations = event["annotations"].as_object();
            text("/objectRef/namespace") == self.ns
                && text("/objectRef/name") == object
                && annotations.into_iter().flatten().any(|(key, value)| {
                    key == "update.belay.dev/verdict" && value.as_str() == Some(verdict)
                })
        });
        Ok(answered.map(|e| e["user"]["username"].as_str().unwrap_or("").to_owned()).collect())
    }
}

#[test]
fn s09_every_shape_of_orphaning_is_denied_at_the_delete() {
    let plane = &world().plane;
    let families = Families::new(plane, "s09");
    let ns = families.ns.clone();
    let who = Person::editor(plane, &ns).kubeconfig;
    families.policy();
    families.add("option", &[], &[]);
    families.add("old-option", &[], &[]);
    families.add("by-update", &[], &[]);
    families.add("at-create", &["orphan"], &[]);
    families.add("terminating", &[], &["example.com/wait"]);
    families.create(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: job}\nspec: {suspend: true, template: \
         {spec: {restartPolicy: Never, containers: [{name: c, image: none}]}}}\n",
    );
    families.add_child("batch/v1", "Job", "job", &[]);
    families.create(
        "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: rc}\nspec: {replicas: 0, \
         selector: {app: rc}, template: {metadata: {labels: {app: rc}}, spec: {containers: \
         [{name: c, image: none}]}}}\n",
    );
    families.add_child("v1", "ReplicationController", "rc", &[]);
    let finalizer = r#"{"metadata":{"finalizers":["orphan"]}}"#;
    let add = ["patch", "configmap", "by-update", "-n", &ns, "--type=merge", "-p", finalizer];
    plane.kubectl_as(&who, &add).unwrap().success().unwrap();

    let of_core = |resource: &str| format!("/api/v1/namespaces/{ns}/{resource}");
    let old_option = of_core("configmaps/old-option?orphanDependents=true");
    let option = of_core("configmaps/option?propagationPolicy=Orphan");
    let (by_update, at_create) = (of_core("configmaps/by-update"), of_core("configmaps/at-create"));
    let (job, rc) =
        (format!("/apis/batch/v1/namespaces/{ns}/jobs/job"), of_core("replicationcontrollers/rc"));
    let kubectl = ["configmap", "option", "-n", &ns, "--cascade=orphan"];
    let shapes: [(&str, &str, &[&str]); 7] = [
        ("ConfigMap", "configmaps/option", &kubectl),
        ("ConfigMap", "configmaps/option", &["--raw", &option]),
        ("ConfigMap", "configmaps/old-option", &["--raw", &old_option]),
        ("ConfigMap", "configmaps/by-update", &["--raw", &by_update]),
        ("ConfigMap", "configmaps/at-create", &["--raw", &at_create]),
        ("Job", "jobs.batch/job", &["--raw", &job]),
        ("ReplicationController", "replicationcontrollers/rc", &["--raw", &rc]),
    ];
    // Requests about the owners' kinds are sent to belay after it has seen them.
    eventually("the kinds of the owners asked about", Duration::from_secs(30), || {
        for kind in ["job/job", "rc/rc", "configmap/option"] {
            let args = ["delete", kind, "-n", &ns, "--cascade=orphan", "--dry-run=server"];
            plane.kubectl(&args)?.failure()?;
        }
        Ok(())
    })
    .unwrap();
    let words = |kind: &str, object: &str| {
        let (resource, name) = object.split_once('/').unwrap();
        let group = resource.find('.').map_or("", |dot| &resource[dot..]);
        let target = format!("{}{group} \"{name}\"", kind.to_lowercase());
        format!(
            "denied the request: configmap \"{name}-child\" would lose its owner {kind} \
             {ns}/{name}; policy {ns}. To delete {target}, use --cascade=background. To override: \
             kubectl belay approve {object} -n {ns} "
        )
    };
    for (kind, object, args) in shapes {
        let denied = plane.kubectl_as(&who, &[&["delete"], args].concat()).unwrap();
        let denied = denied.failure().unwrap();
        assert!(denied.contains(&words(kind, object)), "{denied}");
        assert!(denied.contains("Error from server (WouldOrphan)"), "{denied}");
        // That webhook has failurePolicy Ignore.
        assert!(!denied.contains("cascade.belay.dev"), "{denied}");
        let name = object.split_once('/').unwrap().1;
        assert_eq!(families.owner_of(&format!("{name}-child")), name);
    }

    // An owner that is Terminating in another way can't be orphaned either.
    let foreground = ["delete", "configmap", "terminating", "-n", &ns];
    let first = [&foreground[..], &["--cascade=foreground", "--wait=false"]].concat();
    plane.kubectl_as(&who, &first).unwrap().success().unwrap();
    let second = [&foreground[..], &["--cascade=orphan"]].concat();
    let denied = plane.kubectl_as(&who, &second).unwrap().failure().unwrap();
    assert!(denied.contains(&words("ConfigMap", "configmaps/terminating")), "{denied}");
    let path = ".metadata.finalizers";
    assert_eq!(field(plane, &ns, "configmap/terminating", path), r#"["foregroundDeletion"]"#);
    assert_eq!(families.owner_of("terminating-child"), "terminating");

    // With its dependents each of them may go.
    for kind in ["configmap/option", "job/job", "rc/rc"] {
        let args = ["delete", kind, "-n", &ns, "--cascade=background"];
        plane.kubectl_as(&who, &args).unwrap().success().unwrap();
        wait_until_deleted(
            plane,
            &ns,
            &format!("configmap/{}-child", kind.split_once('/').unwrap().1),
        );
    }
}

#[test]
fn s10_the_collectors_own_patches_pass_but_none_that_completes_what_was_never_allowed() {
    the_collectors_patches(&world().plane);
}

/// Scenario 10, under any name of the garbage collector.
pub fn the_collectors_patches(plane: &ControlPlane) {
    let families = Families::new(plane, "s10");
    let ns = families.ns.clone();
    families.add("never", &[], &[]);
    begin_orphaning(&families, "never");
    families.policy();
    // The garbage collector may work again, and retries.
    plane.delete(&["validatingadmissionpolicybinding", &ns], "");
    let collectors = [
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:kube-controller-manager",
    ];
    eventually("the collector's patch refused", Duration::from_secs(120), || {
        let who = families.answered("never-child", "Deny")?;
        let collector = who.iter().any(|name| collectors.contains(&name.as_str()));
        if collector { Ok(()) } else { Err(format!("{who:?}").into()) }
    })
    .unwrap();
    assert_eq!(families.owner_of("never-child"), "never");
    assert_eq!(field(plane, &ns, "configmap/never", ".metadata.finalizers"), r#"["orphan"]"#);
    // A second DELETE that cascades rescues both. Between the two, the garbage collector
    // would orphan the child of a deleted owner.
    refuse_updates(&families, "never-child");
    let rescue = ["delete", "configmap", "never", "-n", &ns, "--cascade=background"];
    plane.kubectl(&rescue).unwrap().success().unwrap();
    wait_until_deleted(plane, &ns, "configmap/never-child");

    // Changes that orphan nothing pass: a child with another owner loses a dangling
    // reference, and with it the foreground finalizer.
    families.add("first", &[], &[]);
    families.add("second", &[], &[]);
    let uid = field(plane, &ns, "configmap/second", ".metadata.uid");
    let second = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "second", "uid": uid,
        "blockOwnerDeletion": true});
    let patch = json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": second}]);
    plane.patch("configmap/first-child", &ns, &patch);
    let foreground = ["delete", "configmap", "first", "-n", &ns, "--cascade=foreground"];
    plane.kubectl(&foreground).unwrap().success().unwrap();
    eventually("the reference off", Duration::from_secs(60), || {
        let owners = families.owner_of("first-child");
        if owners == "second" { Ok(()) } else { Err(owners.into()) }
    })
    .unwrap();

    // The deletion of the owner in the foreground with its dependents orphans nothing
    // either, although its finalizer is guarded like all.
    plane.patch("configmap/second", &ns, &json!({"metadata": {"labels": {"tier": "child"}}}));
    let foreground = ["delete", "configmap", "second", "-n", &ns, "--cascade=foreground"];
    plane.kubectl(&foreground).unwrap().success().unwrap();
    wait_until_deleted(plane, &ns, "configmap/second-child");
    wait_until_deleted(plane, &ns, "configmap/first-child");
    let who = families.answered("second", "Allow").unwrap();
    assert!(who.iter().any(|name| collectors.contains(&name.as_str())), "{who:?}");
}

/// Deletes an owner so that its dependents are orphaned, with something in the
/// collector's way.
fn begin_orphaning(families: &Families<'_>, owner: &str) {
    let (plane, ns) = (families.plane, &families.ns);
    refuse_updates(families, &format!("{owner}-child"));
    let delete = ["delete", "configmap", owner, "-n", ns, "--cascade=orphan", "--wait=false"];
    plane.kubectl(&delete).unwrap().success().unwrap();
}

/// An admission policy that refuses every update of a ConfigMap.
fn refuse_updates(families: &Families<'_>, name: &str) {
    let (plane, ns) = (families.plane, &families.ns);
    let allowed = format!("request.name != '{name}'");
    let allowed = json!({"expression": allowed, "message": "in the way"});
    let matched: (&[&str], &[&str]) = (&["UPDATE"], &["configmaps"]);
    for object in admission_policy(ns, ns, matched, json!({}), allowed) {
        plane.apply(&object).unwrap();
    }
    let label = ["label", "configmap", name, "-n", ns, "a=b", "--dry-run=server"];
    eventually("the admission policy", Duration::from_secs(60), || {
        let refused = plane.kubectl(&label)?.failure()?;
        if refused.contains("in the way") { Ok(()) } else { Err(refused.into()) }
    })
    .unwrap();
}
