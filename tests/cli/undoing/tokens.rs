//! Tokens of ServiceAccounts in Secrets.

use serde_json::{Value, json};

use super::namespaces::wait_until_terminating;
use super::*;

/// Creates a Secret with a token of a ServiceAccount, and waits for the token.
fn token_secret(plane: &ControlPlane, ns: &str, account: &str, finalizers: &[&str]) -> Value {
    let name = format!("{account}-token");
    let annotations = json!({"kubernetes.io/service-account.name": account});
    let fields = json!({"type": "kubernetes.io/service-account-token", "stringData": {"own": "x"},
        "metadata": {"annotations": annotations}});
    let secret = secret(&name).with_namespace(ns).with(fields).with_finalizers(finalizers);
    plane.apply(&secret).unwrap();
    filled_token(plane, ns, account)
}

/// A Secret with a token of a ServiceAccount, when it has a token of the account that exists.
fn filled_token(plane: &ControlPlane, ns: &str, account: &str) -> Value {
    let name = format!("secret/{account}-token");
    // A controller creates the account `default`.
    let exists = |account: Option<&Value>| account.cloned().ok_or_else(|| "no account".into());
    let account = plane.api().wait((&format!("sa/{account}"), ns), LIMIT, exists).unwrap();
    let filled = |secret: Option<&Value>| {
        let secret = secret.ok_or("it does not exist")?;
        let of = &secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
        match of == uid(&account) && secret["data"]["token"].is_string() {
            true => Ok(secret.clone()),
            false => Err(secret.to_string().into()),
        }
    };
    plane.api().wait((&name, ns), LIMIT, filled).unwrap()
}

#[test]
fn the_tokens_of_restored_service_accounts_are_renewed() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-tokens").unwrap();
    let finalizers = ["undo.test/kept"];
    let robot = object("v1", "ServiceAccount", "robot").with_finalizers(&finalizers);
    plane.apply(&robot.with_namespace(&ns)).unwrap();
    let accounts = ["default", "robot"];
    let old = accounts.map(|account| token_secret(plane, &ns, account, &finalizers));
    plane.apply(&object("v1", "ServiceAccount", "late").with_namespace(&ns)).unwrap();
    token_secret(plane, &ns, "late", &finalizers);
    plane.api().delete(&["sa/late"], &ns).unwrap().success().unwrap();
    delete(plane, "", &format!("ns/{ns}"));
    let names = ["secret/default-token", "secret/robot-token", "secret/late-token", "sa/robot"];
    wait_until_terminating(plane, &ns, &names);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", &format!("ns/{ns}"), "--yes", "--out", &path, "--timeout", "80s"];
    let (mut undo, mut progress) = begin(plane, &undo, "waiting for the deletion");
    for name in names {
        free(plane, &ns, name);
    }
    let mut said = String::new();
    while !said.contains("created serviceaccounts/robot") {
        assert_ne!(progress.read_line(&mut said).unwrap(), 0, "{said}");
    }
    // The token controller deletes a token without an account. It has the token before this one.
    filled_token(plane, &ns, "default");
    let account = object("v1", "ServiceAccount", "late").with_namespace(&ns);
    plane.apply(&account).unwrap();
    progress.read_to_string(&mut said).unwrap();
    assert!(undo.wait().unwrap().success(), "{said}");
    let token = filled_token(plane, &ns, "late");
    assert!(token["metadata"]["deletionTimestamp"].is_null(), "{token}");
    for (account, old) in accounts.iter().zip(&old) {
        let new = filled_token(plane, &ns, account);
        assert_ne!(new["data"]["token"], old["data"]["token"]);
        assert_eq!(new["data"]["own"], old["data"]["own"]);
        assert!(said.contains(&format!("secrets/{account}-token -n {ns} gets a new token")));
    }
    for name in names {
        free(plane, &ns, name);
    }

    // The token controller deletes the tokens of a deleted account. Other Secrets stay.
    token_secret(plane, &ns, "default", &[]);
    let robot = object("v1", "ServiceAccount", "robot").with_finalizers(&finalizers);
    plane.apply(&robot.with_namespace(&ns)).unwrap();
    let annotated = |uid: &str| {
        json!({"metadata": {"annotations": {"kubernetes.io/service-account.name": "robot",
            "kubernetes.io/service-account.uid": uid}}})
    };
    let account = read(plane, &ns, "sa/robot");
    let other = secret("other").with(annotated(uid(&account)));
    plane.apply(&other.with_namespace(&ns)).unwrap();
    let older = secret("older").with(annotated("older")).with_finalizers(&finalizers);
    let older = older.with(json!({"type": "kubernetes.io/service-account-token"}));
    plane.apply(&older.with_namespace(&ns)).unwrap();
    let other = read(plane, &ns, "secret/other");
    delete(plane, &ns, "sa/robot");
    let undo = ["undo", "sa/robot", "-n", &ns, "--yes", "--out", &path, "--timeout", "80s"];
    let (mut undo, _progress) = begin(plane, &undo, "waiting for the deletion");
    free(plane, &ns, "sa/robot");
    assert!(undo.wait().unwrap().success());
    let new = filled_token(plane, &ns, "robot");
    assert_eq!(new["data"]["own"], old[1]["data"]["own"]);
    assert_eq!(uid(&read(plane, &ns, "secret/other")), uid(&other));
    for name in ["sa/robot", "secret/older"] {
        free(plane, &ns, name);
    }
}

#[test]
fn another_object_of_its_name_does_not_replace_a_saved_object() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-replaced").unwrap();
    let robot = object("v1", "ServiceAccount", "robot").with_finalizers(&["undo.test/kept"]);
    plane.apply(&robot.with_namespace(&ns)).unwrap();
    let old = token_secret(plane, &ns, "robot", &[]);
    delete(plane, &ns, "sa/robot");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let first = ["undo", "sa/robot", "-n", &ns, "--yes", "--out", &path, "--timeout", "1s"];
    assert_eq!(belay(plane, &first).code, 1);
    plane.api().delete(&["secret/robot-token"], &ns).unwrap().success().unwrap();
    plane.apply(&secret("robot-token").with_namespace(&ns)).unwrap();
    let resume = ["undo", "--resume", &path, "--yes", "--timeout", "80s"];
    let (mut undo, _progress) = begin(plane, &resume, "waiting for the deletion");
    free(plane, &ns, "sa/robot");
    assert_eq!(undo.wait().unwrap().code(), Some(1));
    plane.api().delete(&["secret/robot-token"], &ns).unwrap().success().unwrap();
    let restored = belay(plane, &resume);
    assert_eq!(restored.code, 0, "{restored:?}");
    assert_eq!(filled_token(plane, &ns, "robot")["data"]["own"], old["data"]["own"]);
}
