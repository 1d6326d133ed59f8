//! The three sources of certificates; `whole` tests the first, belay's own CA.

use std::process::Command;

use crate::harness::kubectl::run;
use crate::harness::{Chart, ControlPlane, Result, eventually};
use crate::shop::{LIMIT, Shop, policies_in_force};
use crate::{plane, program};

/// A certificate for the Service from another CA: the options of `kubectl create secret`
/// for its files.
fn create_certificate(plane: &ControlPlane, name: &str, days: u32) -> Vec<String> {
    let folder = plane.folder().join(name);
    let status = Command::new(program())
        .args(["admin", "certs", "--name=belay.belay.svc"])
        .arg(format!("--cert-dir={}", folder.display()))
        .arg(format!("--days={days}"))
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    ["tls.crt", "tls.key", "ca.crt"]
        .map(|file| format!("--from-file={file}={}", folder.join(file).display()))
        .to_vec()
}

fn secret(plane: &ControlPlane, name: &str, files: &[String]) -> String {
    let mut args = vec!["create", "secret", "generic", name, "-n", "belay"];
    args.extend(files.iter().map(String::as_str));
    args.extend(["--dry-run=client", "-o", "yaml"]);
    plane.kubectl(&args).unwrap().success().unwrap()
}

/// The CA bundle of every webhook. The two webhook configurations are written one after the
/// other.
fn trusted(plane: &ControlPlane) -> Result<String> {
    let trusted = |kind| plane.api().fields(kind, "", "", ".webhooks[*].clientConfig.caBundle");
    let (validating, mutating) = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration");
    let all = [trusted(validating)?, trusted(mutating)?].concat().join(" ");
    let mut all: Vec<&str> = all.split(' ').collect();
    all.dedup();
    match all[..] {
        [one] if !one.is_empty() => Ok(one.to_owned()),
        _ => Err("the entries differ".into()),
    }
}

fn stored(plane: &ControlPlane, name: &str) -> String {
    plane.api().field(&format!("secret/{name}"), "belay", ".data.ca\\.crt").unwrap()
}

/// The expiry of the certificate that the leader serves, if it equals the expiry of its CA:
/// each certificate is created with its own CA.
fn served_until(plane: &ControlPlane) -> String {
    eventually("the end of the certificate that is served", LIMIT, || {
        let said = run(program(), plane.kubeconfig(), &["status", "-o", "json"], None)?;
        let said: serde_json::Value = serde_json::from_str(&said.stdout)?;
        match (&said["certificate"]["until"], &said["authority"]["until"]) {
            (serde_json::Value::String(served), trusted) if trusted == served => Ok(served.clone()),
            other => Err(format!("{other:?}").into()),
        }
    })
    .unwrap()
}

const IN_USE: &str = "in use by StatefulSet";

fn works(plane: &ControlPlane) -> Shop<'_> {
    let shop = Shop::open(plane);
    policies_in_force(plane);
    shop.is_refused(&["delete", "pvc", "data-db-0"], IN_USE);
    shop
}

#[test]
fn a_secret_of_another_ca_is_served_and_reloaded() {
    let plane = plane();
    let mut chart = Chart::prepare(&plane, program()).unwrap();
    plane.apply(&secret(&plane, "corporate", &create_certificate(&plane, "first", 90))).unwrap();
    let said = chart.deploy("install", &["--set=existingSecret=corporate"]).unwrap();
    chart.notes = said.success().unwrap();
    chart.wait_for(2).unwrap();
    let shop = works(&plane);
    let first = eventually("one authority", LIMIT, || trusted(&plane)).unwrap();
    assert_eq!(first, stored(&plane, "corporate"));
    let until = served_until(&plane);
    // belay creates no certificate of its own.
    assert_eq!(plane.api().get("secret/belay-tls", "belay").unwrap(), None);

    plane.apply(&secret(&plane, "corporate", &create_certificate(&plane, "second", 60))).unwrap();
    eventually("the new authority", LIMIT, || {
        let now = trusted(&plane)?;
        if now == stored(&plane, "corporate") && now != first {
            Ok(())
        } else {
            Err("not yet".into())
        }
    })
    .unwrap();
    assert_ne!(served_until(&plane), until);
    // From here on each connection is new, and belay answers on it.
    plane.proxy.cut_open();
    shop.is_refused(&["delete", "pvc", "data-db-0", "--dry-run=server"], IN_USE);
}

#[test]
fn a_certificate_of_cert_managers_is_waited_for_and_served() {
    let plane = plane();
    for (plural, kind) in [("issuers", "Issuer"), ("certificates", "Certificate")] {
        plane.define_kind("cert-manager.io", kind, plural).unwrap();
    }
    let chart = Chart::prepare(&plane, program()).unwrap();
    // A stand-in for cert-manager: it creates the Secret that the Certificate names, while
    // helm waits for Pods that wait for it.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let name = eventually("the Certificate", LIMIT, || {
                let (kind, paths) =
                    ("certificates.cert-manager.io", ".spec.secretName .spec.dnsNames");
                let asked = plane.api().fields(kind, "belay", "", paths)?.join(" ");
                let (name, names) = asked.split_once(' ').ok_or("no name")?;
                if name.is_empty() || !names.contains("belay.belay.svc") {
                    return Err(asked.into());
                }
                Ok(name.to_owned())
            })
            .unwrap();
            plane
                .apply(&secret(&plane, &name, &create_certificate(&plane, "managed", 90)))
                .unwrap();
        });
        let values = ["--set=certManager.enabled=true"];
        chart.deploy("install", &values).unwrap().success().unwrap();
    });
    chart.wait_for(2).unwrap();
    works(&plane);
}
