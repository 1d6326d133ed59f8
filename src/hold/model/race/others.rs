//! What people and controllers do to users meanwhile.

use super::{Action, Race, Slot, State, Thing};

impl Race {
    /// What others may do to users.
    pub(super) fn moves(&self, state: &State, actions: &mut Vec<Action>) {
        if self.from_delete || self.recreates {
            return;
        }
        for (i, slot) in state.users.iter().enumerate() {
            match slot {
                Slot::Here(thing) => {
                    if i == 0 && !thing.uses {
                        actions.push(Action::Move);
                    }
                    if i == 1 && thing.uses {
                        actions.push(Action::Drop);
                    }
                    if i < 2 && state.users[i + 1] == Slot::Not {
                        actions.push(Action::Make(i + 1));
                    }
                    actions.push(Action::Remove(i));
                    let below = state.users.get(i + 1).and_then(|slot| slot.thing());
                    if below.is_some_and(|thing| thing.owned) {
                        actions.push(Action::Orphan(i));
                    }
                }
                Slot::Not if i == 2 => actions.push(Action::Bare),
                _ => {}
            }
        }
    }

    pub(super) fn move_users(&self, next: &mut State, action: &Action) -> Option<()> {
        let late = true;
        match *action {
            Action::Collect(i) => {
                next.users[i] = Slot::Gone;
                return Some(());
            }
            Action::Move => {
                let thing = next.users[0].thing()?;
                next.users[0] = Slot::Here(Thing { uses: true, known: false, ..thing });
            }
            Action::Drop => {
                let thing = next.users[1].thing()?;
                next.users[1] = Slot::Here(Thing { uses: false, known: false, ..thing });
            }
            Action::Make(i) => {
                let maker = next.users[i - 1].thing()?;
                let known = maker.known && maker.uses;
                let (uses, owned) = (maker.uses, true);
                next.users[i] = Slot::Here(Thing { uses, owned, late, known, early: false });
            }
            Action::Bare => {
                let (uses, owned, known) = (true, false, false);
                next.users[2] = Slot::Here(Thing { uses, owned, late, known, early: false });
            }
            Action::Remove(i) => next.users[i] = Slot::Gone,
            Action::Orphan(i) => {
                next.users[i] = Slot::Gone;
                let below = next.users[i + 1].thing()?;
                next.users[i + 1] = Slot::Here(Thing { owned: false, ..below });
            }
            _ => return None,
        }
        next.moves -= 1;
        Some(())
    }
}
