//! The report of `impact`.

use schemars::JsonSchema;
use serde::Serialize;

use super::accepted::AcceptedPart;
use super::affected::{
    AffectedObject, Summary, affected_objects, broken_users, denied_objects, endpoints, stranded,
};
use super::destroyed::{Destroyed, destroyed};
use super::order::DeletionOrder;
use super::outcome::{Admission, ImpactOutcomes};
use super::unread::{UnreadContent, unread_content};
use crate::command::delete_answer::DeleteAnswer;
use crate::command::document::{BlockerReport, FailedRead, Object, ReportedVerdict};
use crate::command::inspect::backing::{format_bytes, parse_bytes};
use crate::command::inspect::inspection::Inspection;
use crate::command::inspect::verdict::report_verdict;
use crate::command::why::needed_approvals;
use crate::decide::{Blocker, Decision, Verdict, is_root_ca, remedies, sentence, step_of_each};
use crate::graph::{ObjectPhase, Propagation};
use crate::objects::{and_more, more};

/// The warning if no replica releases the holds that the deletion reaches.
const NO_LEADER: &str = "belay has no leader, so it releases no hold until a replica runs; next: \
                         kubectl belay status";

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Impact {
    /// The message if nothing is deleted. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "says")]
    pub message: Option<String>,
    /// The targets of the DELETE.
    pub targets: Vec<Object>,
    /// The propagation policy of the DELETE: `background`, `foreground` or `orphan`.
    pub cascade: &'static str,
    /// The verdict on the DELETE.
    pub verdict: ReportedVerdict,
    /// Why the API server refuses a DELETE by you for another reason than a policy of belay. In a
    /// cluster, it is asked about each target with a dry run. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_otherwise: Option<String>,
    /// The warnings: from the API server (if its answer replaces the verdict), and about policies not
    /// enforced, holds not released, and the end of protection by belay.
    pub warnings: Vec<String>,
    /// The blockers, and the reasons to warn or to record.
    pub blockers: Vec<BlockerReport>,
    /// The number of further blockers.
    pub more: usize,
    /// What to do instead of an approval. Absent if nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// The commands that approve the deletion, if it is refused.
    pub approve: Vec<String>,
    /// Whether you can approve. Absent if the delete is not refused, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub you_may: Option<bool>,
    /// The users who have approved the deletion so far, if more approvals are required.
    #[serde(skip)]
    pub approved_by: Vec<String>,
    /// Whether you are one of them.
    #[serde(skip)]
    pub has_approved: bool,
    /// The order in which the objects can be deleted. Absent if the given order works, and
    /// with `--removed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<DeletionOrder>,
    /// The targets that the API server deletes without an approval in the given order, although it
    /// denies others. Absent if there are none. For files, present only with `order`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedPart>,
    /// The numbers of affected objects.
    pub summary: Summary,
    /// Resources outside the cluster that are destroyed for good.
    pub destroyed: Vec<Destroyed>,
    /// The deleted objects with content or dependents that could not be read. These are deleted as
    /// well.
    pub unread_content: Vec<UnreadContent>,
    /// All affected objects.
    pub objects: Vec<AffectedObject>,
    /// Failed reads. If there are any, the counts are lower bounds.
    pub not_read: Vec<FailedRead>,
    /// Objects that a manifest names and that do not exist, in the form of the field `typed` of an
    /// object.
    pub missing: Vec<String>,
    /// Whether some targets could not be read.
    #[serde(skip)]
    pub has_unread_targets: bool,
    /// The objects that use each other, if there is a plan or no order that works.
    #[serde(skip)]
    pub cycles: Vec<Vec<Object>>,
    /// As in [`Admission`].
    #[serde(skip)]
    pub denies_content_deletes: bool,
    /// Whether the API server refuses the DELETE because belay does not answer.
    #[serde(skip)]
    pub is_belay_silent: bool,
}

