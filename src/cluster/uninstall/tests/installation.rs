//! The webhook configurations and belay's own objects.

use super::*;
use crate::cluster::account;

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn configuration(name: &str, webhook: &str, namespace: &str) -> Value {
    let service = json!({"name": "s", "namespace": namespace});
    json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "webhooks": [{
        "name": webhook, "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": service}}]})
}

/// Reads the configurations from an API server with these answers: to the GET of belay's own
/// configuration, and to the lists. Returns the uids, or the error as text.
async fn read(own: (u16, Value), mutating: (u16, Value), validating: (u16, Value)) -> String {
    let others = BTreeMap::from([
        (format!("{MUTATING}/belay"), own),
        (format!("{VALIDATING}/belay"), absent("belay")),
        (MUTATING.to_owned(), mutating),
        (VALIDATING.to_owned(), validating),
    ]);
    let (client, _) = server(Store { others, ..Store::default() });
    let settings = uninstall(&client, NORMAL, &|_| {}).settings;
    match Configurations::read(&client, &settings).await {
        Ok(configurations) => configurations.uids(),
        Err(UninstallError::OtherInstallation { namespace, name }) => {
            format!("{namespace:?} {name}")
        }
        Err(UninstallError::ReadConfiguration(what, error)) => format!("{what}: {error}"),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_uninstall_stops_if_another_installation_may_run() {
    let list = |items: &[Value]| (200, json!({"metadata": {}, "items": items}));
    let none = || (404, absent("belay").1);
    let own = || configuration("belay", "hold.belay.dev", "belay");
    let ours = read((200, own()), list(&[own()]), list(&[])).await;
    assert!(
        ours.contains("uid-of-belay") && ours.contains("ValidatingWebhookConfiguration: None"),
        "{ours}"
    );
    // The other installation has another name, for each kind of configuration, with and without
    // ours.
    let guard = |webhook| list(&[configuration("guard", webhook, "ops")]);
    let other = "Some(\"ops\") guard";
    assert_eq!(read(none(), guard("hold.belay.dev"), list(&[])).await, other);
    assert_eq!(read((200, own()), list(&[own()]), guard("delete.belay.dev")).await, other);
    // Webhooks of other programs are ignored.
    let others = read(none(), guard("hold.example.com"), guard("delete.example.com")).await;
    assert!(others.contains("MutatingWebhookConfiguration: None"), "{others}");
    // The other installation has the same name.
    let elsewhere = configuration("belay", "hold.belay.dev", "ops");
    assert_eq!(read((200, elsewhere), list(&[]), list(&[])).await, "Some(\"ops\") belay");
    // The account may read only the configuration of its own installation.
    let forbidden = || failure(403, "bob cannot list", ("", ""));
    let ours = read((200, own()), forbidden(), forbidden()).await;
    assert!(ours.contains("uid-of-belay"), "{ours}");
    // Any other unreadable configuration may belong to another program.
    let broken = || failure(500, "oops", ("", ""));
    let unread = read(broken(), list(&[]), list(&[])).await;
    assert!(unread.starts_with("MutatingWebhookConfiguration belay: "), "{unread}");
    let unread = read(forbidden(), list(&[]), list(&[])).await;
    assert!(unread.starts_with("MutatingWebhookConfiguration belay: "), "{unread}");
    let unread = read(none(), list(&[]), broken()).await;
    assert!(unread.starts_with("ValidatingWebhookConfigurations: "), "{unread}");
}

/// The received requests: method, path and body.
type Asked = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// An API server whose answers a function computes. Instead of `Null`, it returns the body of the
/// request.
fn scripted(answer: fn(&Method, &str) -> (u16, Value)) -> (kube::Client, Asked) {
    let asked = Asked::default();
    let kept = asked.clone();
    let client = local_client(move |request| {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let answer = match answer(&parts.method, &path) {
            (code, Value::Null) => (code, body.clone()),
            answer => answer,
        };
        kept.lock().push((parts.method, path, body));
        Some(answer)
    });
    (client, asked)
}

#[tokio::test]
async fn deletes_only_the_configurations_that_were_read() {
    let (client, asked) = scripted(|method, path| match (method, path.contains("/mutating")) {
        (&Method::GET, true) if path.ends_with("/belay") => {
            (200, configuration("belay", "hold.belay.dev", "belay"))
        }
        (&Method::GET, _) if path.ends_with("/belay") => absent("belay"),
        (&Method::GET, _) => (200, json!({"metadata": {}, "items": []})),
        _ => (200, json!({"kind": "Status", "status": "Success"})),
    });
    let settings = uninstall(&client, NORMAL, &|_| {}).settings;
    let configurations = Configurations::read(&client, &settings).await.unwrap();
    configurations.delete(&client, "belay", &|_| {}).await.unwrap();
    let asked = asked.lock();
    let deletes: Vec<_> = asked.iter().filter(|(method, ..)| *method == Method::DELETE).collect();
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    assert_eq!(deletes[0].1, format!("{MUTATING}/belay"));
    assert_eq!(deletes[0].2["preconditions"]["uid"], "uid-of-belay");
}

/// The context of an uninstall that takes part in the election.
fn context(client: &kube::Client) -> Context {
    let mut context = Context::of_test(client.clone(), crate::cluster::World::default(), &[]);
    context.settings =
        Arc::new(Settings { replica: "uninstall-x".to_owned(), ..(*context.settings).clone() });
    context
}

fn own_objects<'a>(uninstall: &'a Uninstall<'_>, election: &'a Election<'a>) -> OwnObjects<'a> {
    let Uninstall { client, settings, identities, report, .. } = uninstall;
    let own_user = identities.own.as_deref().unwrap();
    OwnObjects { client, settings, own_user, may_be_registered: false, election, report }
}

/// Deletes belay's objects. Returns the events.
async fn delete_all(client: &kube::Client, may_be_registered: bool) -> Vec<UninstallEvent> {
    let events = Mutex::new(Vec::new());
    let report = |event| events.lock().push(event);
    let (uninstall, context) = (uninstall(client, NORMAL, &report), context(client));
    let election = Election::of_uninstall(&context);
    let own = OwnObjects { may_be_registered, ..own_objects(&uninstall, &election) };
    own.delete_all(uninstall.clock.now()).await;
    events.into_inner()
}

#[tokio::test]
async fn a_dry_run_lists_what_a_run_deletes() {
    let (client, asked) = scripted(|_, path| {
        let object = |name: &str, annotations: Value| json!({"metadata": {"name": name, "uid": name, "annotations": annotations}});
        match path.rsplit('/').next().unwrap() {
            "belay-held" => (200, object("belay-held", Value::Null)),
            "configmaps" => {
                let items = [object("belay-journal-1", Value::Null)];
                (200, json!({"metadata": {}, "items": items}))
            }
            "belay-tls" => (200, object("belay-tls", Value::Null)),
            "belay-path" => (500, json!({"kind": "Status", "code": 500, "message": "no"})),
            "leases" => (200, json!({"metadata": {}, "items": []})),
            "belay" => lease("belay-1"),
            name => absent(name),
        }
    });
    let events = Mutex::new(Vec::new());
    let report = |event| events.lock().push(event);
    let (uninstall, context) = (uninstall(&client, NORMAL, &report), context(&client));
    let election = Election::of_uninstall(&context);
    own_objects(&uninstall, &election).report_plan(uninstall.clock.now()).await;
    let plan = |what: &str| UninstallEvent::Step(format!("would delete: {what}"));
    // A Secret of another program stays.
    let expected = [
        plan("ConfigMap belay-held"),
        plan("ConfigMap belay-journal-1"),
        UninstallEvent::Warning(
            "Secret belay-path could not be read: the API server answers 500: no".to_owned(),
        ),
        plan("Lease belay"),
    ];
    assert_eq!(events.into_inner(), expected);
    assert!(asked.lock().iter().all(|(method, ..)| *method == Method::GET));
}

/// belay's Lease with this holder.
fn lease(holder: &str) -> (u16, Value) {
    let metadata = json!({"name": "belay", "uid": "u", "resourceVersion": "7"});
    (200, json!({"metadata": metadata, "spec": {"holderIdentity": holder}}))
}

/// The DELETE requests of Leases, with their preconditions.
fn deleted_leases(asked: &Asked) -> Vec<Value> {
    let asked = asked.lock();
    let deletes = asked
        .iter()
        .filter(|(method, path, _)| *method == Method::DELETE && path.ends_with("/leases/belay"));
    deletes.map(|(_, _, body)| body["preconditions"].clone()).collect()
}

/// The answers of an API server without replicas, whose Lease has this holder.
fn no_replica(method: &Method, path: &str, holder: &str) -> (u16, Value) {
    match *method {
        Method::GET if path.ends_with("/leases") => (200, json!({"metadata": {}, "items": []})),
        Method::GET if path.ends_with("/leases/belay") => lease(holder),
        Method::DELETE if path.ends_with("/leases/belay") => {
            (200, json!({"kind": "Status", "status": "Success"}))
        }
        _ => absent("x"),
    }
}

#[tokio::test]
async fn deletes_only_the_lease_that_it_holds() {
    let (client, asked) = scripted(|method, path| no_replica(method, path, "uninstall-x"));
    let events = delete_all(&client, false).await;
    assert_eq!(events, [UninstallEvent::Step("deleted: Lease belay".to_owned())]);
    assert_eq!(deleted_leases(&asked), [json!({"uid": "u", "resourceVersion": "7"})]);

    let (client, asked) = scripted(|method, path| no_replica(method, path, "r1"));
    let events = delete_all(&client, false).await;
    let [UninstallEvent::Warning(text)] = &events[..] else { panic!("{events:?}") };
    assert!(text.contains("r1 has taken it"), "{text}");
    assert_eq!(deleted_leases(&asked), [] as [Value; 0]);
}

#[tokio::test]
async fn h141_an_approval_with_an_unreadable_time_keeps_no_record() {
    let (client, asked) = scripted(|method, path| {
        let approval = |name: &str, approver: &str, managed_fields: Value| {
            json!({"metadata": {"name": name, "uid": name, "managedFields": managed_fields},
                "spec": {"approver": approver, "reason": "r",
                    "expirationTime": "2026-01-01T00:00:00Z",
                    "targetRef": {"resource": "configmaps", "name": "data", "uid": "u"}}})
        };
        let time = json!([{"time": "9999-12-31T23:59:59-23:59"}]);
        let items = [
            approval("belay-exempts-eve", "eve", time.clone()),
            approval("belay-exempts-own", "system:serviceaccount:belay:guards", time),
        ];
        match path {
            _ if path.ends_with("/deletionapprovals") => {
                (200, json!({"metadata": {}, "items": items}))
            }
            _ => no_replica(method, path, "uninstall-x"),
        }
    });
    delete_all(&client, false).await;
    let asked = asked.lock();
    let deletes = asked.iter().filter(|(method, path, _)| {
        *method == Method::DELETE && path.contains("/deletionapprovals/belay-exempts-")
    });
    let deletes: Vec<_> = deletes.map(|(_, path, _)| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(deletes, ["belay-exempts-own"]);
}

#[tokio::test]
async fn a_lease_that_cannot_be_handed_over_is_left_behind_and_nothing_else_is_reported() {
    let answer = |method: &Method, path: &str| {
        let now = json!("2026-01-01T00:00:00.000000Z");
        let spec = json!({"holderIdentity": "r1", "renewTime": now, "leaseDurationSeconds": 15});
        let replica = json!({"metadata": {"name": "belay-r1"}, "spec": spec});
        match *method {
            Method::GET if path.ends_with("/leases") => {
                (200, json!({"metadata": {}, "items": [replica]}))
            }
            Method::GET if path.ends_with("/leases/belay") => lease("uninstall-x"),
            Method::GET if path.ends_with("/serviceaccounts/guards") => found("u", false),
            Method::PATCH if path.ends_with("/leases/belay") => {
                failure(403, "bob cannot patch", ("leases", "belay"))
            }
            Method::GET | Method::DELETE => absent("x"),
            _ => (200, Value::Null),
        }
    };
    for may_be_registered in [false, true] {
        let (client, asked) = scripted(answer);
        let events = delete_all(&client, may_be_registered).await;
        let [UninstallEvent::Warning(text)] = &events[..] else { panic!("{events:?}") };
        assert!(text.starts_with("Lease belay is left behind"), "{text}");
        let asked = asked.lock();
        let patched = |lease: &str| {
            let is_patch = |(method, path, _): &&(Method, String, Value)| {
                *method == Method::PATCH && path.ends_with(lease)
            };
            asked.iter().find(is_patch).unwrap().2["metadata"].clone()
        };
        for lease in ["/leases/belay-r1", "/leases/belay"] {
            assert_eq!(patched(lease)["ownerReferences"][0]["name"], "x");
        }
        // Replicas take the Lease only if the webhook configurations are created later.
        let mark = &patched("/leases/belay")["annotations"]["belay.dev/uninstalled-by"];
        assert_eq!(mark, &if may_be_registered { Value::Null } else { "uninstall-x".into() });
    }
}

#[tokio::test]
async fn the_lease_stays_while_it_is_unknown_whether_replicas_run() {
    let (client, asked) = scripted(|method, path| match (method, path) {
        (&Method::GET, path) if path.ends_with("/leases") => failure(500, "oops", ("", "")),
        (&Method::GET, path) if path.ends_with("/leases/belay") => {
            (404, json!({"kind": "Status", "code": 404, "reason": "NotFound"}))
        }
        (&Method::GET, path) if path.ends_with("/belay-held") => {
            (200, json!({"metadata": {"name": "belay-held", "uid": "u"}}))
        }
        (&Method::GET | &Method::DELETE, _) => absent("x"),
        _ => (200, Value::Null),
    });
    let events = delete_all(&client, false).await;
    let Some(UninstallEvent::Warning(text)) = events.last() else { panic!("{events:?}") };
    let start = "Lease belay is left behind, which is harmless: it is unknown whether replicas";
    assert!(text.starts_with(start), "{text}");
    let asked = asked.lock();
    let is_deleted = |(method, path, _): &(Method, String, Value)| {
        *method == Method::DELETE && path.contains("/leases")
    };
    assert!(asked.iter().any(|(method, ..)| *method == Method::DELETE), "{asked:?}");
    assert!(!asked.iter().any(is_deleted), "{asked:?}");
}

#[tokio::test]
async fn the_deployment_names_the_account() {
    let (client, _) = scripted(|_, path| match path {
        "/apis/apps/v1/namespaces/ops/deployments/guard" => {
            let template = json!({"spec": {"containers": [], "serviceAccountName": "guards"}});
            let spec = json!({"selector": {}, "template": template});
            (200, json!({"metadata": {"name": "guard"}, "spec": spec}))
        }
        _ => absent("x"),
    });
    assert_eq!(account(&client, "ops", "guard").await, "guards");
    assert_eq!(account(&client, "belay", "belay").await, "belay");
    // The Lease gets this account as its owner.
    let (client, asked) = scripted(|_, path| match path.rsplit('/').next() {
        Some("guards") => found("u", false),
        _ => absent("x"),
    });
    let uninstall = uninstall(&client, NORMAL, &|_| {});
    let context = context(&client);
    let election = Election::of_uninstall(&context);
    let owner = own_objects(&uninstall, &election).owner_of_replicas().await.unwrap().unwrap();
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("ServiceAccount", "u"));
    let wanted = "/api/v1/namespaces/belay/serviceaccounts/guards";
    assert!(asked.lock().iter().any(|(_, path, _)| path == wanted));
}
