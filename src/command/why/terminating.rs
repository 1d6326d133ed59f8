//! Why a Terminating object stays.

use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::release::settle;
use crate::cluster::terminating::{Survey, TerminatingObject, evidence, survey};
use crate::cluster::{ObjectKey, Snapshot};
use crate::command::delete_answer::hold_state;
use crate::command::diagnosis::{
    BlockingFinalizer, Cause, Finding, Hold, HoldState, UndoAdviser, explain_finalizers,
    finalizers_of, find_causes, guarded_finalizers, orphaning_denials, remover, why_irreversible,
};
use crate::command::document::FailedRead;
use crate::command::screen::Progress;
use crate::command::target::TargetObject;
use crate::objects::{CRDS, FOREGROUND, ORPHAN, ObjectRef, list_at, text_at, without_controls};

/// A Terminating object.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminating {
    /// The time of the DELETE.
    since: String,
    /// The finalizers.
    finalizers: Vec<BlockingFinalizer>,
    /// The number of finalizers that `finalizers` leaves out.
    more_finalizers: usize,
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
    /// Failed reads. The unread objects may contain further causes.
    #[serde(skip)]
    pub unread: Vec<FailedRead>,
    #[serde(skip)]
    object_ref: ObjectRef,
    /// Whether belay has no leader.
    #[serde(skip)]
    no_leader: bool,
    /// The advice to undo the deletion, of this object or of its Namespace. Absent if `undo` would
    /// refuse it.
    #[serde(skip)]
    undo: Option<String>,
}

/// The Namespace of an object, if it is Terminating.
fn terminating_namespace(snapshot: &Snapshot, object: &ObjectRef) -> Option<ObjectRef> {
    let world = snapshot.context.world.read();
    let namespace = ObjectRef::new(("", "namespaces"), "", &object.namespace);
    let node = world.graph.object_by_ref(&namespace).filter(|node| node.is_terminating())?;
    Some(node.object_ref())
}

impl Terminating {
    /// Reads the state of a Terminating object; `None` if the object is not Terminating.
    /// `no_leader`: whether belay has no leader. The users are counted by the code of the
    /// release, with live reads. Nothing is written.
    pub async fn read(target: &TargetObject, snapshot: &Snapshot, no_leader: bool) -> Option<Self> {
        let since = target.terminating_since()?.to_owned();
        let object_ref = &target.object_ref;
        let (finalizers, more_finalizers) = BlockingFinalizer::first(&target.json, object_ref);
        let is_held = finalizers.iter().any(|finalizer| finalizer.ours);
        let key = snapshot.context.world.read().key(object_ref).filter(|_| is_held);
        let installed = snapshot.is_installed() || target.session.asks_files();
        let hold = match is_held && installed {
            true => {
                let object = (&target.info, object_ref);
                Some(hold_state(&target.session, snapshot, object, &target.json).await)
            }
            false => None,
        };
        let settles = key.and_then(|key| settles(target, snapshot, &key));
        let conditions = match object_ref.is_namespace() {
            true => conditions(&target.json),
            false => Vec::new(),
        };
        let known_hold = Hold { state: hold.clone(), installed, no_leader, ..Hold::default() };
        let (causes, unread) = causes(target, snapshot, &known_hold).await;
        let is_reversible = !finalizers.is_empty() && why_irreversible(&target.info).is_none();
        let undo = match is_reversible {
            true => {
                let namespace = terminating_namespace(snapshot, object_ref);
                let object = namespace.as_ref().unwrap_or(object_ref);
                let volume = text_at(&target.json, "/spec/volumeName");
                Some(UndoAdviser::new(&target.session).advice(object, volume).await)
            }
            false => None,
        };
        Some(Self {
            since,
            finalizers,
            more_finalizers,
            hold,
            no_leader,
            conditions,
            causes,
            settles,
            unread,
            object_ref: object_ref.clone(),
            undo,
        })
    }

