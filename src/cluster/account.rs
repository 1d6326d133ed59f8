//! The account of belay, and the identity of a user.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;

use super::pace::within;
use crate::objects::ApiError;

/// The name of the account of an installation, from its Deployment. If the Deployment can't be
/// read, it is the name of the installation.
pub async fn account(client: &kube::Client, namespace: &str, name: &str) -> String {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    // belay retries, because with a wrong name it would not recognize its own requests.
    let mut failures = 0;
    let deployment = loop {
        match within(deployments.get(name)).await {
            Err(error) if failures < 2 && !error.is_lasting() => failures += 1,
            read => break read.ok(),
        }
    };
    let pod = deployment.and_then(|deployment| deployment.spec?.template.spec);
    let account = pod.and_then(|pod| pod.service_account_name).filter(|name| !name.is_empty());
    account.unwrap_or_else(|| name.to_owned())
}

/// The user name of a ServiceAccount.
pub fn user_of(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// The identity of a user, as the API server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserIdentity {
    pub name: String,
    pub groups: Vec<String>,
    /// A time by the API server's clock, and when it was read.
    time: (Timestamp, Instant),
}

impl UserIdentity {
    pub fn new(name: String, groups: Vec<String>, now: Timestamp) -> Self {
        Self { name, groups, time: (now, Instant::now()) }
    }

    /// The time by the API server's clock, which lifetimes are computed from. The clock of the
    /// user's machine may be wrong.
    pub fn now(&self) -> Timestamp {
        let (time, read) = self.time;
        time.saturating_add(read.elapsed()).unwrap_or(time)
    }
}

/// Reads the identity that the API server has for the user of a client.
pub(super) async fn read_identity(client: &kube::Client) -> Result<UserIdentity, ApiError> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let now = review.metadata.creation_timestamp.map(|time| time.0);
    let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
    let name = user.username.ok_or_else(|| {
        ApiError::Unreadable("the API server does not report the user name".to_owned())
    })?;
    let (groups, now) = (user.groups.unwrap_or_default(), now.unwrap_or_else(Timestamp::now));
    Ok(UserIdentity::new(name, groups, now))
}
