//! Takes a definition out, and all objects of its kind with it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Preconditions};
use tokio::time::Instant;

use super::{Failed, LOOK, PATIENCE, definitions, failed, name, stored};
use crate::cluster::api::Detail;
use crate::cluster::list::{Buffers, ListQuery, ListReader, Next};
use crate::cluster::pace::within;
use crate::objects::{ApiError, Kinds};

/// What went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It was not there.
    Absent,
    /// It, and so many objects of its kind; none: nobody could count them.
    With(Option<usize>),
}

/// Deletes a definition and waits until it is gone.
pub async fn delete(
    client: &kube::Client,
    definition: &CustomResourceDefinition,
) -> Result<Gone, Failed> {
    let name = name(definition);
    let Some(stored) = stored(client, name).await? else { return Ok(Gone::Absent) };
    let objects = count(client, &stored).await;
    let uid = stored.metadata.uid.clone();
    let preconditions =
        uid.clone().map(|uid| Preconditions { uid: Some(uid), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match within(definitions(client).delete(name, &params)).await {
        Ok(_) | Err(ApiError::NotFound) => {}
        Err(error) => return Err(failed("delete", name, error)),
    }
    gone(client, name, uid).await?;
    Ok(Gone::With(objects))
}

/// How many objects of a kind there are, in any namespace.
async fn count(client: &kube::Client, definition: &CustomResourceDefinition) -> Option<usize> {
    let spec = &definition.spec;
    let version = spec.versions.iter().find(|version| version.storage && version.served)?;
    let names = &spec.names;
    let info = Kinds::custom(&spec.group, &version.name, &names.kind, &names.plural, false);
    let query = ListQuery { info: &info, namespace: "", detail: Detail::Metadata, labels: "" };
    let mut list = ListReader::new(client, query, Buffers::new(1));
    let mut found = 0;
    loop {
        match within(list.next()).await.ok()? {
            Next::Object(_) => found += 1,
            Next::Again => found = 0,
            Next::End => return Some(found),
        }
    }
}

/// Waits until a definition is gone; one that was made again is another one.
async fn gone(client: &kube::Client, name: &str, uid: Option<String>) -> Result<(), Failed> {
    let until = Instant::now() + PATIENCE;
    while stored(client, name).await?.is_some_and(|stored| stored.metadata.uid == uid) {
        if Instant::now() >= until {
            return Err(Failed::Unknown(format!(
                "customresourcedefinition {name} is not gone after {} s: something keeps objects of \
                 its kind; next: kubectl get {name} -o yaml shows their finalizers",
                PATIENCE.as_secs()
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
