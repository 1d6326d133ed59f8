//! Reviews that the API server did not send: any Pod can reach the port of the
//! webhook.

use serde_json::{Value, json};

use crate::World;
use crate::harness::{Result, direct};

/// Who sends a forged review, and what about.
pub struct Forged<'a> {
    pub user: &'a str,
    pub groups: &'a [&'a str],
    pub operation: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    /// The object as it is stored.
    pub object: Value,
}

impl Forged<'_> {
    /// Posts it to each replica, as the webhook `delete.belay.dev` is asked; returns whether each allowed the request.
    pub fn post(&self, world: &World) -> Result<Vec<bool>> {
        let text = |path: &str| self.object.pointer(path).cloned().unwrap_or_else(|| json!(""));
        let request = json!({
            "uid": "7b1f4f5e-0000-4000-8000-000000000000",
            "operation": self.operation,
            "resource": {"group": self.group, "version": "v1", "resource": self.resource},
            "kind": {"group": self.group, "version": "v1", "kind": text("/kind")},
            "name": text("/metadata/name"),
            "namespace": text("/metadata/namespace"),
            "userInfo": {"username": self.user, "groups": self.groups},
            "oldObject": self.object,
            "dryRun": false,
            "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
        });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
        });
        let path = direct::registered_path(&world.plane, "validatingwebhookconfiguration")?;
        let addresses = world.belay.addresses().into_iter();
        let answers = addresses.map(|address| {
            let answer =
                direct::client(&world.plane, address)?.try_post(&path, review.to_string())?;
            Ok(answer.json()["response"]["allowed"] == json!(true))
        });
        answers.collect()
    }
}
