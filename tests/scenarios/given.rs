//! Certificates that somebody else looks after.

use crate::harness::install::print;
use crate::harness::{ControlPlane, Install, Options, eventually};
use crate::program;
use crate::team::SOON;

/// Makes an authority and a pair, in the place of those that are there.
fn make(folder: &str) {
    let names = ["--name=belay.belay.svc", "--force"];
    print(program(), &[&["admin", "certs", "--cert-dir", folder], &names[..]].concat()).unwrap();
}

#[test]
fn s27_certificates_of_somebody_else_are_served_trusted_and_taken_up_when_they_change() {
    let options = Options { controllers: false, ..Options::default() };
    let plane = ControlPlane::start_with(&options).unwrap();
    let folder = plane.folder().join("given").display().to_string();
    make(&folder);
    let install = Install {
        serve: vec!["--certificates=files".to_owned(), format!("--cert-dir={folder}")],
        ..Install::of_everything(1)
    };
    // It waits until the API server asks belay, and so trusts what is served.
    let _belay = install.on(&plane, program()).unwrap();
    let kubectl = |args: &[&str]| plane.kubectl(args).unwrap().success().unwrap();
    let ns = plane.namespace("s27").unwrap();
    kubectl(&["create", "configmap", "kept", "-n", &ns]);
    kubectl(&["label", "configmap", "kept", "-n", &ns, "belay.dev/protect=Always"]);
    let bundle = || {
        let path = "jsonpath={.webhooks[*].clientConfig.caBundle}";
        kubectl(&["get", "validatingwebhookconfiguration", "belay", "-o", path])
    };
    let refused = || {
        let said =
            plane.api().delete(&["configmap", "kept", "--dry-run=server"], &ns)?.failure()?;
        if said.contains("is protected; label") { Ok(()) } else { Err(said.into()) }
    };
    eventually("a refusal", SOON, refused).unwrap();

    let before = bundle();
    make(&folder);
    eventually("the new authority in the configurations", SOON, || {
        if bundle() == before { Err("the old one".into()) } else { Ok(()) }
    })
    .unwrap();
    // No connection from before shows whom the API server trusts now.
    plane.proxy.cut_open();
    eventually("a refusal over a new connection", SOON, refused).unwrap();
    // It makes no certificate of its own, but a path.
    let secrets = kubectl(&["get", "secrets", "-n", "belay", "-o", "name"]);
    assert_eq!(secrets.trim(), "secret/belay-path");
}
