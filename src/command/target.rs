//! What the commands of people share: the object that is meant, as kubectl
//! would take it, and who asks.

use std::time::Instant;

use clap::Args;
use serde_json::Value;

use super::CommandError;
use super::access::AccessArguments;
use super::document::Object;
use super::serve::{LABELLED, parsed};
use crate::cluster::election::{Clock, leader};
use crate::cluster::{
    Access, Caller, Certificates, Me, Place, Settings, Snapshot, Trouble, Unread, World, account,
    names, replica, user_of,
};
use crate::decide::{self, Live, Situation};
use crate::objects::{KindId, KindInfo, Names, full_name};
use crate::policy::Identities;
use crate::policy::api::GROUP;

#[derive(Debug, Args)]
pub struct TargetArguments {
    /// The object, as TYPE/NAME or TYPE NAME; TYPE is a plural, a singular or a
    /// short name, with its group where that is needed
    #[arg(value_name = "TYPE/NAME", num_args = 1..=2, required = true)]
    pub(super) target: Vec<String>,

    /// Its namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,

    #[command(flatten)]
    pub(super) place: PlaceArguments,
}

/// Where to go, and as whom.
#[derive(Debug, Args)]
pub struct PlaceArguments {
    #[command(flatten)]
    access: AccessArguments,

    /// Where belay is installed: its namespace and its name. Which kinds
    /// --labelled-kinds names there and whom --control-plane does is not read:
    /// this command goes by the defaults of both
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "belay/belay")]
    installation: String,
}

impl PlaceArguments {
    /// The namespace and the name of the installation.
    pub fn installation(&self) -> Result<(String, String), CommandError> {
        let installation = self.installation.split_once('/');
        let sound = installation
            .filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains('/'))
            .map(|(place, own)| (place.to_owned(), own.to_owned()));
        sound.ok_or_else(|| {
            CommandError::Usage(format!(
                "--installation is \"{}\"; expected NAMESPACE/NAME, such as belay/belay",
                self.installation
            ))
        })
    }

    /// That nothing is said of a cluster, where --from names files instead.
    pub fn asks_no_cluster(&self) -> Result<(), CommandError> {
        match self.access.is_given() {
            false => Ok(()),
            true => Err(CommandError::Usage(
                "--from asks no cluster; leave out --kubeconfig, --context and --as, or --from"
                    .to_owned(),
            )),
        }
    }

    /// Connects.
    pub async fn connect(self) -> Result<Caller, CommandError> {
        let access = Access::from(self.access);
        Ok(Caller::connect(&access).await?)
    }
}

/// Who somebody is to the API server; an error says how to see whether it is
/// there at all.
pub fn known(caller: &Caller, me: Result<Me, String>) -> Result<Me, CommandError> {
    me.map_err(|why| {
        unknown(format!(
            "cannot ask the API server at {} who you are: {why}; next: see whether kubectl auth \
             whoami reaches it",
            caller.address()
        ))
    })
}

/// Somebody at the API server, with an object in mind.
pub struct Session {
    pub caller: Caller,
    pub me: Me,
    /// Its kind.
    pub info: KindInfo,
    /// Its namespace, name and plural.
    pub target: decide::Target,
    /// It, as it is now.
    pub object: Value,
    /// The namespace and name of the installation.
    pub installation: (String, String),
    /// The name of belay's own account there.
    pub account: String,
    /// When the API server said what time it is.
    opened: Instant,
}

impl TargetArguments {
    /// Connects, and reads the object.
    pub async fn open(self) -> Result<Session, CommandError> {
        let (word, name) = words(&self.target)?;
        let installation = self.place.installation()?;
        let caller = self.place.connect().await?;
        let (me, names, account) = tokio::join!(
            caller.who_am_i(),
            names(&caller.client),
            account(&caller.client, &installation.0, &installation.1),
        );
        let opened = Instant::now();
        let me = known(&caller, me)?;
        let names =
            names.map_err(|why| unknown(format!("cannot ask which kinds there are: {why}")))?;
        let info = names
            .find(word)
            .cloned()
            .ok_or_else(|| unknown(unserved(&names, word, "the API server serves no kind")))?;
        let namespace = match info.namespaced {
            true => self.namespace.unwrap_or_else(|| caller.namespace.clone()),
            false => String::new(),
        };
        let target = decide::Target {
            resource: info.resource.clone(),
            group: info.group.clone(),
            namespace,
            name: name.to_owned(),
        };
        let read = caller.read(&info, &target.namespace, name).await;
        let what = decide::quoted(&target);
        let place = match target.namespace.as_str() {
            "" => String::new(),
            namespace => format!(" in namespace {namespace}"),
        };
        let read = read.map_err(|why| {
            let next = match why {
                Trouble::Forbidden(_) => format!(
                    "; next: have an administrator bind the RBAC verb get on {}{place} to {}",
                    info.full_name(),
                    me.name
                ),
                _ => String::new(),
            };
            unknown(format!("cannot read {what}{place}: {}{next}", as_me(&why.words())))
        })?;
        let object = read.ok_or_else(|| {
            // Nothing is missed more often at night than the namespace.
            let next = if info.namespaced { "; next: name its namespace with -n" } else { "" };
            unknown(format!("there is no {what}{place}{next}"))
        })?;
        Ok(Session { caller, me, info, target, object, installation, account, opened })
    }
}

