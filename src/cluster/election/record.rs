//! Between the Lease of the API server and what belay decides by.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::lease::Spec;

/// Until when the certificate is good that the leader serves.
const CERTIFICATE_UNTIL: &str = "belay.dev/certificate-until";

/// Who leads, and what it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Led {
    /// The name of the replica.
    pub by: String,
    /// Until when its certificate is good; none: it does not say.
    pub certificate_until: Option<Timestamp>,
}

/// What a Lease says of whoever holds it; none: nobody does.
pub fn led(lease: &Lease) -> Option<Led> {
    let by = of_lease(lease.spec.as_ref()?).holder?;
    let said = lease.metadata.annotations.as_ref().and_then(|all| all.get(CERTIFICATE_UNTIL));
    Some(Led { by, certificate_until: said.and_then(|until| until.parse().ok()) })
}

/// Whoever holds the Lease serves a certificate that is good until then (seconds
/// since 1970); none: it serves none. What was said of the holder before is not
/// left to stand.
pub fn serves(lease: &mut Lease, until: Option<i64>) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    match until.and_then(|until| Timestamp::from_second(until).ok()) {
        Some(until) => annotations.insert(CERTIFICATE_UNTIL.to_owned(), until.to_string()),
        None => annotations.remove(CERTIFICATE_UNTIL),
    };
}

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
    use crate::lease::released_spec;

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
        into_lease(&released_spec(&back), &mut lease);
        assert_eq!((lease.holder_identity, lease.renew_time), (None, None));
    }

    #[test]
    fn until_when_a_certificate_is_good_is_said_by_whoever_holds_the_lease() {
        let spec = LeaseSpec { holder_identity: Some("a".to_owned()), ..LeaseSpec::default() };
        let mut lease = Lease { spec: Some(spec), ..Lease::default() };
        let until = |lease: &Lease| led(lease).unwrap().certificate_until.map(|t| t.as_second());
        assert_eq!(until(&lease), None);
        serves(&mut lease, Some(1_800_000_000));
        assert_eq!(until(&lease), Some(1_800_000_000));
        // The next holder has none, and is not taken for the one before.
        serves(&mut lease, None);
        assert_eq!(until(&lease), None);
        let nonsense = [(CERTIFICATE_UNTIL.to_owned(), "soon".to_owned())];
        lease.metadata.annotations = Some(nonsense.into());
        assert_eq!(until(&lease), None);
        assert_eq!(led(&Lease::default()), None);
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
