//! The objects that the arguments of a command name.

use std::collections::HashSet;
use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::CommandError;
use super::document::Object;
use super::object_words::{ObjectArgument, ObjectWordsError, parse_object, parse_objects};
use super::place::{self, ClusterArguments, SourceArguments};
use super::session::UserSession;
use super::webhooks::NOT_INSTALLED;
use crate::cluster::{ObjectKey, Snapshot, UnreadKind, World};
use crate::decide::{ObjectSource, Situation};
use crate::objects::{ApiError, KindInfo, KindNames, ObjectRef, full_name, in_namespace};

#[derive(Debug, Args)]
pub struct TargetArguments {
    /// The objects. TYPE is a plural, singular or short name of a kind, with its group if
    /// the name is ambiguous
    #[arg(value_name = "TYPE/NAME", num_args = 1.., required = true)]
    pub(super) targets: Vec<String>,

    /// The namespace of the objects [default: that of the context]
    #[arg(short, long, value_name = "NAME", value_parser = place::namespace)]
    pub(super) namespace: Option<String>,

    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
}

/// One object of a command, and the session of the user.
pub struct TargetObject {
    pub session: Arc<UserSession>,
    pub info: KindInfo,
    pub object_ref: ObjectRef,
    /// The current content.
    pub json: Value,
}

/// All objects of a command, and the session of the user.
pub struct Targets {
    pub session: Arc<UserSession>,
    pub objects: Vec<TargetObject>,
    /// The objects that could not be read.
    pub unread: Vec<UnreadTarget>,
}

/// An object that could not be read.
pub struct UnreadTarget {
    /// The object as the user typed it.
    pub typed: String,
    pub error: CommandError,
}

impl TargetArguments {
    /// Connects to the cluster, and reads the only object.
    pub async fn read_one(self) -> Result<TargetObject, CommandError> {
        parse_object(&self.targets).map_err(usage)?;
        Ok(self.read(&SourceArguments::default()).await?.objects.swap_remove(0))
    }

    /// Reads the objects, from files if `from` names some. If the only object can't be read,
    /// this returns its error.
    pub async fn read(self, from: &SourceArguments) -> Result<Targets, CommandError> {
        let Self { targets, namespace, cluster } = self;
        let words = parse_objects(&targets, false).map_err(|error| match error {
            ObjectWordsError::OnlyKind(kind) => usage(ObjectWordsError::NoObject(kind)),
            error => usage(error),
        })?;
        let (session, names) =
            UserSession::open_with_names(from.archive(&cluster)?, cluster).await?;
        let session = Arc::new(session);
        let namespace = namespace.unwrap_or_else(|| session.caller.namespace.clone());
        let (mut objects, mut unread, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for ObjectArgument { kind, name } in words {
            let name = name.unwrap_or_default();
            let read = match names.find(&kind) {
                Some(info) => {
                    let namespace = info.namespace_or_empty(&namespace);
                    let object_ref = ObjectRef::of_kind(info, namespace, &name);
                    // The user may have named the object twice, with different names of its kind.
                    if !seen.insert(object_ref.arguments()) {
                        continue;
                    }
                    TargetObject::read(&session, info, object_ref).await
                }
                None => {
                    Err(CommandError::Remote(unserved(&names, &kind, session.unserved_prefix())))
                }
            };
            match read {
                Ok(object) => objects.push(object),
                Err(error) => unread.push(UnreadTarget { typed: format!("{kind}/{name}"), error }),
            }
        }
        if objects.is_empty() && unread.len() == 1 {
            return Err(unread.swap_remove(0).error);
        }
        Ok(Targets { session, objects, unread })
    }
}

fn usage(error: ObjectWordsError) -> CommandError {
    CommandError::Usage(error.to_string())
}

/// The message about an object that does not exist.
pub fn not_found(object: &ObjectRef) -> String {
    let place = match object.namespace.as_str() {
        "" => String::new(),
        namespace => format!(" in namespace {namespace:?}"),
    };
    format!("{} not found{place}", object.quoted())
}

fn text_with_namespace(object: &ObjectRef) -> String {
    object.quoted() + &in_namespace(&object.namespace)
}

/// Why the object could not be read, and the next step.
fn unread_error(object: &ObjectRef, why: &ApiError) -> CommandError {
    let next = match (why, object.namespace.as_str()) {
        (ApiError::Forbidden(_), namespace) => format!(
            "ask a person with the RBAC verb get on {}{} to run the command",
            full_name(&object.group, &object.resource),
            in_namespace(namespace),
        ),
        // The conversion webhook of the kind may not answer. `stuck` reads only the metadata.
        (_, "") => "if it is Terminating, kubectl belay stuck -A shows why".to_owned(),
        (_, namespace) => {
            format!("if it is Terminating, kubectl belay stuck -n {namespace} shows why")
        }
    };
    CommandError::Remote(format!(
        "cannot read {}: {why}; next: {next}",
        text_with_namespace(object)
    ))
}

/// Why the kinds of an API group are unknown.
pub const SILENT: &str = "its server does not answer";

/// The message about a kind that is not served, with the most similar names. `prefix` is the
/// start of the message.
pub fn unserved(names: &KindNames, kind: &str, prefix: &str) -> String {
    let near = names.nearest(kind);
    let next = match near.as_slice() {
        [] => "kubectl api-resources lists the kinds".to_owned(),
        near => format!("nearest: {}", near.join(", ")),
    };
    let silent = match names.unavailable_groups.as_slice() {
        [] => String::new(),
        groups => format!(" (the kinds of {} are unknown: {SILENT})", groups.join(", ")),
    };
    format!("{prefix} \"{kind}\"{silent}; {next}")
}

/// Why the policies are unknown, and the next step.
pub fn unknown_policies_text(session: &UserSession, snapshot: &Snapshot) -> String {
    if !snapshot.is_installed() {
        // Objects may still have the hold after an uninstall, so the text names the step to install
        // the CRDs again.
        let next = match session.asks_files() {
            true => "the files have no object of belay.dev; next: name a file with the policies, \
                     too: --from FILE,POLICIES"
                .to_owned(),
            false => format!(
                "{NOT_INSTALLED}; next: kubectl belay admin crds | kubectl apply -f -, and try again"
            ),
        };
        return next;
    }
    let unread = snapshot.unread();
    let unread = unread.iter().map(|UnreadKind { resource, why }| format!("{resource}: {why}"));
    format!(
        "cannot read the policies: {}; next: ask an administrator of the cluster to run the command",
        unread.collect::<Vec<_>>().join("; "),
    )
}

/// The situation of a world now, without live reads.
pub fn situation(world: &World) -> Situation<'_> {
    Situation::new(
        &world.graph,
        &world.policies,
        ObjectSource::Files,
        world.clock.now().as_second(),
    )
}

