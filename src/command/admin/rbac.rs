//! The ServiceAccount of the replicas and its permissions.
//!
//! RBAC can grant access to named kinds or to all kinds, but not to all kinds except
//! Secrets. So belay gets read access to the kinds of its built-in relations, without
//! Secrets, and administrators add others. The condition of a policy reports missing
//! permissions.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::yaml;
use crate::command::CommandError;
use crate::command::serve::{LABELLED_KINDS, parse_kinds};
use crate::policy::api::GROUP;
use crate::relations::related_kinds;

const READ: &[&str] = &["get", "list", "watch"];
const RBAC: &str = "rbac.authorization.k8s.io";
const REGISTRATION: &str = "admissionregistration.k8s.io";

/// The kinds that the administrator adds.
#[derive(Debug, Default)]
pub(super) struct ExtraKinds {
    /// These kinds, by group and plural name.
    pub(super) also: Vec<(String, String)>,
    /// Every kind.
    pub(super) everything: bool,
}

/// A kind as people write it: `secrets`, `apps/deployments`.
pub(super) fn parse_kind(text: &str) -> Result<(String, String), CommandError> {
    let (group, resource) = text.split_once('/').unwrap_or(("", text));
    let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let sound = !resource.is_empty() && resource.chars().all(name) && group.chars().all(name);
    if !sound {
        return Err(CommandError::Usage(format!(
            "--watch-also is \"{text}\"; expected RESOURCE or GROUP/RESOURCE, such as secrets or \
             apps/deployments"
        )));
    }
    Ok((group.to_owned(), resource.to_owned()))
}

impl ExtraKinds {
    /// The account, its roles and their bindings, one document each.
    pub(super) fn documents(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<String>, CommandError> {
        let everywhere = || ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let here = || ObjectMeta { namespace: Some(namespace.to_owned()), ..everywhere() };
        let subjects = || {
            Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: name.to_owned(),
                namespace: Some(namespace.to_owned()),
                ..Subject::default()
            }])
        };
        let role_ref = |kind: &str| RoleRef {
            api_group: RBAC.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        Ok(vec![
            yaml(&ServiceAccount { metadata: here(), ..ServiceAccount::default() })?,
            yaml(&ClusterRole {
                metadata: everywhere(),
                rules: Some(self.cluster(name)),
                ..ClusterRole::default()
            })?,
            yaml(&ClusterRoleBinding {
                metadata: everywhere(),
                role_ref: role_ref("ClusterRole"),
                subjects: subjects(),
            })?,
            yaml(&Role { metadata: here(), rules: Some(own_namespace(name)) })?,
            yaml(&RoleBinding {
                metadata: here(),
                role_ref: role_ref("Role"),
                subjects: subjects(),
            })?,
        ])
    }

    /// In the whole cluster.
    fn cluster(&self, name: &str) -> Vec<PolicyRule> {
        let also = || self.also.iter().map(|(g, r)| (g.as_str(), r.as_str()));
        let mut read: BTreeSet<(&str, &str)> = related_kinds();
        // Access to Secrets is granted only if the administrator wants to protect them.
        read.remove(&("", "secrets"));
        read.extend(KNOWN);
        read.extend(also());
        let mut rules = if self.everything {
            vec![rule(&["*"], &["*"], READ), rule(&["*"], &["*"], &["patch"])]
        } else {
            // Adding and removing the hold requires patch, and RBAC has no narrower
            // permission. So it is requested only for the kinds that belay's own policies
            // and the label hold, and for those that the administrator adds.
            let labelled = parse_kinds(LABELLED_KINDS);
            let labelled = labelled.iter().map(|(g, r)| (g.as_str(), r.as_str()));
            let held: BTreeSet<_> = HELD.into_iter().chain(labelled).chain(also()).collect();
            let mut rules = grouped(&read, READ);
            rules.extend(grouped(&held, &["patch"]));
            rules
        };
        rules.extend([
            // The leader updates and watches these two. It never creates them: a
            // configuration that was uninstalled stays deleted.
            named(
                rule(
                    &[REGISTRATION],
                    &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
                    &["get", "list", "watch", "patch"],
                ),
                &[name],
            ),
            // belay's own objects and their status.
            rule(&[GROUP], &["*"], READ),
            rule(&[GROUP], &["deletionpolicies/status"], &["patch"]),
            // An exemption is recorded as an approval of belay's own, and the check of
            // approvals asks whether the approver may approve; this verb allows nothing
            // else. belay deletes expired approvals.
            rule(&[GROUP], &["deletionapprovals"], &["create", "delete"]),
            rule(&["*"], &["*"], &["approve-deletion"]),
            // An Event is in the namespace of its object.
            rule(&[""], &["events"], &["create", "patch"]),
        ]);
        rules
    }
}

/// The kinds that policies of the chart hold, enabled or not: holds of a disabled policy
/// must still be released.
const HELD: [(&str, &str); 5] = [
    ("", "configmaps"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "storageclasses"),
];

