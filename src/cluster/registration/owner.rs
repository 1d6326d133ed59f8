//! The owner of the webhook configurations: the Namespace that belay runs in.
//!
//! A user may delete that Namespace without `belay admin uninstall`. Then no replica answers, and
//! the API server rejects the requests of all webhooks with `failurePolicy: Fail`. So the Namespace
//! owns both webhook configurations, and the garbage collector deletes them after it. The owner
//! reference has no `blockOwnerDeletion`, because nothing has to wait for the configurations.

use json_patch::Patch;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::core::DynamicObject;
use serde_json::json;
use tokio::time::Instant;

use super::follow::read;
use super::observed::{ConfigurationEvent, ObservedConfiguration, is_namespace};
use crate::cluster::Settings;
use crate::cluster::api::patch_params;
use crate::cluster::pace::{Backoff, within};
use crate::objects::ApiError;
use crate::objects::operations::{add, replace, test};

/// The first and the longest wait after a failure. A failure may last: some clusters allow owner
/// references only to users who may delete the object (OwnerReferencesPermissionEnforcement).
const RETRY: (std::time::Duration, std::time::Duration) =
    (std::time::Duration::from_secs(1), std::time::Duration::from_secs(600));

/// Writes the owner reference of one configuration.
#[derive(Debug)]
pub(super) struct OwnerReferenceWriter {
    /// The uid of the Namespace at the last write.
    uid: Option<String>,
    /// Set after a failure.
    pub(super) retry_at: Option<Instant>,
    backoff: Backoff,
}

impl Default for OwnerReferenceWriter {
    fn default() -> Self {
        Self { uid: None, retry_at: None, backoff: Backoff::new(RETRY.0, RETRY.1) }
    }
}

impl OwnerReferenceWriter {
    /// Writes the reference if it is missing, and updates `observed`.
    pub(super) async fn repair(
        &mut self,
        settings: &Settings,
        (kind, api): (&str, &Api<DynamicObject>),
        observed: &mut ObservedConfiguration,
    ) {
        let owner = observed.owner(&settings.namespace);
        if owner.is_some() && owner == self.uid.as_deref() {
            // This clears the retry also after a failure: the write may have succeeded without an
            // answer.
            self.retry_at = None;
            return;
        }
        let due = self.retry_at.is_none_or(|until| until <= Instant::now());
        if observed.webhooks().is_none() || !due {
            return;
        }
        let before = self.uid.take();
        match write(settings, api, observed).await {
            Ok((uid, wrote)) => {
                let name = &settings.name;
                // A new leader may find the reference missing without an earlier write.
                if wrote && before.as_ref() == Some(&uid) {
                    tracing::warn!(
                        kind,
                        name,
                        "another client has removed belay's Namespace from the owners of the webhook \
                         configuration; belay has restored it"
                    );
                } else if wrote {
                    tracing::info!(kind, name, "belay's Namespace owns the webhook configuration");
                }
                self.uid = Some(uid);
                self.retry_at = None;
                self.backoff.record_success();
            }
            Err(error) => {
                let wait = self.backoff.fail(|| {
                    tracing::warn!(
                        kind,
                        name = settings.name,
                        %error,
                        "cannot make belay's Namespace the owner of the webhook configuration; belay \
                         retries. Until then, a deletion of that Namespace leaves the configuration \
                         behind, and it refuses requests"
                    );
                });
                self.uid = before;
                self.retry_at = Some(Instant::now() + wait);
            }
        }
    }
}

/// Makes the Namespace an owner of the observed version. Returns the uid of the Namespace and
/// whether a write was necessary.
async fn write(
    settings: &Settings,
    api: &Api<DynamicObject>,
    observed: &mut ObservedConfiguration,
) -> Result<(String, bool), ApiError> {
    // belay reads the Namespace each time. With the uid of a deleted Namespace, the garbage
    // collector would delete the configuration at once.
    let namespaces: Api<Namespace> = Api::all(api.clone().into_client());
    let namespace = within(namespaces.get_metadata(&settings.namespace)).await.map_err(absent)?;
    let uid = namespace.metadata.uid.unwrap_or_default();
    let Some(patch) = patch(observed, &settings.namespace, &uid) else { return Ok((uid, false)) };
    let params = patch_params();
    let patch = kube::api::Patch::Json::<()>(patch);
    match within(api.patch(&settings.name, &params, &patch)).await {
        Ok(object) => drop(observed.apply(ConfigurationEvent::Found(Box::new(object)))),
        Err(error) => {
            // The configuration has changed meanwhile: the next attempt uses the new
            // version.
            if !error.is_lasting()
                && let Ok(event) = read(api, &settings.name).await
            {
                drop(observed.apply(event));
            }
            return Err(error);
        }
    }
    Ok((uid, true))
}

fn absent(error: ApiError) -> ApiError {
    match error {
        ApiError::NotFound => ApiError::Other("the Namespace does not exist".to_owned()),
        other => other,
    }
}

