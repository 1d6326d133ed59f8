//! The options of the connection to the cluster.

use std::path::PathBuf;

use clap::Args;

use crate::cluster::Access;
use crate::objects::shell_word;

/// The heading of these options in the help. Each option sets it, because a heading of the struct
/// would also apply to the options after it.
pub const CONNECTION: &str = "Connection options";

#[derive(Debug, Clone, Default, Args)]
pub struct AccessArguments {
    /// Path to the kubeconfig [default: KUBECONFIG, ~/.kube/config or the ServiceAccount
    /// of the Pod]
    #[arg(long, help_heading = CONNECTION, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: the current context]
    #[arg(long, help_heading = CONNECTION, value_name = "NAME")]
    context: Option<String>,

    /// The user to impersonate
    #[arg(long = "as", help_heading = CONNECTION, value_name = "USER")]
    impersonate: Option<String>,

    /// A group of the user to impersonate; can be given several times
    #[arg(long, help_heading = CONNECTION, value_name = "GROUP", requires = "impersonate")]
    as_group: Vec<String>,
}

impl AccessArguments {
    /// Whether the user gave any of the options.
    pub fn is_given(&self) -> bool {
        let Self { kubeconfig, context, impersonate, as_group: _ } = self;
        kubeconfig.is_some() || context.is_some() || impersonate.is_some()
    }

    /// The given options, for a next command; kubectl has them as well. Each after a space.
    pub fn options(&self) -> String {
        let Self { kubeconfig, context, impersonate, as_group } = self;
        let kubeconfig = kubeconfig.as_ref().map(|path| path.to_string_lossy());
        let options = [
            ("kubeconfig", kubeconfig.as_deref()),
            ("context", context.as_deref()),
            ("as", impersonate.as_deref()),
        ];
        let groups = as_group.iter().map(|group| ("as-group", Some(group.as_str())));
        let options = options.into_iter().chain(groups);
        let given = options.filter_map(|(name, value)| Some((name, value?)));
        given.map(|(name, value)| format!(" --{name}={}", shell_word(value))).collect()
    }
}

impl From<AccessArguments> for Access {
    fn from(arguments: AccessArguments) -> Self {
        let AccessArguments { kubeconfig, context, impersonate, as_group } = arguments;
        Self { kubeconfig, context, impersonate, impersonate_groups: as_group }
    }
}
