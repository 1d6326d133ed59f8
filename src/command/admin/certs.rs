//! `belay admin certs`: creates a CA and a server certificate for the given names.

use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use crate::certs::{CertificatePaths, MAX_DAYS, make_files};
use crate::command::{CommandError, print};

#[derive(Debug, Args)]
pub struct CertsArguments {
    /// A DNS name or IP address of the server; repeat it for more [default:
    /// the names in --config]
    #[arg(long = "name", value_name = "NAME", required_unless_present = "config")]
    names: Vec<String>,

    /// A file with names and days, as certs/certs.yaml has them
    #[arg(long, value_name = "FILE", required_unless_present = "names", conflicts_with = "names")]
    config: Option<PathBuf>,

    /// Days until the certificates expire [default: 365, or the value in --config]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    days: Option<u32>,

    /// Where ca.crt, tls.crt and tls.key are written
    #[arg(long = "cert-dir", value_name = "DIR", default_value = "certs")]
    folder: PathBuf,

    /// Replace the files that are there
    #[arg(long)]
    force: bool,
}

/// The configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    names: Vec<String>,
    days: Option<u32>,
}

pub fn run(arguments: CertsArguments) -> Result<(), CommandError> {
    let CertsArguments { names, config, days, folder, force } = arguments;
    let Config { names, days: configured } = match config {
        None => Config { names, days: None },
        Some(path) => {
            let text = std::fs::read_to_string(&path)
                .map_err(|source| CommandError::Read { path: path.clone(), source })?;
            serde_saphyr::from_str(&text)
                .map_err(|error| CommandError::Content { path, detail: error.to_string() })?
        }
    };
    if names.is_empty() {
        return Err(CommandError::usage(
            "a certificate needs at least one name; give --name or put names into --config",
        ));
    }
    if let Some(path) = CertificatePaths::in_folder(&folder).existing().first().filter(|_| !force) {
        return Err(CommandError::Usage(format!(
            "{} already exists; --force replaces it, --cert-dir names another folder",
            path.display()
        )));
    }
    let paths = make_files(&folder, &names, days.or(configured).unwrap_or(365))?;
    print(&format!(
        "{}  the CA certificate (caBundle)\n{}\n{}  keep it secret\n",
        paths.ca_cert.display(),
        paths.tls_cert.display(),
        paths.tls_key.display()
    ))
}
