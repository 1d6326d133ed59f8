//! The machine that measures.

use crate::harness::Result;

/// Prints the load of the machine before and after a measurement.
pub fn with_load(run: impl FnOnce() -> Result<()>) -> Result<()> {
    let load = || -> Result<String> {
        let text = std::fs::read_to_string("/proc/loadavg")?;
        Ok(text.split(' ').take(2).collect::<Vec<_>>().join(" "))
    };
    let cores = std::thread::available_parallelism()?;
    println!("{cores} cores, load before (1 min, 5 min): {}", load()?);
    run()?;
    println!("load after: {}", load()?);
    Ok(())
}
