//! The Secret with the secret paths.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};

use super::rotation::{Content, DatedPath};
use crate::cluster::secret::{self, MADE_BY, REQUESTED, has_annotation};
use crate::webhook::SecretPath;

/// The key of the Secret's data.
const KEY: &str = "tokens.json";

#[derive(Serialize, Deserialize)]
struct StoredPath {
    token: String,
    made: String,
}

/// Reads the secret paths from the Secret, which may not exist. Omits invalid paths.
pub fn read(secret: Option<&Secret>) -> Content {
    let Some(secret) = secret else { return Content::default() };
    let bytes = secret.data.as_ref().and_then(|data| data.get(KEY));
    let stored: Vec<StoredPath> =
        bytes.and_then(|bytes| serde_json::from_slice(&bytes.0).ok()).unwrap_or_default();
    let parse = |stored: StoredPath| {
        let made: Timestamp = stored.made.parse().ok()?;
        Some(DatedPath { path: SecretPath::parse(&stored.token)?, made: made.as_second() })
    };
    Content {
        paths: stored.into_iter().filter_map(parse).collect(),
        requested: has_annotation(&secret.metadata, REQUESTED),
    }
}

/// The Secret with these secret paths, the newest one last. A request to rotate stays unless it is
/// `answered`.
pub fn with_paths(
    secret: Option<Secret>,
    (namespace, name): (&str, &str),
    paths: &[DatedPath],
    answered: bool,
) -> Result<Secret, serde_json::Error> {
    let mut secret = secret.unwrap_or_else(|| secret::new(namespace, name));
    let stored = paths.iter().map(|dated| StoredPath {
        token: dated.path.expose().to_owned(),
        made: Timestamp::from_second(dated.made).unwrap_or_default().to_string(),
    });
    let bytes = serde_json::to_vec(&stored.collect::<Vec<_>>())?;
    secret.data.get_or_insert_default().insert(KEY.to_owned(), ByteString(bytes));
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.insert(MADE_BY.to_owned(), name.to_owned());
    if answered {
        annotations.remove(REQUESTED);
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: (&str, &str) = ("belay", "belay-path");

    #[test]
    fn reads_secret_paths_as_written_and_omits_invalid_ones() {
        assert_eq!(read(None), Content::default());
        let dated = |made| DatedPath { path: SecretPath::generate().unwrap(), made };
        let paths = vec![dated(1_800_000_000), dated(1_800_086_400)];
        let secret = with_paths(None, PLACE, &paths, true).unwrap();
        assert_eq!(read(Some(&secret)), Content { paths: paths.clone(), requested: false });

        let mut asked = secret.clone();
        let annotations = asked.metadata.annotations.get_or_insert_default();
        annotations.insert(REQUESTED.to_owned(), "yes".to_owned());
        assert!(read(Some(&asked)).requested);
        let kept = with_paths(Some(asked.clone()), PLACE, &paths[1..], false).unwrap();
        assert_eq!(read(Some(&kept)), Content { paths: paths[1..].to_vec(), requested: true });
        assert!(!read(Some(&with_paths(Some(asked), PLACE, &paths, true).unwrap())).requested);

        for broken in [
            "",
            "[]",
            "{}",
            r#"[{"token": "validate", "made": "2026-01-01T00:00:00Z"}]"#,
            r#"[{"token": "", "made": "yesterday"}]"#,
        ] {
            let mut secret = secret.clone();
            let bytes = ByteString(broken.as_bytes().to_vec());
            secret.data.get_or_insert_default().insert(KEY.to_owned(), bytes);
            assert_eq!(read(Some(&secret)), Content::default(), "{broken}");
        }
    }
}
