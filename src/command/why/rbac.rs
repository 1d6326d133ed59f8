//! The RBAC objects that the current user may read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::{Api, ListParams};

use crate::cluster::{Listed, list_all};
use crate::command::document::FailedRead;
use crate::objects::ApiError;
use crate::policy::parse_service_account;

/// The group of all authenticated users.
pub const ALL_USERS: &str = "system:authenticated";

/// The group whose members the API server allows everything, without RBAC.
pub const MASTERS: &str = "system:masters";

/// A right that RBAC can grant.
#[derive(Debug, Clone, Copy)]
pub struct AccessRight<'a> {
    pub verb: &'static str,
    pub group: &'a str,
    pub resource: &'a str,
    /// The name of the object; empty for all objects.
    pub name: &'a str,
    /// The namespace of the object; empty for the whole cluster.
    pub namespace: &'a str,
}

/// A subject that RBAC names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grantee {
    User(String),
    Group(String),
    /// A service account, as `namespace/name`.
    Account(String),
}

impl fmt::Display for Grantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => f.write_str(name),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Account(name) => write!(f, "service account {name}"),
        }
    }
}

impl Grantee {
    fn from_subject(subject: &Subject) -> Option<Self> {
        let name = &subject.name;
        let namespace = subject.namespace.as_deref().unwrap_or_default();
        match subject.kind.as_str() {
            "User" => Some(Self::user(name)),
            "Group" => Some(Self::Group(name.clone())),
            "ServiceAccount" => Some(Self::Account(format!("{namespace}/{name}"))),
            _ => None,
        }
    }

    /// The subject of a username.
    pub fn user(name: &str) -> Self {
        match parse_service_account(name) {
            Some((namespace, name)) => Self::Account(format!("{namespace}/{name}")),
            None => Self::User(name.to_owned()),
        }
    }

    /// Whether the output names this subject as an approver.
    /// `accounts`: the service accounts whose approvals count.
    pub fn can_be_approver(&self, accounts: &[String]) -> bool {
        match self {
            // Names with this prefix belong to components of Kubernetes.
            Self::User(name) => !name.starts_with("system:"),
            Self::Group(name) => name != MASTERS && !name.starts_with("system:serviceaccounts"),
            Self::Account(name) => accounts.contains(name),
        }
    }
}

/// The roles and bindings of RBAC.
#[derive(Debug, Default)]
pub struct Rbac {
    pub cluster_bindings: Vec<ClusterRoleBinding>,
    pub cluster_roles: Vec<ClusterRole>,
    pub bindings: Vec<RoleBinding>,
    pub roles: Vec<Role>,
}

impl Rbac {
    /// The subjects to which RBAC grants a right by name.
    pub fn granted(&self, right: &AccessRight<'_>) -> BTreeSet<Grantee> {
        let cluster = self.cluster_bindings.iter().map(|b| ("", &b.role_ref, &b.subjects));
        let in_namespace = |binding: &&RoleBinding| {
            let namespace = binding.metadata.namespace.as_deref();
            !right.namespace.is_empty() && namespace == Some(right.namespace)
        };
        let namespaced = self.bindings.iter().filter(in_namespace);
        let namespaced = namespaced.map(|b| (right.namespace, &b.role_ref, &b.subjects));
        let granting = cluster.chain(namespaced).filter(|(namespace, role, _)| {
            self.rules(role, namespace).iter().any(|r| grants(r, right))
        });
        granting
            .flat_map(|(.., subjects)| subjects.iter().flatten())
            .filter_map(Grantee::from_subject)
            .collect()
    }

    /// The rules of a role. An aggregated role also contains the rules of the roles that it
    /// aggregates, because the control plane copies them.
    fn rules(&self, role: &RoleRef, namespace: &str) -> &[PolicyRule] {
        let rules = match role.kind.as_str() {
            "ClusterRole" => {
                let has_name = |one: &&ClusterRole| one.metadata.name.as_ref() == Some(&role.name);
                self.cluster_roles.iter().find(has_name).and_then(|one| one.rules.as_deref())
            }
            _ => {
                let has_name = |one: &&Role| {
                    one.metadata.name.as_ref() == Some(&role.name)
                        && one.metadata.namespace.as_deref() == Some(namespace)
                };
                self.roles.iter().find(has_name).and_then(|one| one.rules.as_deref())
            }
        };
        rules.unwrap_or_default()
    }
}

