//! The feed on the real API server: the watched kinds follow from the policies, and no
//! object is lost on the way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belay::cluster::{Context, Settings, SharedWorld, Signals, feed};
use belay::policy::Identities;
use belay::telemetry::{Metrics, Readiness};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::crd::crd;
use crate::harness::manifest::{Manifest as _, deletion_policy};
use crate::harness::{ControlPlane, Options, intervals, policy};
use crate::policies::{apply_kinds, installed};
use crate::world;

const LIMIT: Duration = Duration::from_secs(60);

/// A feed that runs for as long as this lives.
struct Fed {
    world: SharedWorld,
    readiness: Readiness,
    task: JoinHandle<()>,
}

impl Drop for Fed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn fed(plane: &ControlPlane, labelled: &[&str]) -> Fed {
    belay::telemetry::init_logs(belay::telemetry::LogFormat::Text);
    let world = SharedWorld::default();
    let readiness = Readiness::default();
    let labelled = labelled.iter().map(|r| (String::new(), (*r).to_owned())).collect();
    let settings = Settings {
        certificates: belay::cluster::Certificates::Files { authorities: None },
        backfill: 0,
        timeout_seconds: 5,
        timing: intervals().parse().unwrap(),
        namespace: "belay".to_owned(),
        name: "belay".to_owned(),
        replica: "feed-test".to_owned(),
        instance: "feed-test".to_owned(),
        labelled,
    };
    let context = Context {
        client: plane.client().await.unwrap(),
        world: world.clone(),
        settings: Arc::new(settings),
        metrics: Metrics::default(),
        readiness: readiness.clone(),
        signals: Arc::new(Signals::default()),
    };
    let task = tokio::spawn(feed::run(
        context,
        Identities::default(),
        tokio::sync::watch::Sender::new(Arc::default()),
    ));
    let fed = Fed { world, readiness, task };
    fed.until("it is ready", || fed.readiness.is_ready()).await;
    fed
}

impl Fed {
    async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            let on_time = begun.elapsed() <= LIMIT;
            assert!(on_time, "not within {LIMIT:?}: {what}; {}", self.readiness.describe());
            crate::harness::pause_async(Duration::from_millis(25)).await;
        }
    }

    fn watched(&self) -> BTreeSet<String> {
        let world = self.world.read();
        let kinds = world.graph.kinds.iter();
        let complete = kinds.filter(|(kind, _)| world.graph.is_complete(*kind));
        complete.map(|(_, info)| info.resource.clone()).collect()
    }

    fn has(&self, resource: &str, namespace: &str, name: &str) -> bool {
        let world = self.world.read();
        let kind = world.graph.kinds.find_resource("", resource);
        kind.is_some_and(|kind| world.graph.object(kind, namespace, name).is_some())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_follow_from_the_policies() {
    // A control plane without the policies of other tests.
    let options = Options { controllers: false, ..Options::default() };
    let plane = &ControlPlane::start_with(&options).unwrap();
    apply_kinds(plane).unwrap();
    let ns = plane.namespace("feed").unwrap();
    plane.kubectl(&["create", "configmap", "one", "-n", &ns]).unwrap().success().unwrap();
    let fed = fed(plane, &[]).await;
    let before = fed.watched();
    assert!(before.contains("namespaces") && before.contains("customresourcedefinitions"));
    assert!(!before.contains("secrets"), "nobody asked for Secrets");

    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}});
    plane.apply(&deletion_policy(&format!("feed-{ns}"), spec)).unwrap();
    let needs = ["configmaps", "pods", "deployments", "replicasets", "statefulsets", "cronjobs"];
    fed.until("the kinds of the policy are complete", || {
        let watched = fed.watched();
        needs.iter().all(|kind| watched.contains(*kind))
    })
    .await;
    assert!(fed.has("configmaps", &ns, "one"));
    assert!(!fed.watched().contains("secrets"), "Secrets are users of nothing here");
    plane.kubectl(&["create", "configmap", "two", "-n", &ns]).unwrap().success().unwrap();
    fed.until("a new object is seen", || fed.has("configmaps", &ns, "two")).await;
    plane.kubectl(&["delete", "configmap", "two", "-n", &ns]).unwrap().success().unwrap();
    fed.until("its end is seen", || !fed.has("configmaps", &ns, "two")).await;

    plane.kubectl(&["delete", "deletionpolicy", &format!("feed-{ns}")]).unwrap().success().unwrap();
    fed.until("what nobody needs is not watched", || fed.watched() == before).await;
    assert!(!fed.has("configmaps", &ns, "one"), "nothing is kept of what is not watched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_come_and_go_are_followed() {
    installed();
    let plane = &world().plane;
    let group = "feedcrd.example.com";
    let crd = crd(group, "Gadget", "gadgets", &["v1"], "v1");
    let crd = crd.with(json!({"spec": {"scope": "Cluster"}}));
    let target = json!({"apiGroups": [group], "resources": ["gadgets"]});
    let spec = json!({"targets": [target], "protect": {"always": {}}, "action": "Audit"});
    plane.apply(&deletion_policy("gadgets", spec)).unwrap();
    let fed = fed(plane, &[]).await;
    assert!(!fed.watched().contains("gadgets"));
    {
        let world = fed.world.read();
        let unknown = world.policies.unknown_kinds(&world.graph.kinds);
        assert!(unknown.iter().any(|(_, kind)| *kind == format!("gadgets.{group}")), "{unknown:?}");
    }
    for _ in 0..2 {
        plane.apply(&crd).unwrap();
        fed.until("the new kind is watched", || fed.watched().contains("gadgets")).await;
        let name = format!("crd/gadgets.{group}");
        plane.kubectl(&["delete", &name]).unwrap().success().unwrap();
        fed.until("the kind is not watched", || !fed.watched().contains("gadgets")).await;
    }
    plane.kubectl(&["delete", "deletionpolicy", "gadgets"]).unwrap().success().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labelled_objects_are_watched_by_their_label_alone() {
    installed();
    let plane = &world().plane;
    let ns = plane.namespace("labelled").unwrap();
    plane.kubectl(&["create", "serviceaccount", "plain", "-n", &ns]).unwrap().success().unwrap();
    plane.kubectl(&["create", "serviceaccount", "kept", "-n", &ns]).unwrap().success().unwrap();
    let fed = fed(plane, &["serviceaccounts"]).await;
    let label = |value: Value| json!({"metadata": {"labels": {"belay.dev/protect": value}}});
    plane.patch("serviceaccount/kept", &ns, &label(json!("WhileUsed")));
    fed.until("the labelled one is seen", || fed.has("serviceaccounts", &ns, "kept")).await;
    assert!(!fed.has("serviceaccounts", &ns, "plain"));
    assert!(!fed.watched().contains("serviceaccounts"), "of the others nothing is known");
    plane.patch("serviceaccount/kept", &ns, &label(Value::Null));
    fed.until("without the label it is gone", || !fed.has("serviceaccounts", &ns, "kept")).await;
}
