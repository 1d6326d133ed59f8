//! Brings a definition up to date.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ObjectMeta;
use tokio::time::Instant;

use super::{Failed, LOOK, PATIENCE, definitions, failed, name, stored};
use crate::cluster::api::post_params;
use crate::cluster::pace::{LIMIT, timed};
use crate::objects::ApiError;

/// How often a definition is read anew that somebody else has written.
const TRIES: usize = 5;

/// What was done to a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Created,
    /// It said something else.
    Updated,
    /// It said the same, and nothing was written.
    None,
}

/// Makes the API server serve a kind as this definition says, and waits until it
/// does.
pub async fn apply(
    client: &kube::Client,
    wanted: &CustomResourceDefinition,
) -> Result<Change, Failed> {
    let mut tries = TRIES;
    let change = loop {
        let written = match stored(client, name(wanted)).await? {
            None => create(client, wanted).await,
            Some(stored) => match refusal(wanted, &stored) {
                Some(why) => return Err(Failed::Refused(why)),
                None => replace(client, wanted, stored).await,
            },
        };
        match written {
            Ok(change) => break change,
            // Somebody was quicker: what stands there now is looked at.
            Err(Written::Meanwhile) if tries > 0 => tries -= 1,
            Err(Written::Meanwhile) => {
                let why = ApiError::Other("somebody else keeps writing it".to_owned());
                return Err(failed("write", name(wanted), why));
            }
            Err(Written::Not(error)) => return Err(failed("write", name(wanted), error)),
        }
    };
    established(client, name(wanted)).await?;
    Ok(change)
}

/// Why a definition cannot take the place of the one that stands there, and what
/// next; `None`: it can.
pub fn refusal(
    wanted: &CustomResourceDefinition,
    stored: &CustomResourceDefinition,
) -> Option<String> {
    let name = name(wanted);
    if stored.metadata.deletion_timestamp.is_some() {
        return Some(format!(
            "customresourcedefinition {name} is being deleted; next: wait until it is gone, and \
             then the same again"
        ));
    }
    let status = stored.status.as_ref();
    let versions = status.and_then(|status| status.stored_versions.as_ref());
    let known = |version: &&String| wanted.spec.versions.iter().any(|v| v.name == **version);
    let lost: Vec<&String> = versions.into_iter().flatten().filter(|v| !known(v)).collect();
    let lost = lost.iter().map(|version| version.as_str()).collect::<Vec<_>>().join(", ");
    (!lost.is_empty()).then(|| {
        format!(
            "customresourcedefinition {name} has objects stored in version {lost}, which this belay \
             does not know: nobody could read them any more; nothing was changed. Next: use the \
             belay that knows {lost}, or have the objects stored anew and take {lost} off \
             status.storedVersions"
        )
    })
}

/// Why something was not written.
enum Written {
    /// It is not what was looked at any more.
    Meanwhile,
    /// Anything else.
    Not(ApiError),
}

impl From<kube::Error> for Written {
    fn from(error: kube::Error) -> Self {
        match error {
            // Also: it was created, or deleted, since it was looked for.
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Self::Meanwhile,
            other => Self::Not(other.into()),
        }
    }
}

impl From<ApiError> for Written {
    fn from(error: ApiError) -> Self {
        Self::Not(error)
    }
}

async fn create(
    client: &kube::Client,
    wanted: &CustomResourceDefinition,
) -> Result<Change, Written> {
    once(definitions(client).create(&post_params(false), wanted)).await?;
    Ok(Change::Created)
}

/// Replaces a definition, if that changes it. Whether it does only the API server
/// knows, which fills in what is left out: so it is asked first.
async fn replace(
    client: &kube::Client,
    wanted: &CustomResourceDefinition,
    stored: CustomResourceDefinition,
) -> Result<Change, Written> {
    let api = definitions(client);
    let (metadata, told) = merged(&wanted.metadata, stored.metadata.clone());
    let after = CustomResourceDefinition { metadata, spec: wanted.spec.clone(), ..stored };
    let tried = once(api.replace(name(wanted), &post_params(true), &after)).await?;
    if !told && tried.metadata.generation == after.metadata.generation {
        return Ok(Change::None);
    }
    once(api.replace(name(wanted), &post_params(false), &after)).await?;
    Ok(Change::Updated)
}

/// One request, of which the answer 409 is told apart.
async fn once<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Written> {
    timed(LIMIT, request).await?.map_err(Written::from)
}

/// The metadata that stands there, with the labels and annotations of the
/// definition; and whether that changes any. What others have put there stays:
/// whoever installed it recognises its own by that.
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
async fn established(client: &kube::Client, name: &str) -> Result<(), Failed> {
    let until = Instant::now() + PATIENCE;
    loop {
        let stored = stored(client, name).await?;
        let status = stored.and_then(|stored| stored.status);
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let condition = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
        if condition("Established").is_some_and(|condition| condition.status == "True") {
            return Ok(());
        }
        if Instant::now() >= until {
            let why = condition("NamesAccepted").filter(|condition| condition.status == "False");
            let why = why.and_then(|condition| condition.message.clone());
            let why = why
                .unwrap_or_else(|| format!("it is not Established after {} s", PATIENCE.as_secs()));
            return Err(Failed::Unknown(format!(
                "customresourcedefinition {name} is stored, and its objects are not served: {why}; \
                 next: kubectl describe customresourcedefinition {name}"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}
