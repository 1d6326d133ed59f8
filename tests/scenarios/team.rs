//! The users of one namespace: one who works in it, and others who may approve deletions in
//! it.

use std::ops::Deref;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::kubectl::Output;
use crate::harness::manifest::{Manifest as _, admission_policy, config_map, owner};
use crate::harness::rbac::{rule, user};
use crate::harness::{self, Api, ControlPlane, eventually};
use crate::people::Person;

/// The safety limit for changes that should happen at once. It measures nothing.
pub const SOON: Duration = Duration::from_secs(60);

/// A namespace with its users. jane has the ClusterRole `admin` in it, and no rights
/// elsewhere; carol and dave may approve.
pub struct Team<'p> {
    pub plane: &'p ControlPlane,
    pub ns: String,
    jane: Person<'p>,
}

/// The actions of jane.
impl<'p> Deref for Team<'p> {
    type Target = Person<'p>;

    fn deref(&self) -> &Self::Target {
        &self.jane
    }
}

/// A user who may approve.
#[derive(Clone, Copy)]
pub enum Approver {
    Carol,
    Dave,
}

impl Approver {
    fn name(self, ns: &str) -> String {
        match self {
            Self::Carol => format!("carol-{ns}"),
            Self::Dave => format!("dave-{ns}"),
        }
    }
}

/// The object of an approval: resource, group and name. `place` is its namespace, or empty
/// for a cluster-scoped object.
#[derive(Clone, Copy)]
pub struct Of<'a> {
    pub resource: &'a str,
    pub group: &'a str,
    pub name: &'a str,
    pub place: &'a str,
}

impl<'p> Team<'p> {
    /// A new namespace, and its people.
    pub fn new(plane: &'p ControlPlane, prefix: &str) -> Self {
        let ns = plane.namespace(prefix).unwrap();
        let team = Self { plane, jane: Person::of(plane, &ns), ns };
        let approvers = [Approver::Carol, Approver::Dave].map(|who| who.name(&team.ns));
        let approvers = approvers.map(|name| user(&name));
        let give = [rule("belay.dev", "deletionapprovals", "create, get")];
        plane.grant(&format!("give-{}", team.ns), None, &give, &approvers).unwrap();
        let all = [rule("*", "*", "approve-deletion")];
        let name = format!("approve-{}", team.ns);
        plane.grant(&name, Some(&team.ns), &all, &approvers).unwrap();
        team
    }

    /// An API group of the test, by the prefix of the namespace: belay's roles contain it
    /// in advance.
    pub fn group(&self) -> String {
        let prefix = self.ns.rsplit_once('-').map_or(&*self.ns, |(prefix, _)| prefix);
        format!("{prefix}.example.com")
    }

    /// helm, as jane, in the namespace.
    pub fn helm(&self, args: &[&str]) -> Output {
        let args: Vec<&str> = args.iter().copied().chain(["-n", &self.ns]).collect();
        let helm = self.plane.binaries().join("helm");
        harness::kubectl::run(&helm, &self.jane.kubeconfig, &args, None).unwrap()
    }

    /// jane removes the finalizers that keep an object of hers Terminating.
    pub fn finish(&self, object: &str) {
        let none = r#"{"metadata":{"finalizers":null}}"#;
        self.kubectl(&["patch", object, "--type=merge", "-p", none]).success().unwrap();
        self.wait_until_deleted(object);
    }

    /// Sends a delete that passes, and returns its warnings.
    pub fn deleted(&self, objects: &[&str]) -> String {
        let output = self.delete(objects);
        let warnings = output.stderr.clone();
        output.success().unwrap();
        warnings
    }

    /// Creates an approval of a user, for an hour.
    pub fn approve(&self, who: Approver, of: Of<'_>, scope: &str) {
        self.approve_for(who, of, scope, Duration::from_secs(3600));
    }

    /// Creates an approval of a user, for this lifetime.
    pub fn approve_for(&self, who: Approver, of: Of<'_>, scope: &str, life: Duration) {
        let uid = self.uid(of);
        eventually("the approval", SOON, || {
            self.try_approve(who, &who.name(&self.ns), (of, &uid), scope, life)?.success().map(drop)
        })
        .unwrap();
    }

