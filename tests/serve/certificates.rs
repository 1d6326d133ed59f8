//! Certificates: served, replaced while running, and required of clients.

use std::path::Path;
use std::time::Duration;

use rustls::version::{TLS12, TLS13};

use crate::client::Client;
use crate::harness::belay::make_certificates;
use crate::harness::pki::Pki;
use crate::harness::{Belay, eventually};
use crate::{belay, client, program, sample};

fn answers(client: &Client) -> bool {
    client.connect().is_ok() && client.post("/validate", sample("delete-denied.json")).code == 200
}

#[test]
fn tls_1_2_and_1_3_and_http_1_1_alone() {
    let (belay, _folder) = belay(&[]);
    for version in [&TLS12, &TLS13] {
        assert!(answers(&Client::with(belay.listen, &belay.ca, &[version], None)), "{version:?}");
    }
}

#[test]
fn serves_a_replaced_certificate_but_not_a_broken_one() {
    let (belay, folder) = belay(&["--certificate-poll=0.1"]);
    let certs = folder.path().join("belay-certs");
    let old = client(&belay);
    assert!(answers(&old));
    let expiry = || {
        let metrics = belay.metrics().unwrap();
        let line =
            metrics.lines().find_map(|l| l.strip_prefix("belay_certificate_expiry_seconds "));
        line.unwrap().parse::<i64>().unwrap()
    };
    assert!(expiry() > 1_700_000_000);
    let failures = || {
        let metrics = belay.metrics().unwrap();
        let line = metrics
            .lines()
            .find_map(|l| l.strip_prefix("belay_certificate_reload_failures_total "));
        line.unwrap().parse::<u32>().unwrap()
    };
    let counted = |at_least: u32| {
        eventually("a counted failure", Duration::from_secs(10), || match failures() {
            count if count >= at_least => Ok(()),
            count => Err(format!("{count}").into()),
        })
        .unwrap();
    };

    // A key that does not fit the certificate, an empty file, no file.
    let good_key = std::fs::read(certs.join("tls.key")).unwrap();
    let other = folder.path().join("other");
    make_certificates(program(), &other).unwrap();
    let replace = |bytes: &[u8]| {
        let staged = certs.join("staged");
        std::fs::write(&staged, bytes).unwrap();
        std::fs::rename(&staged, certs.join("tls.key")).unwrap();
    };
    replace(&std::fs::read(other.join("tls.key")).unwrap());
    counted(1);
    assert!(answers(&old), "the last good pair stays");
    replace(b"");
    counted(2);
    std::fs::remove_file(certs.join("tls.key")).unwrap();
    counted(3);
    assert!(answers(&old), "the last good pair stays");
    replace(&good_key);

    // A new certificate of a new CA, replaced as in a mounted Secret: a link is swapped.
    swap_links(&certs, &other);
    let new = Client::new(belay.listen, &other.join("ca.crt"));
    eventually("the new certificate", Duration::from_secs(10), || {
        if new.connect().is_ok() { Ok(()) } else { Err("the old one is served".into()) }
    })
    .unwrap();
    assert!(answers(&new));
    // A new client: the old one would resume its session without checks.
    let old = client(&belay);
    assert!(old.connect().is_err(), "the old authority signed nothing that is served now");
    let log = belay.process.log();
    assert!(log.contains("certificate replaced"), "{log}");
    assert!(log.contains("does not fit the certificate"), "{log}");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
}

fn swap_links(certs: &Path, other: &Path) {
    for file in ["tls.crt", "tls.key"] {
        let staged = certs.join("staged");
        std::os::unix::fs::symlink(other.join(file), &staged).unwrap();
        std::fs::rename(&staged, certs.join(file)).unwrap();
    }
}

#[test]
fn with_a_client_ca_only_its_clients_get_in_and_it_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let pki = Pki::new(&folder.path().join("one")).unwrap();
    let other = Pki::new(&folder.path().join("two")).unwrap();
    let ours = pki.client("kube-apiserver", None).unwrap();
    let theirs = other.client("kube-apiserver", None).unwrap();
    let client_ca = folder.path().join("clients.crt");
    std::fs::copy(pki.ca(), &client_ca).unwrap();
    let args = [&format!("--client-ca={}", client_ca.display()), "--certificate-poll=0.1"];
    let belay = Belay::start("belay", program(), &args, folder.path()).unwrap();

    let with = |identity| Client::with(belay.listen, &belay.ca, rustls::ALL_VERSIONS, identity);
    let gets_in = |client: &Client| {
        // In TLS 1.3 a client is refused after its handshake.
        let Ok(mut connection) = client.connect() else { return false };
        let body = sample("delete-denied.json");
        let sent =
            crate::client::send(&mut connection, "/validate", "application/json", body.as_bytes());
        sent.is_ok()
            && crate::client::receive(&mut connection).is_ok_and(|answer| answer.code == 200)
    };
    assert!(!gets_in(&with(None)), "no client gets in without a certificate");
    let ours_all_along = with(Some((&ours.cert, &ours.key)));
    assert!(gets_in(&ours_all_along));
    assert!(!gets_in(&with(Some((&theirs.cert, &theirs.key)))));

    std::fs::copy(other.ca(), &client_ca).unwrap();
    eventually("the new client CA", Duration::from_secs(10), || {
        if gets_in(&with(Some((&theirs.cert, &theirs.key)))) {
            Ok(())
        } else {
            Err("not yet".into())
        }
    })
    .unwrap();
    // A client with sessions to resume is refused like a new one.
    assert!(!gets_in(&ours_all_along));
    assert!(!gets_in(&with(Some((&ours.cert, &ours.key)))));
}

