//! Which approvals are in force for an object.

use super::Situation;
use super::item::Item;
use super::owners::{DEEPEST, MOST, Standing, standing};
use crate::graph::Claim;
use crate::objects::{KeyedSet, Uid};
use crate::policy::{Approval, Identity, Policy, Terms};

/// The approvals in force for this object: those that name it, and those of
/// scope Content that name what it lives in, or that certainly takes it along.
pub(super) fn in_force<'a>(situation: &Situation<'a>, item: &Item<'a>) -> Vec<&'a Approval> {
    let approvals = &situation.policies.approvals;
    let identity = item.identity();
    let named = approvals.of(identity.uid).iter().filter(|approval| {
        approval.names(&identity) && approval.is_in_force(item.deleted(), situation.now)
    });
    let mut found: Vec<_> = named.collect();
    for container in containers(situation, item) {
        let identity = container.identity();
        found.extend(approvals.of(identity.uid).iter().filter(|approval| {
            approval.content
                && approval.names(&identity)
                && approval.is_in_force(container.deleted(), situation.now)
        }));
    }
    let mut ancestors = Ancestors { situation, found: Vec::new(), seen: KeyedSet::default() };
    if ancestors.lead(item.facts.namespace, &item.owners(situation), 0) == Leads::There {
        found.append(&mut ancestors.found);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup_by(|a, b| a.name == b.name);
    found
}

/// Whether nothing of what these policies refuse about an object stands any
/// more: enough people have approved it. What belay itself recorded takes only
/// those policies away that exempted somebody. Says by which approvals.
pub(crate) fn approved<'a>(
    situation: &Situation<'a>,
    item: &Item<'a>,
    policies: &[&Policy],
) -> Option<Vec<&'a Approval>> {
    let Asked { own, people, terms } = asked(situation, item, policies);
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
    let Asked { people, terms, .. } = asked(situation, item, policies);
    let terms = terms?;
    let people = terms.people(&people).into_iter().map(str::to_owned).collect();
    Some(Consent { terms, people })
}

/// Approvals beside what is asked for.
struct Asked<'a> {
    /// What belay itself recorded.
    own: Vec<&'a Approval>,
    /// What people have approved.
    people: Vec<&'a Approval>,
    terms: Option<Terms>,
}

fn asked<'a>(situation: &Situation<'a>, item: &Item<'a>, policies: &[&Policy]) -> Asked<'a> {
    let identities = &situation.policies.identities;
    let (own, people): (Vec<_>, Vec<_>) =
        in_force(situation, item).into_iter().partition(|yes| identities.is_own(&yes.approver));
    let exempted =
        |policy: &Policy| own.iter().any(|yes: &&Approval| yes.exempts.contains(&policy.source));
    let left = policies.iter().filter(|policy| !exempted(policy));
    let terms = Terms::all(left.map(|policy| &policy.approval));
    Asked { own, people, terms }
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

/// The way up by owner references. An object is in the certain closure of an
/// ancestor when each of its owners is that ancestor, or gone, or in the
/// closure itself: one that stays would keep the object (R5).
struct Ancestors<'s, 'a> {
    situation: &'s Situation<'a>,
    found: Vec<&'a Approval>,
    /// Whose owners have been looked at: in a cycle nobody leads anywhere.
    seen: KeyedSet<Uid>,
}

/// Where a way leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leads {
    /// To something that is approved with its content.
    There,
    /// Nowhere: what it led to is gone.
    Nowhere,
    /// To something that stays.
    Elsewhere,
}

impl<'a> Ancestors<'_, 'a> {
    fn lead(&mut self, namespace: &str, owners: &[Claim<'_>], depth: usize) -> Leads {
        let mut all = Leads::Nowhere;
        for owner in owners {
            match self.owner(namespace, owner, depth) {
                Leads::Elsewhere => return Leads::Elsewhere,
                Leads::There => all = Leads::There,
                Leads::Nowhere => {}
            }
        }
        all
    }

    fn owner(&mut self, namespace: &str, claim: &Claim<'_>, depth: usize) -> Leads {
        let node = match standing(self.situation, namespace, claim) {
            Standing::Unresolved => return Leads::Elsewhere,
            Standing::Absent => return self.gone(claim),
            Standing::Waiting(node) | Standing::Solid(node) => node,
        };
        if self.approved(claim, node.deleted()) {
            return Leads::There;
        }
        // What is not found within the bounds, or leads in a circle, stays.
        if depth > DEEPEST
            || self.seen.len() > MOST
            || self.seen.contains(&node.uid())
            || !self.situation.work.charge(1 + node.owners().len())
        {
            return Leads::Elsewhere;
        }
        self.seen.insert(node.uid());
        let owners: Vec<_> = node.claims().collect();
        match self.lead(node.namespace(), &owners, depth + 1) {
            Leads::There => Leads::There,
            // It is there, and nothing that is approved takes it along.
            Leads::Nowhere | Leads::Elsewhere => Leads::Elsewhere,
        }
    }

    /// An owner that is gone: perhaps it was approved, or taken along by what
    /// was.
    fn gone(&mut self, claim: &Claim<'_>) -> Leads {
        let graph = self.situation.graph;
        let mut next = vec![*claim];
        let mut seen = KeyedSet::default();
        while let Some(claim) = next.pop() {
            if !seen.insert(claim.uid) {
                continue;
            }
            let gone = graph.gone(claim.uid);
            let owners = gone.map_or(0, |gone| gone.owners.len());
            if !self.situation.work.charge(1 + owners) {
                return Leads::Elsewhere;
            }
            if self.approved(&claim, gone.and_then(|gone| gone.deleted)) {
                return Leads::There;
            }
            next.extend(gone.iter().flat_map(|gone| &*gone.owners).map(|owner| Claim {
                kind: Some(owner.kind),
                version: "",
                namespace: &owner.namespace,
                name: &owner.name,
                uid: owner.uid,
            }));
        }
        Leads::Nowhere
    }

    /// Whether approvals of scope Content name this owner.
    fn approved(&mut self, claim: &Claim<'_>, deleted: Option<i64>) -> bool {
        let Some(kind) = claim.kind else { return false };
        let info = self.situation.graph.kinds.info(kind);
        let (namespace, name, uid) = (claim.namespace, claim.name, claim.uid);
        let (group, resource) = (info.group.as_str(), info.resource.as_str());
        let identity = Identity { group, resource, namespace, name, uid };
        let now = self.situation.now;
        let of = self.situation.policies.approvals.of(uid).iter();
        let before = self.found.len();
        self.found.extend(of.filter(|approval| {
            approval.content && approval.names(&identity) && approval.is_in_force(deleted, now)
        }));
        self.found.len() > before
    }
}
