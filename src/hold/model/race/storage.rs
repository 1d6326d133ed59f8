//! What the API server stores, and how it takes a patch.

use std::sync::Arc;

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use super::super::manifests::time;
use super::{USERS, UserObject};
use crate::decide::LiveRead;
use crate::hold::{RequestResult, TOKEN, TargetState};
use crate::objects::HOLD;

/// The target. It is held: once the hold is off it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) struct Secret {
    pub(in super::super) uid: u8,
    pub(in super::super) version: u8,
    /// Since when it is Terminating.
    pub(in super::super) deleted: Option<u8>,
    pub(in super::super) token: Option<Arc<str>>,
    /// Whether a pass began for this very object.
    pub(in super::super) asked: bool,
}

impl Secret {
    pub(in super::super) fn new(uid: u8, deleted: u8) -> Self {
        Self { uid, version: 1, deleted: Some(deleted), token: None, asked: false }
    }
}

/// Which of the tests are left in a patch.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Guarded {
    pub(in super::super) uid: bool,
    pub(in super::super) token: bool,
    pub(in super::super) deleted: bool,
}

/// A write under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Write {
    patch: Patch,
    pub(in super::super) sent: u8,
    /// Of a removal: when the first and the last list of its pass were taken.
    pub(super) lists: Option<(u8, u8)>,
    text: String,
}

impl std::hash::Hash for Write {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.text, self.sent, self.lists).hash(state);
    }
}

impl Write {
    pub(super) fn mark(patch: Patch, sent: u8) -> Self {
        let text = patch.to_string();
        Self { patch, sent, lists: None, text }
    }

    pub(super) fn removal(patch: Patch, sent: u8, lists: (u8, u8)) -> Self {
        let text = patch.to_string();
        Self { patch, sent, lists: Some(lists), text }
    }

    pub(in super::super) fn is_removal(&self) -> bool {
        self.lists.is_some()
    }

    /// The token that it writes or tests.
    pub(in super::super) fn token(&self) -> &str {
        let mut values = self.patch.iter().filter_map(|operation| match operation {
            PatchOperation::Test(test) if test.path.as_str().contains("token") => {
                test.value.as_str()
            }
            PatchOperation::Add(add) if add.path.as_str().contains("token") => add.value.as_str(),
            _ => None,
        });
        values.next_back().unwrap_or_default()
    }
}

/// The target as a manifest.
pub(super) fn manifest(secret: &Secret) -> Value {
    let mut metadata = json!({
        "name": "s",
        "namespace": "a",
        "uid": secret.uid.to_string(),
        "resourceVersion": secret.version.to_string(),
        "creationTimestamp": time(-3_600),
        "finalizers": [HOLD],
    });
    if let Some(deleted) = secret.deleted {
        metadata["deletionTimestamp"] = json!(time(i64::from(deleted)));
    }
    if let Some(token) = &secret.token {
        metadata["annotations"] = json!({TOKEN: &**token});
    }
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
}

pub(super) fn observed(secret: &Secret) -> TargetState {
    TargetState::read(&manifest(secret)).unwrap()
}

/// The API server takes a patch: all of it or nothing, on what is stored now.
pub(super) fn apply(target: &mut Option<Secret>, write: &Write, tests: Guarded) -> RequestResult {
    let Some(secret) = target.as_mut() else { return RequestResult::Missing { namespace: false } };
    let kept = |operation: &&PatchOperation| match operation {
        PatchOperation::Test(test) => match test.path.as_str() {
            "/metadata/uid" => tests.uid,
            "/metadata/deletionTimestamp" => tests.deleted,
            path => !path.contains("token") || tests.token,
        },
        _ => true,
    };
    let patch = Patch(write.patch.iter().filter(kept).cloned().collect());
    let mut object = manifest(secret);
    if json_patch::patch(&mut object, &patch).is_err() {
        return RequestResult::Conflict;
    }
    secret.version += 1;
    let after = TargetState::read(&object).unwrap();
    secret.token.clone_from(&after.token);
    let answer = TargetState { version: secret.version.to_string().into(), ..after };
    if write.lists.is_none() {
        secret.asked = true;
    }
    if answer.hold.is_none() {
        *target = None;
    }
    RequestResult::Object(answer)
}

/// The list of a kind, as the count asks for it.
pub(super) fn list(kind: usize) -> LiveRead {
    let (resource, group) = (USERS[kind].0, if kind == 2 { "" } else { "apps" });
    LiveRead::List {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: "a".to_owned(),
        first: false,
    }
}

/// A user as a manifest.
pub(super) fn user(kind: usize, thing: UserObject) -> Value {
    let api_version = |kind| if kind == 2 { "v1" } else { "apps/v1" };
    let mut metadata = json!({
        "name": USERS[kind].0,
        "namespace": "a",
        "uid": USERS[kind].1,
        // A slow create is given its time when other webhooks are through.
        "creationTimestamp": time(match (thing.created_before_delete, thing.created_after_delete) {
            (true, _) => 30,
            (false, true) => 60,
            (false, false) => -60,
        }),
    });
    if thing.owned {
        let (name, owner) = USERS[kind - 1];
        metadata["ownerReferences"] = json!([
            {"apiVersion": api_version(kind - 1), "kind": owner, "name": name, "uid": owner}
        ]);
    }
    let name = if thing.uses { "s" } else { "another" };
    let pod = json!({"volumes": [{"name": "v", "secret": {"secretName": name}}]});
    let spec = if kind == 2 { pod } else { json!({"template": {"spec": pod}}) };
    json!({"apiVersion": api_version(kind), "kind": USERS[kind].1, "metadata": metadata, "spec": spec})
}
