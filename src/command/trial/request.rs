//! From a case to the AdmissionReview that an API server would send.

use serde_json::{Value, json};

use super::error::CaseError;
use super::stage::{Stage, named};
use super::verb::Verb;
use super::written::{Ask, Case, Test};
use crate::command::files::{FileError, parse_all};
use crate::objects::{KindInfo, is_namespace, split_api_version};

/// Who asks where a case does not say it: nobody of whom a policy would speak.
const SOMEBODY: &str = "somebody";

/// A request, but for who makes it.
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

/// The review that a case asks for.
pub fn review(stage: &Stage, test: &Test, case: &Case) -> Result<Value, FileError> {
    let ask = &case.ask;
    let at = |error: CaseError| test.wrong(case, &field(case), &error.to_string());
    if let Some(written) = &ask.review {
        return whole(test, case, written);
    }
    if let Some(written) = &ask.create {
        let object = whole(test, case, written)?;
        return Ok(envelope(ask, create(stage, ask, object).map_err(at)?));
    }
    let (target, place) = match case.verb {
        Verb::Delete => (&ask.delete, ask.namespace.as_deref()),
        Verb::Update => (&ask.update, ask.namespace.as_deref()),
        Verb::Evict => (&ask.evict, ask.namespace.as_deref()),
        _ => (&ask.finalize, None),
    };
    let target = target.as_deref().unwrap_or_default();
    let (info, object) = stage.object(target, place).map_err(at)?;
    let request = match case.verb {
        Verb::Delete => delete(ask, info, object),
        Verb::Evict => evict(info, object).map_err(at)?,
        Verb::Update => update(ask, info, object).map_err(at)?,
        _ => finalize(ask, info, object).map_err(at)?,
    };
    Ok(envelope(ask, request))
}

/// The field in which a case names what it is about.
fn field(case: &Case) -> String {
    format!("ask.{}", case.verb.as_str())
}

/// An object that a case writes out, or names by the path of its file.
fn whole(test: &Test, case: &Case, written: &Value) -> Result<Value, FileError> {
    let wrong = |message: &str| test.wrong(case, &field(case), message);
    let path = match written {
        Value::String(path) => path,
        Value::Object(_) => return Ok(written.clone()),
        _ => return Err(wrong("expected an object, or the path of its file")),
    };
    let at = format!("cases[{}].{}", case.index, field(case));
    let mut documents = parse_all(&named(&test.document, &at, path)?)?;
    match (documents.pop(), documents.is_empty()) {
        (Some(one), true) => Ok(Value::from(one.node.content)),
        _ => Err(wrong("expected a file with one object in it")),
    }
}

fn delete<'k>(ask: &Ask, info: &'k KindInfo, object: &Value) -> Request<'k> {
    // kubectl says Background where nobody says anything else.
    let policy = match ask.propagation_policy {
        None => "Background".to_owned(),
        Some(policy) => format!("{policy:?}"),
    };
    let options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": policy});
    Request { old: Some(stored(info, object)), ..Request::of("DELETE", info, object, options) }
}

fn evict<'k>(info: &'k KindInfo, object: &Value) -> Result<Request<'k>, CaseError> {
    if (info.group.as_str(), info.resource.as_str()) != ("", "pods") {
        return Err(CaseError::EvictsOther(info.full_name()));
    }
    let request = Request::of("CREATE", info, object, create_options());
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": request.name, "namespace": request.namespace},
    });
    Ok(Request { subresource: "eviction", new: Some(eviction), ..request })
}

