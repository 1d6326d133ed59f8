//! Decides which kinds an uninstall lists.

use std::collections::{BTreeSet, HashSet};

use crate::cluster::context::Settings;
use crate::cluster::feed::plan::{labelled_kinds, policies, target_kinds};
use crate::cluster::world::World;
use crate::decide::is_hold_unsafe_on_kind;
use crate::objects::{KindId, KindInfo};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedKind {
    pub kind: KindId,
    pub info: KindInfo,
    /// Whether belay may have added holds to its objects. Objects of other kinds can have a hold
    /// that a client copied.
    pub may_be_held: bool,
}

/// All kinds that can be listed. Kinds that may have holds come first. Events are omitted, because
/// there are many and no policy protects them. `record` contains the kinds of belay's record.
pub fn listed_kinds(
    world: &World,
    settings: &Settings,
    record: &BTreeSet<String>,
) -> Vec<ListedKind> {
    let kinds = &world.graph.kinds;
    let named: BTreeSet<KindId> = policies(world)
        .flat_map(|policy| target_kinds(world, policy))
        .filter(|kind| {
            let info = kinds.info(*kind);
            !is_hold_unsafe_on_kind(&info.group, &info.resource)
        })
        .chain(labelled_kinds(world, &settings.labelled))
        .collect();
    let listed = kinds.iter().filter(|(kind, info)| {
        info.resource != "events" && world.served.get(kind).is_some_and(|served| served.list)
    });
    let mut listed: Vec<ListedKind> = listed
        .map(|(kind, info)| ListedKind {
            kind,
            may_be_held: named.contains(&kind) || record.contains(&info.full_name()),
            info: info.clone(),
        })
        .collect();
    listed.sort_by_cached_key(|kind| (!kind.may_be_held, kind.info.full_name()));
    listed
}

/// The kinds of the record that the API server does not serve, and the kinds for which this is
/// unknown because the server of their group does not answer.
pub fn unserved(
    world: &World,
    stale: &HashSet<String>,
    record: &BTreeSet<String>,
) -> (Vec<String>, Vec<String>) {
    let kinds = &world.graph.kinds;
    let served: BTreeSet<String> = kinds
        .iter()
        .filter(|(kind, _)| world.served.contains_key(kind))
        .map(|(_, info)| info.full_name())
        .collect();
    let missing = record.difference(&served).cloned();
    let is_stale =
        |name: &String| name.split_once('.').is_some_and(|(_, group)| stale.contains(group));
    let (unknown, gone) = missing.partition(is_stale);
    (gone, unknown)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::context::Context;
    use crate::cluster::local_api::local_client;
    use crate::cluster::world::ServedVerbs;
    use crate::policy::api::DeletionPolicySpec;
    use crate::policy::{Policy, PolicySet};
    use crate::relations::Catalogue;

    fn world(spec: &str) -> World {
        let mut world = World { loaded: true, policies_current: true, ..World::default() };
        world.catalogue = Arc::new(Catalogue::new(&world.graph.kinds, &[]).unwrap());
        let spec: DeletionPolicySpec = serde_saphyr::from_str(spec).unwrap();
        let policy = Policy::compile("p", &spec).unwrap();
        world.policies = PolicySet::new(vec![policy], &world.catalogue);
        let all: Vec<KindId> = world.graph.kinds.iter().map(|(kind, _)| kind).collect();
        let served = ServedVerbs { list: true, watch: true };
        world.served = all.into_iter().map(|kind| (kind, served)).collect();
        world
    }

    fn settings(labelled: &[(&str, &str)]) -> Arc<Settings> {
        let client = local_client::<String>(|_| panic!("no request is expected"));
        Context::of_test(client, World::default(), labelled).settings
    }

    fn names(kinds: &[ListedKind], may_be_held: bool) -> Vec<String> {
        let chosen = kinds.iter().filter(|kind| kind.may_be_held == may_be_held);
        chosen.map(|kind| kind.info.full_name()).collect()
    }

    #[tokio::test]
    async fn lists_kinds_of_policies_labels_and_the_record_before_others() {
        let spec = "{targets: [{apiGroups: [''], resources: [secrets, pods]}], protect: {always: \
                    {}}}";
        let mut world = world(spec);
        let record = BTreeSet::from(["deployments.apps".to_owned(), "widgets.example.com".into()]);
        let settings = settings(&[("", "configmaps")]);
        let kinds = listed_kinds(&world, &settings, &record);
        assert_eq!(names(&kinds, true), ["configmaps", "deployments.apps", "secrets"]);
        assert!(kinds.iter().take(3).all(|kind| kind.may_be_held), "they come first");
        let others = names(&kinds, false);
        // belay adds no hold to a Pod, but a client may have copied one onto it.
        assert!(others.contains(&"pods".to_owned()), "{others:?}");
        assert!(!others.iter().any(|name| name.starts_with("events")), "{others:?}");
        let widgets = || vec!["widgets.example.com".to_owned()];
        let stale = HashSet::from(["other.example.com".to_owned()]);
        assert_eq!(unserved(&world, &stale, &record), (widgets(), Vec::new()));
        // A kind whose server is down may have objects with holds.
        let stale = HashSet::from(["example.com".to_owned()]);
        assert_eq!(unserved(&world, &stale, &record), (Vec::new(), widgets()));
        // A kind that can't be listed has no stored objects.
        let pods = world.graph.kinds.find("", "Pod").unwrap();
        world.served.insert(pods, ServedVerbs { list: false, watch: false });
        assert!(!names(&listed_kinds(&world, &settings, &record), false).contains(&"pods".into()));
    }
}
