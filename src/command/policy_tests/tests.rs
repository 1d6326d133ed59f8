use super::*;

const HEAD: &str = "apiVersion: belay.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: t}\n";

/// A Pod that mounts two claims and a ConfigMap. The claim `old` has an approval. The claim `data`
/// and the ConfigMap have a hold.
const WORLD: &str = r#"
now: 2026-01-01T12:00:00Z
policies:
- apiVersion: belay.dev/v1alpha1
  kind: DeletionPolicy
  metadata: {name: claims}
  spec:
    targets: [{apiGroups: [""], resources: [persistentvolumeclaims]}]
    exemptSubjects: [{kind: User, name: root}]
    protect: {whileUsed: {}, fromStripping: {}}
- apiVersion: belay.dev/v1alpha1
  kind: DeletionPolicy
  metadata: {name: config}
  spec:
    targets: [{apiGroups: [""], resources: [configmaps]}]
    protect: {whileUsed: {onDelete: Hold}}
- apiVersion: belay.dev/v1alpha1
  kind: DeletionPolicy
  metadata: {name: watched}
  spec:
    targets: [{apiGroups: [""], resources: [secrets]}]
    protect: {always: {}}
    action: Audit
- apiVersion: belay.dev/v1alpha1
  kind: DeletionPolicy
  metadata: {name: content}
  spec:
    targets: [{apiGroups: [""], resources: [namespaces]}]
    protect: {whileNotEmpty: {counting: Any}}
- apiVersion: belay.dev/v1alpha1
  kind: DeletionPolicy
  metadata: {name: pods}
  spec:
    targets: [{apiGroups: [""], resources: [pods]}]
    protect: {always: {}}
    action: Warn
- apiVersion: belay.dev/v1alpha1
  kind: DeletionApproval
  metadata: {name: bobs, creationTimestamp: "2026-01-01T11:50:00Z"}
  spec:
    targetRef: {resource: persistentvolumeclaims, namespace: db, name: old, uid: 11111111-1111-4111-8111-111111111111}
    approver: bob
    reason: it goes
    expirationTime: 2026-01-01T12:20:00Z
objects:
- {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: db, finalizers: [kubernetes.io/pvc-protection, belay.dev/hold]}}
- {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: old, namespace: db, uid: 11111111-1111-4111-8111-111111111111}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: conf, namespace: db, finalizers: [belay.dev/hold]}}
- {apiVersion: v1, kind: Secret, metadata: {name: key, namespace: db}}
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: db}
  spec:
    volumes:
    - {name: a, persistentVolumeClaim: {claimName: data}}
    - {name: b, persistentVolumeClaim: {claimName: old}}
    - {name: c, configMap: {name: conf}}
"#;

fn file(text: &str) -> File {
    File { name: "t.yaml".into(), text: text.to_owned() }
}

fn report(cases: &str) -> TestReport {
    run_tests(&[file(&format!("{HEAD}{WORLD}cases:\n{cases}"))], &[]).unwrap()
}

/// The mismatches of a test with one case.
fn mismatches(ask: &str, expect: &str) -> String {
    let report = report(&format!("- {{name: a, ask: {{{ask}}}, expect: {{{expect}}}}}\n"));
    let [case] = &report.tests[0].cases[..] else { panic!("{report:?}") };
    assert_eq!(case.passed, case.wrong.is_empty(), "{case:?}");
    let texts = case.wrong.iter().map(|w| format!("{}: {} | {}", w.what, w.expected, w.found));
    texts.collect::<Vec<_>>().join("\n")
}