#[test]
fn h04_a_client_ca_that_cannot_be_used_is_an_error_at_start_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    make_certificates(program(), &folder.path().join("certs")).unwrap();
    // No server listens there. The error in the file is found without one.
    let kubeconfig = file(
        "config",
        "apiVersion: v1\nkind: Config\ncurrent-context: none\nclusters: [{name: none, cluster: \
         {server: 'https://127.0.0.1:1'}}]\nusers: [{name: none, user: {token: none}}]\ncontexts: \
         [{name: none, context: {cluster: none, user: none, namespace: belay}}]\n",
    );
    let in_cluster = format!("--kubeconfig={kubeconfig}");
    let certs = format!("--cert-dir={}", folder.path().join("certs").display());
    let modes = [
        vec!["--standalone", &certs],
        vec!["--certificates=own", &in_cluster],
        vec!["--certificates=files", &in_cluster, &certs],
    ];
    let missing = folder.path().join("missing.crt").display().to_string();
    for (path, words) in [
        (missing, "cannot read"),
        (file("empty.crt", ""), "there is no PEM certificate in it"),
        (file("broken.crt", "hello"), "there is no PEM certificate in it"),
    ] {
        for mode in &modes {
            let output = std::process::Command::new(program())
                .args(["serve", "--listen=127.0.0.1:0", "--probes=127.0.0.1:0"])
                .arg(format!("--client-ca={path}"))
                .args(mode)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{mode:?}: {said}");
            let errors: Vec<_> = said.lines().filter(|line| line.contains(&path)).collect();
            assert_eq!(errors.len(), 1, "{mode:?}: {said}");
            assert!(errors[0].contains(words), "{mode:?}: {said}");
        }
    }
}

#[test]
fn serve_fails_with_one_sentence_and_an_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        // The developer's kubeconfig is not used.
        let output = std::process::Command::new(program())
            .args(args)
            .env("HOME", folder.path())
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let empty = format!("--cert-dir={}", folder.path().display());
    let (code, message) = run(&["serve", &empty, "--listen=127.0.0.1:0", "--probes=127.0.0.1:0"]);
    assert_eq!(code, Some(3), "{message}");
    assert!(
        message.contains("cannot find a cluster") && message.contains("--standalone"),
        "{message}"
    );
    let missing = ["--tls-cert=nowhere/tls.crt", "--tls-key=nowhere/tls.key"];
    let (code, message) = run(&[&["serve", "--standalone"], &missing[..]].concat());
    assert_eq!(code, Some(3), "{message}");
    assert!(message.contains("cannot read") && message.contains("tls.crt"), "{message}");

    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--listen={}", held.local_addr().unwrap());
    let (code, message) = run(&["serve", "--standalone", &empty, &taken, "--probes=127.0.0.1:0"]);
    assert_eq!(code, Some(3), "{message}");
    assert!(
        message.contains("cannot listen on 127.0.0.1") && message.contains("--listen"),
        "{message}"
    );

    let (code, message) = run(&["serve", "--deadline=soon"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("a number of seconds"), "{message}");
    let (code, message) = run(&["admin", "certs", "--force", "--name=not a name", &empty]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("not a name"), "{message}");
    // The standalone server created a certificate there. Nothing replaces it without a
    // request.
    let (code, message) = run(&["admin", "certs", "--name=a.b", &empty]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("already exists; --force"), "{message}");

    let config = folder.path().join("c.yaml");
    for days in ["0", "3000000", "4000000000"] {
        std::fs::write(&config, format!("names: [a.b]\ndays: {days}\n")).unwrap();
        let (code, message) =
            run(&["admin", "certs", "--force", "--config", config.to_str().unwrap(), &empty]);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("between 1 and 3650") || days.len() > 8, "{message}");
    }
}

/// Keys are often stored beside certificates, but a caBundle is public.
#[test]
fn a_ca_bundle_holds_certificates_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(program(), folder.path()).unwrap();
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
    let both = folder.path().join("both.pem");
    std::fs::write(&both, read("tls.key") + &read("ca.crt")).unwrap();
    let run = || {
        let output = std::process::Command::new(program())
            .args(["admin", "manifests", "--service=a/b", "--ca-file"])
            .arg(&both)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    use base64::Engine as _;
    let (code, manifests) = run();
    assert_eq!(code, Some(0));
    let encoded = base64::engine::general_purpose::STANDARD.encode(read("ca.crt"));
    assert!(manifests.contains(&encoded), "{manifests}");
    std::fs::write(&both, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        .unwrap();
    assert_eq!(run(), (Some(2), String::new()));
}