/// Adds an object and its Namespace to a snapshot, and returns the key of the object; `None` if
/// its kind is no longer served.
pub async fn add_object(
    snapshot: &Snapshot,
    object_ref: &ObjectRef,
    json: &Value,
) -> Option<ObjectKey> {
    let key = snapshot.context.world.read().key(object_ref);
    // A user can often read their own Namespace, but not list all of them. If it can't be read,
    // the verdict reports that its labels are unknown.
    let _ = snapshot.look_up_namespace(&object_ref.namespace).await;
    snapshot.insert(key.as_ref()?.0, json);
    key
}

/// Reads belay's own objects with the rights of the user, and adds the objects of a command.
pub async fn read_rules(
    session: &UserSession,
    targets: &[TargetObject],
) -> Result<Snapshot, CommandError> {
    let snapshot = session.read_rules().await?;
    for TargetObject { object_ref, json, .. } in targets {
        add_object(&snapshot, object_ref, json).await;
    }
    Ok(snapshot)
}

impl TargetObject {
    async fn read(
        session: &Arc<UserSession>,
        info: &KindInfo,
        object_ref: ObjectRef,
    ) -> Result<Self, CommandError> {
        let ObjectRef { namespace, name, .. } = &object_ref;
        let object = session.caller.object(info, namespace, name).await;
        let object = object.map_err(|why| unread_error(&object_ref, &why))?;
        let json = object.ok_or_else(|| {
            // Users often forget the namespace.
            let next = match info.namespaced {
                true => "; next: check the name and the namespace (-n)",
                false => "",
            };
            CommandError::NoObject(not_found(&object_ref) + next)
        })?;
        Ok(Self { session: session.clone(), info: info.clone(), object_ref, json })
    }

    /// The object for a report.
    pub fn document(&self) -> Object {
        let ObjectRef { namespace, name, .. } = &self.object_ref;
        Object::of_kind(&self.info, namespace, name).with_uid(self.uid())
    }

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid").unwrap_or_default()
    }

    /// The time of the DELETE; `None` if the object is not Terminating.
    pub fn terminating_since(&self) -> Option<&str> {
        self.text("/metadata/deletionTimestamp")
    }

    pub fn created_at(&self) -> Option<Timestamp> {
        self.text("/metadata/creationTimestamp")?.parse().ok()
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.json.pointer(pointer).and_then(Value::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Clock;

    #[test]
    fn a_mistyped_kind_is_answered_with_the_most_similar_one() {
        let names = KindNames::of_kinds(&crate::objects::Kinds::default(), &[]);
        let text = |kind: &str| unserved(&names, kind, "there is no kind");
        assert_eq!(text("secert"), "there is no kind \"secert\"; nearest: secrets");
        let far = "there is no kind \"gizmo\"; kubectl api-resources lists the kinds";
        assert_eq!(text("gizmo"), far);
        let mut silent = names.clone();
        silent.unavailable_groups.push("metrics.k8s.io".to_owned());
        let text = unserved(&silent, "gizmo", "there is no kind");
        assert!(text.contains("(the kinds of metrics.k8s.io are unknown: its"), "{text}");
    }

    #[test]
    fn approvals_are_judged_by_the_time_of_the_api_server() {
        let server_time: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let world = World { clock: Clock::from_server(server_time), ..World::default() };
        let late = situation(&world).now - server_time.as_second();
        assert!((0..60).contains(&late), "{late}");
        // A replica uses its own clock.
        let own = situation(&World::default()).now - jiff::Timestamp::now().as_second();
        assert!(own.abs() < 60, "{own}");
    }
}
