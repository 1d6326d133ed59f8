//! One minute of the soak, as a test.

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

use std::time::Duration;

/// `BELAY_SOAK_SEED` chooses another minute; the report contains the seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_of_everything_at_once_leaves_nothing_wrong() {
    let seed = std::env::var("BELAY_SOAK_SEED").ok();
    let seed = seed.map_or(20_261, |seed| seed.parse().expect("BELAY_SOAK_SEED is a number"));
    let settings = run::Settings {
        seed,
        length: Duration::from_secs(60),
        rate: 15.0,
        program: env!("CARGO_BIN_EXE_belay").into(),
    };
    let report = run::run(&settings).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(report.is_clean(), "{report}");
    // A soak without protected objects would find nothing.
    assert!(report.sentence.held > 20 && report.sentence.released > 5, "{report}");
    assert!(report.sentence.looked.judged > 10, "{report}");
    assert!(report.sentence.refused.iter().any(|(why, _)| why.starts_with("403")), "{report}");
    assert!(report.compared > 0 && report.changes > 0, "{report}");
    assert!(report.killed + report.paused > 0, "{report}");
    assert!(report.attacks() > 20, "{report}");
    println!("{report}");
}
