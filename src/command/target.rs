//! What the commands of people share: the object that is meant, as kubectl
//! would take it.

use clap::Args;
use serde_json::Value;

use super::CommandError;
use super::document::Object;
use super::place::{self, FromArguments, PlaceArguments};
use super::visitor::Visitor;
use crate::cluster::{Place, Snapshot, Unread, World};
use crate::decide::{Live, Situation};
use crate::objects::{ApiError, KindId, KindInfo, KindNames, ObjectRef, full_name, is_namespace};
use crate::policy::api::GROUP;

#[derive(Debug, Args)]
pub struct TargetArguments {
    /// The object. TYPE is a plural, singular or short name of a kind, with its group if
    /// the name is ambiguous
    #[arg(value_name = "TYPE/NAME", num_args = 1..=2, required = true)]
    pub(super) target: Vec<String>,

    /// The namespace of the object [default: that of the context]
    #[arg(short, long, value_name = "NAME", value_parser = place::namespace)]
    pub(super) namespace: Option<String>,

    #[command(flatten)]
    pub(super) place: PlaceArguments,
}

/// Who asks, with an object in mind.
pub struct Session {
    pub visitor: Visitor,
    /// Its kind.
    pub info: KindInfo,
    /// Its namespace, name and plural.
    pub target: ObjectRef,
    /// It, as it is now.
    pub object: Value,
}

impl TargetArguments {
    /// Connects, and reads the object.
    pub async fn open(self) -> Result<Session, CommandError> {
        self.open_in(&FromArguments::default()).await
    }

    /// The same, in files where some are named.
    pub async fn open_in(self, from: &FromArguments) -> Result<Session, CommandError> {
        let Self { target, namespace, place } = self;
        let (word, name) = words(&target)?;
        let (visitor, names, nobody) = match from.archive(&place)? {
            Some(archive) => {
                let names = archive.names().clone();
                (Visitor::of_files(archive, &place).await?, names, UNSERVED_IN_FILES)
            }
            None => {
                let (visitor, names) = Visitor::open_with_names(place).await?;
                (visitor, names, UNSERVED)
            }
        };
        let Visitor { caller, me, .. } = &visitor;
        let info = names
            .find(word)
            .cloned()
            .ok_or_else(|| CommandError::Remote(unserved(&names, word, nobody)))?;
        let namespace = match info.namespaced {
            true => namespace.unwrap_or_else(|| caller.namespace.clone()),
            false => String::new(),
        };
        let target = ObjectRef::of_kind(&info, &namespace, name);
        let read = caller.object(&info, &target.namespace, name).await;
        let what = target.quoted();
        let place = match target.namespace.as_str() {
            "" => String::new(),
            namespace => format!(" in namespace {namespace}"),
        };
        let read = read.map_err(|why| {
            let next = match why {
                ApiError::Forbidden(_) => format!(
                    "; next: have an administrator bind the RBAC verb get on {}{place} to {}",
                    info.full_name(),
                    me.name
                ),
                // Nobody converts it, perhaps; what is known of it without that
                // says what keeps it.
                _ => {
                    let place = match target.namespace.as_str() {
                        "" => " -A".to_owned(),
                        namespace => format!(" -n {namespace}"),
                    };
                    format!("; next: if it is Terminating, kubectl belay stuck{place} says why")
                }
            };
            CommandError::Remote(format!("cannot read {what}{place}: {why}{next}"))
        })?;
        let object = read.ok_or_else(|| {
            // Nothing is missed more often at night than the namespace.
            let next = if info.namespaced { "; next: name its namespace with -n" } else { "" };
            CommandError::Remote(format!("there is no {what}{place}{next}"))
        })?;
        Ok(Session { visitor, info, target, object })
    }
}

/// Why nobody knows what there is of a group.
pub const SILENT: &str = "its server does not answer";

/// The words before the name of a kind that is not there.
pub const UNSERVED: &str = "the API server serves no kind";

/// The same, of files.
pub const UNSERVED_IN_FILES: &str = "neither Kubernetes nor the files have a kind";

