//! Updates and deletes the CRDs in a cluster: `--apply` and `--delete`.

use crate::cluster::crds::{Change, CrdError, Deleted, apply, crd_name, delete, read, refusal};
use crate::cluster::uninstall::installed;
use crate::cluster::{Access, Caller};
use crate::command::{CommandError, print};
use crate::policy::api::crds;

/// Updates the CRDs. Writes nothing if one of them must not be replaced or can't be read.
pub async fn update(access: &Access) -> Result<(), CommandError> {
    let client = Caller::connect(access).await?.client;
    for wanted in crds() {
        let stored = read(&client, crd_name(&wanted)).await.map_err(command_error)?;
        if let Some(why) = stored.and_then(|stored| refusal(&wanted, &stored)) {
            return Err(CommandError::Refused(why));
        }
    }
    for wanted in crds() {
        let change = match apply(&client, &wanted).await.map_err(command_error)? {
            Change::Created => "created",
            Change::Updated => "brought up to date",
            Change::None => "unchanged",
        };
        print(&format!("customresourcedefinition {} {change}\n", crd_name(&wanted)))?;
    }
    Ok(())
}

/// Deletes the CRDs.
pub async fn delete_all(access: &Access) -> Result<(), CommandError> {
    let client = Caller::connect(access).await?.client;
    // Without its CRDs, an installed belay has no policies and releases no hold.
    let installation = installed(&client).await.map_err(|error| {
        CommandError::Remote(format!(
            "cannot read whether belay is installed: {}; nothing was deleted; next: have an \
             administrator bind the RBAC verb list on mutatingwebhookconfigurations and \
             validatingwebhookconfigurations of admissionregistration.k8s.io",
            error
        ))
    })?;
    if let Some(installation) = installation {
        return Err(CommandError::Refused(format!(
            "{installation} is installed and needs these CRDs; nothing was deleted; next: helm \
             uninstall it, or kubectl belay admin uninstall --installation={installation}, and try \
             again"
        )));
    }
    for crd in crds() {
        let deleted = delete(&client, &crd).await.map_err(command_error)?;
        print(&format!("customresourcedefinition {} {}\n", crd_name(&crd), deleted_text(deleted)))?;
    }
    Ok(())
}

fn deleted_text(deleted: Deleted) -> String {
    match deleted {
        Deleted::Absent => "did not exist".to_owned(),
        Deleted::With(Some(0)) => "deleted; it had no objects".to_owned(),
        Deleted::With(Some(1)) => "deleted, and 1 object with it".to_owned(),
        Deleted::With(Some(count)) => format!("deleted, and {count} objects with it"),
        Deleted::With(None) => {
            "deleted, and its objects with it, which could not be counted".to_owned()
        }
    }
}

fn command_error(failed: CrdError) -> CommandError {
    match failed {
        CrdError::Refused(why) => CommandError::Refused(why),
        CrdError::Unknown(why) => CommandError::Remote(why),
    }
}
