//! The file of an undo: the objects to create again, and what the undo changes meanwhile. The
//! command writes it before its first change, and continues from it after an interruption. It
//! contains whole objects, also Secrets, so only its owner may read it.

use std::collections::{BTreeSet, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::inspect::ClusterIdentity;
use crate::command::report::{Document, MAX_DOCUMENT, read_document};
use crate::objects::{CLAIMS, counted, short_digest};

const KIND: &str = "UndoRecord";

/// The kind of ServiceAccounts: its group and plural name.
pub const ACCOUNTS: (&str, &str) = ("", "serviceaccounts");

/// The objects as a user types them.
pub fn all_typed<'o>(objects: impl IntoIterator<Item = &'o Object>) -> String {
    objects.into_iter().map(|object| object.arguments.as_str()).collect::<Vec<_>>().join(", ")
}

/// An undo of one deletion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoRecord {
    pub cluster: ClusterIdentity,
    /// A random text, from which the marker of each created object is computed. It is only in the
    /// file.
    #[serde(rename = "marker")]
    pub secret: String,
    /// The object that the user names, with the uid of the deleted object.
    pub target: Object,
    /// The namespaces whose objects are ignored if they are dependents of a cluster-scoped target.
    pub ignored_namespaces: Vec<String>,
    /// The objects to create again, and the objects that stay, in the order of creation: a
    /// Namespace first, and workloads last.
    pub objects: Vec<SavedObject>,
    /// The volumes of the saved claims.
    pub volumes: Vec<SavedVolume>,
    /// The workloads that would use a saved claim, or create it again.
    pub workloads: Vec<StoppedWorkload>,
    /// The Pods that use a saved claim and are not deleted when these workloads stop.
    pub pods: Vec<Object>,
    /// The objects that can't be restored, each with the reason.
    pub lost: Vec<LostObject>,
    /// The claims that saved workloads need and that are deleted already. These workloads would begin
    /// with empty volumes.
    pub missing_claims: Vec<Object>,
    /// Whether belay holds a saved object, or denies the deletion of content of the Namespace.
    pub is_held: bool,
}

/// An object to create again, or one that stays: a dependent, or another claim of a stopped workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedObject {
    /// The object, with its old uid.
    pub object: Object,
    /// Its manifest, without the fields that the server sets. Null if it is not created again.
    pub manifest: Value,
    /// Its owner references to deleted objects. They are added when all objects exist.
    pub owners: Vec<Value>,
    /// Whether it is created last, and only if all before it exist: a workload, a custom resource or
    /// a quota.
    pub is_last: bool,
    /// Whether it is not Terminating: it only loses these owner references meanwhile. It is created
    /// again only if it is deleted nevertheless.
    pub stays: bool,
}

impl SavedObject {
    /// Adds the owner references that the object has lost.
    pub fn add_owners(&mut self, owners: &[Value]) {
        let new =
            owners.iter().filter(|new| self.owners.iter().all(|own| own["uid"] != new["uid"]));
        let new: Vec<_> = new.cloned().collect();
        self.owners.extend(new);
    }
}

/// The volume of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedVolume {
    pub name: String,
    /// The uid of the old claim.
    pub claim_uid: String,
    pub reclaim_policy: String,
}

/// A workload that is scaled to 0 meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoppedWorkload {
    pub object: Object,
    pub replicas: i64,
}

/// An object that can't be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostObject {
    /// The object.
    pub object: Object,
    /// The reason.
    pub why: String,
}

impl LostObject {
    pub fn new(object: &Object, why: &str) -> Self {
        Self { object: object.clone(), why: why.to_owned() }
    }
}

impl UndoRecord {
    /// Adds objects, or replaces them by their new states.
    pub fn add(&mut self, objects: Vec<SavedObject>) {
        let new: HashSet<&str> = objects.iter().map(|saved| saved.object.uid.as_str()).collect();
        self.objects.retain(|known| !new.contains(known.object.uid.as_str()));
        self.objects.extend(objects);
        self.sort();
    }