/// That nobody serves a kind: the next names are told. `nobody`: the words
/// before its name.
pub fn unserved(names: &KindNames, kind: &str, nobody: &str) -> String {
    let near = names.nearest(kind);
    let next = match near.as_slice() {
        [] => "kubectl api-resources lists the kinds".to_owned(),
        near => format!("nearest: {}", near.join(", ")),
    };
    let silent = match names.unavailable_groups.as_slice() {
        [] => String::new(),
        silent => format!(" (and nobody knows the kinds of {}: {SILENT})", silent.join(", ")),
    };
    format!("{nobody} \"{kind}\"{silent}; {next}")
}

/// `TYPE/NAME`, or two words.
fn words(target: &[String]) -> Result<(&str, &str), CommandError> {
    let pair = match target {
        [one] => one.split_once('/'),
        [kind, name] => Some((kind.as_str(), name.as_str())),
        _ => None,
    };
    let sound = |(kind, name): &(&str, &str)| {
        ![kind, name].iter().any(|word| word.is_empty() || word.contains('/'))
    };
    pair.filter(sound).ok_or_else(|| {
        CommandError::Usage(format!(
            "\"{}\" names no object; expected TYPE/NAME or TYPE NAME, such as pvc/data",
            target.join(" ")
        ))
    })
}

/// Why what is protected is not known, and what next.
pub fn unprotected(session: &Session, snapshot: &Snapshot) -> String {
    if !snapshot.is_installed() {
        // Whoever has taken belay out may have left objects under its hold.
        let next = match session.visitor.asks_files() {
            true => {
                "the files have nothing of belay.dev in them; next: name a file with the \
                     policies, too: --from FILE,POLICIES"
            }
            false => {
                "belay is not installed: the API server does not serve its kinds; next: belay \
                      admin crds | kubectl apply -f -, and then the same again"
            }
        };
        return next.to_owned();
    }
    let unread = snapshot.unread();
    let unread = unread.iter().map(|Unread { resource, why }| format!("{resource}: {why}"));
    format!(
        "cannot read what is protected: {}; next: have an administrator bind the RBAC verbs get \
         and list on every resource of belay.dev to {}",
        unread.collect::<Vec<_>>().join("; "),
        session.visitor.me.name
    )
}

/// Why it is not known who has approved what; none: it was read.
pub fn approvals_unread(snapshot: &Snapshot) -> Option<ApiError> {
    let approvals = format!("deletionapprovals.{GROUP}");
    let unread = snapshot.unread().into_iter().find(|unread| unread.resource == approvals);
    unread.map(|unread| unread.why.clone())
}

/// What is known of a world now, with nothing read live.
pub fn situation(world: &World) -> Situation<'_> {
    Situation::new(&world.graph, &world.policies, Live::Graph, world.clock.now().as_second())
}

impl Session {
    /// What people have written, read with this person's rights.
    pub async fn rules(&self) -> Result<Snapshot, CommandError> {
        let snapshot = self.visitor.rules().await?;
        // One's own Namespace can often be read where a list of all cannot.
        if !self.target.namespace.is_empty() {
            let kinds = &snapshot.context.world.read().graph.kinds.clone();
            if let Some(kind) = kinds.find("", "Namespace") {
                // If not, the verdict says that its labels are not known.
                let _ = snapshot.look_up(kind, "", &self.target.namespace).await;
            }
        }
        let place = self.place(&snapshot.context.world.read());
        if let Some((kind, ..)) = place {
            snapshot.put(kind, &self.object);
        }
        Ok(snapshot)
    }

    /// Where the object stands in what a snapshot knows. Whoever asks may hold
    /// a read guard already, and a second one taken under it would wait for a
    /// writer that waits for the first: so the guard is the caller's.
    pub fn place(&self, world: &World) -> Option<Place> {
        let kind: KindId =
            world.graph.kinds.find_resource(&self.info.group, &self.info.resource)?;
        Some((kind, self.target.namespace.clone(), self.target.name.clone()))
    }

    /// The namespace in which this person may look, if not everywhere: that of
    /// the object, or the one that it is.
    pub fn near(&self) -> &str {
        let is_namespace = is_namespace(&self.info.group, &self.target.resource);
        if is_namespace { &self.target.name } else { &self.target.namespace }
    }

    /// It, as documents name it.
    pub fn named(&self) -> Object {
        let ObjectRef { namespace, name, .. } = &self.target;
        Object::of_kind(&self.info, namespace, name).with_uid(self.uid())
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid").unwrap_or_default()
    }

