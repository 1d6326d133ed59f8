//! Finalizers that users remove by hand, guarded and not guarded.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::deleting::{pod_with_claim, wait_until_deleted};
use crate::harness::kubectl::Output;
use crate::harness::manifest::{Manifest as _, claim, config_map};
use crate::harness::{ControlPlane, eventually};
use crate::people::{Person, field};
use crate::{policy, world};

const HOLD: &str = "belay.dev/hold";

/// A user who tries to remove the hold from a claim.
struct Stripper<'w> {
    plane: &'w ControlPlane,
    ns: &'w str,
    who: &'w Path,
}

impl Stripper<'_> {
    fn finalizers(&self) -> Vec<String> {
        let list = field(self.plane, self.ns, "pvc/data", ".metadata.finalizers");
        if list.is_empty() { Vec::new() } else { serde_json::from_str(&list).unwrap() }
    }

    /// The finalizers beside the hold.
    fn others(&self) -> Vec<String> {
        self.finalizers().into_iter().filter(|finalizer| finalizer != HOLD).collect()
    }

    fn patch(&self, form: &str, patch: &Value, more: &[&str]) -> Output {
        let (form, patch) = (format!("--type={form}"), patch.to_string());
        let args = ["patch", "pvc", "data", "-n", self.ns, &form, "-p", &patch];
        self.plane.kubectl_as(self.who, &[&args[..], more].concat()).unwrap()
    }

    /// A merge patch that leaves all but the hold.
    fn merge(&self, more: &[&str]) -> Output {
        self.patch("merge", &json!({"metadata": {"finalizers": self.others()}}), more)
    }

    fn json_patch(&self) -> Output {
        let place = self.finalizers().iter().position(|finalizer| finalizer == HOLD).unwrap();
        let path = format!("/metadata/finalizers/{place}");
        self.patch("json", &json!([{"op": "remove", "path": path}]), &[])
    }

    /// A PUT that removes only the hold and changes a label.
    fn put(&self, label: Option<&str>, more: &[&str]) -> Output {
        // Other writers, such as belay with its token, change the object too. A replace
        // reads it again, as a user would.
        loop {
            let output = self.put_once(label, more);
            if !output.stderr.contains("Error from server (Conflict)") {
                return output;
            }
        }
    }

    fn put_once(&self, label: Option<&str>, more: &[&str]) -> Output {
        let mut claim = self.plane.api().get("pvc/data", self.ns).unwrap().unwrap();
        claim["metadata"]["finalizers"] = json!(self.others());
        if let Some(label) = label {
            claim["metadata"]["labels"] = json!({"said": label});
        }
        let replace = ["replace", "-f", "-"];
        let args = [&replace[..], more].concat();
        self.plane.kubectl_with(Some(self.who), &args, &claim).unwrap()
    }

    fn is_refused(&self, what: &str, output: Output) -> String {
        let refused = output.failure().unwrap();
        let object = "only belay may remove the finalizer belay.dev/hold from persistentvolumeclaim \"data\"";
        assert!(refused.starts_with("Error from server (FinalizerGuarded)"), "{what}: {refused}");
        assert!(refused.contains(object), "{what}: {refused}");
        self.is_held(what);
        refused
    }

    fn is_held(&self, what: &str) {
        let finalizers = self.finalizers();
        assert!(finalizers.iter().any(|finalizer| finalizer == HOLD), "{what}: {finalizers:?}");
    }
}

