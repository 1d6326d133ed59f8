//! The reads and changes of single objects.

use json_patch::PatchOperation;
use kube::api::PatchParams;
use serde_json::Value;

use super::restore::Undo;
use crate::command::CommandError;
use crate::command::document::Object;
use crate::objects::{ApiError, KindInfo, operations, split_api_version};

/// The limit of attempts to change an object that others change at the same time.
pub(super) const MAX_ATTEMPTS: u32 = 5;

/// The beginning of the answer if a test of a JSON patch fails.
const TEST_FAILED: &str = "the server rejected our request";

impl Undo<'_> {
    pub(super) async fn read(&self, object: &Object) -> Result<Option<Value>, CommandError> {
        let info = self.info(object)?;
        let read = self.session.caller.object(&info, &object.namespace, &object.name).await;
        read.map_err(|why| request_error("read", object, &why))
    }

    /// The object with the old uid, while it exists.
    pub(super) async fn old(&self, object: &Object) -> Result<Option<Value>, CommandError> {
        let read = self.read(object).await?;
        Ok(read.filter(|read| read["metadata"]["uid"] == object.uid.as_str()))
    }

    /// Changes an object as its current state requires. If others, for example another undo, change
    /// it at the same time, the command reads it again. Returns the state before the change; `None` if
    /// there is nothing to change.
    pub(super) async fn change(
        &self,
        object: &Object,
        dry_run: bool,
        operations: impl Fn(&Value) -> Result<Vec<PatchOperation>, CommandError>,
    ) -> Result<Option<Value>, CommandError> {
        let info = self.info(object)?;
        let key = (object.namespace.as_str(), object.name.as_str());
        let params = PatchParams { dry_run, ..PatchParams::default() };
        for attempt in 1.. {
            let Some(current) = self.read(object).await? else { break };
            let mut patch = operations(&current)?;
            if patch.is_empty() {
                break;
            }
            patch.insert(
                0,
                operations::test(&["metadata", "uid"], current["metadata"]["uid"].clone()),
            );
            match self.session.caller.patch(&info, key, None, patch, &params).await {
                Ok(()) => return Ok(Some(current)),
                Err(ApiError::Status { code: 409 | 422, .. }) if attempt < MAX_ATTEMPTS => {}
                // A test of the patch has failed. The answer does not name the test.
                Err(ApiError::Status { code: 422, message })
                    if message.starts_with(TEST_FAILED) =>
                {
                    return Err(CommandError::Remote(format!(
                        "cannot patch {}: others, for example another undo, change it at the same \
                         time",
                        object.arguments
                    )));
                }
                Err(why) => return Err(request_error("patch", object, &why)),
            }
        }
        Ok(None)
    }

    /// The kind of an object, in the version of its manifest.
    pub(super) fn info(&self, object: &Object) -> Result<KindInfo, CommandError> {
        let known = self.names.of_object(&object.group, &object.kind);
        let Some(info) = known else {
            return Err(CommandError::Remote(format!(
                "the API server does not serve the kind of {}",
                object.arguments
            )));
        };
        let saved = self.record.objects.iter().find(|saved| saved.object.uid == object.uid);
        let version = saved.and_then(|saved| saved.manifest["apiVersion"].as_str());
        let versions = match version {
            Some(version) => vec![split_api_version(version).1.to_owned()],
            None => info.versions.clone(),
        };
        Ok(KindInfo { versions, ..info.clone() })
    }
}

pub(super) fn request_error(verb: &str, object: &Object, why: &ApiError) -> CommandError {
    CommandError::Remote(format!("cannot {verb} {}: {why}", object.quoted()))
}
