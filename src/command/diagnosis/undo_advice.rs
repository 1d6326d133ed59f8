//! The rights that every undo of an object needs, for commands that advise an undo.

use futures_util::future::join_all;

use crate::command::session::UserSession;
use crate::objects::{CLAIMS, ObjectRef};

/// Every kind of every group.
const EVERYTHING: (&str, &str) = ("*", "*");

/// The advice to undo the deletion of an object: the command, or who can run it if the user lacks
/// the rights.
pub async fn undo_advice(session: &UserSession, object: &ObjectRef) -> String {
    let command = format!("kubectl belay undo {}", object.arguments());
    match !session.asks_files() && lacks_rights(session, object).await {
        true => format!("have an administrator run {command}"),
        false => command,
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
        // The text names the undo even if the rights are unknown.
        session.caller.may(verb, kind, (namespace, ""))
    });
    join_all(answers).await.contains(&Some(false))
}
