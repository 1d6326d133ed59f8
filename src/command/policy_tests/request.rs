//! Builds the AdmissionReview that an API server would send for a case.

use serde_json::{Value, json};

use super::error::CaseError;
use super::fixture::{Fixture, read_named};
use super::test_file::{Case, RequestSpec, Test};
use super::verb::Verb;
use crate::command::files::{FileError, parse_all};
use crate::objects::{KindInfo, is_namespace, split_api_version, text_at};

/// The default user. No policy names it.
const DEFAULT_USER: &str = "a-user";

/// A request without its user.
struct Request<'k> {
    operation: &'static str,
    info: &'k KindInfo,
    subresource: &'k str,
    namespace: String,
    name: String,
    old: Option<Value>,
    new: Option<Value>,
    options: Value,
}

pub fn review(fixture: &Fixture, test: &Test, case: &Case) -> Result<Value, FileError> {
    let ask = &case.ask;
    let case_error =
        |error: CaseError| test.case_error(case, &target_field(case), &error.to_string());
    if let Some(written) = &ask.review {
        return read_object(test, case, written);
    }
    if let Some(written) = &ask.create {
        let object = read_object(test, case, written)?;
        return Ok(envelope(ask, create(fixture, ask, object).map_err(case_error)?));
    }
    let (target, namespace) = match case.verb {
        Verb::Delete => (&ask.delete, ask.namespace.as_deref()),
        Verb::Update => (&ask.update, ask.namespace.as_deref()),
        Verb::Evict => (&ask.evict, ask.namespace.as_deref()),
        _ => (&ask.finalize, None),
    };
    let target = target.as_deref().unwrap_or_default();
    let (info, object) = fixture.object(target, namespace).map_err(case_error)?;
    let request = match case.verb {
        Verb::Delete => delete(ask, info, object),
        Verb::Evict => evict(info, object).map_err(case_error)?,
        Verb::Update => update(ask, info, object).map_err(case_error)?,
        _ => finalize(ask, info, object).map_err(case_error)?,
    };
    Ok(envelope(ask, request))
}

/// The field with the target of a case.
fn target_field(case: &Case) -> String {
    format!("ask.{}", case.verb.as_str())
}

/// The object in a field of a case, or in the file that the field names.
fn read_object(test: &Test, case: &Case, written: &Value) -> Result<Value, FileError> {
    let error = |message: &str| test.case_error(case, &target_field(case), message);
    let path = match written {
        Value::String(path) => path,
        Value::Object(_) => return Ok(written.clone()),
        _ => return Err(error("expected an object, or the path of its file")),
    };
    let field = format!("cases[{}].{}", case.index, target_field(case));
    let mut documents = parse_all(&read_named(&test.document, &field, path)?)?;
    match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => Ok(Value::from(document.node.content)),
        _ => Err(error("expected a file with one object in it")),
    }
}

fn delete<'k>(ask: &RequestSpec, info: &'k KindInfo, object: &Value) -> Request<'k> {
    // Background is the default of kubectl.
    let policy = match ask.propagation_policy {
        None => "Background".to_owned(),
        Some(policy) => format!("{policy:?}"),
    };
    let options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": policy});
    Request { old: Some(stored(info, object)), ..Request::new("DELETE", info, object, options) }
}

fn evict<'k>(info: &'k KindInfo, object: &Value) -> Result<Request<'k>, CaseError> {
    if info.group_resource() != ("", "pods") {
        return Err(CaseError::EvictsOther(info.full_name()));
    }
    let request = Request::new("CREATE", info, object, create_options());
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": request.name, "namespace": request.namespace},
    });
    Ok(Request { subresource: "eviction", new: Some(eviction), ..request })
}

fn update<'k>(
    ask: &'k RequestSpec,
    info: &'k KindInfo,
    object: &Value,
) -> Result<Request<'k>, CaseError> {
    if ask.patch.is_none() && ask.strip.is_none() {
        return Err(CaseError::NoPatchOrStrip);
    }
    let old = stored(info, object);
    let mut new = old.clone();
    if let Some(patch) = &ask.patch {
        json_patch::merge(&mut new, patch);
    }
    for finalizer in ask.strip.iter().flatten() {
        let list = new.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
        let before = list.as_ref().map_or(0, |list| list.len());
        let after = list.map_or(0, |list| {
            list.retain(|other| other.as_str() != Some(finalizer));
            list.len()
        });
        if before == after {
            return Err(CaseError::NoFinalizer(finalizer.clone()));
        }
    }
    let subresource = ask.subresource.as_deref().unwrap_or_default();
    require_change(
        Request { subresource, ..Request::new("UPDATE", info, object, update_options()) },
        old,
        new,
    )
}

