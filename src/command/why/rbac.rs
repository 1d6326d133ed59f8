//! The content of RBAC, as far as the current user may read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::{Api, ListParams};

use crate::cluster::{Listed, list_all};
use crate::command::document::FailedRead;
use crate::objects::ApiError;
use crate::policy::service_account;

/// All authenticated users.
pub const EVERYBODY: &str = "system:authenticated";

/// The group that may do everything, regardless of RBAC.
pub const MASTERS: &str = "system:masters";

/// Something that RBAC allows or does not.
#[derive(Debug, Clone, Copy)]
pub struct AccessRight<'a> {
    pub verb: &'static str,
    pub group: &'a str,
    pub resource: &'a str,
    /// Empty: every name.
    pub name: &'a str,
    /// Empty: in the whole cluster.
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
    fn of(subject: &Subject) -> Option<Self> {
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
        match service_account(name) {
            Some((namespace, name)) => Self::Account(format!("{namespace}/{name}")),
            None => Self::User(name.to_owned()),
        }
    }

    /// Whether a yes of theirs counts, and is worth a word.
    pub fn counts(&self, accounts: &[String]) -> bool {
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
        let everywhere = self.cluster_bindings.iter().map(|b| ("", &b.role_ref, &b.subjects));
        let here = |binding: &&RoleBinding| {
            let namespace = binding.metadata.namespace.as_deref();
            !right.namespace.is_empty() && namespace == Some(right.namespace)
        };
        let here = self.bindings.iter().filter(here);
        let here = here.map(|b| (right.namespace, &b.role_ref, &b.subjects));
        let granting = everywhere
            .chain(here)
            .filter(|(place, role, _)| self.rules(role, place).iter().any(|r| grants(r, right)));
        granting
            .flat_map(|(.., subjects)| subjects.iter().flatten())
            .filter_map(Grantee::of)
            .collect()
    }

    /// The rules of a role. The control plane writes the rules of aggregated roles into the
    /// role, so the other roles need no read.
    fn rules(&self, role: &RoleRef, namespace: &str) -> &[PolicyRule] {
        let rules = match role.kind.as_str() {
            "ClusterRole" => {
                let is_it = |one: &&ClusterRole| one.metadata.name.as_ref() == Some(&role.name);
                self.cluster_roles.iter().find(is_it).and_then(|one| one.rules.as_deref())
            }
            _ => {
                let is_it = |one: &&Role| {
                    one.metadata.name.as_ref() == Some(&role.name)
                        && one.metadata.namespace.as_deref() == Some(namespace)
                };
                self.roles.iter().find(is_it).and_then(|one| one.rules.as_deref())
            }
        };
        rules.unwrap_or_default()
    }
}

/// Whether a rule grants a right, by the rules of the API server's authorizer.
fn grants(rule: &PolicyRule, right: &AccessRight<'_>) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
    let names = rule.resource_names.as_deref().unwrap_or_default();
    has(&rule.verbs, right.verb)
        && has(rule.api_groups.as_deref().unwrap_or_default(), right.group)
        && has(rule.resources.as_deref().unwrap_or_default(), right.resource)
        && (names.is_empty() || names.iter().any(|name| name == right.name))
}

/// The subjects in both sets. A set with all users contains every subject.
pub fn both(one: &BTreeSet<Grantee>, other: &BTreeSet<Grantee>) -> BTreeSet<Grantee> {
    let everybody = Grantee::Group(EVERYBODY.to_owned());
    let within =
        |who: &Grantee, set: &BTreeSet<Grantee>| set.contains(who) || set.contains(&everybody);
    let here = one.iter().filter(|who| within(who, other));
    here.chain(other.iter().filter(|who| within(who, one))).cloned().collect()
}

/// Reads RBAC for several objects, each list once.
#[derive(Debug, Default)]
pub struct RbacReader {
    rbac: Rbac,
    /// The failed reads of each namespace; an empty name stands for the cluster.
    unread: BTreeMap<String, Vec<FailedRead>>,
}

impl RbacReader {
    /// The RBAC objects of at least these namespaces and of the cluster, and what of these
    /// could not be read.
    pub async fn read(
        &mut self,
        client: &kube::Client,
        places: &BTreeSet<&str>,
    ) -> (&Rbac, Vec<FailedRead>) {
        let mut unread = Vec::new();
        for place in [""].into_iter().chain(places.iter().copied().filter(|p| !p.is_empty())) {
            if !self.unread.contains_key(place) {
                let failed = match place {
                    "" => self.rbac.read_cluster(client).await,
                    place => self.rbac.read_namespace(client, place).await,
                };
                self.unread.insert(place.to_owned(), failed);
            }
            unread.extend(self.unread.get(place).into_iter().flatten().cloned());
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
        self.cluster_bindings = read_or(bindings, "clusterrolebindings", &mut unread);
        self.cluster_roles = read_or(roles, "clusterroles", &mut unread);
        unread
    }

    async fn read_namespace(&mut self, client: &kube::Client, place: &str) -> Vec<FailedRead> {
        let all = || client.clone();
        let (bindings, roles) = tokio::join!(
            list_all::<RoleBinding>(Api::namespaced(all(), place), ListParams::default()),
            list_all::<Role>(Api::namespaced(all(), place), ListParams::default()),
        );
        let name = |plural: &str| format!("{plural} -n {place}");
        let mut unread = Vec::new();
        self.bindings.extend(read_or(bindings, &name("rolebindings"), &mut unread));
        self.roles.extend(read_or(roles, &name("roles"), &mut unread));
        unread
    }
}

/// The read objects, or none and a note about the failure.
fn read_or<K>(
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
