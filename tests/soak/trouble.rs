//! Leaders that are killed, and leaders that are paused and resume while they still believe
//! they are the leader.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::lock;
use crate::harness::proxy::EgressProxy;
use crate::harness::random::Random;
use crate::harness::{Installed, Result};

/// Causes faults until it is stopped; at the end all replicas run. Returns how often
/// leaders were killed and paused.
pub fn trouble(
    belay: &Arc<Mutex<Installed>>,
    proxy: &EgressProxy,
    address: &str,
    mut random: Random,
    stop: &AtomicBool,
) -> Result<(usize, usize)> {
    let (mut killed, mut paused) = (0, 0);
    let addresses = lock(belay).addresses();
    while wait(Duration::from_secs(8 + random.below(12) as u64), stop) {
        let number = {
            let belay = lock(belay);
            // Mostly the leader, sometimes a random replica.
            match belay.leader() {
                Ok(leader) if random.chance(85) => leader,
                _ => random.below(addresses.len()),
            }
        };
        let others: Vec<SocketAddr> =
            addresses.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, a)| *a).collect();
        let away = Duration::from_millis(500 + random.below(20_000) as u64);
        if random.chance(50) {
            lock(belay).replicas[number].process.kill();
            killed += 1;
        } else {
            lock(belay).replicas[number].process.signal(Signal::STOP)?;
            paused += 1;
        }
        // A Service needs time to see that a Pod does not answer.
        let unseen = Duration::from_millis(random.below(3000) as u64);
        wait(unseen.min(away), stop);
        proxy.route(address, &others);
        proxy.cut_open();
        wait(away.saturating_sub(unseen), stop);
        let mut belay = lock(belay);
        let replica = &mut belay.replicas[number];
        if replica.process.is_running() {
            replica.process.signal(Signal::CONT)?;
        } else {
            replica.process.restart()?;
        }
        replica.wait_until_ready()?;
        drop(belay);
        proxy.route(address, &addresses);
        proxy.cut_open();
    }
    Ok((killed, paused))
}

/// Waits; false: it is over.
fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        crate::harness::pause(Duration::from_millis(50));
    }
    !stop.load(Ordering::Relaxed)
}
