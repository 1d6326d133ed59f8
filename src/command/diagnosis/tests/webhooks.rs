//! What a finding reports about admission webhooks and refusals.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

use super::*;
use crate::objects::HOLD;

/// A webhook behind a Service, which is called for every ConfigMap.
fn webhook(name: &str) -> Webhook {
    Webhook {
        configuration: "validatingwebhookconfiguration/guard".to_owned(),
        name: name.to_owned(),
        address: WebhookAddress::Service(("a".to_owned(), "b".to_owned())),
        required: true,
        rules: vec![rule("configmaps", "UPDATE")],
        ..Webhook::default()
    }
}

fn rule(resource: &str, operation: &str) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        operations: Some(vec![operation.to_owned()]),
        ..RuleWithOperations::default()
    }
}

#[test]
fn webhooks_of_its_domain_show_whether_a_controller_remains() {
    let stuck = settings("finalizers.example.com/drop", "kubectl-create");
    let silent = |problem| Webhook { rules: Vec::new(), problem, ..webhook("v.db.example.com") };
    let with = |webhook: Webhook| Evidence { webhooks: vec![webhook], ..evidence(&[]) };
    // The CRDs remain, and their controller does not.
    let left = of(&stuck, &with(silent(Some(missing_service("there is no Service a/b")))));
    assert_eq!(left.cause, Cause::ControllerGone);
    let says = "the webhook v.db.example.com (validatingwebhookconfiguration/guard) does not answer: \
                there is no Service a/b";
    assert!(left.evidence.contains(&says.to_owned()), "{left:?}");
    let conversion = DeadConversion {
        definition: "things.example.com".to_owned(),
        problem: missing_service("there is no Service a/c"),
    };
    let conversion = Evidence { conversions: vec![conversion], ..evidence(&[]) };
    assert_eq!(of(&stuck, &conversion).cause, Cause::ControllerGone);
    // An unready webhook becomes ready again. A webhook of another domain is no evidence.
    let late = ServiceProblem { missing: false, why: "no Pod behind it is ready".to_owned() };
    assert_eq!(of(&stuck, &with(silent(Some(late)))).cause, Cause::Unknown);
    let other = Webhook { name: "v.example.org".to_owned(), ..silent(Some(missing_service("x"))) };
    assert_eq!(of(&stuck, &with(other)).cause, Cause::Unknown);
    // A webhook that answers shows that the controller runs.
    let bare = settings("gone.example.test/drop", "kubectl-create");
    assert_eq!(of(&bare, &evidence(&[])).cause, Cause::ControllerGone);
    let there = of(&bare, &with(Webhook { name: "v.example.test".to_owned(), ..silent(None) }));
    assert_eq!(there.cause, Cause::Unknown, "{there:?}");
    assert!(
        words(&there).contains("belay has found no problem with the webhook v.example.test"),
        "{there:?}"
    );
}

#[test]
fn a_webhook_that_may_refuse_is_reported_if_nothing_else_explains_the_object() {
    let address = WebhookAddress::Host("guard.test:8443".to_owned());
    let far = Webhook { address, ..webhook("guard.test") };
    let near = webhook("near.test");
    let with = |webhooks: &[&Webhook], workloads: &[Workload]| Evidence {
        webhooks: webhooks.iter().map(|webhook| (*webhook).clone()).collect(),
        ..evidence(workloads)
    };
    let runs = [workload("db-operator", "x", 1)];
    let stuck = settings("db.example.com/drop", "db-operator");
    let all = |evidence: &Evidence| all_causes(&stuck, &Survey::default(), evidence);
    let found = all(&with(&[&near, &far], &runs));
    let causes: Vec<Cause> = found.iter().map(|finding| finding.cause).collect();
    assert_eq!(causes, [Cause::Controller, Cause::Unknown]);
    let perhaps = &found[1];
    assert!(perhaps.message.contains("asks 2 webhooks; the answer is unknown"), "{perhaps:?}");
    // A webhook outside the cluster comes first, because belay can't check it.
    assert_eq!(
        perhaps.evidence,
        [
            "validatingwebhookconfiguration/guard: guard.test: it is at guard.test:8443, outside \
             the cluster, so belay cannot know whether it answers; without an answer, the request \
             is refused (failurePolicy Fail)",
            "validatingwebhookconfiguration/guard: near.test: it is behind the Service a/b",
        ]
    );
    let next = "to find out without a change: kubectl patch configmaps/settings -n shop \
                --dry-run=server --type=json -p '";
    assert!(perhaps.next.starts_with(next), "{perhaps:?}");
    // A removal by hand can be refused as well.
    let unowned = all(&with(&[&far], &[]));
    let causes = [unowned[0].cause, unowned[1].cause];
    assert_eq!(causes, [Cause::Unknown; 2]);
    // A finding with an explanation is enough. belay's own webhooks report in Events.
    assert_eq!(all(&with(&[&far], &[workload("db-operator", "x", 0)])).len(), 1);
    let own = Webhook { name: "update.belay.dev".to_owned(), ..near.clone() };
    assert_eq!(all(&with(&[&own], &runs)).len(), 1);
    // A webhook with failurePolicy Ignore that is not running refuses nothing.
    let skipped = Webhook { required: false, problem: Some(missing_service("x")), ..near };
    assert_eq!(all(&with(&[&skipped], &runs)).len(), 1);
}

