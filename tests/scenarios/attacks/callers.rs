//! H2(b), H2b, H3, H4: a Pod without rights posts reviews to the port of a
//! replica.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::faulty::faulty;
use crate::harness::client::{self, Client};
use crate::harness::install::print;
use crate::harness::manifest::reader;
use crate::harness::pki::Pki;
use crate::harness::ports;
use crate::harness::process::Process;
use crate::harness::{
    Belay, ControlPlane, Load, Options, Result, direct, eventually, is_long, timing,
};
use crate::people::{Person, field};
use crate::team::Team;
use crate::{World, policy, program, world};

const LIMIT: Duration = Duration::from_secs(90);

/// A DELETE of a ConfigMap as an attacker writes it.
fn forged(ns: &str, name: &str, uid: &str, group: &str) -> String {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": ns, "uid": uid}});
    let groups = [group, "system:authenticated"];
    direct::delete_review(("", "configmaps"), "mallory", &groups, &object)
}

impl World {
    /// How many Events there are about objects of this name.
    fn events_about(&self, ns: &str, name: &str) -> usize {
        let names = self.plane.api().fields("events", ns, "", ".involvedObject.name").unwrap();
        names.iter().filter(|other| *other == name).count()
    }
}

#[test]
fn h02b_a_post_without_the_secret_path_gets_404_and_leaves_nothing() {
    let world = world();
    let ns = world.plane.namespace("h02b").unwrap();
    let jane = Person::of(&world.plane, &ns);
    let target = policy::target("", "configmaps", &ns);
    let exempt = format!("exempt-{ns}");
    let spec = json!({"targets": [target], "protect": {"always": {}},
        "exemptSubjects": [{"kind": "Group", "name": exempt}]});
    policy::apply(&world.plane, &ns, spec);
    let precious = format!("precious-{ns}");
    for name in [precious.as_str(), "traced"] {
        jane.kubectl(&["create", "configmap", name]).success().unwrap();
    }
    let uid = &field(&world.plane, &ns, &format!("configmap/{precious}"), ".metadata.uid");

    let registered =
        direct::registered_path(&world.plane, "validatingwebhookconfiguration").unwrap();
    let guessed = format!("/{}", "0123456789abcdef".repeat(4));
    let nearly = registered.replace(['0', '1', '2', '3', '4', '5', '6', '7'], "8");
    let made_up = "00000000-0000-4000-8000-0000000000ff";
    for replica in &world.belay.replicas {
        let client = direct::client(&world.plane, replica.listen).unwrap();
        let before = replica.sum("belay_bad_requests_total", &["code=\"404\""]);
        let paths = [
            "/validate".to_owned(),
            "/validate/labelled".to_owned(),
            format!("{guessed}/validate"),
            nearly.clone(),
            format!("/{registered}"),
            "//validate".to_owned(),
        ];
        for path in &paths {
            for review in [
                forged(&ns, &precious, uid, &exempt),
                forged(&ns, &precious, uid, "nobody"),
                forged(&ns, &precious, made_up, "nobody"),
            ] {
                let answer = client.post(path, review);
                assert_eq!(answer.code, 404, "{path}: {answer:?}");
                assert!(answer.body.len() < 100, "{answer:?}");
                assert!(answer.head.contains("connection: close"), "{answer:?}");
            }
        }
        let counted = replica.sum("belay_bad_requests_total", &["code=\"404\""]) - before;
        assert!(counted >= 18.0, "{counted}");
        // The path that the API server uses works.
        let answer = client.post(&registered, forged(&ns, "known", made_up, "nobody"));
        assert_eq!(answer.code, 200, "{answer:?}");
    }

    // A real refusal is recorded after the forged ones.
    jane.delete(&["configmap/traced"]).failure().unwrap();
    eventually("the Event and the count of a real refusal", LIMIT, || {
        let policy = format!("deletionpolicy/{ns}");
        let status = world.plane.api().field(&policy, "", ".status.last24h.denied")?;
        let events = world.events_about(&ns, "traced");
        // One from the API server. The posts name an object that does not exist.
        if status == "1" && events == 1 { Ok(()) } else { Err(format!("{status} {events}").into()) }
    })
    .unwrap();
    assert_eq!(world.events_about(&ns, &precious), 0);
    let approvals = world.plane.api().list("deletionapprovals", "", "").unwrap();
    let approvals = json!(approvals).to_string();
    assert!(!approvals.contains(&precious), "{approvals}");
    jane.delete(&[&format!("configmap/{precious}"), "--dry-run=server"]).failure().unwrap();
    let token = registered.split('/').nth(1).unwrap();
    for replica in &world.belay.replicas {
        let log = replica.process.log();
        let about = log.lines().find(|line| line.contains("mallory") && line.contains(&precious));
        assert_eq!(about, None);
        assert!(!log.contains(token), "the log contains the secret of the path");
        assert!(!replica.metrics().unwrap().contains(token));
    }
}

