//! The actions of users, chosen only by the seed and not by the state of the cluster.

use crate::harness::random::Random;

/// The namespaces of the soak.
pub const ROOMS: [&str; 3] = ["room-0", "room-1", "room-2"];

/// The kinds of objects that users create, use and delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A ConfigMap, which may own others.
    ConfigMap,
    /// A ConfigMap that another one owns.
    Child,
    /// A Secret.
    Secret,
    /// A PersistentVolumeClaim.
    Claim,
    /// A Pod that uses one of each.
    Pod,
    /// A Deployment that does.
    Deployment,
    /// A StatefulSet with its own claims.
    StatefulSet,
    /// A Job that completes.
    Job,
    /// A custom resource that names a ConfigMap.
    Widget,
}

/// An object: a namespace, a kind and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The number of the namespace.
    pub room: usize,
    /// The kind.
    pub kind: Kind,
    /// The number among the objects of the kind.
    pub number: usize,
}

/// The request that removes finalizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strip {
    /// A merge patch with null.
    Merge,
    /// A JSON patch that removes the first.
    Json,
    /// A PUT of the object without finalizers.
    Put,
    /// A merge patch of the status.
    Status,
}

/// An action of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Creates it; users use the objects with these numbers.
    Create { place: Place, uses: [usize; 3], keep: bool, guarded: bool },
    /// Deletes it, in this way if one is named.
    Delete { place: Place, propagation: Option<&'static str> },
    /// Deletes all objects of a kind in a namespace, one by one or as a collection.
    DeleteAll { place: Place, collection: bool },
    /// Adds or removes the label that some policies select by.
    Label { place: Place, keep: bool },
    /// Removes its finalizers.
    Strip { place: Place, how: Strip },
    /// Removes its owner references.
    Disown { place: Place },
    /// Approves its deletion.
    Approve { place: Place, content: bool },
    /// Deletes it and re-creates it at once.
    Recreate { place: Place, uses: [usize; 3], keep: bool },
    /// Scales it.
    Scale { place: Place, replicas: usize },
}

impl Action {
    /// Its name in the report.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Delete { propagation: Some("Orphan"), .. } => "orphan",
            Self::Delete { .. } => "delete",
            Self::DeleteAll { collection: true, .. } => "deletecollection",
            Self::DeleteAll { .. } => "delete all",
            Self::Label { .. } => "label",
            Self::Strip { .. } => "strip",
            Self::Disown { .. } => "disown",
            Self::Approve { .. } => "approve",
            Self::Recreate { .. } => "recreate",
            Self::Scale { .. } => "scale",
        }
    }
}

const KINDS: [(Kind, usize, usize); 9] = [
    // A kind, its weight, and the number of its objects in a namespace.
    (Kind::ConfigMap, 24, 6),
    (Kind::Child, 10, 6),
    (Kind::Secret, 16, 4),
    (Kind::Claim, 12, 3),
    (Kind::Pod, 14, 4),
    (Kind::Deployment, 6, 2),
    (Kind::StatefulSet, 4, 1),
    (Kind::Job, 6, 2),
    (Kind::Widget, 8, 3),
];

fn place(random: &mut Random) -> Place {
    let room = random.below(ROOMS.len());
    let sum = KINDS.iter().map(|(_, weight, _)| weight).sum();
    let mut left = random.below(sum);
    for (kind, weight, count) in KINDS {
        if left < weight {
            return Place { room, kind, number: random.below(count) };
        }
        left -= weight;
    }
    Place { room, kind: Kind::ConfigMap, number: 0 }
}

fn among(random: &mut Random, kinds: &[Kind]) -> Place {
    loop {
        let place = place(random);
        if kinds.contains(&place.kind) {
            return place;
        }
    }
}

/// The next action of a user.
pub fn choose(random: &mut Random) -> Action {
    let place = place(random);
    let uses = [random.below(6), random.below(4), random.below(3)];
    let keep = random.chance(35);
    match random.below(100) {
        0..42 => Action::Create { place, uses, keep, guarded: random.chance(15) },
        42..62 => {
            let ways = [Some("Background"), Some("Background"), Some("Foreground"), None];
            Action::Delete { place, propagation: random.pick(&ways) }
        }
        62..67 => {
            let owners = [Kind::ConfigMap, Kind::Deployment, Kind::StatefulSet];
            Action::Delete { place: among(random, &owners), propagation: Some("Orphan") }
        }
        67..71 => Action::DeleteAll { place, collection: random.chance(60) },
        71..77 => Action::Label { place, keep },
        77..85 => {
            let how = random.pick(&[Strip::Merge, Strip::Json, Strip::Put, Strip::Status]);
            let kinds = [Kind::ConfigMap, Kind::Secret, Kind::Claim, Kind::Child, Kind::Widget];
            Action::Strip { place: among(random, &kinds), how }
        }
        85..87 => Action::Disown { place: among(random, &[Kind::Child]) },
        87..92 => Action::Approve { place, content: random.chance(20) },
        92..97 => Action::Recreate { place, uses, keep },
        _ => {
            let kinds = [Kind::Deployment, Kind::StatefulSet];
            Action::Scale { place: among(random, &kinds), replicas: random.below(3) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story(seed: u64, user: u64) -> Vec<Action> {
        let mut random = Random::new(seed, user);
        (0..500).map(|_| choose(&mut random)).collect()
    }

    #[test]
    fn the_seed_and_nothing_else_chooses() {
        assert_eq!(story(7, 0), story(7, 0));
        assert_ne!(story(7, 0), story(8, 0));
        assert_ne!(story(7, 0), story(7, 1));
    }

    #[test]
    fn everything_is_done_to_everything_in_the_end() {
        let story: Vec<_> = (0..20).flat_map(|user| story(1, user)).collect();
        let mut names: Vec<_> = story.iter().map(Action::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 11, "{names:?}");
        for (kind, _, _) in KINDS {
            let deleted =
                |a: &Action| matches!(a, Action::Delete { place, .. } if place.kind == kind);
            assert!(story.iter().any(deleted), "{kind:?}");
        }
    }
}
