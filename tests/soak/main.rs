//! A soak: users, policies and leaders in motion, and a referee that reads the
//! audit log.
//!
//! ```text
//! cargo run --example soak -- --seed 7 --minutes 60 --rate 20
//! ```
//!
//! The seed chooses the actions; their order of arrival is random. Exits with 1 if it finds
//! an error.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;

mod attacker;
mod call;
mod checks;
mod manifests;
mod memory;
mod people;
mod plan;
mod policies;
mod referee;
mod report;
mod run;
mod stage;
mod trouble;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// Soaks belay in front of a real control plane
#[derive(Debug, Parser)]
struct Arguments {
    /// Chooses what is done
    #[arg(long, default_value = "1")]
    seed: u64,

    /// For how long
    #[arg(long, default_value = "1")]
    minutes: f64,

    /// Actions a second
    #[arg(long, default_value = "20")]
    rate: f64,

    /// The belay to soak [default: the one built beside this program]
    #[arg(long)]
    belay: Option<PathBuf>,

    /// Leave the control plane's logs where they are
    #[arg(long)]
    keep: bool,

    /// Have the referee read an audit log that was kept, and do nothing else
    #[arg(long, value_name = "FILE")]
    judge: Option<PathBuf>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match soak(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: seed {}: {error}", arguments.seed);
            ExitCode::FAILURE
        }
    }
}

async fn soak(arguments: &Arguments) -> harness::Result<bool> {
    if let Some(log) = &arguments.judge {
        let report = judge(log)?;
        println!("{report}");
        return Ok(report.is_clean());
    }
    let beside = || -> Option<PathBuf> {
        Some(std::env::current_exe().ok()?.parent()?.parent()?.join("belay"))
    };
    let program = arguments.belay.clone().or_else(beside).filter(|path| path.exists());
    let settings = run::Settings {
        seed: arguments.seed,
        length: Duration::from_secs_f64(arguments.minutes * 60.0),
        rate: arguments.rate.clamp(0.1, 1000.0),
        program: program.ok_or("there is no belay; build it, or name it with --belay")?,
    };
    let report = run::run(&settings).await?;
    println!("{report}");
    if report.is_clean() && !arguments.keep {
        harness::folder::remove_own();
    }
    Ok(report.is_clean())
}

/// Has the referee read a log for which there is no API server.
fn judge(log: &Path) -> harness::Result<report::Report> {
    let mut report = report::Report::default();
    let referee = referee::Referee::read(run::reader(log)?)?;
    report.open_watches(&referee, stage::REPLICAS);
    report.judged(referee.judge(stage::BELAY, &BTreeSet::new(), &|_| false));
    Ok(report)
}