    /// Whether nothing blocks the deletion.
    pub fn is_unblocked(&self) -> bool {
        self.finalizers.iter().all(|finalizer| finalizer.ours)
            && self
                .hold
                .as_ref()
                // Without belay, nothing removes its hold.
                .map_or(self.finalizers.is_empty(), |hold| {
                    hold.free && hold.released_by_belay && !self.no_leader
                })
    }

    /// Whether it is unknown if anything blocks the deletion.
    pub fn is_unknown(&self) -> bool {
        self.finalizers.iter().all(|finalizer| finalizer.ours)
            && self.hold.as_ref().is_some_and(|hold| !hold.known)
    }

    pub fn text(&self, named: &str) -> String {
        let mut text = format!("{named} has been Terminating since {}", self.since);
        text.push_str(match self.finalizers.is_empty() {
            true => "; no finalizer keeps it\n",
            false => ", and waits for the removal of these finalizers:\n",
        });
        let mut steps = Vec::new();
        for BlockingFinalizer { name, removal, by_hand, .. } in &self.finalizers {
            let (shown, removal) = (without_controls(name), without_controls(removal));
            let _ = writeln!(text, "- {shown}: {removal}");
            let of_finalizer = |finding: &&Finding| finding.finalizer.as_ref() == Some(name);
            for finding in
                self.causes.iter().filter(of_finalizer).filter(|one| !self.is_redundant(one))
            {
                // The line about a finalizer of Kubernetes names its controller already.
                if finding.cause != Cause::Controller || by_hand.is_some() {
                    let _ = writeln!(text, "  {}", without_controls(&finding.message));
                }
                write_evidence(&mut text, finding, &mut steps);
            }
        }
        let others = self.causes.iter().filter(|finding| finding.finalizer.is_none());
        for finding in others.filter(|finding| !self.is_redundant(finding)) {
            let _ = writeln!(text, "why it stays: {}", without_controls(&finding.message));
            write_evidence(&mut text, finding, &mut steps);
        }
        if let Some(hold) = &self.hold {
            let next = hold.next(&self.object_ref, self.no_leader);
            let released = hold.released_by_belay && !self.no_leader;
            let when = match (hold.free, released, &self.settles) {
                (true, true, Some(time)) => {
                    format!("; not before {time} (settleSeconds of its policies)")
                }
                (true, true, None) => format!("; in a few seconds, or now: {next}"),
                (true, false, _) => format!("; next: {next}"),
                (false, ..) => String::new(),
            };
            let _ = writeln!(text, "{hold}{when}");
        }
        if let Some(undo) = &self.undo {
            let _ = writeln!(text, "if the deletion is a mistake: {undo}");
        }
        let is_evidence =
            |text: &String| self.causes.iter().any(|cause| cause.evidence.contains(text));
        for condition in self.conditions.iter().filter(|condition| !is_evidence(condition)) {
            let _ = writeln!(text, "the Namespace last reported: {}", without_controls(condition));
        }
        text
    }

    /// Whether other lines of the text already contain a finding.
    fn is_redundant(&self, finding: &Finding) -> bool {
        match finding.cause {
            Cause::HeldByBelay => self.hold.is_some(),
            Cause::Unknown => {
                finding.finalizer.is_none() && finding.message == "no finalizer keeps it"
            }
            _ => false,
        }
    }
}

/// Writes the evidence of a finding, and the next step unless it is one of the written `steps`.
fn write_evidence<'f>(
    text: &mut String,
    Finding { evidence, next, .. }: &'f Finding,
    steps: &mut Vec<&'f str>,
) {
    for evidence in evidence {
        let _ = writeln!(text, "    {}", without_controls(evidence));
    }
    if steps.contains(&next.as_str()) {
        return;
    }
    steps.push(next);
    let mut lines = next.lines();
    let _ = writeln!(text, "  next: {}", without_controls(lines.next().unwrap_or_default()));
    for line in lines {
        let _ = writeln!(text, "  {}", without_controls(line));
    }
}

