//! A client of the API server.

use http::Request;
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Result};

/// A client. It is cheap to clone, and belongs to the runtime that created it.
#[derive(Clone)]
pub struct Writer(pub kube::Client);

impl Writer {
    /// A client with the permissions of an administrator.
    pub async fn of(plane: &ControlPlane) -> Result<Self> {
        Ok(Self(plane.client().await?))
    }

    /// Creates an object and returns it.
    pub async fn create(&self, collection: &str, object: &Value) -> Result<String> {
        let request = Request::post(collection)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(object)?)?;
        Ok(self.0.request_text(request).await?)
    }

    /// Reads a path and returns the answer.
    pub async fn get(&self, path: &str) -> Result<String> {
        Ok(self.0.request_text(Request::get(path).body(Vec::new())?).await?)
    }

    /// Sends a merge patch.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<()> {
        self.send_patch(path, "application/merge-patch+json", patch).await.map(drop)
    }

    /// Sends a JSON patch and returns the object.
    pub async fn patch(&self, path: &str, patch: &Value) -> Result<String> {
        self.send_patch(path, "application/json-patch+json", patch).await
    }

    async fn send_patch(&self, path: &str, content_type: &str, patch: &Value) -> Result<String> {
        let request = Request::patch(path)
            .header("content-type", content_type)
            .body(serde_json::to_vec(patch)?)?;
        Ok(self.0.request_text(request).await?)
    }

    /// Deletes an object. Returns whether the API server accepted it.
    pub async fn delete(&self, path: &str) -> Result<bool> {
        match self.0.request_text(Request::delete(path).body(Vec::new())?).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The path of a kind of the core group in a namespace.
pub fn core(namespace: &str, resource: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{resource}")
}

/// A ConfigMap with a value of this size.
pub fn config_map(name: &str, bytes: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "web"}},
        "data": {"key": "x".repeat(bytes)}})
}

/// A Pod that uses ConfigMaps and mounts a Secret. No kubelet runs it.
pub fn pod(name: &str, config_maps: &[String], secret: &str) -> Value {
    let read: Vec<Value> =
        config_maps.iter().map(|name| json!({"configMapRef": {"name": name}})).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
    "spec": {
        "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": "web.example.com/web:1.2.3", "envFrom": read,
            "env": [{"name": "MODE", "value": "production"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}]}],
        "volumes": [{"name": "tls", "secret": {"secretName": secret}}],
    }})
}
