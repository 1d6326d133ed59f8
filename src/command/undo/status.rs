//! The status of custom resources. Their controllers may store there which outside resources they
//! have created. The API server ignores the status of a new object if it is a subresource.

use std::future::ready;

use futures_util::{StreamExt as _, stream};
use json_patch::PatchOperation;
use kube::api::PatchParams;
use serde_json::Value;

use super::read::{MAX_CONCURRENT, UndoReader};
use super::record::{LostObject, SavedObject};
use super::requests::MAX_ATTEMPTS;
use super::restore::Undo;
use crate::cluster::Caller;
use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::screen::progress;
use crate::objects::{ApiError, KindInfo, operations};

/// Why the status of an object is lost.
const NO_STATUS: &str = "its status is lost, because you may not patch it; its controller may create \
                         its outside resources again; next: have an administrator run the undo";

impl UndoReader<'_> {
    /// The objects whose status the user may not write.
    pub(super) async fn lost_status(&self, objects: &[SavedObject]) -> Vec<LostObject> {
        let with_status = objects.iter().filter(|saved| !saved.stays && has_status(saved));
        let asked = with_status.map(|SavedObject { object, .. }| async move {
            let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
            let patch = vec![operations::test(&["metadata", "uid"], object.uid.as_str())];
            let info = self.node(object)?.info();
            let written = write_status(&self.caller, info, object, patch, &dry_run).await;
            matches!(written, Err(ApiError::Forbidden(_)))
                .then(|| LostObject::new(object, NO_STATUS))
        });
        let asked: Vec<_> = asked.collect();
        stream::iter(asked).buffered(MAX_CONCURRENT).filter_map(ready).collect().await
    }
}

impl Undo<'_> {
    /// Restores the status of a new object, before its controller has written another one.
    pub(super) async fn restore_status(
        &self,
        saved: &SavedObject,
        created: &Value,
    ) -> Result<(), CommandError> {
        if !has_status(saved) {
            return Ok(());
        }
        let SavedObject { object, manifest, .. } = saved;
        let status = &manifest["status"];
        let (info, caller) = (self.info(object)?, &self.session.caller);
        let mut current = created.clone();
        for attempt in 1.. {
            if current["status"] == *status || is_status_written(&current) {
                return Ok(());
            }
            let metadata = &current["metadata"];
            let patch = vec![
                operations::test(&["metadata", "uid"], metadata["uid"].clone()),
                operations::test(
                    &["metadata", "resourceVersion"],
                    metadata["resourceVersion"].clone(),
                ),
                operations::add(&["status"], status.clone()),
            ];
            match write_status(caller, &info, object, patch, &PatchParams::default()).await {
                Ok(()) => break,
                // It has no status subresource.
                Err(ApiError::NotFound | ApiError::Status { code: 404, .. }) => return Ok(()),
                Err(ApiError::Status { code: 409 | 422, .. }) if attempt < MAX_ATTEMPTS => {}
                Err(why) => {
                    let is_known =
                        |lost: &LostObject| lost.object == *object && lost.why == NO_STATUS;
                    let why =
                        format!("{} is restored without its status: {why}", object.sentence_name());
                    if !self.record.lost.iter().any(is_known) {
                        return Err(CommandError::Remote(why));
                    }
                    progress(&format!("warning: {why}"));
                    return Ok(());
                }
            }
            let Some(read) = self.read(object).await? else { return Ok(()) };
            current = read;
            if is_status_written(&current) {
                return Err(CommandError::Remote(format!(
                    "{} has a new status of its controller, which was faster; next: compare it with \
                     the file, for example the outside resources that it names",
                    object.arguments
                )));
            }
        }
        progress(&format!("restored the status of {}", object.arguments));
        Ok(())
    }
}

fn has_status(saved: &SavedObject) -> bool {
    !saved.manifest["status"].is_null()
}

/// Whether a client has written the status of the object.
fn is_status_written(object: &Value) -> bool {
    let fields = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    fields.into_iter().any(|entry| entry["subresource"] == "status")
}

async fn write_status(
    caller: &Caller,
    info: &KindInfo,
    object: &Object,
    patch: Vec<PatchOperation>,
    params: &PatchParams,
) -> Result<(), ApiError> {
    let key = (object.namespace.as_str(), object.name.as_str());
    caller.patch(info, key, Some("status"), patch, params).await
}