/// The causes why the object stays, and the failed reads of evidence.
async fn causes(
    target: &TargetObject,
    snapshot: &Snapshot,
    hold: &Hold,
) -> (Vec<Finding>, Vec<FailedRead>) {
    let object = object_to_explain(target);
    let survey = survey_around(snapshot, &object).await;
    let mut evidence = evidence(snapshot, &[&object], &survey, 1).await;
    evidence.guarded =
        guarded_finalizers(&target.session, snapshot, std::slice::from_ref(&object)).await;
    let denials = orphaning_denials(&target.session, snapshot, &survey, &object).await;
    evidence.orphaning_denials.insert(object.uid.clone(), denials);
    let unread = survey.unread.iter().chain(&evidence.unread).cloned().map(Into::into);
    let causes = find_causes(&object, &survey, &evidence, hold, target.session.me.now());
    (causes, unread.collect())
}

/// What removes each finalizer of an object that is not Terminating, and the failed reads of evidence.
pub async fn read_finalizer_texts(
    target: &TargetObject,
    snapshot: &Snapshot,
) -> (Vec<String>, Vec<FailedRead>) {
    let finalizers = finalizers_of(&target.json);
    if target.terminating_since().is_some() {
        return Default::default();
    }
    let object = object_to_explain(target);
    // The controllers of the other finalizers are known without evidence.
    let is_foreign = |name: &&str| remover(name).is_none();
    let found: &[_] = if finalizers.iter().any(is_foreign) { &[&object] } else { &[] };
    let evidence = evidence(snapshot, found, &Survey::default(), 0).await;
    let unread = evidence.unread.iter().cloned().map(Into::into).collect();
    (explain_finalizers(&object, &evidence), unread)
}

fn object_to_explain(target: &TargetObject) -> TerminatingObject {
    let since = target.terminating_since().unwrap_or_default();
    TerminatingObject {
        info: target.info.clone(),
        object_ref: target.object_ref.clone(),
        uid: target.uid().to_owned(),
        since: since.parse().unwrap_or(Timestamp::MIN),
        object: target.json.clone(),
        unread: None,
    }
}

/// Reads the objects that can explain why an object stays: the dependents that the garbage
/// collector deletes or orphans first, the content of a Namespace, and the objects of a CRD. For all other
/// objects this reads nothing.
async fn survey_around(snapshot: &Snapshot, object: &TerminatingObject) -> Survey {
    let namespace = match &object.object_ref {
        namespace if namespace.is_namespace() => namespace.own_namespace(),
        crd if crd.is_of(CRDS) => "",
        owner if finalizers_of(&object.object).iter().any(|f| [FOREGROUND, ORPHAN].contains(f)) => {
            &owner.namespace
        }
        _ => return Survey { objects: vec![object.clone()], ..Survey::default() },
    };
    let progress = Progress::begin();
    survey(snapshot, (namespace, namespace), &|done, all, objects| {
        progress.say(|| format!("reading kind {done} of {all} … {objects} objects"));
    })
    .await
}

/// When the settle time of the policies ends; `None` if it is over.
fn settles(target: &TargetObject, snapshot: &Snapshot, key: &ObjectKey) -> Option<Timestamp> {
    let since: Timestamp = target.terminating_since()?.parse().ok()?;
    let settle = settle(&snapshot.context.world.read(), key);
    let settles = since.saturating_add(settle).ok()?;
    (settles > target.session.me.now()).then_some(settles)
}

