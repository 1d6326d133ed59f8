//! Whose the configurations are: those of belay's own Namespace.
//!
//! Whoever deletes the Namespace that belay runs in, and not belay first, takes
//! away everybody who could answer, and leaves webhooks of which half refuse
//! without an answer. So the Namespace owns both configurations, and the garbage
//! collector takes them out once it is gone. It takes no `blockOwnerDeletion`:
//! nothing is to wait for them.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, TestOperation};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::follow::read;
use super::watched::{News, Watched, is_namespace};
use crate::cluster::Settings;
use crate::cluster::api::patch_params;
use crate::cluster::pace::{Backoff, within};
use crate::objects::ApiError;

/// How long a refusal is left alone at first and in the end. It may last: some
/// clusters let nobody write owner references who may not delete the object.
const AGAIN: (std::time::Duration, std::time::Duration) =
    (std::time::Duration::from_secs(1), std::time::Duration::from_secs(600));

/// Keeps the owner reference of one configuration.
#[derive(Debug)]
pub(super) struct Owned {
    /// The uid of the Namespace, as it was written last.
    uid: Option<String>,
    /// After a failure: when to write again.
    pub(super) held_off: Option<Instant>,
    backoff: Backoff,
}

impl Default for Owned {
    fn default() -> Self {
        Self { uid: None, held_off: None, backoff: Backoff::new(AGAIN.0, AGAIN.1) }
    }
}

impl Owned {
    /// Writes the reference if it is not there. What it comes to is told by
    /// `watched`, as everything else.
    pub(super) async fn put_right(
        &mut self,
        settings: &Settings,
        (kind, api): (&str, &Api<DynamicObject>),
        watched: &mut Watched,
    ) {
        let stands = watched.owner(&settings.namespace);
        if stands.is_some() && stands == self.uid.as_deref() {
            // Also after a failure: a write whose answer was lost may have
            // landed, and somebody else may have put it back.
            self.held_off = None;
            return;
        }
        let due = self.held_off.is_none_or(|until| until <= Instant::now());
        if watched.entries().is_none() || !due {
            return;
        }
        let before = self.uid.take();
        match write(settings, api, watched).await {
            Ok((uid, wrote)) => {
                let name = &settings.name;
                // Who has begun to lead finds it there.
                if wrote && before.as_ref() == Some(&uid) {
                    tracing::warn!(
                        kind,
                        name,
                        "somebody has taken belay's Namespace off the owners of the webhook \
                         configuration; it is put back"
                    );
                } else if wrote {
                    tracing::info!(kind, name, "the webhook configuration goes with the Namespace");
                }
                self.uid = Some(uid);
                self.held_off = None;
                self.backoff.succeeded();
            }
            Err(error) => {
                if self.backoff.is_first() {
                    tracing::warn!(
                        kind,
                        name = settings.name,
                        %error,
                        "belay's Namespace cannot be made the owner of the webhook configuration, \
                         which would stay and refuse where that Namespace is deleted before belay \
                         is uninstalled; belay tries again"
                    );
                }
                self.uid = before;
                self.held_off = Some(Instant::now() + self.backoff.next());
            }
        }
    }
}

/// Makes the Namespace an owner, upon the very version that was looked at. Says
/// its uid, and whether anything had to be written.
async fn write(
    settings: &Settings,
    api: &Api<DynamicObject>,
    watched: &mut Watched,
) -> Result<(String, bool), ApiError> {
    // Each time anew: with the uid of a Namespace that is gone the garbage
    // collector would take the configuration out at once.
    let namespaces: Api<Namespace> = Api::all(api.clone().into_client());
    let namespace = within(namespaces.get_metadata(&settings.namespace)).await.map_err(absent)?;
    let uid = namespace.metadata.uid.unwrap_or_default();
    let Some(patch) = patch(watched, &settings.namespace, &uid) else { return Ok((uid, false)) };
    let params = patch_params();
    let patch = kube::api::Patch::Json::<()>(patch);
    match within(api.patch(&settings.name, &params, &patch)).await {
        Ok(object) => drop(watched.take(News::Is(Box::new(object)))),
        Err(error) => {
            // It is another version by now: the next look is at that one.
            if !error.is_lasting()
                && let Ok(news) = read(api, &settings.name).await
            {
                drop(watched.take(news));
            }
            return Err(error);
        }
    }
    Ok((uid, true))
}

