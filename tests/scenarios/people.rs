//! Users with their own rights, and how they see objects.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::kubectl::{Output, run};
use crate::harness::manifest::Manifest as _;
use crate::harness::rbac::{rule, user};
use crate::harness::{Api, ControlPlane, Result, eventually};
use crate::team::SOON;
use crate::way::commands_in;

/// The verbs of everyday work in a namespace, without approvals.
const WORK: &str = "get, list, watch, create, update, patch, delete";

/// A user of one namespace.
pub struct Person<'p> {
    plane: &'p ControlPlane,
    pub kubeconfig: PathBuf,
    api: Api,
    /// The username in the API server.
    pub name: String,
    namespace: String,
}

impl<'p> Person<'p> {
    fn new(plane: &'p ControlPlane, namespace: &str, name: String, kubeconfig: PathBuf) -> Self {
        let api = Api::of(&kubeconfig).unwrap();
        Self { plane, kubeconfig, api, name, namespace: namespace.to_owned() }
    }

    /// A user without rights.
    pub fn user(plane: &'p ControlPlane, namespace: &str, who: &str) -> Self {
        let name = format!("{who}-{namespace}");
        let kubeconfig = plane.user(&name, None).unwrap();
        Self::new(plane, namespace, name, kubeconfig)
    }

    /// jane has the ClusterRole `admin` in the namespace.
    pub fn of(plane: &'p ControlPlane, namespace: &str) -> Self {
        let jane = Self::user(plane, namespace, "jane");
        let admin = ("ClusterRole", "admin");
        plane.bind(&jane.name, Some(namespace), admin, &[user(&jane.name)]).unwrap();
        jane
    }

    /// A user who works in a namespace and approves deletions of the resources in
    /// `approves` (API group and resource).
    pub fn worker(
        plane: &'p ControlPlane,
        namespace: &str,
        who: &str,
        approves: Option<(&str, &str)>,
    ) -> Self {
        let person = Self::user(plane, namespace, who);
        let approve = approves.map(|(group, resource)| rule(group, resource, "approve-deletion"));
        let work = approve.into_iter().chain([rule("*", "*", WORK)]);
        person.bind("work", Some(namespace), &work.collect::<Vec<_>>());
        let approvals = rule("belay.dev", "deletionapprovals", "create");
        person.bind("read", None, &[rule("belay.dev", "*", "get, list"), approvals]);
        eventually("the rights", SOON, || {
            plane.api().may(&person.name, "create", "deletionapprovals.belay.dev", "")?;
            plane.api().may(&person.name, "delete", "configmaps", namespace)
        })
        .unwrap();
        person
    }

    /// A user with all rights in a namespace, and on the namespace.
    pub fn editor(plane: &'p ControlPlane, namespace: &str) -> Self {
        let editor = Self::user(plane, namespace, "editor");
        editor.has_all_rights();
        editor
    }

    /// A service account with the same rights, as an operator has them. It is in the
    /// namespace `home`.
    pub fn operator(plane: &'p ControlPlane, namespace: &str, home: &str, name: &str) -> Self {
        plane.kubectl(&["create", "serviceaccount", name, "-n", home]).unwrap().success().unwrap();
        let kubeconfig = plane.account(home, name).unwrap();
        let account = format!("system:serviceaccount:{home}:{name}");
        let operator = Self::new(plane, namespace, account, kubeconfig);
        operator.has_all_rights();
        operator
    }

    fn has_all_rights(&self) {
        let ns = &self.namespace;
        self.bind("all", Some(ns), &[rule("*", "*", "*")]);
        let itself = rule("", "namespaces, namespaces/finalize", "*");
        self.bind("itself", None, &[itself.with(json!({"resourceNames": [ns]}))]);
    }

    /// Grants more rights, in the whole cluster.
    pub fn may(&self, rules: &[Value]) {
        self.bind("more", None, rules);
    }

    /// Grants rights in a namespace, or in the whole cluster.
    pub fn bind(&self, what: &str, namespace: Option<&str>, rules: &[Value]) {
        let name = format!("{what}-{}", self.name.replace(':', "-"));
        self.plane.grant(&name, namespace, rules, &[user(&self.name)]).unwrap();
    }