/// The patch that adds the Namespace to the owners. `None` if the Namespace already is an owner, or
/// if the configuration is unknown. Other owners stay.
fn patch(observed: &ObservedConfiguration, name: &str, uid: &str) -> Option<Patch> {
    let ObservedConfiguration::Exists { uid: own, version: Some(version), owners, .. } = observed
    else {
        return None;
    };
    let ours: Vec<usize> = (0..owners.len()).filter(|i| is_namespace(&owners[*i], name)).collect();
    if ours.iter().any(|index| owners[*index].uid == uid) {
        return None;
    }
    let value = json!({"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid});
    let change = match (ours.first(), owners.is_empty()) {
        // The owner is a deleted Namespace of the same name.
        (Some(index), _) => replace(&["metadata", "ownerReferences", &index.to_string()], value),
        (None, true) => add(&["metadata", "ownerReferences"], json!([value])),
        (None, false) => add(&["metadata", "ownerReferences", "-"], value),
    };
    let version = test(&["metadata", "resourceVersion"], version.to_string());
    Some(Patch(vec![test(&["metadata", "uid"], own.as_str()), version, change]))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::cluster::local_api::local_client;

    fn reference(kind: &str, name: &str, uid: &str) -> Value {
        let version = if kind == "Namespace" { "v1" } else { "apps/v1" };
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid})
    }

    fn configuration(owners: &[Value]) -> Value {
        let mut object = json!({
            "metadata": {"name": "belay", "uid": "c", "resourceVersion": "7"},
            "webhooks": [],
        });
        if !owners.is_empty() {
            object["metadata"]["ownerReferences"] = json!(owners);
        }
        object
    }

    fn observed(object: &Value) -> ObservedConfiguration {
        let mut observed = ObservedConfiguration::default();
        let object = serde_json::from_value(object.clone()).unwrap();
        observed.apply(ConfigurationEvent::Found(Box::new(object))).unwrap();
        observed
    }

    /// The owners after the patch, if there is one.
    fn patched(owners: &[Value]) -> Option<Value> {
        let mut object = configuration(owners);
        let patch = patch(&observed(&object), "belay", "n")?;
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!(super::patch(&observed(&object), "belay", "n"), None, "once is enough");
        assert_eq!(observed(&object).owner("belay"), Some("n"));
        Some(object["metadata"]["ownerReferences"].clone())
    }

    #[test]
    fn the_namespace_becomes_an_owner_and_others_stay() {
        let ours = || reference("Namespace", "belay", "n");
        let other = || reference("Deployment", "operator", "d");
        let namesake = || reference("Namespace", "other", "o");
        assert_eq!(patched(&[]), Some(json!([ours()])));
        assert_eq!(patched(&[other()]), Some(json!([other(), ours()])));
        assert_eq!(patched(&[namesake()]), Some(json!([namesake(), ours()])));
        assert_eq!(patched(&[other(), ours()]), None);
    }

    #[test]
    fn a_deleted_namespace_is_replaced_by_the_namespace_of_the_same_name() {
        let (old, ours) =
            (reference("Namespace", "belay", "x"), reference("Namespace", "belay", "n"));
        let other = || reference("Deployment", "operator", "d");
        assert_eq!(patched(&[old.clone(), other()]), Some(json!([ours.clone(), other()])));
        // The garbage collector removes the other reference.
        assert_eq!(patched(&[old, ours]), None);
    }

    #[test]
    fn a_patch_applies_only_to_the_observed_version() {
        let patch = patch(&observed(&configuration(&[])), "belay", "n").unwrap();
        for (field, other) in [("uid", "d"), ("resourceVersion", "8")] {
            let mut changed = configuration(&[]);
            changed["metadata"][field] = json!(other);
            assert!(json_patch::patch(&mut changed, &patch).is_err(), "{field}");
        }
    }

    /// Otherwise the leader would wake up again and again, because the time of the retry is past.
    #[tokio::test]
    async fn an_existing_owner_clears_the_retry() {
        let client = local_client::<String>(|_| panic!("no request is expected"));
        let resource = kube::core::ApiResource::erase::<Namespace>(&());
        let api = Api::all_with(client.clone(), &resource);
        let context = crate::cluster::Context::of_test(client, Default::default(), &[]);
        let past = Instant::now().checked_sub(std::time::Duration::from_secs(1));
        let mut owned = OwnerReferenceWriter {
            uid: Some("n".to_owned()),
            retry_at: past,
            ..OwnerReferenceWriter::default()
        };
        let mut observed = observed(&configuration(&[reference("Namespace", "belay", "n")]));
        owned.repair(&context.settings, ("validating", &api), &mut observed).await;
        assert_eq!(owned.retry_at, None);
    }

    #[test]
    fn nothing_waits_for_the_configuration() {
        let text = json!(patch(&observed(&configuration(&[])), "belay", "n")).to_string();
        assert!(!text.contains("blockOwnerDeletion"), "{text}");
    }
}
