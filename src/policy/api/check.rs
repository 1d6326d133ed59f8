//! The validation rules of the CRDs, for YAML files that no API server has checked. A test
//! compares their messages with those of the CRDs.

use super::approval::{DeletionApprovalSpec, PauseSpec};
use super::deletion_policy::{ApprovalSettings, DeletionPolicySpec, OnDelete, Protect};
use super::relation::RelationSpec;
use super::selectors::{
    ExistingSelector, LabelSelector, Operator, Subject, SubjectKind, TargetSelector,
};

/// A problem of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The field, as a path from the object: `spec.targets[0].resources`.
    pub field: String,
    /// The problem, and how to fix it.
    pub message: &'static str,
}

/// A type with validation rules.
pub trait Check {
    /// All its problems.
    fn problems(&self) -> Vec<Problem> {
        let mut checker = Checker { path: "spec".to_owned(), problems: Vec::new() };
        self.check(&mut checker);
        checker.problems
    }

    /// Checks the rules.
    fn check(&self, checker: &mut Checker);
}

/// Collects problems, and has the path of the field that is being checked.
#[derive(Debug)]
pub struct Checker {
    path: String,
    problems: Vec<Problem>,
}

impl Checker {
    fn require(&mut self, is_met: bool, message: &'static str) {
        if !is_met {
            self.problems.push(Problem { field: self.path.clone(), message });
        }
    }

    fn require_at(&mut self, field: &str, is_met: bool, message: &'static str) {
        self.field(field, |checker| checker.require(is_met, message));
    }

    fn field(&mut self, name: &str, check: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if !name.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(name);
        check(self);
        self.path.truncate(length);
    }

    fn each<T>(&mut self, name: &str, values: &[T], check: impl Fn(&T, &mut Self)) {
        self.field(name, |checker| {
            for (index, value) in values.iter().enumerate() {
                checker.field(&format!("[{index}]"), |checker| check(value, checker));
            }
        });
    }
}

impl Check for DeletionPolicySpec {
    fn check(&self, checker: &mut Checker) {
        let Self {
            targets,
            exclude,
            subjects,
            exempt_subjects,
            protect,
            hold: _,
            action: _,
            action_overrides,
            approval,
            settle_seconds,
        } = self;
        const CONTAINERS: &[&str] = &["namespaces", "customresourcedefinitions"];
        let only_containers =
            targets.iter().flat_map(|t| &t.resources).all(|r| CONTAINERS.contains(&r.as_str()));
        checker.require(
            protect.while_not_empty.is_none() || only_containers,
            "whileNotEmpty is for namespaces and customresourcedefinitions: it does not protect \
             other kinds",
        );
        checker.require(
            subjects.is_empty() || protect.always.is_some() || !protect.holds_on_delete(),
            "a policy with subjects places no hold, because others may delete what it protects: \
             remove subjects, or whileUsed.onDelete Hold",
        );
        checker.require_at(
            "targets",
            !targets.is_empty(),
            "targets is empty: a policy protects nothing until it names at least one kind of \
             object",
        );
        checker.each("targets", targets, TargetSelector::check);
        checker.each("exclude", exclude, TargetSelector::check);
        checker.each("subjects", subjects, Subject::check);
        checker.each("exemptSubjects", exempt_subjects, Subject::check);
        checker.field("protect", |checker| protect.check(checker));
        checker.each("actionOverrides", action_overrides, |o, checker| {
            checker.field("namespaceSelector", |checker| o.namespace_selector.check(checker));
        });
        checker.field("approval", |checker| approval.check(checker));
        checker.require_at(
            "settleSeconds",
            (0..=600).contains(settle_seconds),
            "settleSeconds is between 0 and 600; with 45, belay sees every object whose creation began before the DELETE",
        );
    }
}

impl Protect {
    fn holds_on_delete(&self) -> bool {
        self.while_used.as_ref().is_some_and(|mode| mode.on_delete == OnDelete::Hold)
    }
}

impl Check for Protect {
    fn check(&self, checker: &mut Checker) {
        let Self { always, while_used, while_not_empty, while_exists, .. } = self;
        let none = always.is_none()
            && while_used.is_none()
            && while_not_empty.is_none()
            && while_exists.is_none()
            && self.from_orphaning.is_none()
            && self.from_stripping.is_none();
        checker.require(
            !none,
            "protect enables no mode: set at least one of always, whileUsed, whileNotEmpty, \
             whileExists, fromOrphaning, fromStripping",
        );
        checker.require(
            always.is_none() || !self.holds_on_delete(),
            "always denies deletes, so nothing would be held: remove always, or \
             whileUsed.onDelete Hold",
        );
        if let Some(while_used) = while_used {
            checker.field("whileUsed", |checker| {
                checker.each("by", &while_used.by, |by, checker| {
                    check_selector("objectSelector", by.object_selector.as_ref(), checker);
                });
            });
        }
        if let Some(while_not_empty) = while_not_empty {
            checker.field("whileNotEmpty", |checker| {
                checker.each("ignore", &while_not_empty.ignore, TargetSelector::check);
            });
        }
        if let Some(while_exists) = while_exists {
            checker.require_at(
                "whileExists",
                !while_exists.is_empty(),
                "whileExists is empty: name at least one kind whose objects keep the target",
            );
            checker.each("whileExists", while_exists, ExistingSelector::check);
        }
        if let Some(stripping) = &self.from_stripping {
            checker.field("fromStripping", |checker| {
                checker.require_at(
                    "finalizers",
                    !stripping.finalizers.is_empty()
                        && stripping.finalizers.iter().all(|f| !f.is_empty()),
                    "finalizers must name at least one finalizer; \"*\" is every one",
                );
                checker.each("removers", &stripping.removers, Subject::check);
            });
        }
    }
}

