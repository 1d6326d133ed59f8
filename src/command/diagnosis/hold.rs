//! belay's hold on an object: what the hold waits for, and who removes it.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::finding::{Cause, Finding};
use super::unreleased::Unreleased;
use crate::cluster::release::manual::ManualCheckResult;
use crate::decide::{
    self, ELSEWHERE, HOLD_WARNING, NO_LONGER_USES, ObjectName, UNTIL_APPROVED, describe_cause,
    step_to_end_use,
};
use crate::hold::{ReleaseReason, WaitReason};
use crate::objects::{Kinds, ObjectRef, STATEFUL_SETS, STORAGE_CLASSES, without_controls};

/// What a release waits for.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HoldState {
    /// Whether nothing keeps the object: it is unused, approved or not protected.
    pub free: bool,
    /// Whether belay releases holds on objects of the kind. If not, a user must.
    pub released_by_belay: bool,
    /// Whether `free` is certain.
    pub known: bool,
    /// The objects that use the object, what is unknown, or why nothing keeps the object.
    #[serde(rename = "for")]
    pub reasons: Vec<String>,
    /// How to end the use without an approval; `None` if belay knows no way.
    #[serde(skip)]
    pub step: Option<String>,
    /// Why belay does not release holds on objects of the kind; `None` if it does, and without a
    /// leader, because the command `release` then removes each hold.
    #[serde(skip)]
    pub unreleased: Option<Unreleased>,
    /// Whether `release --force` needs no further approval.
    #[serde(skip)]
    pub needs_no_approval: bool,
}

impl HoldState {
    /// The state from the result of a check of an object.
    pub fn of_check(target: &ObjectRef, check: &ManualCheckResult) -> Self {
        Self::new(target, check.result.clone(), |user| check.is_terminating(user))
    }

    /// Sets why belay does not release holds on objects of the kind.
    pub fn with_unreleased(self, unreleased: Option<Unreleased>) -> Self {
        Self { released_by_belay: unreleased.is_none(), unreleased, ..self }
    }

    /// The state of a hold whose users are unknown.
    pub fn unknown(why: &str) -> Self {
        let reasons = vec![why.to_owned()];
        Self {
            free: false,
            released_by_belay: true,
            known: false,
            reasons,
            step: None,
            unreleased: None,
            needs_no_approval: false,
        }
    }

    /// The state in belay's warning about a DELETE of this object; `None` if it names no cause.
    pub fn from_warning(
        warning: &str,
        target: &ObjectRef,
        kinds: &Kinds,
        is_terminating: impl Fn(&ObjectRef) -> bool,
    ) -> Option<Self> {
        let (_, until) = warning.split_once(HOLD_WARNING)?;
        let (cause, step) = match until.split_once(NO_LONGER_USES) {
            Some((users, _)) => {
                let more = match users.contains(" and ") {
                    true => format!(" (kubectl belay used-by {})", target.arguments()),
                    false => String::new(),
                };
                let step = step_of_warning(users, target, kinds, is_terminating);
                (without_controls(users) + &more, step)
            }
            None if until.starts_with(UNTIL_APPROVED) => (cause_text(&decide::Cause::Always), None),
            None => return None,
        };
        Some(Self { known: true, step, ..Self::unknown(&cause) })
    }

    /// The state from the result of a check, where belay releases the holds on the kind.
    pub fn new(
        target: &ObjectRef,
        check: Result<ReleaseReason, WaitReason>,
        is_terminating: impl Fn(&ObjectRef) -> bool,
    ) -> Self {
        let needs_no_approval =
            matches!(check, Ok(ReleaseReason::Unprotected | ReleaseReason::Approved));
        // The release stops counting at this number.
        let is_partial = |causes: &[decide::Cause]| causes.len() >= decide::MAX_LISTED_CAUSES;
        let step = match &check {
            Err(WaitReason::InUse(causes)) => {
                let perhaps_others = match is_partial(causes) {
                    true => "; perhaps other objects use it as well",
                    false => "",
                };
                let step = step_to_end_use(target, causes, 0, is_terminating);
                step.map(|step| step + perhaps_others)
            }
            _ => None,
        };
        let (free, known, reasons) = match check {
            Ok(reason) => (true, true, vec![reason_text(reason).to_owned()]),
            Err(WaitReason::InUse(causes)) => {
                let more = is_partial(&causes).then(|| {
                    format!("perhaps others (kubectl belay used-by {})", target.arguments())
                });
                (false, true, causes.iter().map(cause_text).chain(more).collect())
            }
            Err(WaitReason::Unknown(why)) => (false, false, vec![why.to_string()]),
            Err(WaitReason::Stranded) => {
                (false, false, vec!["its Namespace was removed by force".to_owned()])
            }
        };
        let released_by_belay = true;
        Self { free, released_by_belay, known, reasons, step, unreleased: None, needs_no_approval }
    }

