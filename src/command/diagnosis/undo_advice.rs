//! The rights that every undo of an object needs, for commands that advise an undo.

use std::collections::HashMap;

use futures_util::future::join_all;

use crate::command::session::UserSession;
use crate::objects::{CLAIMS, ObjectRef};

/// Every kind of every group.
const EVERYTHING: (&str, &str) = ("*", "*");

/// Advises to undo deletions. It asks once for the rights on a kind in a namespace.
pub struct UndoAdviser<'s> {
    session: &'s UserSession,
    /// Whether the user lacks rights, by group, resource and namespace.
    lacking: HashMap<(String, String, String), bool>,
}

impl<'s> UndoAdviser<'s> {
    pub fn new(session: &'s UserSession) -> Self {
        Self { session, lacking: HashMap::new() }
    }

    /// The advice to undo the deletion of an object: the command, or who can run it if the user lacks
    /// the rights.
    pub async fn advice(&mut self, object: &ObjectRef) -> String {
        let command = format!("kubectl belay undo {}", object.arguments());
        match !self.session.asks_files() && self.lacks_rights(object).await {
            true => format!("have an administrator run {command}"),
            false => command,
        }
    }

    async fn lacks_rights(&mut self, object: &ObjectRef) -> bool {
        let (group, resource) = (object.group.clone(), object.resource.clone());
        let key = (group, resource, object.own_namespace().to_owned());
        if let Some(lacking) = self.lacking.get(&key) {
            return *lacking;
        }
        let lacking = lacks_rights(self.session, object).await;
        self.lacking.insert(key, lacking);
        lacking
    }
}

async fn lacks_rights(session: &UserSession, object: &ObjectRef) -> bool {
    let own_kind = (object.group.as_str(), object.resource.as_str());
    // An undo reads all kinds, so that it misses no dependent.
    let mut needed = vec![
        ("list", EVERYTHING, object.own_namespace()),
        ("create", own_kind, object.namespace.as_str()),
    ];
    if object.is_namespace() {
        needed.push(("create", EVERYTHING, ""));
    }
    if object.is_of(CLAIMS) {
        needed.push(("patch", ("", "persistentvolumes"), ""));
    }
    let answers = needed.into_iter().map(|(verb, kind, namespace)| {
        // Unknown rights count as present: the advice is then the command.
        session.caller.may(verb, kind, (namespace, ""))
    });
    join_all(answers).await.contains(&Some(false))
}
