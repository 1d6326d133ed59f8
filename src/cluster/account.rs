//! Who belay is to the API server.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use super::pace::within;

/// The name of the account that an installation runs as, as its Deployment
/// says; where there is none that may be read, the account is called like the
/// installation.
pub async fn account(client: &kube::Client, namespace: &str, name: &str) -> String {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    // One lost answer is not enough: with a wrong name, belay would not recognize its own
    // requests.
    let mut lost = 0;
    let deployment = loop {
        match within(deployments.get(name)).await {
            Err(error) if lost < 2 && !error.is_lasting() => lost += 1,
            read => break read.ok(),
        }
    };
    let pod = deployment.and_then(|deployment| deployment.spec?.template.spec);
    let said = pod.and_then(|pod| pod.service_account_name).filter(|said| !said.is_empty());
    said.unwrap_or_else(|| name.to_owned())
}

/// The name of a user that a service account is.
pub fn user_of(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}
