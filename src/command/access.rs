//! The options of the connection to the cluster.

use std::path::PathBuf;

use clap::Args;

use crate::cluster::Access;

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Connection options")]
pub struct AccessArguments {
    /// Path to the kubeconfig [default: KUBECONFIG, ~/.kube/config or the ServiceAccount
    /// of the Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The user to impersonate
    #[arg(long = "as", value_name = "USER")]
    impersonate: Option<String>,
}

impl AccessArguments {
    /// Whether the user gave any of the options.
    pub fn is_given(&self) -> bool {
        let Self { kubeconfig, context, impersonate } = self;
        kubeconfig.is_some() || context.is_some() || impersonate.is_some()
    }
}

impl From<AccessArguments> for Access {
    fn from(arguments: AccessArguments) -> Self {
        let AccessArguments { kubeconfig, context, impersonate } = arguments;
        Self { kubeconfig, context, impersonate }
    }
}
