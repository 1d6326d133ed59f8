//! Holds of one namespace that delay those of others.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, config_map};
use crate::team::{SOON, Team};
use crate::{policy, world};

#[test]
fn h45_holds_that_a_tenant_adds_delay_no_backfill_elsewhere() {
    let plane = &world().plane;
    let (mine, dev) = (Team::new(plane, "h45"), Team::new(plane, "h45-dev"));
    mine.kubectl(&["create", "configmap", "data"]).success().unwrap();
    let items: Vec<Value> = (0..1_000)
        .map(|n| config_map(&format!("h{n}")).with_finalizers(&["belay.dev/hold"]))
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    dev.send(&["create", "-f", "-"], &list).success().unwrap();
    policy::protect(plane, &mine.ns, "configmaps", json!({"whileUsed": {}}));
    let held = |team: &Team<'_>| -> crate::harness::Result<usize> {
        let all = plane.api().fields("configmaps", &team.ns, "", ".metadata.finalizers")?;
        Ok(all.concat().matches("belay.dev/hold").count())
    };
    eventually("the hold", 4 * SOON, || match held(&mine)? {
        0 => Err("it is not there yet".into()),
        _ => Ok(()),
    })
    .unwrap();
    let left = held(&dev).unwrap();
    assert!(left > 0, "all of the tenant's holds were removed first");
    dev.kubectl(&["delete", "configmaps", "--all", "--wait=false"]).success().unwrap();
}
