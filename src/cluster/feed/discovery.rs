//! Which kinds are served, as the API server's discovery says.

use std::collections::{BTreeMap, HashMap, HashSet};

use kube::core::discovery::v2::{APIGroupDiscovery, APIGroupDiscoveryList};

use super::definitions::Definition;
use crate::cluster::world::{Served, World};
use crate::objects::{ApiError, KindInfo, Kinds};

/// What discovery says of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    info: KindInfo,
    served: Served,
}

/// Everything that discovery says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    kinds: Vec<Discovered>,
    /// Groups of which not all could be said: their server does not answer.
    stale: HashSet<String>,
}

/// Asks the API server.
pub async fn discover(client: &kube::Client) -> Result<Discovery, ApiError> {
    let core = client.list_core_api_versions_aggregated().await?;
    let groups = client.list_api_groups_aggregated().await?;
    Ok(Discovery::of([core, groups]))
}

impl Discovery {
    /// The groups of which nobody knows all kinds now.
    pub fn stale(&self) -> &HashSet<String> {
        &self.stale
    }

    fn of(lists: impl IntoIterator<Item = APIGroupDiscoveryList>) -> Self {
        let mut discovery = Self::default();
        for group in lists.into_iter().flat_map(|list| list.items) {
            discovery.group(group);
        }
        discovery
    }

    fn group(&mut self, group: APIGroupDiscovery) {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        let mut kinds: BTreeMap<String, Discovered> = BTreeMap::new();
        for version in group.versions {
            if version.freshness.as_deref() == Some("Stale") {
                self.stale.insert(name.clone());
            }
            let (Some(number), resources) = (version.version, version.resources) else { continue };
            for resource in resources {
                let kind = resource.response_kind.and_then(|kind| kind.kind);
                let (Some(plural), Some(kind)) = (resource.resource, kind) else { continue };
                let namespaced = resource.scope.as_deref() == Some("Namespaced");
                let can = |verb: &str| resource.verbs.iter().any(|v| v == verb);
                let served = Served { list: can("list"), watch: can("list") && can("watch") };
                let known = kinds.entry(plural.clone()).or_insert_with(|| Discovered {
                    info: KindInfo {
                        versions: Vec::new(),
                        ..Kinds::custom(&name, "", &kind, &plural, namespaced)
                    },
                    served,
                });
                known.info.versions.push(number.clone());
            }
        }
        self.kinds.extend(kinds.into_values());
    }

    /// Takes this in, and what CRDs define. `gone`: custom kinds that had a CRD
    /// once; discovery speaks of them for some seconds after it went.
    pub fn learn(
        &self,
        world: &mut World,
        definitions: &BTreeMap<String, Definition>,
        gone: &HashSet<(String, String)>,
    ) -> Learned {
        let defined: BTreeMap<(&str, &str), &Definition> = definitions
            .values()
            .map(|d| ((d.info.group.as_str(), d.info.resource.as_str()), d))
            .collect();
        let mut now: Vec<(KindInfo, Served)> = Vec::new();
        for Discovered { info, served } in &self.kinds {
            let pair = (info.group.as_str(), info.resource.as_str());
            let was = || gone.contains(&(info.group.clone(), info.resource.clone()));
            if !defined.contains_key(&pair) && !was() {
                now.push((info.clone(), *served));
            }
        }
        let custom = Served { list: true, watch: true };
        now.extend(defined.values().map(|definition| (definition.info.clone(), custom)));
        let (mut changed, mut moved) = (false, false);
        let mut served = HashMap::default();
        for (info, verbs) in now {
            let kinds = &mut world.graph.kinds;
            let known = kinds.known(&info.group, &info.kind);
            let known = known.map(|id| (id, kinds.info(id)));
            let info = match known {
                Some((_, known)) => merged(known, info),
                None => info,
            };
            let same = known.is_some_and(|(_, known)| *known == info);
            moved |= known.is_some_and(|(_, known)| known.namespaced != info.namespaced);
            let id = match known {
                Some((id, _)) if same => id,
                _ => kinds.learn(info),
            };
            changed |= !same;
            served.insert(id, verbs);
        }
        let kinds = &world.graph.kinds;
        // What a server that does not answer may still serve is not gone.
        for (id, verbs) in &world.served {
            if self.stale.contains(&kinds.info(*id).group) {
                served.entry(*id).or_insert(*verbs);
            }
        }
        let vanished: Vec<_> = kinds
            .iter()
            .filter(|(id, info)| {
                let stale = self.stale.contains(&info.group);
                !info.versions.is_empty() && !served.contains_key(id) && !stale
            })
            .map(|(id, _)| id)
            .collect();
        changed |= !vanished.is_empty() || served != world.served;
        for id in vanished {
            world.graph.kinds.forget(id);
        }
        world.served = served;
        Learned { changed, moved }
    }
}

/// What taking in discovery came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learned {
    /// Whether a kind has come, changed or gone.
    pub changed: bool,
    /// Whether objects of a kind that was known or mentioned live elsewhere
    /// than was believed: in namespaces, or not.
    pub moved: bool,
}

/// What is new of a kind. The default of a kind's DELETE stands in no
/// discovery; and of the versions of a kind of Kubernetes itself the one that
/// relations were written for comes first.
fn merged(known: &KindInfo, new: KindInfo) -> KindInfo {
    let mut versions = new.versions.clone();
    if Kinds::is_built_in(&new.group, &new.resource) {
        versions.sort_by_key(|version| {
            known.versions.iter().position(|v| v == version).unwrap_or(usize::MAX)
        });
    }
    KindInfo { versions, default_propagation: known.default_propagation, ..new }
}
