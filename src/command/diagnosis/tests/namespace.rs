//! The causes why a Namespace stays.

use super::*;

const REMAINING: (&str, &str) =
    ("NamespaceContentRemaining", "Some resources are remaining: configmaps. has 1 instances");

#[test]
fn a_namespace_waits_for_what_is_left_in_it() {
    let survey = Survey { objects: vec![settings("x.dev/y", "op")], ..Survey::default() };
    let all = all_causes(&namespace(&[REMAINING]), &survey, &evidence(&[]));
    let [content] = &all[..] else { panic!("{all:?}") };
    assert_eq!(content.cause, Cause::Content);
    assert_eq!(content.evidence, [REMAINING.1, "Any shop/settings is Terminating as well"]);
    assert_eq!(content.next, "kubectl belay why configmaps/settings -n shop");
    // A Terminating object elsewhere is not part of its content.
    let mut other = settings("x.dev/y", "op");
    other.object_ref.namespace = "elsewhere".to_owned();
    let survey = Survey { objects: vec![other], ..Survey::default() };
    let all = all_causes(&namespace(&[REMAINING]), &survey, &evidence(&[]));
    assert_eq!(all[0].evidence, [REMAINING.1]);
    assert_eq!(all[0].next, "kubectl belay stuck -n shop");
    let silent = of(&namespace(&[]), &evidence(&[]));
    assert_eq!(silent.cause, Cause::Unknown);
    assert_eq!(silent.message, "the namespace controller has reported no reason");
    // In the first seconds, the controller has written nothing.
    let early = |seconds: i64| {
        let now = Timestamp::from_second(100 + seconds).unwrap();
        let (survey, hold) = (Survey::default(), Hold::default());
        find_causes(&namespace(&[]), &survey, &evidence(&[]), &hold, now).remove(0)
    };
    let says = "the deletion has just begun, and the namespace controller has not finished yet";
    let next = "if it still exists in a minute: kubectl belay why namespaces/shop";
    assert_eq!((early(1).message.as_str(), early(1).next.as_str()), (says, next));
    assert_eq!(early(15), silent);
    // A kind that the user may not read is not reported as silent.
    let mut hidden = namespace(&[]);
    hidden.object = json!({"metadata": {"name": "shop", "uid": "u-ns"}});
    hidden.unread = Some(ApiError::Forbidden("pods is forbidden".to_owned()));
    let hidden = of(&hidden, &evidence(&[]));
    assert!(hidden.message.starts_with("only its metadata could be read"), "{hidden:?}");
    assert_eq!(hidden.evidence, ["pods is forbidden"]);
    // A finalizer of another controller on the content.
    let mut foreign = namespace(&[]);
    foreign.object["spec"]["finalizers"] = json!(["x.dev/y"]);
    let foreign = of(&foreign, &evidence(&[]));
    assert_eq!(foreign.cause, Cause::Controller);
    assert!(foreign.message.contains("spec.finalizers has x.dev/y"), "{foreign:?}");
}

#[test]
fn a_namespace_reports_which_api_does_not_answer() {
    let message = "Discovery failed for some groups, 1 failing: unable to retrieve the complete \
                   list of server APIs: things.test/v1: stale GroupVersion discovery";
    let mut evidence = evidence(&[]);
    evidence.broken.push(BrokenApi {
        name: "v1.things.test".to_owned(),
        group: "things.test".to_owned(),
        why: "ServiceNotFound: service/gone in \"default\" is not present".to_owned(),
    });
    let stuck = namespace(&[("NamespaceDeletionDiscoveryFailure", message)]);
    let broken = of(&stuck, &evidence);
    assert_eq!(broken.cause, Cause::BrokenApi);
    assert_eq!(broken.evidence[0], message);
    assert!(broken.evidence[1].starts_with("apiservice/v1.things.test: ServiceNotFound"));
    assert!(broken.next.ends_with("kubectl delete apiservice v1.things.test"), "{}", broken.next);
}

#[test]
fn a_dead_conversion_webhook_is_reported_for_its_namespace_and_its_kind() {
    let message = "Failed to delete all resource types, 1 remaining: conversion webhook for \
                   things.test/v1, Kind=Thing failed: service \"missing\" not found";
    let mut evidence = evidence(&[]);
    evidence.conversions.push(DeadConversion {
        definition: "things.things.test".to_owned(),
        problem: missing_service("there is no Service default/missing"),
    });
    let dead = of(&namespace(&[("NamespaceDeletionContentFailure", message)]), &evidence);
    assert_eq!(dead.cause, Cause::ConversionWebhook);
    assert_eq!(
        dead.evidence,
        [message, "crd/things.things.test: there is no Service default/missing"]
    );
    assert!(dead.next.contains("kubectl get crd things.things.test"), "{}", dead.next);

    // Also before the namespace controller has written conditions.
    let mut silent = namespace(&[]);
    silent.object["status"] = json!({"phase": "Terminating"});
    let silent = of(&silent, &evidence);
    assert_eq!((silent.cause, &silent.next), (Cause::ConversionWebhook, &dead.next));
    assert_eq!(silent.evidence, dead.evidence[1..]);
    // Its later conditions are about another problem.
    assert_eq!(of(&namespace(&[]), &evidence).cause, Cause::Unknown);

    let definition = json!({"metadata": {"name": "things.things.test", "uid": "u-crd",
        "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]},
        "spec": {"group": "things.test", "names": {"plural": "things"}}});
    let definitions = info("apiextensions.k8s.io", "customresourcedefinitions", false);
    let definition = found(definitions, definition);
    let all = all_causes(&definition, &Survey::default(), &evidence);
    assert_eq!(all[0].cause, Cause::ConversionWebhook, "{all:?}");
    assert_eq!(all[1].cause, Cause::Content);

    // A CRD with stuck objects names them.
    evidence.conversions.clear();
    let thing = json!({"metadata": {"name": "one", "namespace": "shop", "uid": "u-t"}});
    let thing = found(info("things.test", "things", true), thing);
    let survey = Survey { objects: vec![thing], ..Survey::default() };
    let all = all_causes(&definition, &survey, &evidence);
    assert_eq!(all[0].evidence, ["Any shop/one is Terminating as well"]);
}
