//! Objects that are nested too deeply for JSON. Only protobuf can write them.

use serde_json::json;

use crate::harness::{Api, eventually};
use crate::team::{SOON, Team};
use crate::{policy, world};

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push((number % 128) as u8 | 128);
        number /= 128;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of a protobuf message that has a length.
fn field(number: usize, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [varint(number << 3 | 2), varint(content.len()), content.to_vec()].concat()
}

/// managedFields that the API server accepts and can't send.
fn deep_fields() -> Vec<u8> {
    let (open, close) = ("{\"f:a\":".repeat(9_998), "}".repeat(9_998));
    let json = format!("{{\"f:metadata\":{open}{{}}{close}}}");
    let entry = [(1, "m"), (2, "Update"), (3, "v1"), (6, "FieldsV1")];
    let entry = entry.map(|(number, text)| field(number, text)).concat();
    field(17, [entry, field(7, field(1, json))].concat())
}

/// An object of the name `deep` with this further metadata and this spec.
fn object(version: &str, kind: &str, metadata: Vec<u8>, spec: Vec<u8>) -> Vec<u8> {
    let types = [field(1, version), field(2, kind)].concat();
    let object = [field(1, [field(1, "deep"), metadata].concat()), spec].concat();
    [b"k8s\0".to_vec(), field(1, types), field(2, object)].concat()
}

/// The API server ends each watch of the kind of such an object, and can't ask a webhook about it.
#[test]
fn h137_managed_fields_that_are_nested_too_deeply_are_reset() {
    let team = Team::new(&world().plane, "h137");
    let targets = [policy::target("", "configmaps, secrets", &team.ns)];
    let protect = json!({"whileUsed": {"onDelete": "Deny"}});
    policy::apply(team.plane, &team.ns, json!({"targets": targets, "protect": protect}));
    let api = Api::of(&team.kubeconfig).unwrap();
    let create = |path: &str, object| {
        let (root, resource) = path.rsplit_once('/').unwrap();
        api.create_protobuf(&format!("{root}/namespaces/{}/{resource}", team.ns), object).unwrap();
    };
    create("/api/v1/configmaps", object("v1", "ConfigMap", deep_fields(), Vec::new()));
    create("/api/v1/secrets", object("v1", "Secret", deep_fields(), Vec::new()));
    let label = field(1, [field(1, "app"), field(2, "deep")].concat());
    let pod_label = field(11, [field(1, "app"), field(2, "deep")].concat());
    let container = field(2, [field(1, "web"), field(2, "web")].concat());
    let template = [field(1, [pod_label, deep_fields()].concat()), field(2, container)].concat();
    // No replicas.
    let spec = field(2, [vec![8, 0], field(2, label), field(3, template)].concat());
    create("/apis/apps/v1/deployments", object("apps/v1", "Deployment", Vec::new(), spec));
    for name in ["configmap/deep", "secret/deep", "deployment/deep"] {
        // This client can't read such an object either.
        eventually("readable managedFields", SOON, || {
            match team.plane.api().get(name, &team.ns)? {
                Some(object) if object.is_object() => Ok(()),
                found => Err(format!("{name}: {found:?}").into()),
            }
        })
        .unwrap();
    }
}
