//! Creates many objects fast: one object of each kind through the API server, and copies of it
//! in etcd. So each object is as large as a real one.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use crate::etcd::Etcd;
use crate::harness::{ControlPlane, Result};
use crate::writer::{Writer, config_map, core, pod};

/// The number of objects in each namespace, from the numbers below.
pub const EACH: usize = 1_000;
/// The number of ReplicaSets.
const SETS: usize = 100;
const PODS_OF_A_SET: usize = 5;
const CONFIG_MAPS: usize = 200;
const SECRETS: usize = 200;

/// The number of concurrent namespaces or requests.
const AT_ONCE: usize = 16;

/// The label of the namespaces.
pub const LABEL: &str = "matchLabels: {crowd: \"true\"}";

/// The namespace of the objects that are copied.
const TEMPLATES: &str = "templates";

/// Creates this many namespaces of a thousand objects each. Returns the number of
/// objects.
pub async fn make(plane: &ControlPlane, namespaces: usize) -> Result<usize> {
    let templates = ObjectTemplates::of(plane).await?;
    for number in 0..namespaces {
        templates.put(&templates.namespace(number)).await?;
    }
    Ok(namespaces * EACH)
}

/// An object and its key in etcd.
pub type StoredObject = (String, Value);

/// One object of each kind, as the API server stores it.
pub struct ObjectTemplates {
    etcd: Etcd,
    namespace: Value,
    config_map: Value,
    secret: Value,
    set: Value,
    pod: Value,
}

impl ObjectTemplates {
    /// Creates the objects that are copied.
    pub async fn of(plane: &ControlPlane) -> Result<Self> {
        let writer = Writer::of(plane).await?;
        let create = async |collection: String, object: Value| -> Result<Value> {
            Ok(serde_json::from_str(&writer.create(&collection, &object).await?)?)
        };
        let labels = json!({"crowd": "true"});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": TEMPLATES, "labels": labels}});
        let namespace = create("/api/v1/namespaces".to_owned(), namespace).await?;
        create_account(&writer, TEMPLATES).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "template"},
            "stringData": {"password": "x".repeat(1_000)}});
        let mut pod = pod("template", &["template".to_owned()], "template");
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "template"},
            "spec": {"replicas": PODS_OF_A_SET, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": pod["spec"]}}});
        let sets = format!("/apis/apps/v1/namespaces/{TEMPLATES}/replicasets");
        let set = create(sets, set).await?;
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "name": "template", "uid": set["metadata"]["uid"], "controller": true,
            "blockOwnerDeletion": true}]);
        Ok(Self {
            etcd: Etcd::of(plane)?,
            namespace,
            config_map: create(core(TEMPLATES, "configmaps"), config_map("template", 1_000))
                .await?,
            secret: create(core(TEMPLATES, "secrets"), secret).await?,
            set,
            pod: create(core(TEMPLATES, "pods"), pod).await?,
        })
    }

    /// Writes objects.
    pub async fn put(&self, objects: &[StoredObject]) -> Result<()> {
        self.etcd.put(objects).await
    }

    /// The namespace with this number and its objects.
    pub fn namespace(&self, number: usize) -> Vec<StoredObject> {
        let ns = format!("crowd-{number}");
        let mut uids = (number * 10_000..).map(|uid| format!("00000000-0000-4000-8000-{uid:012}"));
        let mut uid = || uids.next().unwrap_or_default();
        let mut all =
            vec![(format!("/registry/namespaces/{ns}"), copy(&self.namespace, "", &ns, &uid()))];
        let mut add = |resource: &str, object: Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            all.push((format!("/registry/{resource}/{ns}/{name}"), object));
        };
        for number in 0..CONFIG_MAPS {
            add("configmaps", copy(&self.config_map, &ns, &settings(number), &uid()));
        }
        for number in 0..SECRETS {
            add("secrets", copy(&self.secret, &ns, &credentials(number), &uid()));
        }
        for number in 0..SETS {
            let (name, set_uid) = (format!("service-{number}-6d5f7c9b8"), uid());
            let mut set = copy(&self.set, &ns, &name, &set_uid);
            use_objects(&mut set["spec"]["template"]["spec"], number * PODS_OF_A_SET);
            add("replicasets", set);
            for pod in 0..PODS_OF_A_SET {
                let mut object = copy(&self.pod, &ns, &format!("{name}-{pod}x7kq"), &uid());
                use_objects(&mut object["spec"], number * PODS_OF_A_SET + pod);
                let owner = &mut object["metadata"]["ownerReferences"][0];
                owner["name"] = name.as_str().into();
                owner["uid"] = set_uid.as_str().into();
                add("pods", object);
            }
        }
        all
    }
}

fn settings(number: usize) -> String {
    format!("settings-{}-6d5f7c9b8", number % CONFIG_MAPS)
}

fn credentials(number: usize) -> String {
    format!("credentials-{}-6d5f7c9b8", number % SECRETS)
}

/// Lets the spec of a Pod use a ConfigMap and a Secret.
fn use_objects(spec: &mut Value, number: usize) {
    spec["containers"][0]["envFrom"][0]["configMapRef"]["name"] = settings(number).into();
    spec["volumes"][0]["secret"]["secretName"] = credentials(number).into();
}

fn copy(template: &Value, ns: &str, name: &str, uid: &str) -> Value {
    let mut object = template.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.insert("name".to_owned(), name.into());
        metadata.insert("uid".to_owned(), uid.into());
        if !ns.is_empty() {
            metadata.insert("namespace".to_owned(), ns.into());
        }
    }
    if let Some(label) = object.pointer_mut("/metadata/labels/kubernetes.io~1metadata.name") {
        *label = name.into();
    }
    object
}

/// Creates the account that Pods need, where no controller runs that creates it.
pub async fn create_account(writer: &Writer, ns: &str) -> Result<()> {
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    writer.create(&core(ns, "serviceaccounts"), &account).await.map(drop)
}

/// Creates these objects in one collection, many at a time.
pub async fn create(
    writer: &Writer,
    collection: &str,
    objects: impl Iterator<Item = Value>,
) -> Result<()> {
    let each = |object| async move { writer.create(collection, &object).await.map(drop) };
    stream::iter(objects).map(Ok).try_for_each_concurrent(AT_ONCE, each).await
}

/// Deletes these objects of one collection, many at a time. Fails if a request is
/// refused.
pub async fn delete(writer: &Writer, collection: &str, names: &[String]) -> Result<()> {
    let each = |name| async move {
        let path = format!("{collection}/{name}");
        if writer.delete(&path).await? { Ok(()) } else { Err(format!("{path}: refused").into()) }
    };
    stream::iter(names).map(Ok).try_for_each_concurrent(AT_ONCE, each).await
}
