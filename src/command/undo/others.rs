//! Objects that others have created under the names of the saved ones: users, controllers or another
//! undo.

use super::live::{ObjectState, Restorer};
use super::manifest::RESTORED_FROM;
use super::record::LostObject;
use super::restore::{ByAnotherUndo, Undo, UndoOutcome};
use super::volumes::is_retained;
use crate::command::CommandError;
use crate::command::document::Object;
use crate::objects::CLAIMS;

impl Undo<'_> {
    /// How the undo ends if others have created the target. Other users know the old uid and can
    /// forge the annotation of a restored Namespace, so nothing is restored into that Namespace.
    pub(super) async fn outcome_of_others(&self) -> Result<Option<UndoOutcome>, CommandError> {
        let target = &self.record.target;
        let current = self.read(target).await?;
        match self.wait_for_state(target, current.as_ref()).await? {
            ObjectState::Foreign => {
                Ok(Some(UndoOutcome::Taken { advice: self.advice(target).await? }))
            }
            ObjectState::Recreated { by, is_terminating: true } => {
                self.retain_volume_of(target).await?;
                Err(self.deleted_again(target, by))
            }
            ObjectState::Recreated { by: Restorer::AnotherUndo, .. }
                if self.record.is_of_namespace() =>
            {
                Ok(Some(self.compare_with_other_undo().await?))
            }
            _ => Ok(None),
        }
    }

    /// Finds the objects that are missing in a Namespace that another undo has restored. Keeps the
    /// data of claims that were deleted again.
    async fn compare_with_other_undo(&self) -> Result<UndoOutcome, CommandError> {
        let mut not_restored = Vec::new();
        for saved in self.record.objects_to_recreate() {
            let object = &saved.object;
            let current = self.read(object).await?;
            let why = match self.wait_for_state(object, current.as_ref()).await? {
                ObjectState::Absent => "it does not exist".to_owned(),
                ObjectState::Foreign if object.is_of(CLAIMS) => self.advice(object).await?,
                ObjectState::Recreated { by, is_terminating: true } => {
                    let retained = self.retain_volume_of(object).await;
                    retained.err().unwrap_or_else(|| self.deleted_again(object, by)).to_string()
                }
                _ => continue,
            };
            not_restored.push(LostObject::new(object, &why));
        }
        let by_another_undo = ByAnotherUndo { target: true, unproven: true };
        Ok(UndoOutcome::Finished { not_restored, by_another_undo })
    }

    /// The error about a restored object that users have deleted since.
    pub(super) fn deleted_again(&self, object: &Object, by: Restorer) -> CommandError {
        let (typed, options) = (&object.arguments, self.cluster.options());
        CommandError::Refused(format!(
            "{typed} was deleted again after {}; undo this deletion first, with kubectl belay undo \
             {typed}{options}",
            match by {
                Restorer::ThisUndo => "it was restored",
                Restorer::AnotherUndo => "another undo had restored it",
                Restorer::Others => "others had created it with its volume",
            }
        ))
    }

    /// The next step about an object with the name of a saved object. The user must not delete the
    /// data of a claim, or an object that an undo has restored.
    pub(super) async fn advice(&self, object: &Object) -> Result<String, CommandError> {
        const COMPARE: &str = "another object has its name; next: compare it with the file";
        let Some(current) = self.read(object).await? else { return Ok(COMPARE.to_owned()) };
        if current["metadata"]["annotations"][RESTORED_FROM].is_string() {
            return Ok(format!("{COMPARE}; an undo has restored it, so don't delete it"));
        }
        let name = current["spec"]["volumeName"].as_str().unwrap_or_default();
        let volume = self.volume_of_claim(object, name).await?;
        let is_lost = volume.is_some_and(|volume| !is_retained(&volume));
        let delete = "if nothing needs it, stop the workloads that use it, and delete it";
        if !is_lost {
            return Ok(format!("{COMPARE}; {delete}"));
        }
        let options = self.cluster.kubectl_options();
        Ok(format!(
            "{COMPARE}; with it, Kubernetes would delete its volume {name} (reclaim policy Delete), so \
             keep that first: kubectl patch persistentvolumes/{name}{options} -p \
             '{{\"spec\":{{\"persistentVolumeReclaimPolicy\":\"Retain\"}}}}'; {delete}"
        ))
    }
}
