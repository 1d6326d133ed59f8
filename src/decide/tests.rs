//! The tables: each row is a few lines of YAML with a situation, a question and the expected
//! answer. The files are in `tables/`. Each row names the rule of docs/THEORY.md or the
//! scenario that it covers.

mod bounds;
mod check;
mod inputs;
mod row;
mod situation;

use serde_json::{Value, json};

use self::check::{check, run};
use self::row::{Row, rows};
use crate::objects::set_former_hold_for_tests;

/// The rules that rows test. docs/THEORY.md describes them.
const RULES: &[(&str, &str)] = &[
    ("D1", "DELETE: approved, so it is allowed and recorded"),
    ("D2-namespace", "a Terminating Namespace without spec.finalizers and with content is denied"),
    ("D2-changed", "a repeated DELETE with another propagation is decided again"),
    ("D2-same", "a repeated DELETE that changes nothing is allowed"),
    ("D3-always", "in a cascade the DELETE of an always protected object is denied"),
    ("D3-along", "in a cascade, the objects that a held object deletes or orphans are judged"),
    ("D3-hold", "in a cascade an object with an effective hold and no foreign finalizer is Hold"),
    ("D3-on", "in a cascade all other DELETEs are decided like single DELETEs"),
    ("D4", "a DELETE that may delete an always protected object is denied"),
    ("D5-deny", "a DELETE that may delete an object in use is denied if a user remains"),
    ("D5-hold", "with onDelete Hold, it is a Hold if the object has an effective hold"),
    ("D5-foreign", "an object with a foreign finalizer does not wait for the release"),
    ("D5-decided", "an object in a foreground deletion without a hold keeps no other object"),
    ("D5-doomed", "doomed users do not count if the hold is effective"),
    ("D6-exists", "a DELETE is denied while an object of whileExists exists"),
    ("D6-not-empty", "a DELETE is denied while an object with whileNotEmpty has content"),
    ("D5-unreadable", "an unreadable object counts as a user of each kind that its kind can use"),
    ("D6-unreadable", "a DELETE is denied while content can't be read"),
    ("M-elsewhere", "causes in other namespaces are one cause, without names and number"),
    ("D7", "a DELETE that orphans an object protected from orphaning is denied"),
    ("D8", "all other DELETEs are allowed"),
    ("U-approved", "UPDATE: approved, so it is allowed and recorded"),
    ("U-hold-only", "an UPDATE that only removes the hold is denied in the mutating phase"),
    ("U-hold-validating", "an UPDATE that removes the hold is denied in the validating phase"),
    (
        "U-put-back",
        "if other fields change as well, the hold is restored at its index, with a warning",
    ),
    ("U-terminating", "the removal of the hold of a Terminating object is denied; step: release"),
    ("U-own", "belay's own account may remove a hold"),
    ("U-remover", "a remover may remove a guarded finalizer"),
    ("U-nothing-left", "a finalizer that guards no object any more may be removed"),
    ("U-strip", "any other removal of a guarded finalizer: denied"),
    ("U-owner-absent", "the control plane may remove a reference to an absent owner"),
    ("U-owner-approved", "a user with an approval may remove an owner reference"),
    (
        "U-owner-terminating",
        "the control plane may remove a reference to an owner that is deleted without orphaning",
    ),
    ("U-owner-other", "the control plane may remove an owner of a claim if a solid one remains"),
    ("U-owner-uid", "an added reference with the uid of an owner counts as a removal of the owner"),
    ("U-owner-goes", "any other removal of an owner reference: denied"),
    ("U-orphan-goes", "the finalizer orphan of a Terminating owner is removed: decided as DELETE"),
    ("U-owner-comes", "an owner reference is added and no solid owner remains: decided as DELETE"),
    ("U-owner-going", "an added owner is being deleted with its own owners: decided as DELETE"),
    ("U-owner-opens", "an added owner may permit a deletion of the object: decided as DELETE"),
    ("U-labels", "a change of labels weakens protection: denied without an approval"),
    ("U-finalize", "namespaces/finalize with remaining protected content is denied for every user"),
    ("E-evict", "an eviction of a protected Pod is answered 429"),
    ("Z-no-patch-on-delete", "never a patch on DELETE"),
    ("Z-no-finalizer-after-deletion", "never a finalizer added after deletionTimestamp"),
    ("Z-dry", "a dry run has the same verdict and writes nothing"),
    ("Z-hold", "Hold answers Allow with a warning that names the user that the hold waits for"),
    ("Z-warn", "action Warn allows the request with a warning"),
    ("Z-audit", "action Audit allows the request and records the denial"),
    ("C-hold", "CREATE of a protected object adds the hold"),
    ("H-kinds", "no hold on Namespaces, CRDs, Pods, Nodes, Leases, EndpointSlices"),
    ("H-hooks", "no hold on Helm and Argo hooks"),
    ("H-helm", "no hold on Helm release Secrets"),
    ("H-listed", "no hold on custom resources whose manifest lists finalizers"),
    ("H-argo", "no hold on objects of argoproj.io"),
    ("M-root", "a message names the topmost owner of a user"),
    ("M-three", "a message names up to three causes, and the number of the others"),
    ("L-allow", "an Allow without an effective hold is confirmed live"),
    ("L-hold", "an Allow with an effective hold is not confirmed live"),
    ("L-stale", "while a watch is not connected, an effective hold replaces no live read"),
    ("L-content", "an Allow for a Namespace or CRD is always confirmed live"),
    ("L-deny", "a Deny whose users have owners is confirmed by reads of the topmost owners"),
    ("L-owner", "a reference that is added, or that the collector removes, is confirmed by a read"),
    ("L-exists", "a verdict reports nothing about an object that does not exist"),
    ("L-failed", "after a failed live read the verdict is Unknown"),
    ("P-strictest", "all policies apply; the strictest verdict wins and names its policies"),
    ("P-exempt", "requests of exempt subjects are allowed and recorded"),
    (
        "P-record",
        "an exemption record allows the DELETEs that follow from that deletion, and no others",
    ),
    ("P-subjects", "a policy binds only its subjects"),
    ("P-exclude", "exclude has precedence over targets"),
    ("P-annotations", "annotations match by their value"),
    ("P-places", "namespace selectors work as those of webhooks"),
    ("P-override", "the first override that matches wins"),
    ("P-pause", "during a Pause each action is Audit"),
    ("P-by", "the field by matches the user or one of its owners"),
    ("P-optional", "optional references count if the policy counts them"),
    ("P-warn-no-hold", "policies with action Warn or Audit add no hold"),
];

