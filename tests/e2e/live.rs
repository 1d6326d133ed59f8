//! Live reads of the real API server, and the approvals that belay writes for exemptions.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belay::cluster::{
    CollectedReads, Context, LiveApi as _, ReadAnswer, ReadGroup, Reader, Settings, Signals, World,
    approval_of,
};
use belay::decide::{Exemption, ListPart, LiveRead};
use belay::objects::{Kinds, ObjectRef};
use belay::policy::PolicySource;
use belay::policy::api::DeletionApproval;
use belay::relations::Catalogue;
use belay::telemetry::{Metrics, Readiness};
use jiff::{SignedDuration, Timestamp};
use kube::api::Api;

use serde_json::{Value, json};

use crate::harness::manifest::{self, Manifest as _, config_map, documents};
use crate::harness::{ControlPlane, intervals};
use crate::policies::installed;
use crate::world;

/// The reads of this user, in a runtime that ends with them.
struct Side {
    runtime: tokio::runtime::Runtime,
    context: Context,
    reader: Reader,
}

impl Side {
    fn of(kubeconfig: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(async {
            let config = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
            kube::Client::try_from(config).unwrap()
        });
        let mut world = World::default();
        world.graph.kinds.learn(Kinds::custom("live.io", "v1", "Widget", "widgets", true));
        world.catalogue = Arc::new(Catalogue::new(&world.graph.kinds, &[]).unwrap());
        let settings = Settings {
            certificates: belay::cluster::Certificates::Files { authorities: None },
            backfill: 0,
            timeout_seconds: 5,
            timing: intervals().parse().unwrap(),
            namespace: "belay".to_owned(),
            name: "belay".to_owned(),
            replica: "belay-0".to_owned(),
            instance: "belay-0".to_owned(),
            labelled: Vec::new(),
        };
        let context = Context {
            client,
            world: Arc::new(parking_lot::RwLock::new(world)),
            settings: Arc::new(settings),
            metrics: Metrics::default(),
            readiness: Readiness::default(),
            signals: Arc::new(Signals::default()),
        };
        let _inside = runtime.enter();
        let reader = Reader::new(context.clone());
        Self { runtime, context, reader }
    }

    /// Waits as a thread that answers reviews does, in a separate runtime.
    fn wait<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(future)
    }

    fn read(&self, read: LiveRead) -> Result<Vec<String>, String> {
        let mut answers = Self::wait(self.reader.read(&group(), vec![read], in_time()));
        let (_, answer): ReadAnswer = answers.pop().unwrap();
        Ok(answer.map_err(|error| error.to_string())?.objects().map(str::to_owned).collect())
    }
}

fn group() -> ReadGroup {
    ReadGroup::Namespace("a".to_owned())
}

fn in_time() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn administrator() -> (&'static ControlPlane, Side) {
    let plane = &world().plane;
    (plane, Side::of(plane.kubeconfig()))
}

fn object(resource: &str, namespace: &str, name: &str) -> LiveRead {
    LiveRead::Object(ObjectRef::new(("", resource), namespace, name))
}

fn list(group: &str, resource: &str, namespace: &str, part: ListPart) -> LiveRead {
    LiveRead::List {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        part,
    }
}

#[test]
fn one_object_is_read_as_much_as_is_needed_of_it() {
    let (plane, side) = administrator();
    let ns = plane.namespace("object").unwrap();
    let secret = manifest::secret("s").with_namespace(&ns);
    let secret = secret.with(json!({"stringData": {"password": "hunter2"}}));
    let pod = manifest::pod("p").with_namespace(&ns).with_env_from("secretRef", "s");
    let both = documents(&[secret, pod]);
    plane.apply_to(&["create", "-f", "-"], &both).unwrap().success().unwrap();
    let secret = side.read(object("secrets", &ns, "s")).unwrap();
    let [secret] = &secret[..] else { panic!("{secret:?}") };
    assert!(secret.contains("PartialObjectMetadata"), "{secret}");
    assert!(secret.contains("\"name\":\"s\"") && !secret.contains("hunter2"), "{secret}");

    let pod = object("pods", &ns, "p");
    let answers = Side::wait(side.reader.read(&group(), vec![pod.clone()], in_time()));
    let mut collected = CollectedReads::new(&side.context.world.read());
    collected.add(answers);
    collected.update(&side.context.world);
    let reads = collected.reads();
    let kind = reads.graph.kinds.find("", "Pod").unwrap();
    assert_eq!(reads.results[&pod], Ok(()));
    let uses = reads.graph.object(kind, &ns, "p").unwrap().uses().iter();
    let uses: Vec<_> = uses.map(|edge| reads.graph.coordinates(edge.to).2).collect();
    assert!(uses.contains(&"s"), "{uses:?}");

    assert_eq!(side.read(object("pods", &ns, "gone")), Ok(Vec::new()));
    assert_eq!(side.read(object("pods", "nowhere", "gone")), Ok(Vec::new()));
    // Names that don't exist, and names that are invalid.
    for name in ["../secrets/s", "p?watch=true", "A p", "p\u{e9}"] {
        assert_eq!(side.read(object("pods", &ns, name)), Ok(Vec::new()), "{name}");
    }
}