    /// The objects to create again.
    pub fn objects_to_recreate(&self) -> impl Iterator<Item = &SavedObject> {
        self.objects.iter().filter(|saved| !saved.stays)
    }

    /// The uids of the objects that are completely saved. A claim without volume is not, because it
    /// can still get one.
    pub fn completely_saved_uids(&self) -> HashSet<&str> {
        let with_volume: HashSet<&str> =
            self.volumes.iter().map(|volume| volume.claim_uid.as_str()).collect();
        let objects = self
            .objects_to_recreate()
            .map(|saved| &saved.object)
            .filter(|object| !object.is_of(CLAIMS) || with_volume.contains(object.uid.as_str()));
        objects.map(|object| object.uid.as_str()).collect()
    }

    /// The dependents that stay.
    pub fn dependents(&self) -> impl Iterator<Item = &SavedObject> {
        self.objects.iter().filter(|saved| saved.stays && !saved.owners.is_empty())
    }

    /// The uids of all objects that are deleted with the target.
    pub fn deleted_uids(&self) -> HashSet<String> {
        let lost = self.lost.iter().map(|lost| &lost.object);
        self.objects_to_recreate()
            .map(|saved| &saved.object)
            .chain(lost)
            .map(|object| object.uid.clone())
            .collect()
    }

    /// Ignores the dependents in these namespaces, except in the namespace of the target.
    /// `changed`: the uids of dependents to keep, because the undo has detached them or they no
    /// longer exist.
    pub fn ignore(&mut self, namespaces: Vec<String>, changed: &HashSet<String>) {
        self.ignored_namespaces.extend(namespaces);
        let Self { target, ignored_namespaces, objects, volumes, .. } = self;
        objects.retain(|saved| {
            let Object { uid, namespace, .. } = &saved.object;
            let is_ignored = is_of_others(target, namespace)
                && ignored_namespaces.contains(namespace)
                && !changed.contains(uid);
            volumes.retain(|volume| !is_ignored || volume.claim_uid != *uid);
            !is_ignored
        });
    }

    /// Whether a user of another namespace may have created this dependent. Such a dependent must
    /// not stop the undo.
    pub fn is_of_others(&self, dependent: &Object) -> bool {
        is_of_others(&self.target, &dependent.namespace)
    }

