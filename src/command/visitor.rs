//! Somebody at the API server, with no single object in mind: what the
//! commands share that look at a whole cluster or at one namespace.

use std::fmt::Debug;
use std::time::Instant;

use clap::Args;
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;

use super::CommandError;
use super::target::{PlaceArguments, known, rules, settings, unknown};
use crate::cluster::election::{Led, leader};
use crate::cluster::{Caller, Me, Snapshot, Trouble, account, user_of};
use crate::policy::{Identities, Policy};
use crate::relations::Custom;

/// Which namespaces are meant.
#[derive(Debug, Clone, Default, Args)]
pub struct ScopeArguments {
    /// The namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,

    /// All namespaces, and what has none
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

impl ScopeArguments {
    /// The namespace; empty: all of them.
    pub fn namespace(self, caller: &Caller) -> String {
        match self {
            Self { all_namespaces: true, .. } => String::new(),
            Self { namespace, .. } => namespace.unwrap_or_else(|| caller.namespace.clone()),
        }
    }
}

/// Who asks, and where.
pub struct Visitor {
    pub caller: Caller,
    pub me: Me,
    /// The namespace and name of the installation.
    pub installation: (String, String),
    /// The name by which the API server knows belay.
    own: String,
    /// When the API server said what time it is.
    opened: Instant,
}

impl Visitor {
    /// Connects.
    pub async fn open(place: PlaceArguments) -> Result<Self, CommandError> {
        let installation = place.installation()?;
        let caller = place.connect().await?;
        let (namespace, name) = &installation;
        let (me, account) =
            tokio::join!(caller.who_am_i(), account(&caller.client, namespace, name));
        let me = known(&caller, me)?;
        let own = user_of(namespace, &account);
        Ok(Self { caller, me, installation, own, opened: Instant::now() })
    }

    /// The time, by the API server's clock.
    pub fn now(&self) -> Timestamp {
        self.me.now.saturating_add(self.opened.elapsed()).unwrap_or(self.me.now)
    }

    /// Which kinds there are, and what people have written.
    pub async fn rules(&self) -> Result<Snapshot, CommandError> {
        rules(&self.caller, &self.me, self.now(), &self.installation, self.own.clone())
            .await
            .map_err(|why| unknown(format!("cannot ask which kinds there are: {why}")))
    }

    /// The same as if these were what people have written.
    pub async fn planned(
        &self,
        policies: Vec<Policy>,
        relations: &[Custom],
    ) -> Result<Snapshot, CommandError> {
        let settings = settings(&self.installation, &self.me);
        let identities = Identities { own: Some(self.own.clone()), ..Identities::default() };
        let client = self.caller.client.clone();
        let snapshot = Snapshot::planned(client, settings, identities, policies, relations).await;
        snapshot.map_err(|why| unknown(format!("cannot ask which kinds there are: {why}")))
    }

    /// All objects of a kind of belay's own.
    pub async fn all<K>(&self) -> Result<Vec<K>, CommandError>
    where
        K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all(self.caller.client.clone());
        let list = api.list(&ListParams::default()).await;
        list.map(|list| list.items).map_err(|error| self.unread::<K>(error))
    }

    /// Why objects of a kind of belay's own could not be read or written, and
    /// what next.
    pub fn unread<K: kube::Resource<DynamicType = ()>>(&self, error: kube::Error) -> CommandError {
        let kind = format!("{}.{}", K::plural(&()), K::group(&()));
        match Trouble::from(error) {
            Trouble::NotFound => unknown(format!(
                "belay is not installed: the API server does not serve {kind}; next: belay admin \
                 crds | kubectl apply -f -, and then the same again"
            )),
            Trouble::Forbidden(said) => unknown(format!(
                "you may not ({said}); next: have an administrator bind that RBAC verb on {kind} \
                 to {}",
                self.me.name
            )),
            trouble => unknown(format!("the API server cannot say {kind}: {}", trouble.words())),
        }
    }

    /// Who leads belay now, and what it serves.
    pub async fn leader(&self) -> Result<Option<Led>, String> {
        let (namespace, name) = &self.installation;
        leader(&self.caller.client, (namespace, name), self.now()).await
    }
}
