//! Finds the cluster: by a kubeconfig, or by the account of the Pod.

use std::error::Error;
use std::io::ErrorKind;
use std::path::PathBuf;

use kube::config::{
    InClusterError, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError,
};

use super::api_error::chain;

/// Why no cluster was found. The text completes the sentence "cannot find a cluster: …".
#[derive(Debug, thiserror::Error)]
pub enum NoCluster {
    /// The kubeconfig does not exist.
    #[error("there is no kubeconfig at {0}")]
    Absent(String),
    /// The kubeconfig can't be read.
    #[error("the kubeconfig {path} cannot be read ({source})")]
    Unread {
        /// The file.
        path: String,
        /// What the system reports.
        source: std::io::Error,
    },
    /// The kubeconfig is invalid.
    #[error("the kubeconfig {path} cannot be understood: {detail}")]
    Malformed {
        /// The file.
        path: String,
        /// The problem with its line.
        detail: String,
    },
    /// The kubeconfig has no current context.
    #[error("the kubeconfig {0} names no current context")]
    NoCurrentContext(String),
    /// The kubeconfig does not have the context that the user names.
    #[error("the kubeconfig {path} has no context \"{context}\"")]
    NoContext {
        /// The file.
        path: String,
        context: String,
    },
    /// The kubeconfig has another problem.
    #[error("the kubeconfig {path} cannot be used: {detail}")]
    Unusable {
        /// The file.
        path: String,
        /// What is wrong.
        detail: String,
    },
    /// The configuration can't be inferred for another reason.
    #[error("{0}")]
    NotInferred(String),
    /// Neither the kubeconfig nor the account of the Pod is usable.
    #[error("{kubeconfig}, nor can the account of the Pod be used ({account})")]
    NoAccount {
        /// The problem of the kubeconfig.
        kubeconfig: Box<Self>,
        /// The problem of the account.
        account: String,
    },
}

impl NoCluster {
    /// There is neither a kubeconfig nor the account of a Pod.
    fn nowhere(error: &InferConfigError) -> Self {
        let source = error.source().and_then(|source| source.downcast_ref::<KubeconfigError>());
        let kubeconfig = match source {
            Some(error) => Self::of_kubeconfig(error, None),
            None => Self::NotInferred(first_line(error)),
        };
        match kube::Config::incluster() {
            // This process does not run in a Pod.
            Ok(_) | Err(InClusterError::ReadEnvironmentVariable(_)) => kubeconfig,
            Err(account) => {
                let account = first_line(&account);
                Self::NoAccount { kubeconfig: Box::new(kubeconfig), account }
            }
        }
    }

    /// The error about an unusable kubeconfig. `named`: the file that the user names.
    fn of_kubeconfig(error: &KubeconfigError, named: Option<&PathBuf>) -> Self {
        let path = match (named, std::env::var("KUBECONFIG")) {
            (Some(path), _) => path.display().to_string(),
            (None, Ok(paths)) if !paths.is_empty() => paths,
            (None, _) => "~/.kube/config".to_owned(),
        };
        match error {
            KubeconfigError::ReadConfig(error, path) if error.kind() == ErrorKind::NotFound => {
                Self::Absent(path.display().to_string())
            }
            KubeconfigError::ReadConfig(error, path) => {
                let source = std::io::Error::new(error.kind(), error.to_string());
                Self::Unread { path: path.display().to_string(), source }
            }
            // Its snippet would be four lines more.
            KubeconfigError::Parse(error) => {
                Self::Malformed { path, detail: first_line(error.without_snippet()) }
            }
            KubeconfigError::CurrentContextNotSet => Self::NoCurrentContext(path),
            KubeconfigError::LoadContext(context) => {
                Self::NoContext { path, context: context.clone() }
            }
            other => Self::Unusable { path, detail: first_line(other) },
        }
    }
}

/// Reads a kubeconfig, or the account of the Pod.
pub async fn find_cluster(
    kubeconfig: Option<&PathBuf>,
    options: &KubeConfigOptions,
) -> Result<kube::Config, NoCluster> {
    let useless = |error: KubeconfigError| NoCluster::of_kubeconfig(&error, kubeconfig);
    match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).map_err(useless)?;
            kube::Config::from_custom_kubeconfig(read, options).await.map_err(useless)
        }
        None if options.context.is_some() => {
            kube::Config::from_kubeconfig(options).await.map_err(useless)
        }
        None => kube::Config::infer().await.map_err(|error| NoCluster::nowhere(&error)),
    }
}

/// An error with its causes, in one line.
fn first_line(error: &dyn Error) -> String {
    chain(error).lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reports_an_invalid_kubeconfig_with_its_path_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let mut messages = Vec::new();
        for text in [
            None,
            Some("apiVersion: v1\nkind: Config\nusers: [{\n"),
            Some("apiVersion: v1\nusers: 5\n"),
            Some("apiVersion: v1\nkind: Config\n"),
            Some("apiVersion: v1\nkind: Config\ncurrent-context: shop\n"),
        ] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let wrong = find_cluster(Some(&path), &KubeConfigOptions::default()).await.map(drop);
            let wrong = wrong.unwrap_err().to_string();
            assert_eq!(wrong.lines().count(), 1, "{wrong}");
            messages.push(wrong.replace(&path.display().to_string(), "f"));
        }
        assert_eq!(messages[0], "there is no kubeconfig at f");
        for parsed in &messages[1..3] {
            assert!(parsed.starts_with("the kubeconfig f cannot be understood: "), "{parsed}");
            assert!(parsed.contains("line "), "{parsed}");
        }
        assert_eq!(messages[3], "the kubeconfig f names no current context");
        assert_eq!(messages[4], "the kubeconfig f has no context \"shop\"");
    }
}