    /// Since when it is Terminating.
    pub fn terminating(&self) -> Option<&str> {
        self.text("/metadata/deletionTimestamp")
    }

    /// Its finalizers.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        let list = self.object.pointer("/metadata/finalizers").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str)
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.object.pointer(pointer).and_then(Value::as_str)
    }
}

/// Who may approve the end of an object: the words that finish "it takes …".
pub fn right_to_approve(target: &ObjectRef) -> String {
    let place = asked_in(target).map_or_else(String::new, |place| format!(" in namespace {place}"));
    let kind = full_name(&target.group, &target.resource);
    format!("the RBAC verb approve-deletion on {kind}{place}")
}

/// The same for what lives in it and goes with it as well.
pub fn right_to_approve_content(target: &ObjectRef) -> String {
    let place = asked_in(target)
        .map_or_else(|| "everywhere".to_owned(), |place| format!("in namespace {place}"));
    format!("the RBAC verb approve-deletion on every resource (*) of every API group (*) {place}")
}

/// The namespace in which somebody has to have the right; none: in the whole
/// cluster.
pub fn asked_in(target: &ObjectRef) -> Option<&str> {
    let ObjectRef { resource, group, namespace, name, .. } = target;
    match (resource.as_str(), group.as_str(), namespace.as_str()) {
        // Whoever may delete a Namespace is asked inside of it.
        ("namespaces", "", _) => Some(name),
        (_, _, "") => None,
        (_, _, namespace) => Some(namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Clock;

    #[test]
    fn an_object_is_one_word_or_two() {
        let read = |words_of: &[&str]| {
            let owned: Vec<String> = words_of.iter().map(ToString::to_string).collect();
            words(&owned).map(|(kind, name)| format!("{kind} {name}")).map_err(|e| e.to_string())
        };
        assert_eq!(read(&["pvc/data"]).as_deref(), Ok("pvc data"));
        assert_eq!(read(&["deployments.apps", "web"]).as_deref(), Ok("deployments.apps web"));
        for wrong in [&["pvc"][..], &["pvc/"], &["/data"], &["pvc/a/b"], &["pvc/a", "b"]] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("names no object"), "{error}");
        }
    }

    #[test]
    fn who_may_approve_is_asked_where_the_api_server_asks() {
        let target = |resource: &str, group: &str, namespace: &str| {
            ObjectRef::new((group, resource), namespace, "x")
        };
        for ((resource, group, namespace), says) in [
            (("configmaps", "", "shop"), "configmaps in namespace shop"),
            (("deployments", "apps", "shop"), "deployments.apps in namespace shop"),
            (("namespaces", "", ""), "namespaces in namespace x"),
            (("persistentvolumes", "", ""), "persistentvolumes"),
        ] {
            let right = right_to_approve(&target(resource, group, namespace));
            assert_eq!(right, format!("the RBAC verb approve-deletion on {says}"));
            // With its content it takes more, and in the same place.
            let place = says.split_once(' ').map_or("everywhere", |(_, place)| place);
            let right = right_to_approve_content(&target(resource, group, namespace));
            assert!(right.ends_with(&format!("every API group (*) {place}")), "{right}");
        }
    }

    #[test]
    fn whoever_mistypes_a_kind_is_told_the_nearest() {
        let names = KindNames::of_kinds(&crate::objects::Kinds::default(), &[]);
        let said = |kind: &str| unserved(&names, kind, "nobody has a kind");
        assert_eq!(said("secert"), "nobody has a kind \"secert\"; nearest: secrets");
        let far = "nobody has a kind \"gizmo\"; kubectl api-resources lists the kinds";
        assert_eq!(said("gizmo"), far);
        let mut silent = names.clone();
        silent.unavailable_groups.push("metrics.k8s.io".to_owned());
        let said = unserved(&silent, "gizmo", "nobody has a kind");
        assert!(said.contains("(and nobody knows the kinds of metrics.k8s.io: its"), "{said}");
    }

    #[test]
    fn approvals_are_judged_by_the_time_that_the_api_server_told() {
        let told: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let world = World { clock: Clock::from_server(told), ..World::default() };
        let late = situation(&world).now - told.as_second();
        assert!((0..60).contains(&late), "{late}");
        // A replica goes by its own.
        let own = situation(&World::default()).now - jiff::Timestamp::now().as_second();
        assert!(own.abs() < 60, "{own}");
    }
}
