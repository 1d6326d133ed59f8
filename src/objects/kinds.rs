//! The table of kinds. Each kind has a number of two bytes, which saves memory in the graph.

use std::sync::{Arc, LazyLock};

use hashbrown::{Equivalent, HashMap};

use super::KeyedHasher;
use super::builtin::BUILT_IN;

/// A kind, as [`Kinds`] numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindId(u16);

/// The number that all mentioned kinds beyond [`MAX_MENTIONED`] share. It is never served.
const OVERFLOW: KindId = KindId(0);

/// A mention gets a new number only while the table has fewer kinds than this. Any user can mention
/// kinds in owner references. These mentions must not use up the numbers for served kinds.
const MAX_MENTIONED: usize = 10_000;

/// The longest group and the longest kind that the API server accepts, in bytes.
const MAX_GROUP_BYTES: usize = 253;
const MAX_KIND_BYTES: usize = 63;

/// What a DELETE without options does to the dependents of an object of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultPropagation {
    /// The garbage collector deletes dependents after the owner.
    Background,
    /// The garbage collector orphans them: batch/v1 Job and v1 ReplicationController.
    Orphan,
    /// The kind takes no part in garbage collection: Event.
    None,
}

/// The known data of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindInfo {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind, for example `PersistentVolumeClaim`.
    pub kind: String,
    /// The plural name in URLs, for example `persistentvolumeclaims`.
    pub resource: String,
    /// The served versions; empty if the kind is only mentioned.
    pub versions: Vec<String>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// What a DELETE without options does.
    pub default_propagation: DefaultPropagation,
}

/// All known or mentioned kinds. Clones share the table until one of them changes.
#[derive(Debug, Clone)]
pub struct Kinds(Arc<Table>);

#[derive(Debug, Clone)]
struct Table {
    infos: Vec<KindInfo>,
    by_kind: HashMap<(String, String), KindId, KeyedHasher>,
    by_resource: HashMap<(String, String), KindId, KeyedHasher>,
}

/// A borrowed key, so that a lookup allocates nothing. It has the same hash as the owned pair.
#[derive(Hash)]
struct Pair<'a>(&'a str, &'a str);

impl Equivalent<(String, String)> for Pair<'_> {
    fn equivalent(&self, key: &(String, String)) -> bool {
        self.0 == key.0 && self.1 == key.1
    }
}

impl Default for Kinds {
    /// The built-in kinds.
    fn default() -> Self {
        let mut kinds = Self(Arc::new(Table {
            infos: vec![unserved("", "")],
            by_kind: HashMap::default(),
            by_resource: HashMap::default(),
        }));
        for &(group, versions, kind, resource, namespaced) in BUILT_IN {
            kinds.learn(KindInfo {
                group: group.to_owned(),
                kind: kind.to_owned(),
                resource: resource.to_owned(),
                versions: versions.split(' ').map(str::to_owned).collect(),
                namespaced,
                default_propagation: default_propagation(group, resource),
            });
        }
        kinds
    }
}

/// A kind that is only mentioned.
fn unserved(group: &str, kind: &str) -> KindInfo {
    KindInfo {
        group: group.to_owned(),
        kind: kind.to_owned(),
        resource: String::new(),
        versions: Vec::new(),
        namespaced: true,
        default_propagation: DefaultPropagation::Background,
    }
}

/// R8: the default of a kind.
fn default_propagation(group: &str, resource: &str) -> DefaultPropagation {
    match (group, resource) {
        ("batch", "jobs") | ("", "replicationcontrollers") => DefaultPropagation::Orphan,
        ("" | "events.k8s.io", "events") => DefaultPropagation::None,
        _ => DefaultPropagation::Background,
    }
}