    /// The text before the command that approves the deletion although the hold keeps the object.
    pub fn override_heading(&self) -> &'static str {
        let (_, users) = self.sentences_and_users();
        match (self.free, self.known, users.is_empty()) {
            (true, ..) | (_, true, true) => "to let Kubernetes delete it",
            (_, true, false) => {
                "to let Kubernetes delete it although it is in use (data may be lost)"
            }
            (_, false, _) => {
                "to let Kubernetes delete it although it may be in use (data may be lost)"
            }
        }
    }

    /// Why the object is not released now.
    pub fn why_not_released(&self) -> String {
        let Self { free, released_by_belay, known, reasons, .. } = self;
        if *free && *released_by_belay {
            let settles = "settleSeconds of its policies may not have passed yet";
            return format!("belay can release it ({}), but {settles}", reasons.join(", "));
        }
        if *free {
            return self.to_string();
        }
        if !known {
            return format!("it is unknown whether it is in use: {}", reasons.join(", "));
        }
        let (sentences, users) = self.sentences_and_users();
        let users = (!users.is_empty()).then(|| format!("it is in use by {}", users.join(", ")));
        let parts = users.into_iter().chain(sentences.into_iter().map(str::to_owned));
        parts.collect::<Vec<_>>().join("; ")
    }

    /// The reasons that are a sentence, and the users.
    fn sentences_and_users(&self) -> (Vec<&str>, Vec<&str>) {
        let all = self.reasons.iter().map(String::as_str);
        all.partition(|text| [ALWAYS, UNCHECKED].contains(text))
    }

    /// The step to run next. `no_leader`: whether belay has no leader, so that `release` itself
    /// removes the hold.
    pub fn next(&self, object: &ObjectRef, no_leader: bool) -> String {
        match &self.unreleased {
            Some(unreleased) if self.free && !no_leader => {
                unreleased.next(object, self.needs_no_approval)
            }
            _ if self.free => format!("kubectl belay release {}", object.arguments()),
            _ => format!("kubectl belay why {}", object.arguments()),
        }
    }
}

/// The users in belay's warning can be of several kinds with the same name. `step_of_warning` compares
/// the steps for this many combinations.
const MAX_COMBINATIONS: usize = 16;

/// How to end the use of an object by the users in belay's warning: `Deployment shop/web, Pod shop/a
/// and 2 more objects`. `None` if the warning is ambiguous.
fn step_of_warning(
    users: &str,
    target: &ObjectRef,
    kinds: &Kinds,
    is_terminating: impl Fn(&ObjectRef) -> bool,
) -> Option<String> {
    let (users, more) = match users.split_once(" and ") {
        Some((users, more)) => (users, more.split_once(' ')?.0.parse().ok()?),
        None => (users, 0),
    };
    let mut combinations: Vec<Vec<decide::Cause>> = vec![Vec::new()];
    for user in users.split(", ") {
        let causes = causes_of_warning(user, target, kinds)?;
        if combinations.len() * causes.len() > MAX_COMBINATIONS {
            return None;
        }
        let combine = |known: &Vec<decide::Cause>| {
            let known = known.clone();
            causes.iter().map(move |cause| [&known[..], std::slice::from_ref(cause)].concat())
        };
        combinations = combinations.iter().flat_map(combine).collect();
    }
    let steps = combinations.iter();
    let mut steps: Vec<Option<String>> =
        steps.map(|causes| step_to_end_use(target, causes, more, &is_terminating)).collect();
    steps.dedup();
    match steps.as_slice() {
        [Some(step)] => Some(step.clone()),
        _ => None,
    }
}