/// The conditions of a Namespace about its remaining content.
fn conditions(object: &Value) -> Vec<String> {
    let conditions = list_at(object, "/status/conditions").iter();
    let true_conditions = conditions.filter(|condition| condition["status"] == "True");
    true_conditions
        .filter_map(|condition| Some(condition.get("message")?.as_str()?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::diagnosis::Unreleased;
    use crate::hold::ReleaseReason;
    use crate::objects::{HOLD, ObjectRef};
    use serde_json::json;

    #[test]
    fn findings_are_listed_once_below_their_finalizer() {
        let finding = |finalizer: Option<&str>, cause: Cause, says: &str| {
            let next = if cause == Cause::Controller { "wait" } else { "look" };
            let finding = Finding::new(cause, says, next).with([format!("it shows {says}")]);
            Finding { finalizer: finalizer.map(str::to_owned), ..finding }
        };
        let finalizer = |name: &str| {
            let object = json!({"metadata": {"finalizers": [name]}});
            BlockingFinalizer::first(&object, &ObjectRef::default()).0.remove(0)
        };
        let foreign = "its controller was not found";
        let pvc = "kubernetes.io/pvc-protection";
        let mut terminating = Terminating {
            undo: None,
            since: "2026-01-01T00:00:00Z".to_owned(),
            unread: Vec::new(),
            more_finalizers: 0,
            finalizers: vec![finalizer("x.dev/y"), finalizer(pvc), finalizer(HOLD)],
            hold: Some(HoldState {
                free: false,
                released_by_belay: true,
                known: true,
                reasons: vec!["Pod shop/web".to_owned()],
                step: None,
                unreleased: None,
                needs_no_approval: false,
            }),
            conditions: vec!["it shows the API".to_owned(), "1 left".to_owned()],
            causes: vec![
                finding(None, Cause::BrokenApi, "the API"),
                finding(Some("x.dev/y"), Cause::ControllerGone, foreign),
                finding(Some(pvc), Cause::Controller, &format!("{pvc} is removed by it")),
                finding(Some(HOLD), Cause::HeldByBelay, "belay holds it"),
            ],
            settles: None,
            object_ref: ObjectRef::new(("", "persistentvolumeclaims"), "shop", "a"),
            no_leader: false,
        };
        let text = terminating.text("pvc \"a\"");
        let [own, protected, rest] =
            ["- x.dev/y: ", "- kubernetes.io/pvc-protection: ", "- belay.dev/hold: "]
                .map(|line| text.split_once(line).unwrap().1.to_owned());
        let shown = format!("  {foreign}\n    it shows {foreign}\n  next: look\n");
        assert!(own.split_once('\n').unwrap().1.starts_with(&shown), "{text}");
        // The line of the finalizer already names its controller.
        let shown = format!("    it shows {pvc} is removed by it\n  next: wait\n");
        assert!(protected.split_once('\n').unwrap().1.starts_with(&shown), "{text}");
        // The step is already written.
        assert_eq!(
            rest.split_once('\n').unwrap().1,
            "why it stays: the API\n    it shows the API\n\
             belay keeps the hold because the object is in use by: Pod shop/web\n\
             the Namespace last reported: 1 left\n"
        );
        let free = |unreleased: Option<Unreleased>| {
            let free = HoldState::new(&ObjectRef::default(), Ok(ReleaseReason::Unused), |_| false);
            Some(free.with_unreleased(unreleased))
        };
        terminating.finalizers = vec![finalizer(HOLD)];
        terminating.hold = free(Some(Unreleased::forbidden("", "persistentvolumeclaims")));
        let says = "belay holds it: nothing needs it; belay may not watch and patch \
                    persistentvolumeclaims, so it releases no hold on them; next: have an \
                    administrator add persistentvolumeclaims to the chart value rbac.watchAlso";
        let text = terminating.text("x");
        assert!(text.contains(says) && !terminating.is_unblocked(), "{text}");
        // A policy still protects the object, so --force needs an approval.
        let force = "--force=a (after kubectl belay approve persistentvolumeclaims/a -n shop ";
        assert!(text.contains(force), "{text}");
        terminating.hold = free(None);
        assert!(terminating.is_unblocked());
        let says = "belay holds it, and can release it: nothing needs it; in a few seconds, or \
                    now: kubectl belay release persistentvolumeclaims/a -n shop\n";
        assert!(terminating.text("x").contains(says));
        terminating.settles = Some(Timestamp::UNIX_EPOCH);
        let says =
            "nothing needs it; not before 1970-01-01T00:00:00Z (settleSeconds of its policies)\n";
        assert!(terminating.text("x").contains(says));
    }
}
