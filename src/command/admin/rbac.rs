//! The ServiceAccount of the replicas and its permissions.
//!
//! RBAC can grant access to named kinds or to all kinds, but not to all kinds except
//! Secrets. So belay gets read access to the kinds of its built-in relations without Secrets, and
//! administrators add other kinds. The conditions of a policy report missing permissions.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::yaml;
use crate::command::CommandError;
use crate::command::serve::{LABELLED_KINDS, parse_kinds};
use crate::objects::CRDS;
use crate::policy::api::GROUP;
use crate::relations::related_kinds;

const READ: &[&str] = &["get", "list", "watch"];
const CHANGE: &[&str] = &["patch", "update"];
const RBAC: &str = "rbac.authorization.k8s.io";
const REGISTRATION: &str = "admissionregistration.k8s.io";

/// The kinds that the administrator adds.
#[derive(Debug, Default)]
pub(super) struct ExtraKinds {
    /// Kinds by group and plural name.
    pub(super) also: Vec<(String, String)>,
    /// Whether belay gets access to every kind.
    pub(super) everything: bool,
}

/// Parses a kind such as `secrets` or `apps/deployments`.
pub(super) fn parse_kind(text: &str) -> Result<(String, String), CommandError> {
    let (group, resource) = text.split_once('/').unwrap_or(("", text));
    let is_valid_char =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_valid = !resource.is_empty() && resource.chars().chain(group.chars()).all(is_valid_char);
    if !is_valid {
        return Err(CommandError::Usage(format!(
            "--watch-also is \"{text}\"; expected RESOURCE or GROUP/RESOURCE, such as secrets or \
             apps/deployments"
        )));
    }
    Ok((group.to_owned(), resource.to_owned()))
}

impl ExtraKinds {
    /// The ServiceAccount, its roles and their bindings, each as one document.
    pub(super) fn documents(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<String>, CommandError> {
        let cluster_scoped = || ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespaced =
            || ObjectMeta { namespace: Some(namespace.to_owned()), ..cluster_scoped() };
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
            yaml(&ServiceAccount { metadata: namespaced(), ..ServiceAccount::default() })?,
            yaml(&ClusterRole {
                metadata: cluster_scoped(),
                rules: Some(self.cluster_rules(name)),
                ..ClusterRole::default()
            })?,
            yaml(&ClusterRoleBinding {
                metadata: cluster_scoped(),
                role_ref: role_ref("ClusterRole"),
                subjects: subjects(),
            })?,
            yaml(&Role { metadata: namespaced(), rules: Some(namespace_rules(name)) })?,
            yaml(&RoleBinding {
                metadata: namespaced(),
                role_ref: role_ref("Role"),
                subjects: subjects(),
            })?,
        ])
    }

    /// The permissions in the whole cluster.
    fn cluster_rules(&self, name: &str) -> Vec<PolicyRule> {
        let also = || self.also.iter().map(|(g, r)| (g.as_str(), r.as_str()));
        let mut read: BTreeSet<(&str, &str)> = related_kinds();
        // The administrator must request access to Secrets.
        read.remove(&("", "secrets"));
        read.extend(ALWAYS_READ);
        read.extend(also());
        let mut rules = if self.everything {
            vec![rule(&["*"], &["*"], READ), rule(&["*"], &["*"], CHANGE)]
        } else {
            // To add and remove the hold, belay needs these verbs, and RBAC has no narrower
            // permission. So belay gets them only for the kinds that the policies of the chart or
            // the label hold, and for the kinds that the administrator adds.
            let labelled = parse_kinds(LABELLED_KINDS);
            let labelled = labelled.iter().map(|(g, r)| (g.as_str(), r.as_str()));
            let held: BTreeSet<_> =
                HELD_BY_CHART.into_iter().chain(labelled).chain(also()).collect();
            let mut rules = rules_by_group(&read, READ);
            rules.extend(rules_by_group(&held, CHANGE));
            rules
        };
        rules.extend([
            // The leader updates and watches both webhook configurations. It never creates them,
            // so that they stay deleted after an uninstall.
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
            // belay records an exemption as an approval, so it needs the verb approve-deletion,
            // which allows nothing else. belay deletes expired approvals.
            rule(&[GROUP], &["deletionapprovals"], &["create", "patch", "delete"]),
            rule(&["*"], &["*"], &["approve-deletion"]),
            // belay creates an Event in the namespace of its object, which can be any namespace.
            rule(&[""], &["events"], &["create", "patch"]),
        ]);
        rules
    }
}

/// The kinds that the policies of the chart hold. Disabled policies count, because belay must
/// still release their holds.
const HELD_BY_CHART: [(&str, &str); 5] = [
    ("", "configmaps"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "storageclasses"),
];

/// The kinds that belay always reads: containers, APIs and owners.
const ALWAYS_READ: [(&str, &str); 8] = [
    ("", "namespaces"),
    CRDS,
    ("apiregistration.k8s.io", "apiservices"),
    ("apps", "controllerrevisions"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
];

/// The permissions in belay's own namespace. RBAC can't restrict the verb create to names.
fn namespace_rules(name: &str) -> Vec<PolicyRule> {
    let [path, tls] = ["path", "tls"].map(|suffix| format!("{name}-{suffix}"));
    vec![
        // The Leases of the leader election and of the served certificates. Names can't
        // restrict these, because replicas get new names.
        rule(
            &["coordination.k8s.io"],
            &["leases"],
            &["get", "list", "create", "update", "patch", "delete"],
        ),
        // The Secrets with the secret paths and with the certificate.
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

/// One rule for each API group.
fn rules_by_group(kinds: &BTreeSet<(&str, &str)>, verbs: &[&str]) -> Vec<PolicyRule> {
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
        rights.cluster_rules("belay").iter().any(|rule| {
            rule.resource_names.is_none()
                && has(&rule.verbs, verb)
                && has(rule.api_groups.as_deref().unwrap(), group)
                && has(rule.resources.as_deref().unwrap(), resource)
        })
    }

    #[test]
    fn secrets_are_readable_only_on_request() {
        let rights = ExtraKinds::default();
        for verb in ["get", "list", "watch", "patch", "update"] {
            assert!(!may(&rights, verb, "", "secrets"), "{verb}");
        }
        let asked = ExtraKinds { also: vec![parse_kind("secrets").unwrap()], everything: false };
        assert!(may(&asked, "list", "", "secrets") && may(&asked, "patch", "", "secrets"));
        assert!(may(&ExtraKinds { also: Vec::new(), everything: true }, "watch", "", "secrets"));
    }

    #[test]
    fn reads_known_kinds_and_patches_only_kinds_that_get_holds() {
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
        let mut own = rights.cluster_rules("guard").into_iter();
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