#[test]
fn every_row_has_the_expected_verdict() {
    set_former_hold_for_tests();
    run(|_| true);
}

/// Every user can write owner references. Long chains, ladders in which every rung has two
/// owners, and cliques must not stop belay.
#[test]
fn owner_references_of_any_shape_are_checked_within_limits() {
    let mut objects = vec![
        json!({"is": "Secret shop/key", "held": true, "owners": ["ConfigMap c0"]}),
        json!({"is": "Pod shop/long", "owners": ["ConfigMap l0"], "secrets": ["key"]}),
        json!({"is": "Pod shop/wide", "owners": ["ConfigMap w0a", "ConfigMap w0b"], "secrets": ["key"]}),
        json!({"is": "Pod shop/round", "owners": ["ConfigMap c0"], "secrets": ["key"]}),
    ];
    for at in 0..3_000 {
        let owner = format!("ConfigMap l{}", at + 1);
        objects.push(json!({"is": format!("ConfigMap shop/l{at}"), "owners": [owner]}));
    }
    for at in 0..40 {
        let owners = [format!("ConfigMap w{}a", at + 1), format!("ConfigMap w{}b", at + 1)];
        for side in ["a", "b"] {
            objects.push(json!({"is": format!("ConfigMap shop/w{at}{side}"), "owners": owners}));
        }
    }
    let clique: Vec<_> = (0..30).map(|at| format!("ConfigMap c{at}")).collect();
    for at in 0..30 {
        objects.push(json!({"is": format!("ConfigMap shop/c{at}"), "owners": clique}));
    }
    let row: Row = serde_json::from_value(json!({
        "row": "any shape", "policies": ["secret-in-use"], "objects": objects,
        "approvals": [{"by": "bob", "of": "ConfigMap shop/other", "scope": "Content"}],
        "ask": {"delete": "Secret shop/key"},
        "expect": {"verdict": "Deny InUse"},
    }))
    .unwrap();
    let wrong = check("here", &row).unwrap_err();
    assert!(!wrong.contains("  verdict"), "{wrong}");
}