/// The request (`ask`), the expectations that it meets, and wrong expectations, each with its
/// mismatch.
type CaseRow = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const CASES: &[CaseRow] = &[
    (
        "delete: pvc/data, namespace: db",
        "verdict: Deny, reason: InUse, policy: claims, message: 'in use by Pod db/web', \
         blockers: [Pod db/web], approved: [], exempted: []",
        &[
            ("verdict: Allow", "verdict: Allow | Deny"),
            ("reason: Protected", "reason: Protected | InUse"),
            ("policy: config", "policy: config | claims"),
            ("blockers: [Pod db/web, Pod db/x]", "blockers: Pod db/web, Pod db/x | Pod db/web"),
            ("approved: [bobs]", "approved: bobs | none"),
            ("exempted: [claims]", "exempted: claims | none"),
        ],
    ),
    (
        "delete: pvc/old, namespace: db",
        "verdict: Allow, approved: [bobs]",
        &[("approved: []", "approved: none | bobs"), ("reason: InUse", "reason: InUse | none")],
    ),
    (
        "delete: pvc/data, namespace: db, by: root",
        "verdict: Hold, exempted: [claims], policy: claims",
        &[("exempted: []", "exempted: none | claims"), ("verdict: Allow", "verdict: Allow | Hold")],
    ),
    (
        "delete: cm/conf, namespace: db",
        "verdict: Hold, reason: InUse, message: stays Terminating until Pod db/web no longer",
        &[("verdict: Deny", "verdict: Deny | Hold")],
    ),
    (
        "delete: secret/key, namespace: db, dryRun: true",
        "verdict: Audit, reason: Protected, message: 'secret \"key\" is protected'",
        &[("verdict: Allow", "verdict: Allow | Audit")],
    ),
    // The Namespace has no manifest, and objects are in it.
    (
        "delete: ns/db",
        "verdict: Deny, reason: NotEmpty, policy: content",
        &[("policy: claims", "policy: claims | content")],
    ),
    (
        "finalize: ns/db",
        "verdict: Deny, reason: NotEmpty",
        &[("verdict: Allow", "verdict: Allow | Deny")],
    ),
    (
        "evict: pod/web, namespace: db",
        "verdict: Warn, reason: Protected",
        &[("verdict: Deny", "verdict: Deny | Warn")],
    ),
    (
        "update: pvc/data, namespace: db, strip: [kubernetes.io/pvc-protection]",
        "verdict: Deny, reason: FinalizerGuarded, blockers: [kubernetes.io/pvc-protection], \
         held: true",
        &[("held: false", "held: not held | held")],
    ),
    (
        "update: pvc/data, namespace: db, strip: [kubernetes.io/pvc-protection], by: \
         'system:serviceaccount:kube-system:pvc-protection-controller'",
        "verdict: Allow, held: true",
        &[("reason: FinalizerGuarded", "reason: FinalizerGuarded | none")],
    ),
    // A removal of only the hold, and a removal of the hold with another change. In the second
    // case, belay adds the hold again.
    (
        "update: cm/conf, namespace: db, strip: [belay.dev/hold]",
        "verdict: Deny, reason: FinalizerGuarded, held: true",
        &[("verdict: Allow", "verdict: Allow | Deny")],
    ),
    (
        "update: cm/conf, namespace: db, strip: [belay.dev/hold], patch: {data: {a: b}}",
        "verdict: Allow, held: true, message: keeps the finalizer",
        &[("held: false", "held: not held | held")],
    ),
    (
        "create: {apiVersion: v1, kind: ConfigMap, metadata: {generateName: c-}}, namespace: db",
        "verdict: Allow, held: true",
        &[("held: false", "held: not held | held"), ("message: x", "message: x | nothing")],
    ),
    (
        "create: {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: db}}",
        "held: false",
        &[("held: true", "held: held | not held")],
    ),
];

#[test]
fn met_expectations_pass_and_wrong_expectations_are_mismatches() {
    for (ask, right, wrong) in CASES {
        assert_eq!(mismatches(ask, right), "", "{ask}: {right}");
        for (expect, mismatch) in *wrong {
            assert_eq!(mismatches(ask, expect), *mismatch, "{ask}: {expect}");
        }
    }
}

/// The propagation policy of a delete changes the request.
#[test]
fn the_options_of_a_request_reach_the_decision() {
    let owner = "{apiVersion: v1, kind: ConfigMap, metadata: {name: owner, uid: u-1}}";
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, \
                 ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: u-1}]}}";
    let policy = "{apiVersion: belay.dev/v1alpha1, kind: DeletionPolicy, metadata: {name: p}, \
                  spec: {subjects: [{kind: Group, name: interns}], targets: [{apiGroups: [''], \
                  resources: [persistentvolumeclaims]}], protect: {fromOrphaning: {}}}}";
    for (more, verdict) in [
        ("groups: [interns]", "Allow"),
        ("groups: [interns], propagationPolicy: Orphan", "Deny"),
        ("propagationPolicy: Orphan", "Allow"),
        ("by: intern, propagationPolicy: Orphan", "Allow"),
    ] {
        let case = format!(
            "{{name: a, ask: {{delete: cm/owner, {more}}}, expect: {{verdict: {verdict}}}}}"
        );
        let text =
            format!("{HEAD}policies: [{policy}]\nobjects: [{owner}, {claim}]\ncases: [{case}]\n");
        let report = run_tests(&[file(&text)], &[]).unwrap();
        assert_eq!(report.failed, 0, "{more}: {report:?}");
    }
}

