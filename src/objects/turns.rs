//! Orders lists so that namespaces take turns. Otherwise one namespace could hide the objects of
//! others in a truncated list (H123, H133). Cluster-scoped objects count as one namespace.

use std::collections::HashMap;
use std::hash::Hash;

/// The positions of a list in the order of turns: the first item of each namespace, then the
/// second of each.
pub fn in_turns<N: Eq + Hash>(namespaces: impl Iterator<Item = N>) -> Vec<usize> {
    let mut counts: HashMap<N, usize> = HashMap::new();
    let mut turns: Vec<(usize, usize)> = namespaces
        .enumerate()
        .map(|(position, namespace)| {
            let count = counts.entry(namespace).or_default();
            *count += 1;
            (*count, position)
        })
        .collect();
    turns.sort_unstable();
    turns.into_iter().map(|(_, position)| position).collect()
}

/// Returns all items: first the `limit` items whose turn comes earliest, then the others. Both
/// parts keep the order of `items`.
pub fn order_by_turns<'i, T, N: Eq + Hash>(
    items: &'i [T],
    limit: usize,
    namespace: impl Fn(&'i T) -> N,
) -> Vec<&'i T> {
    let mut positions = in_turns(items.iter().map(namespace));
    let (first, rest) = positions.split_at_mut(limit.min(items.len()));
    first.sort_unstable();
    rest.sort_unstable();
    positions.iter().filter_map(|position| items.get(*position)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h133_the_items_of_one_namespace_cannot_hide_others() {
        let items = ["eve1", "eve2", "eve3", "dev1", "eve4", "ops1", "dev2"];
        let namespace = |item: &&'static str| &item[..3];
        let first = |limit| order_by_turns(&items, limit, namespace).into_iter().copied();
        assert_eq!(first(3).collect::<Vec<_>>().join(" "), "eve1 dev1 ops1 eve2 eve3 eve4 dev2");
        assert_eq!(first(4).take(4).collect::<Vec<_>>(), ["eve1", "eve2", "dev1", "ops1"]);
        assert!(first(9).eq(items));
        assert_eq!(in_turns(items.iter().map(namespace)), [0, 3, 5, 1, 6, 2, 4]);
    }
}
