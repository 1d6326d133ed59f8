//! Large inputs of hostile users. These tests count steps and do not measure time.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::graph::{Graph, StepBudget, StepCounter, Strength};
use crate::hold::count::*;
use crate::objects::HOLD;
use crate::policy::{Policy, PolicySet};
use crate::relations::{Catalogue, CustomRelation, CustomTarget, Path};

/// The limit of steps for each object, name or owner reference.
const MAX_STEPS_EACH: usize = 100;

/// The limit of the growth of the steps for each object, name or owner reference when an input
/// becomes twice as large.
const MAX_GROWTH: f64 = 1.25;

/// The time of all deletions.
const DELETED: i64 = 1_767_268_800;
/// The time of the count.
const NOW: i64 = DELETED + 3_600;

/// One object of an input. The first object is the target. Objects refer to others by their index.
/// An owner with an index beyond the last object has a kind that is not listed.
#[derive(Clone, Default)]
struct Part {
    /// The objects that this one uses.
    uses: Vec<usize>,
    owners: Vec<usize>,
    state: State,
    /// Whether the object has the kind that `by` of a policy selects.
    selected: bool,
    /// Whether the object is always protected.
    protected: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    /// Terminating, with the hold as its only finalizer.
    #[default]
    Held,
    /// Created before the DELETE of the target.
    Active,
    /// Created long after the DELETE of the target.
    Newcomer,
}

impl Part {
    fn using(uses: impl IntoIterator<Item = usize>) -> Self {
        Self { uses: uses.into_iter().collect(), ..Self::default() }
    }

    fn owned(self, owners: impl IntoIterator<Item = usize>) -> Self {
        Self { owners: owners.into_iter().collect(), ..self }
    }

    fn with(self, state: State) -> Self {
        Self { state, ..self }
    }

    fn kind(&self) -> &'static str {
        if self.selected { "Whole" } else { "Part" }
    }

    fn size(&self) -> usize {
        1 + self.uses.len() + self.owners.len()
    }
}

