//! belay reports what it can't read, and never treats it as deleted.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, deletion_policy, object, pod, relation, secret};
use crate::harness::rbac::rule;
use crate::harness::{ControlPlane, Install, Installed, eventually};
use crate::people::Person;
use crate::{World, policy, program, way};

const LIMIT: Duration = Duration::from_secs(60);

/// belay with the default installation, which may not read Secrets. One test at a time,
/// because all tests notice when kinds are added and removed.
fn small_world() -> (&'static World, MutexGuard<'static, ()>) {
    static WORLD: OnceLock<Result<World, String>> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let start = || {
        let plane = ControlPlane::start()?;
        let belay =
            Install { may_be_forbidden: true, ..Install::default() }.on(&plane, program())?;
        crate::harness::Result::Ok(World { plane, belay })
    };
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let world = WORLD.get_or_init(|| start().map_err(|error| error.to_string()));
    (world.as_ref().unwrap(), turn)
}

/// The Watching condition of a policy: status, reason, message.
fn watching(plane: &ControlPlane, name: &str) -> crate::harness::Result<[String; 3]> {
    let of = |field: &str| format!(".status.conditions[?(@.type==\"Watching\")].{field}");
    let paths = ["status", "reason", "message"].map(of).join(" ");
    let said = plane.api().field(&format!("deletionpolicy/{name}"), "", &paths)?;
    let parts: Vec<String> = said.splitn(3, ' ').map(str::to_owned).collect();
    parts.try_into().map_err(|_| said.into())
}

/// Applies a policy and waits until it reports this about its watched kinds.
fn apply(plane: &ControlPlane, name: &str, spec: Value, reason: &str, about: &str) {
    plane.apply(&deletion_policy(name, spec)).unwrap();
    eventually("the Watching condition", LIMIT, || {
        let [status, found, message] = watching(plane, name)?;
        match (&*status, found == reason, message.contains(about)) {
            ("False", true, true) => Ok(()),
            _ => Err(format!("{status} {found}: {message}").into()),
        }
    })
    .unwrap();
}

/// Whether a line of belay's log contains all of these words.
fn logged(belay: &Installed, words: &[&str]) -> crate::harness::Result<()> {
    let logs: String = belay.replicas.iter().map(|replica| replica.process.log()).collect();
    match logs.lines().any(|line| words.iter().all(|word| line.contains(word))) {
        true => Ok(()),
        false => Err(format!("no line of the log says {words:?}").into()),
    }
}

#[test]
fn s31_a_forbidden_list_is_reported_and_is_no_empty_list() {
    let (World { plane, belay }, _turn) = small_world();
    let ns = plane.namespace("s31-forbidden").unwrap();
    let jane = Person::of(plane, &ns);
    jane.may(&[rule("", "namespaces", "delete")]);
    let other = format!("{ns}-maps");
    let target = policy::target("", "configmaps", &ns);
    policy::apply(plane, &other, json!({"targets": [target], "protect": {"whileUsed": {}}}));
    // Until the API server has applied belay's rights, watches fail.
    let failed_watches = |wanted: f64| {
        eventually("the metric", LIMIT, || match belay.metric("belay_failed_watches") {
            failed if failed == wanted => Ok(()),
            failed => Err(format!("{failed}").into()),
        })
        .unwrap();
    };
    failed_watches(0.0);

    let target = policy::target("", "secrets", &ns);
    let said = "secrets: secrets is forbidden: ";
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    apply(plane, &ns, spec, "Forbidden", said);
    failed_watches(1.0);
    let ready = ".status.conditions[?(@.type==\"Ready\")].reason";
    let is_unready = |said: &str| said == "NotWatched";
    plane
        .api()
        .wait_field((&format!("deletionpolicy/{ns}"), ""), LIMIT, ready, is_unready)
        .unwrap();
    logged(belay, &["a watch has failed", "\"secrets\"", "secrets is forbidden: "]).unwrap();

    // Whether a Secret is in the Namespace cannot be known, so it stays.
    let denied = jane.delete(&[&format!("namespace/{ns}"), "--dry-run=server"]).failure().unwrap();
    let sentence = format!(
        "belay can't check this request for namespace \"{ns}\": belay does not know all objects of kind Secret: \
         secrets is forbidden: "
    );
    assert!(denied.contains("(Unknown)") && denied.contains(&sentence), "{denied}");
    let advice = "Grant belay's service account this permission (add secrets to the chart \
                  value rbac.watchAlso), then try again. To override: ";
    assert!(denied.contains(advice), "{denied}");
    // The other command in the refusal works as well: a user with the knowledge takes the
    // responsibility.
    let alice = Person::worker(plane, &ns, "alice", Some(("*", "*")));
    let rules = &[rule("", "namespaces", "get")];
    alice.bind("namespaces", None, rules);
    eventually("the right", LIMIT, || plane.api().may(&alice.name, "get", "namespaces", ""))
        .unwrap();
    alice.approves_what_is_named(&denied);
    way::passes_now(|| jane.delete(&[&format!("namespace/{ns}"), "--dry-run=server"]));

    // Whether a Secret exists is unknown as well, so a refusal names nothing.
    jane.apply(&secret("used"));
    jane.apply(&secret("free"));
    jane.apply(&pod("reader").with_env_from("secretRef", "used"));
    let denied = jane.refused(&["secret/used"]);
    let sentence = "belay can't check this request for secret \"used\": belay can't read the object: \
                    secrets \"used\" is forbidden: ";
    assert!(denied.contains(sentence) && !denied.contains("reader"), "{denied}");
    // An approval needs no proof.
    let command = format!("To override: kubectl belay approve secrets/used -n {ns} --reason");
    assert!(denied.contains(&command), "{denied}");
    alice.approves_what_is_named(&denied);
    way::passes_now(|| jane.delete(&["secret/used", "--dry-run=server"]));
    jane.delete(&["secret/free"]).success().unwrap();

    // Other policies work as before.
    jane.kubectl(&["create", "configmap", "free"]).success().unwrap();
    jane.kubectl(&["delete", "configmap", "free", "--timeout=30s"]).success().unwrap();
    let [status, ..] = watching(plane, &other).unwrap();
    assert_eq!(status, "True");
    for name in [&ns, &other] {
        plane.delete(&["deletionpolicy", name], "");
    }
    failed_watches(0.0);
}

