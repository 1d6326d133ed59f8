//! Clients, as far as they are known before they send anything.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

/// So many addresses are known: a cluster has a few API servers.
const MOST: usize = 64;

/// Whose connection it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// The address of a caller that has shown that it knows the path.
    Known(IpAddr),
    /// Another one, if it has an address.
    Unknown(Option<IpAddr>),
}

/// The addresses of the callers that have shown that they know the path, and when each did
/// so last. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Callers(Arc<Mutex<HashMap<IpAddr, Instant>>>);

impl Callers {
    /// A caller of this address knows the path. Those that have not shown it for the
    /// longest time are forgotten.
    pub fn add(&self, address: IpAddr) {
        let mut known = self.0.lock();
        known.insert(address.to_canonical(), Instant::now());
        if known.len() > MOST
            && let Some(oldest) = known.iter().min_by_key(|(_, last)| **last).map(|(one, _)| *one)
        {
            known.remove(&oldest);
        }
    }

    /// Whose connection comes from this address.
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

    #[test]
    fn h93_an_address_is_known_by_its_path_until_many_others_are() {
        let callers = Callers::default();
        let of = |text: &str| callers.client(Some(text.parse().unwrap()));
        assert_eq!(of("10.0.0.1"), Client::Unknown(Some("10.0.0.1".parse().unwrap())));
        callers.add("::ffff:10.0.0.1".parse().unwrap());
        assert_eq!(of("10.0.0.1"), Client::Known("10.0.0.1".parse().unwrap()));
        for last in 0..=255 {
            callers.add(IpAddr::from([10, 1, 0, last]));
            callers.add("10.0.0.1".parse().unwrap());
        }
        assert!(matches!(of("10.1.0.1"), Client::Unknown(_)));
        assert!(
            ["10.0.0.1", "10.1.0.255"].map(of).iter().all(|one| matches!(one, Client::Known(_)))
        );
    }
}
