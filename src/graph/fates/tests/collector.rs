//! Random objects: the fates agree with the garbage collector, in every order of its work.

use super::*;

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
                    "name": format!("c{}", r.number),
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
        graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
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

/// Checks that the fate of every object agrees with every final state. `None` if there are
/// too many states.
fn check(
    state: &State,
    targets: &[(usize, Propagation)],
    limit: usize,
) -> Result<Option<Tightness>, String> {
    let mut tightness = Tightness::default();
    let graph = graph_of(state);
    let nodes: Vec<_> =
        targets.iter().filter_map(|(number, p)| Some((node(&graph, *number)?, *p))).collect();
    let refuses = |n: Node<'_>| {
        let number: usize = n.name()[1..].parse().unwrap();
        state.objects.get(&number).is_some_and(|o| o.refuses)
    };
    let request = DeletionRequest { refuses: &refuses, ..DeletionRequest::new(&nodes) };
    let fates = fates(&graph, &request);

    let mut start = State { requests: targets.to_vec(), ..state.clone() };
    let terminating = state.objects.iter().filter(|(_, object)| object.terminating);
    let numbers = terminating.map(|(number, _)| *number);
    let is_target = |number: &usize| targets.iter().any(|(target, _)| target == number);
    start.terminating_at_start = numbers.filter(|number| !is_target(number)).collect();
    let mut ends = Vec::new();
    let mut stripped = Vec::new();
    for errors_dangle in [false, true] {
        let quiet = Rules { errors_dangle, ..QUIET };
        let Some(states) = start.clone().ends(quiet, limit) else { return Ok(None) };
        ends.extend(states);
        let Some(states) = start.clone().ends(Rules { strip: true, ..quiet }, limit) else {
            return Ok(None);
        };
        stripped.extend(states);
    }

    for (number, before) in &state.objects {
        let fate = node(&graph, *number).and_then(|id| fates.get(id));
        let lost = matches!(
            fate,
            Some(Fate { outcome: DeletionOutcome::Deleted | DeletionOutcome::Terminating, .. })
        );
        for end in &ends {
            let after = end.objects.get(number);
            let deleted = after.is_none();
            let newly_terminating = after.is_some_and(|a| a.terminating && !before.terminating);
            let orphaned = after.is_some_and(|a| a.orphaned && !before.orphaned);
            // The garbage collector may remove the reference before it orphans the object,
            // because of another owner.
            let lost_an_owner = after.is_some_and(|a| a.refs.len() < before.refs.len());
            let wrong = match fate {
                // An object that was Terminating before may be removed without a fate.
                None => deleted && !before.terminating || newly_terminating || orphaned,
                Some(Fate { outcome, certainty: Certainty::Certain }) => match outcome {
                    DeletionOutcome::Deleted => !deleted,
                    DeletionOutcome::Terminating => !after.is_some_and(|a| a.terminating),
                    DeletionOutcome::Orphaned => deleted || newly_terminating || !lost_an_owner,
                },
                Some(_) => (deleted && !before.terminating || newly_terminating) && !lost,
            };
            if wrong {
                return Err(format!(
                    "c{number} has the fate {fate:?}, but ends as {after:?}\ntargets {targets:?}\nbefore {:#?}\nafter {:#?}",
                    state.objects, end.objects
                ));
            }
        }
        match fate.map(|fate| fate.certainty) {
            Some(Certainty::Certain) => tightness.certain += 1,
            Some(Certainty::Possible) => {
                let states = ends.iter().chain(&stripped).map(|end| {
                    let after = end.objects.get(number);
                    (after.is_some(), after.is_some_and(|a| a.terminating))
                });
                let distinct: std::collections::BTreeSet<_> = states.collect();
                tightness.loose += usize::from(distinct.len() == 1);
            }
            None => {}
        }
        let may_vanish = stripped.iter().any(|end| !end.objects.contains_key(number));
        // The deletion of Terminating objects continues without the request (R4).
        if may_vanish && !lost && !before.terminating {
            return Err(format!(
                "c{number} has the fate {fate:?}, but is deleted without finalizers\ntargets \
                 {targets:?}\nbefore {:#?}",
                state.objects
            ));
        }
    }
    Ok(Some(tightness))
}

fn propagation() -> impl Strategy<Value = Propagation> {
    prop_oneof![
        Just(Propagation::Background),
        Just(Propagation::Foreground),
        Just(Propagation::Orphan)
    ]
}

/// Objects that own each other: cycles, several owners, wrong uids, unknown kinds,
/// finalizers, denied deletions.
fn objects(max_count: usize) -> impl Strategy<Value = Vec<Obj>> {
    (2..=max_count).prop_flat_map(|count| {
        let reference = (0..count, any::<bool>(), 0..20u8, 0..count).prop_map(
            |(number, blocking, odd, other)| Ref {
                number,
                // One in twenty names another uid, one in twenty an object of a kind that is
                // not served.
                uid: match odd {
                    0 => other,
                    1 => 50 + number,
                    _ => number,
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
                // An unresolvable reference keeps the item and all its references, even if the
                // garbage collector would otherwise remove some (R2). So the others are correct.
                if refs.iter().any(|r| r.error) {
                    refs.iter_mut().filter(|r| !r.error).for_each(|r| r.uid = r.number);
                    refs.dedup_by_key(|r| r.uid);
                }
                // No DELETE adds both finalizers.
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

/// Generates the same cases in every run. `BELAY_FATES_CASES` sets their number, and
/// `BELAY_FATES_SEED` selects other cases.
fn runner(default: u32) -> TestRunner {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u32>().ok());
    let cases = number("BELAY_FATES_CASES").unwrap_or(default);
    let seed = number("BELAY_FATES_SEED").unwrap_or(1);
    println!("BELAY_FATES_SEED={seed} BELAY_FATES_CASES={cases}");
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
}

/// Runs one deletion, and then another one on the resulting objects, which may be
/// Terminating or waiting.
#[test]
fn fates_agree_with_the_collector_in_every_order() {
    let deletion = || prop::collection::vec((0..5usize, propagation()), 1..3);
    let followed = std::cell::Cell::new(0);
    let total = std::cell::Cell::new(Tightness::default());
    let strategy = (objects(5), deletion(), deletion());
    runner(3000)
        .run(&strategy, |(objects, first, second)| {
            let mut settled = State::new(objects).settle(QUIET);
            settled.objects.values_mut().for_each(|o| o.orphaned = false);
            let check = |state: &State, deletion: &[(usize, Propagation)]| {
                let mut targets = deletion.to_vec();
                targets.retain(|(number, _)| state.objects.contains_key(number));
                targets.sort_by_key(|(number, _)| *number);
                targets.dedup_by_key(|(number, _)| *number);
                match check(state, &targets, 20_000) {
                    Ok(Some(tightness)) => {
                        followed.set(followed.get() + 1);
                        let Tightness { certain, loose } = total.get();
                        total.set(Tightness {
                            certain: certain + tightness.certain,
                            loose: loose + tightness.loose,
                        });
                    }
                    Ok(None) => {}
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
    // The test would be useless if all cases were too large or no fate were certain.
    let (followed, total) = (followed.get(), total.get());
    println!("{followed} deletions followed, {total:?}");
    assert!(followed > 0, "no case was small enough");
    assert!(total.certain > 5 * total.loose, "{total:?}");
}