impl Impact {
    /// The report on the deletion of the targets with this propagation policy. `hold_reason`: what
    /// the hold waits for, from belay's warning; `denies_content_deletes` is as in [`Admission`].
    pub fn new(
        inspection: &Inspection,
        verdict: Option<&Verdict>,
        cascade: Propagation,
        hold_reason: Option<&str>,
        denies_content_deletes: bool,
    ) -> Self {
        let graph = &inspection.graph;
        // A denied deletion has these effects if it is approved.
        let denied = verdict.filter(|verdict| verdict.decision == Decision::Deny);
        let approvals = denied.map_or_else(Vec::new, needed_approvals);
        let targets = inspection.deletable_targets();
        let held = match targets.as_slice() {
            [target] => hold_reason.map(|until| (*target, until)),
            _ => None,
        };
        let admission = Admission { approvals: &approvals, held, denies_content_deletes };
        let outcomes = ImpactOutcomes::new(inspection, &targets, cascade, &admission);
        let lacks_leader = inspection.no_leader && outcomes.has_holds();
        let mut summary = Summary::default();
        let destroyed = destroyed(inspection, &outcomes);
        let unread_content = unread_content(inspection, &outcomes, cascade == Propagation::Orphan);
        let resources = (destroyed.as_slice(), unread_content.as_slice());
        let mut objects = affected_objects(inspection, &outcomes, resources, &mut summary);
        objects.extend(endpoints(inspection, &outcomes, &mut summary));
        objects.extend(denied_objects(inspection, &outcomes, &mut summary));
        objects.extend(broken_users(inspection, outcomes.broken(), &mut summary));
        objects.extend(stranded(inspection, &outcomes, &mut summary));
        let already_terminating = already_terminating(inspection);
        let recreated =
            [recreated(inspection, &outcomes), recreated_default(inspection, &outcomes)];
        let pause = inspection.policies.pause(inspection.now());
        let paused =
            pause.map(|pause| format!("paused until {}: belay denies nothing", pause.until()));
        let mut not_read = inspection.rules_not_read.clone();
        not_read.extend(inspection.not_read.iter().cloned());
        if !outcomes.is_complete() {
            let why = "the deletion reaches too many objects to follow it to its end".to_owned();
            not_read.push(FailedRead { resource: "everything".to_owned(), why });
        }
        let targets: Vec<Object> =
            inspection.targets.iter().map(|id| Object::at(graph, *id)).collect();
        let reported = report_verdict(inspection, verdict.map(ReportedVerdict::new));
        let (next_step, approve) = match verdict {
            Some(verdict) if verdict.decision == Decision::Deny => steps(verdict, &targets),
            _ => (None, Vec::new()),
        };
        let blockers = verdict.into_iter();
        let blockers = blockers.flat_map(|verdict| blocker_reports(inspection, verdict, &targets));
        let forbidden = inspection.forbidden_targets().into_iter();
        let forbidden = forbidden.map(|id| forbidden_namespace(Object::at(graph, id)));
        let blockers: Vec<BlockerReport> = forbidden.chain(blockers).collect();
        let message = match (inspection.missing.is_empty(), inspection.unread_targets.is_empty()) {
            (true, true) => "no objects are removed",
            (false, true) => "none of the removed objects exists",
            _ => "none of the removed objects was found, but not all could be read",
        };
        Self {
            message: inspection.targets.is_empty().then(|| message.to_owned()),
            cascade: cascade_value(cascade),
            verdict: reported,
            refused_otherwise: None,
            warnings: [lacks_leader.then(|| NO_LEADER.to_owned()), already_terminating]
                .into_iter()
                .chain(recreated)
                .chain([paused])
                .flatten()
                .collect(),
            blockers,
            more: verdict.map_or(0, |verdict| verdict.more),
            next_step,
            approve,
            you_may: None,
            approved_by: Vec::new(),
            has_approved: false,
            order: None,
            accepted: None,
            targets,
            summary,
            destroyed,
            unread_content,
            objects,
            not_read,
            missing: inspection.missing.iter().map(|target| target.typed.clone()).collect(),
            has_unread_targets: !inspection.unread_targets.is_empty(),
            cycles: Vec::new(),
            denies_content_deletes,
            is_belay_silent: false,
        }
    }

