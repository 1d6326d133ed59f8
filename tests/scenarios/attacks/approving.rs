//! Approvals that an approver writes to harm belay or to outlast a deletion.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, config_map};
use crate::team::{Approver, Team};
use crate::world;

/// Carol with the right to approve, and the spec of an approval of ConfigMap data by her.
fn approver(team: &Team) -> (PathBuf, Value) {
    team.apply(&config_map("data"));
    let of = team.of("configmaps", "data");
    // From now on she has the right to approve.
    team.approve(Approver::Carol, of, "Object");
    let carol = team.plane.user(&team.name_of(Approver::Carol), None).unwrap();
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3600);
    let spec = json!({
        "targetRef": {"resource": "configmaps", "namespace": team.ns, "name": "data",
            "uid": team.uid(of)},
        "approver": team.name_of(Approver::Carol), "reason": "it is time",
        "expirationTime": until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    (carol, spec)
}

#[test]
fn h41_an_approval_has_no_finalizers_no_owners_and_little_metadata() {
    let plane = &world().plane;
    let team = Team::new(plane, "h41");
    let (carol, spec) = approver(&team);
    let create = |more: &Value, exempts: &[&str]| {
        let mut approval = json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionApproval", "metadata": more,
            "spec": spec});
        approval["spec"]["exempts"] = json!(exempts);
        approval["metadata"]["generateName"] = format!("{}-", team.ns).into();
        let args = ["create", "-o", "name", "-f", "-"];
        plane.kubectl_with(Some(&carol), &args, &approval).unwrap()
    };
    let labels: BTreeMap<String, &str> = (0..100).map(|n| (format!("a{n}"), "b")).collect();
    let owner = team.owner("ConfigMap", "data");
    let refused = [
        json!({"finalizers": ["example.com/mine"]}),
        json!({"ownerReferences": [owner]}),
        json!({"labels": labels}),
        json!({"annotations": labels}),
        json!({"annotations": {"a": "b".repeat(20_000)}}),
    ];
    for more in &refused {
        let said = create(more, &[]).failure().unwrap();
        assert!(said.contains("an approval"), "{more}: {said}");
    }
    // H73: belay caches the content of its own approvals for exemptions in memory.
    let said = create(&json!({}), &["some-policy"]).failure().unwrap();
    assert!(said.contains("only belay may set spec.exempts"), "{said}");
    // H57: the names of these approvals are reserved as well.
    for field in ["name", "generateName"] {
        let mut approval = json!({"apiVersion": "belay.dev/v1alpha1", "kind": "DeletionApproval",
            "metadata": {}, "spec": spec});
        approval["metadata"][field] = "belay-exempts-0123456789abcdef".into();
        let args = ["create", "-f", "-"];
        let said = plane.kubectl_with(Some(&carol), &args, &approval).unwrap().failure().unwrap();
        assert!(said.contains("only belay may create an approval whose name begins"), "{said}");
    }
    let good = json!({"labels": {"a": "b"}, "annotations": {"a": "b".repeat(4_000)}});
    let name = create(&good, &[]).success().unwrap();
    for more in &refused {
        let change = json!({"metadata": more});
        plane.api().patch(name.trim(), "", &change).unwrap().failure().unwrap();
    }
    plane.patch(name.trim(), "", &json!({"metadata": {"labels": {"a": "c"}}}));
}

/// The API server accepts managedFields of 9,994 levels, and then can't send the approval in a list.
#[test]
fn h141_an_approval_has_no_deep_managed_fields() {
    let plane = &world().plane;
    let team = Team::new(plane, "h141");
    let (carol, spec) = approver(&team);
    let create = |levels: usize| {
        let approval = json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionApproval",
            "metadata": {"generateName": format!("{}-", team.ns), "managedFields": [{
                "manager": "m", "operation": "Update", "apiVersion": "belay.dev/v1alpha1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": "DEEP"}]},
            "spec": spec});
        let (open, close) = ("{\"f:a\":".repeat(levels), "}".repeat(levels));
        let approval = approval.to_string().replace("\"DEEP\"", &format!("{open}{{}}{close}"));
        let path = "/apis/belay.dev/v1alpha1/deletionapprovals";
        let args = ["create", "--raw", path, "-f", "-"];
        plane.kubectl_with(Some(&carol), &args, &approval).unwrap()
    };
    create(4).success().unwrap();
    for levels in [5, 9_995] {
        let refusal = create(levels).failure().unwrap();
        assert!(refusal.contains("managedFields of an approval"), "{levels}: {refusal}");
    }
    team.plane.api().list("deletionapprovals.belay.dev", "", "").unwrap();
}

#[test]
fn h73_the_label_keeps_no_approval() {
    let team = Team::new(&world().plane, "h73");
    team.apply(&config_map("data").with_protect_label("Always"));
    team.refused(&["configmap/data"]);
    team.approve(Approver::Carol, team.of("configmaps", "data"), "Object");
    let all = team.plane.api().list("deletionapprovals.belay.dev", "", "").unwrap();
    let mut all = all.iter().filter(|one| one["spec"]["targetRef"]["namespace"] == *team.ns);
    let name = all.next().unwrap()["metadata"]["name"].as_str().unwrap();
    let name = format!("deletionapprovals.belay.dev/{name}");
    let label = json!({"metadata": {"labels": {"belay.dev/protect": "Always"}}});
    team.plane.patch(&name, "", &label);
    team.plane.delete(&[&name], "");
    team.refused(&["configmap/data"]);
}
