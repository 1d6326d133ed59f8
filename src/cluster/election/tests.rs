//! Elections of an uninstall and of a replica, with a simulated API server that stores the Lease.

use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::cluster::local_api::{failure, local_client};
use crate::cluster::{Clock, World};

const NOW: i64 = 1_767_268_800;

fn at(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(NOW + second).unwrap()
}

/// The plural and the name of the Lease.
const LEASE: (&str, &str) = ("leases", "belay");

/// An API server with one Lease, whose version grows with every write. `None`: its Namespace does
/// not exist.
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
                let read = &body["preconditions"];
                let matches = |field: &str| read[field] == lease["metadata"][field];
                if matches("uid") && matches("resourceVersion") {
                    *lease = Value::Null;
                    (200, json!({"kind": "Status", "status": "Success"}))
                } else {
                    failure(409, "no", LEASE)
                }
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

/// The context of a process named `me` with these intervals, and the Lease in the API server.
fn context_with_lease(lease: Option<Value>, timing: &str) -> (Context, Arc<Mutex<Option<Value>>>) {
    let (client, stored) = server(lease);
    let world = World { clock: Clock::from_server(at(5)), ..World::default() };
    let mut context = Context::of_test(client, world, &[]);
    let mut settings = (*context.settings).clone();
    settings.replica = "me".to_owned();
    settings.timing = timing.parse().unwrap();
    context.settings = Arc::new(settings);
    (context, stored)
}

fn spec(stored: &Mutex<Option<Value>>) -> Spec {
    lease_spec(&serde_json::from_value(stored.lock().clone().unwrap()).unwrap())
}

/// The Lease after replica `b` has written it.
fn taken_by_b() -> Option<Value> {
    let mut lease = led_by("b", 10);
    lease["metadata"]["resourceVersion"] = json!("20");
    Some(lease)
}

#[tokio::test(start_paused = true)]
async fn an_uninstall_takes_the_lease_from_a_leader_and_keeps_it() {
    let (context, stored) = context_with_lease(Some(led_by("a", 0)), "lease.uninstall=120");
    let election = Election::of_uninstall(&context);
    let previous = election.take_over().await.unwrap().unwrap();
    let may_act_for = Duration::from_secs(15);
    assert_eq!(previous, PreviousLeader { name: Some("a".to_owned()), may_act_for });
    let timing::Lease { duration, skew, uninstall, .. } = Timing::default().lease;
    for name in ["a", "b"] {
        // The clock is a minute ahead, or a minute behind.
        for now in [-60, 5, 65] {
            let me = Candidate { name, duration, skew, takes_over: false };
            let decision = evaluate(&spec(&stored), me, at(now));
            let stands_by = matches!(decision, LeaseDecision::StandBy { .. });
            assert!(stands_by, "{name} at {now}: {decision:?}");
        }
    }
    let version = || {
        let lease = stored.lock().clone().unwrap();
        lease["metadata"]["resourceVersion"].as_str().unwrap().parse::<u32>().unwrap()
    };
    let (taken, renewal) = (version(), renewal_interval(uninstall));
    assert_eq!((uninstall.as_secs(), renewal.as_secs()), (120, 10));
    let renewals = async {
        sleep(renewal + Duration::from_secs(1)).await;
        assert_eq!(version(), taken + 2, "one write at the beginning, and a renewal");
        // A replica takes the Lease back. The next renewal takes it again.
        *stored.lock() = taken_by_b();
        sleep(renewal / 2).await;
        assert_eq!(spec(&stored).holder.as_deref(), Some("b"));
        sleep(renewal / 2).await;
        assert_eq!(spec(&stored).holder.as_deref(), Some("me"));
    };
    tokio::select! {
        () = renewals => {}
        never = election.run_candidate() => match never {},
    }
    assert_eq!(spec(&stored).duration, Some(uninstall));
    // After the uninstall released the Lease, a replica can take it at once.
    election.step_down().await.unwrap();
    let me = Candidate { name: "b", duration, skew, takes_over: false };
    assert_eq!(evaluate(&spec(&stored), me, at(40)), LeaseDecision::Acquire);
}

