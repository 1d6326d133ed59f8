//! The last known state of one webhook configuration.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::core::DynamicObject;

use super::stored::{StoredWebhook, parse_webhooks};

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum ObservedConfiguration {
    /// Not read yet.
    #[default]
    Unknown,
    Missing,
    Exists {
        uid: String,
        /// The resource version, if it is a number.
        version: Option<u64>,
        webhooks: Vec<StoredWebhook>,
        owners: Vec<OwnerReference>,
    },
}

/// An event about a webhook configuration.
#[derive(Debug)]
pub(super) enum ConfigurationEvent {
    /// It was read, changed or created.
    Found(Box<DynamicObject>),
    /// The object with this uid was deleted.
    Deleted(String),
    /// It does not exist.
    Missing,
}

impl ObservedConfiguration {
    /// The answer to a patch can arrive before older watch events. Older versions of the
    /// same object are ignored, so that belay does not repeat the patch.
    pub(super) fn apply(&mut self, event: ConfigurationEvent) -> Result<(), serde_json::Error> {
        match event {
            ConfigurationEvent::Missing => *self = Self::Missing,
            ConfigurationEvent::Deleted(deleted_uid) => {
                if !matches!(self, Self::Exists { uid, .. } if *uid != deleted_uid) {
                    *self = Self::Missing;
                }
            }
            ConfigurationEvent::Found(object) => {
                let uid = object.uid().unwrap_or_default();
                let version = object.resource_version().and_then(|v| v.parse().ok());
                if let Self::Exists { uid: known, version: newest, .. } = self
                    && *known == uid
                    && version < *newest
                {
                    return Ok(());
                }
                let webhooks = parse_webhooks(object.data.get("webhooks"))?;
                let owners = object.metadata.owner_references.unwrap_or_default();
                *self = Self::Exists { uid, version, webhooks, owners };
            }
        }
        Ok(())
    }

    pub(super) fn webhooks(&self) -> Option<&[StoredWebhook]> {
        match self {
            Self::Exists { webhooks, .. } => Some(webhooks),
            Self::Unknown | Self::Missing => None,
        }
    }

    /// The uid of the owning Namespace of this name.
    pub(super) fn owner(&self, namespace: &str) -> Option<&str> {
        let Self::Exists { owners, .. } = self else { return None };
        let owner = owners.iter().find(|reference| is_namespace(reference, namespace));
        owner.map(|reference| reference.uid.as_str())
    }
}

pub(super) fn is_namespace(reference: &OwnerReference, name: &str) -> bool {
    reference.api_version == "v1" && reference.kind == "Namespace" && reference.name == name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str, version: &str, names: &[&str]) -> ConfigurationEvent {
        let webhooks: Vec<_> = names.iter().map(|n| serde_json::json!({"name": n})).collect();
        let value = serde_json::json!({
            "metadata": {"uid": uid, "resourceVersion": version},
            "webhooks": webhooks,
        });
        ConfigurationEvent::Found(Box::new(serde_json::from_value(value).unwrap()))
    }

    fn names(observed: &ObservedConfiguration) -> Option<Vec<&str>> {
        Some(observed.webhooks()?.iter().map(|webhook| webhook.name.as_str()).collect())
    }

    #[test]
    fn ignores_older_versions_of_the_same_object() {
        let mut observed = ObservedConfiguration::default();
        observed.apply(object("a", "10", &["new"])).unwrap();
        observed.apply(object("a", "9", &["old"])).unwrap();
        assert_eq!(names(&observed), Some(vec!["new"]));
        observed.apply(object("a", "11", &["newer"])).unwrap();
        assert_eq!(names(&observed), Some(vec!["newer"]));
        // Versions of another object are not comparable.
        observed.apply(object("b", "3", &["other"])).unwrap();
        assert_eq!(names(&observed), Some(vec!["other"]));
    }

    #[test]
    fn the_deletion_of_an_old_object_keeps_a_re_created_object() {
        let mut observed = ObservedConfiguration::default();
        observed.apply(object("b", "12", &[])).unwrap();
        observed.apply(ConfigurationEvent::Deleted("a".to_owned())).unwrap();
        assert_eq!(names(&observed), Some(Vec::new()));
        observed.apply(ConfigurationEvent::Deleted("b".to_owned())).unwrap();
        assert_eq!(observed, ObservedConfiguration::Missing);
    }
}