impl Kinds {
    /// Adds or updates a kind from discovery or a CRD. A known or mentioned kind keeps
    /// its number.
    pub fn learn(&mut self, info: KindInfo) -> KindId {
        let id = self.find_or_insert(&info.group, &info.kind, usize::from(u16::MAX));
        if id == OVERFLOW {
            return id;
        }
        let table = Arc::make_mut(&mut self.0);
        table.by_resource.insert((info.group.clone(), info.resource.clone()), id);
        table.infos[usize::from(id.0)] = info;
        id
    }

    /// The data of the kind of a custom resource.
    pub fn custom(
        group: &str,
        version: &str,
        kind: &str,
        resource: &str,
        namespaced: bool,
    ) -> KindInfo {
        KindInfo {
            group: group.to_owned(),
            kind: kind.to_owned(),
            resource: resource.to_owned(),
            versions: vec![version.to_owned()],
            namespaced,
            default_propagation: DefaultPropagation::Background,
        }
    }

    /// Whether this is a built-in resource.
    pub fn is_built_in(group: &str, resource: &str) -> bool {
        BUILT_IN.iter().any(|row| row.0 == group && row.3 == resource)
    }

    /// Whether this is a built-in group; others come from CRDs and aggregated API
    /// servers.
    pub fn is_built_in_group(group: &str) -> bool {
        BUILT_IN.iter().any(|row| row.0 == group)
    }

    /// The built-in kinds whose dependents a DELETE without options orphans.
    pub fn orphaning_by_default() -> impl Iterator<Item = (&'static str, &'static str)> {
        let kinds = BUILT_IN.iter().map(|row| (row.0, row.3));
        kinds.filter(|(group, resource)| {
            default_propagation(group, resource) == DefaultPropagation::Orphan
        })
    }

    /// Marks a kind as not served. References to it stay, but can't be resolved.
    pub fn forget(&mut self, id: KindId) {
        if let Some(info) = Arc::make_mut(&mut self.0).infos.get_mut(usize::from(id.0)) {
            info.versions.clear();
        }
    }

    /// The number of a kind that a reference mentions. Kinds beyond the limit share one
    /// number, which is never served.
    pub fn mention(&mut self, group: &str, kind: &str) -> KindId {
        // Mentions stay in the table, and any client can mention a name of a megabyte. No
        // served kind has a name above these limits.
        if group.len() > MAX_GROUP_BYTES || kind.len() > MAX_KIND_BYTES {
            return OVERFLOW;
        }
        self.find_or_insert(group, kind, MAX_MENTIONED)
    }

    fn find_or_insert(&mut self, group: &str, kind: &str, limit: usize) -> KindId {
        if let Some(id) = self.find_mentioned(group, kind) {
            return id;
        }
        let Some(number) =
            u16::try_from(self.0.infos.len()).ok().filter(|n| usize::from(*n) < limit)
        else {
            return OVERFLOW;
        };
        let id = KindId(number);
        let table = Arc::make_mut(&mut self.0);
        table.infos.push(unserved(group, kind));
        table.by_kind.insert((group.to_owned(), kind.to_owned()), id);
        id
    }

    /// A served kind, by group and kind.
    pub fn find(&self, group: &str, kind: &str) -> Option<KindId> {
        self.find_mentioned(group, kind).filter(|id| self.is_served(*id))
    }

    /// A kind by group and kind, whether it is served or only mentioned.
    pub fn find_mentioned(&self, group: &str, kind: &str) -> Option<KindId> {
        self.0.by_kind.get(&Pair(group, kind)).copied()
    }

    /// The kind of Namespaces. Each verdict asks for it several times.
    pub fn namespace(&self) -> Option<KindId> {
        // A known kind keeps its number, and all tables start with the same built-in kinds.
        static ID: LazyLock<Option<KindId>> =
            LazyLock::new(|| Kinds::default().find("", "Namespace"));
        ID.filter(|id| self.is_served(*id))
    }

    /// The kind of CRDs.
    pub fn crd(&self) -> Option<KindId> {
        static ID: LazyLock<Option<KindId>> =
            LazyLock::new(|| Kinds::default().find_resource(CRDS.0, CRDS.1));
        ID.filter(|id| self.is_served(*id))
    }

