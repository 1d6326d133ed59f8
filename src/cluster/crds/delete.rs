//! Deletes a CRD and all of its objects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::time::Instant;

use super::{CrdError, POLL_INTERVAL, WAIT_LIMIT, crd_api, crd_error, crd_name, read};
use crate::cluster::api::{Detail, delete_exactly};
use crate::cluster::list::{Buffers, ListQuery, ListReader, Next};
use crate::cluster::pace::within;
use crate::objects::Kinds;

/// The result of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// The CRD did not exist.
    Absent,
    /// The number of deleted objects; `None` if they could not be counted.
    With(Option<usize>),
}

/// Deletes a CRD and waits until it no longer exists.
pub async fn delete(
    client: &kube::Client,
    crd: &CustomResourceDefinition,
) -> Result<Deleted, CrdError> {
    let name = crd_name(crd);
    let Some(stored) = read(client, name).await? else { return Ok(Deleted::Absent) };
    let objects = count(client, &stored).await;
    let uid = stored.metadata.uid.clone();
    delete_exactly(&crd_api(client), name, uid.clone())
        .await
        .map_err(|error| crd_error("delete", name, error))?;
    wait_until_deleted(client, name, uid).await?;
    Ok(Deleted::With(objects))
}

/// Counts the objects of a kind in all namespaces.
async fn count(client: &kube::Client, crd: &CustomResourceDefinition) -> Option<usize> {
    let spec = &crd.spec;
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

/// Waits until a CRD no longer exists. A re-created one is another object.
async fn wait_until_deleted(
    client: &kube::Client,
    name: &str,
    uid: Option<String>,
) -> Result<(), CrdError> {
    let until = Instant::now() + WAIT_LIMIT;
    while read(client, name).await?.is_some_and(|stored| stored.metadata.uid == uid) {
        if Instant::now() >= until {
            return Err(CrdError::Unknown(format!(
                "customresourcedefinition {name} still exists after {} s: finalizers keep objects \
                 of its kind; next: kubectl get {name} -o yaml shows their finalizers",
                WAIT_LIMIT.as_secs()
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
