//! Between the Lease of the API server and what belay decides by.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::lease::Spec;

/// What a Lease says; nonsense in it says nothing.
pub fn of_lease(lease: &LeaseSpec) -> Spec {
    let seconds = lease.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let transitions = lease.lease_transitions.and_then(|count| u32::try_from(count).ok());
    Spec {
        holder: lease.holder_identity.clone().filter(|holder| !holder.is_empty()),
        acquired: lease.acquire_time.as_ref().map(|time| time.0),
        renewed: lease.renew_time.as_ref().map(|time| time.0),
        duration: seconds.map(Duration::from_secs),
        transitions: transitions.unwrap_or_default(),
    }
}

/// What belay does not know of is left as it was.
pub fn into_lease(spec: &Spec, lease: &mut LeaseSpec) {
    let seconds = spec.duration.map(|duration| i32::try_from(duration.as_secs()));
    lease.holder_identity.clone_from(&spec.holder);
    lease.acquire_time = spec.acquired.map(micros);
    lease.renew_time = spec.renewed.map(micros);
    lease.lease_duration_seconds = seconds.map(|seconds| seconds.unwrap_or(i32::MAX).max(1));
    lease.lease_transitions = Some(i32::try_from(spec.transitions).unwrap_or(i32::MAX));
}

/// As precise as the API server stores it, and never later.
fn micros(time: Timestamp) -> MicroTime {
    let over = SignedDuration::from_nanos(i64::from(time.subsec_nanosecond().rem_euclid(1000)));
    MicroTime(time.saturating_sub(over).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::stepped_down;

    #[test]
    fn a_spec_survives_the_lease_and_what_others_wrote_stays() {
        let time = Timestamp::new(1_767_268_800, 123_456_789).unwrap();
        let rounded = Timestamp::new(1_767_268_800, 123_456_000).unwrap();
        let spec = Spec {
            holder: Some("a".to_owned()),
            acquired: Some(time),
            renewed: Some(time),
            duration: Some(Duration::from_secs(15)),
            transitions: 3,
        };
        let mut lease = LeaseSpec {
            strategy: Some("OldestEmulationVersion".to_owned()),
            ..LeaseSpec::default()
        };
        into_lease(&spec, &mut lease);
        let back = of_lease(&lease);
        assert_eq!(back, Spec { acquired: Some(rounded), renewed: Some(rounded), ..spec });
        assert_eq!(lease.strategy.as_deref(), Some("OldestEmulationVersion"));
        into_lease(&stepped_down(&back), &mut lease);
        assert_eq!((lease.holder_identity, lease.renew_time), (None, None));
    }

    #[test]
    fn a_lease_that_says_nonsense_says_nothing() {
        let lease = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(-1),
            lease_transitions: Some(-1),
            ..LeaseSpec::default()
        };
        assert_eq!(of_lease(&lease), Spec::default());
    }
}
