//! What every undo of an object needs, for commands that advise an undo: rights, and its CRD.

use std::collections::HashMap;

use futures_util::future::join_all;

use crate::cluster::Caller;
use crate::command::session::UserSession;
use crate::objects::{CLAIMS, KindId, Kinds, ObjectRef, full_name};

/// Every kind of every group.
const EVERYTHING: (&str, &str) = ("*", "*");

/// Advises to undo deletions. It asks once for the rights on a kind in a namespace.
pub struct UndoAdviser<'s> {
    session: &'s UserSession,
    /// Whether the user lacks rights, by group, resource and namespace.
    lacking: HashMap<(String, String, String), bool>,
    /// The Terminating CRD of a kind, by group and resource.
    terminating_crds: HashMap<(String, String), Option<String>>,
}

impl<'s> UndoAdviser<'s> {
    pub fn new(session: &'s UserSession) -> Self {
        Self { session, lacking: HashMap::new(), terminating_crds: HashMap::new() }
    }

    /// The advice to undo the deletion of an object: the command, or who can run it if the user lacks
    /// the rights. `volume` is the name of a claim's volume, empty for other objects.
    pub async fn advice(&mut self, object: &ObjectRef, volume: &str) -> String {
        if let Some(crd) = self.terminating_crd(object).await {
            return format!(
                "save its manifest; CustomResourceDefinition {crd} is Terminating, so undo can't \
                 re-create the object"
            );
        }
        if object.is_of(CLAIMS) && self.is_volume_terminating(volume).await {
            return format!(
                "copy the data to another volume before you delete the Pods that use the claim; volume \
                 {volume} is Terminating too, so undo can't keep it"
            );
        }
        let command = format!("kubectl belay undo {}", object.arguments());
        match !self.session.asks_files() && self.lacks_rights(object).await {
            true => format!("have an administrator run {command}"),
            false => command,
        }
    }

    async fn terminating_crd(&mut self, object: &ObjectRef) -> Option<String> {
        let key = (object.group.clone(), object.resource.clone());
        if let Some(known) = self.terminating_crds.get(&key) {
            return known.clone();
        }
        let crd = match self.session.asks_files() {
            true => None,
            false => terminating_crd(&self.session.caller, &object.group, &object.resource).await,
        };
        self.terminating_crds.insert(key, crd.clone());
        crd
    }

    async fn is_volume_terminating(&self, name: &str) -> bool {
        let volumes = Kinds::default().find("", "PersistentVolume");
        !name.is_empty()
            && !self.session.asks_files()
            && is_terminating(&self.session.caller, volumes, name).await
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

/// The name of the CRD of a custom kind, if the CRD is Terminating. If the user may not read it, the
/// API server refuses the later create.
pub async fn terminating_crd(caller: &Caller, group: &str, resource: &str) -> Option<String> {
    if Kinds::is_built_in(group, resource) {
        return None;
    }
    let name = full_name(group, resource);
    is_terminating(caller, Kinds::default().crd(), &name).await.then_some(name)
}

/// Whether the cluster-scoped object of this built-in kind is Terminating. If it can't be read, it
/// counts as not Terminating.
async fn is_terminating(caller: &Caller, kind: Option<KindId>, name: &str) -> bool {
    let Some(kind) = kind else { return false };
    let object = caller.object(Kinds::default().info(kind), "", name).await;
    object.is_ok_and(|object| {
        object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
    })
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
