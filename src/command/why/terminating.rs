//! What keeps an object that is Terminating.

use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::release::settle;
use crate::cluster::terminating::{Found, Survey, evidence, survey};
use crate::cluster::{Place, Snapshot};
use crate::command::document::NotRead;
use crate::command::finalizers::{by_hand, is_tool, known, writer};
use crate::command::hold_state::{HoldState, NOT_RELEASED};
use crate::command::screen::Progress;
use crate::command::stuck::{Cause, Finding, Hold, Known, findings};
use crate::command::target::Session;
use crate::objects::{FOREGROUND, is_hold, is_namespace, without_controls};

/// A Terminating object.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminating {
    /// The time of the DELETE.
    since: String,
    /// The finalizers.
    finalizers: Vec<Keeper>,
    /// What the hold waits for. Absent if belay does not hold the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldState>,
    /// The conditions of a Namespace about its remaining content.
    conditions: Vec<String>,
    /// The causes, most likely first, as in `stuck`.
    causes: Vec<Finding>,
    /// When the settle time of the policies ends. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    settles: Option<Timestamp>,
    /// What could not be read, and might say more of why it stays.
    #[serde(skip)]
    pub unread: Vec<NotRead>,
    #[serde(skip)]
    arguments: String,
}

/// One finalizer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Keeper {
    /// The name.
    name: String,
    /// Whether it is belay's.
    ours: bool,
    /// The controller that removes it, and when.
    removed_by: String,
    /// The command to remove the finalizer by hand if its controller no longer exists. Absent
    /// if it must not be removed by hand. It tests what it removes, so it removes nothing else
    /// if the list has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_hand: Option<String>,
}

impl Terminating {
    /// What is known of the object, if it is Terminating; `unled`: nobody leads
    /// belay. It is found out by the count of the release, over live reads, and
    /// nothing is written.
    pub async fn of(session: &Session, snapshot: &Snapshot, unled: bool) -> Option<Self> {
        let since = session.terminating()?.to_owned();
        let object = &session.object;
        let namespaces = object.pointer("/spec/finalizers").and_then(Value::as_array);
        let is_namespace = is_namespace(&session.info.group, &session.target.resource);
        let own = namespaces.filter(|_| is_namespace).into_iter().flatten();
        let arguments = session.target.arguments();
        let listed = session.finalizers().enumerate();
        let listed = listed.map(|(index, name)| Keeper::of(name, object).at(index, &arguments));
        let own = own.filter_map(Value::as_str).map(|name| Keeper::of(name, object));
        let finalizers: Vec<Keeper> = listed.chain(own).collect();
        let held = finalizers.iter().any(|keeper| keeper.ours);
        let place = session.place(&snapshot.context.world.read()).filter(|_| held);
        let hold = match &place {
            Some(place) => Some(HoldState::of(snapshot, place, object).await),
            None => None,
        };
        let settles = place.and_then(|place| settles(session, snapshot, &place));
        let conditions = if is_namespace { conditions(object) } else { Vec::new() };
        let waits = hold.clone().map_or(Known::Unknown, Known::of);
        let hold_known = Hold { waits, installed: true, unled };
        let (causes, unread) = causes(session, snapshot, hold_known).await;
        Some(Self { since, finalizers, hold, conditions, causes, settles, unread, arguments })
    }

    /// Whether nothing keeps it.
    pub fn goes(&self) -> bool {
        self.finalizers.iter().all(|keeper| keeper.ours)
            && self.hold.as_ref().is_none_or(|waits| waits.free && waits.released_by_belay)
    }

    /// Whether it is not known that anything keeps it.
    pub fn is_unsure(&self) -> bool {
        self.finalizers.iter().all(|keeper| keeper.ours)
            && self.hold.as_ref().is_some_and(|waits| !waits.known)
    }