/// An invalid file, and its error message.
const REFUSED: &[(&str, &str)] = &[
    ("cases: []", "t.yaml:1:1: this object has no apiVersion"),
    ("kind: PolicyTest", "t.yaml:1:1: this object has no apiVersion"),
    ("apiVersion: belay.dev/v1\nkind: PolicyTest\n", "t.yaml:1:13: apiVersion: of a PolicyTest"),
    ("apiVersion: v1\nkind: PolicyTest\n", "t.yaml:1:13: apiVersion: a PolicyTest is of"),
    ("apiVersion: belay.dev/v1alpha1\nkind: PolicyTets\n", "t.yaml:2:7: kind: in files the group"),
    ("a: [", "t.yaml:1:4: brackets and braces"),
    ("HEAD", "t.yaml:1:1: this PolicyTest has no field cases"),
    ("HEADcase: []", "t.yaml:4:1: there is no field case, only apiVersion, kind"),
    ("HEADcases: []", "t.yaml:4:8: cases: there is none"),
    ("HEADcases:\n", "cases: expected a list, found nothing"),
    (
        "HEADobjects:\ncases: [{name: a, ask: {delete: cm/a}, expect: {verdict: Deny}}]",
        "t.yaml:4:8: objects: expected a list of paths and objects",
    ),
    (
        "HEADobjects: [nowhere]\ncases: [{name: a, ask: {delete: cm/a}, expect: {verdict: Deny}}]",
        "t.yaml:4:11: nowhere: this cannot be read",
    ),
    ("HEADnow: yesterday\ncases: []", "t.yaml:4:6: now: this does not have the form"),
    (
        "apiVersion: belay.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: t, labels: {}}\ncases: []",
        "there is no field labels, only name",
    ),
    ("CASEname: '', ask: {delete: cm/a}, expect: {verdict: Deny}", "cases[0].name: it is empty"),
    ("CASEname: a, ask: {delete: cm/a}", "cases[0]: the field expect is missing"),
    (
        "CASEname: a, ask: {delete: cm/a}, expect: {}",
        "cases[0].expect: the case has no expectations",
    ),
    (
        "CASEname: a, ask: {delete: cm/a}, expect: {verdct: Deny}",
        "cases[0].expect: there is no field verdct",
    ),
    (
        "CASEname: a, ask: {delete: cm/a}, expect: {verdict: deny}",
        "cases[0].expect.verdict: expected one of Allow, Audit, Warn, Hold, Deny",
    ),
    (
        "CASEname: a, ask: {delete: cm/a}, expect: {verdict: }",
        "cases[0].expect.verdict: it has no value",
    ),
    (
        "CASEname: a, ask: {delete: cm/a}, expect: {message: ''}",
        "cases[0].expect: message is empty",
    ),
    (
        "CASEname: a, ask: {delete: cm/a}, expect: {blockers: []}",
        "cases[0].expect: blockers is empty",
    ),
    (
        "CASEname: a, ask: {delete: cm/a}, expect: {held: true}",
        "cases[0].expect: held applies to create",
    ),
    (
        "CASEname: a, ask: {}, expect: {verdict: Deny}",
        "cases[0].ask: expected one of delete, update",
    ),
    (
        "CASEname: a, ask: {delete: cm/a, evict: po/a}, expect: {verdict: Deny}",
        "found delete and evict",
    ),
    (
        "CASEname: a, ask: {delete: cm/a, patch: {}}, expect: {verdict: Deny}",
        "cases[0].ask: patch goes with update, finalize, not with delete",
    ),
    ("CASEname: a, ask: {review: {}, by: alice}, expect: {verdict: Deny}", "by goes with delete"),
    (
        "CASEname: a, ask: {delete: cm/none}, expect: {verdict: Deny}",
        "t.yaml:4:33: cases[0].ask.delete: there is no configmaps/none -n default among the \
         objects; add it",
    ),
    (
        "CASEname: a, ask: {delete: cm/far}, expect: {verdict: Deny}",
        "there is one in namespace away; set namespace",
    ),
    (
        "CASEname: a, ask: {delete: cmm/a}, expect: {verdict: Deny}",
        "have a kind \"cmm\"; nearest: ",
    ),
    (
        "CASEname: a, ask: {delete: gizmo/a}, expect: {verdict: Deny}",
        "put its CustomResourceDefinition among",
    ),
    ("CASEname: a, ask: {delete: cm}, expect: {verdict: Deny}", "\"cm\" is not an object"),
    ("CASEname: a, ask: {evict: cm/a}, expect: {verdict: Deny}", "only Pods can be evicted"),
    (
        "CASEname: a, ask: {finalize: cm/a}, expect: {verdict: Deny}",
        "only Namespaces can be finalized",
    ),
    ("CASEname: a, ask: {update: cm/a}, expect: {verdict: Deny}", "the case changes nothing"),
    (
        "CASEname: a, ask: {update: cm/a, patch: {}}, expect: {verdict: Deny}",
        "the request changes nothing",
    ),
    (
        "CASEname: a, ask: {update: cm/a, strip: [x/y]}, expect: {verdict: Deny}",
        "has no finalizer \"x/y\"",
    ),
    (
        "CASEname: a, ask: {create: 7}, expect: {verdict: Deny}",
        "expected an object, or the path of its file",
    ),
    (
        "CASEname: a, ask: {create: {kind: ConfigMap}}, expect: {held: true}",
        "needs apiVersion and kind",
    ),
    (
        "CASEname: a, ask: {create: {apiVersion: x/v1, kind: A, metadata: {name: a}}}, expect: {held: true}",
        "have a kind \"A\" of this group",
    ),
    (
        "CASEname: a, ask: {create: {apiVersion: v1, kind: ConfigMap}}, expect: {held: true}",
        "needs metadata.name",
    ),
    (
        "CASEname: a, ask: {create: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: 7}}}, expect: {held: true}",
        "cases[0].ask: this object cannot be read",
    ),
    (
        "CASEname: a, ask: {review: {kind: AdmissionReview}}, expect: {verdict: Deny}",
        "the body has apiVersion",
    ),
];

