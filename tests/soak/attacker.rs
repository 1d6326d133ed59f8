//! A tenant who attacks: edits objects in the namespaces of the soak, has no right to
//! approve, and can reach the port of belay.
//!
//! The referee judges the results like those of all users.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::call::{Answer, Caller};
use crate::harness::client::Client;
use crate::harness::direct;
use crate::harness::random::Random;
use crate::people::{Tally, outcome};
use crate::plan::{Kind, Place, ROOMS};

/// The name of the attacker.
pub const NAME: &str = "mallory";

/// Beyond the depth that a recursive parser of JSON reads.
const DEPTH: usize = 300;

/// How many connections it leaves silent for a second.
const SILENT: usize = 500;

/// One attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attack {
    /// Adds an owner to an object: one that others may have approved, one of another scope,
    /// or one that does not exist.
    AddOwner(Place, Owner),
    /// Adds the attacker's own owner, and then removes all others.
    ReplaceOwner(Place),
    /// Attaches an object to one of the attacker's, and that to one which others may have
    /// approved, at the same moment. Then deletes the object.
    AttachAtOnce(Place),
    /// Creates an object with managedFields that are nested deep.
    DeepObject(Place),
    /// Creates an object of almost the largest size, of a character that JSON escapes.
    LargeObject(Place),
    /// Creates an object with thousands of owner references, of kinds that don't exist.
    ManyOwners(Place),
    /// Writes thousands of finalizers to an object.
    ManyFinalizers(Place),
    /// Posts a DELETE review of a cluster administrator straight to belay.
    ForgedReview(Place),
    /// Opens many connections to belay and sends nothing.
    SilentConnections,
}

/// The added owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Another object of the namespace.
    Sibling(usize),
    /// Another Namespace.
    OtherNamespace,
    /// A uid that no object has.
    Absent,
}

impl Attack {
    fn choose(random: &mut Random) -> Self {
        let room = random.below(ROOMS.len());
        let kinds = [Kind::ConfigMap, Kind::Child, Kind::Secret, Kind::Claim];
        let place = Place { room, kind: random.pick(&kinds), number: random.below(4) };
        match random.below(100) {
            0..30 => {
                let owners =
                    [Owner::Sibling(random.below(6)), Owner::OtherNamespace, Owner::Absent];
                Self::AddOwner(place, random.pick(&owners))
            }
            30..40 => Self::AttachAtOnce(Place { kind: Kind::Child, ..place }),
            40..50 => Self::ReplaceOwner(Place { kind: Kind::Child, ..place }),
            50..60 => Self::DeepObject(place),
            60..66 => Self::LargeObject(place),
            66..76 => Self::ManyOwners(place),
            76..84 => Self::ManyFinalizers(place),
            84..88 => Self::SilentConnections,
            _ => Self::ForgedReview(place),
        }
    }

    /// Its name in the report.
    fn name(self) -> &'static str {
        match self {
            Self::AddOwner(..) => "attack: add owner",
            Self::ReplaceOwner(_) => "attack: replace owner",
            Self::AttachAtOnce(_) => "attack: attach at once",
            Self::DeepObject(_) => "attack: deep object",
            Self::LargeObject(_) => "attack: large object",
            Self::ManyOwners(_) => "attack: many owners",
            Self::ManyFinalizers(_) => "attack: many finalizers",
            Self::ForgedReview(_) => "attack: forged review",
            Self::SilentConnections => "attack: silent connections",
        }
    }
}

/// The attacker, and where belay answers.
pub struct Attacker {
    pub caller: Caller,
    /// A reader of the webhook configuration: the attacker is assumed to know all of it,
    /// including the path.
    pub admin: Caller,
    pub replicas: Vec<Client>,
}

impl Attacker {
    /// Attacks until then.
    pub async fn attack(&self, mut random: Random, pause: Duration, until: Instant) -> Tally {
        let mut tally = Tally::new();
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while Instant::now() < until {
            ticks.tick().await;
            let attack = Attack::choose(&mut random);
            let replica = self.replicas[random.below(self.replicas.len())].clone();
            let done =
                tokio::time::timeout(Duration::from_secs(60), self.perform(attack, replica)).await;
            *tally.entry((attack.name(), outcome(done))).or_default() += 1;
        }
        tally
    }