    pub fn text(&self, named: &str) -> String {
        let mut text = format!("{named} is Terminating since {}", self.since);
        text.push_str(match self.finalizers.is_empty() {
            true => "; no finalizer keeps it\n",
            false => "; it is kept by:\n",
        });
        for Keeper { name, removed_by, .. } in &self.finalizers {
            let _ = writeln!(
                text,
                "- {}: taken off by {}",
                without_controls(name),
                without_controls(removed_by)
            );
            let of_it = |finding: &&Finding| finding.finalizer.as_ref() == Some(name);
            for finding in self.causes.iter().filter(of_it).filter(|one| !self.tells(one)) {
                // The line before has said as much.
                let taken_off = format!("{name} is taken off by ");
                if !finding.says.starts_with(&taken_off) {
                    let _ = writeln!(text, "  {}", without_controls(&finding.says));
                }
                shown(&mut text, finding);
            }
        }
        let others = self.causes.iter().filter(|finding| finding.finalizer.is_none());
        for finding in others.filter(|finding| !self.tells(finding)) {
            let _ = writeln!(text, "why it stays: {}", without_controls(&finding.says));
            shown(&mut text, finding);
        }
        match &self.hold {
            Some(HoldState { free: true, released_by_belay: false, r#for, .. }) => {
                let _ = writeln!(
                    text,
                    "the hold: {}; {NOT_RELEASED}: kubectl belay release {}",
                    r#for.join(", "),
                    self.arguments
                );
            }
            Some(HoldState { free: true, r#for, .. }) => {
                let when = match &self.settles {
                    Some(time) => format!("not before {time} (settleSeconds of its policies)"),
                    None => {
                        format!("within moments, or now: kubectl belay release {}", self.arguments)
                    }
                };
                let _ = writeln!(text, "the hold: {}; belay lets go {when}", r#for.join(", "));
            }
            Some(HoldState { known: true, r#for, .. }) => {
                let _ = writeln!(text, "the hold waits for: {}", r#for.join(", "));
            }
            Some(HoldState { r#for, .. }) => {
                let _ =
                    writeln!(text, "whether the hold may go is not known: {}", r#for.join(", "));
            }
            None => {}
        }
        let told = |said: &String| self.causes.iter().any(|cause| cause.evidence.contains(said));
        for condition in self.conditions.iter().filter(|condition| !told(condition)) {
            let _ = writeln!(text, "the Namespace says: {}", without_controls(condition));
        }
        text
    }

    /// Whether other lines say what a finding does, and more.
    fn tells(&self, finding: &Finding) -> bool {
        match finding.cause {
            Cause::HeldByBelay => self.hold.is_some(),
            Cause::Unknown => {
                finding.finalizer.is_none() && finding.says == "no finalizer keeps it"
            }
            _ => false,
        }
    }
}

/// What shows a finding, and what next.
fn shown(text: &mut String, Finding { evidence, next, .. }: &Finding) {
    for evidence in evidence {
        let _ = writeln!(text, "    {}", without_controls(evidence));
    }
    let _ = writeln!(text, "  next: {}", without_controls(next));
}

/// Why it stays: the code of `stuck` over the same evidence; and what of that
/// could not be read.
async fn causes(
    session: &Session,
    snapshot: &Snapshot,
    hold: Hold,
) -> (Vec<Finding>, Vec<NotRead>) {
    let (target, since) = (&session.target, session.terminating().unwrap_or_default());
    let found = Found {
        info: session.info.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        uid: session.uid().to_owned(),
        since: since.parse().unwrap_or(Timestamp::MIN),
        object: session.object.clone(),
        unread: None,
    };
    let survey = around(session, snapshot, &found).await;
    let evidence = evidence(snapshot, &[&found], &survey, 1).await;
    let unread = survey.unread.iter().chain(&evidence.unread).cloned().map(Into::into);
    (findings(&found, &survey, &evidence, &hold), unread.collect())
}

/// What is around it, where that says why it stays: what a deletion in the
/// foreground waits for, what is in a Namespace, the objects of a definition.
/// Otherwise the object alone, which takes no reads.
async fn around(session: &Session, snapshot: &Snapshot, found: &Found) -> Survey {
    let place = match session.info.full_name().as_str() {
        "namespaces" => session.near(),
        "customresourcedefinitions.apiextensions.k8s.io" => "",
        _ if session.finalizers().any(|finalizer| finalizer == FOREGROUND) => {
            found.namespace.as_str()
        }
        _ => return Survey { found: vec![found.clone()], ..Survey::default() },
    };
    let progress = Progress::begin();
    survey(snapshot, place, &|done, all, objects| {
        progress.say(|| format!("reading kind {done} of {all} … {objects} objects"));
    })
    .await
}

/// When the hold has been there for as long as its policies say, if that is
/// still to come.
fn settles(session: &Session, snapshot: &Snapshot, place: &Place) -> Option<Timestamp> {
    let since: Timestamp = session.terminating()?.parse().ok()?;
    let settle = settle(&snapshot.context.world.read(), place);
    let settles = since.saturating_add(settle).ok()?;
    (settles > session.visitor.now()).then_some(settles)
}

impl Keeper {
    fn of(name: &str, object: &Value) -> Self {
        let known = known(name);
        // A tool of people writes what they tell it, and takes nothing off.
        let writer = writer(name, object).filter(|writer| !is_tool(writer));
        let removed_by = match (known, writer) {
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

    #[test]
    fn what_stuck_finds_stands_under_its_finalizer_and_nothing_twice() {
        let finding = |finalizer: Option<&str>, cause: Cause, says: &str| Finding {
            finalizer: finalizer.map(str::to_owned),
            ..Finding::new(cause, says, "look").shown([format!("it shows {says}")])
        };
        let keeper = |name: &str| Keeper::of(name, &json!({}));
        let foreign = "its owner seems to be gone";
        let pvc = "kubernetes.io/pvc-protection";
        let mut terminating = Terminating {
            since: "2026-01-01T00:00:00Z".to_owned(),
            unread: Vec::new(),
            finalizers: vec![keeper("x.dev/y"), keeper(pvc), keeper(HOLD)],
            hold: Some(HoldState {
                free: false,
                released_by_belay: true,
                known: true,
                r#for: vec!["Pod shop/web".to_owned()],
            }),
            conditions: vec!["it shows the API".to_owned(), "1 left".to_owned()],
            causes: vec![
                finding(None, Cause::BrokenApi, "the API"),
                finding(Some("x.dev/y"), Cause::OwnerGone, foreign),
                finding(Some(pvc), Cause::Owner, &format!("{pvc} is taken off by it")),
                finding(Some(HOLD), Cause::HeldByBelay, "belay holds it"),
            ],
            settles: None,
            arguments: "pvc/a -n shop".to_owned(),
        };
        let text = terminating.text("pvc \"a\"");
        let [own, protected, rest] =
            ["- x.dev/y: ", "- kubernetes.io/pvc-protection: ", "- belay.dev/hold: "]
                .map(|line| text.split_once(line).unwrap().1.to_owned());
        let shown = format!("  {foreign}\n    it shows {foreign}\n  next: look\n");
        assert!(own.split_once('\n').unwrap().1.starts_with(&shown), "{text}");
        // That it is taken off stands in its own line.
        let shown = format!("    it shows {pvc} is taken off by it\n  next: look\n");
        assert!(protected.split_once('\n').unwrap().1.starts_with(&shown), "{text}");
        assert_eq!(
            rest.split_once('\n').unwrap().1,
            "why it stays: the API\n    it shows the API\n  next: look\n\
             the hold waits for: Pod shop/web\nthe Namespace says: 1 left\n"
        );
        let free = |released_by_belay| {
            let r#for = vec!["nothing".to_owned()];
            Some(HoldState { free: true, released_by_belay, known: true, r#for })
        };
        terminating.finalizers = vec![keeper(HOLD)];
        terminating.hold = free(false);
        let says = "the hold: nothing; belay releases none on this kind, which neither a policy \
                    nor --labelled-kinds names: kubectl belay release pvc/a -n shop\n";
        assert!(terminating.text("x").contains(says) && !terminating.goes());
        terminating.hold = free(true);
        assert!(terminating.goes());
        let says = "the hold: nothing; belay lets go within moments, or now: kubectl belay release \
                    pvc/a -n shop\n";
        assert!(terminating.text("x").contains(says));
        terminating.settles = Some(Timestamp::UNIX_EPOCH);
        let says =
            "belay lets go not before 1970-01-01T00:00:00Z (settleSeconds of its policies)\n";
        assert!(terminating.text("x").contains(says));
    }
}