/// The kinds that belay always reads: containers, APIs and owners.
const KNOWN: [(&str, &str); 8] = [
    ("", "namespaces"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("apps", "controllerrevisions"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
];

/// In belay's own namespace. RBAC cannot restrict a create to names.
fn own_namespace(name: &str) -> Vec<PolicyRule> {
    let [path, tls] = ["path", "tls"].map(|suffix| format!("{name}-{suffix}"));
    vec![
        // The Leases of the leader election and of the served certificates. Names can't
        // restrict these, because replicas get new names.
        rule(
            &["coordination.k8s.io"],
            &["leases"],
            &["get", "list", "create", "update", "patch", "delete"],
        ),
        // The secret of the webhook path, the certificate, and no other Secret.
        rule(&[""], &["secrets"], &["create"]),
        named(rule(&[""], &["secrets"], &["list", "watch", "update"]), &[&path, &tls]),
        // The journals of the replicas.
        rule(&[""], &["configmaps"], &["get", "list", "create", "update", "patch", "delete"]),
    ]
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let list = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(list(groups)),
        resources: Some(list(resources)),
        verbs: list(verbs),
        ..PolicyRule::default()
    }
}

fn named(rule: PolicyRule, names: &[&str]) -> PolicyRule {
    let names = names.iter().map(ToString::to_string).collect();
    PolicyRule { resource_names: Some(names), ..rule }
}

/// One rule a group.
fn grouped(kinds: &BTreeSet<(&str, &str)>, verbs: &[&str]) -> Vec<PolicyRule> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (group, resource) in kinds {
        groups.entry(group).or_default().push(resource);
    }
    groups.into_iter().map(|(group, resources)| rule(&[group], &resources, verbs)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a rule without object names grants a right.
    fn may(rights: &ExtraKinds, verb: &str, group: &str, resource: &str) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|t| t == text || t == "*");
        rights.cluster("belay").iter().any(|rule| {
            rule.resource_names.is_none()
                && has(&rule.verbs, verb)
                && has(rule.api_groups.as_deref().unwrap(), group)
                && has(rule.resources.as_deref().unwrap(), resource)
        })
    }

    #[test]
    fn secrets_are_readable_only_on_request() {
        let rights = ExtraKinds::default();
        for verb in ["get", "list", "watch", "patch"] {
            assert!(!may(&rights, verb, "", "secrets"), "{verb}");
        }
        let asked = ExtraKinds { also: vec![parse_kind("secrets").unwrap()], everything: false };
        assert!(may(&asked, "list", "", "secrets") && may(&asked, "patch", "", "secrets"));
        assert!(may(&ExtraKinds { also: Vec::new(), everything: true }, "watch", "", "secrets"));
    }

    #[test]
    fn what_is_known_is_read_and_held_where_a_hold_is_put_on() {
        let rights = ExtraKinds::default();
        for (group, resource) in
            [("", "persistentvolumeclaims"), ("", "configmaps"), ("apps", "statefulsets")]
        {
            assert!(may(&rights, "watch", group, resource), "{resource}");
            assert!(may(&rights, "patch", group, resource), "{resource}");
        }
        for (group, resource) in [
            ("", "pods"),
            ("", "namespaces"),
            ("", "nodes"),
            (RBAC, "roles"),
            ("apiregistration.k8s.io", "apiservices"),
            ("certificates.k8s.io", "clustertrustbundles"),
            ("apps", "controllerrevisions"),
        ] {
            assert!(may(&rights, "watch", group, resource), "{resource}");
            assert!(!may(&rights, "patch", group, resource), "{resource}");
        }
        let configurations = "validatingwebhookconfigurations";
        assert!(!may(&rights, "patch", REGISTRATION, configurations));
        assert!(!may(&rights, "create", REGISTRATION, configurations));
        let mut own = rights.cluster("guard").into_iter();
        let own = own.find(|rule| rule.resource_names == Some(vec!["guard".to_owned()])).unwrap();
        assert!(own.verbs.iter().any(|verb| verb == "patch"), "{own:?}");
        assert!(own.resources.unwrap().contains(&configurations.to_owned()));
    }

    #[test]
    fn a_kind_is_a_resource_with_or_without_a_group() {
        assert_eq!(parse_kind("secrets").unwrap(), ("".to_owned(), "secrets".to_owned()));
        let argo = parse_kind("argoproj.io/applications").unwrap();
        assert_eq!(argo, ("argoproj.io".to_owned(), "applications".to_owned()));
        for wrong in ["", "/", "apps/", "a/b/c", "Secrets", "*", "a b"] {
            let error = parse_kind(wrong).unwrap_err().to_string();
            assert!(error.contains("expected RESOURCE or GROUP/RESOURCE"), "{wrong}: {error}");
        }
    }
}
