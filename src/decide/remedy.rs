//! The first step that a denial message advises, besides an approval.

use super::content::MAX_OBJECTS;
use super::situation::is_default_object;
use super::{Blocker, Cause, ContentReason, Decision, ObjectName, Reason, RefusedDelete, Verdict};
use crate::graph::Propagation;
use crate::objects::{ObjectRef, SCALABLE, STATEFUL_SETS, STORAGE_CLASSES, more, one_line_name};

/// The limit of blockers that a message describes.
pub(super) const MAX_DESCRIBED: usize = 3;

/// Kinds whose references can't be changed.
const IMMUTABLE_KINDS: &[(&str, &str)] = &[
    ("", "pods"),
    ("batch", "jobs"),
    ("resource.k8s.io", "resourceclaims"),
    STORAGE_CLASSES,
    ("storage.k8s.io", "volumeattributesclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
];

/// Fields of a StatefulSet that can't be changed.
const IMMUTABLE_FIELDS: &[&str] = &["spec.volumeClaimTemplates", "spec.serviceName"];

/// Controllers of Kubernetes that re-create Pods, except [`SCALABLE`], and how to stop these Pods.
const OTHER_CONTROLLERS: &[((&str, &str), &str)] = &[
    (("apps", "daemonsets"), "set spec.template.spec.nodeSelector to a label that no Node has"),
    (("batch", "jobs"), "set spec.suspend to true"),
    (("batch", "cronjobs"), "set spec.suspend to true, and delete its Jobs"),
];

/// The field of a StatefulSet that decides whether its deletion deletes its claims.
const RETENTION: &str = "spec.persistentVolumeClaimRetentionPolicy.whenDeleted";

/// The advice of a message, besides an approval.
pub(super) struct Remedy {
    /// The purpose, such as `delete it`.
    pub(super) goal: Option<String>,
    /// The step, such as `first delete Pod shop/web`.
    pub(super) action: String,
}

pub(super) fn remedy(verdict: &Verdict, blocker: &Blocker) -> Option<Remedy> {
    let target = &verdict.target;
    // The sentence about a dependent begins with the dependent.
    let sentence_begins_with_target =
        blocker.object == *target && !matches!(blocker.causes.first(), Some(Cause::Dependent(_)));
    let it = || if sentence_begins_with_target { "it".to_owned() } else { target.quoted() };
    let goal = || match verdict.change {
        Some(_) => "make this change".to_owned(),
        None => format!("delete {}", it()),
    };
    let to_delete = |action| Some(Remedy { goal: Some(goal()), action });
    let passing_cascade = verdict
        .passing_propagation
        .map(|propagation| format!("--cascade={}", propagation.as_str().to_lowercase()));
    let use_cascade = |cascade: String| to_delete(format!("use {cascade}"));
    let without_goal = |action: String| Some(Remedy { goal: None, action });
    let not_while = |objects: String| match verdict.change {
        Some(_) => without_goal(format!("don't make this change while {objects}")),
        None => without_goal(format!("don't delete {} while {objects}", it())),
    };
    let all_objects = || {
        let causes: Vec<&Cause> = blocker.causes.iter().collect();
        objects_to_delete(verdict, blocker, &causes, blocker.more)
    };
    match (blocker.reason, blocker.causes.first()?) {
        _ if let Some(seconds) = verdict.retry_seconds => {
            to_delete(format!(
                "retry in {seconds} s, because the hold is new: belay then accepts the DELETE, and \
                 keeps the object Terminating until nothing uses it"
            ))
        }
        // The control plane adds the use to each Pod, so users can't end it.
        (Reason::InUse, _) if verdict.change.is_none() && is_recreated(&blocker.object) => {
            let kept = blocker.object.quoted();
            without_goal(format!("keep {kept}: kube-controller-manager re-creates it"))
        }
        // Deleting volumes or claims would lose data.
        (Reason::InUse | Reason::StillNeeded, _)
            if let Some(users) = users_with_volumes(verdict, blocker) =>
        {
            not_while(users)
        }
        // In the background, the target, which is the user, is deleted first.
        (Reason::InUse, _)
            if blocker.is_own_use(target)
                && verdict.passing_propagation == Some(Propagation::Background) =>
        {
            to_delete(format!(
                "use --cascade=background, which deletes {} first; --cascade=foreground deletes {} \
                 first",
                target.quoted(),
                blocker.object.quoted()
            ))
        }
        (Reason::InUse | Reason::FinalizerGuarded, _) if passing_cascade.is_some() => {
            use_cascade(passing_cascade?)
        }
        (Reason::InUse, _) if blocker.is_own_use(target) => {
            to_delete(own_use_step(verdict, blocker)?)
        }
        (Reason::InUse, Cause::User { .. } | Cause::Elsewhere { .. }) => {
            to_delete(step_with_users(verdict, blocker)?)
        }
        (Reason::NotEmpty, Cause::Content { object, .. })
            if blocker.causes.iter().all(|cause| is_terminating_content(verdict, cause)) =>
        {
            to_delete(step_to_find_out(object))
        }
        (Reason::StillNeeded, cause)
            if blocker.causes.iter().all(|cause| is_terminating(verdict, cause)) =>
        {
            to_delete(step_to_find_out(cause.object_to_delete(target)?))
        }
        // belay does not know whether so many objects can be deleted first.
        (Reason::NotEmpty | Reason::StillNeeded, _)
            if blocker.causes.len() + blocker.more >= MAX_OBJECTS =>
        {
            None
        }
        (Reason::NotEmpty, Cause::Content { why: ContentReason::Held(_), .. }) => {
            let objects = all_objects()?;
            let one = blocker.causes.len() + blocker.more == 1;
            let absent = if one { "it no longer exists" } else { "they no longer exist" };
            to_delete(format!("first delete {objects} and wait until {absent}"))
        }
        (Reason::NotEmpty | Reason::StillNeeded, _) => match all_objects() {
            Some(objects) => {
                to_delete(format!("first delete {objects}{}", list_of_content(blocker)))
            }
            // The objects can't be deleted first.
            None if blocker.reason == Reason::StillNeeded => {
                let causes: Vec<&Cause> = blocker.causes.iter().collect();
                let one = causes.len() + blocker.more == 1;
                let objects = join(names(verdict, blocker, &causes, blocker.more))?;
                let exist = if one { "exists" } else { "exist" };
                not_while(format!("{objects} {exist}"))
            }
            None => None,
        },
        (Reason::WouldOrphan, Cause::Owner(_)) if blocker.object == *target => {
            without_goal("keep the owner reference".to_owned())
        }
        (Reason::WouldOrphan, Cause::RepeatedUid(_)) => {
            without_goal("leave out the added reference".to_owned())
        }
        (Reason::WouldOrphan, _) if loses_dependent(target, blocker) => {
            without_goal("keep the owner reference".to_owned())
        }
        (Reason::WouldOrphan, _) if let Some(lost) = verdict.volume_lost_with(target) => {
            let retain = match target.is_of(STATEFUL_SETS) {
                true => format!(", or first set {RETENTION} to Retain"),
                false => String::new(),
            };
            let (kept, cascade, volume) = (target.quoted(), passing_cascade?, lost.quoted());
            without_goal(format!(
                "keep {kept}{retain}; don't use {cascade}: it also deletes {volume}"
            ))
        }
        (Reason::WouldOrphan, _) => use_cascade(passing_cascade?),
        (Reason::FinalizerGuarded, Cause::LostFinalizer(_)) => None,
        (Reason::FinalizerGuarded, Cause::Hold { terminating: true }) => {
            let goal = Some(format!("release {}", target.quoted()));
            let action = format!("run kubectl belay release {}", target.arguments());
            Some(Remedy { goal, action })
        }
        (Reason::FinalizerGuarded, Cause::Hold { terminating: false }) => without_goal(
            "keep the finalizer: belay removes it when the object is Terminating and nothing uses it"
                .to_owned(),
        ),
        (Reason::FinalizerGuarded, _) => {
            without_goal("let the controller of the finalizer remove it".to_owned())
        }
        (Reason::Protected, Cause::Always) => {
            without_goal(verdict.change.as_ref()?.step?.to_owned())
        }
        (Reason::Unknown, cause) => {
            let cause = match cause {
                Cause::Elsewhere { causes, .. } => causes.first()?,
                cause => cause,
            };
            let Cause::Unknown(_, Some(next)) = cause else { return None };
            without_goal(next.to_string())
        }
        _ => None,
    }
}

/// Whether kube-controller-manager re-creates the object at once after a deletion.
fn is_recreated(object: &ObjectRef) -> bool {
    is_default_object(&object.group, &object.resource, &object.name)
}

/// How to end the use of a held object by these causes and `more` others.
pub(crate) fn step_to_end_use(
    target: &ObjectRef,
    causes: &[Cause],
    more: usize,
    is_terminating: impl Fn(&ObjectRef) -> bool,
) -> Option<String> {
    let blocker = Blocker::new(Decision::Hold, Reason::InUse, target.clone());
    let blocker = Blocker { causes: causes.to_vec(), more, ..blocker };
    // The target is already Terminating, so the advice to keep it comes too late.
    let users = causes.iter().filter_map(|cause| cause.object_to_delete(target));
    let terminating_objects = users.filter(|user| is_terminating(&user.object)).cloned().collect();
    let verdict = Verdict { terminating_objects, ..Verdict::allow(target.clone()) };
    if let Some(users) = users_with_volumes(&verdict, &blocker) {
        return Some(format!("wait: belay does not release {} while {users}", target.quoted()));
    }
    remedy(&verdict, &blocker).map(|remedy| remedy.action)
}

/// The steps for the deletion of several targets: one for each deciding blocker.
pub(crate) fn step_of_each(verdict: &Verdict) -> Option<String> {
    let steps = verdict.deciding_blockers().map(|blocker| {
        let alone = Verdict::from_blockers(blocker.object.clone(), vec![blocker.clone()]);
        let alone = Verdict {
            refused_deletes: verdict.refused_deletes.clone(),
            lost_volumes: verdict.lost_volumes.clone(),
            terminating_objects: verdict.terminating_objects.clone(),
            ..alone
        };
        (blocker.object.clone(), remedy(&alone, blocker).map(|remedy| remedy.action))
    });
    join_steps(steps.collect(), verdict.more)
}

/// The steps for several objects as one text; `None` if there is no step.
/// `undescribed`: the number of other reasons.
pub(crate) fn join_steps(
    steps: Vec<(ObjectRef, Option<String>)>,
    undescribed: usize,
) -> Option<String> {
    if let ([(_, step)], 0) = (&steps[..], undescribed) {
        return step.clone();
    }
    let has_step = steps.iter().any(|(_, step)| step.is_some());
    let others = steps.len().saturating_sub(MAX_DESCRIBED) + undescribed;
    let text = |(object, step): (ObjectRef, Option<String>)| {
        let step = step.unwrap_or_else(|| "approve it".to_owned());
        format!("for {}: {step}", object.quoted())
    };
    let mut texts: Vec<String> = steps.into_iter().take(MAX_DESCRIBED).map(text).collect();
    if others > 0 {
        let verb = if others == 1 { "is" } else { "are" };
        texts.push(format!("there {verb} {}", more(others, "reason")));
    }
    has_step.then(|| texts.join("; "))
}

/// The step for an object that is Terminating already.
pub(crate) fn step_to_find_out(object: &ObjectName) -> String {
    format!("first {}", find_out(object))
}

fn find_out(object: &ObjectName) -> String {
    let why = object.object.arguments();
    format!("find out what keeps {object} Terminating: kubectl belay why {why}")
}

/// Whether a DELETE of the object in a cause has no effect, because it is already Terminating.
fn is_terminating(verdict: &Verdict, cause: &Cause) -> bool {
    let object = cause.object_to_delete(&verdict.target);
    object.is_some_and(|object| verdict.terminating_objects.contains(object))
}

/// Whether the content in a cause is already Terminating. Protected content does not count, because
/// its users can be deleted first.
fn is_terminating_content(verdict: &Verdict, cause: &Cause) -> bool {
    match cause {
        Cause::Content { why: ContentReason::Terminating, .. } => true,
        Cause::Content { why: ContentReason::Held(_), .. } => is_terminating(verdict, cause),
        _ => false,
    }
}

/// The command that lists the content of a Namespace or CRD, with what must be deleted before each
/// object; empty if the message names all of the content.
fn list_of_content(blocker: &Blocker) -> String {
    let has_others = blocker.more > 0 || blocker.causes.contains(&Cause::PerhapsOthers);
    match blocker.reason == Reason::NotEmpty && has_others {
        true => {
            format!("; list all of them: kubectl belay impact {}", blocker.object.arguments())
        }
        false => String::new(),
    }
}

/// The objects that need the object of a blocker, as a clause after "while": `PersistentVolume a
/// exists`. `None` if none of the objects is a volume or a claim.
fn users_with_volumes(verdict: &Verdict, blocker: &Blocker) -> Option<String> {
    let is_volume = |cause: &Cause| match cause {
        Cause::User { owner: object, .. } | Cause::Exists(object) => object.object.is_volume(),
        _ => false,
    };
    if !blocker.causes.iter().any(is_volume) {
        return None;
    }
    if blocker.more > 0 {
        // Messages don't show the number of causes in other namespaces.
        let is_hidden = |cause: &Cause| matches!(cause, Cause::Elsewhere { .. });
        let count = match blocker.causes.iter().any(is_hidden) {
            true => String::new(),
            false => format!("{} ", blocker.causes.len() + blocker.more),
        };
        let list = match blocker.reason {
            Reason::InUse => {
                format!("; list them: kubectl belay used-by {}", blocker.object.arguments())
            }
            _ => String::new(),
        };
        return Some(format!("these {count}objects exist{list}"));
    }
    let causes: Vec<&Cause> = blocker.causes.iter().collect();
    let users = names(verdict, blocker, &causes, 0);
    let is_one = users.iter().all(|user| users.first() == Some(user));
    let verb = if is_one { "exists" } else { "exist" };
    Some(format!("{} {verb}", join(users)?))
}

/// The first step for an object with users. Users are usually still needed, so the message advises
/// to remove their references. It advises to delete a user of a volume, which is useless without
/// the volume, and a user whose reference can't be changed.
fn step_with_users(verdict: &Verdict, blocker: &Blocker) -> Option<String> {
    let holds_data = blocker.object.is_volume();
    let is_changeable = |cause: &&Cause| match cause {
        Cause::User { owner, path, .. } => {
            owner.object != verdict.target
                && !is_one_of(&owner.object, IMMUTABLE_KINDS)
                && !IMMUTABLE_FIELDS.iter().any(|field| path.starts_with(field))
        }
        _ => true,
    };
    let mut causes =
        blocker.causes.iter().filter(|cause| !is_terminating(verdict, cause)).peekable();
    if causes.peek().is_none() {
        return Some(step_to_find_out(blocker.causes.first()?.object_to_delete(&verdict.target)?));
    }
    let (change, delete): (Vec<&Cause>, Vec<&Cause>) =
        causes.partition(|cause| !holds_data && is_changeable(cause));
    if holds_data {
        let objects = objects_to_delete(verdict, blocker, &delete, blocker.more)?;
        return Some(format!("first {}delete {objects}", retain_step(verdict, &delete)));
    }
    // The users that are not listed may need another step.
    let others = match blocker.more {
        0 => String::new(),
        1 => "; 1 more object uses it".to_owned(),
        more => format!("; {more} more objects use it"),
    };
    if change.is_empty() {
        let objects = objects_to_delete(verdict, blocker, &delete, 0)?;
        return Some(format!("first {}delete {objects}{others}", retain_step(verdict, &delete)));
    }
    let is_same = |one: &Cause, other: &Cause| match (one, other) {
        (Cause::User { owner: one, .. }, Cause::User { owner: other, .. }) => one == other,
        _ => false,
    };
    let kind_of_single_owner = match change[..] {
        [first @ Cause::User { owner, .. }, ref others @ ..]
            if blocker.more == 0 && others.iter().all(|other| is_same(first, other)) =>
        {
            Some(one_line_name(&owner.kind))
        }
        _ => None,
    };
    let is_one = kind_of_single_owner.is_some() && change.len() == 1;
    let references = if is_one { "the reference" } else { "the references" };
    let from = join(names(verdict, blocker, &change, 0))?;
    let remove = format!("remove {references} from {from}");
    if !delete.is_empty() {
        let objects = objects_to_delete(verdict, blocker, &delete, 0)?;
        let retain = retain_step(verdict, &delete);
        return Some(format!("first {retain}delete {objects}, and {remove}{others}"));
    }
    // Hidden users may be volumes.
    let is_hidden = |cause: &&Cause| matches!(cause, Cause::Elsewhere { .. });
    let may_delete = !change.iter().any(is_hidden)
        && objects_to_delete(verdict, blocker, &change, 0).is_some()
        && retain_step(verdict, &change).is_empty();
    let alternative = match kind_of_single_owner {
        _ if !may_delete => String::new(),
        Some(kind) => format!(", or delete the {kind}"),
        None => ", or delete these objects".to_owned(),
    };
    Some(format!("first {remove}{alternative}{others}"))
}

/// The names of the objects in these causes of a blocker.
fn names(verdict: &Verdict, blocker: &Blocker, causes: &[&Cause], others: usize) -> Vec<String> {
    let it = match blocker.object == verdict.target {
        true => "it".to_owned(),
        false => blocker.object.quoted(),
    };
    let verb = if blocker.reason == Reason::InUse { "use" } else { "need" };
    let name = |cause: &&Cause| match (cause.object_to_delete(&verdict.target), cause) {
        (Some(object), _) => Some(object.to_string()),
        (None, Cause::Elsewhere { .. }) => {
            Some(format!("the objects in other namespaces that {verb} {it}"))
        }
        (None, _) => None,
    };
    let mut names: Vec<String> = causes.iter().filter_map(name).collect();
    if others > 0 && !names.is_empty() {
        names.push(more(others, "object"));
    }
    names
}

/// The objects to delete before the object of a blocker, for the words "first delete …".
/// `None` if there are none, or if belay would deny their DELETE as well.
fn objects_to_delete(
    verdict: &Verdict,
    blocker: &Blocker,
    causes: &[&Cause],
    more: usize,
) -> Option<String> {
    let named: Vec<&ObjectName> =
        causes.iter().filter_map(|cause| cause.object_to_delete(&verdict.target)).collect();
    let refused = verdict.refused_deletes.iter().filter(|step| named.contains(&&step.object));
    let refused: Vec<&RefusedDelete> = refused.collect();
    if refused.iter().any(|step| step.first.is_empty()) {
        return None;
    }
    let before: Vec<String> =
        refused.iter().flat_map(|step| &step.first).map(ToString::to_string).collect();
    let mut objects = names(verdict, blocker, causes, more);
    objects.retain(|object| !before.contains(object));
    let objects = join(objects)?;
    Some(match join(before) {
        Some(before) => format!("{before}, then {objects}"),
        None => objects,
    })
}

/// The step before the deletion of these users that keeps their claims; empty if it deletes no
/// claim.
fn retain_step(verdict: &Verdict, causes: &[&Cause]) -> String {
    let users = causes.iter().filter_map(|cause| cause.object_to_delete(&verdict.target));
    let loses = |user: &&ObjectName| verdict.volume_lost_with(&user.object).is_some();
    match join(users.filter(loses).map(ToString::to_string).collect()) {
        Some(sets) => format!("set {RETENTION} of {sets} to Retain, then "),
        None => String::new(),
    }
}

/// The first step if only the target uses an object that is deleted as well.
fn own_use_step(verdict: &Verdict, blocker: &Blocker) -> Option<String> {
    let target = &verdict.target;
    let is_itself = |cause: &Cause| matches!(cause, Cause::User { user: None, .. });
    if blocker.causes.iter().any(is_itself) {
        let first = || "first remove the reference".to_owned();
        return (!is_one_of(target, IMMUTABLE_KINDS)).then(first);
    }
    // The target re-creates its Pods.
    if is_one_of(target, SCALABLE) {
        let user = blocker.causes.first().and_then(|cause| cause.object_to_delete(target))?;
        let all_terminating =
            blocker.more == 0 && blocker.causes.iter().all(|cause| is_terminating(verdict, cause));
        return Some(match all_terminating {
            true => format!("first make sure that its replicas are 0, and {}", find_out(user)),
            false => "first scale it to 0".to_owned(),
        });
    }
    let stop = OTHER_CONTROLLERS.iter().find(|(kind, _)| target.is_of(*kind));
    if let Some((_, stop)) = stop {
        return Some(format!("first stop its Pods: {stop}"));
    }
    step_with_users(verdict, blocker)
}

fn is_one_of(object: &ObjectRef, kinds: &[(&str, &str)]) -> bool {
    kinds.iter().any(|kind| object.is_of(*kind))
}

/// `a, b and c`, each once.
fn join(words: Vec<String>) -> Option<String> {
    let mut each: Vec<String> = Vec::new();
    for word in words {
        if !each.contains(&word) {
            each.push(word);
        }
    }
    let (last, others) = each.split_last()?;
    Some(match others {
        [] => last.clone(),
        others => format!("{} and {last}", others.join(", ")),
    })
}

/// Whether the request is about a dependent, and the policy protects its owner.
pub(super) fn loses_dependent(target: &ObjectRef, blocker: &Blocker) -> bool {
    blocker.object != *target && matches!(blocker.causes.first(), Some(Cause::Dependent(_)))
}
