//! H7: objects that are hard to read. Each affects only itself.

use std::fs;

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, claim, pod, relation};
use crate::harness::rbac::rule;
use crate::people::Person;
use crate::team::{SOON, Team};
use crate::way::passes_now;
use crate::{policy, world};

/// Deeper than the limit of JSON parsers that recurse.
const DEEP: usize = 300;

fn nested(key: &str) -> String {
    format!("{}{{}}{}", format!("{{\"{key}\":").repeat(DEEP), "}".repeat(DEEP))
}

/// Creates a Pod with these fields in its managedFields, byte for byte.
fn create_pod_with(jane: &Person<'_>, ns: &str, name: &str, fields: &[u8]) {
    let head = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\",\
         \"managedFields\":[{{\"manager\":\"odd\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\
         \"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{\"f:spec\":"
    );
    let tail = "}}]},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"none\"}]}}";
    let file = world().plane.folder().join(format!("{ns}-{name}.json"));
    fs::write(&file, [head.as_bytes(), fields, tail.as_bytes()].concat()).unwrap();
    let path = format!("/api/v1/namespaces/{ns}/pods");
    let args = ["create", "--raw", &path, "-f", file.to_str().unwrap()];
    jane.kubectl(&args).success().unwrap();
}

fn is_in_use(jane: &Person<'_>, object: &str, user: &str) {
    eventually(&format!("{object} in use by {user}"), SOON, || {
        let denied = jane.delete(&[object, "--dry-run=server"]).failure()?;
        let sentence = format!("is in use by {user}");
        if denied.contains(&sentence) { Ok(()) } else { Err(denied.into()) }
    })
    .unwrap();
}

#[test]
fn h07_managed_fields_of_any_depth_hide_no_other_pod() {
    let plane = &world().plane;
    let ns = plane.namespace("h07-pods").unwrap();
    let jane = Person::of(plane, &ns);
    policy::protect(plane, &ns, "persistentvolumeclaims", json!({"whileUsed": {}}));
    let live = format!("{ns}-live");
    let target = policy::target("", "configmaps", &ns);
    let never = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &live, never);
    jane.apply(&claim("data"));
    assert!(jane.finalizers("pvc/data").contains("belay.dev/hold"));

    create_pod_with(&jane, &ns, "deep", nested("f:a").as_bytes());
    let stored = jane.kubectl(&["get", "pod", "deep", "-o", "json", "--show-managed-fields"]);
    let depth = stored.success().unwrap().matches("\"f:a\"").count();
    assert!(depth >= DEEP, "the API server stored {depth} levels");
    // A key that is not valid text.
    create_pod_with(&jane, &ns, "odd", b"{\"f:\xff\":{},\"f:\\ud800\":{}}");

    // Each of the Pods that are created later is known, by the watch ...
    jane.apply(&pod("db").with_env_from("configMapRef", "used").with_claim("data"));
    is_in_use(&jane, "persistentvolumeclaim/data", &format!("Pod {ns}/db"));
    // ... and by live reads, which still prove that an object is not in use.
    for name in ["used", "free"] {
        jane.kubectl(&["create", "configmap", name]).success().unwrap();
    }
    is_in_use(&jane, "configmap/used", &format!("Pod {ns}/db"));
    // Relations of other tests are created and deleted, and a list from before such a
    // change proves nothing.
    passes_now(|| jane.delete(&["configmap/free"]));
    jane.kubectl(&["delete", "pod", "--all", "--timeout=60s"]).success().unwrap();
    eventually("the end of the use", SOON, || {
        jane.delete(&["persistentvolumeclaim/data"]).success().map(drop)
    })
    .unwrap();
    // The release reads all Pods live.
    eventually("the release", SOON, || match jane.lacks("persistentvolumeclaim/data") {
        true => Ok(()),
        false => Err("it is there".into()),
    })
    .unwrap();
    for name in [&ns, &live] {
        plane.delete(&["deletionpolicy", name], "");
    }
}

