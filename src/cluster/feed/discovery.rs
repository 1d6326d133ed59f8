//! Applies discovery and CRDs to the kinds of the world.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::crds::Crd;
use crate::cluster::discovery::{DiscoveredKind, Discovery};
use crate::cluster::world::{ServedVerbs, World};
use crate::objects::{KindInfo, Kinds, ServedKind};

impl Discovery {
    /// Applies discovery and the CRDs. `had_crd`: all custom kinds that have had a CRD.
    /// Discovery lists such a kind for some seconds after its CRD was deleted.
    pub fn learn(
        &self,
        world: &mut World,
        crds: &BTreeMap<String, Crd>,
        had_crd: &HashSet<(String, String)>,
    ) -> DiscoveryChange {
        let custom_kinds: BTreeMap<(&str, &str), &Crd> =
            crds.values().map(|c| ((c.info.group.as_str(), c.info.resource.as_str()), c)).collect();
        let mut current: Vec<(KindInfo, ServedVerbs)> = Vec::new();
        // Discovery lists a kind once for each version. The first one decides its scope and name.
        let mut indexes: HashMap<(&str, &str), usize> = HashMap::new();
        for DiscoveredKind { kind: ServedKind { info, .. }, served } in &self.kinds {
            let pair = (info.group.as_str(), info.resource.as_str());
            if let Some(index) = indexes.get(&pair) {
                current[*index].0.versions.extend_from_slice(&info.versions);
                continue;
            }
            let is_deleted = || had_crd.contains(&(info.group.clone(), info.resource.clone()));
            if !custom_kinds.contains_key(&pair) && !is_deleted() {
                indexes.insert(pair, current.len());
                current.push((info.clone(), *served));
            }
        }
        let verbs = ServedVerbs { list: true, watch: true };
        current.extend(custom_kinds.values().map(|crd| (crd.info.clone(), verbs)));
        let (mut changed, mut scope_changed) = (false, false);
        let mut served = HashMap::default();
        for (info, verbs) in current {
            let kinds = &mut world.graph.kinds;
            let known = kinds.find_mentioned(&info.group, &info.kind);
            let known = known.map(|id| (id, kinds.info(id)));
            let info = match known {
                Some((_, known)) => merged(known, info),
                None => info,
            };
            let same = known.is_some_and(|(_, known)| *known == info);
            scope_changed |= known.is_some_and(|(_, known)| known.namespaced != info.namespaced);
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
            if self.unavailable_groups.contains(&kinds.info(*id).group) {
                served.entry(*id).or_insert(*verbs);
            }
        }
        let vanished: Vec<_> = kinds
            .iter()
            .filter(|(id, info)| {
                let unavailable = self.unavailable_groups.contains(&info.group);
                !info.versions.is_empty() && !served.contains_key(id) && !unavailable
            })
            .map(|(id, _)| id)
            .collect();
        changed |= !vanished.is_empty() || served != world.served;
        for id in vanished {
            world.graph.kinds.forget(id);
        }
        world.served = served;
        DiscoveryChange { changed, scope_changed }
    }
}

/// What discovery changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscoveryChange {
    /// Whether a kind was added, changed or removed.
    pub changed: bool,
    /// Whether the scope of a known kind has changed between namespaced and
    /// cluster-scoped.
    pub scope_changed: bool,
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
