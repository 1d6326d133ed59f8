//! `kubectl belay admin`: commands for administrators.

mod certs;
mod crds;
mod manifests;
mod rbac;
mod schemas;
mod selftest;
mod uninstall;

use std::process::ExitCode;

use clap::Subcommand;

pub use self::uninstall::UninstallOutput;
use super::CommandError;

#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Create a CA and a server certificate
    Certs(certs::CertsArguments),
    /// Print belay's CRDs and ValidatingAdmissionPolicies
    Crds(crds::CrdsArguments),
    /// Print the webhook configurations and RBAC manifests
    Manifests(manifests::ManifestsArguments),
    /// Test whether an installation protects objects
    Selftest(selftest::SelftestArguments),
    /// Remove belay and its protection from the cluster
    Uninstall(Box<uninstall::UninstallArguments>),
    /// Print the JSON schemas of the -o json output
    Schemas(schemas::SchemasArguments),
}

pub fn run(command: AdminCommand) -> Result<ExitCode, CommandError> {
    let success = |()| ExitCode::SUCCESS;
    match command {
        AdminCommand::Certs(arguments) => certs::run(arguments).map(success),
        AdminCommand::Crds(arguments) => crds::run(arguments).map(success),
        AdminCommand::Manifests(arguments) => manifests::run(arguments).map(success),
        AdminCommand::Selftest(arguments) => selftest::run(arguments),
        AdminCommand::Uninstall(arguments) => uninstall::run(*arguments),
        AdminCommand::Schemas(arguments) => schemas::run(arguments).map(success),
    }
}

/// An object as one YAML document.
fn yaml(value: &impl serde::Serialize) -> Result<String, CommandError> {
    serde_saphyr::to_string(value)
        .map_err(|error| CommandError::Output(std::io::Error::other(error)))
}