#[tokio::test(start_paused = true)]
async fn an_uninstall_waits_for_a_leader_that_looks_dead_and_creates_a_missing_lease() {
    // The leader stopped, or its clock is ten minutes behind.
    let (context, _) = context_with_lease(Some(led_by("a", -600)), "lease.uninstall=120");
    let previous = Election::of_uninstall(&context).take_over().await.unwrap().unwrap();
    assert_eq!(previous.may_act_for, Duration::from_secs(15));
    let (context, stored) = context_with_lease(Some(Value::Null), "lease.uninstall=120");
    let previous = Election::of_uninstall(&context).take_over().await.unwrap().unwrap();
    assert_eq!((previous.name, previous.may_act_for), (None, Duration::ZERO));
    assert_eq!(spec(&stored).holder.as_deref(), Some("me"));
    let (context, _) = context_with_lease(None, "lease.uninstall=120");
    assert_eq!(Election::of_uninstall(&context).take_over().await, Ok(None));
}

#[tokio::test]
async fn an_uninstall_waits_for_a_leader_with_longer_intervals() {
    let short = "lease.duration=4,lease.skew=0.5,lease.request=1,lease.uninstall=40";
    for (written, may_act_for) in [(4, 4), (15, 15), (120, 15)] {
        let mut lease = led_by("a", 0);
        lease["spec"]["leaseDurationSeconds"] = json!(written);
        let (context, _) = context_with_lease(Some(lease), short);
        let previous = Election::of_uninstall(&context).take_over().await.unwrap();
        assert_eq!(previous.unwrap().may_act_for, Duration::from_secs(may_act_for));
    }
}

#[tokio::test(start_paused = true)]
async fn an_uninstall_does_not_release_the_lease_of_a_replica() {
    let (context, stored) = context_with_lease(Some(led_by("a", 0)), "lease.uninstall=120");
    let election = Election::of_uninstall(&context);
    election.take_over().await.unwrap();
    *stored.lock() = taken_by_b();
    election.step_down().await.unwrap();
    assert_eq!(spec(&stored).holder.as_deref(), Some("b"));
}

#[tokio::test]
async fn an_uninstall_deletes_only_its_own_lease() {
    let (context, stored) = context_with_lease(Some(led_by("a", 0)), "lease.uninstall=120");
    let election = Election::of_uninstall(&context);
    assert!(election.delete_lease().await.is_err());
    assert_eq!(spec(&stored).holder.as_deref(), Some("a"));
    election.take_over().await.unwrap();
    assert_eq!(election.delete_lease().await, Ok(true));
    assert_eq!(*stored.lock(), Some(Value::Null));
    assert_eq!(election.delete_lease().await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn an_uninstall_ends_although_the_api_server_does_not_answer() {
    let client = local_client::<String>(|_| None);
    let context = Context::of_test(client, World::default(), &[]);
    let election = Election::of_uninstall(&context);
    let began = Instant::now();
    let limit = Duration::from_secs(100);
    assert!(tokio::time::timeout(limit, election.step_down()).await.unwrap().is_err());
    assert_eq!(began.elapsed(), Timing::default().lease.farewell);
}

#[tokio::test(start_paused = true)]
async fn a_replica_takes_the_lease_of_an_ended_uninstall_if_belay_was_installed_again() {
    for (by, exists, taken) in [
        (Some("uninstall-1"), true, true),
        (Some("uninstall-1"), false, false),
        // An earlier uninstall has ended, and this one runs.
        (Some("uninstall-0"), true, false),
        (None, true, false),
    ] {
        let mut lease = led_by("uninstall-1", 0);
        if let Some(by) = by {
            lease["metadata"]["annotations"] = uninstalled_by(by);
        }
        let (context, stored) = context_with_lease(Some(lease), "lease.duration=15");
        context.signals.registered.send_modify(|registered| registered.any_exists = exists);
        let election = Election::new(&context);
        tokio::select! {
            () = sleep(Duration::from_secs(4)) => {}
            never = election.run_candidate() => match never {},
        }
        let holder = if taken { "me" } else { "uninstall-1" };
        assert_eq!(spec(&stored).holder.as_deref(), Some(holder), "{by:?} {exists}");
    }
}
