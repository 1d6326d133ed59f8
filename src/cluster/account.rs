//! The account of belay.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use super::pace::within;

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
