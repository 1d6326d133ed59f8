//! Writes objects into etcd, past the API server, which creates only some hundred objects a
//! second. The watches of the API server report them as usual.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use serde_json::{Value, json};

use crate::crowd::StoredObject;
use crate::harness::{ControlPlane, Result};

/// The maximum number of operations in a transaction of etcd.
const OPERATIONS: usize = 128;

/// A client of etcd. It belongs to the runtime that created it.
pub struct Etcd(kube::Client);

impl Etcd {
    pub fn of(plane: &ControlPlane) -> Result<Self> {
        let config = kube::Config::new(plane.etcd_url().parse()?);
        Ok(Self(kube::Client::try_from(config)?))
    }

    /// Creates or replaces objects. Each has its key, such as `/registry/pods/shop/web`.
    pub async fn put(&self, objects: &[StoredObject]) -> Result<()> {
        for objects in objects.chunks(OPERATIONS) {
            let put = |(key, object): &StoredObject| {
                json!({"requestPut": {
                    "key": STANDARD.encode(key),
                    "value": STANDARD.encode(object.to_string()),
                }})
            };
            let operations: Vec<Value> = objects.iter().map(put).collect();
            let body = serde_json::to_vec(&json!({"success": operations}))?;
            let request = Request::post("/v3/kv/txn")
                .header("content-type", "application/json")
                .body(body)?;
            let _revision = self.0.request_text(request).await?;
        }
        Ok(())
    }
}