fn manifest(parts: &[Part], index: usize) -> Value {
    let part = &parts[index];
    let time = |seconds: i64| jiff::Timestamp::from_second(DELETED + seconds).unwrap().to_string();
    let owners = part.owners.iter().map(|owner| {
        let kind = parts.get(*owner).map_or("Database", Part::kind);
        json!({"apiVersion": "example.com/v1", "kind": kind, "name": format!("p{owner}"), "uid": format!("p{owner}")})
    });
    let created = if part.state == State::Newcomer { 600 } else { -600 };
    let mut manifest = json!({"apiVersion": "example.com/v1", "kind": part.kind(), "metadata": {
        "name": format!("p{index}"), "namespace": "a", "uid": format!("p{index}"),
        "creationTimestamp": time(created), "ownerReferences": owners.collect::<Vec<_>>(),
    }, "spec": {"names": part.uses.iter().map(|name| format!("p{name}")).collect::<Vec<_>>()}});
    if part.protected {
        manifest["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    }
    if part.state == State::Held {
        manifest["metadata"]["deletionTimestamp"] = json!(time(0));
        manifest["metadata"]["finalizers"] = json!([HOLD]);
    }
    manifest
}

/// The result of a count within a budget, and its steps.
fn count_within(parts: &[Part], while_used: &Value, budget: usize) -> (UseCheck, usize) {
    let mut kinds = Kinds::default();
    let relation = |name, resource| {
        let path = Path::parse("spec.names[*]").unwrap();
        let (group, to) = ("example.com".to_owned(), "parts".to_owned());
        let to = CustomTarget::Name { group, resource: to, name: path, namespace: None };
        CustomRelation::new(name, ("example.com", resource), to, Strength::Needs, None).unwrap()
    };
    for (kind, resource) in [("Part", "parts"), ("Whole", "wholes"), ("Database", "databases")] {
        kinds.learn(Kinds::custom("example.com", "v1", kind, resource, true));
    }
    let customs = [relation("part", "parts"), relation("whole", "wholes")];
    let catalogue = Catalogue::new(&kinds, &customs).unwrap();
    let spec = json!({"targets": [{"apiGroups": ["example.com"], "resources": ["parts"]}],
        "protect": {"whileUsed": while_used}});
    let policy = Policy::compile("p", &serde_json::from_value(spec).unwrap()).unwrap();
    let policies = PolicySet::new(vec![policy], &catalogue);
    let watched = Graph::new(kinds.clone());
    let mut reads = LiveReads { graph: Graph::new(kinds), results: HashMap::new() };
    let kind_of = |graph: &Graph, kind| graph.kinds.find("example.com", kind).unwrap();
    for (index, part) in parts.iter().enumerate() {
        let kind = kind_of(&reads.graph, part.kind());
        let mut manifest = manifest(parts, index);
        if index == 0 {
            manifest = without_hold(&manifest);
        }
        catalogue.parse_and_apply(&mut reads.graph, kind, &manifest.to_string()).unwrap();
    }
    let kind = kind_of(&reads.graph, "Part");
    let target = reads.graph.find(kind, "a", "p0").unwrap();
    let lists = match check_use(
        &Situation::new(&watched, &policies, ObjectSource::Files, NOW),
        true,
        &reads,
        target,
    ) {
        UseCheck::NeedsReads(lists) => lists.concat(),
        other => panic!("{other:?}"),
    };
    for read in lists {
        reads.results.insert(read, Ok(()));
    }
    let budget = StepBudget::new(budget);
    let work = StepCounter::new(&budget);
    let situation =
        Situation { work, ..Situation::new(&watched, &policies, ObjectSource::Files, NOW) };
    (check_use(&situation, true, &reads, target), budget.steps())
}

/// Asserts that the steps of a count grow linearly with the size of the input. Returns the result
/// of the count.
fn assert_linear(name: &str, while_used: &Value, input: impl Fn(usize) -> Vec<Part>) -> UseCheck {
    let measure = |n: usize| {
        let parts = input(n);
        let (count, steps) = count_within(&parts, while_used, usize::MAX);
        let size: usize = parts.iter().map(Part::size).sum();
        assert!(steps <= MAX_STEPS_EACH * size, "{name}: {steps} steps for a size of {size}");
        (count, steps as f64 / size as f64)
    };
    let ((_, one), (count, two)) = (measure(150), measure(300));
    assert!(two <= MAX_GROWTH * one, "{name}: {one} steps each, and {two} for twice the size");
    count
}

/// A target, and held Terminating objects that use it.
fn users_of_target(n: usize) -> Vec<Part> {
    let parts = (0..n).map(|_| Part::using([0]));
    std::iter::once(Part::default()).chain(parts).collect()
}

/// A target, and held Terminating objects; the target and each object use each other.
fn pairs(n: usize) -> Vec<Part> {
    let mut parts = users_of_target(n);
    parts[0].uses = (1..=n).collect();
    parts
}

const UNUSED: UseCheck = UseCheck::Releasable(ReleaseReason::Unused);

#[test]
fn the_work_of_a_count_grows_linearly_with_held_objects() {
    let any = json!({});
    let assert_kept = |count| assert!(matches!(count, UseCheck::InUse(_)), "{count:?}");
    assert_kept(assert_linear("users of the target", &any, users_of_target));
    let chain = |n| (0..n).map(|at: usize| Part::using(at.checked_sub(1))).collect::<Vec<_>>();
    assert_kept(assert_linear("a chain", &any, chain));
    let cycle = |n| (0..n).map(|at| Part::using([(at + n - 1) % n])).collect();
    assert_eq!(assert_linear("a cycle", &any, cycle), UNUSED);
    assert_eq!(assert_linear("pairs", &any, pairs), UNUSED);
    let all = |n: usize| {
        let some = n / 10;
        (0..some).map(|at| Part::using((0..some).filter(|other| *other != at))).collect()
    };
    assert_eq!(assert_linear("all use all", &any, all), UNUSED);
    let repeated = |n| vec![Part::default(), Part::using(std::iter::repeat_n(0, n))];
    assert_kept(assert_linear("one object with many references", &any, repeated));
}

#[test]
fn the_work_of_a_count_grows_linearly_with_owners() {
    let any = json!({});
    let newcomer = || Part::using([0]).with(State::Newcomer);
    let with = |mut parts: Vec<Part>, more: Vec<Part>| {
        parts.extend(more);
        parts
    };
    let active = Part::default().with(State::Active);
    let shared = |n| {
        let users = (0..n).map(|_| newcomer().owned(1..=20)).collect();
        with([vec![Part::default()], vec![active.clone(); 20]].concat(), users)
    };
    assert_linear("users with many owners", &any, shared);
    let chain = |n: usize| {
        let owners =
            (1..=n).map(|at| Part::default().with(State::Newcomer).owned((at > 1).then(|| at - 1)));
        let owners = std::iter::once(Part::default()).chain(owners).collect();
        with(owners, (0..n).map(|_| newcomer().owned([n])).collect())
    };
    assert_linear("users below a chain of owners", &any, chain);
    let wide = |n: usize| {
        let mut parts = vec![Part::default(), newcomer().owned(2..n + 2)];
        parts.extend(vec![Part::default().with(State::Newcomer); n]);
        parts
    };
    assert_eq!(assert_linear("one user with many owners", &any, wide), UNUSED);
    let unread = |n: usize| {
        let absent = n + 1..n + 60;
        let users = (0..n).map(|_| Part::using([0]).owned(absent.clone())).collect();
        with(vec![Part::default()], users)
    };
    let count = assert_linear("users whose owners are unread", &any, unread);
    assert!(matches!(count, UseCheck::NeedsReads(_)), "{count:?}");
    let owners_of_target = |n: usize| {
        let owners: Vec<_> = (0..n).map(|_| Part::using([0])).collect();
        with(vec![Part::default().owned(1..=n)], owners)
    };
    assert_eq!(assert_linear("owners of the target", &any, owners_of_target), UNUSED);
    let dependents = |n: usize| {
        let users = (1..=n).map(|at| Part::using([at]).with(State::Active).owned([at]));
        with(pairs(n), users.collect())
    };
    assert_eq!(assert_linear("dependents of a cycle", &any, dependents), UNUSED);
    let dependents = |n: usize| {
        let users = (0..n).map(|_| Part::using([0]).with(State::Active).owned(0..=5));
        with(pairs(5), users.collect())
    };
    assert_eq!(assert_linear("dependents with many owners", &any, dependents), UNUSED);
}

#[test]
fn h20_the_work_of_a_count_grows_linearly_with_protected_dependents() {
    let any = json!({});
    let part = |uses: &[usize], owners: &[usize]| {
        Part::using(uses.iter().copied()).with(State::Active).owned(owners.iter().copied())
    };
    // Each protected dependent has two owners without protection.
    let protected = |n: usize| {
        let mut parts = vec![Part::default()];
        for at in 0..n {
            let first = 3 * at + 1;
            parts.push(part(&[0], &[0]));
            parts.push(part(&[0, first], &[first]));
            parts.push(Part { protected: true, ..part(&[0, first], &[first + 1]) });
        }
        parts
    };
    let count = assert_linear("protected dependents", &any, protected);
    assert!(matches!(count, UseCheck::InUse(_)), "{count:?}");
    let chain = |n: usize| {
        let mut parts = vec![Part::default()];
        parts.extend((0..n).map(|at| part(&[0], &[at])));
        parts.extend([Part { protected: true, ..part(&[0], &[n]) }]);
        parts
    };
    let count = assert_linear("a chain above a protected dependent", &any, chain);
    assert!(matches!(count, UseCheck::InUse(_)), "{count:?}");
}

#[test]
fn the_work_of_a_count_grows_linearly_with_selected_users() {
    let by = json!({"by": [{"apiGroups": ["example.com"], "resources": ["wholes"]}]});
    let users = |n: usize| {
        let user = |at: usize| Part {
            selected: at.is_multiple_of(2),
            ..Part::using([0]).with(State::Newcomer)
        };
        std::iter::once(Part::default()).chain((0..n).map(user)).collect()
    };
    assert_eq!(assert_linear("users of two kinds", &by, users), UNUSED);
}

#[test]
fn a_count_stops_when_its_result_is_known() {
    let users = |n| {
        let users = vec![Part::using([0]).with(State::Active); n];
        let (count, steps) =
            count_within(&[vec![Part::default()], users].concat(), &json!({}), usize::MAX);
        assert!(matches!(count, UseCheck::InUse(_)), "{count:?}");
        steps
    };
    assert_eq!(users(2_000), users(4_000));
    // Owners beyond the limit are unknown, so a newcomer with too many owners counts.
    let owned_by = |n: usize| {
        let user = Part::using([0]).with(State::Newcomer).owned(2..n + 2);
        let owners = vec![Part::default().with(State::Newcomer); n];
        count_within(&[vec![Part::default(), user], owners].concat(), &json!({}), usize::MAX)
    };
    assert_eq!(owned_by(1_000).0, UNUSED);
    let (count, steps) = owned_by(1_001);
    assert!(matches!(count, UseCheck::InUse(_)) && steps < 100, "{count:?}, {steps} steps");
}

#[test]
fn a_used_up_budget_keeps_the_hold() {
    let (count, steps) = count_within(&pairs(300), &json!({}), usize::MAX);
    assert_eq!(count, UNUSED);
    for budget in (0..steps).step_by(97).chain([steps - 1]) {
        let (count, charged) = count_within(&pairs(300), &json!({}), budget);
        let UseCheck::Unknown(why) = count else { panic!("{budget} of {steps} steps: {count:?}") };
        assert_eq!(why, UnknownUse::TooManySteps);
        assert!(charged < budget + 2_000, "{charged} steps of {budget}");
    }
    assert_eq!(count_within(&pairs(300), &json!({}), steps).0, UNUSED);
}
