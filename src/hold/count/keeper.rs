//! The users that keep a target, by their topmost owners: ten Pods of a Deployment are one cause.

use crate::decide::{Cause, example_rank, object_name};
use crate::graph::Node;

/// A topmost owner whose objects keep the target, with the best example of them.
#[derive(Clone, Copy)]
pub(super) struct Keeper<'a> {
    pub(super) root: Node<'a>,
    pub(super) user: Node<'a>,
    /// The path of the reference in the user.
    pub(super) path: &'a str,
}

impl<'a> Keeper<'a> {
    /// Adds the owner to a list, or the better example to the owner in it.
    pub(super) fn add_to(self, keepers: &mut Vec<Self>) {
        match keepers.iter_mut().find(|keeper| keeper.root.id() == self.root.id()) {
            None => keepers.push(self),
            Some(known) if self.rank() < known.rank() => *known = self,
            Some(_) => {}
        }
    }

    fn rank(&self) -> impl Ord + use<'a> {
        example_rank(self.root, self.user, self.path)
    }

    pub(super) fn cause(&self) -> Cause {
        let Self { root, user, path } = self;
        let through = (root.id() != user.id()).then(|| object_name(*user));
        Cause::User { root: object_name(*root), through, path: (*path).to_owned() }
    }
}
