//! Requests to the API server as one user.

use std::path::Path;

use belay::objects::read_tolerant;
use serde_json::{Value, json};

use crate::harness::Result;

/// The client of a user.
#[derive(Clone)]
pub struct Caller(kube::Client);

/// A refused or failed request.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The HTTP status; 0: there was no answer.
    pub code: u16,
    /// The reason in one word.
    pub reason: String,
    /// The message of the error.
    pub message: String,
}

/// The result of a request.
pub type Answer = std::result::Result<Value, Refusal>;

impl Caller {
    /// The client of a kubeconfig.
    pub async fn of(kubeconfig: &Path) -> Result<Self> {
        let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await?;
        Ok(Self(kube::Client::try_from(config)?))
    }

    async fn send(&self, method: &str, url: &str, content: &str, body: Option<Value>) -> Answer {
        let lost = |message: String| Refusal { code: 0, reason: String::new(), message };
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(url);
        let request = request.header("content-type", content).body(body.into_bytes());
        let request = request.map_err(|error| lost(error.to_string()))?;
        match self.0.request_text(request).await {
            // The attacker's objects are nested more deeply than a parser reads.
            Ok(text) => read_tolerant(&text).map_err(|error| lost(error.to_string())),
            Err(kube::Error::Api(status)) => Err(Refusal {
                code: status.code,
                reason: status.reason.clone(),
                message: status.message.clone(),
            }),
            Err(error) => Err(lost(error.to_string())),
        }
    }

    /// Reads.
    pub async fn get(&self, url: &str) -> Answer {
        self.send("GET", url, "application/json", None).await
    }

    /// Sends a POST.
    pub async fn post(&self, url: &str, object: Value) -> Answer {
        self.send("POST", url, "application/json", Some(object)).await
    }

    /// Replaces.
    pub async fn put(&self, url: &str, object: Value) -> Answer {
        self.send("PUT", url, "application/json", Some(object)).await
    }

    /// Merges.
    pub async fn merge(&self, url: &str, patch: Value) -> Answer {
        self.send("PATCH", url, "application/merge-patch+json", Some(patch)).await
    }

    /// Patches step by step.
    pub async fn json_patch(&self, url: &str, patch: Value) -> Answer {
        self.send("PATCH", url, "application/json-patch+json", Some(patch)).await
    }

    /// Deletes.
    pub async fn delete(&self, url: &str, propagation: Option<&str>) -> Answer {
        let options = propagation.map(|propagation| {
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation})
        });
        self.send("DELETE", url, "application/json", options).await
    }

    /// The objects of a collection.
    pub async fn list(&self, url: &str) -> std::result::Result<Vec<Value>, Refusal> {
        let mut list = self.get(url).await?;
        Ok(serde_json::from_value(list["items"].take()).unwrap_or_default())
    }
}
