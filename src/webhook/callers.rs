//! Clients, as far as they are known before they send anything.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::RwLock;

/// So many addresses are known: a cluster has a few API servers.
const MOST: usize = 64;

/// The bits of an IPv6 address that one host may choose.
const HOST: u128 = u64::MAX as u128;

/// Whose connection it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// The address of a caller that has shown that it knows the path.
    Known(Option<IpAddr>),
    /// Another one, of IPv6 the network.
    Unknown(Option<IpAddr>),
}

/// The addresses of the callers that have shown that they know the path. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Callers(Arc<RwLock<VecDeque<IpAddr>>>);

impl Callers {
    /// A caller of this address knows the path.
    pub fn add(&self, address: IpAddr) {
        let address = address.to_canonical();
        if self.0.read().contains(&address) {
            return;
        }
        let mut known = self.0.write();
        known.push_back(address);
        if known.len() > MOST {
            known.pop_front();
        }
    }

    /// Whose connection comes from this address.
    pub fn client(&self, address: Option<IpAddr>) -> Client {
        let address = address.map(|address| address.to_canonical());
        match address {
            Some(known) if self.0.read().contains(&known) => Client::Known(address),
            Some(IpAddr::V6(v6)) => {
                Client::Unknown(Some(Ipv6Addr::from_bits(v6.to_bits() & !HOST).into()))
            }
            _ => Client::Unknown(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h93_an_address_is_known_by_its_path_and_an_unknown_host_has_one_network() {
        let callers = Callers::default();
        let of = |text: &str| callers.client(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8::1:2"), of("2001:db8::3:4"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("10.0.0.1"), Client::Unknown(Some("10.0.0.1".parse().unwrap())));
        callers.add("::ffff:10.0.0.1".parse().unwrap());
        assert_eq!(of("10.0.0.1"), Client::Known(Some("10.0.0.1".parse().unwrap())));
        for last in 0..=255 {
            callers.add(IpAddr::from([10, 1, 0, last]));
        }
        assert!(matches!(of("10.0.0.1"), Client::Unknown(_)));
        assert!(matches!(of("10.1.0.255"), Client::Known(_)));
    }
}
