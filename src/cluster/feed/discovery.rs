//! What the world learns from discovery and from CRDs.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::crds::Crd;
use crate::cluster::discovery::{DiscoveredKind, Discovery};
use crate::cluster::world::{ServedVerbs, World};
use crate::objects::{KindInfo, Kinds};

impl Discovery {
    /// Applies the result, and the CRDs. `gone`: custom kinds whose CRD was deleted;
    /// discovery lists them for some seconds longer.
    pub fn learn(
        &self,
        world: &mut World,
        crds: &BTreeMap<String, Crd>,
        gone: &HashSet<(String, String)>,
    ) -> DiscoveryChange {
        let defined: BTreeMap<(&str, &str), &Crd> =
            crds.values().map(|d| ((d.info.group.as_str(), d.info.resource.as_str()), d)).collect();
        let mut now: Vec<(KindInfo, ServedVerbs)> = Vec::new();
        // The versions of a kind are one kind, and the first one says what it is.
        let mut places: HashMap<(&str, &str), usize> = HashMap::new();
        for DiscoveredKind { info, served, .. } in &self.kinds {
            let pair = (info.group.as_str(), info.resource.as_str());
            if let Some(place) = places.get(&pair) {
                now[*place].0.versions.extend_from_slice(&info.versions);
                continue;
            }
            let was = || gone.contains(&(info.group.clone(), info.resource.clone()));
            if !defined.contains_key(&pair) && !was() {
                places.insert(pair, now.len());
                now.push((info.clone(), *served));
            }
        }
        let custom = ServedVerbs { list: true, watch: true };
        now.extend(defined.values().map(|definition| (definition.info.clone(), custom)));
        let (mut changed, mut moved) = (false, false);
        let mut served = HashMap::default();
        for (info, verbs) in now {
            let kinds = &mut world.graph.kinds;
            let known = kinds.find_mentioned(&info.group, &info.kind);
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
        // A kind does not count as removed while its server does not answer.
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
        DiscoveryChange { changed, moved }
    }
}

/// What taking in discovery came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscoveryChange {
    /// Whether a kind was added, changed or removed.
    pub changed: bool,
    /// Whether the scope of a known kind has changed between namespaced and
    /// cluster-scoped.
    pub moved: bool,
}

/// Merges the known and the discovered kind. Discovery does not contain the default
/// propagation policy, and the version that relations were written for stays first for
/// built-in kinds.
fn merged(known: &KindInfo, new: KindInfo) -> KindInfo {
    let mut versions = new.versions.clone();
    if Kinds::is_built_in(&new.group, &new.resource) {
        versions.sort_by_key(|version| {
            known.versions.iter().position(|v| v == version).unwrap_or(usize::MAX)
        });
    }
    KindInfo { versions, default_propagation: known.default_propagation, ..new }
}
