//! Certificates that another component manages.

use serde_json::json;

use crate::harness::install::print;
use crate::harness::{ControlPlane, Install, Options, eventually};
use crate::program;
use crate::team::SOON;

/// Creates a CA and a server certificate in place of the existing ones.
fn make(folder: &str) {
    let names = ["--name=belay.belay.svc", "--force"];
    print(program(), &[&["admin", "certs", "--cert-dir", folder], &names[..]].concat()).unwrap();
}

#[test]
fn s27_certificates_of_another_ca_are_served_trusted_and_reloaded() {
    let options = Options { controllers: false, ..Options::default() };
    let plane = ControlPlane::start_with(&options).unwrap();
    let folder = plane.folder().join("given").display().to_string();
    make(&folder);
    let install = Install {
        serve: vec!["--certificates=files".to_owned(), format!("--cert-dir={folder}")],
        ..Install::of_everything(1)
    };
    // It waits until the API server calls belay, which shows that it trusts the
    // certificate.
    let _belay = install.on(&plane, program()).unwrap();
    let ns = plane.namespace("s27").unwrap();
    plane.kubectl(&["create", "configmap", "kept", "-n", &ns]).unwrap().success().unwrap();
    let label = json!({"metadata": {"labels": {"belay.dev/protect": "Always"}}});
    plane.patch("configmap/kept", &ns, &label);
    let refused = || {
        let said =
            plane.api().delete(&["configmap", "kept", "--dry-run=server"], &ns)?.failure()?;
        if said.contains("is protected; label") { Ok(()) } else { Err(said.into()) }
    };
    eventually("a refusal", SOON, refused).unwrap();

    let configuration = ("validatingwebhookconfiguration/belay", "");
    let bundle = ".webhooks[*].clientConfig.caBundle";
    let before = plane.api().field(configuration.0, "", bundle).unwrap();
    make(&folder);
    plane.api().wait_field(configuration, SOON, bundle, |now| now != before).unwrap();
    // An older connection does not show whom the API server trusts now.
    plane.proxy.cut_open();
    eventually("a refusal over a new connection", SOON, refused).unwrap();
    // It creates no certificate, but a path.
    let secrets = plane.api().fields("secrets", "belay", "", ".metadata.name").unwrap();
    assert_eq!(secrets, ["belay-path"]);
}