#[test]
fn s31_a_dependent_whose_kind_is_not_installed_counts_once_it_is() {
    let (World { plane, belay }, _turn) = small_world();
    let ns = plane.namespace("s31-missing").unwrap();
    let jane = Person::of(plane, &ns);
    let group = "s31.example.com";
    jane.may(&[rule(group, "gadgets", "*")]);
    let spec = json!({"from": {"group": group, "resource": "gadgets"},
        "to": {"resource": "configmaps"}, "nameFieldPath": "spec.settings"});
    plane.apply(&relation("gadgets", spec)).unwrap();
    let told = ["names a kind that is not installed", "gadgets.s31.example.com"];
    eventually("the log line", LIMIT, || logged(belay, &told)).unwrap();
    eventually("the metric", LIMIT, || match belay.metric("belay_unknown_kinds") {
        1.0 => Ok(()),
        other => Err(format!("{other}").into()),
    })
    .unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    for name in ["used", "free"] {
        jane.kubectl(&["create", "configmap", name]).success().unwrap();
    }
    // There are no Gadgets, so none uses the object.
    jane.kubectl(&["delete", "configmap", "free", "--timeout=30s"]).success().unwrap();

    // There may be some, and belay may not read them.
    plane.define_kind(group, "Gadget", "gadgets").unwrap();
    let gadget = object(&format!("{group}/v1"), "Gadget", "g");
    let gadget = gadget.with(json!({"spec": {"settings": "used"}}));
    eventually("the Gadget", LIMIT, || {
        jane.send(&["apply", "-f", "-"], &gadget).success().map(drop)
    })
    .unwrap();
    let refused = |sentence: &str| {
        eventually(sentence, LIMIT, || {
            let denied = jane.delete(&["configmap/used", "--dry-run=server"]).failure()?;
            if denied.contains(sentence) { Ok(()) } else { Err(denied.into()) }
        })
        .unwrap();
    };
    refused(
        "belay does not know all objects of kind Gadget, and one of them may use this object: \
         gadgets.s31.example.com is forbidden: ",
    );
    eventually("the Watching condition", LIMIT, || match watching(plane, &ns)? {
        [status, reason, message] if status == "False" && reason == "Forbidden" => {
            if message.contains("gadgets.s31.example.com") { Ok(()) } else { Err(message.into()) }
        }
        other => Err(format!("{other:?}").into()),
    })
    .unwrap();

    // With the right, they are known.
    let rules = format!("--resource=gadgets.{group}");
    let role = ["create", "clusterrole", "gadgets", "--verb=get,list,watch", &rules];
    plane.kubectl(&role).unwrap().success().unwrap();
    let account = "--serviceaccount=belay:belay";
    let bind = ["create", "clusterrolebinding", "gadgets", "--clusterrole=gadgets", account];
    plane.kubectl(&bind).unwrap().success().unwrap();
    refused(&format!("configmap \"used\" is in use by Gadget {ns}/g (spec.settings)"));
    assert_eq!(belay.metric("belay_unknown_kinds"), 0.0);
    plane.kubectl(&["delete", "relation", "gadgets"]).unwrap().success().unwrap();
    plane.delete(&["deletionpolicy", &ns], "");
}
