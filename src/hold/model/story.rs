//! The steps of the checker, in words that a person can follow.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path};

/// A model with a text for each step.
pub(super) trait Narrate: Model {
    /// When it is, who does something, and what it is.
    fn tell(
        &self,
        before: &Self::State,
        action: &Self::Action,
        after: &Self::State,
    ) -> (String, String, String);
}

/// Larger by `BELAY_MODEL`; 1 unless it is set.
pub(super) fn size() -> u8 {
    std::env::var("BELAY_MODEL").ok().and_then(|size| size.parse().ok()).unwrap_or(1)
}

/// A path as a timeline.
pub(super) fn timeline<M: Narrate>(model: &M, path: &[(M::State, Option<M::Action>)]) -> String {
    let mut text = String::new();
    for pair in path.windows(2) {
        let ((before, Some(action)), (after, _)) = (&pair[0], &pair[1]) else { continue };
        let (when, who, what) = model.tell(before, action, after);
        let _ = writeln!(text, "  {when:<6} {who:<10} {what}");
    }
    text
}

/// Whether there is a way to such a state: a promise that is kept because
/// nothing ever happens is none.
pub(super) fn reaches<M>(model: &M, is: impl Fn(&M::State) -> bool) -> bool
where
    M: Model,
    M::State: Clone + Eq + Hash,
{
    let mut next: VecDeque<M::State> = model.init_states().into();
    let mut seen: HashSet<M::State> = next.iter().cloned().collect();
    while let Some(state) = next.pop_front() {
        if is(&state) {
            return true;
        }
        next.extend(model.next_states(&state).into_iter().filter(|s| seen.insert(s.clone())));
    }
    false
}

/// Looks at every state and says whether `holds` does in all of them: if not,
/// the shortest way to one where it does not.
pub(super) fn check<M>(name: &str, model: M) -> Option<Path<M::State, M::Action>>
where
    M: Narrate + Send + Sync + Clone + 'static,
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
    let mut found = checker.discoveries().into_iter().next();
    // The checker gives the last one that it met, not the shortest.
    while let Some((_, path)) = &found {
        let steps = path.clone().into_vec().len();
        match run(Some(steps)).discoveries().into_iter().next() {
            Some(shorter) => found = Some(shorter),
            None => break,
        }
    }
    let took = started.elapsed();
    match found {
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