    /// Adds the answer of the API server.
    pub fn add_answer(&mut self, inspection: &Inspection, answer: DeleteAnswer) {
        self.verdict = match answer.refused {
            Some(_) => ReportedVerdict::Deny,
            None => report_verdict(inspection, Some(answer.reported)),
        };
        let is_held =
            |object: &AffectedObject| object.held_by_belay && self.targets.contains(&object.object);
        if self.verdict == ReportedVerdict::Allow && self.objects.iter().any(is_held) {
            self.verdict = ReportedVerdict::Hold;
        }
        // The API server refuses the DELETE for another reason than a policy.
        if answer.refused.is_some() && answer.reported != ReportedVerdict::Deny {
            self.blockers.retain(|blocker| blocker.reason == FORBIDDEN);
        }
        let blockers = self.blockers.iter_mut().filter(|blocker| blocker.reason != FORBIDDEN);
        for (blocker, texts) in blockers.zip(answer.blocker_texts) {
            blocker.message = texts.message;
        }
        self.next_step = answer.next_step.or(self.next_step.take());
        self.is_belay_silent = answer.is_belay_silent;
        if self.is_belay_silent {
            self.next_step = None;
            self.approve.clear();
        }
        self.refused_otherwise = answer.refused;
        self.warnings.extend(answer.warnings);
        self.not_read.extend(answer.unanswered);
    }

    /// Adds the denial of DELETEs that are sent one after the other, if the deletion of all targets
    /// together is not denied.
    pub fn add_denial(&mut self, inspection: &Inspection, denial: &Verdict) {
        self.verdict = ReportedVerdict::Deny;
        self.blockers = blocker_reports(inspection, denial, &self.targets);
        self.more = denial.more;
        (self.next_step, self.approve) = steps(denial, &self.targets);
        self.order = None;
    }

    /// The blockers that decide the verdict on the DELETE: those with the strictest verdict, or
    /// those that keep an object Terminating.
    pub fn deciding(&self) -> impl Iterator<Item = &BlockerReport> {
        let strictest = self.blockers.first().map(|blocker| blocker.verdict);
        self.blockers.iter().filter(move |blocker| match self.verdict {
            ReportedVerdict::Hold => blocker.is_hold,
            _ => Some(blocker.verdict) == strictest,
        })
    }

    /// The namespace of all targets, which texts omit from names. Empty if the targets are in
    /// several namespaces.
    pub fn omitted_namespace(&self) -> &str {
        let namespaces = self.targets.iter().map(Object::own_namespace);
        let mut namespaces = namespaces.filter(|namespace| !namespace.is_empty());
        let first = namespaces.next().unwrap_or_default();
        if namespaces.all(|namespace| namespace == first) { first } else { "" }
    }

    /// The destroyed volumes whose reclaimPolicy is known, or with `known` false, unknown.
    pub fn volumes(&self, known: bool) -> Vec<&Destroyed> {
        let volumes = self.destroyed.iter().filter(|destroyed| destroyed.what == "Volume");
        volumes.filter(|volume| volume.reclaim_policy_not_read.is_none() == known).collect()
    }

    /// The deleted object with claims that could not be read, and the error. Its deletion may
    /// destroy their volumes.
    pub fn unread_claims(&self) -> Option<(&Object, &str)> {
        let mut unread = self.unread_content.iter();
        unread.find_map(|unread| Some((&unread.of, unread.claims_not_read.as_deref()?)))
    }

    /// The total size of volumes.
    pub fn size(volumes: &[&Destroyed]) -> String {
        let sizes: Option<Vec<f64>> =
            volumes.iter().map(|destroyed| parse_bytes(&destroyed.size)).collect();
        sizes.map_or_else(String::new, |sizes| format_bytes(sizes.iter().sum()))
    }
}

/// The next step other than an approval, and the commands that approve the deletion of the targets.
fn steps(denial: &Verdict, targets: &[Object]) -> (Option<String>, Vec<String>) {
    let (next_step, approve) = remedies(denial);
    (if targets.len() > 1 { step_of_each(denial) } else { next_step }, approve)
}

fn blocker_reports(
    inspection: &Inspection,
    verdict: &Verdict,
    targets: &[Object],
) -> Vec<BlockerReport> {
    let report = |blocker| {
        let message = blocker_text(verdict, blocker, targets);
        BlockerReport::new(verdict, blocker, message, &inspection.graph.kinds)
    };
    verdict.blockers.iter().map(report).collect()
}