/// Whether a rule grants a right, as the RBAC authorizer of the API server decides it.
fn grants(rule: &PolicyRule, right: &AccessRight<'_>) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
    let names = rule.resource_names.as_deref().unwrap_or_default();
    has(&rule.verbs, right.verb)
        && has(rule.api_groups.as_deref().unwrap_or_default(), right.group)
        && has(rule.resources.as_deref().unwrap_or_default(), right.resource)
        && (names.is_empty() || names.iter().any(|name| name == right.name))
}

/// The subjects in both sets. A set with the group of all users contains every subject.
pub fn intersection(one: &BTreeSet<Grantee>, other: &BTreeSet<Grantee>) -> BTreeSet<Grantee> {
    let all_users = Grantee::Group(ALL_USERS.to_owned());
    let contains = |set: &BTreeSet<Grantee>, subject: &Grantee| {
        set.contains(subject) || set.contains(&all_users)
    };
    let common = one.iter().filter(|subject| contains(other, subject));
    common.chain(other.iter().filter(|subject| contains(one, subject))).cloned().collect()
}

/// Reads RBAC for several objects, each list once.
#[derive(Debug, Default)]
pub struct RbacReader {
    rbac: Rbac,
    /// The failed reads of each namespace; an empty name means the cluster.
    unread: BTreeMap<String, Vec<FailedRead>>,
}

impl RbacReader {
    /// The RBAC objects of the cluster and of at least these namespaces, and the failed reads.
    pub async fn read(
        &mut self,
        client: &kube::Client,
        namespaces: &BTreeSet<&str>,
    ) -> (&Rbac, Vec<FailedRead>) {
        let mut unread = Vec::new();
        let namespaces = namespaces.iter().copied().filter(|name| !name.is_empty());
        for namespace in [""].into_iter().chain(namespaces) {
            if !self.unread.contains_key(namespace) {
                let failed = match namespace {
                    "" => self.rbac.read_cluster(client).await,
                    namespace => self.rbac.read_namespace(client, namespace).await,
                };
                self.unread.insert(namespace.to_owned(), failed);
            }
            unread.extend(self.unread.get(namespace).into_iter().flatten().cloned());
        }
        (&self.rbac, unread)
    }
}

impl Rbac {
    async fn read_cluster(&mut self, client: &kube::Client) -> Vec<FailedRead> {
        let (bindings, roles) = tokio::join!(
            list_all::<ClusterRoleBinding>(Api::all(client.clone()), ListParams::default()),
            list_all::<ClusterRole>(Api::all(client.clone()), ListParams::default()),
        );
        let mut unread = Vec::new();
        self.cluster_bindings = objects_or_unread(bindings, "clusterrolebindings", &mut unread);
        self.cluster_roles = objects_or_unread(roles, "clusterroles", &mut unread);
        unread
    }

    async fn read_namespace(&mut self, client: &kube::Client, namespace: &str) -> Vec<FailedRead> {
        let all = || client.clone();
        let (bindings, roles) = tokio::join!(
            list_all::<RoleBinding>(Api::namespaced(all(), namespace), ListParams::default()),
            list_all::<Role>(Api::namespaced(all(), namespace), ListParams::default()),
        );
        let name = |plural: &str| format!("{plural} -n {namespace}");
        let mut unread = Vec::new();
        self.bindings.extend(objects_or_unread(bindings, &name("rolebindings"), &mut unread));
        self.roles.extend(objects_or_unread(roles, &name("roles"), &mut unread));
        unread
    }
}

/// The objects that were read. Failed reads are added to `unread`.
fn objects_or_unread<K>(
    read: Result<Listed<K>, ApiError>,
    name: &str,
    unread: &mut Vec<FailedRead>,
) -> Vec<K> {
    let error = match read {
        Ok(Listed { objects, unreadable }) if unreadable.is_empty() => return objects,
        Ok(Listed { objects, unreadable }) => {
            let why = format!("{} can't be read", unreadable.join(", "));
            unread.push(FailedRead { resource: name.to_owned(), why });
            return objects;
        }
        Err(error) => error,
    };
    unread.push(FailedRead::new(name, &error));
    Vec::new()
}