fn finalize<'k>(
    ask: &RequestSpec,
    info: &'k KindInfo,
    object: &Value,
) -> Result<Request<'k>, CaseError> {
    if !is_namespace(&info.group, &info.resource) {
        return Err(CaseError::FinalizesOther(info.full_name()));
    }
    let old = stored(info, object);
    let mut new = old.clone();
    let all = json!({"spec": {"finalizers": null}});
    json_patch::merge(&mut new, ask.patch.as_ref().unwrap_or(&all));
    let request = Request::new("UPDATE", info, object, update_options());
    require_change(Request { subresource: "finalize", ..request }, old, new)
}

/// An update must change something: an API server does not store an unchanged object.
fn require_change<'k>(
    request: Request<'k>,
    old: Value,
    new: Value,
) -> Result<Request<'k>, CaseError> {
    if old == new {
        return Err(CaseError::ChangesNothing);
    }
    Ok(Request { old: Some(old), new: Some(new), ..request })
}

fn create<'k>(
    fixture: &'k Fixture,
    ask: &RequestSpec,
    mut object: Value,
) -> Result<Request<'k>, CaseError> {
    let text = |pointer: &str| {
        Some(text_at(&object, pointer)).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let (Some(api_version), Some(kind)) = (text("/apiVersion"), text("/kind")) else {
        return Err(CaseError::NoKind);
    };
    if text("/metadata/name").or_else(|| text("/metadata/generateName")).is_none() {
        return Err(CaseError::NoName);
    }
    let info = fixture.kind_of(split_api_version(&api_version).0, &kind)?;
    let own = text("/metadata/namespace");
    if let (Some(own), Some(requested)) = (&own, &ask.namespace)
        && own != requested
    {
        return Err(CaseError::OtherNamespace);
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if info.namespaced {
            let namespace = own.or_else(|| ask.namespace.clone());
            let namespace = namespace.unwrap_or_else(|| "default".to_owned());
            metadata.insert("namespace".to_owned(), namespace.into());
        } else {
            metadata.remove("namespace");
        }
    }
    let request = Request::new("CREATE", info, &object, create_options());
    Ok(Request { new: Some(object), ..request })
}

fn create_options() -> Value {
    json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"})
}

fn update_options() -> Value {
    json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"})
}

impl<'k> Request<'k> {
    fn new(operation: &'static str, info: &'k KindInfo, object: &Value, options: Value) -> Self {
        Self {
            operation,
            info,
            subresource: "",
            namespace: text_at(object, "/metadata/namespace").to_owned(),
            name: text_at(object, "/metadata/name").to_owned(),
            old: None,
            new: None,
            options,
        }
    }
}

/// An object as an API server stores it. The API server adds a finalizer to the spec of each
/// Namespace.
fn stored(info: &KindInfo, object: &Value) -> Value {
    let mut object = object.clone();
    if is_namespace(&info.group, &info.resource) && object.get("spec").is_none() {
        object["spec"] = json!({"finalizers": ["kubernetes"]});
    }
    object
}

fn envelope(ask: &RequestSpec, request: Request<'_>) -> Value {
    let Request { operation, info, subresource, namespace, name, old, new, options } = request;
    // In a review about a Namespace, the namespace is the name of the Namespace.
    let namespace =
        if is_namespace(&info.group, &info.resource) { name.clone() } else { namespace };
    let version = info.versions.first().map_or("v1", String::as_str);
    let by = ask.by.as_deref().unwrap_or(DEFAULT_USER);
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-4000-8000-000000000000",
            "kind": {"group": info.group, "version": version, "kind": info.kind},
            "resource": {"group": info.group, "version": version, "resource": info.resource},
            "subResource": subresource,
            "name": name,
            "namespace": namespace,
            "operation": operation,
            "userInfo": {"username": by, "groups": groups(by, ask.groups.as_deref().unwrap_or_default())},
            "object": new,
            "oldObject": old,
            "dryRun": ask.dry_run.unwrap_or_default(),
            "options": options,
        },
    })
}

/// The groups of the user, including those that an API server adds.
fn groups(by: &str, listed: &[String]) -> Vec<String> {
    let account = by.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let base_group = match by {
        "system:anonymous" => "system:unauthenticated",
        _ => "system:authenticated",
    };
    let added = account.into_iter().flat_map(|(namespace, _)| {
        ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
    });
    let mut groups = listed.to_vec();
    for group in added.chain([base_group.to_owned()]) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_is_in_the_groups_that_the_api_server_adds() {
        for (by, listed, all) in [
            ("alice", &["ops"][..], "ops system:authenticated"),
            ("system:anonymous", &[], "system:unauthenticated"),
            (
                "system:serviceaccount:argo:sync",
                &[],
                "system:serviceaccounts system:serviceaccounts:argo system:authenticated",
            ),
            ("alice", &["system:authenticated"], "system:authenticated"),
        ] {
            let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
            assert_eq!(groups(by, &listed).join(" "), all, "{by}");
        }
    }
}