    /// An approval under any name, as it is answered.
    pub fn try_approve(
        &self,
        who: Approver,
        approver: &str,
        (of, uid): (Of<'_>, &str),
        scope: &str,
        life: Duration,
    ) -> harness::Result<Output> {
        let config = self.plane.user(&who.name(&self.ns), None)?;
        let until = jiff::Timestamp::now() + jiff::SignedDuration::try_from(life)?;
        let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Of { resource, group, name, place } = of;
        let target_ref = json!({"group": group, "resource": resource, "namespace": place,
                                "name": name, "uid": uid});
        let approval = json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionApproval",
            "metadata": {"generateName": format!("{}-", self.ns)},
            "spec": {"targetRef": target_ref, "approver": approver, "reason": "it is time",
                     "expirationTime": until, "scope": scope},
        });
        Api::of(&config)?.create(&approval, "")
    }

    /// Waits until belay knows a new approval, and so all earlier ones.
    pub fn approvals_are_known(&self) {
        self.apply(&config_map("marker").with_protect_label("Always"));
        self.approve(Approver::Carol, self.of("configmaps", "marker"), "Object");
        let marker = || self.delete(&["configmap/marker", "--dry-run=server"]).success();
        eventually("the approval in force", SOON, marker).unwrap();
    }

    /// The uid of an object, read as the administrator.
    pub fn uid(&self, of: Of<'_>) -> String {
        let dot = if of.group.is_empty() { "" } else { "." };
        let object = format!("{}{dot}{}/{}", of.resource, of.group, of.name);
        self.field(&object, ".metadata.uid")
    }

    /// A reference to an owner that exists.
    pub fn owner(&self, kind: &str, name: &str) -> Value {
        owner(kind, name, &self.field(&format!("{kind}/{name}"), ".metadata.uid"))
    }

    /// The username of an approver.
    pub fn name_of(&self, who: Approver) -> String {
        who.name(&self.ns)
    }

    /// An object of the namespace, for an approval.
    pub fn of<'a>(&'a self, resource: &'a str, name: &'a str) -> Of<'a> {
        Of { resource, group: "", name, place: &self.ns }
    }

    /// A field of an object by its JSON path, read as the administrator.
    pub fn field(&self, object: &str, path: &str) -> String {
        self.plane.api().field(object, &self.ns, path).unwrap()
    }

    /// Waits until the object is Terminating with only the hold.
    pub fn is_held(&self, object: &str) {
        let state = self.field(object, ".metadata");
        assert!(state.contains("deletionTimestamp"), "{object}: {state}");
        assert!(state.contains(r#""belay.dev/hold""#), "{object}: {state}");
    }

    /// Waits until belay has checked live, after the deletion, whether the object is in
    /// use: it has the token of that pass, and the hold.
    pub fn was_kept(&self, object: &str) {
        let looked = |found: Option<&Value>| {
            let state = found.map_or_else(String::new, |found| found["metadata"].to_string());
            let looked = state.contains("belay.dev/release-token");
            if looked { Ok(()) } else { Err(state.into()) }
        };
        self.plane.api().wait((object, &self.ns), SOON, looked).unwrap();
        self.is_held(object);
    }

    /// Has belay check a held object now, which keeps it. A second pass begins only after
    /// the first one.
    pub fn is_kept_again(&self, object: &str) {
        for look in ["a look", "another look"] {
            let path = r".metadata.annotations.belay\.dev/release-token";
            let before = self.field(object, path);
            let is_another = |now: &str| !now.is_empty() && now != before;
            let held = (object, &*self.ns);
            self.plane.api().wait_field(held, SOON, path, is_another).expect(look);
        }
        self.is_held(object);
    }

    /// Checks that the object exists and is not Terminating.
    pub fn assert_exists(&self, object: &str) {
        assert_eq!(self.field(object, ".metadata.deletionTimestamp"), "", "{object}");
    }

    /// Waits until the object is deleted.
    pub fn wait_until_deleted(&self, object: &str) {
        self.wait_until_deleted_within(object, SOON);
    }

    /// Waits up to this limit until the object is deleted.
    pub fn wait_until_deleted_within(&self, object: &str, limit: Duration) {
        self.plane.api().wait_gone((object, &self.ns), limit).unwrap();
    }

    /// Waits until the object has the hold.
    pub fn wait_for_hold(&self, object: &str) {
        eventually("the hold", SOON, || {
            let finalizers = self.finalizers(object);
            if finalizers.contains("belay.dev/hold") { Ok(()) } else { Err(finalizers.into()) }
        })
        .unwrap();
    }

    /// Refuses to the collector to change or delete ConfigMaps, Secrets and Pods whose names begin
    /// with that of this object. Returns the binding that does so.
    pub fn keep_collector_from(&self, object: &str) -> String {
        self.keep_from("system:serviceaccount:kube-system:generic-garbage-collector", object)
    }

    /// The same for another user.
    pub fn keep_from(&self, user: &str, object: &str) -> String {
        let (plane, ns) = (self.plane, &self.ns);
        let binding = format!("keep-{ns}");
        let name = object.split_once('/').unwrap().1;
        let matched: (&[&str], &[&str]) =
            (&["UPDATE", "DELETE"], &["configmaps", "secrets", "pods"]);
        let allowed =
            format!("request.userInfo.username != '{user}' || !request.name.startsWith('{name}')");
        let allowed = json!({"expression": allowed});
        for object in admission_policy(&binding, ns, matched, json!({}), allowed) {
            plane.apply(&object).unwrap();
        }
        let user = format!("--as={user}");
        let touch = ["label", object, "-n", ns, "a=b", "--dry-run=server", &user];
        eventually("a refusal to the user", SOON, || {
            plane.kubectl(&[&touch[..], &["--as-group=system:masters"]].concat())?.failure()
        })
        .unwrap();
        binding
    }

    /// Deletes the binding, so that the garbage collector may delete again.
    pub fn remove_binding(&self, binding: &str) {
        let remove = ["delete", "validatingadmissionpolicybinding", binding];
        self.plane.kubectl(&remove).unwrap().success().unwrap();
    }

    /// Waits until the garbage collector's DELETE for a path with this ending was answered.
    pub fn collector_asks(&self, ends: &str) {
        eventually("an answer to the collector", SOON, || {
            match self.deletes_by("generic-garbage-collector", ends) {
                0 => Err("it has not asked".into()),
                _ => Ok(()),
            }
        })
        .unwrap();
    }

    /// How many DELETEs of a user for paths with this ending were answered.
    pub fn deletes_by(&self, user: &str, ends: &str) -> usize {
        let log = self.plane.audit_log().unwrap();
        let path = format!("/namespaces/{}/", self.ns);
        let of = |line: &&str| {
            line.contains(r#""verb":"delete""#)
                && line.contains(user)
                && line.contains(&path)
                && line
                    .split('"')
                    .any(|part| part.ends_with(ends) || part.contains(&format!("{ends}?")))
        };
        log.lines().filter(of).count()
    }
}
