//! Counts the objects that each policy would protect and hold. The code that adds holds decides
//! about each object.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use crate::command::status::policy::{NEVER, NO_MODE, ONLY_RECORDS, ONLY_WARNS};
use crate::decide::{Situation, no_hold_reason};
use crate::hold::{DesiredHold, HoldPlan, desired_hold, plan};
use crate::objects::{KindInfo, Object};
use crate::policy::api::{Action, HoldMode};
use crate::policy::{AppliedPolicy, ObjectFacts, PolicySource, WHY_NO_HOLD_WITH_SUBJECTS};

/// The counts of each policy, by its name.
#[derive(Debug, Default)]
pub struct PlanCounts(HashMap<String, PolicyCount>);

/// The counts of one policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyCount {
    /// The counts of each kind, by its full name.
    pub kinds: BTreeMap<String, KindTally>,
    /// Objects without a hold, by kind and reason.
    pub not_held: BTreeMap<(String, &'static str), usize>,
}

/// The counts of one policy and one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KindTally {
    /// The number of objects that the policy would protect.
    pub protected: usize,
    /// The number of these objects that would have the hold.
    pub held: usize,
    /// The number of existing objects without a hold that would get it because of this policy.
    #[serde(skip)]
    pub new_holds: usize,
}

impl PlanCounts {
    /// The counts of a policy.
    pub fn for_policy(&self, policy: &str) -> PolicyCount {
        self.0.get(policy).cloned().unwrap_or_default()
    }

    /// Counts one object.
    pub fn add(&mut self, situation: &Situation<'_>, info: &KindInfo, object: &Object<'_>) {
        let resource = info.group_resource();
        let metadata = &object.metadata;
        let facts = ObjectFacts::of_object(resource, (&metadata.namespace, &metadata.name), object);
        let applied = situation.protecting_policies(facts);
        if applied.is_empty() {
            return;
        }
        let planned = plan(situation, true, resource, object);
        let held = match planned {
            HoldPlan::Add(_) | HoldPlan::Rename(_) => true,
            // The plan may remove only former names of the hold.
            HoldPlan::Remove(_) | HoldPlan::RemoveSeveral { .. } => {
                desired_hold(situation, facts) != DesiredHold::Absent
            }
            HoldPlan::Nothing => object.is_held(),
        };
        for applied in &applied {
            let PolicySource::Policy(name) = &applied.policy.source else { continue };
            let count = self.0.entry(name.clone()).or_default();
            let kind = count.kinds.entry(info.full_name()).or_default();
            kind.protected += 1;
            kind.held += usize::from(held);
            let gets_hold =
                matches!(planned, HoldPlan::Add(_)) && applied.certain && applied.wants_hold();
            kind.new_holds += usize::from(gets_hold);
            if !held {
                let why = why_not_held(applied, resource, object);
                *count.not_held.entry((info.full_name(), why)).or_default() += 1;
            }
        }
    }
}

