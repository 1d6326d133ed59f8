//! The storage of the API server, and how the API server applies a patch.

use std::sync::Arc;

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use super::super::manifests::time;
use super::{USER_KINDS, UserObject};
use crate::decide::{ListPart, LiveRead};
use crate::hold::{RequestResult, TOKEN_ANNOTATION, TargetState};
use crate::objects::HOLD;

/// The target. It always has its hold, because the removal of the hold deletes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) struct Secret {
    pub(in super::super) uid: u8,
    pub(in super::super) version: u8,
    /// When the target was deleted.
    pub(in super::super) deletion_time: Option<u8>,
    pub(in super::super) token: Option<Arc<str>>,
    /// Whether a pass has begun for the object with this uid.
    pub(in super::super) had_pass: bool,
}

impl Secret {
    pub(in super::super) fn new(uid: u8, deletion_time: u8) -> Self {
        Self { uid, version: 1, deletion_time: Some(deletion_time), token: None, had_pass: false }
    }
}

/// The `test` operations that the model leaves in a patch.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct PatchTests {
    pub(in super::super) uid: bool,
    pub(in super::super) token: bool,
    pub(in super::super) deletion_timestamp: bool,
}

/// A write that the API server has not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Write {
    patch: Patch,
    pub(in super::super) sent: u8,
    /// For a removal, the times of the first and the last list of its pass.
    pub(super) list_times: Option<(u8, u8)>,
    text: String,
}

impl std::hash::Hash for Write {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.text, self.sent, self.list_times).hash(state);
    }
}

impl Write {
    pub(super) fn of_token(patch: Patch, sent: u8) -> Self {
        let text = patch.to_string();
        Self { patch, sent, list_times: None, text }
    }

    pub(super) fn of_removal(patch: Patch, sent: u8, list_times: (u8, u8)) -> Self {
        let text = patch.to_string();
        Self { patch, sent, list_times: Some(list_times), text }
    }

    pub(in super::super) fn is_removal(&self) -> bool {
        self.list_times.is_some()
    }

    /// The token that the patch writes or tests.
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

pub(super) fn manifest(secret: &Secret) -> Value {
    let mut metadata = json!({
        "name": "s",
        "namespace": "a",
        "uid": secret.uid.to_string(),
        "resourceVersion": secret.version.to_string(),
        "creationTimestamp": time(-3_600),
        "finalizers": [HOLD],
    });
    if let Some(deletion_time) = secret.deletion_time {
        metadata["deletionTimestamp"] = json!(time(i64::from(deletion_time)));
    }
    if let Some(token) = &secret.token {
        metadata["annotations"] = json!({TOKEN_ANNOTATION: &**token});
    }
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
}

pub(super) fn observed(secret: &Secret) -> TargetState {
    TargetState::read(&manifest(secret)).unwrap()
}

/// Applies a patch to the stored target as the API server does: completely or not at all.
pub(super) fn apply(
    target: &mut Option<Secret>,
    write: &Write,
    tests: PatchTests,
) -> RequestResult {
    let Some(secret) = target.as_mut() else { return RequestResult::TargetMissing };
    let is_enabled = |operation: &&PatchOperation| match operation {
        PatchOperation::Test(test) => match test.path.as_str() {
            "/metadata/uid" => tests.uid,
            "/metadata/deletionTimestamp" => tests.deletion_timestamp,
            path => !path.contains("token") || tests.token,
        },
        _ => true,
    };
    let patch = Patch(write.patch.iter().filter(is_enabled).cloned().collect());
    let mut object = manifest(secret);
    if json_patch::patch(&mut object, &patch).is_err() {
        return RequestResult::Conflict;
    }
    secret.version += 1;
    let after = TargetState::read(&object).unwrap();
    secret.token.clone_from(&after.token);
    let answer = TargetState { resource_version: secret.version.to_string().into(), ..after };
    if write.list_times.is_none() {
        secret.had_pass = true;
    }
    if answer.hold.is_none() {
        *target = None;
    }
    RequestResult::Object(answer)
}

/// The list of a kind, as the count requests it.
pub(super) fn list(kind: usize) -> LiveRead {
    let (resource, group) = (USER_KINDS[kind].0, if kind == 2 { "" } else { "apps" });
    LiveRead::List {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: "a".to_owned(),
        part: ListPart::All,
    }
}

pub(super) fn user_manifest(kind: usize, user: UserObject) -> Value {
    let api_version = |kind| if kind == 2 { "v1" } else { "apps/v1" };
    let mut metadata = json!({
        "name": USER_KINDS[kind].0,
        "namespace": "a",
        "uid": USER_KINDS[kind].1,
        // The API server sets the time of a slow create after other webhooks have answered.
        "creationTimestamp": time(match (user.is_slow_create, user.create_began_after_delete) {
            (true, _) => 30,
            (false, true) => 60,
            (false, false) => -60,
        }),
    });
    if user.owned {
        let (name, owner) = USER_KINDS[kind - 1];
        metadata["ownerReferences"] = json!([
            {"apiVersion": api_version(kind - 1), "kind": owner, "name": name, "uid": owner}
        ]);
    }
    let name = if user.uses { "s" } else { "another" };
    let pod = json!({"volumes": [{"name": "v", "secret": {"secretName": name}}]});
    let spec = if kind == 2 { pod } else { json!({"template": {"spec": pod}}) };
    let (api_version, kind) = (api_version(kind), USER_KINDS[kind].1);
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}
