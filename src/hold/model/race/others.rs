//! What people and controllers do to users meanwhile.

use super::{Action, RaceModel, State, UserObject, UserState};

impl RaceModel {
    /// What others may do to users.
    pub(super) fn moves(&self, state: &State, actions: &mut Vec<Action>) {
        if self.from_delete || self.recreates {
            return;
        }
        for (i, slot) in state.users.iter().enumerate() {
            match slot {
                UserState::Exists(thing) => {
                    if i == 0 && !thing.uses {
                        actions.push(Action::Move);
                    }
                    if i == 1 && thing.uses {
                        actions.push(Action::Drop);
                    }
                    if i < 2 && state.users[i + 1] == UserState::NotCreated {
                        actions.push(Action::Make(i + 1));
                    }
                    actions.push(Action::Remove(i));
                    let below = state.users.get(i + 1).and_then(|slot| slot.object());
                    if below.is_some_and(|thing| thing.owned) {
                        actions.push(Action::Orphan(i));
                    }
                }
                UserState::NotCreated if i == 2 => actions.push(Action::Bare),
                _ => {}
            }
        }
    }

    pub(super) fn move_users(&self, next: &mut State, action: &Action) -> Option<()> {
        let late = true;
        match *action {
            Action::Collect(i) => {
                next.users[i] = UserState::Deleted;
                return Some(());
            }
            Action::Move => {
                let thing = next.users[0].object()?;
                next.users[0] = UserState::Exists(UserObject { uses: true, known: false, ..thing });
            }
            Action::Drop => {
                let thing = next.users[1].object()?;
                next.users[1] =
                    UserState::Exists(UserObject { uses: false, known: false, ..thing });
            }
            Action::Make(i) => {
                let maker = next.users[i - 1].object()?;
                let known = maker.known && maker.uses;
                let (uses, owned) = (maker.uses, true);
                next.users[i] = UserState::Exists(UserObject {
                    uses,
                    owned,
                    created_after_delete: late,
                    known,
                    created_before_delete: false,
                });
            }
            Action::Bare => {
                let (uses, owned, known) = (true, false, false);
                next.users[2] = UserState::Exists(UserObject {
                    uses,
                    owned,
                    created_after_delete: late,
                    known,
                    created_before_delete: false,
                });
            }
            Action::Remove(i) => next.users[i] = UserState::Deleted,
            Action::Orphan(i) => {
                next.users[i] = UserState::Deleted;
                let below = next.users[i + 1].object()?;
                next.users[i + 1] = UserState::Exists(UserObject { owned: false, ..below });
            }
            _ => return None,
        }
        next.moves -= 1;
        Some(())
    }
}
