//! Updates a CRD.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ObjectMeta;
use tokio::time::Instant;

use super::{CrdError, POLL_INTERVAL, WAIT_LIMIT, crd_api, crd_error, crd_name, read};
use crate::cluster::api::post_params;
use crate::cluster::pace::within;
use crate::objects::ApiError;

/// The number of attempts when another client writes the CRD at the same time.
const MAX_ATTEMPTS: usize = 5;

/// The result of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The CRD did not exist and was created.
    Created,
    /// The CRD was replaced.
    Updated,
    /// The CRD was up to date.
    None,
}

/// Creates or replaces a CRD and waits until the API server serves it.
pub async fn apply(
    client: &kube::Client,
    wanted: &CustomResourceDefinition,
) -> Result<Change, CrdError> {
    let mut tries = MAX_ATTEMPTS;
    let change = loop {
        let written = match read(client, crd_name(wanted)).await? {
            None => create(client, wanted).await,
            Some(stored) => match refusal(wanted, &stored) {
                Some(why) => return Err(CrdError::Refused(why)),
                None => replace(client, wanted, stored).await,
            },
        };
        match written {
            Ok(change) => break change,
            // Another client has changed, created or deleted the CRD, so it is read again.
            Err(error) if error.is_conflict() || error == ApiError::NotFound => {
                if tries == 0 {
                    let why = ApiError::Other("another client keeps writing it".to_owned());
                    return Err(crd_error("write", crd_name(wanted), why));
                }
                tries -= 1;
            }
            Err(error) => return Err(crd_error("write", crd_name(wanted), error)),
        }
    };
    wait_until_established(client, crd_name(wanted)).await?;
    Ok(change)
}

/// Why the stored CRD can't be replaced, and what to do; `None` if it can.
pub fn refusal(
    wanted: &CustomResourceDefinition,
    stored: &CustomResourceDefinition,
) -> Option<String> {
    let name = crd_name(wanted);
    if stored.metadata.deletion_timestamp.is_some() {
        return Some(format!(
            "customresourcedefinition {name} is being deleted; next: wait for its deletion, and \
             try again"
        ));
    }
    let status = stored.status.as_ref();
    let versions = status.and_then(|status| status.stored_versions.as_ref());
    let known = |version: &&String| wanted.spec.versions.iter().any(|v| v.name == **version);
    let lost: Vec<&String> = versions.into_iter().flatten().filter(|v| !known(v)).collect();
    let lost = lost.iter().map(|version| version.as_str()).collect::<Vec<_>>().join(", ");
    (!lost.is_empty()).then(|| {
        format!(
            "customresourcedefinition {name} has objects stored in version {lost}, which this \
             version of belay does not know, so they would become unreadable; nothing was \
             changed; next: use a version of belay that knows {lost}, or rewrite the objects and \
             remove {lost} from status.storedVersions"
        )
    })
}

async fn create(
    client: &kube::Client,
    wanted: &CustomResourceDefinition,
) -> Result<Change, ApiError> {
    within(crd_api(client).create(&post_params(false), wanted)).await?;
    Ok(Change::Created)
}

/// Replaces a CRD if a dry run shows that this changes it. Only the API server can tell, because
/// it adds default values.
async fn replace(
    client: &kube::Client,
    wanted: &CustomResourceDefinition,
    stored: CustomResourceDefinition,
) -> Result<Change, ApiError> {
    let api = crd_api(client);
    let (metadata, metadata_differs) = merged(&wanted.metadata, stored.metadata.clone());
    let after = CustomResourceDefinition { metadata, spec: wanted.spec.clone(), ..stored };
    let tried = within(api.replace(crd_name(wanted), &post_params(true), &after)).await?;
    if !metadata_differs && tried.metadata.generation == after.metadata.generation {
        return Ok(Change::None);
    }
    within(api.replace(crd_name(wanted), &post_params(false), &after)).await?;
    Ok(Change::Updated)
}

/// The stored metadata with the labels and annotations of the new CRD, and whether they
/// differ. Other labels and annotations stay, because other clients may identify the CRD
/// by them.
fn merged(wanted: &ObjectMeta, mut stored: ObjectMeta) -> (ObjectMeta, bool) {
    let fill = |stored: &mut Option<BTreeMap<String, String>>,
                wanted: &Option<BTreeMap<String, String>>| {
        let mut changed = false;
        for (key, value) in wanted.iter().flatten() {
            let before = stored.get_or_insert_default().insert(key.clone(), value.clone());
            changed |= before.as_ref() != Some(value);
        }
        changed
    };
    let labels = fill(&mut stored.labels, &wanted.labels);
    let annotations = fill(&mut stored.annotations, &wanted.annotations);
    (stored, labels || annotations)
}

/// Waits until the API server serves the kind.
async fn wait_until_established(client: &kube::Client, name: &str) -> Result<(), CrdError> {
    let until = Instant::now() + WAIT_LIMIT;
    loop {
        let stored = read(client, name).await?;
        let status = stored.and_then(|stored| stored.status);
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let condition = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
        if condition("Established").is_some_and(|condition| condition.status == "True") {
            return Ok(());
        }
        if Instant::now() >= until {
            let why = condition("NamesAccepted").filter(|condition| condition.status == "False");
            let why = why.and_then(|condition| condition.message.clone());
            let why = why.unwrap_or_else(|| {
                format!("it is not Established after {} s", WAIT_LIMIT.as_secs())
            });
            return Err(CrdError::Unknown(format!(
                "customresourcedefinition {name} is stored, and its objects are not served: {why}; \
                 next: kubectl describe customresourcedefinition {name}"
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