#[test]
fn a_refusal_is_reported_before_its_consequences() {
    let stuck = settings("db.example.com/drop", "db-operator");
    let mut evidence = evidence(&[workload("db-operator", "x", 1)]);
    evidence.events.insert(
        "u-1".to_owned(),
        vec![
            ObjectEvent {
                by: "db-operator".to_owned(),
                reason: "Failed".to_owned(),
                message: "admission webhook \"guard.test\" denied the request: no".to_owned(),
            },
            ObjectEvent {
                by: "x".to_owned(),
                reason: "Synced".to_owned(),
                message: "fine".to_owned(),
            },
        ],
    );
    let all = all_causes(&stuck, &Survey::default(), &evidence);
    assert_eq!(
        all.iter().map(|f| f.cause).collect::<Vec<_>>(),
        [Cause::Refused, Cause::Controller]
    );
    assert_eq!(all[0].evidence.len(), 1, "{all:?}");
    assert_eq!(all[0].next, "kubectl describe configmaps/settings -n shop");
    // The finding names the webhook that refused.
    evidence.webhooks = vec![webhook("guard.test")];
    let all = all_causes(&stuck, &Survey::default(), &evidence);
    let next = "ask the owner of the webhook guard.test; to see it: kubectl get \
                validatingwebhookconfiguration/guard -o yaml";
    assert_eq!((all.len(), &all[0].next[..]), (2, next));

    // An Event of belay may report the request of any user.
    let of_belay = |by: &str| ObjectEvent {
        by: by.to_owned(),
        reason: "FinalizerGuarded".to_owned(),
        message: "only belay may remove the finalizer belay.dev/hold".to_owned(),
    };
    evidence.events.get_mut("u-1").unwrap().push(of_belay("belay"));
    let all = all_causes(&stuck, &Survey::default(), &evidence);
    let says: Vec<&str> = all[..2].iter().map(|finding| &*finding.message).collect();
    let controller = "a controller that works on its deletion was refused";
    assert_eq!(says, [controller, "belay refused a request to remove a finalizer"]);
    assert!(all[1].evidence[0].starts_with("Event FinalizerGuarded by belay: only"), "{all:?}");

    evidence.events.clear();
    for (operation, refuses) in [("UPDATE", true), ("CREATE", false)] {
        evidence.webhooks = vec![Webhook {
            problem: Some(missing_service("there is no Service a/b")),
            rules: vec![rule("configmaps/*", operation)],
            has_conditions: true,
            ..webhook("guard.test")
        }];
        let all = all_causes(&stuck, &Survey::default(), &evidence);
        assert_eq!(all[0].cause == Cause::Refused, refuses, "{operation}");
        if refuses {
            let shown = [
                "there is no Service a/b",
                "the API server asks it only where its matchConditions match",
            ];
            assert_eq!(all[0].evidence, shown);
            let next = "kubectl delete validatingwebhookconfiguration/guard";
            assert!(all[0].next.ends_with(next), "{}", all[0].next);
            // Without its webhooks, belay protects nothing.
            evidence.webhooks[0].name = "update.belay.dev".to_owned();
            let next = "belay does not answer: kubectl belay status";
            let silent = all_causes(&stuck, &Survey::default(), &evidence);
            assert_eq!(silent[0].next, next);
            let held = settings(HOLD, "db-operator");
            let silent = all_causes(&held, &Survey::default(), &evidence);
            let release = "kubectl belay release configmaps/settings -n shop";
            let next = format!("{next}; to release only this object: {release}");
            assert_eq!(silent[0].next, next);
        }
    }
    let message = "Failed to delete all resource types, 1 remaining: admission webhook \"x\" \
                   denied the request: kept";
    let ns = of(&namespace(&[("NamespaceDeletionContentFailure", message)]), &Evidence::default());
    assert_eq!((ns.cause, &ns.evidence[0][..]), (Cause::Refused, message));
    assert!(ns.next.contains("validatingwebhookconfigurations"), "{}", ns.next);
    // A ValidatingAdmissionPolicy, which the API server evaluates without a webhook.
    let message = "Failed to delete all resource types, 1 remaining: configmaps \"a\" is \
                   forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: kept";
    let ns = of(&namespace(&[("NamespaceDeletionContentFailure", message)]), &Evidence::default());
    assert_eq!((ns.cause, &ns.evidence[0][..]), (Cause::Refused, message));
    assert!(ns.next.contains("validatingadmissionpolicies"), "{}", ns.next);
}
