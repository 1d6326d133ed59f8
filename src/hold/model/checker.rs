//! Runs the model checker, and prints a counterexample as a timeline.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path};

/// A model that can describe its actions.
pub(super) trait Describe: Model {
    /// The time, the actor and the action.
    fn describe(
        &self,
        before: &Self::State,
        action: &Self::Action,
        after: &Self::State,
    ) -> (String, String, String);
}

/// The size of the models: `BELAY_MODEL`, or 1.
pub(super) fn size() -> u8 {
    std::env::var("BELAY_MODEL").ok().and_then(|size| size.parse().ok()).unwrap_or(1)
}

pub(super) fn timeline<M: Describe>(model: &M, path: &[(M::State, Option<M::Action>)]) -> String {
    let mut text = String::new();
    for pair in path.windows(2) {
        let ((before, Some(action)), (after, _)) = (&pair[0], &pair[1]) else { continue };
        let (time, actor, text_of_action) = model.describe(before, action, after);
        let _ = writeln!(text, "  {time:<6} {actor:<10} {text_of_action}");
    }
    text
}

/// Whether the model can reach a state that meets the condition. Tests check this because a promise
/// also holds in a model in which nothing happens.
pub(super) fn reaches<M>(model: &M, condition: impl Fn(&M::State) -> bool) -> bool
where
    M: Model,
    M::State: Clone + Eq + Hash,
{
    let mut next: VecDeque<M::State> = model.init_states().into();
    let mut seen: HashSet<M::State> = next.iter().cloned().collect();
    while let Some(state) = next.pop_front() {
        if condition(&state) {
            return true;
        }
        next.extend(model.next_states(&state).into_iter().filter(|s| seen.insert(s.clone())));
    }
    false
}

/// Checks the properties of a model in all its states. Returns the shortest path to a state in
/// which a property does not hold.
pub(super) fn check<M>(name: &str, model: M) -> Option<Path<M::State, M::Action>>
where
    M: Describe + Send + Sync + Clone + 'static,
    M::State: Clone + std::fmt::Debug + PartialEq + Hash + Send + Sync,
    M::Action: Clone + std::fmt::Debug + PartialEq + Send + Sync,
{
    let started = Instant::now();
    let run = |depth: Option<usize>| {
        let checker = model.clone().checker().finish_when(HasDiscoveries::Any);
        let checker = match depth {
            Some(depth) => checker.target_max_depth(depth),
            None => checker,
        };
        checker.spawn_bfs().join()
    };
    let checker = run(None);
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    let mut counterexample = checker.discoveries().into_iter().next();
    // The checker returns the last path that it found, which may not be the shortest.
    while let Some((_, path)) = &counterexample {
        let steps = path.clone().into_vec().len();
        match run(Some(steps)).discoveries().into_iter().next() {
            Some(shorter) => counterexample = Some(shorter),
            None => break,
        }
    }
    let took = started.elapsed();
    match counterexample {
        None => {
            println!("{name}: holds; {states} states, depth {depth}, {took:.1?}");
            None
        }
        Some((property, path)) => {
            let steps = path.clone().into_vec();
            println!(
                "{name}: \"{property}\" does not hold after {} steps; {states} states, {took:.1?}",
                steps.len() - 1
            );
            println!("{}", timeline(&model, &steps));
            Some(path)
        }
    }
}
