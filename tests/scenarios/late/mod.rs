//! A hold that is added too late to have an effect.
//!
//! A hold that is added to an object during the admission of its DELETE does not keep it:
//! the API server calls its webhooks again, shows them the hold, and ignores it when they
//! allow the DELETE.

mod slow;

use std::time::Duration;

use serde_json::json;

use crate::harness::manifest::{Manifest as _, config_map, pod};
use crate::harness::{ControlPlane, Install, eventually};
use crate::people::Person;
use crate::{policy, program};

use slow::Slow;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn s33_a_hold_that_is_patched_on_during_a_delete_is_not_relied_on() {
    let plane = ControlPlane::start().unwrap();
    let belay = Install::default().on(&plane, program()).unwrap();
    let ns = plane.namespace("s33").unwrap();
    let jane = Person::of(&plane, &ns);
    jane.apply(&config_map("settings"));
    let target = policy::target("", "configmaps", &ns);
    let protect = json!({"whileUsed": {}});
    let early = json!({"targets": [target], "protect": protect, "hold": "Never"});
    policy::apply(&plane, &ns, early);
    let slow = Slow::on_deletes_in(&plane, &ns);

    // belay has allowed it, because the object is unused. Another webhook has not answered
    // yet.
    let agreed = || {
        let counted = "belay_admission_requests_total{webhook=\"validate\",operation=\"delete\",\
                       verdict=\"Allow\"";
        belay.metric(counted)
    };
    let before = agreed();
    let deleted = std::thread::scope(|scope| {
        let deleting = scope.spawn(|| jane.delete(&["configmap/settings"]));
        eventually("the two reviews", LIMIT, || match (slow.asked(), agreed() - before) {
            (1, 1.0..) => Ok(()),
            counts => Err(format!("{counts:?}").into()),
        })
        .unwrap();
        // Meanwhile the object comes into use, and the leader adds a hold.
        jane.apply(&pod("reader").with_env_from("configMapRef", "settings"));
        policy::protect(&plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
        eventually("the hold", LIMIT, || match &*jane.finalizers("configmap/settings") {
            r#"["belay.dev/hold"]"# => Ok(()),
            other => Err(other.into()),
        })
        .unwrap();
        slow.answer();
        deleting.join().unwrap()
    });
    assert_eq!(slow.asked(), 2, "the API server asks again about the object with the hold");
    let refused = |denied: &str| {
        assert!(denied.contains("(InUse)"), "{denied}");
        assert!(denied.contains(&format!("is in use by Pod {ns}/reader")), "{denied}");
        assert_eq!(jane.field("configmap/settings", ".metadata.deletionTimestamp"), "");
    };
    refused(&deleted.failure().unwrap());

    // A later DELETE may have the same problem: some writes from before the hold are still
    // in progress.
    refused(&jane.delete(&["configmap/settings"]).failure().unwrap());
}