    /// A served kind, by group and resource.
    pub fn find_resource(&self, group: &str, resource: &str) -> Option<KindId> {
        let id = *self.0.by_resource.get(&Pair(group, resource))?;
        self.is_served(id).then_some(id)
    }

    /// The known data of a kind.
    pub fn info(&self, id: KindId) -> &KindInfo {
        // The table never shrinks, so its own numbers are valid. The table of live reads may have
        // higher numbers, which must not cause a panic here.
        &self.0.infos[usize::from(id.0).min(self.0.infos.len() - 1)]
    }

    /// Whether any version is served.
    pub fn is_served(&self, id: KindId) -> bool {
        !self.info(id).versions.is_empty()
    }

    /// Whether this version is served.
    pub fn serves(&self, id: KindId, version: &str) -> bool {
        self.info(id).versions.iter().any(|v| v == version)
    }

    /// Whether both share one table, because neither has changed since the clone.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Every kind with its number.
    pub fn iter(&self) -> impl Iterator<Item = (KindId, &KindInfo)> {
        self.0
            .infos
            .iter()
            .enumerate()
            .filter_map(|(number, info)| Some((KindId(u16::try_from(number).ok()?), info)))
    }
}

/// Whether this is the kind of Namespaces.
pub fn is_namespace(group: &str, resource: &str) -> bool {
    (group, resource) == NAMESPACES
}

/// The kind of Namespaces: its group and plural name.
pub const NAMESPACES: (&str, &str) = ("", "namespaces");

/// The kind of CRDs: its group and plural name.
pub const CRDS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// The kind of claims: its group and plural name.
pub const CLAIMS: (&str, &str) = ("", "persistentvolumeclaims");

/// The kind of volumes: its group and plural name.
pub const VOLUMES: (&str, &str) = ("", "persistentvolumes");

/// The kind of StatefulSets: its group and plural name.
pub const STATEFUL_SETS: (&str, &str) = ("apps", "statefulsets");

/// The kinds that `kubectl scale` can scale to 0: their groups and plural names.
pub const SCALABLE: &[(&str, &str)] = &[
    ("apps", "deployments"),
    STATEFUL_SETS,
    ("apps", "replicasets"),
    ("", "replicationcontrollers"),
];

/// The prefix of the names of the claims from this template of a StatefulSet. The ordinal follows.
pub fn claim_prefix(template: &str, stateful_set: &str) -> String {
    format!("{template}-{stateful_set}-")
}

/// The kind of StorageClasses: its group and plural name.
pub const STORAGE_CLASSES: (&str, &str) = ("storage.k8s.io", "storageclasses");

/// The plural name of a kind, with its group after a dot.
pub fn full_name(group: &str, resource: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    format!("{resource}{dot}{group}")
}