#[test]
fn s05_the_hold_is_not_removed_while_the_object_is_in_use() {
    let plane = &world().plane;
    let ns = plane.namespace("s05").unwrap();
    let who = Person::editor(plane, &ns).kubeconfig;
    let used = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::protect(plane, &ns, "persistentvolumeclaims", used);
    // Not by apply: kubectl replace would then change the annotation, too.
    let create = ["create", "-f", "-"];
    plane.apply_to(&create, &claim("data").with_namespace(&ns)).unwrap().success().unwrap();
    plane.apply(&pod_with_claim(&ns, "shop", "data")).unwrap();
    let stripper = Stripper { plane, ns: &ns, who: &who };
    stripper.is_held("at first");

    // A request that removes only the hold is meant to remove it.
    let refused = stripper.is_refused("JSON patch", stripper.json_patch());
    assert_eq!(
        refused,
        format!(
            "Error from server (FinalizerGuarded): admission webhook \"hold.belay.dev\" denied the \
             request: only belay may remove the finalizer belay.dev/hold from persistentvolumeclaim \
             \"data\"; policy {ns}. Keep the finalizer: belay removes it when the object is \
             Terminating and nothing uses it. To make this change anyway: kubectl belay approve \
             persistentvolumeclaims/data -n {ns} --reason \"…\" (this also approves the deletion of \
             persistentvolumeclaim \"data\"). Details: kubectl belay why persistentvolumeclaims/data -n {ns}\n"
        )
    );
    let status: &[&str] = &["--subresource=status"];
    stripper.is_refused("merge patch", stripper.merge(&[]));
    stripper.is_refused("merge patch of status", stripper.merge(status));
    stripper.is_refused("PUT", stripper.put(None, &[]));
    stripper.is_refused("PUT of status", stripper.put(None, status));

    // If the request changes other fields, they change, and belay restores the hold.
    let restored = format!("belay keeps the finalizer {HOLD}");
    let index = stripper.finalizers().iter().position(|finalizer| finalizer == HOLD);
    let replaced = stripper.put(Some("something"), &[]);
    assert!(replaced.stderr.contains(&restored), "{}", replaced.stderr);
    replaced.success().unwrap();
    assert_eq!(field(plane, &ns, "pvc/data", ".metadata.labels.said"), "something");
    assert_eq!(stripper.finalizers().iter().position(|finalizer| finalizer == HOLD), index);
    let emptied = stripper.patch("merge", &json!({"metadata": {"finalizers": null}}), &[]);
    assert!(emptied.stderr.contains(&restored), "{}", emptied.stderr);
    emptied.success().unwrap();
    stripper.is_held("all finalizers emptied");

    // For a Terminating object nothing is restored: each of these is refused.
    eventually("the Pod, in the graph", Duration::from_secs(20), || {
        let args = ["delete", "pvc", "data", "-n", &ns, "--dry-run=server"];
        let said = plane.kubectl(&args)?;
        if said.stderr.contains("stays Terminating") { Ok(()) } else { Err(said.stderr.into()) }
    })
    .unwrap();
    let args = ["delete", "pvc", "data", "-n", &ns, "--wait=false"];
    plane.kubectl_as(&who, &args).unwrap().success().unwrap();
    assert_ne!(field(plane, &ns, "pvc/data", ".metadata.deletionTimestamp"), "");
    let refused = stripper.is_refused("JSON patch", stripper.json_patch());
    let next_step =
        format!("data\", run kubectl belay release persistentvolumeclaims/data -n {ns}. ");
    assert!(refused.contains(&next_step), "{refused}");
    assert!(refused.contains("\"update.belay.dev\""), "{refused}");
    let none = json!({"metadata": {"finalizers": null}});
    stripper.is_refused("merge patch", stripper.patch("merge", &none, &[]));
    stripper.is_refused("merge patch of status", stripper.patch("merge", &none, status));
    stripper.is_refused("PUT", stripper.put(None, &[]));
    stripper.is_refused("PUT of more", stripper.put(Some("another-thing"), &[]));
    stripper.is_refused("PUT of status", stripper.put(None, status));
}

#[test]
fn s06_a_guarded_finalizer_is_removed_only_by_its_controller() {
    let plane = &world().plane;
    let ns = plane.namespace("s06").unwrap();
    let person = Person::editor(plane, &ns).kubeconfig;
    let owner = Person::operator(plane, &ns, &ns, "database-operator").kubeconfig;
    let other = Person::operator(plane, &ns, &ns, "another-operator").kubeconfig;
    let protect = |name: &str, more: Value| {
        let target = policy::target("", "configmaps", &ns).with(json!({"names": [name]}));
        let guarded = json!({"finalizers": ["example.com/*"]}).with(more);
        let spec = json!({"targets": [target], "protect": {"fromStripping": guarded}});
        policy::apply(plane, &format!("{ns}-{name}"), spec);
    };
    protect("any", json!({}));
    let operator = json!({"kind": "ServiceAccount", "namespace": ns, "name": "database-operator"});
    protect("named", json!({"removers": [operator]}));

    for name in ["any", "named"] {
        let map = config_map(name).with_namespace(&ns);
        plane
            .apply(&map.with_finalizers(&["example.com/database", "other.example.org/x"]))
            .unwrap();
        let strip = |who: &Path, left: Value| {
            let patch = json!({"metadata": {"finalizers": left}}).to_string();
            let args = ["patch", "configmap", name, "-n", &ns, "--type=merge", "-p", &patch];
            plane.kubectl_as(who, &args).unwrap()
        };
        let refused = strip(&person, Value::Null).failure().unwrap();
        assert_eq!(
            refused,
            format!(
                "Error from server (FinalizerGuarded): admission webhook \"update.belay.dev\" \
                 denied the request: you may not remove the finalizer example.com/database from \
                 configmap \"{name}\"; policy {ns}-{name}. Let the controller of the finalizer \
                 remove it. To make this change anyway: kubectl belay approve configmaps/{name} -n \
                 {ns} --reason \"…\" (this also approves the deletion of configmap \"{name}\"). Details: kubectl belay why configmaps/{name} -n {ns}\n"
            )
        );
        // Every user may remove a finalizer that is not guarded.
        strip(&person, json!(["example.com/database"])).success().unwrap();
        let delete = ["delete", "configmap", name, "-n", &ns, "--wait=false"];
        plane.kubectl_as(&person, &delete).unwrap().success().unwrap();
        let refused = strip(&person, Value::Null).failure().unwrap();
        assert!(refused.contains("you may not remove the finalizer"), "{refused}");
        if name == "named" {
            let refused = strip(&other, Value::Null).failure().unwrap();
            assert!(refused.contains("you may not remove the finalizer"), "{refused}");
        }
        strip(&owner, Value::Null).success().unwrap();
        wait_until_deleted(plane, &ns, &format!("configmap/{name}"));
    }
}