    /// The options that ignore the objects of other users among these objects; empty if there are
    /// none.
    pub fn ignore_options<'o>(&self, objects: impl Iterator<Item = &'o Object>) -> String {
        let namespaces =
            objects.filter(|object| self.is_of_others(object)).map(|object| &object.namespace);
        let namespaces: BTreeSet<_> = namespaces.collect();
        namespaces.iter().map(|namespace| format!(" --ignore-namespace {namespace}")).collect()
    }

    pub fn volume_of(&self, claim: &Object) -> Option<&SavedVolume> {
        self.volumes.iter().find(|volume| volume.claim_uid == claim.uid)
    }

    /// Sorts the objects: a Namespace first, ServiceAccounts before their tokens, and workloads last.
    pub fn sort(&mut self) {
        self.objects.sort_by_key(|SavedObject { object, is_last, .. }| {
            (!object.is_namespace(), *is_last, !object.is_of(ACCOUNTS))
        });
    }

    /// The objects whose deletion the undo awaits first: the target, the claims in its namespace,
    /// and the tokens of a ServiceAccount. The content of a Namespace is deleted before the
    /// Namespace. Other dependents are not awaited, because an editor can add some that are never
    /// deleted.
    pub fn awaited(&self) -> Vec<Object> {
        let kinds: &[_] = match &self.target {
            target if target.is_namespace() => &[],
            target if target.is_of(ACCOUNTS) => &[CLAIMS, ("", "secrets")],
            _ => &[CLAIMS],
        };
        let others = self.objects_to_recreate().map(|saved| &saved.object).filter(|object| {
            object.uid != self.target.uid
                && kinds.iter().any(|kind| object.is_of(*kind))
                && !self.is_of_others(object)
        });
        std::iter::once(&self.target).chain(others).cloned().collect()
    }

    /// What a user must do to end the deletion; empty if nothing is known.
    pub fn steps_of_user(&self) -> String {
        let mut steps = Vec::new();
        if !self.pods.is_empty() {
            steps.push(format!("delete {}", all_typed(&self.pods)));
        }
        let deleted = self.objects.iter().filter(|saved| !saved.stays);
        let kept = deleted.filter(|saved| {
            let finalizers = saved.manifest["metadata"]["finalizers"].as_array();
            finalizers.is_some_and(|list| !list.is_empty())
        });
        let kept = all_typed(kept.map(|saved| &saved.object));
        if !kept.is_empty() {
            steps.push(format!("check that controllers remove the finalizers of {kept}"));
        }
        steps.join(", and ")
    }

    /// The part of the record that `Undo::is_current` compares: without manifests and objects of
    /// other users, because these change all the time.
    pub fn comparable_part(&self) -> Self {
        let mut record = self.clone();
        record.objects.retain(|saved| !self.is_of_others(&saved.object));
        let own_uids: HashSet<&str> =
            record.objects.iter().map(|saved| saved.object.uid.as_str()).collect();
        record.volumes.retain(|volume| own_uids.contains(volume.claim_uid.as_str()));
        record.workloads.retain(|workload| !self.is_of_others(&workload.object));
        record.lost.retain(|lost| !self.is_of_others(&lost.object));
        record.pods.retain(|pod| !self.is_of_others(pod));
        record.missing_claims.retain(|claim| !self.is_of_others(claim));
        for saved in &mut record.objects {
            saved.manifest = Value::Null;
        }
        record
    }

    /// Whether the target is a Namespace.
    pub fn is_of_namespace(&self) -> bool {
        self.target.is_namespace()
    }

    /// Writes a new file, and never replaces one.
    pub fn create(&self, path: &Path) -> Result<(), CommandError> {
        let written = self.write(path, |draft| std::fs::hard_link(draft, path));
        written.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => CommandError::Refused(format!(
                "{} exists already; nothing was changed; next: continue that undo with --resume, or \
                 choose another --out",
                path.display()
            )),
            kind => {
                let text = format!("{}: {error}; nothing was changed", path.display());
                CommandError::Output(std::io::Error::new(kind, text))
            }
        })
    }

    /// Replaces the file of this undo.
    pub fn replace(&self, path: &Path) -> Result<(), CommandError> {
        let written = self.write(path, |draft| std::fs::rename(draft, path));
        written.map_err(|error| {
            let text = format!("{}: {error}", path.display());
            CommandError::Output(std::io::Error::new(error.kind(), text))
        })
    }

    /// Writes a draft beside the file, and then `publish`es it: an interruption leaves no half of a
    /// file under its name.
    fn write(
        &self,
        path: &Path,
        publish: impl Fn(&Path) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let text = serde_json::to_vec(&Document::new(KIND, self))?;
        if text.len() as u64 > MAX_DOCUMENT {
            let options = self.ignore_options(self.objects.iter().map(|saved| &saved.object));
            let next = if options.is_empty() { "" } else { "; next: add" };
            let limit = MAX_DOCUMENT >> 20;
            let why = format!("the objects have more than {limit} MiB{next}{options}");
            return Err(std::io::Error::other(why));
        }
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", short_digest(&self.secret)));
        let draft = Path::new(&draft);
        // An interrupted run may have left a draft.
        let _ = std::fs::remove_file(draft);
        let write = || {
            let mut open = OpenOptions::new();
            open.write(true).create_new(true).mode(0o600);
            let mut file = open.open(draft)?;
            file.write_all(&text)?;
            file.sync_all()?;
            publish(draft)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
        };
        let written = write();
        // The draft contains the same Secrets.
        let _ = std::fs::remove_file(draft);
        written
    }

    pub fn read(path: &Path) -> Result<Self, CommandError> {
        read_document(path, KIND, "kubectl belay undo TYPE/NAME writes one")
    }

    /// The remaining steps, one in a line, for the question and for a dry run. `path`: of a new file.
    pub fn steps(&self, path: Option<&Path>, done: &CompletedSteps) -> Vec<String> {
        let mut steps = Vec::new();
        if let Some(path) = path {
            let count = counted(self.objects_to_recreate().count(), "object");
            steps.push(format!("save {count} in {}", path.display()));
        }
        let is_still_to_do = |undone: bool| done.is_waiting && undone;
        let mut add = |before: &str, list: Vec<String>, after: &str| {
            if !list.is_empty() {
                steps.push(format!("{before}{}{after}", list.join(", ")));
            }
        };
        let typed = |object: &Object| object.arguments.clone();
        let is_retained = |volume: &SavedVolume| done.retained.contains(&volume.name);
        let has_other_policy = |volume: &SavedVolume| volume.reclaim_policy != "Retain";
        let volumes = self
            .volumes
            .iter()
            .filter(|volume| has_other_policy(volume) && is_still_to_do(!is_retained(volume)));
        let volumes = volumes.map(|volume| volume.name.clone()).collect();
        add("keep the data: set the reclaim policy of ", volumes, " to Retain");
        let is_detached = |saved: &SavedObject| done.detached.contains(&saved.object.uid);
        let attached = self.dependents().filter(|saved| is_still_to_do(!is_detached(saved)));
        let attached = attached.map(|saved| typed(&saved.object)).collect();
        add("remove the owner reference from ", attached, "");
        let is_stopped = |workload: &StoppedWorkload| done.stopped.contains(&workload.object.uid);
        let running =
            self.workloads.iter().filter(|workload| is_still_to_do(!is_stopped(workload)));
        let running = running.map(|workload| typed(&workload.object)).collect();
        add("stop ", running, ": scale to 0 replicas");
        let awaited: Vec<String> =
            self.awaited().iter().filter(|_| is_still_to_do(true)).map(typed).collect();
        if self.is_held {
            let after = match self.is_of_namespace() {
                true => " and of its content",
                false => ", so that belay removes its hold",
            };
            add("approve the deletion of ", awaited.clone(), after);
        }
        let during = match self.steps_of_user().as_str() {
            "" => String::new(),
            steps => format!("; during this wait, {steps}"),
        };
        add("wait until these objects are deleted: ", awaited, &during);
        let absent = |is_last: bool| {
            let objects = self.objects_to_recreate().filter(|saved| {
                saved.is_last == is_last && !done.recreated.contains(&saved.object.uid)
            });
            objects.map(|saved| typed(&saved.object)).collect::<Vec<_>>()
        };
        let claims = self.objects_to_recreate().filter(|saved| {
            !done.recreated.contains(&saved.object.uid) && self.volume_of(&saved.object).is_some()
        });
        let reserved = claims.filter_map(|saved| self.volume_of(&saved.object));
        let reserved: Vec<&str> = reserved.map(|volume| volume.name.as_str()).collect();
        let create = match reserved.is_empty() {
            true => "create ".to_owned(),
            false => format!("reserve {} for the claims, and create ", reserved.join(", ")),
        };
        add(&create, absent(false), "");
        let restored = |of_others: bool| {
            let volumes = self.volumes.iter().filter(|volume| {
                let mut claims =
                    self.objects.iter().filter(|saved| saved.object.uid == volume.claim_uid);
                has_other_policy(volume)
                    && (done.is_waiting || is_retained(volume))
                    && claims.any(|claim| self.is_of_others(&claim.object) == of_others)
            });
            volumes
                .map(|volume| format!("{} to {}", volume.name, volume.reclaim_policy))
                .collect::<Vec<_>>()
        };
        let when_bound = "when the claims are Bound, restore the reclaim policy: ";
        add(when_bound, restored(false), "");
        add("create ", absent(true), "");
        let detached = self.dependents().filter(|saved| done.is_waiting || is_detached(saved));
        let detached = detached.map(|saved| typed(&saved.object)).collect();
        add("add the owner reference to ", detached, "");
        let stopped =
            self.workloads.iter().filter(|workload| done.is_waiting || is_stopped(workload));
        let stopped = stopped.map(|StoppedWorkload { object, replicas }| {
            format!("{} to {replicas}", object.arguments)
        });
        add("scale up again: ", stopped.collect(), "");
        add(when_bound, restored(true), "");
        steps
    }
}

