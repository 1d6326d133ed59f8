//! Standalone mode: policies and objects from files, certificates created at the first
//! start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use clap::Args;
use jiff::Timestamp;

use super::seconds::seconds;
use crate::certs::{CertificatePaths, make_files};
use crate::command::CommandError;
use crate::command::files::{self, FileStatus, Folders, World};
use crate::decide::{Review, Verdict};
use crate::telemetry::{Metrics, Readiness};

/// The lifetime of the certificate.
const CERTIFICATE_DAYS: u32 = 365;

#[derive(Debug, Args)]
pub struct StandaloneArguments {
    /// Files or folders with policies, relations, approvals and pauses, YAML or JSON.
    /// Changed files are read again
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "standalone")]
    policies: Vec<PathBuf>,

    /// Files or folders with the objects of the cluster, for example the output of
    /// kubectl get -o yaml
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "standalone")]
    objects: Vec<PathBuf>,

    /// How often to check these files for changes
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    files_poll: Duration,
}

impl StandaloneArguments {
    /// Creates a decider for these files.
    pub fn decider(
        self,
        metrics: &Metrics,
        readiness: &Readiness,
    ) -> Result<impl Fn(&Review<'_>) -> Verdict + use<>, CommandError> {
        let Self { policies, objects, files_poll } = self;
        let with_objects = !objects.is_empty();
        let folders = Folders(policies.into_iter().chain(objects).collect());
        let world: Arc<ArcSwap<World>> = if folders.is_empty() {
            Arc::default()
        } else {
            let problem = "a file is invalid (see the log); belay uses the last valid content";
            let good = readiness.optional_condition("files", problem);
            let status = FileStatus { metrics: metrics.clone(), good };
            files::watch(folders, with_objects, files_poll, status)?
        };
        Ok(move |review: &Review<'_>| world.load().decide(review, Timestamp::now().as_second()))
    }
}

/// Creates the certificates at the first start, when the folder is empty. A partial set of files is
/// from another source, so it is not overwritten.
pub fn make_certificates_once(paths: &CertificatePaths) -> Result<(), CommandError> {
    let folder = paths.ca_cert.parent().unwrap_or(Path::new(""));
    let existing = paths.existing();
    match existing.len() {
        0 => {
            let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
            make_files(folder, &names, CERTIFICATE_DAYS)?;
            tracing::info!(folder = %folder.display(), "created a certificate authority and a \
                                                        server certificate");
            Ok(())
        }
        3 => Ok(()),
        _ => Err(CommandError::Usage(format!(
            "{} exists, but not all of ca.crt, tls.crt and tls.key; use an empty --cert-dir, or \
             name your paths pair with --tls-cert and --tls-key",
            existing.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" and ")
        ))),
    }
}
