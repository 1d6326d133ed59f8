//! Holds on a kind that belay may no longer watch and patch: its policy and its rights were removed
//! in one step.

use serde_json::json;

use crate::harness::audit::ACCOUNT;
use crate::harness::manifest::{Manifest as _, secret};
use crate::harness::{ControlPlane, Install, eventually, roles};
use crate::{LIMIT, belay, json, kubectl, policy, program};

/// Whether an object has the hold of belay.
fn is_held(plane: &ControlPlane, object: &str, ns: &str) -> crate::harness::Result<()> {
    let finalizers = plane.api().field(object, ns, ".metadata.finalizers")?;
    if finalizers.contains("belay.dev/hold") { Ok(()) } else { Err(finalizers.into()) }
}

#[test]
fn the_way_out_of_a_hold_that_belay_may_not_release_is_named() {
    let plane = ControlPlane::start().unwrap();
    let watched = "rbac.watchAlso=[\"secrets\"]".to_owned();
    let roles = Some(vec![watched.clone()]);
    // Afterwards belay gets forbidden requests.
    let install = Install { roles, may_be_forbidden: true, ..Install::default() };
    let _installed = install.on(&plane, program()).unwrap();
    let ns = plane.namespace("unreleased").unwrap();
    policy::protect(&plane, &ns, "secrets", json!({"always": {}}));
    for name in ["db-creds", "other"] {
        plane.apply(&secret(name).with_namespace(&ns)).unwrap();
        let held = || is_held(&plane, &format!("secret/{name}"), &ns);
        eventually("the hold", LIMIT, held).unwrap();
    }
    roles::apply_chart_roles(&plane, &["rbac.watchAlso=[]".to_owned()]).unwrap();
    eventually("the end of belay's rights", LIMIT, || {
        match plane.api().may(ACCOUNT, "patch", "secrets", "") {
            Ok(()) => Err("belay may still patch Secrets".into()),
            Err(_) => Ok(()),
        }
    })
    .unwrap();
    kubectl(&plane, &["delete", "deletionpolicy", &ns]);

    let why_not = "belay may not watch and patch secrets, so it releases no hold on them";
    let grant = "add secrets to the chart value rbac.watchAlso (docs/guides/profiles.md)";
    let names_both = |text: &str| assert!(text.contains(why_not) && text.contains(grant), "{text}");
    let object = ["secret/db-creds", "-n", &ns];
    let run = |command: &[&str]| belay(&plane, &[command, &object[..]].concat());
    let why = run(&["why"]).stdout;
    let stays = "can delete secret \"db-creds\"; it then stays ";
    assert!(why.contains(stays) && why.contains("- it has belay's hold, "), "{why}");
    names_both(&why);
    let status = belay(&plane, &["status"]);
    assert!(
        status.stdout.contains("holds: 2 objects have belay's hold on secrets; "),
        "{status:?}"
    );
    names_both(&status.stdout);
    assert_eq!(status.code, 1, "{status:?}");
    let status = json(&belay(&plane, &["status", "-o", "json"]));
    assert_eq!(status["unreleasedHolds"][0]["objects"], 2, "{status}");

    // The policy may be removed from the replica after that.
    eventually("an accepted DELETE", LIMIT, || {
        plane.api().delete(&["secret/db-creds", "secret/other"], &ns)?.success()
    })
    .unwrap();
    let force = "kubectl belay release secrets/db-creds -n ";
    let why = run(&["why"]);
    names_both(&why.stdout);
    assert!(why.stdout.contains(force) && why.stdout.contains(" --force=db-creds"), "{why:?}");
    assert!(!why.stdout.contains("in a few seconds") && why.code == 1, "{why:?}");
    let stuck = || {
        let all = json(&belay(&plane, &["stuck", "--longer-than=1s", "-n", &ns, "-o", "json"]));
        let cause = all["items"][0]["causes"][0].clone();
        if cause.is_null() { Err("nothing is stuck yet".into()) } else { Ok(cause.to_string()) }
    };
    names_both(&eventually("the stuck Secrets", LIMIT, stuck).unwrap());
    let released = run(&["release", "--timeout=2s"]);
    names_both(&released.stderr);
    assert_eq!(released.code, 1, "{released:?}");
    let approved = run(&["approve", "--reason=INC-1"]).stdout;
    names_both(&approved);

    // Both steps work.
    let forced = run(&["release", "--force=db-creds"]);
    assert!(forced.code == 0 && forced.stdout.contains("is deleted"), "{forced:?}");
    is_held(&plane, "secret/other", &ns).unwrap();
    roles::apply_chart_roles(&plane, &[watched]).unwrap();
    plane.api().wait_gone(("secret/other", &ns), LIMIT).unwrap();
    eventually("a status without leftover holds", LIMIT, || {
        let status = belay(&plane, &["status"]);
        if status.code == 0 { Ok(()) } else { Err(format!("{status:?}").into()) }
    })
    .unwrap();
}
