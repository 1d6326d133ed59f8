//! Hostile sizes: the work of a count is counted in steps, never timed.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::*;
use crate::graph::{Graph, StepBudget, StepLimit, Strength};
use crate::objects::HOLD;
use crate::policy::{Policy, PolicySet};
use crate::relations::{Catalogue, CustomRelation, CustomTo, Path};

/// The steps that an object, a name or an owner reference may cost.
const STEPS_EACH: usize = 100;

/// How much more each may cost where there are twice as many.
const GROWTH: f64 = 1.25;

/// When everything that is Terminating was deleted, and when it is counted.
const DELETED: i64 = 1_767_268_800;
const NOW: i64 = DELETED + 3_600;

/// An object of a shape. The first of a shape is the target, and each names
/// others by their place in it. An owner beyond the last is of a kind without a
/// list.
#[derive(Clone, Default)]
struct Part {
    names: Vec<usize>,
    owners: Vec<usize>,
    state: State,
    /// Whether it is of the kind that a policy means by `by`.
    meant: bool,
    /// Whether it is always protected.
    refuses: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    /// Terminating, under the hold alone.
    #[default]
    HeldTarget,
    /// Older than the DELETE of the target.
    Lives,
    /// Created long after it.
    Newcomer,
}

impl Part {
    fn naming(names: impl IntoIterator<Item = usize>) -> Self {
        Self { names: names.into_iter().collect(), ..Self::default() }
    }

    fn owned(self, owners: impl IntoIterator<Item = usize>) -> Self {
        Self { owners: owners.into_iter().collect(), ..self }
    }

    fn with(self, state: State) -> Self {
        Self { state, ..self }
    }

    fn kind(&self) -> &'static str {
        if self.meant { "Whole" } else { "Part" }
    }

    fn size(&self) -> usize {
        1 + self.names.len() + self.owners.len()
    }
}

