//! Fates against the collector played through in every order, and the rules
//! one by one.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde::Deserialize as _;
use serde_json::json;

use super::oracle::{Obj, Ref, Rules, State};
use super::*;
use crate::graph::{Edges, Progress};
use crate::objects::Object;

const QUIET: Rules = Rules { strip: false, errors_dangle: false };

/// The graph of a state: ConfigMaps in one namespace.
fn graph_of(state: &State) -> Graph {
    let mut graph = Graph::default();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    graph.set_complete(kind, true);
    for (place, object) in &state.objects {
        let refs: Vec<_> = object
            .refs
            .iter()
            .map(|r| {
                json!({
                    "apiVersion": if r.error { "unknown.example.com/v1" } else { "v1" },
                    "kind": if r.error { "Unknown" } else { "ConfigMap" },
                    "name": format!("c{}", r.place),
                    "uid": uid(r.uid),
                    "blockOwnerDeletion": r.blocking,
                })
            })
            .collect();
        let finalizers: Vec<_> = [
            (object.foreground, FOREGROUND),
            (object.orphan, ORPHAN),
            (object.other, "example.com/other"),
        ]
        .into_iter()
        .filter_map(|(has, name)| has.then_some(name))
        .collect();
        let mut metadata = json!({
            "name": format!("c{place}"), "namespace": "n", "uid": uid(*place),
            "ownerReferences": refs, "finalizers": finalizers,
        });
        if object.terminating {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let manifest = json!({"metadata": metadata});
        let object = Object::deserialize(&manifest).unwrap();
        graph.apply(kind, &object, Progress::Ordinary, Edges::default());
    }
    graph
}

fn uid(place: usize) -> String {
    format!("00000000-0000-4000-8000-{place:012}")
}

fn node(graph: &Graph, place: usize) -> Option<NodeId> {
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    graph.find(kind, "n", &format!("c{place}"))
}

/// Whether the prediction for every object agrees with every end.
fn check(state: &State, targets: &[(usize, Propagation)], most: usize) -> Result<bool, String> {
    let graph = graph_of(state);
    let nodes: Vec<_> =
        targets.iter().filter_map(|(place, p)| Some((node(&graph, *place)?, *p))).collect();
    let refuses = |n: Node<'_>| {
        let place: usize = n.name()[1..].parse().unwrap();
        state.objects.get(&place).is_some_and(|o| o.refuses)
    };
    let request = Request { targets: &nodes, cut: &refuses, limit: usize::MAX };
    let fates = fates(&graph, &request);

    let mut start = State { requests: targets.to_vec(), ..state.clone() };
    let terminating = state.objects.iter().filter(|(_, object)| object.terminating);
    let before = terminating.map(|(place, _)| *place);
    start.before = before.filter(|p| !targets.iter().any(|(target, _)| target == p)).collect();
    let mut ends = Vec::new();
    let mut stripped = Vec::new();
    for errors_dangle in [false, true] {
        let quiet = Rules { errors_dangle, ..QUIET };
        let Some(some) = start.clone().ends(quiet, most) else { return Ok(false) };
        ends.extend(some);
        let Some(some) = start.clone().ends(Rules { strip: true, ..quiet }, most) else {
            return Ok(false);
        };
        stripped.extend(some);
    }

    for (place, before) in &state.objects {
        let fate = node(&graph, *place).and_then(|id| fates.get(id));
        let lost = matches!(fate, Some(Fate { outcome: Outcome::Deleted | Outcome::Held, .. }));
        for end in &ends {
            let after = end.objects.get(place);
            let gone = after.is_none();
            let newly_terminating = after.is_some_and(|a| a.terminating && !before.terminating);
            let orphaned = after.is_some_and(|a| a.orphaned && !before.orphaned);
            let wrong = match fate {
                // What is Terminating already may end when this one does.
                None => gone && !before.terminating || newly_terminating || orphaned,
                Some(Fate { outcome, certainty: Certainty::Certain }) => match outcome {
                    Outcome::Deleted => !gone,
                    Outcome::Held => !after.is_some_and(|a| a.terminating),
                    Outcome::Orphaned => gone || newly_terminating || !orphaned,
                    Outcome::Broken => true,
                },
                Some(_) => (gone || newly_terminating) && !lost,
            };
            if wrong {
                return Err(format!(
                    "c{place} has the fate {fate:?}, but ends as {after:?}\ntargets {targets:?}\nbefore {:#?}\nafter {:#?}",
                    state.objects, end.objects
                ));
            }
        }
        let may_vanish = stripped.iter().any(|end| !end.objects.contains_key(place));
        // What is Terminating already is on its way by itself (R4).
        if may_vanish && !lost && !before.terminating {
            return Err(format!(
                "c{place} has the fate {fate:?}, but goes when finalizers are taken off\ntargets {targets:?}\nbefore {:#?}",
                state.objects
            ));
        }
    }
    Ok(true)
}

