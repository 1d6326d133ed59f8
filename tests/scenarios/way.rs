//! The way through: whoever is refused reads in the refusal what to type, and
//! typing it helps.

mod commands;
mod denials;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::kubectl::{Output, run};
use crate::harness::{ControlPlane, eventually};
use crate::world;

/// A person with a client certificate, and with rights in one namespace.
pub struct Person {
    pub name: String,
    pub config: PathBuf,
}

/// What people do in their namespace every day; approving is not among it.
const WORK: &str = "{apiGroups: [\"*\"], resources: [\"*\"], \
     verbs: [get, list, watch, create, update, patch, delete]}";

/// Who gives approvals: they are sent, and what is protected is read.
const READ: &str = "{apiGroups: [belay.dev], resources: [\"*\"], verbs: [get, list]}, \
     {apiGroups: [belay.dev], resources: [deletionapprovals], verbs: [create]}";

impl Person {
    /// Somebody who works in a namespace and approves the end of `approves` in
    /// it (an entry of RBAC's `apiGroups` and of its `resources`; none: of
    /// nothing).
    pub fn new(plane: &ControlPlane, ns: &str, who: &str, approves: Option<(&str, &str)>) -> Self {
        let name = format!("{who}-{ns}");
        let person = Self { config: plane.user(&name, None).unwrap(), name };
        let approve = approves.map_or(String::new(), |(group, resources)| {
            format!(
                ", {{apiGroups: [\"{group}\"], resources: [\"{resources}\"], verbs: \
                 [approve-deletion]}}"
            )
        });
        person.bind(plane, "work", Some(ns), &format!("{WORK}{approve}"));
        person.bind(plane, "read", None, READ);
        eventually("the rights", Duration::from_secs(20), || {
            for allowed in [
                &["auth", "can-i", "create", "deletionapprovals.belay.dev"][..],
                &["auth", "can-i", "delete", "configmaps", "-n", ns],
            ] {
                plane.kubectl_as(&person.config, allowed)?.success()?;
            }
            Ok(())
        })
        .unwrap();
        person
    }

    /// A role of this person's own with these rules: in a namespace, or
    /// everywhere.
    pub fn bind(&self, plane: &ControlPlane, name: &str, namespace: Option<&str>, rules: &str) {
        let name = format!("{name}-{}", self.name);
        let (prefix, place) = match namespace {
            Some(namespace) => ("", format!(", namespace: {namespace}")),
            None => ("Cluster", String::new()),
        };
        let head = "apiVersion: rbac.authorization.k8s.io/v1";
        plane
            .apply(&format!(
                "{head}\nkind: {prefix}Role\nmetadata: {{name: {name}{place}}}\nrules: [{rules}]\n\
                 ---\n{head}\nkind: {prefix}RoleBinding\nmetadata: {{name: {name}{place}}}\n\
                 subjects: [{{kind: User, apiGroup: rbac.authorization.k8s.io, name: {}}}]\n\
                 roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {prefix}Role, name: {name}}}\n",
                self.name
            ))
            .unwrap();
    }

    /// kubectl, in this person's name.
    pub fn kubectl(&self, args: &[&str]) -> Output {
        world().plane.kubectl_as(&self.config, args).unwrap()
    }

    /// `kubectl belay …`, in this person's name.
    pub fn belay<S: AsRef<str>>(&self, args: &[S]) -> Output {
        let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        run(Path::new(env!("CARGO_BIN_EXE_kubectl-belay")), &self.config, &args, None).unwrap()
    }

    /// Does what a refusal says: every approval that it names, with a reason of
    /// one's own in the place of the dots.
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

/// The commands `kubectl belay VERB …` of a refusal, word by word.
pub fn commands_in(text: &str, verb: &str) -> Vec<Vec<String>> {
    let begin = format!("kubectl belay {verb} ");
    let mut commands = Vec::new();
    for rest in text.split(&begin).skip(1) {
        let ends = [". Why: ", ", or ", " and kubectl ", " (", "\n"];
        let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        let words = rest[..end].split_whitespace().map(|word| match word.trim_matches('"') {
            "…" => "it was agreed".to_owned(),
            word => word.to_owned(),
        });
        commands.push([verb.to_owned()].into_iter().chain(words).collect());
    }
    commands
}

/// The refused request again, until it passes: an approval reaches belay by a
/// watch, moments after it was given.
pub fn passes_now(mut request: impl FnMut() -> Output) {
    eventually("the request, after the approval", Duration::from_secs(20), || {
        request().success().map(drop)
    })
    .unwrap();
}

/// Waits until an object is gone.
pub fn gone(plane: &ControlPlane, ns: &str, object: &str) {
    plane.api().wait_gone((object, ns), Duration::from_secs(60)).unwrap();
}
