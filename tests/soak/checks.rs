//! The conditions that must be true when all activity has stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::call::Caller;
use crate::harness::Result;
use crate::harness::belay::http_get;
use crate::plan::ROOMS;

const HOLD: &str = "belay.dev/hold";

/// The compared facts about an object: its place, and the parts that may change.
type Known = BTreeMap<String, String>;

/// Whether it is a namespace of the soak.
pub fn is_ours(namespace: &str) -> bool {
    ROOMS.contains(&namespace) || namespace.starts_with("visit-")
}

/// The kinds of the soak's objects, in the API server.
pub const COLLECTIONS: [&str; 10] = [
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/pods",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/batch/v1/jobs",
    "/apis/soak.dev/v1/widgets",
    "/apis/soak.dev/v1/gadgets",
];

/// All objects in the namespaces of the soak.
pub async fn content(caller: &Caller) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for url in COLLECTIONS {
        match caller.list(url).await {
            Ok(objects) => all.extend(objects),
            Err(refusal) if refusal.code == 404 => {}
            Err(refusal) => return Err(format!("{url}: {}", refusal.message).into()),
        }
    }
    all.retain(|object| object["metadata"]["namespace"].as_str().is_some_and(is_ours));
    Ok(all)
}

/// Waits until no Terminating object has changed for this time, or for a limit.
pub async fn quiet(caller: &Caller, still: Duration, limit: Duration) -> Result<()> {
    let begin = Instant::now();
    let (mut since, mut last) = (begin, None);
    while begin.elapsed() < limit {
        let mut now: Vec<(String, String)> = Vec::new();
        for object in content(caller).await? {
            let text = |path: &str| object.pointer(path).unwrap_or(&Value::Null).to_string();
            let terminating = !object["metadata"]["deletionTimestamp"].is_null();
            // A Pod's status moves while it is started and stopped.
            let version = if terminating { text("/metadata/finalizers") } else { String::new() };
            now.push((text("/metadata/uid"), version));
        }
        now.sort();
        if last.as_ref() != Some(&now) {
            (since, last) = (Instant::now(), Some(now));
        } else if since.elapsed() >= still {
            return Ok(());
        }
        crate::harness::pause_async(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Compares the graph of a replica with the API server's content until they agree. Returns
/// the differences and the number of compared objects.
pub async fn graph(caller: &Caller, probes: SocketAddr) -> Result<(Vec<String>, usize)> {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let (differences, compared) = compare(caller, probes).await?;
        if differences.is_empty() || Instant::now() > limit {
            return Ok((differences, compared));
        }
        crate::harness::pause_async(Duration::from_millis(500)).await;
    }
}

async fn compare(caller: &Caller, probes: SocketAddr) -> Result<(Vec<String>, usize)> {
    let (code, dump) = http_get(probes, "/debug/graph")?;
    if code != 200 {
        return Err(format!("/debug/graph says {code}: {dump}").into());
    }
    let mut kinds: BTreeMap<&str, (bool, Known)> = BTreeMap::new();
    for line in dump.lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["kind", kind, state] => {
                kinds.insert(kind, (state == "complete", Known::new()));
            }
            ["object", kind, namespace, name, uid, state, finalizers, owners] => {
                let (_, known) = kinds.entry(kind).or_default();
                known.insert(
                    uid.to_owned(),
                    format!("{kind} {namespace}/{name} {state} [{finalizers}] [{owners}]"),
                );
            }
            _ => return Err(format!("/debug/graph has a line: {line}").into()),
        }
    }
    let served = served(caller).await?;
    let (mut differences, mut compared) = (Vec::new(), 0);
    for (kind, (complete, known)) in kinds {
        let Some(url) = served.get(kind) else {
            let unknown = format!("{kind} is in the graph and not served: {} objects", known.len());
            differences.extend((!known.is_empty()).then_some(unknown));
            continue;
        };
        let there = there(caller, kind, url).await?;
        compared += known.len();
        for (uid, text) in &known {
            if there.get(uid) != Some(text) {
                differences.push(format!("graph: {text}; API server: {:?}", there.get(uid)));
            }
        }
        // For a kind that is not complete, the graph has a part of the objects.
        for (uid, text) in there.iter().filter(|(uid, _)| complete && !known.contains_key(*uid)) {
            differences.push(format!("the graph lacks {text} ({uid})"));
        }
    }
    let counted = metric(probes, "belay_graph_objects ")?;
    if counted != compared as f64 {
        differences.push(format!("belay_graph_objects says {counted}, /debug/graph {compared}"));
    }
    Ok((differences, compared))
}

async fn there(caller: &Caller, kind: &str, url: &str) -> Result<Known> {
    let listed = caller.list(url).await.map_err(|refusal| refusal.message)?;
    let texts = |list: &Value, key: Option<&str>| {
        let list = list.as_array().into_iter().flatten();
        let texts = list.filter_map(|v| key.map_or(v, |key| &v[key]).as_str());
        texts.collect::<Vec<_>>().join(",")
    };
    let of = |object: &Value| {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default();
        let live = metadata["deletionTimestamp"].is_null();
        let line = format!(
            "{kind} {}/{} {} [{}] [{}]",
            text("namespace"),
            text("name"),
            if live { "live" } else { "terminating" },
            texts(&metadata["finalizers"], None),
            texts(&metadata["ownerReferences"], Some("uid")),
        );
        (text("uid").to_owned(), line)
    };
    Ok(listed.iter().map(of).collect())
}

/// The URL of every kind that the API server serves, by `resource.group`.
async fn served(caller: &Caller) -> Result<BTreeMap<String, String>> {
    let said = |refusal: crate::call::Refusal| refusal.message;
    let mut roots = vec![(String::new(), "/api/v1".to_owned())];
    let groups = caller.get("/apis").await.map_err(said)?;
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let name = group["name"].as_str().unwrap_or_default();
            let path = version["groupVersion"].as_str().unwrap_or_default();
            roots.push((format!(".{name}"), format!("/apis/{path}")));
        }
    }
    let mut served = BTreeMap::new();
    for (group, root) in roots {
        // A group that is deleted at this moment is not served.
        let Ok(list) = caller.get(&root).await else { continue };
        for resource in list["resources"].as_array().into_iter().flatten() {
            let name = resource["name"].as_str().unwrap_or_default();
            let url = format!("{root}/{name}");
            served.entry(format!("{name}{group}")).or_insert(url);
        }
    }
    Ok(served)
}

/// The value of a metric whose line has this beginning.
pub fn metric(probes: SocketAddr, begins: &str) -> Result<f64> {
    let (_, text) = http_get(probes, "/metrics")?;
    let line = text.lines().find_map(|line| line.strip_prefix(begins));
    let value = line.and_then(|rest| rest.rsplit(' ').next()?.parse().ok());
    value.ok_or_else(|| format!("no metric {begins}").into())
}

/// Waits until no object has the hold. Returns the remaining ones.
pub async fn wait_until_empty(caller: &Caller, limit: Duration) -> Result<Vec<String>> {
    let until = Instant::now() + limit;
    let left = loop {
        let mut left = BTreeSet::new();
        for object in content(caller).await? {
            let finalizers = object["metadata"]["finalizers"].as_array();
            if finalizers.is_some_and(|list| list.iter().any(|f| f == HOLD)) {
                let metadata = &object["metadata"];
                left.insert(format!("{}/{} has the hold", metadata["namespace"], metadata["name"]));
            }
        }
        if left.is_empty() || Instant::now() > until {
            break left;
        }
        crate::harness::pause_async(Duration::from_millis(500)).await;
    };
    Ok(left.into_iter().collect())
}
