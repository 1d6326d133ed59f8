//! The records of exemptions and of refusals.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::cluster::exemption::approval_of;
use crate::objects::ObjectRef;
use crate::policy::PolicySource;

#[tokio::test]
async fn an_exemption_is_written_down_before_it_counts() {
    let carol = || Question { user: "carol", ..Question::default() };
    let outcome = carol().ask(pods).await;
    assert_eq!(outcome.verdict.decision, Decision::Allow, "{}", outcome.message());
    let recorded = outcome.script.recorded.lock().clone();
    let [approval] = &recorded[..] else { panic!("{recorded:?}") };
    assert_eq!(
        (approval.spec.approver.as_str(), &*approval.spec.exempts),
        ("belay", &["used".to_owned()][..])
    );
    assert_eq!(approval.spec.target_ref.uid, "11111111-1111-4111-8111-111111111111");

    let failing = Question { record: Err(ApiError::Other("no room".to_owned())), ..carol() };
    let outcome = failing.ask(pods).await;
    assert_eq!(outcome.verdict.reason, Some(Reason::Unknown));
    let words = "the exemption of carol by policy used could not be recorded: no room";
    assert!(outcome.message().contains(words), "{}", outcome.message());

    let dry = Question { dry_run: true, ..carol() };
    let outcome = dry.ask(pods).await;
    assert_eq!(outcome.verdict.decision, Decision::Allow);
    assert!(outcome.script.recorded.lock().is_empty());

    let unnamed = carol();
    unnamed.world.write().policies.identities.own = None;
    let outcome = unnamed.ask(pods).await;
    assert!(
        outcome.message().contains("does not know the name of its own account"),
        "{}",
        outcome.message()
    );
    assert!(outcome.script.recorded.lock().is_empty());
}

/// The exemption record of the object with this name and uid. `exempts` names the policies.
fn record_of(name: &str, uid: &str, approver: &str, exempts: &[&str]) -> Approval {
    let target = ObjectRef::new(("", "configmaps"), "a", name);
    let exemption = Exemption {
        uid: uid.to_owned(),
        user: "carol".to_owned(),
        policies: exempts.iter().map(|name| PolicySource::Policy((*name).to_owned())).collect(),
        seconds: 3600,
        why_unknown: None,
    };
    let mut approval = approval_of(&target, &exemption, approver, Timestamp::now());
    approval.metadata.creation_timestamp = Some(Time(Timestamp::now()));
    Approval::compile(&approval).unwrap()
}

