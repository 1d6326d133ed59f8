//! What keeps an object that is Terminating.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::report::{why_free, words};
use crate::cluster::Snapshot;
use crate::cluster::release::by_hand::look;
use crate::command::finalizers::{by_hand, known, writer};
use crate::command::target::{Session, as_me};
use crate::decide::arguments;
use crate::hold::Count;
use crate::objects::is_hold;

/// A Terminating object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Terminating {
    since: String,
    /// What keeps it in storage.
    finalizers: Vec<Keeper>,
    /// What our hold waits for; none: it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<Waits>,
    /// What a Namespace says of what is left in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<String>,
    #[serde(skip)]
    arguments: String,
}

/// One finalizer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Keeper {
    name: String,
    /// Whether it is belay's.
    ours: bool,
    /// Who takes it off, and when.
    removed_by: String,
    /// How a person takes it off when nobody else does any more. It tests what
    /// it removes, so it hits nothing else when the list has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_hand: Option<String>,
}

/// What a release waits for.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waits {
    /// Whether nothing keeps it: belay lets go within moments.
    pub free: bool,
    /// Who keeps it, or what is not known.
    pub r#for: Vec<String>,
}

impl Terminating {
    /// What is known of the object, if it is Terminating. It is found out by
    /// the count of the release, over live reads, and nothing is written.
    pub async fn of(session: &Session, snapshot: &Snapshot) -> Option<Self> {
        let since = session.terminating()?.to_owned();
        let object = &session.object;
        let namespaces = object.pointer("/spec/finalizers").and_then(Value::as_array);
        let is_namespace = session.target.resource == "namespaces" && session.info.group.is_empty();
        let own = namespaces.filter(|_| is_namespace).into_iter().flatten();
        let arguments = arguments(&session.target);
        let listed = session.finalizers().enumerate();
        let listed = listed.map(|(index, name)| Keeper::of(name, object).at(index, &arguments));
        let own = own.filter_map(Value::as_str).map(|name| Keeper::of(name, object));
        let finalizers: Vec<Keeper> = listed.chain(own).collect();
        let held = finalizers.iter().any(|keeper| keeper.ours);
        let place = session.place(&snapshot.context.world.read()).filter(|_| held);
        let hold = match place {
            Some(place) => {
                let (context, reader) = (&snapshot.context, &snapshot.reader);
                Some(Waits::of(look(context, reader, &place, object).await))
            }
            None => None,
        };
        let conditions = if is_namespace { conditions(object) } else { Vec::new() };
        Some(Self { since, finalizers, hold, conditions, arguments })
    }

    /// Whether nothing keeps it.
    pub fn goes(&self) -> bool {
        self.finalizers.iter().all(|keeper| keeper.ours)
            && self.hold.as_ref().is_none_or(|waits| waits.free)
    }

    pub fn text(&self, named: &str) -> String {
        let mut text = format!("{named} is Terminating since {}", self.since);
        if self.finalizers.is_empty() {
            text.push_str("; no finalizer keeps it\n");
            return text;
        }
        text.push_str("; it is kept by:\n");
        for Keeper { name, removed_by, .. } in &self.finalizers {
            let _ = writeln!(text, "- {name}: taken off by {removed_by}");
        }
        // One at a time: taking it off moves the others.
        if let Some(command) = self.finalizers.iter().find_map(|keeper| keeper.by_hand.as_ref()) {
            let _ = writeln!(
                text,
                "next: see that whoever takes it off runs; if that is gone for good, and its work \
                 is done: {command}"
            );
        }
        match &self.hold {
            Some(Waits { free: true, r#for }) => {
                let _ = writeln!(
                    text,
                    "the hold: {}; belay lets go within moments, or now: kubectl belay release {}",
                    r#for.join(", "),
                    self.arguments
                );
            }
            Some(Waits { r#for, .. }) => {
                let _ = writeln!(text, "the hold waits for: {}", r#for.join(", "));
            }
            None => {}
        }
        for condition in &self.conditions {
            let _ = writeln!(text, "the Namespace says: {condition}");
        }
        text
    }
}

impl Keeper {
    fn of(name: &str, object: &Value) -> Self {
        let known = known(name);
        let removed_by = match (known, writer(name, object)) {
            (Some(who), _) => who.to_owned(),
            (None, Some(writer)) => format!("whoever {writer} is: it put it there"),
            (None, None) => "its own controller, which belay does not know".to_owned(),
        };
        Self { name: name.to_owned(), ours: is_hold(name), removed_by, by_hand: None }
    }

    /// The same, where it stands in the metadata of an object. What Kubernetes
    /// and belay take off themselves is nobody's to take off by hand.
    fn at(self, index: usize, arguments: &str) -> Self {
        if known(&self.name).is_some() {
            return self;
        }
        Self { by_hand: Some(by_hand(&self.name, index, arguments)), ..self }
    }
}

/// What a Namespace says of what is left in it.
fn conditions(object: &Value) -> Vec<String> {
    let list = object.pointer("/status/conditions").and_then(Value::as_array);
    let text = |condition: &Value, field: &str| Some(condition.get(field)?.as_str()?.to_owned());
    let said = list.into_iter().flatten().filter(|condition| condition["status"] == "True");
    said.filter_map(|condition| text(condition, "message")).collect()
}

impl Waits {
    pub fn of(count: Count) -> Self {
        match count {
            Count::Free(free) => Self { free: true, r#for: vec![why_free(free).to_owned()] },
            Count::Kept(causes) => Self { free: false, r#for: causes.iter().map(words).collect() },
            Count::Unknown(what) => Self { free: false, r#for: vec![as_me(&what)] },
            Count::Read(_) => {
                Self { free: false, r#for: vec!["what has not been read".to_owned()] }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::HOLD;
    use serde_json::json;

    #[test]
    fn who_takes_a_finalizer_off_is_known_or_told_by_who_put_it_there() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
            {"manager": "db-operator", "fieldsV1":
                {"f:metadata": {"f:finalizers": {".": {}, "v:\"db.example.com/drop\"": {}}}}},
        ]}});
        let by = |name: &str| Keeper::of(name, &object).removed_by;
        assert!(by(HOLD).starts_with("belay, "));
        assert!(by("kubernetes.io/pvc-protection").contains("no Pod uses it"));
        assert_eq!(by("db.example.com/drop"), "whoever db-operator is: it put it there");
        assert!(by("x.dev/y").contains("does not know"));
        let by_hand = |name: &str| Keeper::of(name, &object).at(1, "configmaps/a -n b").by_hand;
        assert_eq!((by_hand(HOLD), by_hand("kubernetes.io/pvc-protection")), (None, None));
        let command = by_hand("x.dev/y").unwrap();
        assert!(command.starts_with("kubectl patch configmaps/a -n b --type=json -p '[{"));
        assert!(command.contains("/metadata/finalizers/1") && command.contains("x.dev/y"));
    }
}