fn manifest(parts: &[Part], at: usize) -> Value {
    let part = &parts[at];
    let time = |seconds: i64| jiff::Timestamp::from_second(DELETED + seconds).unwrap().to_string();
    let owners = part.owners.iter().map(|owner| {
        let kind = parts.get(*owner).map_or("Database", Part::kind);
        json!({"apiVersion": "example.com/v1", "kind": kind, "name": format!("p{owner}"), "uid": format!("p{owner}")})
    });
    let created = if part.state == State::Newcomer { 600 } else { -600 };
    let mut manifest = json!({"apiVersion": "example.com/v1", "kind": part.kind(), "metadata": {
        "name": format!("p{at}"), "namespace": "a", "uid": format!("p{at}"),
        "creationTimestamp": time(created), "ownerReferences": owners.collect::<Vec<_>>(),
    }, "spec": {"names": part.names.iter().map(|name| format!("p{name}")).collect::<Vec<_>>()}});
    if part.refuses {
        manifest["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    }
    if part.state == State::HeldTarget {
        manifest["metadata"]["deletionTimestamp"] = json!(time(0));
        manifest["metadata"]["finalizers"] = json!([HOLD]);
    }
    manifest
}

/// What the count of a shape comes to within a budget, and its steps.
fn counted(parts: &[Part], while_used: &Value, most: usize) -> (UseCheck, usize) {
    let mut kinds = Kinds::default();
    let relation = |name, resource| {
        let path = Path::parse("spec.names[*]").unwrap();
        let (group, to) = ("example.com".to_owned(), "parts".to_owned());
        let to = CustomTo::Name { group, resource: to, name: path, namespace: None };
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
    let known = Graph::new(kinds.clone());
    let mut reads = LiveReads { graph: Graph::new(kinds), results: HashMap::new() };
    let kind_of = |graph: &Graph, kind| graph.kinds.find("example.com", kind).unwrap();
    for (at, part) in parts.iter().enumerate() {
        let kind = kind_of(&reads.graph, part.kind());
        let mut manifest = manifest(parts, at);
        if at == 0 {
            manifest = without_hold(&manifest);
        }
        catalogue.feed(&mut reads.graph, kind, &manifest.to_string()).unwrap();
    }
    let kind = kind_of(&reads.graph, "Part");
    let target = reads.graph.find(kind, "a", "p0").unwrap();
    let lists = match check_use(
        &Situation::new(&known, &policies, ObjectSource::Files, NOW),
        true,
        &reads,
        target,
    ) {
        UseCheck::NeedsReads(lists) => lists,
        other => panic!("{other:?}"),
    };
    for read in lists {
        reads.results.insert(read, Ok(()));
    }
    let budget = StepBudget::new(most);
    let work = StepLimit::new(&budget);
    let situation =
        Situation { work, ..Situation::new(&known, &policies, ObjectSource::Files, NOW) };
    (check_use(&situation, true, &reads, target), budget.steps())
}

/// Asserts that each object, name and reference of a shape costs about the same
/// whatever their number; returns what the count came to.
fn assert_linear(what: &str, while_used: &Value, shape: impl Fn(usize) -> Vec<Part>) -> UseCheck {
    let measure = |n: usize| {
        let parts = shape(n);
        let (count, steps) = counted(&parts, while_used, usize::MAX);
        let size: usize = parts.iter().map(Part::size).sum();
        assert!(steps <= STEPS_EACH * size, "{what}: {steps} steps for a size of {size}");
        (count, steps as f64 / size as f64)
    };
    let ((_, one), (count, two)) = (measure(150), measure(300));
    assert!(
        two <= GROWTH * one,
        "{what}: {one} steps each, and {two} where there are twice as many"
    );
    count
}

/// Objects that name the target, each under the hold alone.
fn naming_target(n: usize) -> Vec<Part> {
    let parts = (0..n).map(|_| Part::naming([0]));
    std::iter::once(Part::default()).chain(parts).collect()
}

/// The target names each of them as well.
fn pairs(n: usize) -> Vec<Part> {
    let mut parts = naming_target(n);
    parts[0].names = (1..=n).collect();
    parts
}

const FREE: UseCheck = UseCheck::Releasable(ReleaseReason::Unused);

#[test]
fn the_work_of_a_count_grows_with_what_waits() {
    let any = json!({});
    let is_kept = |count| assert!(matches!(count, UseCheck::InUse(_)), "{count:?}");
    is_kept(assert_linear("objects that name the target", &any, naming_target));
    let chain = |n| (0..n).map(|at: usize| Part::naming(at.checked_sub(1))).collect::<Vec<_>>();
    is_kept(assert_linear("a chain", &any, chain));
    let cycle = |n| (0..n).map(|at| Part::naming([(at + n - 1) % n])).collect();
    assert_eq!(assert_linear("a cycle", &any, cycle), FREE);
    assert_eq!(assert_linear("pairs", &any, pairs), FREE);
    let all = |n: usize| {
        let some = n / 10;
        (0..some).map(|at| Part::naming((0..some).filter(|other| *other != at))).collect()
    };
    assert_eq!(assert_linear("all name all", &any, all), FREE);
    let often = |n| vec![Part::default(), Part::naming(std::iter::repeat_n(0, n))];
    is_kept(assert_linear("one object with many references", &any, often));
}

#[test]
fn the_work_of_a_count_grows_with_owners() {
    let any = json!({});
    let newcomer = || Part::naming([0]).with(State::Newcomer);
    let with = |mut parts: Vec<Part>, more: Vec<Part>| {
        parts.extend(more);
        parts
    };
    let lives = Part::default().with(State::Lives);
    let shared = |n| {
        let users = (0..n).map(|_| newcomer().owned(1..=20)).collect();
        with([vec![Part::default()], vec![lives.clone(); 20]].concat(), users)
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
    assert_eq!(assert_linear("one user with many owners", &any, wide), FREE);
    let unread = |n: usize| {
        let absent = n + 1..n + 60;
        let users = (0..n).map(|_| Part::naming([0]).owned(absent.clone())).collect();
        with(vec![Part::default()], users)
    };
    let count = assert_linear("users whose owners are to be read", &any, unread);
    assert!(matches!(count, UseCheck::NeedsReads(_)), "{count:?}");
    let owners_of_target = |n: usize| {
        let owners: Vec<_> = (0..n).map(|_| Part::naming([0])).collect();
        with(vec![Part::default().owned(1..=n)], owners)
    };
    assert_eq!(assert_linear("owners of the target", &any, owners_of_target), FREE);
    let dependents = |n: usize| {
        let users = (1..=n).map(|at| Part::naming([at]).with(State::Lives).owned([at]));
        with(pairs(n), users.collect())
    };
    assert_eq!(assert_linear("dependents of a cycle", &any, dependents), FREE);
    let dependents = |n: usize| {
        let users = (0..n).map(|_| Part::naming([0]).with(State::Lives).owned(0..=5));
        with(pairs(5), users.collect())
    };
    assert_eq!(assert_linear("dependents with many owners", &any, dependents), FREE);
}

#[test]
fn h20_the_work_of_a_count_grows_with_dependents_that_refuse() {
    let any = json!({});
    let part = |names: &[usize], owners: &[usize]| {
        Part::naming(names.iter().copied()).with(State::Lives).owned(owners.iter().copied())
    };
    // Each protected dependent is below two that are not, and each of them is in
    // use by all.
    let protected = |n: usize| {
        let mut parts = vec![Part::default()];
        for at in 0..n {
            let first = 3 * at + 1;
            parts.push(part(&[0], &[0]));
            parts.push(part(&[0, first], &[first]));
            parts.push(Part { refuses: true, ..part(&[0, first], &[first + 1]) });
        }
        parts
    };
    let count = assert_linear("protected dependents", &any, protected);
    assert!(matches!(count, UseCheck::InUse(_)), "{count:?}");
    let chain = |n: usize| {
        let mut parts = vec![Part::default()];
        parts.extend((0..n).map(|at| part(&[0], &[at])));
        parts.extend([Part { refuses: true, ..part(&[0], &[n]) }]);
        parts
    };
    let count = assert_linear("a chain below which one refuses", &any, chain);
    assert!(matches!(count, UseCheck::InUse(_)), "{count:?}");
}

#[test]
fn the_work_of_a_count_grows_with_users_that_a_policy_means() {
    let by = json!({"by": [{"apiGroups": ["example.com"], "resources": ["wholes"]}]});
    let users = |n: usize| {
        let user = |at: usize| Part {
            meant: at.is_multiple_of(2),
            ..Part::naming([0]).with(State::Newcomer)
        };
        std::iter::once(Part::default()).chain((0..n).map(user)).collect()
    };
    assert_eq!(assert_linear("users of two kinds", &by, users), FREE);
}

#[test]
fn a_count_stops_where_the_answer_is_known() {
    let users = |n| {
        let users = vec![Part::naming([0]).with(State::Lives); n];
        let (count, steps) =
            counted(&[vec![Part::default()], users].concat(), &json!({}), usize::MAX);
        assert!(matches!(count, UseCheck::InUse(_)), "{count:?}");
        steps
    };
    assert_eq!(users(2_000), users(4_000));
    // So many owners may be anything: a newcomer that has them counts.
    let owned_by = |n: usize| {
        let user = Part::naming([0]).with(State::Newcomer).owned(2..n + 2);
        let owners = vec![Part::default().with(State::Newcomer); n];
        counted(&[vec![Part::default(), user], owners].concat(), &json!({}), usize::MAX)
    };
    assert_eq!(owned_by(1_000).0, FREE);
    let (count, steps) = owned_by(1_001);
    assert!(matches!(count, UseCheck::InUse(_)) && steps < 100, "{count:?}, {steps} steps");
}

#[test]
fn a_used_up_budget_keeps_the_hold() {
    let (count, steps) = counted(&pairs(300), &json!({}), usize::MAX);
    assert_eq!(count, FREE);
    for most in (0..steps).step_by(97).chain([steps - 1]) {
        let (count, charged) = counted(&pairs(300), &json!({}), most);
        let UseCheck::Unknown(why) = count else { panic!("{most} of {steps} steps: {count:?}") };
        assert_eq!(why, UnknownUse::TooManySteps);
        assert!(charged < most + 2_000, "{charged} steps of {most}");
    }
    assert_eq!(counted(&pairs(300), &json!({}), steps).0, FREE);
}
