//! The definitions in a cluster: `--apply` and `--delete`.

use crate::cluster::definitions::{Change, Failed, Gone, apply, delete, name, refusal, stored};
use crate::cluster::uninstall::installed;
use crate::cluster::{Access, Caller};
use crate::command::{CommandError, print};
use crate::policy::api::definitions;

/// Brings them up to date. Nothing is written before it is known that all of
/// them may be.
pub async fn bring_up_to_date(access: &Access) -> Result<(), CommandError> {
    let client = Caller::connect(access).await?.client;
    for wanted in definitions() {
        let stored = stored(&client, name(&wanted)).await.map_err(told)?;
        if let Some(why) = stored.and_then(|stored| refusal(&wanted, &stored)) {
            return Err(CommandError::Refused(why));
        }
    }
    for wanted in definitions() {
        let change = match apply(&client, &wanted).await.map_err(told)? {
            Change::Created => "created",
            Change::Updated => "brought up to date",
            Change::None => "unchanged",
        };
        print(&format!("customresourcedefinition {} {change}\n", name(&wanted)))?;
    }
    Ok(())
}

/// Takes them out.
pub async fn take_out(access: &Access) -> Result<(), CommandError> {
    let client = Caller::connect(access).await?.client;
    // Without its kinds belay holds on to everything and knows no policy.
    let belay = installed(&client).await.map_err(|error| {
        CommandError::Remote(format!(
            "cannot see whether belay is installed: {}; nothing was deleted; next: it takes the RBAC \
             verb list on mutatingwebhookconfigurations and validatingwebhookconfigurations of \
             admissionregistration.k8s.io",
            error
        ))
    })?;
    if let Some(belay) = belay {
        return Err(CommandError::Refused(format!(
            "{belay} is installed and lives by these definitions; nothing was deleted; next: helm \
             uninstall it, or belay release --all --installation={belay}, and then this again"
        )));
    }
    for definition in definitions() {
        let gone = delete(&client, &definition).await.map_err(told)?;
        print(&format!("customresourcedefinition {} {}\n", name(&definition), words(gone)))?;
    }
    Ok(())
}

fn words(gone: Gone) -> String {
    match gone {
        Gone::Absent => "was not there".to_owned(),
        Gone::With(Some(0)) => "deleted; it had no objects".to_owned(),
        Gone::With(Some(1)) => "deleted, and 1 object with it".to_owned(),
        Gone::With(Some(count)) => format!("deleted, and {count} objects with it"),
        Gone::With(None) => {
            "deleted, and its objects with it, which could not be counted".to_owned()
        }
    }
}

fn told(failed: Failed) -> CommandError {
    match failed {
        Failed::Refused(why) => CommandError::Refused(why),
        Failed::Unknown(why) => CommandError::Remote(why),
    }
}