    async fn perform(&self, attack: Attack, replica: Client) -> Answer {
        match attack {
            Attack::AddOwner(place, owner) => self.add_owner(place, owner).await,
            Attack::ReplaceOwner(place) => {
                self.add_owner(place, Owner::Sibling(5)).await?;
                let object = self.caller.get(&place.url()).await?;
                let last = object["metadata"]["ownerReferences"].as_array().and_then(|o| o.last());
                let only = json!({"metadata": {"ownerReferences": [last]}});
                self.caller.merge(&place.url(), only).await
            }
            Attack::AttachAtOnce(place) => {
                let mine = Place { kind: Kind::ConfigMap, number: 5, ..place };
                let (below, above) = tokio::join!(
                    self.add_owner(place, Owner::Sibling(mine.number)),
                    self.add_owner(mine, Owner::Sibling(place.number)),
                );
                below.and(above)?;
                self.caller.delete(&place.url(), None).await
            }
            Attack::DeepObject(place) => {
                let fields = (0..DEPTH).fold(json!({}), |inner, _| json!({"f:a": inner}));
                let managed = json!([{"manager": NAME, "operation": "Update", "apiVersion": "v1",
                    "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
                let object = json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": format!("deep-{}", place.number),
                        "managedFields": managed},
                    "spec": {"containers": [{"name": "main", "image": "soak"}],
                        "volumes": [{"name": "config",
                            "configMap": {"name": format!("config-{}", place.number)}}]}});
                self.replace(Place { kind: Kind::Pod, ..place }, "deep", object).await
            }
            Attack::LargeObject(place) => {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("large-{}", place.number)},
                    "data": {"a": "<".repeat(900_000)}});
                self.replace(Place { kind: Kind::ConfigMap, ..place }, "large", object).await
            }
            Attack::ManyOwners(place) => {
                // These uids collide in a hash without a key.
                let owner = |number| {
                    json!({"apiVersion": "example.com/v1", "kind": format!("Kind{number}"),
                    "name": format!("owner-{number}"),
                    "uid": format!("d308a385-886a-3f24-8000-{number:012x}")})
                };
                let owners: Vec<Value> = (0..3_000).map(owner).collect();
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("owned-{}", place.number),
                        "ownerReferences": owners}});
                self.replace(Place { kind: Kind::ConfigMap, ..place }, "owned", object).await
            }
            Attack::ManyFinalizers(place) => {
                let finalizers: Vec<String> =
                    (0..3_000).map(|number| format!("soak.dev/f-{number}")).collect();
                let url = Place { kind: Kind::ConfigMap, ..place }.collection();
                let name = format!("finalized-{}", place.number);
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "finalizers": finalizers}});
                self.caller.post(&url, object).await?;
                // They are removed in one request. Otherwise the object would stay Terminating.
                let none = json!({"metadata": {"finalizers": null}});
                self.caller.merge(&format!("{url}/{name}"), none).await?;
                self.caller.delete(&format!("{url}/{name}"), Some("Background")).await
            }
            Attack::ForgedReview(place) => self.forge(place, replica).await,
            Attack::SilentConnections => {
                let connect = || tokio::net::TcpStream::connect(replica.address());
                let silent = futures_util::future::join_all((0..SILENT).map(|_| connect())).await;
                crate::harness::pause_async(Duration::from_secs(1)).await;
                Ok(json!(silent.iter().filter(|connection| connection.is_ok()).count()))
            }
        }
    }

    /// Deletes the object of an earlier attack with this name, and creates it again.
    async fn replace(&self, place: Place, prefix: &str, object: Value) -> Answer {
        let url = place.collection();
        let old = format!("{url}/{prefix}-{}", place.number);
        let _ = self.caller.delete(&old, Some("Background")).await;
        self.caller.post(&url, object).await
    }

    async fn add_owner(&self, place: Place, owner: Owner) -> Answer {
        let reference = match owner {
            Owner::Sibling(number) => {
                let sibling = Place { kind: Kind::ConfigMap, number, ..place };
                let object = self.caller.get(&sibling.url()).await?;
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": sibling.name(),
                    "uid": object["metadata"]["uid"]})
            }
            Owner::OtherNamespace => {
                let name = ROOMS[(place.room + 1) % ROOMS.len()];
                let object = self.caller.get(&format!("/api/v1/namespaces/{name}")).await?;
                json!({"apiVersion": "v1", "kind": "Namespace", "name": name,
                    "uid": object["metadata"]["uid"]})
            }
            Owner::Absent => json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "absent",
                "uid": "0f9e0d6c-3f0d-4b53-9c35-6d9f5b0b7c11"}),
        };
        let object = self.caller.get(&place.url()).await?;
        let mut owners: Vec<Value> =
            object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.push(reference);
        self.caller.merge(&place.url(), json!({"metadata": {"ownerReferences": owners}})).await
    }

    /// The review that the API server would send of a DELETE by an administrator.
    async fn forge(&self, place: Place, replica: Client) -> Answer {
        let object = self.caller.get(&place.url()).await?;
        let url = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/belay";
        let configuration = self.admin.get(url).await?;
        let registered = &configuration["webhooks"][0]["clientConfig"]["service"]["path"];
        let registered = registered.as_str().unwrap_or_default().to_owned();
        let review = direct::delete_review(place.resource(), "admin", &["system:masters"], &object);
        let post = move || {
            ["/validate", &registered].map(|path| replica.try_post(path, &review).map(|a| a.code))
        };
        let codes = tokio::task::spawn_blocking(post).await;
        Ok(json!(codes.ok().map(|codes| codes.map(|code| code.unwrap_or_default()))))
    }
}