/// That nobody serves a kind: the next names are told. `nobody`: the words
/// before its name.
pub fn unserved(names: &Names, kind: &str, nobody: &str) -> String {
    let near = names.nearest(kind);
    let next = match near.as_slice() {
        [] => "kubectl api-resources lists the kinds".to_owned(),
        near => format!("nearest: {}", near.join(", ")),
    };
    format!("{nobody} \"{kind}\"; {next}")
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
    let unread = snapshot.unread();
    let nobody_serves = Trouble::NotFound.words();
    if !unread.is_empty() && unread.iter().all(|unread| unread.why == nobody_serves) {
        // Whoever has taken belay out may have left objects under its hold.
        return "belay is not installed: the API server does not serve its kinds; next: belay admin \
                crds | kubectl apply -f -, and then the same again"
            .to_owned();
    }
    let unread = unread.iter().map(|Unread { resource, why }| format!("{resource}: {why}"));
    format!(
        "cannot read what is protected: {}; next: have an administrator bind the RBAC verbs get \
         and list on every resource of belay.dev to {}",
        unread.collect::<Vec<_>>().join("; "),
        session.me.name
    )
}

/// Why it is not known who has approved what; none: it was read.
pub fn approvals_unread(snapshot: &Snapshot) -> Option<String> {
    let approvals = format!("deletionapprovals.{GROUP}");
    let unread = snapshot.unread().into_iter().find(|unread| unread.resource == approvals);
    unread.map(|unread| as_me(&unread.why))
}

/// What is known of a world now, with nothing read live.
pub fn situation(world: &World) -> Situation<'_> {
    Situation {
        graph: &world.graph,
        policies: &world.policies,
        live: Live::Graph,
        now: world.clock.now().as_second(),
    }
}

/// What could not be determined.
pub fn unknown(what: String) -> CommandError {
    CommandError::Remote(as_me(&what))
}

/// What the cluster side says of its own account is here said of the person
/// who asks.
pub fn as_me(text: &str) -> String {
    text.replace("belay's account may not", "you may not")
}

/// What the cluster side's code has to know of an installation to run for a
/// person.
pub fn settings((namespace, name): &(String, String), me: &Me) -> Settings {
    Settings {
        namespace: namespace.clone(),
        name: name.clone(),
        // It stands in tokens, which no two passes may share.
        replica: format!("{}/{}", me.name, replica()),
        labelled: parsed(LABELLED),
        certificates: Certificates::Files { authorities: None },
        // A person's command puts no holds on.
        backfill: 0,
    }
}

/// What people have written, read with the rights of whoever asks at this time
/// of the API server's. `own` is the name by which that knows belay.
pub async fn rules(
    caller: &Caller,
    me: &Me,
    now: jiff::Timestamp,
    installation: &(String, String),
    own: String,
) -> Result<Snapshot, String> {
    let clock = Clock::told(now);
    let settings = settings(installation, me);
    let identities = Identities { own: Some(own), ..Identities::default() };
    let snapshot = Snapshot::rules(caller.client.clone(), settings, identities).await?;
    snapshot.context.world.write().clock = clock;
    Ok(snapshot)
}

impl Session {
    /// What people have written, read with this person's rights.
    pub async fn rules(&self) -> Result<Snapshot, String> {
        let Self { caller, me, installation, .. } = self;
        let snapshot = rules(caller, me, self.now(), installation, self.own_user()).await?;
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

    /// The time, by the API server's clock.
    pub fn now(&self) -> jiff::Timestamp {
        self.me.now.saturating_add(self.opened.elapsed()).unwrap_or(self.me.now)
    }

    /// Who leads belay now.
    pub async fn leader(&self) -> Result<Option<String>, String> {
        let (namespace, name) = &self.installation;
        leader(&self.caller.client, (namespace, name), self.now()).await
    }

    /// The name by which the API server knows belay.
    pub fn own_user(&self) -> String {
        user_of(&self.installation.0, &self.account)
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
        let is_namespace = self.info.group.is_empty() && self.target.resource == "namespaces";
        if is_namespace { &self.target.name } else { &self.target.namespace }
    }

    /// It, as documents name it.
    pub fn named(&self) -> Object {
        let decide::Target { namespace, name, .. } = &self.target;
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
pub fn right_to_approve(target: &decide::Target) -> String {
    let place = asked_in(target).map_or_else(String::new, |place| format!(" in namespace {place}"));
    let kind = full_name(&target.group, &target.resource);
    format!("the RBAC verb approve-deletion on {kind}{place}")
}

/// The same for what lives in it and goes with it as well.
pub fn right_to_approve_content(target: &decide::Target) -> String {
    let place = asked_in(target)
        .map_or_else(|| "everywhere".to_owned(), |place| format!("in namespace {place}"));
    format!("the RBAC verb approve-deletion on every resource (*) of every API group (*) {place}")
}

/// The namespace in which somebody has to have the right; none: in the whole
/// cluster.
pub fn asked_in(target: &decide::Target) -> Option<&str> {
    let decide::Target { resource, group, namespace, name } = target;
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
        let target = |resource: &str, group: &str, namespace: &str| decide::Target {
            resource: resource.into(),
            group: group.into(),
            namespace: namespace.into(),
            name: "x".into(),
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
        let names = Names::of_kinds(&crate::objects::Kinds::default(), &[]);
        let said = |kind: &str| unserved(&names, kind, "nobody has a kind");
        assert_eq!(said("secert"), "nobody has a kind \"secert\"; nearest: secrets");
        let far = "nobody has a kind \"gizmo\"; kubectl api-resources lists the kinds";
        assert_eq!(said("gizmo"), far);
    }

    #[test]
    fn approvals_are_judged_by_the_time_that_the_api_server_told() {
        let told: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let world = World { clock: Clock::told(told), ..World::default() };
        let late = situation(&world).now - told.as_second();
        assert!((0..60).contains(&late), "{late}");
        // A replica goes by its own.
        let own = situation(&World::default()).now - jiff::Timestamp::now().as_second();
        assert!(own.abs() < 60, "{own}");
    }
}
