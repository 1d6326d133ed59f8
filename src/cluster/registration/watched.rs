//! One configuration, as far as it is known.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;

use super::patch::{Standing, standing};

/// What stands in the API server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Watched {
    /// Nobody has looked yet.
    #[default]
    Unknown,
    /// It does not exist.
    Missing,
    /// It does.
    There {
        /// Which object it is.
        uid: String,
        /// Its version, where that is a number.
        version: Option<u64>,
        /// Its entries.
        entries: Vec<Standing>,
        /// Whose it is.
        owners: Vec<OwnerReference>,
    },
}

/// News of a configuration.
#[derive(Debug)]
pub(super) enum News {
    /// It was read, changed or made.
    Is(Box<DynamicObject>),
    /// The object with this uid was deleted.
    Gone(String),
    /// There is none.
    None,
}

impl Watched {
    /// Takes news in. The answer to a patch comes before the watch tells of
    /// what was there before it: older news of the same object is no news, or
    /// what has just been put right would be put right again.
    pub(super) fn take(&mut self, news: News) -> Result<(), serde_json::Error> {
        match news {
            News::None => *self = Self::Missing,
            News::Gone(gone) => {
                if !matches!(self, Self::There { uid, .. } if *uid != gone) {
                    *self = Self::Missing;
                }
            }
            News::Is(object) => {
                let uid = object.metadata.uid.unwrap_or_default();
                let version = object.metadata.resource_version.and_then(|v| v.parse().ok());
                if let Self::There { uid: known, version: newest, .. } = self
                    && *known == uid
                    && version < *newest
                {
                    return Ok(());
                }
                let entries = standing(object.data.get("webhooks"))?;
                let owners = object.metadata.owner_references.unwrap_or_default();
                *self = Self::There { uid, version, entries, owners };
            }
        }
        Ok(())
    }

    /// The entries, if it exists.
    pub(super) fn entries(&self) -> Option<&[Standing]> {
        match self {
            Self::There { entries, .. } => Some(entries),
            Self::Unknown | Self::Missing => None,
        }
    }

    /// The uid of the Namespace of this name, if it owns it.
    pub(super) fn owner(&self, namespace: &str) -> Option<&str> {
        let Self::There { owners, .. } = self else { return None };
        let owner = owners.iter().find(|reference| is_namespace(reference, namespace));
        owner.map(|reference| reference.uid.as_str())
    }
}

/// Whether a reference is to the Namespace of this name.
pub(super) fn is_namespace(reference: &OwnerReference, name: &str) -> bool {
    reference.api_version == "v1" && reference.kind == "Namespace" && reference.name == name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str, version: &str, names: &[&str]) -> News {
        let webhooks: Vec<_> = names.iter().map(|n| serde_json::json!({"name": n})).collect();
        let value = serde_json::json!({
            "metadata": {"uid": uid, "resourceVersion": version},
            "webhooks": webhooks,
        });
        News::Is(Box::new(serde_json::from_value(value).unwrap()))
    }

    fn names(watched: &Watched) -> Option<Vec<&str>> {
        Some(watched.entries()?.iter().map(|entry| entry.name.as_str()).collect())
    }

    #[test]
    fn older_news_of_the_same_object_is_no_news() {
        let mut watched = Watched::default();
        watched.take(object("a", "10", &["new"])).unwrap();
        watched.take(object("a", "9", &["old"])).unwrap();
        assert_eq!(names(&watched), Some(vec!["new"]));
        watched.take(object("a", "11", &["newer"])).unwrap();
        assert_eq!(names(&watched), Some(vec!["newer"]));
        // Another object of that name counts from its own beginning.
        watched.take(object("b", "3", &["other"])).unwrap();
        assert_eq!(names(&watched), Some(vec!["other"]));
    }

    #[test]
    fn what_was_made_again_is_not_gone() {
        let mut watched = Watched::default();
        watched.take(object("b", "12", &[])).unwrap();
        watched.take(News::Gone("a".to_owned())).unwrap();
        assert_eq!(names(&watched), Some(Vec::new()));
        watched.take(News::Gone("b".to_owned())).unwrap();
        assert_eq!(watched, Watched::Missing);
    }
}
