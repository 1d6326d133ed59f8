//! The cycles of a graph of numbers.

use std::collections::BTreeSet;

/// The strongly connected components: the members of a component reach each other. Each component
/// is sorted, and so is the list of components.
pub(super) fn components(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut reversed = vec![Vec::new(); edges.len()];
    for (from, to) in edges.iter().enumerate() {
        to.iter().for_each(|to| reversed[*to].push(from));
    }
    let mut components: Vec<Vec<usize>> = Vec::new();
    let mut seen = vec![false; edges.len()];
    for start in postorder(edges).into_iter().rev() {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let (mut component, mut next) = (vec![start], 0);
        while let Some(node) = component.get(next).copied() {
            next += 1;
            for other in &reversed[node] {
                if !std::mem::replace(&mut seen[*other], true) {
                    component.push(*other);
                }
            }
        }
        component.sort_unstable();
        components.push(component);
    }
    components.sort_unstable();
    components
}

/// All nodes, in the order in which a depth-first search leaves them.
fn postorder(edges: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut finished = Vec::with_capacity(edges.len());
    let mut seen = vec![false; edges.len()];
    for start in 0..edges.len() {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let mut path = vec![(start, edges[start].iter())];
        while let Some((node, others)) = path.last_mut() {
            match others.next() {
                None => {
                    finished.push(*node);
                    path.pop();
                }
                Some(other) if !std::mem::replace(&mut seen[*other], true) => {
                    path.push((*other, edges[*other].iter()));
                }
                Some(_) => {}
            }
        }
    }
    finished
}
