//! Reads the labelled content of a Namespace, also of kinds that belay does not watch.

use futures_util::StreamExt as _;
use futures_util::stream;

use super::super::plan::is_listed;
use super::surroundings::CONCURRENT_LISTS;
use super::{Snapshot, UnreadKind};
use crate::cluster::world::{self, World};
use crate::graph::NodeId;
use crate::objects::{KindId, PROTECT_LABEL};

impl Snapshot {
    /// Reads and adds the objects of a namespace with the label `belay.dev/protect`. Also returns
    /// the kinds that could not be read.
    pub async fn read_labelled(&self, namespace: &str) -> (Vec<NodeId>, Vec<UnreadKind>) {
        let kinds: Vec<KindId> = {
            let world = self.context.world.read();
            let kinds = world.graph.kinds.iter();
            let kinds = kinds.filter(|(kind, info)| info.namespaced && is_listed(&world, *kind));
            kinds.map(|(kind, _)| kind).collect()
        };
        let lists = kinds.into_iter().map(|kind| async move {
            let (info, detail) = {
                let world = self.context.world.read();
                (world.graph.kinds.info(kind).clone(), world.detail(kind))
            };
            (kind, info.full_name(), self.read_list(&info, detail, namespace, PROTECT_LABEL).await)
        });
        let mut lists = stream::iter(lists).buffered(CONCURRENT_LISTS);
        let (mut nodes, mut unread) = (Vec::new(), Vec::new());
        while let Some((kind, resource, read)) = lists.next().await {
            let objects = match read {
                Ok(objects) => objects,
                Err(why) => {
                    unread.push(UnreadKind { resource, why });
                    continue;
                }
            };
            let mut world = self.context.world.write();
            let World { graph, catalogue, .. } = &mut *world;
            let stored = objects
                .iter()
                .filter_map(|object| world::store(graph, catalogue, kind, object.get(), None).ok());
            nodes.extend(stored.flatten());
        }
        (nodes, unread)
    }
}