fn update<'k>(ask: &'k Ask, info: &'k KindInfo, object: &Value) -> Result<Request<'k>, CaseError> {
    if ask.patch.is_none() && ask.strip.is_none() {
        return Err(CaseError::ChangesUnsaid);
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
    changed(
        Request { subresource, ..Request::of("UPDATE", info, object, update_options()) },
        old,
        new,
    )
}

fn finalize<'k>(ask: &Ask, info: &'k KindInfo, object: &Value) -> Result<Request<'k>, CaseError> {
    if !is_namespace(&info.group, &info.resource) {
        return Err(CaseError::FinalizesOther(info.full_name()));
    }
    let old = stored(info, object);
    let mut new = old.clone();
    let all = json!({"spec": {"finalizers": null}});
    json_patch::merge(&mut new, ask.patch.as_ref().unwrap_or(&all));
    let request = Request::of("UPDATE", info, object, update_options());
    changed(Request { subresource: "finalize", ..request }, old, new)
}

/// An update of which somebody will be asked: an API server stores nothing
/// where nothing changes, and a case that changes nothing is a slip.
fn changed<'k>(request: Request<'k>, old: Value, new: Value) -> Result<Request<'k>, CaseError> {
    if old == new {
        return Err(CaseError::ChangesNothing);
    }
    Ok(Request { old: Some(old), new: Some(new), ..request })
}

fn create<'k>(stage: &'k Stage, ask: &Ask, mut object: Value) -> Result<Request<'k>, CaseError> {
    let text = |pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.map(str::to_owned)
    };
    let (Some(api_version), Some(kind)) = (text("/apiVersion"), text("/kind")) else {
        return Err(CaseError::NoKind);
    };
    if text("/metadata/name").or_else(|| text("/metadata/generateName")).is_none() {
        return Err(CaseError::NoName);
    }
    let info = stage.kind_of(split_api_version(&api_version).0, &kind)?;
    let own = text("/metadata/namespace");
    if let (Some(own), Some(said)) = (&own, &ask.namespace)
        && own != said
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
    let request = Request::of("CREATE", info, &object, create_options());
    Ok(Request { new: Some(object), ..request })
}

fn create_options() -> Value {
    json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"})
}

fn update_options() -> Value {
    json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"})
}

impl<'k> Request<'k> {
    fn of(operation: &'static str, info: &'k KindInfo, object: &Value, options: Value) -> Self {
        let text = |pointer: &str| {
            object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        Self {
            operation,
            info,
            subresource: "",
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            old: None,
            new: None,
            options,
        }
    }
}

/// An object as it would be stored. An API server gives each Namespace the
/// finalizer of its spec; a manifest does not list it.
fn stored(info: &KindInfo, object: &Value) -> Value {
    let mut object = object.clone();
    if is_namespace(&info.group, &info.resource) && object.get("spec").is_none() {
        object["spec"] = json!({"finalizers": ["kubernetes"]});
    }
    object
}

fn envelope(ask: &Ask, request: Request<'_>) -> Value {
    let Request { operation, info, subresource, namespace, name, old, new, options } = request;
    // That of a Namespace is its own.
    let namespace =
        if is_namespace(&info.group, &info.resource) { name.clone() } else { namespace };
    let version = info.versions.first().map_or("v1", String::as_str);
    let by = ask.by.as_deref().unwrap_or(SOMEBODY);
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

/// The groups of whoever asks, with those that an API server adds by itself.
fn groups(by: &str, said: &[String]) -> Vec<String> {
    let account = by.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let everybody = match by {
        "system:anonymous" => "system:unauthenticated",
        _ => "system:authenticated",
    };
    let added = account.into_iter().flat_map(|(namespace, _)| {
        ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
    });
    let mut groups = said.to_vec();
    for group in added.chain([everybody.to_owned()]) {
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
    fn everybody_is_in_the_groups_that_the_api_server_gives() {
        for (by, said, all) in [
            ("alice", &["ops"][..], "ops system:authenticated"),
            ("system:anonymous", &[], "system:unauthenticated"),
            (
                "system:serviceaccount:argo:sync",
                &[],
                "system:serviceaccounts system:serviceaccounts:argo system:authenticated",
            ),
            ("alice", &["system:authenticated"], "system:authenticated"),
        ] {
            let said: Vec<String> = said.iter().map(ToString::to_string).collect();
            assert_eq!(groups(by, &said).join(" "), all, "{by}");
        }
    }
}
