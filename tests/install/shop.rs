//! The objects in the cluster: a namespace with a database and its dependencies.

use std::time::Duration;

use crate::harness::{Chart, ControlPlane, eventually};
use crate::program;

/// How long anything may take: a safety limit.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The namespace.
pub struct Shop<'p> {
    pub plane: &'p ControlPlane,
    pub ns: String,
}

impl<'p> Shop<'p> {
    /// A StatefulSet whose claims are bound, and a Deployment that reads a
    /// ConfigMap and a Secret; all of it runs.
    pub fn open(plane: &'p ControlPlane) -> Self {
        let ns = plane.namespace("shop").unwrap();
        let shop = Self { plane, ns };
        shop.apply(
            "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: disk}\n\
             provisioner: kubernetes.io/host-path\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {currency: EUR}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata: {name: password}\nstringData: {p: w}\n---\n\
             apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  \
             serviceName: db\n  selector: {matchLabels: {app: db}}\n  template:\n    \
             metadata: {labels: {app: db}}\n    spec:\n      containers: [{name: db, image: db, \
             volumeMounts: [{name: data, mountPath: /data}]}]\n  volumeClaimTemplates:\n  - \
             metadata: {name: data}\n    spec: {storageClassName: disk, accessModes: \
             [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: \
             {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      \
             containers: [{name: web, image: web, envFrom: [{configMapRef: {name: settings}}, \
             {secretRef: {name: password}}]}]\n",
        );
        for workload in ["statefulset/db", "deployment/web"] {
            shop.kubectl(&["rollout", "status", workload, "--timeout=90s"]);
        }
        let claim = ("pvc/data-db-0", &*shop.ns);
        plane.api().wait_field(claim, LIMIT, ".status.phase", |phase| phase == "Bound").unwrap();
        shop
    }

    fn apply(&self, manifest: &str) {
        let args = ["apply", "-n", &self.ns, "-f", "-"];
        self.plane.apply_to(&args, manifest).unwrap().success().unwrap();
    }

    /// kubectl in the namespace, as the administrator, that has to succeed.
    pub fn kubectl(&self, args: &[&str]) -> String {
        let args = [args, &["-n", &self.ns]].concat();
        self.plane.kubectl(&args).unwrap().success().unwrap()
    }

    /// Waits until a request is refused with these words.
    pub fn is_refused(&self, args: &[&str], words: &str) {
        let args = [args, &["-n", &self.ns]].concat();
        eventually(words, LIMIT, || {
            let said = self.plane.kubectl(&args)?.failure()?;
            if said.contains(words) { Ok(()) } else { Err(said.into()) }
        })
        .unwrap();
    }

    pub fn field(&self, object: &str, path: &str) -> String {
        self.plane.api().field(object, &self.ns, path).unwrap()
    }

    /// Whether an object carries the hold.
    pub fn holds(&self, object: &str, held: bool) {
        let (object, path) = ((object, &*self.ns), ".metadata.finalizers");
        let is_met = |finalizers: &str| finalizers.contains("belay.dev/hold") == held;
        self.plane.api().wait_field(object, LIMIT, path, is_met).unwrap();
    }
}

/// belay with the profile `strict` and these values, and then the shop: objects after belay
/// have the hold from the beginning. On older objects it becomes effective later.
pub fn strict<'p>(plane: &'p ControlPlane, values: &[&str]) -> (Chart, Shop<'p>) {
    let values = [&["--set=profile=strict"], values].concat();
    let chart = Chart::install(plane, program(), &values).unwrap();
    chart.wait_for(2).unwrap();
    policies_in_force(plane);
    let shop = Shop::open(plane);
    shop.holds("secret/password", true);
    (chart, shop)
}

/// Every object in the cluster whose text contains these words, of every listable kind, as
/// `kind/namespace/name`.
pub fn objects_with(plane: &ControlPlane, words: &str) -> Vec<String> {
    let kinds = ["api-resources", "--verbs=list", "-o", "name"];
    let kinds = plane.kubectl(&kinds).unwrap().success().unwrap();
    let quiet = ["events", "events.events.k8s.io"];
    let kinds = kinds.lines().filter(|kind| !quiet.contains(kind));
    let items = kinds.flat_map(|kind| plane.api().list(kind, "", "").unwrap());
    let named = |item: serde_json::Value| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}/{}", item["kind"].as_str().unwrap(), text("namespace"), text("name"))
    };
    items.filter(|item| item.to_string().contains(words)).map(named).collect()
}

/// Waits until the policies of the chart are in force.
pub fn policies_in_force(plane: &ControlPlane) {
    let args = ["wait", "deletionpolicy", "--all", "--for=condition=Ready=True", "--timeout=90s"];
    plane.kubectl(&args).unwrap().success().unwrap();
}
