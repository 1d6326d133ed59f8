//! The plain client: it does for its own finalizer what belay does for a hold, and nothing
//! else. It marks each Terminating object and removes the finalizer, with the same patches.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::crowd;
use crate::harness::Result;
use crate::writer::{Writer, config_map, core};

const FINALIZER: &str = "example.com/hold";
const TOKEN: &str = "example.com~1token";

/// The number of objects that the client releases at a time.
const AT_ONCE: usize = 16;

/// Creates and deletes ConfigMaps in a namespace without policies. Returns how long the client
/// takes to mark and remove all of them.
pub fn release(runtime: &Runtime, writer: &Writer, ns: &str, objects: usize) -> Result<Duration> {
    let path = core(ns, "configmaps");
    let names: Vec<String> = (0..objects).map(|number| format!("plain-{number}")).collect();
    runtime.block_on(async {
        let maps = names.iter().map(|name| {
            let mut map = config_map(name, 500);
            map["metadata"]["finalizers"] = json!([FINALIZER]);
            map
        });
        crowd::create(writer, &path, maps).await?;
        crowd::delete(writer, &path, &names).await?;
        let started = Instant::now();
        let each = |name: &String| {
            let path = format!("{path}/{name}");
            async move { release_one(writer, &path).await }
        };
        stream::iter(names.iter().map(each))
            .map(Ok)
            .try_for_each_concurrent(AT_ONCE, |release| release)
            .await?;
        Ok(started.elapsed())
    })
}

async fn release_one(writer: &Writer, path: &str) -> Result<()> {
    let token = [
        json!({"op": "add", "path": "/metadata/annotations", "value": {}}),
        json!({"op": "add", "path": format!("/metadata/annotations/{TOKEN}"), "value": "1"}),
    ];
    let marked: Value = serde_json::from_str(&writer.patch(path, &json!(token)).await?)?;
    let test = |field: &str| json!({"op": "test", "path": format!("/metadata/{field}"), "value": marked["metadata"][field]});
    let removal = json!([
        test("uid"),
        test("deletionTimestamp"),
        json!({"op": "test", "path": format!("/metadata/annotations/{TOKEN}"), "value": "1"}),
        json!({"op": "test", "path": "/metadata/finalizers/0", "value": FINALIZER}),
        json!({"op": "remove", "path": "/metadata/finalizers/0"}),
    ]);
    writer.patch(path, &removal).await.map(drop)
}