/// A caller who knows the path could name any object, and read its users.
#[test]
fn h03_a_review_of_an_object_that_does_not_exist_tells_nothing() {
    let world = world();
    let team = Team::new(&world.plane, "h03");
    policy::protect(&world.plane, &team.ns, "secrets", json!({"whileUsed": {}}));
    team.kubectl(&["create", "secret", "generic", "real"]).success().unwrap();
    team.apply(&reader("secret-project", "secretRef", "planned"));
    team.apply(&reader("secret-reader", "secretRef", "real"));
    let path = direct::registered_path(&world.plane, "validatingwebhookconfiguration").unwrap();
    let uid = team.field("secret/real", ".metadata.uid");
    let made_up = "00000000-0000-4000-8000-0000000000ff";
    for replica in &world.belay.replicas {
        let client = direct::client(&world.plane, replica.listen).unwrap();
        let forged = |name: &str, uid: &str| {
            let object = json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": name, "namespace": team.ns, "uid": uid}});
            let review = direct::delete_review(("", "secrets"), "mallory", &[], &object);
            client.post(&path, review).body
        };
        // The API server may send this one, and belay has read the users by now.
        eventually("the answer to a real review", LIMIT, || {
            let answer = forged("real", &uid);
            if answer.contains("secret-reader") { Ok(()) } else { Err(answer.into()) }
        })
        .unwrap();
        for name in ["real", "planned"] {
            let answer = forged(name, made_up);
            assert!(answer.contains("\"allowed\":true"), "{answer}");
            for word in ["secret-", &format!("policy {}", team.ns)] {
                assert!(!answer.contains(word), "{answer}");
            }
        }
    }
    team.refused(&["secret/real"]);
}

const CONFIGURATIONS: [&str; 2] =
    ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];

/// The secret in the path of every webhook of both configurations. `None` while they
/// differ.
fn registered_secret(world: &World) -> Option<String> {
    let mut secrets: Vec<String> = Vec::new();
    for kind in CONFIGURATIONS {
        let path = ".webhooks[*].clientConfig.service.path";
        let paths = field(&world.plane, "", &format!("{kind}/belay"), path);
        secrets.extend(paths.split(' ').map(|path| path.split('/').nth(1).unwrap().to_owned()));
    }
    secrets.dedup();
    if secrets.len() == 1 { secrets.pop() } else { None }
}

/// The secrets in the Secret. `None` while it does not exist.
fn stored_secrets(world: &World) -> Vec<String> {
    stored(&world.plane).unwrap_or_default()
}

fn stored(plane: &ControlPlane) -> Result<Vec<String>> {
    let tokens = plane.api().field("secret/belay-path", "belay", ".data.tokens\\.json")?;
    let tokens = base64::engine::general_purpose::STANDARD.decode(tokens)?;
    let tokens: Vec<Value> = serde_json::from_slice(&tokens)?;
    Ok(tokens.iter().map(|token| token["token"].as_str().unwrap().to_owned()).collect())
}

/// Waits until another secret than this one is registered and is the only one. In
/// production the old one is accepted for ten minutes more.
fn rotated(world: &World, from: &str, load: &Load) -> String {
    let limit = if is_long() { 10 * LIMIT } else { LIMIT };
    eventually("another secret in the path, alone", limit, || {
        let (registered, stored) = (registered_secret(world), stored_secrets(world));
        let done = load.has_failed()
            || (stored.len() == 1 && registered.as_ref() == stored.first() && stored[0] != from);
        match registered {
            Some(registered) if done => Ok(registered),
            _ => Err(format!("{} secrets are stored", stored.len()).into()),
        }
    })
    .unwrap()
}