#[test]
fn h07_a_deep_custom_resource_hides_no_other_one() {
    let plane = &world().plane;
    let ns = plane.namespace("h07-custom").unwrap();
    let jane = Person::of(plane, &ns);
    let group = "h07.example.com";
    jane.may(&[rule(group, "gadgets", "*")]);
    plane.define_kind(group, "Gadget", "gadgets").unwrap();
    let spec = json!({"from": {"group": group, "resource": "gadgets"},
        "to": {"resource": "configmaps"}, "nameFieldPath": "spec.settings.name"});
    plane.apply(&relation("h07-gadgets", spec)).unwrap();
    let crd = format!("crd/gadgets.{group}");
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    let gadget = |name: &str, settings: &str| {
        let json = format!(
            "{{\"apiVersion\":\"{group}/v1\",\"kind\":\"Gadget\",\"metadata\":{{\"name\":\"{name}\"}},\
             \"spec\":{{\"settings\":{settings}}}}}"
        );
        eventually("the Gadget", SOON, || {
            jane.send(&["apply", "-f", "-"], &json).success().map(drop)
        })
        .unwrap();
    };
    jane.kubectl(&["create", "configmap", "used"]).success().unwrap();
    gadget("first", "{\"name\":\"used\"}");
    is_in_use(&jane, "configmap/used", &format!("Gadget {ns}/first"));
    jane.kubectl(&["delete", "gadget", "first"]).success().unwrap();

    // In the very field that the Relation reads, and beside it.
    gadget("deep", &nested("name"));
    gadget("beside", &format!("{{\"name\":\"other\",\"more\":{}}}", nested("a")));
    jane.kubectl(&["create", "configmap", "late"]).success().unwrap();
    gadget("second", "{\"name\":\"late\"}");
    is_in_use(&jane, "configmap/late", &format!("Gadget {ns}/second"));

    plane.delete(&["deletionpolicy", &ns], "");
    plane.kubectl(&["delete", "relation", "h07-gadgets"]).unwrap().success().unwrap();
    plane.kubectl(&["delete", &crd, "--wait=false"]).unwrap().success().unwrap();
}

/// The API server stores these parameters byte for byte.
#[test]
fn h173_opaque_parameters_that_serde_json_cannot_read_keep_no_hold() {
    let team = Team::new(&world().plane, "h173");
    let belay = json!({"kind": "ServiceAccount", "namespace": "belay", "name": "belay"});
    let rules = [rule("resource.k8s.io", "resourceclaims", "patch, update")];
    team.plane.grant("h173", None, &rules, &[belay]).unwrap();
    team.may(&[rule("resource.k8s.io", "resourceclaims", "*")]);
    let targets = [policy::target("resource.k8s.io", "resourceclaims", &team.ns)];
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(team.plane, &team.ns, json!({"targets": targets, "protect": protect}));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(DEEP), "]".repeat(DEEP));
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims", team.ns);
    let claims = [("text", r#"{"a":"\ud800"}"#), ("key", r#"{"\ud800":1}"#), ("deep", &deep)];
    for (name, parameters) in claims {
        let opaque = json!({"driver": "x.example.com", "parameters": "@"});
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "finalizers": ["belay.dev/hold"]},
            "spec": {"devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}],
                "config": [{"opaque": opaque}]}}});
        let claim = claim.to_string().replace("\"@\"", parameters);
        let file = team.plane.folder().join(format!("{}-{name}.json", team.ns));
        fs::write(&file, claim).unwrap();
        let create = ["create", "--raw", &path, "-f", file.to_str().unwrap()];
        team.kubectl(&create).success().unwrap();
        let object = format!("resourceclaim/{name}");
        for command in [&["why"][..], &["approve", "--reason", "x", "--dry-run"]] {
            let output = team.belay(&[command, &[&object, "-n", &team.ns]].concat());
            assert!(!output.stderr.contains("cannot read"), "{command:?}: {output:?}");
        }
        // This client can't read the object either.
        let delete = ["delete", "--raw", &format!("{path}/{name}")];
        eventually("an effective hold", SOON, || team.kubectl(&delete).success().map(drop))
            .unwrap();
        eventually("a release", SOON, || match team.kubectl(&["get", &object]).ok() {
            true => Err(format!("{object} exists").into()),
            false => Ok(()),
        })
        .unwrap();
    }
}