/// The causes that one user in a warning can be: several API groups can have its kind.
fn causes_of_warning(user: &str, target: &ObjectRef, kinds: &Kinds) -> Option<Vec<decide::Cause>> {
    if user == ELSEWHERE {
        return Some(vec![decide::Cause::Elsewhere { causes: Vec::new(), more: 0 }]);
    }
    let (kind, path) = user.split_once(' ')?;
    let (namespace, name) = path.split_once('/').unwrap_or(("", path));
    // The warning does not contain the field. A StatefulSet has only one field for each of these
    // kinds.
    let field = match target {
        service if service.is_of(("", "services")) => "spec.serviceName",
        class if class.is_of(STORAGE_CLASSES) => "spec.volumeClaimTemplates",
        _ => "",
    };
    let of_kind = kinds.iter().filter(|(_, info)| info.kind == kind);
    let causes = of_kind.map(|(_, info)| {
        let object = ObjectRef::of_kind(info, namespace, name);
        let path = if object.is_of(STATEFUL_SETS) { field } else { "" }.to_owned();
        let owner = ObjectName { kind: kind.to_owned(), object };
        decide::Cause::User { owner, user: None, path }
    });
    Some(causes.collect())
}

/// Every command describes a hold in this sentence.
impl fmt::Display for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = self.reasons.join(", ");
        match self {
            Self { free: true, unreleased: None, .. } => {
                write!(f, "belay holds it, and can release it: {reasons}")
            }
            Self { free: true, .. } => write!(f, "belay holds it: {reasons}"),
            Self { known: true, .. } => {
                let (sentences, users) = self.sentences_and_users();
                let users = (!users.is_empty())
                    .then(|| format!("the object is in use by: {}", users.join(", ")));
                let reasons: Vec<&str> = users.as_deref().into_iter().chain(sentences).collect();
                write!(f, "belay keeps the hold because {}", reasons.join("; "))
            }
            Self { .. } => {
                write!(f, "belay holds it, and it is unknown whether an object needs it: {reasons}")
            }
        }?;
        self.unreleased.iter().try_for_each(|unreleased| write!(f, "; {unreleased}"))
    }
}

/// The known facts about the hold on an object.
#[derive(Debug, Clone, Default)]
pub struct Hold {
    /// What the release waits for; `None` if the users were not counted.
    pub state: Option<HoldState>,
    /// Whether the users were not counted because there are many holds.
    pub is_left_out: bool,
    /// Whether belay's kinds are served.
    pub installed: bool,
    /// Whether belay has no leader.
    pub no_leader: bool,
}

impl Hold {
    /// Why the hold keeps this object.
    pub fn finding(&self, object: &ObjectRef) -> Finding {
        let why_command = || format!("kubectl belay why {}", object.arguments());
        if !self.installed {
            let says = "belay is not installed, so nothing removes its hold";
            let next = "kubectl belay admin uninstall --dry-run; without --dry-run, it removes \
                        belay's protection from the whole cluster";
            return Finding::new(Cause::HeldByBelay, says, next)
                .with(["the API server does not serve the kinds of belay.dev".to_owned()]);
        }
        let (says, next) = match &self.state {
            Some(state) => (state.to_string(), state.next(object, self.no_leader)),
            None if self.is_left_out => (
                "belay holds it; use --all to list the objects that use it".to_owned(),
                why_command(),
            ),
            None => {
                ("belay holds it; the objects that use it are unknown".to_owned(), why_command())
            }
        };
        let no_leader =
            self.no_leader.then(|| "belay has no leader: check that its Pods run".to_owned());
        Finding::new(Cause::HeldByBelay, says, next).with(no_leader)
    }
}

/// Why belay may release a hold.
pub fn reason_text(reason: ReleaseReason) -> &'static str {
    match reason {
        ReleaseReason::Approved => "enough people have approved",
        ReleaseReason::Unprotected => "no policy protects it any more",
        ReleaseReason::Unused => "nothing needs it",
    }
}

/// The text for an object that is protected even if nothing uses it.
const ALWAYS: &str = "the object is always protected until enough people have approved";

/// The text for an object whose use belay has not checked yet.
const UNCHECKED: &str = "belay has not checked yet whether another object uses the object";