#[test]
fn h02b_the_path_is_rotated_on_command_under_load_and_the_old_one_ends() {
    let world = faulty();
    let ns = world.plane.namespace("h02b").unwrap();
    let load = Load::start(&world.plane, &ns).unwrap();
    load.wait_for_answers().unwrap();
    let first = registered_secret(&world).unwrap();
    assert_eq!(stored_secrets(&world), std::slice::from_ref(&first));
    let review = forged(&ns, "nothing", "00000000-0000-4000-8000-0000000000ff", "nobody");
    let codes = |secret: &str| -> Vec<u16> {
        let posted = world.belay.replicas.iter().map(|replica| {
            let client = direct::client(&world.plane, replica.listen).unwrap();
            client.post(&format!("/{secret}/validate"), &review).code
        });
        posted.collect()
    };
    assert_eq!(codes(&first), [200, 200]);

    let ask = json!({"metadata": {"annotations": {"belay.dev/rotate-requested": "yes"}}});
    world.plane.patch("secret/belay-path", "belay", &ask);
    let second = rotated(&world, &first, &load);
    eventually("the end of the old path", LIMIT, || match &codes(&first)[..] {
        [404, 404] => Ok(()),
        codes => Err(format!("{codes:?}").into()),
    })
    .unwrap();
    assert_eq!(codes(&second), [200, 200]);
    load.wait_for_answers().unwrap();

    // A deleted Secret is re-created with a new path.
    world.kubectl(&["delete", "secret", "belay-path", "-n", "belay"]);
    let third = rotated(&world, &second, &load);
    eventually("the end of the second path", LIMIT, || match &codes(&second)[..] {
        [404, 404] => Ok(()),
        codes => Err(format!("{codes:?}").into()),
    })
    .unwrap();
    assert_eq!(codes(&third), [200, 200]);
    load.wait_for_answers().unwrap();
    load.end().unwrap();

    // A path that another client changes is restored.
    let path = "/webhooks/0/clientConfig/service/path";
    let theirs = json!([{"op": "replace", "path": path, "value": "/validate"}]);
    world.plane.patch(&format!("{}/belay", CONFIGURATIONS[0]), "", &theirs);
    eventually("the registered path", LIMIT, || match registered_secret(&world) {
        Some(secret) if secret == third => Ok(()),
        other => Err(format!("{other:?}").into()),
    })
    .unwrap();
    for replica in &world.belay.replicas {
        let log = replica.process.log();
        for secret in [&first, &second, &third] {
            assert!(!log.contains(secret), "the log contains a secret of the path");
        }
    }
}

#[test]
fn h04_client_certificates_are_asked_for_with_belays_own_certificates() {
    let options = Options { controllers: false, ..Options::default() };
    let plane = ControlPlane::start_with(&options).unwrap();
    plane.create_namespace("belay").unwrap();
    plane.apply(&print(program(), &["admin", "crds"]).unwrap()).unwrap();
    let pki = Pki::new(&plane.folder().join("ours")).unwrap();
    let other = Pki::new(&plane.folder().join("theirs")).unwrap();
    let ours = pki.client("kube-apiserver", None).unwrap();
    let theirs = other.client("kube-apiserver", None).unwrap();
    let client_ca = plane.folder().join("clients.crt");
    std::fs::copy(pki.ca(), &client_ca).unwrap();

    let [listen, probes] =
        ports::free::<2>().unwrap().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let arguments = [
        "serve".to_owned(),
        format!("--kubeconfig={}", plane.kubeconfig().display()),
        "--namespace=belay".to_owned(),
        format!("--listen={listen}"),
        format!("--probes={probes}"),
        format!("--client-ca={}", client_ca.display()),
        "--certificate-poll=0.1".to_owned(),
    ];
    let env = [timing::environment()];
    let process =
        Process::start_with_env("belay-0", program(), &arguments, &env, &plane.logs()).unwrap();
    let mut belay = Belay { process, listen, probes, ca: plane.folder().join("own.crt") };
    belay.wait_until_ready().unwrap();
    let ca = field(&plane, "belay", "secret/belay-tls", ".data.ca\\.crt");
    let ca = base64::engine::general_purpose::STANDARD.decode(ca).unwrap();
    std::fs::write(&belay.ca, ca).unwrap();

    let path = format!("/{}/validate", stored(&plane).unwrap()[0]);
    let review = forged("default", "nothing", "00000000-0000-4000-8000-0000000000ff", "nobody");
    let gets_in = |identity| {
        let client = Client::with(belay.listen, &belay.ca, rustls::ALL_VERSIONS, identity);
        // In TLS 1.3 a client is refused only after its handshake.
        let Ok(mut connection) = client.for_name("belay.belay.svc").connect() else { return false };
        client::send(&mut connection, &path, "application/json", review.as_bytes()).is_ok()
            && client::receive(&mut connection).is_ok_and(|answer| answer.code == 200)
    };
    assert!(gets_in(Some((&*ours.cert, &*ours.key))));
    assert!(!gets_in(None), "a client without a certificate gets in");
    assert!(!gets_in(Some((&*theirs.cert, &*theirs.key))));
    std::fs::copy(other.ca(), &client_ca).unwrap();
    eventually("the new client CA", LIMIT, || {
        if gets_in(Some((&*theirs.cert, &*theirs.key))) { Ok(()) } else { Err("not yet".into()) }
    })
    .unwrap();
    assert!(!gets_in(Some((&*ours.cert, &*ours.key))));
}
