//! Lists objects and records failed reads.

use parking_lot::Mutex;
use serde_json::Value;

use crate::cluster::api::Detail;
use crate::cluster::feed::{Snapshot, UnreadKind};
use crate::cluster::list::{ListQuery, read_list};
use crate::objects::{ApiError, KindInfo, read_tolerant_with_managed_fields};

/// The error for a kind of which a dump contains no objects, or only objects of other namespaces.
const INCOMPLETE_FILES: &str = "the files do not contain all objects of this kind";

/// Lists objects and records failed reads.
pub(super) struct ListReader<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) unread: Mutex<Vec<UnreadKind>>,
}

impl ListReader<'_> {
    /// Records what could not be read.
    pub(super) fn add_unread(&self, resource: String, why: ApiError) {
        self.unread.lock().push(UnreadKind { resource, why });
    }

    /// Returns a kind if its objects in a namespace (empty: in all) can be read. Records a kind of
    /// which the files do not contain all objects.
    pub(super) fn readable_kind(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
    ) -> Option<KindInfo> {
        let kinds = &self.snapshot.context.world.read().graph.kinds;
        let kind = kinds.find_resource(group, resource)?;
        let info = kinds.info(kind);
        if !self.snapshot.knows_all(info, namespace) {
            self.add_unread(info.full_name(), ApiError::Other(INCOMPLETE_FILES.to_owned()));
            return None;
        }
        (!info.versions.is_empty()).then(|| info.clone())
    }

    /// Reads all objects of a kind. Returns `None` and records the failed read if that fails.
    pub(super) async fn all(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
    ) -> Option<Vec<Value>> {
        let info = self.readable_kind(group, resource, namespace)?;
        self.labelled(&info, namespace, "").await
    }

    pub(super) async fn labelled(
        &self,
        info: &KindInfo,
        namespace: &str,
        labels: &str,
    ) -> Option<Vec<Value>> {
        let client = &self.snapshot.context.client;
        let add = |all: &mut Vec<Value>, json: &str| {
            all.extend(read_tolerant_with_managed_fields(json).ok());
            Ok(())
        };
        let query = ListQuery { info, namespace, detail: Detail::Whole, labels };
        match read_list(client, query, add).await {
            Ok(all) => Some(all),
            Err(error) => {
                self.add_unread(info.full_name(), error);
                None
            }
        }
    }
}

pub(super) fn name(object: &Value) -> Option<&str> {
    object.pointer("/metadata/name")?.as_str()
}
