//! The users that block the removal of a hold, by their topmost owners: ten Pods of a Deployment
//! are one cause.

use crate::decide::{Cause, example_rank, object_name};
use crate::graph::Node;

/// A topmost owner of users, with the best example of them.
#[derive(Clone, Copy)]
pub(super) struct BlockingUser<'a> {
    pub(super) owner: Node<'a>,
    pub(super) user: Node<'a>,
    /// The path of the reference in the user.
    pub(super) path: &'a str,
}

impl<'a> BlockingUser<'a> {
    /// Adds the owner to a list. If the list has the owner already, keeps the better example.
    pub(super) fn add_to(self, known_users: &mut Vec<Self>) {
        match known_users.iter_mut().find(|known| known.owner.id() == self.owner.id()) {
            None => known_users.push(self),
            Some(known) if self.rank() < known.rank() => *known = self,
            Some(_) => {}
        }
    }

    fn rank(&self) -> impl Ord + use<'a> {
        example_rank(self.owner, self.user, self.path)
    }

    pub(super) fn cause(&self) -> Cause {
        let Self { owner, user, path } = self;
        let named_user = (owner.id() != user.id()).then(|| object_name(*user));
        Cause::User { owner: object_name(*owner), user: named_user, path: (*path).to_owned() }
    }
}