fn absent(error: ApiError) -> ApiError {
    match error {
        ApiError::NotFound => ApiError::Other("that Namespace does not exist".to_owned()),
        other => other,
    }
}

/// What makes the Namespace an owner of a configuration as it stands; `None`: it
/// is one, or nobody knows the configuration. Other owners stay.
fn patch(watched: &Watched, name: &str, uid: &str) -> Option<Patch> {
    let Watched::There { uid: own, version: Some(version), owners, .. } = watched else {
        return None;
    };
    let ours: Vec<usize> = (0..owners.len()).filter(|i| is_namespace(&owners[*i], name)).collect();
    if ours.iter().any(|index| owners[*index].uid == uid) {
        return None;
    }
    let value = json!({"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid});
    let list = |last: &[&str]| path(["metadata", "ownerReferences"].iter().chain(last));
    let change = match (ours.first(), owners.is_empty()) {
        // A Namespace of that name that is gone.
        (Some(index), _) => {
            let path = list(&[&index.to_string()]);
            PatchOperation::Replace(ReplaceOperation { path, value })
        }
        (None, true) => {
            PatchOperation::Add(AddOperation { path: list(&[]), value: json!([value]) })
        }
        (None, false) => PatchOperation::Add(AddOperation { path: list(&["-"]), value }),
    };
    let test = |field: &str, value: Value| {
        PatchOperation::Test(TestOperation { path: path(["metadata", field].iter()), value })
    };
    let version = json!(version.to_string());
    Some(Patch(vec![test("uid", json!(own)), test("resourceVersion", version), change]))
}

fn path<'t>(tokens: impl Iterator<Item = &'t &'t str>) -> PointerBuf {
    PointerBuf::from_tokens(tokens.copied())
}

#[cfg(test)]
mod tests {
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

    fn watched(object: &Value) -> Watched {
        let mut watched = Watched::default();
        let object = serde_json::from_value(object.clone()).unwrap();
        watched.take(News::Is(Box::new(object))).unwrap();
        watched
    }

    /// The owners after the patch, if there is one.
    fn patched(owners: &[Value]) -> Option<Value> {
        let mut object = configuration(owners);
        let patch = patch(&watched(&object), "belay", "n")?;
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!(super::patch(&watched(&object), "belay", "n"), None, "once is enough");
        assert_eq!(watched(&object).owner("belay"), Some("n"));
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
    fn a_namespace_that_is_gone_is_replaced_by_the_one_of_its_name() {
        let (old, ours) =
            (reference("Namespace", "belay", "x"), reference("Namespace", "belay", "n"));
        let other = || reference("Deployment", "operator", "d");
        assert_eq!(patched(&[old.clone(), other()]), Some(json!([ours.clone(), other()])));
        // The collector takes the other one off by itself.
        assert_eq!(patched(&[old, ours]), None);
    }

    #[test]
    fn a_patch_lands_on_what_was_looked_at_alone() {
        let patch = patch(&watched(&configuration(&[])), "belay", "n").unwrap();
        for (field, other) in [("uid", "d"), ("resourceVersion", "8")] {
            let mut changed = configuration(&[]);
            changed["metadata"][field] = json!(other);
            assert!(json_patch::patch(&mut changed, &patch).is_err(), "{field}");
        }
    }

    /// It would be looked at again at once, for as long as this replica leads.
    #[tokio::test]
    async fn what_stands_there_after_all_is_not_waited_for() {
        let client = local_client::<String>(|_| panic!("nobody is asked"));
        let resource = kube::core::ApiResource::erase::<Namespace>(&());
        let api = Api::all_with(client.clone(), &resource);
        let context = crate::cluster::Context::of_test(client, Default::default(), &[]);
        let past = Instant::now().checked_sub(std::time::Duration::from_secs(1));
        let mut owned = Owned { uid: Some("n".to_owned()), held_off: past, ..Owned::default() };
        let mut watched = watched(&configuration(&[reference("Namespace", "belay", "n")]));
        owned.put_right(&context.settings, ("validating", &api), &mut watched).await;
        assert_eq!(owned.held_off, None);
    }

    #[test]
    fn nothing_waits_for_the_configuration() {
        let text = json!(patch(&watched(&configuration(&[])), "belay", "n")).to_string();
        assert!(!text.contains("blockOwnerDeletion"), "{text}");
    }
}
