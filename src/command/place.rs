//! The place that a command reads: a cluster or files, and the namespaces.

use std::path::PathBuf;

use clap::Args;

use super::CommandError;
use super::access::{AccessArguments, CONNECTION};
use super::files::Archive;
use crate::cluster::{Access, Caller};
use crate::objects::shell_word;

const DEFAULT_INSTALLATION: &str = "belay/belay";

/// The cluster, and the user for its API server.
#[derive(Debug, Clone, Args)]
pub struct ClusterArguments {
    #[command(flatten)]
    access: AccessArguments,

    /// The namespace and name of the belay installation
    #[arg(
        long,
        help_heading = CONNECTION,
        value_name = "NAMESPACE/NAME",
        default_value = DEFAULT_INSTALLATION
    )]
    installation: String,
}

/// An installation of belay.
#[derive(Debug, Clone, Default)]
pub struct Installation {
    pub namespace: String,
    /// The name of its Deployment, Lease and webhook configurations.
    pub name: String,
}

impl ClusterArguments {
    pub fn installation(&self) -> Result<Installation, CommandError> {
        let installation = self.installation.split_once('/');
        let valid = installation
            .filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains('/'))
            .map(|(namespace, name)| Installation {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
        valid.ok_or_else(|| {
            CommandError::Usage(format!(
                "--installation is \"{}\"; expected NAMESPACE/NAME, such as belay/belay",
                self.installation
            ))
        })
    }

    /// The given options, for the next kubectl command. Each after a space.
    pub fn kubectl_options(&self) -> String {
        self.access.options()
    }

    /// The given options, for the next belay command. Each after a space.
    pub fn options(&self) -> String {
        let installation = match self.installation.as_str() {
            DEFAULT_INSTALLATION => String::new(),
            installation => format!(" --installation={}", shell_word(installation)),
        };
        self.access.options() + &installation
    }

    /// Returns an error if the options name a cluster, because `--from` replaces it.
    pub fn check_unused(&self) -> Result<(), CommandError> {
        match self.access.is_given() {
            false => Ok(()),
            true => Err(CommandError::usage(
                "--from reads no cluster; omit --kubeconfig, --context and --as, or --from",
            )),
        }
    }

    pub async fn connect(self) -> Result<Caller, CommandError> {
        let access = Access::from(self.access);
        Ok(Caller::connect(&access).await?)
    }
}

/// The note on every report from files.
pub const OF_FILES: &str = "read from files: objects that are not in them count as absent";

/// Files instead of a cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct SourceArguments {
    /// Read files instead of a cluster: a folder, manifests, the output of kubectl get -o
    /// yaml, or - for standard input
    #[arg(id = "from", long = "from", value_name = "DIR|FILE|-", value_delimiter = ',')]
    pub files: Vec<PathBuf>,
}

impl SourceArguments {
    /// Whether the command reads files instead of a cluster.
    pub fn is_given(&self) -> bool {
        !self.files.is_empty()
    }

    /// The content of the files; `None` if the command reads a cluster.
    pub fn archive(&self, cluster: &ClusterArguments) -> Result<Option<Archive>, CommandError> {
        if !self.is_given() {
            return Ok(None);
        }
        cluster.check_unused()?;
        super::files::stdin_once(&self.files)?;
        Archive::read(&self.files).map(Some)
    }
}

/// Parses the name of a namespace. An invalid name would change the path of a request, and an
/// empty name would select all namespaces.
pub fn namespace(text: &str) -> Result<String, String> {
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !text.is_empty() && text.len() <= 63 && text.chars().all(is_valid) {
        true => Ok(text.to_owned()),
        false => Err("this is not a valid namespace; expected lower-case letters, digits and \
                      -"
        .to_owned()),
    }
}

/// The scope of a list that contains all objects by default.
#[derive(Debug, Clone, Default, Args)]
pub struct ListScopeArguments {
    /// Only objects in this namespace, and the Namespace itself [default: all objects]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces", value_parser = namespace)]
    pub namespace: Option<String>,

    /// All objects. This is the default
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

/// The namespace of a command, or all namespaces.
#[derive(Debug, Clone, Default, Args)]
pub struct ScopeArguments {
    /// The namespace [default: that of the context; with --from: all]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces", value_parser = namespace)]
    namespace: Option<String>,

    /// All namespaces, and cluster-scoped objects
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

impl ScopeArguments {
    /// The namespace; empty for all namespaces. Files have no context with a default namespace,
    /// so their default is all namespaces.
    pub fn namespace(self, caller: &Caller, from: &SourceArguments) -> String {
        match self {
            Self { all_namespaces: true, .. } => String::new(),
            Self { namespace: Some(namespace), .. } => namespace,
            _ if from.is_given() => String::new(),
            _ => caller.namespace.clone(),
        }
    }
}
