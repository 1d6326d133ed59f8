//! Which approvals are in force for an object.

use super::Situation;
use super::ancestors::{Ancestors, Leads, Records, State, counts, owners_version};
use super::item::Item;
use super::owners::is_cascade;
use crate::policy::{Approval, Discount, Policy, Source, Terms};

/// The approvals in force for this object: those that name it, and those of
/// scope Content that name what it lives in, or that certainly takes it along.
/// And those to whose content it was added later.
fn in_force<'a>(
    situation: &Situation<'a>,
    item: &Item<'a>,
    records: Records,
) -> (Vec<&'a Approval>, Vec<&'a Approval>) {
    let approvals = &situation.policies.approvals;
    // Without the work that it takes nothing is approved.
    let charge = |uid| situation.work.charge(approvals.of(uid).len());
    let (identity, state) = (item.identity(), State::of_item(item));
    let above = if records == Records::Cascade { records } else { Records::Ignored };
    if !charge(identity.uid) {
        return (Vec::new(), Vec::new());
    }
    let named = approvals.of(identity.uid).iter().filter(|approval| {
        approval.names(&identity) && counts(situation, records, approval, state)
    });
    let mut found: Vec<_> = named.collect();
    let namespace = item.facts.namespace;
    for container in containers(situation, item) {
        let (identity, state) = (container.identity(), State::of_item(&container));
        if !charge(identity.uid) {
            return (Vec::new(), Vec::new());
        }
        found.extend(approvals.of(identity.uid).iter().filter(|approval| {
            approval.content
                && approval.names(&identity)
                && approval.reaches(namespace)
                && counts(situation, above, approval, state)
        }));
    }
    let mut ancestors = Ancestors::new(situation, above, namespace);
    let owners = item.owners(situation);
    let version = owners_version(situation, item.node, &owners);
    if ancestors.lead(namespace, (&owners, version), 0) == Leads::There {
        found.append(&mut ancestors.found);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup_by(|a, b| a.name == b.name);
    (found, ancestors.late)
}

/// Whether the DELETE of this object follows by state from the deletion of what
/// owns or contains it. Exemption records open no other request.
pub(super) fn follows(situation: &Situation<'_>, item: &Item<'_>) -> bool {
    let dies = || containers(situation, item).iter().any(Item::is_terminating);
    !item.is_terminating() && (is_cascade(situation, item) || dies())
}

/// Whether nothing of what these policies refuse about an object stands any
/// more: enough people have approved it. What belay itself recorded takes only
/// those policies away that exempted somebody. Says by which approvals.
pub(crate) fn approved<'a>(
    situation: &Situation<'a>,
    item: &Item<'a>,
    policies: &[&Policy],
    records: Records,
) -> Option<Vec<&'a Approval>> {
    let Asked { own, people, terms, .. } = asked(situation, item, policies, records);
    match terms {
        None => Some(own),
        Some(terms) if terms.are_met(&people) => Some([own, people].concat()),
        Some(_) => None,
    }
}

/// What policies ask for before an object may go, and who has said yes so far.
#[derive(Debug, Clone)]
pub(crate) struct Consent {
    /// What is asked for.
    pub(crate) terms: Terms,
    /// Those whose approvals are in force and count.
    pub(crate) people: Vec<String>,
}

/// What these policies ask for, and who has said yes; `None` when nobody has to
/// any more.
pub(crate) fn consent(
    situation: &Situation<'_>,
    item: &Item<'_>,
    policies: &[&Policy],
) -> Option<Consent> {
    let Asked { people, terms, .. } = asked(situation, item, policies, Records::Ignored);
    let terms = terms?;
    let people = terms.people(&people).into_iter().map(str::to_owned).collect();
    Some(Consent { terms, people })
}

/// An approval that is in force and does not count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uncounted {
    /// Who gave it.
    pub approver: String,
    /// The policy for which it does not count.
    pub policy: Source,
    /// Why.
    pub why: Discount,
}

impl std::fmt::Display for Uncounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { approver, policy, why } = self;
        write!(f, "the approval by {approver} does not count: it {}", why.words(policy))
    }
}

/// The approvals of an object that are in force and do not count for one of
/// these policies.
pub(crate) fn uncounted(
    situation: &Situation<'_>,
    item: &Item<'_>,
    policies: &[&Policy],
) -> Vec<Uncounted> {
    let Asked { people, late, .. } = asked(situation, item, policies, Records::Ignored);
    let uncounted = |approval: &Approval, policy: &Policy, why| {
        let (approver, policy) = (approval.approver.clone(), policy.source.clone());
        Uncounted { approver, policy, why }
    };
    let discounted = people.into_iter().filter_map(|approval| {
        let (policy, why) = Policy::discounting(approval, policies.iter().copied())?;
        Some(uncounted(approval, policy, why))
    });
    let late = late
        .into_iter()
        .filter_map(|approval| Some(uncounted(approval, policies.first()?, Discount::Attached)));
    discounted.chain(late).collect()
}

/// Approvals beside what is asked for.
struct Asked<'a> {
    /// What belay itself recorded.
    own: Vec<&'a Approval>,
    /// What people have approved.
    people: Vec<&'a Approval>,
    /// Those to whose content the object was added after they were given.
    late: Vec<&'a Approval>,
    terms: Option<Terms>,
}

fn asked<'a>(
    situation: &Situation<'a>,
    item: &Item<'a>,
    policies: &[&Policy],
    records: Records,
) -> Asked<'a> {
    let identities = &situation.policies.identities;
    let (found, mut late) = in_force(situation, item, records);
    late.retain(|approval| !identities.is_own(&approval.approver));
    let (own, people): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|yes| identities.is_own(&yes.approver));
    let exempted =
        |policy: &Policy| own.iter().any(|yes: &&Approval| yes.exempts.contains(&policy.source));
    let left = policies.iter().filter(|policy| !exempted(policy));
    let terms = Terms::all(left.map(|policy| &policy.approval));
    Asked { own, people, late, terms }
}

/// What an object lives in: its Namespace, and a custom resource its CRD.
fn containers<'a>(situation: &Situation<'a>, item: &Item<'a>) -> Vec<Item<'a>> {
    let graph = situation.graph;
    let facts = item.facts;
    let definition = format!("{}.{}", facts.resource, facts.group);
    let places = [
        (("", "Namespace"), facts.namespace),
        (("apiextensions.k8s.io", "CustomResourceDefinition"), definition.as_str()),
    ];
    let nodes = places.iter().filter(|(_, name)| !name.is_empty()).filter_map(|((g, k), name)| {
        let kind = graph.kinds.find(g, k)?;
        graph.object(kind, "", name)
    });
    nodes.map(|node| Item::of_node(situation, node)).collect()
}