pub fn cause_text(cause: &decide::Cause) -> String {
    use decide::Cause;
    match cause {
        Cause::Always => ALWAYS.to_owned(),
        Cause::CheckedAtRelease => UNCHECKED.to_owned(),
        Cause::WeakerProtection(named) => format!("{named} would be protected less"),
        Cause::User { owner, path, .. } if path.is_empty() => owner.to_string(),
        other => describe_cause(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_about_a_hold_names_the_step_that_ends_the_use() {
        let kinds = Kinds::default();
        let state = |target: (&str, &str), until: &str| {
            let target = ObjectRef::new(target, "shop", "a");
            let warning = format!("{} stays Terminating until {until}", target.quoted());
            let is_terminating = |user: &ObjectRef| user.name == "ending";
            let state = HoldState::from_warning(&warning, &target, &kinds, is_terminating);
            state.map(|state| state.step)
        };
        let settings = ("", "configmaps");
        for (target, until, step) in [
            (
                settings,
                "Deployment shop/app no longer uses it",
                Some(
                    "first remove the reference from Deployment shop/app, or delete the Deployment",
                ),
            ),
            (settings, "Pod shop/web no longer uses it", Some("first delete Pod shop/web")),
            (
                settings,
                "Pod shop/ending no longer uses it",
                Some(
                    "first find out what keeps Pod shop/ending Terminating: kubectl belay why \
                     pods/ending -n shop",
                ),
            ),
            (
                settings,
                "Pod shop/web and 2 more objects no longer use it",
                Some("first delete Pod shop/web; 2 more objects use it"),
            ),
            (
                settings,
                "Pod shop/web, Pod shop/api no longer use it",
                Some("first delete Pod shop/web and Pod shop/api"),
            ),
            (
                settings,
                "an object in another namespace no longer uses it",
                Some(
                    "first remove the references from the objects in other namespaces that use it",
                ),
            ),
            // The field can't be changed.
            (
                ("", "services"),
                "StatefulSet shop/db no longer uses it",
                Some("first delete StatefulSet shop/db"),
            ),
            (settings, "Unserved shop/x no longer uses it", None),
            (settings, "its deletion is approved", None),
        ] {
            assert_eq!(state(target, until), Some(step.map(str::to_owned)), "{until}");
        }
        assert_eq!(state(settings, "belay confirms that nothing uses it"), None);
    }

    #[test]
    fn a_warning_about_kinds_of_many_groups_names_no_step() {
        let target = ObjectRef::new(("", "configmaps"), "shop", "a");
        let step = |groups: u8, users: &str| {
            let mut kinds = Kinds::default();
            for group in 0..groups {
                let group = format!("g{group}.example.com");
                kinds.learn(Kinds::custom(&group, "v1", "Widget", "widgets", true));
            }
            step_of_warning(users, &target, &kinds, |_| false)
        };
        assert!(step(2, "Widget shop/a, Widget shop/b").is_some());
        assert_eq!(step(20, "Widget shop/a"), None);
        assert_eq!(step(5, "Widget shop/a, Widget shop/b"), None);
    }

    /// The state of a StorageClass that PersistentVolumes with these names use.
    fn used_class(names: &[&str]) -> HoldState {
        let volume = Kinds::custom("", "v1", "PersistentVolume", "persistentvolumes", false);
        let user = |name: &str| decide::Cause::User {
            owner: ObjectName {
                kind: "PersistentVolume".to_owned(),
                object: ObjectRef::of_kind(&volume, "", name),
            },
            user: None,
            path: "spec.storageClassName".into(),
        };
        let class = Kinds::custom("storage.k8s.io", "v1", "StorageClass", "storageclasses", false);
        let class = ObjectRef::of_kind(&class, "", "fast");
        let causes = names.iter().map(|name| user(name)).collect();
        HoldState::new(&class, Err(WaitReason::InUse(causes)), |_| false)
    }

    #[test]
    fn the_step_is_to_wait_while_a_volume_uses_the_storage_class() {
        let step = "wait: belay does not release storageclass.storage.k8s.io \"fast\" while \
                    PersistentVolume a exists";
        assert_eq!(used_class(&["a"]).step.as_deref(), Some(step));
    }

    #[test]
    fn perhaps_others_use_the_object_if_the_count_has_stopped() {
        assert!(!used_class(&["a", "b"]).to_string().contains("others"));
        let all = used_class(&["a", "b", "c"]);
        let more = " exist; perhaps other objects use it as well";
        assert!(all.step.as_ref().is_some_and(|step| step.ends_with(more)), "{all:?}");
        let all = all.to_string();
        let more = "perhaps others (kubectl belay used-by storageclasses.storage.k8s.io/fast)";
        assert!(all.ends_with(more), "{all}");
    }
}