fn check_selector(field: &str, selector: Option<&LabelSelector>, checker: &mut Checker) {
    if let Some(selector) = selector {
        checker.field(field, |checker| selector.check(checker));
    }
}

impl Check for TargetSelector {
    fn check(&self, checker: &mut Checker) {
        checker.require_at(
            "apiGroups",
            !self.api_groups.is_empty(),
            "apiGroups is empty: name at least one API group, \"\" is the core group",
        );
        let plain = |r: &String| !r.is_empty() && !r.contains('/');
        checker.require_at(
            "resources",
            !self.resources.is_empty() && self.resources.iter().all(plain),
            "resources must name at least one plural resource, such as \
             persistentvolumeclaims, and no subresource",
        );
        checker.require_at(
            "names",
            self.names.iter().all(|n| !n.is_empty()),
            "names has an empty entry, which is no object's name; omit names to match every \
             name",
        );
        check_selector("namespaceSelector", self.namespace_selector.as_ref(), checker);
        check_selector("objectSelector", self.object_selector.as_ref(), checker);
    }
}

impl Check for ExistingSelector {
    fn check(&self, checker: &mut Checker) {
        checker.require_at(
            "apiGroups",
            !self.api_groups.is_empty() && self.api_groups.iter().all(|g| g != "*"),
            "whileExists needs the API groups by name (\"\" is the core group), because belay \
             watches these kinds",
        );
        let plain = |r: &String| !r.is_empty() && r != "*" && !r.contains('/');
        checker.require_at(
            "resources",
            !self.resources.is_empty() && self.resources.iter().all(plain),
            "whileExists needs the plural resources by name, because belay watches these kinds",
        );
        check_selector("namespaceSelector", self.namespace_selector.as_ref(), checker);
    }
}

impl Check for LabelSelector {
    fn check(&self, checker: &mut Checker) {
        checker.each("matchExpressions", &self.match_expressions, |requirement, checker| {
            let compares = matches!(requirement.operator, Operator::In | Operator::NotIn);
            checker.require(
                compares != requirement.values.is_empty(),
                "operator In and NotIn need values, Exists and DoesNotExist take none",
            );
        });
    }
}

impl Check for Subject {
    fn check(&self, checker: &mut Checker) {
        let has_namespace = self.namespace.as_ref().is_some_and(|n| !n.is_empty());
        checker.require(
            (self.kind == SubjectKind::ServiceAccount) == has_namespace,
            "a subject of kind ServiceAccount needs its namespace, a User or Group has none",
        );
    }
}

impl Check for ApprovalSettings {
    fn check(&self, checker: &mut Checker) {
        checker.require_at(
            "required",
            (1..=10).contains(&self.required),
            "required is the number of different users who must approve: between 1 and 10",
        );
        checker.require_at(
            "maxDurationSeconds",
            (60..=86_400).contains(&self.max_duration_seconds),
            "maxDurationSeconds is between 60 (a minute) and 86400 (a day)",
        );
        checker.require_at(
            "serviceAccounts",
            self.service_accounts.iter().all(|account| is_account(account)),
            "serviceAccounts are written namespace/name",
        );
    }
}

/// Whether the text is `namespace/name` with valid names.
fn is_account(text: &str) -> bool {
    let label = |text: &str, inner: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        text.chars().all(|c| plain(c) || inner.contains(c))
            && text.starts_with(plain)
            && text.ends_with(plain)
    };
    text.split_once('/').is_some_and(|(namespace, name)| label(namespace, "-") && label(name, "-."))
}

impl Check for RelationSpec {
    fn check(&self, checker: &mut Checker) {
        checker.require(
            self.to.is_some() != self.to_ref.is_some(),
            "set either to (the needed kind) or toRef (the field with the kind)",
        );
        checker.require(
            self.name_field_path.is_some() != self.selector_field_path.is_some(),
            "set either nameFieldPath or selectorFieldPath: the field that names the needed object",
        );
        checker.require(
            self.selector_field_path.is_none()
                || (self.to.is_some() && self.namespace_field_path.is_none()),
            "selectorFieldPath needs to, and no namespaceFieldPath: a selector selects one kind \
             in the object's own namespace",
        );
    }
}

impl Check for DeletionApprovalSpec {
    fn check(&self, checker: &mut Checker) {
        check_reason(&self.reason, checker);
    }
}

impl Check for PauseSpec {
    fn check(&self, checker: &mut Checker) {
        check_reason(&self.reason, checker);
    }
}

fn check_reason(reason: &str, checker: &mut Checker) {
    checker.require_at(
        "reason",
        !reason.trim().is_empty(),
        "reason is blank: state why, for those who read the record later",
    );
}
