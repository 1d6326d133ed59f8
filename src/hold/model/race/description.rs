//! Describes the actions of the model.

use super::super::checker::Describe;
use super::{Action, RaceModel, Request, State, TICK, USER_KINDS, UserState};

const LEADERS: [&str; 2] = ["leader A", "leader B"];

impl Describe for RaceModel {
    fn describe(&self, before: &State, action: &Action, after: &State) -> (String, String, String) {
        let when = match self.ticks {
            0 => String::new(),
            _ => format!("{} s", u64::from(before.now) * TICK),
        };
        let (who, mut what) = self.sentence(before, action);
        if before.target.is_some() && after.target.is_none() {
            what.push_str(": the API server deletes Secret s");
        } else if let Action::Execute(l) = action {
            what.push_str(write_result(before, after, *l));
        }
        if let Some(violation) = after.violation.filter(|_| before.violation.is_none()) {
            what.push_str(&format!("  <-- {violation:?}"));
        }
        (when, who.to_owned(), what)
    }
}

fn write_result(before: &State, after: &State, l: usize) -> &'static str {
    let Some(Request::Write(_)) = &before.leaders[l].request else { return "" };
    if before.target == after.target { ": conflict" } else { ": stored" }
}

impl RaceModel {
    fn sentence(&self, state: &State, action: &Action) -> (&'static str, String) {
        let kind = |i: usize| USER_KINDS[i].1;
        let write = |is_removal: bool, token: &str| {
            if is_removal {
                format!("removes the hold, for token {token}")
            } else {
                format!("writes token {token}")
            }
        };
        match action {
            Action::Tick => ("time", format!("{TICK} seconds pass")),
            Action::DeleteTarget => {
                ("a user", "deletes Secret s, which is held: Terminating".into())
            }
            Action::ObserveDeletion(l) => {
                (LEADERS[*l], "sees by its watch that Secret s is Terminating".into())
            }
            Action::StartPass(l) => (LEADERS[*l], "begins a pass".into()),
            Action::Execute(l) => (
                LEADERS[*l],
                match &state.leaders[*l].request {
                    Some(Request::Get) => "reads Secret s".into(),
                    Some(Request::Write(w)) => write(w.is_removal(), w.token()),
                    Some(Request::Lists(_)) | None => String::new(),
                },
            ),
            Action::ExecuteList(l, i) => {
                let found = match self.visible_users(state, *l)[*i] {
                    UserState::Exists(user) if user.uses => "one that uses Secret s",
                    UserState::Exists(_) => "one that does not use it",
                    _ => "none",
                };
                let live = self.guards.live && self.guards.lists_after_token;
                let lists = if live { "lists" } else { "reads from its cache" };
                (LEADERS[*l], format!("{lists} {}s: {found}", kind(*i)))
            }
            Action::UseAnswer(l) => (LEADERS[*l], "uses the answer".into()),
            Action::LoseAnswer(l) => (
                LEADERS[*l],
                match &state.leaders[*l].request {
                    Some(Request::Write(w)) => {
                        let what = write(w.is_removal(), w.token());
                        format!("{what}: no answer yet")
                    }
                    _ => "gets no answer to its read".into(),
                },
            ),
            Action::ExecuteAbandoned(l) => (
                LEADERS[*l],
                match &state.leaders[*l].abandoned_write {
                    Some(w) => {
                        format!("(late write) {}", write(w.is_removal(), w.token()))
                    }
                    None => String::new(),
                },
            ),
            Action::DropAbandoned(l) => (LEADERS[*l], "(the late write is lost)".into()),
            Action::UpdateCache(l) => (LEADERS[*l], "(its cache becomes current)".into()),
            Action::BeginCreate => ("a user", "begins to create a Pod that uses Secret s".into()),
            Action::StoreCreate => ("API server", "stores the Pod that uses Secret s".into()),
            Action::StartUse => ("a user", "edits the Deployment: now it uses Secret s".into()),
            Action::StopUse => {
                ("a user", "edits the ReplicaSet: it no longer uses Secret s".into())
            }
            Action::CreateDependent(i) => {
                ("controller", format!("of the {} creates a {}", kind(i - 1), kind(*i)))
            }
            Action::CreatePod => ("a user", "creates a Pod that uses Secret s".into()),
            Action::DeleteUser(i) => ("a user", format!("deletes the {}", kind(*i))),
            Action::DeleteAndOrphan(i) => {
                ("a user", format!("deletes the {}, orphaning the {}", kind(*i), kind(i + 1)))
            }
            Action::CollectGarbage(i) => {
                ("collector", format!("deletes the {}, whose owner was deleted", kind(*i)))
            }
            Action::ExportTarget => {
                ("a user", "exports the manifest of Secret s with its annotations".into())
            }
            Action::RecreateTarget => {
                ("a user", "re-creates Secret s from that manifest, and deletes it".into())
            }
        }
    }
}
