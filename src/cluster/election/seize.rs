//! The Lease, taken from whoever leads: for whoever takes belay out of a
//! cluster, and wants nobody to put back what was taken off.
//!
//! To the replicas it is a write like any other: the leader's next renewal is
//! refused, it reads that somebody else leads, and believes no more. What was
//! taken is good for much longer than a leader's word and renewed often, so
//! that an API server which does not answer for a while gives nothing back.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Preconditions};
use tokio::time::sleep;

use super::leases::{Leases, exists, lease_spec};
use super::record::{apply_to_lease, set_certificate_until, spec_from_lease};
use crate::cluster::Clock;
use crate::cluster::pace::within;
use crate::lease::{Candidate, Spec, next_spec, released_spec};
use crate::objects::ApiError;
use crate::timing::{self, Timing};

/// How often in a row somebody else may be quicker.
const TRIES: usize = 20;

/// The Lease of an installation, taken.
pub struct Seat {
    leases: Leases,
    holder: String,
    clock: Clock,
    timing: timing::Lease,
    /// Who had led, as far as the Lease said.
    pub from: Option<String>,
    /// For so long from the taking on, whoever had led may believe to lead.
    pub believed: Duration,
}

/// What is worth telling while the Lease is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Somebody had taken it back, and it was taken again.
    Again(String),
    /// It cannot be renewed: words that say why.
    Failing(String),
}

