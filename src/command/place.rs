//! The place that a command reads: a cluster or files, and the namespaces.

use std::path::PathBuf;

use clap::Args;

use super::CommandError;
use super::access::{AccessArguments, CONNECTION};
use super::files::Archive;
use crate::cluster::{Access, Caller};

/// Where to go, and as whom.
#[derive(Debug, Clone, Args)]
pub struct ClusterArguments {
    #[command(flatten)]
    access: AccessArguments,

    /// The namespace and name of the belay installation. This command assumes the default
    /// --labelled-kinds and --control-plane of the installation
    #[arg(
        long,
        help_heading = CONNECTION,
        value_name = "NAMESPACE/NAME",
        default_value = "belay/belay"
    )]
    installation: String,
}

impl ClusterArguments {
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

    /// Returns an error if --from names files, because the command needs a cluster.
    pub fn asks_no_cluster(&self) -> Result<(), CommandError> {
        match self.access.is_given() {
            false => Ok(()),
            true => Err(CommandError::Usage(
                "--from reads no cluster; omit --kubeconfig, --context and --as, or --from"
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

/// The note on every answer from files.
pub const OF_FILES: &str = "read from files: objects that are not in them count as absent";

/// Files in the place of a cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct SourceArguments {
    /// Read files instead of a cluster: a folder, manifests, the output of kubectl get -o
    /// yaml, or - for standard input
    #[arg(id = "from", long = "from", value_name = "DIR|FILE|-", value_delimiter = ',')]
    pub files: Vec<PathBuf>,
}

impl SourceArguments {
    /// Whether files are looked at.
    pub fn is_given(&self) -> bool {
        !self.files.is_empty()
    }

    /// The content of the files. `None`: the user means a cluster.
    pub fn archive(&self, place: &ClusterArguments) -> Result<Option<Archive>, CommandError> {
        if !self.is_given() {
            return Ok(None);
        }
        place.asks_no_cluster()?;
        super::files::stdin_once(&self.files)?;
        Archive::read(&self.files).map(Some)
    }
}

/// The name of a namespace. An invalid name would become another path of the API server,
/// and an empty name would mean all namespaces.
pub fn namespace(text: &str) -> Result<String, String> {
    let sound = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !text.is_empty() && text.len() <= 63 && text.chars().all(sound) {
        true => Ok(text.to_owned()),
        false => Err("this is not a valid namespace; expected lower-case letters, digits and \
                      -"
        .to_owned()),
    }
}

/// Of which objects a list tells that is about all of them.
#[derive(Debug, Clone, Default, Args)]
pub struct ListScopeArguments {
    /// Only objects in this namespace, and the Namespace itself [default: all objects]
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces", value_parser = namespace)]
    pub namespace: Option<String>,

    /// All objects. This is the default
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

/// Which namespaces are meant.
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
    /// The namespace; empty: all of them. Files have no context with a default namespace,
    /// so the default is all of them.
    pub fn namespace(self, caller: &Caller, from: &SourceArguments) -> String {
        match self {
            Self { all_namespaces: true, .. } => String::new(),
            Self { namespace: Some(namespace), .. } => namespace,
            _ if from.is_given() => String::new(),
            _ => caller.namespace.clone(),
        }
    }
}