#[test]
fn s07_apply_from_git_keeps_the_hold() {
    let plane = &world().plane;
    let ns = plane.namespace("s07").unwrap();
    let who = Person::editor(plane, &ns).kubeconfig;
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    let manifest = |name: &str, value: &str| {
        config_map(name).with_namespace(&ns).with(json!({"data": {"currency": value}}))
    };
    let apply = |args: &[&str], manifest: &Value| {
        let args = [&["apply", "-f", "-"], args].concat();
        let output = plane.kubectl_with(Some(&who), &args, manifest).unwrap();
        (output.stderr.clone(), output.success().unwrap())
    };
    let seen = |name: &str| {
        let field = |path| field(plane, &ns, &format!("configmap/{name}"), path);
        (field(".metadata.finalizers"), field(".data.currency"), field(".metadata.resourceVersion"))
    };
    let held = format!("[\"{HOLD}\"]");
    for (name, args) in [("client", &[][..]), ("server", &["--server-side"][..])] {
        let mut last = String::new();
        for value in ["EUR", "DKK", "DKK", "DKK"] {
            let (warned, _) = apply(args, &manifest(name, value));
            assert_eq!(warned, "", "{name}");
            let (finalizers, currency, version) = seen(name);
            assert_eq!((finalizers, &*currency), (held.clone(), value), "{name}");
            if value == "DKK" && !last.is_empty() {
                assert_eq!(version, last, "{name}: a repeated apply writes nothing");
            }
            last = if value == "DKK" { version } else { String::new() };
        }
    }

    // Client-side apply of a manifest that stops listing finalizers sends `finalizers:
    // null`, which would also remove belay's.
    apply(&[], &manifest("listed", "EUR").with_finalizers(&["example.com/x"]));
    assert_eq!(seen("listed").0, format!("[\"example.com/x\",\"{HOLD}\"]"));
    let (warned, _) = apply(&[], &manifest("listed", "DKK"));
    assert!(warned.contains(&format!("belay keeps the finalizer {HOLD}")), "{warned}");
    let (finalizers, currency, version) = seen("listed");
    assert_eq!((finalizers, &*currency), (held.clone(), "DKK"));
    let (warned, _) = apply(&[], &manifest("listed", "DKK"));
    assert_eq!((warned.as_str(), seen("listed").2), ("", version));

    // So would server-side apply by a manager that owned the hold.
    apply(&["--server-side"], &manifest("owned", "EUR").with_finalizers(&[HOLD]));
    let (warned, _) = apply(&["--server-side"], &manifest("owned", "DKK"));
    assert!(warned.contains(&format!("belay keeps the finalizer {HOLD}")), "{warned}");
    assert_eq!(seen("owned").0, held);
}

#[test]
fn the_warning_of_a_denied_change_states_no_change() {
    let plane = &world().plane;
    let ns = plane.namespace("strip-warned").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}, "fromStripping": {}}));
    let finalizers = ["db.example.test/drop"];
    let settings = config_map("settings").with_namespace(&ns).with_finalizers(&finalizers);
    let apply = ["apply", "--server-side", "--field-manager=db-operator", "-f", "-"];
    plane.apply_to(&apply, &settings).unwrap().success().unwrap();
    let patch = r#"{"metadata": {"finalizers": null}}"#;
    let args = ["patch", "configmap", "settings", "-n", &ns, "--type=merge", "-p", patch];
    // The mutating phase restores the hold, and the validating phase denies the request.
    let denied = plane.kubectl(&args).unwrap().failure().unwrap();
    assert!(denied.contains("(FinalizerGuarded)"), "{denied}");
    assert!(denied.contains(&format!("belay keeps the finalizer {HOLD}")), "{denied}");
}