#[test]
fn lists_are_read_page_by_page_and_one_object_where_that_is_enough() {
    let (plane, side) = administrator();
    let ns = plane.namespace("pages").unwrap();
    let maps: Vec<Value> = (0..1200).map(|n| config_map(&format!("m{n}"))).collect();
    let create = ["create", "-n", &ns, "-f", "-"];
    plane.apply_to(&create, &documents(&maps)).unwrap().success().unwrap();
    let all = side.read(list("", "configmaps", &ns, ListPart::All)).unwrap();
    // Three pages. The ConfigMap that every namespace has may be there as well.
    let own = |json: &&String| !json.contains("kube-root-ca.crt");
    assert_eq!(all.iter().filter(own).count(), 1200);
    assert_eq!(side.read(list("", "configmaps", &ns, ListPart::First)).unwrap().len(), 1);
    assert_eq!(side.read(list("", "pods", &ns, ListPart::First)), Ok(Vec::new()));
}

#[test]
fn a_kind_that_is_not_installed_has_no_objects() {
    let (plane, side) = administrator();
    let gadgets = || list("live.io", "gadgets", "", ListPart::First);
    let widgets = || list("live.io", "widgets", "", ListPart::All);
    // The group is not served: once known to belay, and once not.
    assert_eq!(side.read(widgets()), Ok(Vec::new()));
    assert_eq!(side.read(gadgets()), Ok(Vec::new()));
    plane
        .apply(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
             metadata: {name: gadgets.live.io}\nspec:\n  group: live.io\n  scope: Cluster\n  \
             names: {plural: gadgets, kind: Gadget}\n  versions:\n  - {name: v2, served: true, \
             storage: true, schema: {openAPIV3Schema: {type: object}}}\n",
        )
        .unwrap();
    let args = ["wait", "--for=condition=Established", "--timeout=30s", "crd/gadgets.live.io"];
    plane.kubectl(&args).unwrap().success().unwrap();
    // One group has a kind that belay does not know yet; the other group is known.
    let words = side.read(gadgets()).unwrap_err();
    assert_eq!(
        words,
        "CRD gadgets.live.io exists, but does not serve the version that belay reads"
    );
    assert_eq!(side.read(widgets()), Ok(Vec::new()));
    // A known kind, in a version that is not served.
    let old = Kinds::custom("live.io", "v1", "Gadget", "gadgets", false);
    side.context.world.write().graph.kinds.learn(old);
    let one = LiveRead::Object(ObjectRef::new(("live.io", "gadgets"), "", "g"));
    for read in [gadgets(), one.clone()] {
        assert_eq!(side.read(read), Err(words.clone()));
    }
    let new = Kinds::custom("live.io", "v2", "Gadget", "gadgets", false);
    side.context.world.write().graph.kinds.learn(new);
    for read in [gadgets(), one] {
        assert_eq!(side.read(read), Ok(Vec::new()));
    }
}

#[test]
fn a_forbidden_read_is_unknown() {
    let plane = &world().plane;
    let unprivileged = Side::of(&plane.user("without-rights", None).unwrap());
    let words = unprivileged.read(list("", "pods", "default", ListPart::All)).unwrap_err();
    assert!(words.starts_with("pods is forbidden"), "{words}");
    let words = unprivileged.read(object("pods", "default", "p")).unwrap_err();
    assert!(words.starts_with("pods \"p\" is forbidden"), "{words}");
    let words = unprivileged.read(list("live.io", "widgets", "", ListPart::All)).unwrap_err();
    assert!(words.contains("is forbidden"), "{words}");
}

#[test]
fn an_exemption_is_recorded_once_and_again_when_it_is_old() {
    let (plane, _) = installed();
    let side = Side::of(plane.kubeconfig());
    let ns = plane.namespace("exempt").unwrap();
    let exemption = Exemption {
        uid: format!("8c1f4f5e-0000-4000-8000-{:012x}", ns.len()),
        user: format!("carol-{ns}"),
        policies: vec![PolicySource::Policy("vault".to_owned())],
        seconds: 600,
        why_unknown: None,
    };
    let target = ObjectRef::new(("", "configmaps"), &ns, "data");
    let record = |own: &str, at: Timestamp| {
        let approval = approval_of(&target, &exemption, own, at);
        let name = approval.metadata.name.clone().unwrap();
        let group = ReadGroup::Namespace(ns.clone());
        Side::wait(side.reader.write_record(&group, approval, in_time())).map(|()| {
            let api = Api::<DeletionApproval>::all(side.context.client.clone());
            side.runtime.block_on(api.get(&name)).unwrap()
        })
    };
    let now = Timestamp::now();
    let first = record("admin", now).unwrap();
    assert_eq!(first.spec.exempts, ["vault"]);
    let again = record("admin", now + SignedDuration::from_secs(60)).unwrap();
    assert_eq!(again.metadata.uid, first.metadata.uid);
    // Compared with one so much later, the first one is old.
    let later = record("admin", now + SignedDuration::from_secs(1800)).unwrap();
    assert_eq!(later.metadata.uid, first.metadata.uid);
    assert!(later.spec.expiration_time.0 > first.spec.expiration_time.0);
    // The API server refuses an approval in the name of another user.
    let words = record("somebody", now + SignedDuration::from_secs(1800)).unwrap_err();
    assert!(words.to_string().contains("spec.approver is somebody, but you are admin"), "{words}");
}
