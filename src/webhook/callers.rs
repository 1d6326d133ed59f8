//! The known addresses of callers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The limit of known addresses. A cluster has a few API servers. A Pod that once learned
/// the path may have many addresses.
const MAX_CALLERS: usize = 8;

/// After this time without use, any other address may replace an address.
const STALE_AFTER: Duration = Duration::from_secs(600);

/// All uses of an address within this time count as one.
const USE_WINDOW: Duration = Duration::from_secs(10);

/// The client of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// A known address: its caller has shown that it knows the path.
    Known(IpAddr),
    /// An unknown address.
    Unknown(Option<IpAddr>),
}

impl Client {
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Known(address) => Some(address),
            Self::Unknown(address) => address,
        }
    }
}

/// The uses of the path by an address.
#[derive(Debug, Clone, Copy)]
struct CallerUse {
    last: Instant,
    /// The start of the last counted window.
    window_start: Instant,
    /// The number of counted windows.
    windows: u64,
}

impl CallerUse {
    /// The first use.
    fn new(now: Instant) -> Self {
        Self { last: now, window_start: now, windows: 1 }
    }

    fn add(&mut self, now: Instant) {
        self.last = now;
        if now - self.window_start >= USE_WINDOW {
            (self.window_start, self.windows) = (now, self.windows + 1);
        }
    }

    /// The rank of an address. The address with the lowest rank is replaced first.
    fn rank(&self, now: Instant) -> (u64, Instant) {
        let is_stale = now - self.last >= STALE_AFTER;
        (if is_stale { 0 } else { self.windows }, self.last)
    }
}

/// The addresses of the callers that have shown that they know the path. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Callers(Arc<Mutex<HashMap<IpAddr, CallerUse>>>);

impl Callers {
    /// Records that a caller with this address knows the path. If there are too many addresses,
    /// the new one replaces the address with the fewest counted windows. So it does not replace
    /// an API server that sends reviews continuously.
    pub fn add(&self, address: IpAddr) {
        let (mut known, now, address) = (self.0.lock(), Instant::now(), address.to_canonical());
        if let Some(uses) = known.get_mut(&address) {
            uses.add(now);
            return;
        }
        if known.len() >= MAX_CALLERS
            && let Some(lowest) = known.iter().min_by_key(|(_, uses)| uses.rank(now))
        {
            let lowest = *lowest.0;
            known.remove(&lowest);
        }
        known.insert(address, CallerUse::new(now));
    }

    /// The client with this address.
    pub fn client(&self, address: Option<IpAddr>) -> Client {
        let address = address.map(|address| address.to_canonical());
        match address {
            Some(known) if self.0.lock().contains_key(&known) => Client::Known(known),
            _ => Client::Unknown(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(last: u8) -> IpAddr {
        IpAddr::from([10, 1, 0, last])
    }

    fn is_known(callers: &Callers, address: IpAddr) -> bool {
        callers.client(Some(address)) == Client::Known(address)
    }

    #[tokio::test(start_paused = true)]
    async fn h93_an_address_stays_known_until_many_others_replace_it() {
        let (callers, server) = (Callers::default(), IpAddr::from([10, 0, 0, 1]));
        assert_eq!(callers.client(Some(server)), Client::Unknown(Some(server)));
        callers.add("::ffff:10.0.0.1".parse().unwrap());
        assert!(is_known(&callers, server));
        for last in 0..=255 {
            tokio::time::advance(Duration::from_millis(1)).await;
            callers.add(pod(last));
        }
        assert!(!is_known(&callers, pod(1)) && is_known(&callers, pod(255)));
    }

    #[tokio::test(start_paused = true)]
    async fn h109_many_new_addresses_do_not_replace_an_active_one() {
        let (callers, server) = (Callers::default(), IpAddr::from([10, 0, 0, 1]));
        for _ in 0..2 {
            callers.add(server);
            tokio::time::advance(USE_WINDOW).await;
        }
        callers.add(server);
        (0..=255).chain(0..=255).for_each(|last| callers.add(pod(last)));
        assert!(is_known(&callers, server));
        let known = (0..=255).filter(|last| is_known(&callers, pod(*last))).count();
        assert_eq!(known, MAX_CALLERS - 1);
        // An API server that has stopped does not stay known.
        tokio::time::advance(STALE_AFTER).await;
        (0..8).for_each(|last| callers.add(pod(last)));
        assert!(!is_known(&callers, server));
    }
}
