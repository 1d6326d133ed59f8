//! The report of `status --plan`, as data and as a table.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::tally::{KindTally, PlanCounts, PolicyCount};
use crate::command::document::FailedRead;
use crate::command::report::{Report, View, exit_code_of};
use crate::command::screen::{Field, Table, Tone, cut};
use crate::command::serve::DEFAULT_BACKFILL;
use crate::command::status::policy::{effects, modes, policy_lines, unknown_kinds_text};
use crate::command::status::report::MAX_POLICIES;
use crate::objects::Kinds;
use crate::policy::api::{Action, DeletionPolicySpec};
use crate::policy::{PolicySet, PolicySource};

/// The maximum number of kinds for a policy, without `--all`.
const MAX_KINDS: usize = 8;

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// The policies in the files.
    policies: Vec<PolicyPlan>,
    /// Failed reads. If there are any, the counts are lower bounds.
    not_read: Vec<FailedRead>,
}

/// The coverage of one policy.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PolicyPlan {
    /// The name.
    name: String,
    /// The action of the policy.
    action: Action,
    /// The text about the action.
    #[serde(skip)]
    effects: String,
    /// The names of the enabled modes.
    protects: Vec<&'static str>,
    /// The number of objects that the policy would protect.
    protected: usize,
    /// The number of these objects that would have the hold.
    held: usize,
    /// The protected objects by kind.
    kinds: Vec<Kind>,
    /// Kinds of which some protected objects would get no hold.
    not_held: Vec<NotHeld>,
    /// Kinds that the policy names and the API server does not serve.
    unknown_kinds: Vec<String>,
    /// Problems of the policy.
    notes: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Kind {
    /// The plural name of the kind, with its group.
    resource: String,
    #[serde(flatten)]
    counts: KindTally,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NotHeld {
    /// The plural name of the kind, with its group.
    resource: String,
    /// The reason.
    why: &'static str,
    /// The number of objects.
    objects: usize,
}

impl Report for PlanReport {
    const KIND: &'static str = "StatusPlan";

    fn names(&self) -> Option<String> {
        Some(policy_lines(self.policies.iter().map(|policy| policy.name.as_str())))
    }

    fn unread(&self) -> &[FailedRead] {
        &self.not_read
    }

    fn text(&self, view: View) -> String {
        let heading = ["POLICY", "ACTION", "PROTECTED", "HOLDS", "RULES"];
        let row = |table: &mut Table, policy: &PolicyPlan| policy.row(table, view);
        let mut text = view.table(&heading, (&self.policies, MAX_POLICIES, "policies"), row);
        for unread in FailedRead::grouped(&self.not_read, view.verbose) {
            let line = format!("{}: the counts are lower bounds", unread.line());
            text.push_str(&view.screen.paragraph(0, &line));
        }
        text
    }

    /// 1 if a policy has a problem, 3 if a read failed.
    fn exit_code(&self) -> u8 {
        let has_problem =
            |policy: &PolicyPlan| !policy.unknown_kinds.is_empty() || !policy.notes.is_empty();
        exit_code_of(self.policies.iter().any(has_problem), self.not_read.is_empty())
    }
}

impl PlanReport {
    /// `stale`: the API groups whose server does not answer.
    pub fn new(
        specs: &[(String, DeletionPolicySpec)],
        (policies, kinds): (&PolicySet, &Kinds),
        counts: &PlanCounts,
        stale: &HashSet<String>,
        not_read: Vec<FailedRead>,
    ) -> Self {
        let unknown = policies.unknown_kinds(kinds).into_iter().filter(|(_, kind)| {
            // The group follows the plural, as in `gizmos.example.com`.
            kind.split_once('.').is_none_or(|(_, group)| !stale.contains(group))
        });
        let unknown: Vec<(&PolicySource, String)> = unknown.collect();
        let mut plans: Vec<PolicyPlan> = specs
            .iter()
            .map(|(name, spec)| {
                let is_policy = |source: &PolicySource| matches!(source, PolicySource::Policy(other) if other == name);
                let own_unknown = unknown.iter().filter(|(source, _)| is_policy(source));
                let unknown_kinds = own_unknown.map(|(_, kind)| kind.clone()).collect();
                let limit = policies.iter().find(|policy| is_policy(&policy.source));
                let limit = limit.and_then(|policy| policy.backfill_limit).unwrap_or(DEFAULT_BACKFILL);
                PolicyPlan::new(name, spec, counts.for_policy(name), unknown_kinds, limit)
            })
            .collect();
        plans.sort_by(|a, b| a.name.cmp(&b.name));
        Self { policies: plans, not_read }
    }
}

impl PolicyPlan {
    fn new(
        name: &str,
        spec: &DeletionPolicySpec,
        count: PolicyCount,
        unknown_kinds: Vec<String>,
        limit: usize,
    ) -> Self {
        let PolicyCount { kinds, not_held } = count;
        let over_limit = kinds.iter().filter(|(_, kind)| limit > 0 && kind.new_holds > limit);
        let notes = over_limit.map(|(resource, KindTally { new_holds, .. })| {
            format!(
                "{new_holds} existing {resource} would need the hold, more than the limit of {limit}, \
                 so none would get it; next: narrow the policy, or set its annotation \
                 belay.dev/backfill-max-objects={new_holds}"
            )
        });
        let protects = modes(&spec.protect);
        let on_delete = spec.protect.while_used.as_ref().map(|mode| mode.on_delete);
        Self {
            name: name.to_owned(),
            action: spec.action,
            effects: effects(spec.action, on_delete, protects.len()),
            protects,
            protected: kinds.values().map(|kind| kind.protected).sum(),
            held: kinds.values().map(|kind| kind.held).sum(),
            notes: notes.collect(),
            kinds: kinds.into_iter().map(|(resource, counts)| Kind { resource, counts }).collect(),
            not_held: not_held
                .into_iter()
                .map(|((resource, why), objects)| NotHeld { resource, why, objects })
                .collect(),
            unknown_kinds,
        }
    }

    fn row(&self, table: &mut Table, view: View) {
        table.row([
            Field::toned(Tone::Strong, self.name.as_str()),
            self.effects.as_str().into(),
            self.protected.to_string().into(),
            self.held.to_string().into(),
            self.protects.join(", ").into(),
        ]);
        let mut add_line = |text: String| table.below(&view.screen.paragraph(2, &text));
        // With one kind, the row already contains the number.
        if self.kinds.len() > 1 {
            let (shown, more) = cut(&self.kinds, MAX_KINDS, view.is_complete(), "kinds");
            let texts =
                shown.iter().map(|kind| format!("{} ({})", kind.resource, kind.counts.protected));
            let texts: Vec<String> = texts.chain(more).collect();
            add_line(format!("protected: {}", texts.join(", ")));
        }
        let (shown, more) = cut(&self.not_held, MAX_KINDS, view.is_complete(), "kinds");
        for NotHeld { resource, why, objects } in shown {
            add_line(format!("not held: {resource} ({objects}): {why}"));
        }
        more.into_iter().for_each(&mut add_line);
        self.notes.iter().cloned().for_each(&mut add_line);
        if !self.unknown_kinds.is_empty() {
            add_line(unknown_kinds_text(&self.unknown_kinds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::relations::Catalogue;

    fn plan(new_holds: usize, limit: usize, unknown: &[&str]) -> PolicyPlan {
        let spec = DeletionPolicySpec::default();
        let of_kind = KindTally { protected: new_holds, held: new_holds, new_holds };
        let kinds = [("configmaps".to_owned(), of_kind)].into();
        let count = PolicyCount { kinds, ..PolicyCount::default() };
        let unknown = unknown.iter().map(|kind| (*kind).to_owned()).collect();
        PolicyPlan::new("p", &spec, count, unknown, limit)
    }

    fn code(policy: PolicyPlan, not_read: usize) -> u8 {
        let unread = || FailedRead { resource: "secrets".into(), why: "no".into() };
        let not_read = std::iter::repeat_with(unread).take(not_read).collect();
        PlanReport { policies: vec![policy], not_read }.exit_code()
    }

    #[test]
    fn the_exit_code_shows_whether_the_policies_can_be_applied() {
        assert_eq!(code(plan(5, 5, &[]), 0), 0);
        assert_eq!(code(plan(6, 5, &[]), 0), 1);
        assert_eq!(code(plan(6, 0, &[]), 0), 0, "0 is any number");
        assert_eq!(code(plan(1, 5, &["gadgets.test"]), 0), 1);
        assert_eq!(code(plan(1, 5, &[]), 1), 3);
        assert_eq!(code(plan(1, 5, &["gadgets.test"]), 1), 1);
    }

    #[test]
    fn a_kind_whose_server_does_not_answer_is_not_reported_as_not_served() {
        let spec: DeletionPolicySpec = serde_json::from_value(serde_json::json!({
            "targets": [{"apiGroups": ["gone.test"], "resources": ["gizmos"]}],
            "protect": {"always": {}},
        }))
        .unwrap();
        let policies = vec![Policy::compile("p", &spec).unwrap()];
        let policies = PolicySet::new(policies, &Catalogue::default());
        let specs = [("p".to_owned(), spec)];
        let unknown = |stale: &[&str]| {
            let stale = stale.iter().map(|group| (*group).to_owned()).collect();
            let known = (&policies, &Kinds::default());
            PlanReport::new(&specs, known, &PlanCounts::default(), &stale, Vec::new()).policies[0]
                .unknown_kinds
                .clone()
        };
        assert_eq!(unknown(&["other.test"]), ["gizmos.gone.test"]);
        assert!(unknown(&["gone.test"]).is_empty());
    }
}
