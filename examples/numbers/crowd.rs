//! Creates many objects fast.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::{ControlPlane, Result};
use crate::writer::{Writer, config_map, core, pod};

/// The number of objects in each namespace, from the numbers below.
pub const EACH: usize = 1_000;
/// The number of ReplicaSets.
const SETS: usize = 100;
const PODS_OF_A_SET: usize = 5;
const CONFIG_MAPS: usize = 200;
const SECRETS: usize = 200;

/// The number of concurrent namespaces or requests.
const AT_ONCE: usize = 16;

/// The label of the namespaces.
pub const LABEL: &str = "matchLabels: {crowd: \"true\"}";

/// Creates this many namespaces of a thousand objects each. Returns the number of
/// objects.
pub async fn make(plane: &ControlPlane, namespaces: usize) -> Result<usize> {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for number in 0..namespaces {
        let (writer, permits) = (Writer::of(plane).await?, permits.clone());
        tasks.spawn(async move {
            let _permit = permits.acquire_owned().await?;
            fill(&writer, &format!("crowd-{number}")).await
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(namespaces * EACH)
}

/// Creates these objects in one collection, many at a time.
pub async fn create(
    writer: &Writer,
    collection: &str,
    objects: impl Iterator<Item = Value>,
) -> Result<()> {
    let each = |object| async move { writer.create(collection, &object).await.map(drop) };
    stream::iter(objects).map(Ok).try_for_each_concurrent(AT_ONCE, each).await
}

/// Deletes these objects of one collection, many at a time. Fails if a request is
/// refused.
pub async fn delete(writer: &Writer, collection: &str, names: &[String]) -> Result<()> {
    let each = |name| async move {
        let path = format!("{collection}/{name}");
        if writer.delete(&path).await? { Ok(()) } else { Err(format!("{path}: refused").into()) }
    };
    stream::iter(names).map(Ok).try_for_each_concurrent(AT_ONCE, each).await
}

async fn fill(writer: &Writer, ns: &str) -> Result<()> {
    let labels = json!({"crowd": "true"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns, "labels": labels}});
    writer.create("/api/v1/namespaces", &namespace).await?;
    // Admission requires this account for Pods, and no controller runs that creates it.
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    writer.create(&core(ns, "serviceaccounts"), &account).await?;
    for number in 0..CONFIG_MAPS {
        let name = format!("settings-{number}-6d5f7c9b8");
        writer.create(&core(ns, "configmaps"), &config_map(&name, 1_000)).await?;
    }
    for number in 0..SECRETS {
        let name = format!("credentials-{number}-6d5f7c9b8");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"password": "x".repeat(1_000)}});
        writer.create(&core(ns, "secrets"), &secret).await?;
    }
    for number in 0..SETS {
        set(writer, ns, number).await?;
    }
    Ok(())
}

/// A ReplicaSet and its Pods. Each Pod uses a ConfigMap and a Secret.
async fn set(writer: &Writer, ns: &str, number: usize) -> Result<()> {
    let name = format!("service-{number}-6d5f7c9b8");
    let reads = |pod: usize| {
        let read = (number * PODS_OF_A_SET + pod) % CONFIG_MAPS;
        ([format!("settings-{read}-6d5f7c9b8")], format!("credentials-{read}-6d5f7c9b8"))
    };
    let (config_maps, secret) = reads(0);
    let mut template = pod("", &config_maps, &secret);
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": PODS_OF_A_SET, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": template["spec"].take()}}});
    let sets = format!("/apis/apps/v1/namespaces/{ns}/replicasets");
    let made: Value = serde_json::from_str(&writer.create(&sets, &set).await?)?;
    for number in 0..PODS_OF_A_SET {
        let (config_maps, secret) = reads(number);
        let mut pod = pod(&format!("{name}-{number}x7kq"), &config_maps, &secret);
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "name": name, "uid": made["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]);
        writer.create(&core(ns, "pods"), &pod).await?;
    }
    Ok(())
}