    /// The refusal of a DELETE. Until belay has seen a user, only the hold keeps an object,
    /// so the test sends a dry run first.
    pub fn refused(&self, objects: &[&str]) -> String {
        let ask = [&["--dry-run=server"], objects].concat();
        eventually("a refusal", SOON, || self.delete(&ask).failure()).unwrap();
        self.delete(objects).failure().unwrap()
    }

    /// kubectl, in the namespace of this person.
    pub fn kubectl(&self, args: &[&str]) -> Output {
        let all: Vec<&str> = args.iter().copied().chain(["-n", &self.namespace]).collect();
        self.plane.kubectl_as(&self.kubeconfig, &all).unwrap()
    }

    /// kubectl with a manifest on its standard input.
    pub fn send(&self, args: &[&str], manifest: &(impl Display + ?Sized)) -> Output {
        let all: Vec<&str> = args.iter().copied().chain(["-n", &self.namespace]).collect();
        self.plane.kubectl_with(Some(&self.kubeconfig), &all, manifest).unwrap()
    }

    /// Waits while the API server has not yet applied a new right.
    fn allowed(&self, mut request: impl FnMut() -> Result<Output>) -> Output {
        eventually("an answer of the authorizer", SOON, || {
            let output = request()?;
            if output.stderr.contains("(Forbidden)") {
                return Err(output.stderr.into());
            }
            Ok(output)
        })
        .unwrap()
    }

    /// Applies a manifest, which has to succeed.
    pub fn apply(&self, manifest: &(impl Display + ?Sized)) {
        self.allowed(|| self.api.apply(manifest, &self.namespace)).success().unwrap();
    }

    /// `kubectl apply` that has to succeed.
    pub fn kubectl_apply(&self, manifest: &(impl Display + ?Sized)) {
        self.send(&["apply", "-f", "-"], manifest).success().unwrap();
    }

    /// Deletes objects as `kubectl delete --wait=false` does.
    pub fn delete(&self, args: &[&str]) -> Output {
        self.allowed(|| self.api.delete(args, &self.namespace))
    }

    /// One field of an object, by a JSON path without its braces.
    pub fn field(&self, object: &str, path: &str) -> String {
        self.api.field(object, &self.namespace, path).unwrap()
    }

    /// The finalizers of an object, as JSON.
    pub fn finalizers(&self, object: &str) -> String {
        self.field(object, ".metadata.finalizers")
    }

    /// Whether the object was deleted.
    pub fn lacks(&self, object: &str) -> bool {
        self.api.get(object, &self.namespace).unwrap().is_none()
    }

    /// `kubectl belay …`, in this person's name.
    pub fn belay<S: AsRef<str>>(&self, args: &[S]) -> Output {
        let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        run(Path::new(env!("CARGO_BIN_EXE_kubectl-belay")), &self.kubeconfig, &args, None).unwrap()
    }

    /// Creates every approval that a refusal names, with its own reason in place of the
    /// dots.
    pub fn approves_what_is_named(&self, refusal: &str) -> Vec<Output> {
        let commands = commands_in(refusal, "approve");
        assert!(!commands.is_empty(), "{refusal}");
        let outputs: Vec<Output> = commands.iter().map(|words| self.belay(words)).collect();
        for output in &outputs {
            assert_eq!(output.code, 0, "{commands:?}: {output:?}");
            assert!(output.stdout.starts_with("approved: "), "{output:?}");
        }
        outputs
    }
}

/// A field of one object; empty where it is not set.
pub fn field(plane: &ControlPlane, ns: &str, object: &str, path: &str) -> String {
    plane.api().field(object, ns, path).unwrap()
}

/// Whether the object is not there any more.
pub fn is_gone(plane: &ControlPlane, ns: &str, object: &str) -> crate::harness::Result<()> {
    match plane.api().get(object, ns)? {
        None => Ok(()),
        Some(object) => Err(object.to_string().into()),
    }
}
