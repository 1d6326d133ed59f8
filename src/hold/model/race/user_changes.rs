//! Changes of users by people and controllers during a release.

use super::{Action, RaceModel, State, UserObject, UserState};

impl RaceModel {
    pub(super) fn add_user_changes(&self, state: &State, actions: &mut Vec<Action>) {
        if self.starts_before_delete || self.recreates {
            return;
        }
        for (i, user_state) in state.users.iter().enumerate() {
            match user_state {
                UserState::Exists(user) => {
                    if i == 0 && !user.uses {
                        actions.push(Action::StartUse);
                    }
                    if i == 1 && user.uses {
                        actions.push(Action::StopUse);
                    }
                    if i < 2 && state.users[i + 1] == UserState::NotCreated {
                        actions.push(Action::CreateDependent(i + 1));
                    }
                    actions.push(Action::DeleteUser(i));
                    let below = state.users.get(i + 1).and_then(|below| below.object());
                    if below.is_some_and(|below| below.owned) {
                        actions.push(Action::DeleteAndOrphan(i));
                    }
                }
                UserState::NotCreated if i == 2 => actions.push(Action::CreatePod),
                _ => {}
            }
        }
    }

    pub(super) fn change_users(&self, next: &mut State, action: &Action) -> Option<()> {
        match *action {
            Action::CollectGarbage(i) => {
                next.users[i] = UserState::Deleted;
                return Some(());
            }
            Action::StartUse => {
                let user = next.users[0].object()?;
                next.users[0] =
                    UserState::Exists(UserObject { uses: true, stored_before_pass: false, ..user });
            }
            Action::StopUse => {
                let user = next.users[1].object()?;
                next.users[1] = UserState::Exists(UserObject {
                    uses: false,
                    stored_before_pass: false,
                    ..user
                });
            }
            Action::CreateDependent(i) => {
                let owner = next.users[i - 1].object()?;
                next.users[i] = UserState::Exists(UserObject {
                    uses: owner.uses,
                    owned: true,
                    create_began_after_delete: true,
                    stored_before_pass: owner.stored_before_pass && owner.uses,
                    is_slow_create: false,
                });
            }
            Action::CreatePod => {
                next.users[2] = UserState::Exists(UserObject {
                    uses: true,
                    owned: false,
                    create_began_after_delete: true,
                    stored_before_pass: false,
                    is_slow_create: false,
                });
            }
            Action::DeleteUser(i) => next.users[i] = UserState::Deleted,
            Action::DeleteAndOrphan(i) => {
                next.users[i] = UserState::Deleted;
                let below = next.users[i + 1].object()?;
                next.users[i + 1] = UserState::Exists(UserObject { owned: false, ..below });
            }
            _ => return None,
        }
        next.user_changes_left -= 1;
        Some(())
    }
}
