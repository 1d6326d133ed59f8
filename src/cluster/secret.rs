//! The Secrets that belay creates.

mod follow;

pub(super) use follow::{Follower, IDLE, follow};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use super::pace::within;
use crate::objects::ApiError;

/// The annotation of a Secret whose content belay wrote.
pub(super) const MADE_BY: &str = "belay.dev/made-by";
/// The annotation that requests new content for a Secret.
pub(super) const REQUESTED: &str = "belay.dev/rotate-requested";

/// Whether belay wrote the content of a Secret.
pub(super) fn is_own(secret: &ObjectMeta) -> bool {
    has_annotation(secret, MADE_BY)
}

pub(super) fn has_annotation(secret: &ObjectMeta, key: &str) -> bool {
    secret.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(key))
}

/// A Secret that does not exist yet.
pub(super) fn new(namespace: &str, name: &str) -> Secret {
    let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    let metadata = ObjectMeta { namespace, name, ..ObjectMeta::default() };
    Secret { metadata, ..Secret::default() }
}

/// Creates or replaces a Secret, if it has not changed since it was read. Otherwise the watch
/// reports the change, and the next step uses it.
pub(super) async fn write(secrets: &Api<Secret>, secret: &Secret) -> Result<(), ApiError> {
    let parameters = PostParams::default();
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    let write = async {
        match secret.metadata.resource_version {
            None => secrets.create(&parameters, secret).await,
            Some(_) => secrets.replace(name, &parameters, secret).await,
        }
    };
    match within(write).await {
        Err(error) if !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}