/// A verdict has a few reasons and the number of the others, without the approved ones.
#[test]
fn ten_thousand_protected_objects_are_one_verdict() {
    let mut objects = vec![json!({"is": "Namespace shop"})];
    objects.extend((0..10_000).map(|n| json!({"is": format!("ConfigMap shop/c{n}")})));
    let row = |approved: &str, verdict: &str, names: Value| -> Row {
        serde_json::from_value(json!({
            "row": "many", "policies": ["vault"], "objects": objects,
            "approvals": [{"by": "bob", "of": approved, "scope": "Content"}],
            "ask": {"delete": "Namespace shop"},
            "expect": {"verdict": verdict, "approved": names},
        }))
        .unwrap()
    };
    check("here", &row("Namespace shop", "Allow", json!(["yes-0"]))).unwrap();
    let wrong = check("here", &row("Namespace other", "Deny Protected", json!([]))).unwrap_err();
    assert!(
        wrong.contains("There are 9997 more reasons.") && !wrong.contains("  verdict"),
        "{wrong}"
    );
}

#[test]
fn every_rule_has_a_row_and_every_row_names_an_existing_rule() {
    let rows = rows();
    let named = |rule: &str| rows.iter().any(|(_, row)| row.rules.iter().any(|r| r == rule));
    let untested: Vec<_> = RULES.iter().filter(|(rule, _)| !named(rule)).collect();
    assert!(untested.is_empty(), "no row for {untested:?}");
    let known = |rule: &String| RULES.iter().any(|(known, _)| known == rule);
    let unknown: Vec<_> =
        rows.iter().flat_map(|(_, row)| &row.rules).filter(|r| !known(r)).collect();
    assert!(unknown.is_empty(), "no such rule: {unknown:?}");
}

macro_rules! scenarios {
    ($(fn $name:ident = $number:literal;)*) => {
        $(#[test]
        fn $name() {
            run(|row| row.scenarios.contains(&$number));
        })*
    };
}

// The rows of each scenario. tests/scenarios has tests with the same numbers.
scenarios! {
    fn s01_a_crd_with_custom_resources_stays = 1;
    fn s02_a_namespace_with_protected_content_stays = 2;
    fn s03_inside_an_approved_namespace_deletes_pass = 3;
    fn s04_only_the_protected_one_of_all_claims_is_denied = 4;
    fn s05_the_hold_is_not_stripped = 5;
    fn s06_a_controller_removes_its_own_finalizer = 6;
    fn s07_apply_from_git_keeps_the_hold = 7;
    fn s08_finalize_waits_for_protected_content = 8;
    fn s09_every_shape_of_orphaning_is_denied = 9;
    fn s10_the_collectors_own_patches_pass = 10;
    fn s11_a_cascade_waits_for_the_hold = 11;
    fn s12_a_foreground_deletion_waits_for_held_objects = 12;
    fn s13_a_create_gets_the_hold_once_with_and_without_finalizers = 13;
    fn s14_a_terminating_object_gets_no_finalizer = 14;
    fn s15_a_second_delete_does_not_bypass_protection = 15;
    fn s16_a_label_change_that_weakens_protection_needs_an_approval = 16;
    fn s17_objects_that_the_graph_does_not_have_count = 17;
    fn s19_a_dry_run_has_the_real_verdict_and_records_nothing = 19;
    fn s20_replace_force_is_denied_clearly = 20;
    fn s21_evictions_and_cleanups_do_not_deadlock = 21;
    fn s22_an_object_in_use_is_protected = 22;
    fn s23_the_same_name_in_another_namespace_or_group_does_not_match = 23;
    fn s24_approvals_bind_uid_time_and_people = 24;
    fn s25_cycles_are_found_and_can_be_broken = 25;
    fn s31_unreadable_data_never_causes_an_allow = 31;
    fn s32_a_tool_moves_objects_under_an_approval = 32;
    fn s33_a_hold_that_is_added_during_a_delete_is_not_relied_on = 33;
    fn s35_a_statefulset_and_its_claim_are_deleted_together = 35;
    fn s36_a_prune_before_an_apply_waits_for_the_hold = 36;
    fn s37_an_apply_before_a_prune_passes = 37;
    fn s38_a_recreated_pod_counts = 38;
    fn s39_a_manifest_that_lists_finalizers_gets_no_hold = 39;
    fn s41_an_object_and_its_user_are_deleted_in_parallel = 41;
    fn s43_a_pod_that_will_be_replaced_counts = 43;
    fn s44_a_finished_job_uses_nothing = 44;
    fn s45_a_hold_prints_a_warning = 45;
    fn s46_only_verdicts_that_need_a_kind_fail_closed = 46;
    fn s47_a_reference_to_an_absent_owner_is_decided_as_a_delete = 47;
    fn s48_pairs_that_refer_to_each_other_can_be_deleted = 48;
}