/// Splits the output of [`full_name`] into resource and group. The name of a CRD is such a text.
pub fn split_full_name(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

/// A kind in the chart value `rbac.watchAlso`.
pub fn watch_also_value(group: &str, resource: &str) -> String {
    let slash = if group.is_empty() { "" } else { "/" };
    format!("{group}{slash}{resource}")
}

/// Splits an `apiVersion` into group and version.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl KindInfo {
    /// The group and the version in which belay requests the kind: `apps/v1`.
    pub fn api_version(&self) -> String {
        let version = self.versions.first().map_or("v1", String::as_str);
        match self.group.as_str() {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        }
    }

    /// Whether it is the kind of Secrets. belay reads only the metadata of a Secret.
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && self.resource == "secrets"
    }

    /// Whether a controller of Kubernetes creates and re-creates objects of the kind `created` for
    /// their owner, an object of this kind.
    pub fn creates(&self, created: &Self) -> bool {
        match self.group_resource() {
            ("apps", "deployments") => created.group_resource() == ("apps", "replicasets"),
            ("batch", "cronjobs") => created.group_resource() == ("batch", "jobs"),
            ("", "services") => created.group_resource() == ("discovery.k8s.io", "endpointslices"),
            ("", "replicationcontrollers") | ("apps", "replicasets") | ("batch", "jobs") => {
                created.group_resource() == ("", "pods")
            }
            ("apps", "statefulsets" | "daemonsets") => {
                matches!(created.group_resource(), ("", "pods") | ("apps", "controllerrevisions"))
            }
            _ => false,
        }
    }

    /// The namespace of an object of this kind: `namespace`, or empty for a cluster-scoped kind.
    pub fn namespace_or_empty<'n>(&self, namespace: &'n str) -> &'n str {
        if self.namespaced { namespace } else { "" }
    }

    /// The group and the plural name.
    pub fn group_resource(&self) -> (&str, &str) {
        (&self.group, &self.resource)
    }

    /// The plural name of the kind, with its group after a dot.
    pub fn full_name(&self) -> String {
        full_name(&self.group, &self.resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_kinds_are_found_by_both_names() {
        let kinds = Kinds::default();
        let id = kinds.find("", "PersistentVolumeClaim").unwrap();
        assert_eq!(kinds.find_resource("", "persistentvolumeclaims"), Some(id));
        assert!(kinds.serves(id, "v1") && !kinds.serves(id, "v2"));
        let job = kinds.info(kinds.find("batch", "Job").unwrap());
        assert_eq!(job.default_propagation, DefaultPropagation::Orphan);
    }

    #[test]
    fn mentions_do_not_use_up_the_numbers_of_served_kinds() {
        let mut kinds = Kinds::default();
        for n in 0..100_000 {
            kinds.mention("example.com", &format!("Nothing{n}"));
        }
        let more = kinds.mention("example.com", "OneMore");
        assert!(!kinds.is_served(more));
        let one = kinds.learn(Kinds::custom("example.com", "v1", "One", "ones", true));
        let two = kinds.learn(Kinds::custom("example.com", "v1", "Two", "twos", true));
        assert_ne!(one, two);
        assert_eq!(kinds.find("example.com", "One"), Some(one));
        let more = kinds.mention("example.com", "OneMore");
        assert!(!kinds.is_served(more));
    }

    #[test]
    fn clones_share_the_table_until_a_change() {
        let mut kinds = Kinds::default();
        let clone = kinds.clone();
        kinds.mention("", "Pod");
        kinds.mention("", &"K".repeat(64));
        assert!(kinds.is_same(&clone));
        let id = kinds.mention("example.com", "Widget");
        assert!(!kinds.is_same(&clone) && clone.find_mentioned("example.com", "Widget").is_none());
        assert_eq!(kinds.find_mentioned("example.com", "Widget"), Some(id));
    }

    #[test]
    fn a_mention_that_is_longer_than_any_kind_is_not_kept() {
        let mut kinds = Kinds::default();
        let before = kinds.iter().count();
        assert_eq!(kinds.mention("", &"K".repeat(1 << 20)), OVERFLOW);
        assert_eq!(kinds.mention(&"g".repeat(1 << 20), "Kind"), OVERFLOW);
        assert_eq!(kinds.iter().count(), before);
    }

    #[test]
    fn a_mentioned_kind_keeps_its_number_when_it_is_learnt_and_forgotten() {
        let mut kinds = Kinds::default();
        let id = kinds.mention("example.com", "Widget");
        assert_eq!(kinds.find("example.com", "Widget"), None);
        assert_eq!(kinds.find_mentioned("example.com", "Widget"), Some(id));
        assert_eq!(kinds.find_mentioned("example.com", "Gadget"), None);
        let info = Kinds::custom("example.com", "v1", "Widget", "widgets", true);
        assert_eq!(kinds.learn(info), id);
        assert_eq!(kinds.find_resource("example.com", "widgets"), Some(id));
        kinds.forget(id);
        assert_eq!(kinds.find("example.com", "Widget"), None);
        assert_eq!(kinds.mention("example.com", "Widget"), id);
    }
}
