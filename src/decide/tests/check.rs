//! Decides about the request of a row, and compares the verdict with the expected one.

use serde_json::{Value, json};

use super::row::{NOW, Row, rows};
use super::situation::{
    Prepared, api_error, api_version, kinds, object, prepare, read_text, split_owned,
};
use crate::decide::*;
use crate::objects::Object;
use crate::policy::Requester;

/// The phase, operation, subresource, old object and new object of the request of a row.
pub(super) fn request(
    row: &Row,
) -> (AdmissionPhase, Operation, String, Option<Value>, Option<Value>) {
    let kinds = kinds();
    let old = |name: &str| {
        let mut all = row.ask.object.iter().chain(&row.objects);
        let found = all.find(|o| o["is"] == json!(name)).unwrap_or_else(|| panic!("no {name}"));
        object(&kinds, found)
    };
    let ask = &row.ask;
    let phase = if ask.mutating { AdmissionPhase::Mutate } else { AdmissionPhase::Validate };
    let patched = |name: &str| {
        let mut new = old(name);
        json_patch::merge(&mut new, &ask.patch);
        new
    };
    let subresource = ask.subresource.clone();
    if let Some(name) = &ask.delete {
        (phase, Operation::Delete, subresource, Some(old(name)), None)
    } else if let Some(name) = &ask.update {
        (phase, Operation::Update, subresource, Some(old(name)), Some(patched(name)))
    } else if let Some(name) = &ask.finalize {
        (phase, Operation::Update, "finalize".into(), Some(old(name)), Some(patched(name)))
    } else if let Some(name) = &ask.evict {
        let pod = old(name);
        let metadata =
            json!({"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]});
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
        (AdmissionPhase::Validate, Operation::Create, "eviction".into(), None, Some(eviction))
    } else {
        let mut new = object(&kinds, ask.create.as_ref().expect("a request"));
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("uid");
        (AdmissionPhase::Mutate, Operation::Create, subresource, None, Some(new))
    }
}

pub(super) fn check(file: &str, row: &Row) -> Result<(), String> {
    let Prepared { graph, policies, reads } = prepare(row);
    let (phase, operation, subresource, old, new) = request(row);
    let object = old.as_ref().or(new.as_ref()).unwrap();
    let kind = if subresource == "eviction" { "Pod" } else { object["kind"].as_str().unwrap() };
    let (group, _) = split_owned(&api_version(&graph.kinds, kind));
    let info = graph.kinds.info(graph.kinds.find(&group, kind).unwrap()).clone();
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    // The objects are parsed from text, as in a request.
    let (old_text, new_text) =
        (old.as_ref().map(Value::to_string), new.as_ref().map(Value::to_string));
    let parse = |text: &'static str| serde_json::from_str::<Object<'_>>(text).unwrap();
    let leak = |text: Option<String>| text.map(|text| parse(String::leak(text)));
    let user = row.ask.by.clone().unwrap_or_else(|| "alice".to_owned());
    let mut review = Review {
        uid: "1".into(),
        phase,
        operation,
        resource: Resource {
            group: info.group.as_str().into(),
            resource: info.resource.as_str().into(),
            subresource: subresource.as_str().into(),
        },
        name: if row.ask.nameless { "" } else { text("/metadata/name") }.into(),
        namespace: text("/metadata/namespace").into(),
        requester: Requester {
            name: user.as_str().into(),
            groups: row.ask.groups.iter().map(|g| g.as_str().into()).collect(),
        },
        dry_run: row.ask.dry_run,
        options: DeleteOptions {
            propagation_policy: row.ask.options.propagation_policy.as_deref().map(Into::into),
            orphan_dependents: row.ask.options.orphan_dependents,
        },
        object: leak(new_text),
        old_object: leak(old_text),
        details: ReviewDetails::default(),
        labelled: false,
    };
    if review.needs_details() {
        let raw = |object: &Option<Value>| {
            object.as_ref().map(|object| serde_json::value::to_raw_value(object).unwrap())
        };
        let (old, new) = (raw(&old), raw(&new));
        review.details = ReviewDetails::read(old.as_deref(), new.as_deref());
    }
    let mut reads = reads;
    if let (Some(reads), Some(live)) = (&mut reads, &row.live) {
        // The verdict lists the reads before the first one is made.
        let none = LiveReads::default();
        let live_none = ObjectSource::Cluster(&none);
        let situation = Situation::new(&graph, &policies, live_none, NOW);
        let first = decide(&situation, &review);
        let asked = [first.needed_reads, first.advisory_reads].concat();
        let is_unneeded = |text: &&String| !asked.iter().any(|read| read_text(read) == **text);
        if let Some(text) = live.done.iter().chain(live.failed.keys()).find(is_unneeded) {
            return Err(format!("{file}: {}\n  needs no read {text}, but {asked:?}", row.row));
        }
        for asked in asked {
            let name = read_text(&asked);
            if let Some(why) = live.failed.get(&name) {
                reads.results.insert(asked, Err(api_error(why)));
            } else if live.done.contains(&name) {
                reads.results.insert(asked, Ok(()));
            }
        }
    }
    let live = reads.as_ref().map_or(ObjectSource::Files, ObjectSource::Cluster);
    let situation = Situation::new(&graph, &policies, live, NOW);
    let verdict = decide(&situation, &review);
    compare(file, row, &verdict, new.as_ref())
}

pub(super) fn compare(
    file: &str,
    row: &Row,
    verdict: &Verdict,
    new: Option<&Value>,
) -> Result<(), String> {
    let mut wrong = Vec::new();
    let mut same = |what: &str, expected: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
        let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
        if expected != found {
            wrong.push(format!("  {what}\n    expected {expected}\n    found    {found}"));
        }
    };
    let reason = verdict.reason.filter(|_| verdict.decision != Decision::Allow);
    let word = reason.map_or(String::new(), |reason| format!(" {}", reason.as_str()));
    same("verdict", &row.expect.verdict, &format!("{}{word}", verdict.decision.as_str()));
    same("message", &row.expect.message, &message(verdict));
    same("facts that the message leaves out", &Vec::<String>::new(), &missing_texts(verdict));
    let warnings = warnings(verdict);
    assert!(warnings.iter().all(|w| w.chars().count() <= 1_024), "{warnings:?}");
    same("warning", &row.expect.warning, &warnings.first().cloned());
    if row.expect.warnings.is_some() {
        same("warnings", &row.expect.warnings, &Some(warnings.len()));
    }
    let after = verdict.hold.as_ref().map(|_| {
        let mut patched = new.unwrap().clone();
        json_patch::patch(&mut patched, &patch(verdict).unwrap()).unwrap();
        let finalizers = patched["metadata"]["finalizers"].as_array().unwrap().clone();
        finalizers.iter().map(|f| f.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    });
    same("finalizers", &row.expect.after, &after);
    same("approved by", &row.expect.approved, &verdict.overrides.approvals);
    let exempted: Vec<_> = verdict.overrides.exempted.iter().map(ToString::to_string).collect();
    same("exempted by", &row.expect.exempted, &exempted);
    same(
        "records",
        &row.expect.records,
        &verdict.exemption.as_ref().is_some_and(|recorded| !recorded.is_bar()),
    );
    let confirm: Vec<_> =
        verdict.needed_reads.iter().chain(&verdict.advisory_reads).map(read_text).collect();
    same("confirm", &row.expect.confirm, &confirm);
    if let Some(code) = row.expect.code {
        let found = match verdict.denial_status {
            DenialStatus::Forbidden => 403,
            DenialStatus::TooManyRequests => 429,
            DenialStatus::NotFound => 404,
        };
        same("code", &code, &found);
    }
    let annotations = audit_annotations(verdict);
    let would = annotations.iter().find(|(key, _)| *key == "would-deny").map(|(_, v)| v.clone());
    if row.expect.would.is_some() {
        same("would", &row.expect.would, &would);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{file}: {}\n{}", row.row, wrong.join("\n")))
}

/// The texts in the causes of a denial that its message does not contain.
pub(super) fn missing_texts(verdict: &Verdict) -> Vec<String> {
    let message = message(verdict).unwrap_or_default();
    let mut missing = Vec::new();
    for StatusCause { reason, message: text, field } in denial(verdict).unwrap_or_default().1 {
        let parts: Vec<&str> = match reason {
            // In the message, the text may begin a sentence with an upper-case letter.
            "NextStep" => vec![text.split_at(1).1],
            // The message has the name, and the namespace if it is not that of the target.
            "Object" => text.split([' ', '/']).skip(1).filter(|part| *part != "-n").collect(),
            "Cause" => {
                let parts = text.trim_end_matches(')').split(" (");
                let parts =
                    parts.flat_map(|part| part.split(" by ")).flat_map(|part| part.split(", "));
                parts.chain([field.as_str()]).collect()
            }
            // The message leaves out the value if it is unknown.
            "Label" => text.split('=').take(1).collect(),
            _ if text.starts_with("deleting ") => vec![text.split_at(1).1],
            _ => vec![&text],
        };
        // The message has the name of a dependent in quotes.
        let is_in_message = |part: &str| {
            let name = part.rsplit('/').next().unwrap_or(part);
            message.contains(part) || reason == "Cause" && message.contains(&format!("{name:?}"))
        };
        let parts = parts.into_iter().filter(|part| !is_in_message(part));
        missing.extend(parts.map(|part| format!("{reason}: {part}")));
    }
    missing
}

pub(super) fn run(wanted: impl Fn(&Row) -> bool) {
    let rows: Vec<_> = rows().into_iter().filter(|(_, row)| wanted(row)).collect();
    assert!(!rows.is_empty(), "no row matches");
    let failed: Vec<_> = rows.iter().filter_map(|(file, row)| check(file, row).err()).collect();
    assert!(failed.is_empty(), "{} of {} rows\n{}", failed.len(), rows.len(), failed.join("\n\n"));
}