/// A record permits only the deletion for which it was written, and a forged review must not leave
/// a record behind.
#[tokio::test]
async fn h169_a_delete_by_another_bars_a_record_and_nothing_is_recorded_of_what_is_not_there() {
    let with_record = |approver: &str, exempts: &[&str]| {
        let uid = "11111111-1111-4111-8111-111111111111";
        let approval = record_of("data", uid, approver, exempts);
        let question = Question::default();
        question.world.write().policies.approvals = Approvals::new([approval]);
        question
    };
    // The object has no users, so alice may delete it.
    let unused = |read: LiveRead| match read {
        LiveRead::Object(_) => pods(read),
        _ => nothing(read),
    };
    let outcome = with_record("belay", &["used"]).ask(unused).await;
    assert_eq!(outcome.verdict.decision, Decision::Allow, "{}", outcome.message());
    let bars = outcome.script.recorded.lock().clone();
    let [bar] = &bars[..] else { panic!("{bars:?}") };
    assert!(bar.has_record_name() && bar.spec.exempts.is_empty(), "{bar:?}");
    assert!(bar.spec.reason.starts_with("alice deletes this object"), "{bar:?}");
    let records_nothing = async |question: Question, answers: Scripted, decision| {
        let outcome = question.ask(answers).await;
        assert_eq!(outcome.verdict.decision, decision, "{}", outcome.message());
        assert!(outcome.script.recorded.lock().is_empty());
        outcome.message()
    };
    let dry = Question { dry_run: true, ..with_record("belay", &["used"]) };
    records_nothing(dry, unused, Decision::Allow).await;
    records_nothing(with_record("bob", &["used"]), unused, Decision::Allow).await;
    // A denied DELETE does not change the record, and a known bar is enough.
    records_nothing(with_record("belay", &["used"]), pods, Decision::Deny).await;
    records_nothing(with_record("belay", &[]), unused, Decision::Allow).await;
    // The deletion by another subject has begun, and its cascade needs the record.
    let terminating = |read: LiveRead| match read {
        LiveRead::Object(_) => {
            let mut data = data();
            data["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            Some(Ok(vec![data]))
        }
        _ => nothing(read),
    };
    records_nothing(with_record("belay", &["used"]), terminating, Decision::Allow).await;
    let failing = Question {
        record: Err(ApiError::Other("no room".to_owned())),
        ..with_record("belay", &["used"])
    };
    let outcome = failing.ask(unused).await;
    assert_eq!(outcome.verdict.reason, Some(Reason::Unknown), "{}", outcome.message());
    // belay can't read whether a deletion has begun, and a bar would stop its cascade.
    let unreadable = |read: LiveRead| match read {
        LiveRead::Object(_) => Some(Err(ApiError::Other("too many reads".to_owned()))),
        _ => nothing(read),
    };
    let message =
        records_nothing(with_record("belay", &["used"]), unreadable, Decision::Deny).await;
    let why = "could not be barred: belay can't read the object: too many reads";
    assert!(message.contains(why), "{message}");

    // carol is exempt. An equal record is enough, and a bar refuses her request.
    let carol = |question| Question { user: "carol", ..question };
    records_nothing(carol(with_record("belay", &["used"])), pods, Decision::Allow).await;
    let message = records_nothing(carol(with_record("belay", &[])), pods, Decision::Deny).await;
    assert!(message.contains("another subject deletes this object at the same time"), "{message}");
    // The object of the review does not exist.
    let absent = |read: LiveRead| {
        let object = matches!(read, LiveRead::Object { .. });
        if object { Some(Ok(Vec::new())) } else { pods(read) }
    };
    records_nothing(carol(Question::default()), absent, Decision::Allow).await;
}

/// The garbage collector asks before the watch has shown the bar.
#[tokio::test]
async fn h175_a_record_permits_a_delete_only_if_a_live_read_finds_it_unchanged() {
    let record = |exempts| record_of("above", "above", "belay", exempts);
    let above = json!({"metadata": {"name": "above", "namespace": "a", "uid": "above",
        "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"],
        "deletionTimestamp": Timestamp::now().to_string()}});
    let mut owned = data();
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "name": "above", "uid": "above", "blockOwnerDeletion": true}]);
    let ask = async |stored_record| {
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        let object = owned.clone();
        let question = Question { user: collector, object, stored_record, ..Question::default() };
        {
            let mut world = question.world.write();
            let maps = world.graph.kinds.find("", "ConfigMap").unwrap();
            let catalogue = world.catalogue.clone();
            for object in [&above, &owned] {
                catalogue.parse_and_apply(&mut world.graph, maps, &object.to_string()).unwrap();
            }
            world.policies.approvals = Approvals::new([record(&["used"])]);
        }
        let (above, owned) = (above.clone(), owned.clone());
        let answers = move |read: LiveRead| match &read {
            LiveRead::Object(object) if object.name == "above" => Some(Ok(vec![above.clone()])),
            LiveRead::Object(object) if object.name == "data" => Some(Ok(vec![owned.clone()])),
            _ => pods(read),
        };
        let outcome = question.ask(answers).await;
        (outcome.verdict.decision, outcome.message())
    };
    let (decision, message) = ask(Ok(Some(record(&["used"])))).await;
    assert_eq!(decision, Decision::Allow, "{message}");
    for (stored, why) in [
        (Ok(None), "has just changed"),
        (Ok(Some(record(&[]))), "has just changed"),
        (Err(ApiError::Other("no room".to_owned())), "no room"),
    ] {
        let (decision, message) = ask(stored).await;
        assert!(decision == Decision::Deny && message.contains(why), "{message}");
    }
}

