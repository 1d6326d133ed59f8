//! `kubectl belay version`: prints the versions of the client and of belay in the cluster.

use std::process::ExitCode;

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use super::place::{ClusterArguments, Installation};
use super::{CommandError, print};
use crate::objects::ApiError;

/// The label of the chart with the version of belay.
const VERSION_LABEL: &str = "app.kubernetes.io/version";

#[derive(Debug, Args)]
pub struct VersionArguments {
    /// Print only the version of the client
    #[arg(long)]
    client: bool,

    #[command(flatten)]
    cluster: ClusterArguments,
}

pub async fn run(arguments: VersionArguments) -> Result<ExitCode, CommandError> {
    let VersionArguments { client, cluster } = arguments;
    let client_version = concat!("Client Version: ", env!("CARGO_PKG_VERSION"), "\n");
    if client {
        print(client_version)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (server, code) = match read_server(cluster).await? {
        Ok(version) => (version, ExitCode::SUCCESS),
        Err(why) => (format!("unknown ({why})"), ExitCode::from(3)),
    };
    print(&format!("{client_version}Server Version: {server}\n"))?;
    Ok(code)
}

/// The version of the installation, from the labels of its Deployment, or why it is unknown.
async fn read_server(cluster: ClusterArguments) -> Result<Result<String, String>, CommandError> {
    let Installation { namespace, name } = cluster.installation()?;
    let caller = cluster.connect().await?;
    let deployments: Api<Deployment> = Api::namespaced(caller.client, &namespace);
    let label = match deployments.get_metadata_opt(&name).await {
        Ok(object) => object.map(|object| object.metadata.labels.unwrap_or_default()),
        Err(error) => {
            let why = ApiError::from(error);
            return Ok(Err(format!("cannot read deployment {namespace}/{name}: {why}")));
        }
    };
    Ok(match label {
        None => Ok("-".to_owned()),
        Some(labels) => labels
            .get(VERSION_LABEL)
            .cloned()
            .ok_or_else(|| format!("deployment {namespace}/{name} has no label {VERSION_LABEL}")),
    })
}