/// The steps of an undo that are done.
pub struct CompletedSteps {
    /// Whether an old object still exists, so that undo still has to wait for its deletion and do
    /// the steps before.
    pub is_waiting: bool,
    /// The names of the volumes with the policy Retain.
    pub retained: HashSet<String>,
    /// The uids of the dependents without their owner references.
    pub detached: HashSet<String>,
    /// The uids of the workloads that the undo has scaled to 0.
    pub stopped: HashSet<String>,
    /// The uids of the old objects that were created again.
    pub recreated: HashSet<String>,
}

impl CompletedSteps {
    /// Nothing is done.
    pub fn none() -> Self {
        let none = HashSet::new;
        let (retained, detached, stopped, recreated) = (none(), none(), none(), none());
        Self { is_waiting: true, retained, detached, stopped, recreated }
    }
}

/// Whether an object in this namespace may belong to other users than the target. Content of a
/// Namespace belongs to the same users as the Namespace.
pub fn is_of_others(target: &Object, namespace: &str) -> bool {
    !namespace.is_empty() && namespace != target.own_namespace()
}

/// The next step if a dependent of others prevents the undo; empty for another object.
pub fn ignore_option(target: &Object, object: &Object) -> String {
    match is_of_others(target, &object.namespace) {
        true => format!(", or add --ignore-namespace {}", object.namespace),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MAX_LOST_LINES, steps};
    use super::*;

    fn object(namespace: &str, name: &str) -> Object {
        let [namespace, name, uid, arguments] = [namespace, name, name, name].map(str::to_owned);
        Object { namespace, name, uid, arguments, ..Object::default() }
    }

    fn empty_record() -> UndoRecord {
        UndoRecord {
            cluster: ClusterIdentity { uid: None, server: "s".to_owned() },
            secret: "secret".to_owned(),
            target: object("", "target"),
            ignored_namespaces: Vec::new(),
            objects: Vec::new(),
            volumes: Vec::new(),
            workloads: Vec::new(),
            pods: Vec::new(),
            lost: Vec::new(),
            missing_claims: Vec::new(),
            is_held: false,
        }
    }

    #[test]
    fn the_question_names_own_lost_objects_before_any_number_of_others() {
        let mut record = empty_record();
        let lost = |namespace, name: &str| LostObject::new(&object(namespace, name), "lost");
        record.lost = (0..1000).map(|number| lost("tenant", &format!("t{number}"))).collect();
        record.lost.push(lost("", "own"));
        let text = steps(&record, None, &CompletedSteps::none());
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("not restored")).collect();
        assert_eq!(lines.len(), MAX_LOST_LINES + 1, "{text}");
        assert_eq!(lines[0], "not restored: own: lost");
        assert_eq!(lines[MAX_LOST_LINES], "not restored: 981 more objects, which the file lists");
    }

    #[test]
    fn h208_objects_of_other_users_are_no_change_of_the_cluster() {
        let record = empty_record();
        let add = |record: &mut UndoRecord, namespace: &str| {
            let new = object(namespace, "new");
            let claim_uid = new.uid.clone();
            let (name, reclaim_policy) = ("pv".to_owned(), "Delete".to_owned());
            record.volumes.push(SavedVolume { name, claim_uid, reclaim_policy });
            record.workloads.push(StoppedWorkload { object: new.clone(), replicas: 1 });
            record.pods.push(new.clone());
            record.lost.push(LostObject::new(&new, "lost"));
            record.missing_claims.push(new.clone());
            let (manifest, owners) = (Value::Null, Vec::new());
            let saved = SavedObject { object: new, manifest, owners, is_last: false, stays: false };
            record.objects.push(saved);
        };
        let (mut of_others, mut own) = (record.clone(), record.clone());
        add(&mut of_others, "tenant");
        assert_eq!(of_others.comparable_part(), record.comparable_part());
        add(&mut own, "");
        assert_ne!(own.comparable_part(), record.comparable_part());
    }
}
