//! `belay admin`: what is done once, around an installation.

mod certs;
mod manifests;

use clap::Subcommand;

use super::CommandError;

#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Make a certificate authority and a server certificate
    Certs(certs::CertsArguments),
    /// Print the webhook configurations, to be piped into kubectl apply
    Manifests(manifests::ManifestsArguments),
}

/// Does it.
pub fn run(command: AdminCommand) -> Result<(), CommandError> {
    match command {
        AdminCommand::Certs(arguments) => certs::run(arguments),
        AdminCommand::Manifests(arguments) => manifests::run(arguments),
    }
}