/// H35: a caller who knows the path sends reviews of objects that don't exist, so that belay
/// records them.
#[tokio::test]
async fn h35_a_refusal_is_recorded_only_if_its_object_is_proved_to_exist() {
    let ask = async |known: bool, phase, request: Value, answers: Scripted| {
        let world = world();
        let maps = world.read().graph.kinds.find("", "ConfigMap").unwrap();
        world.write().graph.set_complete(maps, true);
        assert!(known || world.write().graph.delete(maps, "a", "data", None));
        let mut review = json!({"uid": "1", "userInfo": {"username": "mallory"}, "name": "data",
            "namespace": "a", "resource": {"group": "", "version": "v1", "resource": "configmaps"}});
        let fields = request.as_object().unwrap().clone();
        review.as_object_mut().unwrap().extend(fields);
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": review});
        let bytes = review.to_string().into_bytes();
        let Parsed::Review(mut review) = parse_review(&bytes, phase).unwrap() else {
            panic!("unreadable")
        };
        let mut old = review.old_object.iter();
        review.labelled = old.any(|object| object.protect_label().is_some());
        let (journal, mut entries) = Journal::new(Metrics::default());
        let decider = ClusterDecider::new(world, Arc::new(Script::new(answers)), journal);
        let verdict = decider.decide(&review, Instant::now() + Duration::from_secs(5)).await;
        assert_eq!(verdict.decision, Decision::Deny);
        let noted = entries.try_recv().is_ok();
        assert_eq!(noted, verdict.recordable != Recordable::No);
        noted
    };
    let delete = || json!({"operation": "DELETE", "oldObject": data()});
    let failing = |_| Some(Err(ApiError::NotFound));
    assert!(!ask(false, AdmissionPhase::Validate, delete(), failing).await, "the read fails");
    assert!(ask(false, AdmissionPhase::Validate, delete(), pods).await, "a live read has it");
    assert!(ask(true, AdmissionPhase::Validate, delete(), failing).await, "the graph has it");

    let finalizers = vec!["a/b"; crate::graph::MAX_LIST_ENTRIES + 1];
    let object = json!({"metadata": {"name": "data", "namespace": "a", "finalizers": finalizers}});
    let create = json!({"operation": "CREATE", "object": object});
    assert!(!ask(true, AdmissionPhase::Mutate, create, pods).await, "it doesn't exist yet");

    // A label can protect objects of kinds that belay neither watches nor may read.
    let mut old = data();
    old["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    let labelled = || {
        json!({"operation": "DELETE", "oldObject": old,
            "resource": {"group": "", "version": "v1", "resource": "secrets"}})
    };
    assert!(ask(true, AdmissionPhase::Validate, labelled(), nothing).await);
}

/// For a labelled object that a policy may select, the API server calls two webhooks, for other
/// objects one of them.
#[tokio::test]
async fn records_a_request_once_whether_one_or_two_webhooks_receive_it() {
    let world = world();
    let recorded = async |selected: bool, has_label: bool| {
        if !selected {
            world.write().policies = PolicySet::default();
        }
        let mut old = data();
        if has_label {
            old["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
        }
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "1", "operation": "DELETE", "userInfo": {"username": "alice"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": "data",
            "namespace": "a", "oldObject": old}});
        let bytes = review.to_string().into_bytes();
        let mut recorded = Vec::new();
        for labelled in [false, true] {
            let Parsed::Review(mut review) =
                parse_review(&bytes, AdmissionPhase::Validate).unwrap()
            else {
                panic!("unreadable")
            };
            review.labelled = labelled;
            let script = Script::new(pods);
            let (journal, mut entries) = Journal::new(Metrics::default());
            let decider = ClusterDecider::new(Arc::clone(&world), Arc::new(script), journal);
            let verdict = decider.decide(&review, Instant::now() + Duration::from_secs(5)).await;
            let is_denied = has_label || selected;
            assert_eq!(verdict.decision == Decision::Deny, is_denied, "{selected} {has_label}");
            recorded.push(entries.try_recv().is_ok());
        }
        recorded
    };
    // Only the webhook of the kind is called for this one.
    assert!(recorded(true, false).await[0]);
    assert_eq!(recorded(true, true).await, [false, true]);
    // The API server may call the webhook of the kind because of policies for other objects.
    assert_eq!(recorded(false, true).await, [false, true]);
}
