//! The kinds of belay.dev in the real API server: `belay admin crds` as
//! kubectl applies it, and whole examples of each kind.

mod approvals;
mod events;
mod examples;
mod labels;
mod refusals;

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use belay::policy::api::crds;
use serde_json::Value;

use crate::harness::kubectl::Output;
use crate::harness::{ControlPlane, Result, eventually};
use crate::{program, world};

/// The control plane of all tests with the CRDs and their enforced policies, and the output
/// of the kubectl that applied them.
pub fn installed() -> (&'static ControlPlane, &'static Output) {
    static OUTPUT: OnceLock<std::result::Result<Output, String>> = OnceLock::new();
    let plane = &world().plane;
    let output = OUTPUT.get_or_init(|| install(plane).map_err(|error| error.to_string()));
    (plane, output.as_ref().unwrap())
}

/// Applies the CRDs with kubectl, waits until they are served, and returns its output.
pub fn apply_kinds(plane: &ControlPlane) -> Result<Output> {
    let output = plane.apply_to(&["apply", "-f", "-"], &manifests()?)?;
    output.clone().success()?;
    for crd in crds() {
        let name = format!("crd/{}", crd.metadata.name.unwrap_or_default());
        let args = ["wait", "--for=condition=Established", "--timeout=30s", &name];
        plane.kubectl(&args)?.success()?;
    }
    Ok(output)
}

fn install(plane: &ControlPlane) -> Result<Output> {
    plane.apply(&labels::stored())?;
    let output = apply_kinds(plane)?;
    // A policy is enforced a moment after it is stored. Only a refused request shows that
    // it is.
    let forged = [
        approval("forged", "nobody", in_seconds(60), "a", "persistentvolumeclaims"),
        pause("forged", "nobody", in_seconds(60)),
    ];
    for object in forged {
        eventually("a refusal", Duration::from_secs(30), || {
            let refusal = refusal(plane, &object)?;
            let enforced = refusal["message"].to_string().contains("is nobody, but you are admin");
            if enforced { Ok(()) } else { Err(refusal.to_string().into()) }
        })?;
    }
    Ok(output)
}

/// The output of `belay admin crds`.
fn manifests() -> Result<String> {
    let output = Command::new(program()).args(["admin", "crds"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The Status of the API server for an object that it refuses to create.
fn refusal(plane: &ControlPlane, object: &Value) -> Result<Value> {
    match plane.api().would_create(object, "default")? {
        Ok(stored) => Err(format!("it was accepted: {stored}").into()),
        Err(status) => Ok(status),
    }
}

/// A time from now, as the API server writes times.
fn in_seconds(seconds: i64) -> String {
    let time = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    serde_json::json!({
        "apiVersion": "belay.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// An approval for an object called `data` of the core group.
fn approval(name: &str, approver: &str, until: String, namespace: &str, resource: &str) -> Value {
    object(
        "DeletionApproval",
        name,
        serde_json::json!({
            "targetRef": {
                "group": "",
                "resource": resource,
                "namespace": namespace,
                "name": "data",
                "uid": "8c1f4f5e-0000-4000-8000-000000000000",
            },
            "approver": approver,
            "reason": "the tenant has left",
            "expirationTime": until,
        }),
    )
}

fn pause(name: &str, by: &str, until: String) -> Value {
    let spec = serde_json::json!({"by": by, "reason": "a migration", "expirationTime": until});
    object("Pause", name, spec)
}

#[test]
fn admin_crds_is_applied_without_a_warning_and_again_without_a_change() {
    let (plane, applied) = installed();
    assert_eq!(applied.stderr, "");
    assert_eq!(applied.stdout.lines().filter(|line| line.ends_with(" created")).count(), 16);

    let manifests = manifests().unwrap();
    let again = plane.apply_to(&["apply", "-f", "-"], &manifests).unwrap();
    assert_eq!(again.stderr, "");
    let changed: Vec<_> = again.stdout.lines().filter(|l| !l.ends_with(" unchanged")).collect();
    assert_eq!(changed, Vec::<&str>::new());

    // As Argo CD and Flux apply, on objects of a client-side apply.
    let server_side = ["apply", "--server-side", "-f", "-"];
    let server_side = plane.apply_to(&server_side, &manifests).unwrap();
    assert_eq!(server_side.stderr, "");
    server_side.success().unwrap();
}