/// Why an object that a policy protects would have no hold.
fn why_not_held(
    applied: &AppliedPolicy<'_>,
    (group, resource): (&str, &str),
    object: &Object<'_>,
) -> &'static str {
    if applied.policy.hold == HoldMode::Never {
        return NEVER;
    }
    if applied.policy.would_place_hold_without_subjects() {
        return WHY_NO_HOLD_WITH_SUBJECTS;
    }
    if !applied.policy.places_hold() {
        return NO_MODE;
    }
    match applied.action {
        Action::Audit => return ONLY_RECORDS,
        Action::Warn => return ONLY_WARNS,
        Action::Deny => {}
    }
    if !applied.certain {
        return "the labels of its Namespace are unknown";
    }
    match no_hold_reason(group, resource, object) {
        Some(reason) => reason.message(),
        None if object.is_terminating() => {
            "it is Terminating, and Kubernetes accepts no new finalizers"
        }
        None => "it would get no hold",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::ObjectSource;
    use crate::graph::Graph;
    use crate::policy::api::DeletionPolicySpec;
    use crate::policy::{Policy, PolicySet};
    use crate::relations::Catalogue;

    /// What a policy does with one object: protected, held, and the reason if not.
    fn summary(
        spec: serde_json::Value,
        kind: (&str, &str),
        metadata: &str,
    ) -> (usize, usize, String) {
        let spec: DeletionPolicySpec = serde_json::from_value(spec).unwrap();
        let policy = Policy::compile("p", &spec).unwrap();
        let policies = PolicySet::new(vec![policy], &Catalogue::default());
        let graph = Graph::default();
        let situation = Situation::new(&graph, &policies, ObjectSource::Files, 0);
        let json = format!("{{\"metadata\": {{\"name\": \"a\", \"uid\": \"u\", {metadata}}}}}");
        let object: Object<'_> = serde_json::from_str(&json).unwrap();
        let info = graph.kinds.info(graph.kinds.find(kind.0, kind.1).unwrap());
        let mut tally = PlanCounts::default();
        tally.add(&situation, info, &object);
        let counted = tally.for_policy("p");
        let of_kind = counted.kinds.values().next().copied().unwrap_or_default();
        let why = counted.not_held.keys().next().map(|(_, why)| *why).unwrap_or_default();
        // Objects that would get the hold are counted separately.
        assert!(of_kind.new_holds <= of_kind.held);
        (of_kind.protected, of_kind.held, why.to_owned())
    }

    #[test]
    fn an_object_without_a_hold_is_reported_with_a_reason_that_the_user_can_act_on() {
        let all = json!([{"apiGroups": ["*"], "resources": ["*"]}]);
        let used = json!({"targets": all, "protect": {"whileUsed": {}}});
        let with = |field: &str, value: &str| {
            let mut spec = used.clone();
            spec[field] = value.into();
            spec
        };
        let secret = ("", "Secret");
        let shop = r#""namespace": "shop""#;
        let place = json!([{"apiGroups": [""], "resources": ["secrets"],
            "namespaceSelector": {"matchLabels": {"tier": "prod"}}}]);
        for (spec, kind, metadata, held, why) in [
            (used.clone(), secret, shop.to_owned(), 1, ""),
            (with("action", "Warn"), secret, shop.to_owned(), 0, "action Warn"),
            (with("action", "Audit"), secret, shop.to_owned(), 0, "action Audit"),
            (with("hold", "Never"), secret, shop.to_owned(), 0, "sets hold to Never"),
            (
                json!({"targets": all, "protect": {"fromOrphaning": {}}}),
                secret,
                shop.to_owned(),
                0,
                "neither always nor whileUsed",
            ),
            (used.clone(), ("", "Pod"), shop.to_owned(), 0, "belay adds no hold to this kind"),
            (
                used.clone(),
                secret,
                format!(r#"{shop}, "annotations": {{"helm.sh/hook": "pre-install"}}"#),
                0,
                "it is a hook",
            ),
            (
                used.clone(),
                secret,
                format!(r#"{shop}, "deletionTimestamp": "2026-01-01T00:00:00Z""#),
                0,
                "it is Terminating",
            ),
            (
                used.clone(),
                secret,
                format!(
                    r#"{shop}, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["belay.dev/hold"]"#
                ),
                1,
                "",
            ),
            // It has the hold, and no policy needs it.
            (
                with("action", "Warn"),
                secret,
                format!(r#"{shop}, "finalizers": ["belay.dev/hold"]"#),
                0,
                "action Warn",
            ),
            (
                json!({"targets": place, "protect": {"whileUsed": {}}}),
                secret,
                shop.to_owned(),
                0,
                "the labels of its Namespace are unknown",
            ),
        ] {
            let (protected, is_held, reason) = summary(spec, kind, &metadata);
            assert_eq!((protected, is_held), (1, held), "{metadata}: {reason}");
            assert!(
                reason.contains(why) && reason.is_empty() == why.is_empty(),
                "{metadata}: {reason}"
            );
        }
        let other = json!({"targets": [{"apiGroups": [""], "resources": ["configmaps"]}],
            "protect": {"always": {}}});
        assert_eq!(summary(other, secret, shop).0, 0);
    }
}