/// The value of kubectl's `--cascade`.
fn cascade_value(cascade: Propagation) -> &'static str {
    match cascade {
        Propagation::Background => "background",
        Propagation::Foreground => "foreground",
        Propagation::Orphan => "orphan",
    }
}

/// The warning about targets that were deleted before.
fn already_terminating(inspection: &Inspection) -> Option<String> {
    let targets = inspection.targets.iter().filter_map(|id| inspection.graph.get(*id));
    let terminating: Vec<_> = targets.filter(|target| target.is_terminating()).collect();
    let object = terminating.first()?.object_ref();
    let others = and_more(terminating.len() - 1, "target");
    let are = if terminating.len() == 1 { "is" } else { "are" };
    let (name, arguments) = (object.quoted(), object.arguments());
    Some(format!("{name}{others} {are} already Terminating; next: kubectl belay why {arguments}"))
}

/// The warning about targets whose controller stays and re-creates them.
fn recreated(inspection: &Inspection, outcomes: &ImpactOutcomes<'_>) -> Option<String> {
    let graph = &inspection.graph;
    let targets = inspection.targets.iter().filter_map(|id| graph.get(*id));
    let controlled = targets.filter_map(|target| {
        let controller = target.controller()?;
        let stays = outcomes.get(controller.id()).is_none() && !controller.is_terminating();
        // A CronJob creates other Jobs, and a ReplicaSet without Pods is not in use.
        let is_needed = controller.info().creates(target.info())
            && controller.info().group_resource() != ("batch", "cronjobs")
            && target.phase() == ObjectPhase::Active
            && (target.info().resource != "replicasets"
                || graph.dependents(target).next().is_some());
        (stays && is_needed).then_some((target, controller))
    });
    let controlled: Vec<_> = controlled.collect();
    let (target, controller) = controlled.first()?;
    let others = match controlled.len() - 1 {
        0 => String::new(),
        others => format!("; so do the controllers of {}", more(others, "target")),
    };
    let (target, controller) = (target.object_ref().quoted(), controller.object_ref().quoted());
    Some(format!("{controller} controls {target}, and re-creates it{others}"))
}

/// The warning about targets that the control plane creates in every Namespace.
fn recreated_default(inspection: &Inspection, outcomes: &ImpactOutcomes<'_>) -> Option<String> {
    let targets = inspection.targets.iter().filter_map(|id| inspection.graph.get(*id));
    let recreated: Vec<_> = targets.filter(|target| outcomes.is_recreated(*target)).collect();
    let target = recreated.first()?.object_ref();
    let name = target.quoted() + &and_more(recreated.len() - 1, "target");
    let same = if is_root_ca(&target) { " with the same content" } else { "" };
    Some(format!("kube-controller-manager re-creates {name}{same}"))
}

/// The reason of a blocker if the API server itself refuses the deletion.
pub const FORBIDDEN: &str = "Forbidden";

/// The blocker of a Namespace that the API server never deletes.
fn forbidden_namespace(object: Object) -> BlockerReport {
    BlockerReport {
        verdict: ReportedVerdict::Deny,
        reason: FORBIDDEN,
        message: format!("the API server forbids the deletion of namespace \"{}\"", object.name),
        object,
        policies: Vec::new(),
        by: String::new(),
        is_hold: false,
    }
}

/// The sentence about a blocker. With one target, it is the sentence of admission, which names
/// the objects that are deleted as well. With several targets, it names only the object of the
/// blocker.
fn blocker_text(verdict: &Verdict, blocker: &Blocker, targets: &[Object]) -> String {
    let object = &blocker.object;
    let is_object = |target: &Object| {
        (&target.group, &target.resource, &target.namespace, &target.name)
            == (&object.group, &object.resource, &object.namespace, &object.name)
    };
    match targets {
        [_] => sentence(&verdict.target, blocker),
        all if all.iter().any(is_object) => sentence(object, blocker),
        _ => format!("{}, and would be deleted as well", sentence(object, blocker)),
    }
}