/// Takes the Lease of an installation, whoever has it; none: its namespace is
/// not there, or goes, so nobody can have one.
pub async fn seize(
    client: &kube::Client,
    installation: (&str, &str),
    holder: String,
    clock: Clock,
    timing: timing::Lease,
) -> Result<Option<Seat>, ApiError> {
    let leases = Leases::new(client, installation, timing.request);
    let mut seat = Seat { leases, holder, clock, timing, from: None, believed: Duration::ZERO };
    match seat.take().await {
        Ok(before) => {
            seat.believed = seat.believed(&before);
            seat.from = before.holder;
            Ok(Some(seat))
        }
        // Only what cannot be made is not found.
        Err(ApiError::NotFound) => Ok(None),
        // Nobody can make one in a namespace that goes.
        Err(ApiError::NamespaceTerminating(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn contested() -> ApiError {
    ApiError::Other("somebody else writes the Lease again and again".to_owned())
}

impl Seat {
    /// How long the holder of a Lease that was just taken may believe to lead.
    /// When it says it has renewed it says nothing: one whose clock is far behind
    /// renews happily, and looks as if it were dead.
    fn believed(&self, before: &Spec) -> Duration {
        if before.holder.is_none() {
            return Duration::ZERO;
        }
        // A replica may have longer intervals than this uninstall.
        let written = before.duration.unwrap_or_default();
        written.min(Timing::default().lease.duration).max(self.timing.duration)
    }

    fn me(&self) -> Candidate<'_> {
        Candidate { name: &self.holder, duration: self.timing.seized, skew: self.timing.skew }
    }

    /// Writes the Lease, upon whatever is there. What was there comes back.
    async fn take(&self) -> Result<Spec, ApiError> {
        for _ in 0..TRIES {
            let mut lease = self.leases.read().await?;
            let before = lease_spec(&lease);
            let wanted = next_spec(&before, self.me(), self.clock.now());
            apply_to_lease(&wanted, lease.spec.get_or_insert_default());
            set_certificate_until(&mut lease, None);
            if self.leases.store(&lease).await?.is_some() {
                return Ok(before);
            }
        }
        Err(contested())
    }

    /// Renews it for ever, and takes it again from whoever has taken it back.
    pub async fn keep(&self, tell: impl Fn(Kept)) -> Infallible {
        let mut failing = false;
        loop {
            sleep(if failing { self.timing.seized_retry } else { self.timing.seized_renewal })
                .await;
            match self.take().await {
                Ok(before) => {
                    failing = false;
                    if let Some(other) = before.holder.filter(|holder| *holder != self.holder) {
                        tell(Kept::Again(other));
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tell(Kept::Failing(error.to_string()));
                    }
                }
            }
        }
    }

    /// Says that nobody leads, so that replicas that run go on at once.
    pub async fn give_back(&self) -> Result<(), ApiError> {
        for _ in 0..TRIES {
            let mut lease = self.leases.read().await?;
            if lease_spec(&lease).holder.as_deref() != Some(&self.holder) {
                return Ok(());
            }
            let spec = lease.spec.get_or_insert_default();
            apply_to_lease(&released_spec(&spec_from_lease(spec)), spec);
            if self.leases.store(&lease).await?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Deletes it. One that is not there any more is as good.
    pub async fn delete(&self) -> Result<(), ApiError> {
        let lease = self.leases.read().await?;
        if !exists(&lease) {
            return Ok(());
        }
        let same = Preconditions { uid: lease.metadata.uid, ..Preconditions::default() };
        let parameters = DeleteParams::default().preconditions(same);
        match within(self.leases.api.delete(&self.leases.name, &parameters)).await {
            Ok(_) | Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Leaves it as it is, to go with its new owner. Replicas that run stand by
    /// until it has run out.
    pub async fn bequeath(&self, owner: &OwnerReference) -> Result<(), ApiError> {
        for _ in 0..TRIES {
            let mut lease = self.leases.read().await?;
            let wanted = next_spec(&lease_spec(&lease), self.me(), self.clock.now());
            apply_to_lease(&wanted, lease.spec.get_or_insert_default());
            lease.metadata.owner_references = Some(vec![owner.clone()]);
            if self.leases.store(&lease).await?.is_some() {
                return Ok(());
            }
        }
        Err(contested())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::local_api::{failure, local_client};
    use crate::lease::{LeaseDecision, evaluate};

    const NOW: i64 = 1_767_268_800;

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(NOW + second).unwrap()
    }

    /// Its plural and name.
    const LEASE: (&str, &str) = ("leases", "belay");

    /// An API server with one Lease, whose version grows with every write.
    /// `None`: not even its namespace is there.
    fn server(lease: Option<Value>) -> (kube::Client, Arc<Mutex<Option<Value>>>) {
        let stored = Arc::new(Mutex::new(lease));
        let kept = stored.clone();
        let client = local_client(move |request| {
            let (parts, mut body) = request.into_parts();
            let mut stored = kept.lock();
            Some(match (stored.as_mut(), parts.method) {
                (None, _) => failure(404, "none", LEASE),
                (Some(lease), Method::GET) if lease.is_null() => failure(404, "none", LEASE),
                (Some(lease), Method::GET) => (200, lease.clone()),
                (Some(lease), Method::DELETE) => {
                    *lease = Value::Null;
                    (200, json!({"kind": "Status", "status": "Success"}))
                }
                (Some(lease), _) => {
                    let version = |lease: &Value| {
                        let text = lease.pointer("/metadata/resourceVersion")?;
                        text.as_str()?.parse::<u32>().ok()
                    };
                    if version(lease) == version(&body) {
                        let version = version(lease).unwrap_or_default() + 1;
                        body["metadata"]["resourceVersion"] = json!(version.to_string());
                        *lease = body.clone();
                        (200, body)
                    } else {
                        failure(409, "no", LEASE)
                    }
                }
            })
        });
        (client, stored)
    }

    fn led_by(holder: &str, renewed: i64) -> Value {
        let time = at(renewed).to_string();
        json!({"metadata": {"name": "belay", "resourceVersion": "7"}, "spec": {
            "holderIdentity": holder, "renewTime": time, "acquireTime": time,
            "leaseDurationSeconds": 15, "leaseTransitions": 1}})
    }

    async fn seized(lease: Option<Value>) -> (Option<Seat>, Arc<Mutex<Option<Value>>>) {
        let (client, stored) = server(lease);
        let clock = Clock::from_server(at(5));
        let timing = Timing::default().lease;
        (seize(&client, ("belay", "belay"), "me".into(), clock, timing).await.unwrap(), stored)
    }

    fn spec(stored: &Mutex<Option<Value>>) -> Spec {
        lease_spec(&serde_json::from_value(stored.lock().clone().unwrap()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_led_leads_no_more_and_nobody_else_does() {
        let (seat, stored) = seized(Some(led_by("a", 0))).await;
        let seat = seat.unwrap();
        assert_eq!(seat.from.as_deref(), Some("a"));
        assert_eq!(seat.believed, Duration::from_secs(15));
        let timing::Lease { duration, skew, seized_renewal, .. } = Timing::default().lease;
        for name in ["a", "b"] {
            // By a clock that is a minute ahead, and one that is behind.
            for now in [-60, 5, 65] {
                let me = Candidate { name, duration, skew };
                let stand = evaluate(&spec(&stored), me, at(now));
                assert!(
                    matches!(stand, LeaseDecision::StandBy { .. }),
                    "{name} at {now}: {stand:?}"
                );
            }
        }
        // One takes it back all the same; the next renewal takes it again.
        let mut lease = led_by("b", 10);
        lease["metadata"]["resourceVersion"] = json!("20");
        *stored.lock() = Some(lease);
        let told = Mutex::new(Vec::new());
        let keep = seat.keep(|kept| told.lock().push(kept));
        let _ = tokio::time::timeout(seized_renewal * 5 / 2, keep).await;
        assert_eq!(*told.lock(), [Kept::Again("b".to_owned())]);
        assert_eq!(spec(&stored).holder.as_deref(), Some("me"));
        // Given back, anybody may have it at once.
        seat.give_back().await.unwrap();
        let me = Candidate { name: "b", duration, skew };
        assert_eq!(evaluate(&spec(&stored), me, at(40)), LeaseDecision::Acquire);
        seat.delete().await.unwrap();
        assert_eq!(*stored.lock(), Some(Value::Null));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_led_is_waited_for_and_what_is_missing_is_made() {
        // It is dead, or its clock is ten minutes behind.
        let (seat, _) = seized(Some(led_by("a", -600))).await;
        assert_eq!(seat.unwrap().believed, Duration::from_secs(15));
        let (seat, stored) = seized(Some(Value::Null)).await;
        let seat = seat.unwrap();
        assert_eq!((seat.from, seat.believed), (None, Duration::ZERO));
        assert_eq!(spec(&stored).holder.as_deref(), Some("me"));
        assert!(seized(None).await.0.is_none());
    }

    #[tokio::test]
    async fn a_leader_with_longer_intervals_is_waited_for_as_long_as_it_believes() {
        let short = "lease.duration=4,lease.skew=0.5,lease.request=1,lease.seized=40";
        let timing = short.parse::<Timing>().unwrap().lease;
        for (written, believed) in [(4, 4), (15, 15), (120, 15)] {
            let mut lease = led_by("a", 0);
            lease["spec"]["leaseDurationSeconds"] = json!(written);
            let (client, _) = server(Some(lease));
            let clock = Clock::from_server(at(5));
            let seat = seize(&client, ("belay", "belay"), "me".into(), clock, timing).await;
            assert_eq!(seat.unwrap().unwrap().believed, Duration::from_secs(believed));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_else_took_is_not_given_back() {
        let (seat, stored) = seized(Some(led_by("a", 0))).await;
        let mut lease = led_by("b", 10);
        lease["metadata"]["resourceVersion"] = json!("20");
        *stored.lock() = Some(lease);
        seat.unwrap().give_back().await.unwrap();
        assert_eq!(spec(&stored).holder.as_deref(), Some("b"));
    }
}
