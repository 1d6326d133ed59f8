//! Measures `impact` and `used-by` in a large cluster without belay, and `--help`.

use std::path::Path;
use std::time::Instant;

use tokio::runtime::Runtime;

use crate::harness::kubectl::run as run_program;
use crate::harness::{ControlPlane, Options, Result};
use crate::samples::Samples;
use crate::{crowd, program};

/// The number of runs of each command.
const TIMES: usize = 10;

pub fn run(objects: usize) -> Result<()> {
    // No controller changes the measured objects.
    let plane = ControlPlane::start_with(&Options { controllers: false, ..Options::default() })?;
    let runtime = Runtime::new()?;
    let count = runtime.block_on(crowd::make(&plane, objects.div_ceil(crowd::EACH)))?;
    println!("{count} objects in namespaces of {}, {TIMES} runs each", crowd::EACH);
    let (program, kubeconfig) = (program()?, plane.kubeconfig());
    for line in [
        "--help",
        "impact ns/crowd-0",
        "impact configmap/settings-0-6d5f7c9b8 -n crowd-0",
        "used-by configmap/settings-0-6d5f7c9b8 -n crowd-0",
        "stuck -A",
    ] {
        println!("{line}: {}", times(&program, kubeconfig, line)?.row());
    }
    Ok(())
}

fn times(program: &Path, kubeconfig: &Path, line: &str) -> Result<Samples> {
    let arguments: Vec<&str> = line.split(' ').collect();
    let mut samples = Samples::default();
    for _ in 0..TIMES {
        let began = Instant::now();
        let output = run_program(program, kubeconfig, &arguments, None)?;
        samples.push(began.elapsed());
        if !matches!(output.code, 0 | 1) {
            return Err(format!("{line}: {output:?}").into());
        }
    }
    Ok(samples)
}