#[test]
fn invalid_tests_are_refused_with_the_position_of_the_error() {
    let objects = "objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: \
                   default}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: far, namespace: \
                   away}}]\n";
    let mut wrong = Vec::new();
    for (text, expected) in REFUSED {
        let text = match (text.strip_prefix("HEAD"), text.strip_prefix("CASE")) {
            (Some(rest), _) => format!("{HEAD}{rest}"),
            (_, Some(case)) => format!("{HEAD}cases: [{{{case}}}]\n{objects}"),
            _ => (*text).to_owned(),
        };
        let error = run_tests(&[file(&text)], &[]).map(|_| ()).unwrap_err().to_string();
        if !error.contains(expected) || !error.starts_with("t.yaml:") || error.contains('\n') {
            wrong.push(format!("{text}\nexpected {expected}\nfound {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn two_cases_with_the_same_name_are_refused() {
    let case = "{name: a, ask: {delete: cm/a}, expect: {verdict: Deny}}";
    let text = format!("{HEAD}cases:\n- {case}\n- {case}\n");
    let error = run_tests(&[file(&text)], &[]).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("t.yaml:6:10: cases[1].name: another case has this name"), "{error}");
}

#[test]
fn files_without_a_test_are_ignored() {
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    for text in [object, "", "# nothing\n---\n", "replicas: 2\n", "- a\n- b\n", "text"] {
        let report = run_tests(&[file(text)], &[]).unwrap();
        assert!(report.tests.is_empty(), "{text}");
    }
}

/// Names and messages with special characters would break a document without escapes.
#[test]
fn the_junit_report_is_valid_xml_for_any_names_and_messages() {
    let report = report(
        "- {name: \"<a> & \\\"b\\\" \\u0007\", ask: {delete: pvc/data, namespace: db}, expect: \
         {verdict: Allow, message: \"]]> & '<x>'\"}}\n\
         - {name: fine, ask: {delete: pvc/old, namespace: db}, expect: {verdict: Allow}}\n",
    );
    let text = junit::document(&report);
    assert!(text.contains("<testsuites name=\"belay\" tests=\"2\" failures=\"1\" errors=\"0\">"));
    assert!(text.contains("name=\"&lt;a&gt; &amp; &quot;b&quot; \u{fffd}\""), "{text}");
    assert!(
        text.contains("<failure type=\"verdict\" message=\"verdict: expected Allow; found Deny\">")
    );
    assert!(text.contains(
        "message: expected &quot;]]&gt; &amp; &apos;&lt;x&gt;&apos;&quot;; found persist"
    ));
    // All elements are closed in order, and the text between them has no markup.
    let mut open: Vec<&str> = Vec::new();
    for part in text.split('<').skip(2) {
        let (tag, rest) = part.split_once('>').unwrap_or_else(|| panic!("{part}"));
        assert!(!rest.contains('>'), "{part}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split(' ').next().unwrap_or_default();
        match (name.strip_prefix('/'), tag.ends_with('/')) {
            (Some(name), _) => assert_eq!(open.pop(), Some(name), "{text}"),
            (None, false) => open.push(name),
            (None, true) => {}
        }
    }
    assert_eq!(open, [""; 0], "{text}");
}
