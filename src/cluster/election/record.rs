//! Converts between the Lease of the API server and [`Spec`].

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::lease::Spec;

/// The annotation with the expiry of the certificate that the leader serves.
const CERTIFICATE_UNTIL: &str = "belay.dev/certificate-until";

/// The annotation with the name of the uninstall that has ended and left this Lease behind.
const UNINSTALLED_BY: &str = "belay.dev/uninstalled-by";

/// The beginning of the name with which an uninstall takes the Lease.
const UNINSTALL: &str = "uninstall-";

/// The name with which an uninstall takes the Lease. It differs from the names of replicas.
pub fn uninstall_name(process: &str) -> String {
    format!("{UNINSTALL}{process}")
}

/// The change of the annotations by which an uninstall marks the Lease that it leaves behind.
pub fn uninstalled_by(uninstall: &str) -> serde_json::Value {
    serde_json::json!({UNINSTALLED_BY: uninstall})
}

/// Whether the holder of a Lease is an uninstall that has ended.
pub fn is_left_behind(lease: &Lease) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref());
    let annotations = lease.metadata.annotations.as_ref();
    holder.is_some() && annotations.and_then(|all| all.get(UNINSTALLED_BY)) == holder
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderInfo {
    pub replica: String,
    /// When it last renewed the Lease.
    pub renewed: Option<Timestamp>,
    /// The expiry of its certificate, if the Lease contains it.
    pub certificate_until: Option<Timestamp>,
}

impl LeaderInfo {
    /// Whether the holder is an uninstall.
    pub fn is_uninstall(&self) -> bool {
        self.replica.starts_with(UNINSTALL)
    }
}

/// The holder of a Lease; `None` if there is none, or if it is an uninstall that has ended.
pub fn leader_info(lease: &Lease) -> Option<LeaderInfo> {
    if is_left_behind(lease) {
        return None;
    }
    let spec = spec_from_lease(lease.spec.as_ref()?);
    let (replica, renewed) = (spec.holder?, spec.renewed);
    let until = lease.metadata.annotations.as_ref().and_then(|all| all.get(CERTIFICATE_UNTIL));
    let certificate_until = until.and_then(|until| until.parse().ok());
    Some(LeaderInfo { replica, renewed, certificate_until })
}

/// Records the expiry of the holder's certificate, in seconds since 1970. `None` removes
/// the value of an earlier holder.
pub fn set_certificate_until(lease: &mut Lease, until: Option<i64>) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    match until.and_then(|until| Timestamp::from_second(until).ok()) {
        Some(until) => annotations.insert(CERTIFICATE_UNTIL.to_owned(), until.to_string()),
        None => annotations.remove(CERTIFICATE_UNTIL),
    };
}

/// Reads the spec of a Lease, and ignores invalid values.
pub fn spec_from_lease(lease: &LeaseSpec) -> Spec {
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

/// Writes the spec into a Lease. Keeps the fields that belay does not know.
pub fn apply_to_lease(spec: &Spec, lease: &mut LeaseSpec) {
    let seconds = spec.duration.map(|duration| i32::try_from(duration.as_secs()));
    lease.holder_identity.clone_from(&spec.holder);
    lease.acquire_time = spec.acquired.map(truncate_to_micros);
    lease.renew_time = spec.renewed.map(truncate_to_micros);
    lease.lease_duration_seconds = seconds.map(|seconds| seconds.unwrap_or(i32::MAX).max(1));
    lease.lease_transitions = Some(i32::try_from(spec.transitions).unwrap_or(i32::MAX));
}

/// Rounds down to the precision of the API server.
fn truncate_to_micros(time: Timestamp) -> MicroTime {
    let over = SignedDuration::from_nanos(i64::from(time.subsec_nanosecond().rem_euclid(1000)));
    MicroTime(time.saturating_sub(over).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::released_spec;

    #[test]
    fn a_spec_is_read_as_it_was_written_and_other_fields_stay() {
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
        apply_to_lease(&spec, &mut lease);
        let back = spec_from_lease(&lease);
        assert_eq!(back, Spec { acquired: Some(rounded), renewed: Some(rounded), ..spec });
        assert_eq!(lease.strategy.as_deref(), Some("OldestEmulationVersion"));
        apply_to_lease(&released_spec(&back), &mut lease);
        assert_eq!((lease.holder_identity, lease.renew_time), (None, None));
    }

    #[test]
    fn the_holder_of_the_lease_reports_the_expiry_of_the_certificate() {
        let spec = LeaseSpec { holder_identity: Some("a".to_owned()), ..LeaseSpec::default() };
        let mut lease = Lease { spec: Some(spec), ..Lease::default() };
        let until =
            |lease: &Lease| leader_info(lease).unwrap().certificate_until.map(|t| t.as_second());
        assert_eq!(until(&lease), None);
        set_certificate_until(&mut lease, Some(1_800_000_000));
        assert_eq!(until(&lease), Some(1_800_000_000));
        // The next holder has no certificate, and does not keep the earlier value.
        set_certificate_until(&mut lease, None);
        assert_eq!(until(&lease), None);
        let nonsense = [(CERTIFICATE_UNTIL.to_owned(), "soon".to_owned())];
        lease.metadata.annotations = Some(nonsense.into());
        assert_eq!(until(&lease), None);
        assert_eq!(leader_info(&Lease::default()), None);
        let lease = |by: &str| -> Lease {
            let metadata = serde_json::json!({"annotations": uninstalled_by(by)});
            let spec = serde_json::json!({"holderIdentity": "uninstall-1"});
            serde_json::from_value(serde_json::json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        assert_eq!(leader_info(&lease("uninstall-1")), None);
        assert!(leader_info(&lease("uninstall-0")).unwrap().is_uninstall());
        let replica =
            LeaderInfo { replica: "belay-0".to_owned(), renewed: None, certificate_until: None };
        assert!(!replica.is_uninstall());
    }

    #[test]
    fn ignores_invalid_values_of_a_lease() {
        let lease = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(-1),
            lease_transitions: Some(-1),
            ..LeaseSpec::default()
        };
        assert_eq!(spec_from_lease(&lease), Spec::default());
    }
}
