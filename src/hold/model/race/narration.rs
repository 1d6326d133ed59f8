//! The steps of the race, in words.

use super::super::story::Narrate;
use super::{Action, RaceModel, Request, State, TICK, USERS, UserState};

const LEADERS: [&str; 2] = ["leader A", "leader B"];

impl Narrate for RaceModel {
    fn tell(&self, before: &State, action: &Action, after: &State) -> (String, String, String) {
        let when = match self.ticks {
            0 => String::new(),
            _ => format!("{} s", u64::from(before.now) * TICK),
        };
        let (who, mut what) = self.sentence(before, action);
        if before.target.is_some() && after.target.is_none() {
            what.push_str(": the hold goes, and Secret s with it");
        } else if let Action::Land(l) = action {
            what.push_str(outcome(before, after, *l));
        }
        if let Some(broken) = after.broken.filter(|_| before.broken.is_none()) {
            what.push_str(&format!("  <-- {broken:?}"));
        }
        (when, who.to_owned(), what)
    }
}

fn outcome(before: &State, after: &State, l: usize) -> &'static str {
    let Some(Request::Write(_)) = &before.leaders[l].request else { return "" };
    if before.target == after.target { ": refused" } else { ": stored" }
}

impl RaceModel {
    fn sentence(&self, state: &State, action: &Action) -> (&'static str, String) {
        let kind = |i: usize| USERS[i].1;
        let write = |lists: bool, token: &str| {
            if lists {
                format!("removes the hold, for token {token}")
            } else {
                format!("writes token {token}")
            }
        };
        match action {
            Action::Tick => ("time", format!("{TICK} seconds pass")),
            Action::Delete => ("a user", "deletes Secret s, which is held: Terminating".into()),
            Action::Watch(l) => {
                (LEADERS[*l], "sees by its watch that Secret s is Terminating".into())
            }
            Action::Look(l) => (LEADERS[*l], "begins a pass".into()),
            Action::Land(l) => (
                LEADERS[*l],
                match &state.leaders[*l].request {
                    Some(Request::Get) => "reads Secret s".into(),
                    Some(Request::Write(w)) => write(w.lists.is_some(), w.token()),
                    Some(Request::List(i, _)) => {
                        let found = match self.shown(state, *l)[*i] {
                            UserState::Exists(thing) if thing.uses => "one that needs Secret s",
                            UserState::Exists(_) => "one that does not need it",
                            _ => "none",
                        };
                        let lists =
                            if self.guards.live { "lists" } else { "looks in its cache for" };
                        format!("{lists} {}s: there is {found}", kind(*i))
                    }
                    None => String::new(),
                },
            ),
            Action::RequestResult(l) => (LEADERS[*l], "looks at the answer".into()),
            Action::Lose(l) => (
                LEADERS[*l],
                match &state.leaders[*l].request {
                    Some(Request::Write(w)) => {
                        let what = write(w.lists.is_some(), w.token());
                        format!("{what}: no answer; the write is still under way")
                    }
                    _ => "gets no answer to what it reads".into(),
                },
            ),
            Action::Stray(l) => (
                LEADERS[*l],
                match &state.leaders[*l].abandoned_write {
                    Some(w) => {
                        format!("(the late write lands) {}", write(w.lists.is_some(), w.token()))
                    }
                    None => String::new(),
                },
            ),
            Action::Never(l) => (LEADERS[*l], "(the late write never lands)".into()),
            Action::Sync(l) => (LEADERS[*l], "(its cache catches up)".into()),
            Action::Begin => ("a user", "begins to create a Pod that needs Secret s".into()),
            Action::Stored => ("API server", "stores the Pod that needs Secret s".into()),
            Action::Move => ("a user", "edits the Deployment: now it needs Secret s".into()),
            Action::Drop => ("a user", "edits the ReplicaSet: it no longer needs Secret s".into()),
            Action::Make(i) => {
                ("controller", format!("of the {} makes a {}", kind(i - 1), kind(*i)))
            }
            Action::Bare => ("a user", "makes a Pod that needs Secret s".into()),
            Action::Remove(i) => ("a user", format!("deletes the {}", kind(*i))),
            Action::Orphan(i) => {
                ("a user", format!("deletes the {}, orphaning the {}", kind(*i), kind(i + 1)))
            }
            Action::Collect(i) => {
                ("collector", format!("deletes the {}, whose owner is gone", kind(*i)))
            }
            Action::Export => {
                ("a user", "keeps the manifest of Secret s, annotations and all".into())
            }
            Action::Remake => {
                ("a user", "re-creates Secret s from that manifest, and deletes it".into())
            }
        }
    }
}