fn propagation() -> impl Strategy<Value = Propagation> {
    prop_oneof![
        Just(Propagation::Background),
        Just(Propagation::Foreground),
        Just(Propagation::Orphan)
    ]
}

/// Objects with owners among themselves: cycles, several owners, wrong
/// coordinates, unknown kinds, finalizers, refusals.
fn objects(most: usize) -> impl Strategy<Value = Vec<Obj>> {
    (2..=most).prop_flat_map(|count| {
        let reference = (0..count, any::<bool>(), 0..20u8, 0..count).prop_map(
            |(place, blocking, odd, other)| Ref {
                place,
                // One in twenty names another uid, one in twenty an object of
                // a kind that nobody serves.
                uid: match odd {
                    0 => other,
                    1 => 50 + place,
                    _ => place,
                },
                blocking,
                error: odd == 1,
            },
        );
        let object = (
            prop::collection::vec(reference, 0..3),
            prop::bool::weighted(0.08),
            prop::bool::weighted(0.08),
            prop::bool::weighted(0.2),
            prop::bool::weighted(0.07),
        )
            .prop_map(|(mut refs, foreground, orphan, other, refuses)| {
                refs.sort();
                refs.dedup_by_key(|r| r.uid);
                // An item that an error saves keeps references that the
                // collector would have taken off (see `World::blockers`).
                if refs.iter().any(|r| r.error) {
                    refs.iter_mut().filter(|r| !r.error).for_each(|r| r.uid = r.place);
                    refs.dedup_by_key(|r| r.uid);
                }
                // Both at once is what no DELETE makes.
                Obj {
                    refs,
                    foreground: foreground && !orphan,
                    orphan,
                    other,
                    refuses,
                    ..Obj::default()
                }
            });
        prop::collection::vec(object, count)
    })
}

fn runner(variable: &str, default: u32) -> TestRunner {
    let cases = std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

/// One deletion, and then, in what it left, another one: that is how objects
/// come to be Terminating, held and waiting.
#[test]
fn fates_agree_with_the_collector_in_every_order() {
    let deletion = || prop::collection::vec((0..5usize, propagation()), 1..3);
    let followed = std::cell::Cell::new(0);
    let strategy = (objects(5), deletion(), deletion());
    runner("BELAY_FATES_CASES", 3000)
        .run(&strategy, |(objects, first, second)| {
            let mut settled = State::new(objects).settle(QUIET);
            settled.objects.values_mut().for_each(|o| o.orphaned = false);
            let check = |state: &State, deletion: &[(usize, Propagation)]| {
                let mut targets = deletion.to_vec();
                targets.retain(|(place, _)| state.objects.contains_key(place));
                targets.sort_by_key(|(place, _)| *place);
                targets.dedup_by_key(|(place, _)| *place);
                match check(state, &targets, 20_000) {
                    Ok(true) => followed.set(followed.get() + 1),
                    Ok(false) => {}
                    Err(why) => return Err(TestCaseError::fail(why)),
                }
                Ok(targets)
            };
            let targets = check(&settled, &first)?;
            let mut after = State { requests: targets, ..settled }.settle(QUIET);
            after.objects.values_mut().for_each(|o| o.orphaned = false);
            check(&after, &second)?;
            Ok(())
        })
        .unwrap();
    // A strategy whose cases are all too large would test nothing.
    assert!(followed.get() > 1000, "only {} cases were small enough", followed.get());
}
