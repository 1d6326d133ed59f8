//! Certificates that change while the API server sends requests all the time.

use serde_json::json;

use crate::World;
use crate::faulty::{LIMIT, faulty};
use crate::harness::{Load, eventually};

impl World {
    /// The CAs that every webhook of a configuration trusts.
    fn bundle(&self, kind: &str) -> String {
        let path = ".webhooks[*].clientConfig.caBundle";
        let bundles = self.plane.api().field(&format!("{kind}/belay"), "", path).unwrap();
        let mut bundles: Vec<&str> = bundles.split(' ').collect();
        bundles.dedup();
        assert_eq!(bundles.len(), 1, "the entries differ: {bundles:?}");
        bundles[0].to_owned()
    }

    fn tls(&self, key: &str) -> String {
        let path = format!(".data.{}", key.replace('.', "\\."));
        self.plane.api().field("secret/belay-tls", "belay", &path).unwrap()
    }

    /// The serial numbers of the certificates that the replicas report.
    fn served(&self) -> Vec<String> {
        let (label, path) =
            ("belay.dev/replica=belay", ".metadata.annotations.belay\\.dev/certificate");
        self.plane.api().fields("lease", "belay", label, path).unwrap()
    }
}

#[test]
fn s27_certificates_are_rotated_under_load_and_no_review_fails() {
    let world = faulty();
    let ns = world.plane.namespace("s27").unwrap();
    let load = Load::start(&world.plane, &ns).unwrap();
    let (certificate, authority) =
        (world.tls("tls.crt"), world.bundle("validatingwebhookconfiguration"));
    let serials = world.served();

    load.wait_for_answers().unwrap();
    let ask = json!({"metadata": {"annotations": {"belay.dev/rotate-requested": "yes"}}});
    world.plane.patch("secret/belay-tls", "belay", &ask);
    let mut phases = vec![authority.clone()];
    eventually("another certificate, trusted alone", LIMIT, || {
        if load.has_failed() {
            return Ok(());
        }
        // After each check the load connects to both replicas, at every step of the
        // rotation.
        load.while_idle(|| world.reconnect());
        let bundle = world.bundle("validatingwebhookconfiguration");
        if phases.last() != Some(&bundle) {
            phases.push(bundle.clone());
        }
        let done = world.tls("tls.crt") != certificate
            && world.tls("old-ca.crt").is_empty()
            && bundle != authority
            && bundle == world.bundle("mutatingwebhookconfiguration")
            && bundle == world.tls("ca.crt");
        if done { Ok(()) } else { Err(format!("{} phases so far", phases.len()).into()) }
    })
    .unwrap();
    // The last one has to carry some load as well.
    load.wait_for_answers().unwrap();
    load.end().unwrap();
    // Only the old CA, both, only the new CA.
    assert_eq!(phases.len(), 3, "{phases:#?}");
    // Killed replicas have left their last report, and the leader does not wait for them.
    let now = world.served();
    let new: Vec<_> = now.iter().filter(|serial| !serials.contains(*serial)).collect();
    assert!(new.len() == 2 && new[0] == new[1], "{serials:?} {now:?}");
}
