//! Tests of reading files: which input is valid, and the error messages.

use serde_json::{Value, json};

use super::documents::{File, parse};
use super::world::World;
use crate::graph::Node;
use crate::objects::Uid;

fn files(texts: &[(&str, &str)]) -> Vec<File> {
    texts.iter().map(|(name, text)| File { name: (*name).into(), text: (*text).into() }).collect()
}

fn world(text: &str) -> World {
    World::read(&files(&[("f", text)]), true).unwrap_or_else(|error| panic!("{error}"))
}

fn broken(text: &str) -> String {
    World::read(&files(&[("f", text)]), true).map(drop).expect_err(text).to_string()
}

fn find<'w>(world: &'w World, kind: (&str, &str), namespace: &str, name: &str) -> Node<'w> {
    let kind = world.graph.kinds.find(kind.0, kind.1).expect(name);
    let id = world.graph.find(kind, namespace, name).expect(name);
    world.graph.get(id).expect(name)
}

/// A policy with this in its spec, from line 5 on.
fn policy(spec: &str) -> String {
    format!(
        "apiVersion: belay.dev/v1alpha1\nkind: DeletionPolicy\nmetadata: {{name: p}}\nspec:\n{spec}"
    )
}

const TARGETS: &str = "  targets: [{apiGroups: [''], resources: [secrets]}]\n";

#[test]
fn errors_are_reported_with_their_place() {
    let good = format!("{TARGETS}  protect: {{always: {{}}}}\n");
    let with = |more: &str| policy(&format!("{good}{more}"));
    let own = |kind: &str, spec: &str| {
        format!(
            "apiVersion: belay.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n"
        )
    };
    let definition = |spec: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: a}}\nspec: {spec}\n"
        )
    };
    let cases: Vec<(String, &str)> = vec![
        // Not YAML.
        ("a: [1,\nb: 2\n".into(), "f:1:4: brackets and braces do not fit together, or a comma is missing between two entries"),
        ("a: 'x\n".into(), "f:2:1: a quote is opened above and not closed, or its text is not \
                            indented here"),
        ("a: 'x".into(), "f:1:4: a quote is opened and not closed"),
        ("a: ['x\n\n".into(), "f:1:5: a quote is opened and not closed"),
        ("a: b: c\n".into(), "f:1:5: this is not YAML; look at the indentation, colons and quotes of this line and of the one before it"),
        ("a:\n\tb: 1\n".into(), "f:2:2: YAML needs spaces here, and this is a tab"),
        ("a: *b\n".into(), "f:1:4: an alias names an anchor that is not defined before it"),
        ("a: &a [*a]\n".into(), "f:1:8: an alias contains itself"),
        ("a: 1\nb: 2\na: 3\n".into(), "f:3:1: this key is already in line 1; keep one of the two"),
        ("? [a]\n: 1\n".into(), "f:1:3: a key is a list or a map; it must be text"),
        ("a: .inf\n".into(), "f:1:4: JSON, and so Kubernetes, does not have this number"),
        ("a: !secret b\n".into(), "f:1:12: manifests do not have YAML tags like this; remove it"),
        ("a:\n  <<: 1\n".into(), "f:2:7: the value of << must be a map"),
        // Not a Kubernetes object. Line numbers include earlier documents, CRLF and comments.
        ("# c\r\n---\r\n---\r\na: 1\r\n".into(), "f:4:1: this object has no apiVersion; give it one, such as v1 or apps/v1"),
        ("apiVersion: v1\n".into(), "f:1:1: this object has no kind; give it one, such as ConfigMap"),
        ("- a\n".into(), "f:1:1: this is not a Kubernetes object: expected a map with apiVersion \
                          and kind"),
        ("kind: List\napiVersion: v1\nitems:\n- 3\n".into(), "f:4:3: this is not a Kubernetes \
                                                              object: expected a map with \
                                                              apiVersion and kind"),
        ("apiVersion: v1\nkind: Pod\nmetadata:\n  generateName: a-\n".into(), "f:4:3: this Pod has no metadata.name; give it one"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: on}\n".into(), "f:3:18: metadata.name: expected text; put it in quotes"),
        ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels:\n    b: hunter2\n    a: 12345\n".into(), "f:7:8: metadata.labels.a: expected text, found a number (in quotes it is text)"),
        ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  ownerReferences:\n  - {apiVersion: v1, kind: Pod, name: b}\n".into(), "f:6:5: metadata.ownerReferences[0]: the field uid is missing"),
        // Invalid policies.
        (with("  setleSeconds: 3\n"), "f:7:3: spec: there is no field setleSeconds, only targets, exclude, subjects, exemptSubjects, protect, hold, action, actionOverrides, approval, settleSeconds"),
        (with("  settleSeconds: '3'\n"), "f:7:18: spec.settleSeconds: expected a whole number, found text"),
        (with("  settleSeconds: 3.5\n"), "f:7:18: spec.settleSeconds: expected a whole number, found a number (in quotes it is text)"),
        (with("  settleSeconds: 601\n"), "f:7:18: spec.settleSeconds: settleSeconds is between 0 and 600; with 45, belay sees every object whose creation began before the DELETE"),
        (with("  action: Refuse\n"), "f:7:11: spec.action: expected one of Audit, Warn, Deny"),
        (with("  exclude: [[a]]\n"), "f:7:13: spec.exclude[0]: expected a map, found a list"),
        (with("  exclude: [{apiGroups: ['']}]\n"), "f:7:13: spec.exclude[0]: the field resources is missing"),
        (with("  \"a\\e[31m\": 1\n"), "f:7:3: spec: there is no field a\\u{1b}[31m, only targets, exclude, subjects, exemptSubjects, protect, hold, action, actionOverrides, approval, settleSeconds"),
        (with("status: {a: 1}\nspecs: {}\n"), "f:8:1: there is no field specs, only apiVersion, kind, metadata, spec, status"),
        (policy(&format!("{TARGETS}  protect:\n    always:\n")), "f:7:11: spec.protect.always: it \
                                                                  has no value; give it one ({} \
                                                                  if it is empty), or remove the \
                                                                  field"),
        (policy(&format!("{TARGETS}  protect: {{always: {{ever: 1}}}}\n")), "f:6:22: spec.protect.always: there is no field ever, nor any other"),
        (policy(&format!("{TARGETS}  protect: {{}}\n")), "f:6:12: spec.protect: protect enables \
                                                          no mode: set at least one of always, \
                                                          whileUsed, whileNotEmpty, whileExists, \
                                                          fromOrphaning, fromStripping"),
        (policy("  targets: []\n  protect: {always: {}}\n"), "f:5:12: spec.targets: targets is empty: a policy protects nothing until it names at least one kind of object"),
        (policy("  protect: {always: {}}\n"), "f:5:3: spec: the field targets is missing"),
        (policy("  targets: [{apiGroups: [''], resources: [pods/log]}]\n  protect: {always: {}}\n"), "f:5:42: spec.targets[0].resources: resources must name at least one plural resource, such as persistentvolumeclaims, and no subresource"),
        ("apiVersion: belay.dev/v1alpha1\nkind: DeletionPolicy\nmetadata: {name: p, team: x}\nspec: {}\n".into(), "f:3:21: metadata: there is no field team, only annotations, creationTimestamp, deletionGracePeriodSeconds, deletionTimestamp, finalizers, generateName, generation, labels, managedFields, name, namespace, ownerReferences, resourceVersion, selfLink, uid"),
        ("apiVersion: belay.dev/v1alpha1\nkind: DeletionPolicy\nmetadata: {name: p}\n".into(), "f:1:1: this DeletionPolicy has no spec"),
        ("apiVersion: belay.dev/v1\nkind: DeletionPolicy\n".into(), "f:1:13: apiVersion: of the group belay.dev there is only the version v1alpha1"),
        ("apiVersion: belay.dev/v1alpha1\nkind: Policy\n".into(), "f:2:7: kind: the group belay.dev has the kinds DeletionPolicy, Relation, DeletionApproval and Pause"),
        // Invalid objects of belay's other kinds.
        (own("Relation", "{from: {resource: a}, to: {resource: b}, nameFieldPath: 'a[', strength: Needs}"), "f:4:63: spec.nameFieldPath: expected * or ?field=value or \"name\" at character 3 of this path"),
        (own("Relation", "{from: {resource: a}, to: {resource: b}, nameFieldPath: a, namespaceFieldPath: 'c[*].d'}"), "f:4:86: spec.namespaceFieldPath: c[*].d leads through another list than the name does: both must be in the same element"),
        (own("Relation", "{from: {resource: a}, to: {resource: b}, nameFieldPath: a, until: {fieldPath: 'b['}}"), "f:4:85: spec.until.fieldPath: expected * or ?field=value or \"name\" at character 3 of this path"),
        (own("Relation", "{from: {resource: a}, nameFieldPath: a}"), "f:4:7: spec: set either to (the needed kind) or toRef (the field with the kind)"),
        (own("DeletionApproval", "{targetRef: {resource: a, name: b, uid: c}, approver: x, reason: y, expirationTime: 2026-01-01T00:00:00Z}"), "f:3:11: metadata.creationTimestamp: an approval needs metadata.creationTimestamp here, because no API server sets it"),
        (own("Pause", "{by: x, reason: ' ', expirationTime: 2026-01-01T00:00:00Z}"), "f:4:23: spec.reason: reason is blank: state why, for those who read the record later"),
        (own("Pause", "{by: x, reason: y, expirationTime: hunter2}"), "f:4:42: spec.expirationTime: this does not have the form of its field; a time is 2026-01-31T12:00:00Z"),
        // Invalid CRDs.
        (definition("{group: e.x, scope: Cluster, names: {kind: A}, versions: [{name: v1, served: \
                     true}]}"), "f:4:43: spec.names.plural: expected text"),
        (definition("{group: e.x, scope: Global, names: {kind: A, plural: as}}"), "f:4:27: spec.scope: expected Namespaced or Cluster"),
        (definition("{group: e.x, scope: Cluster, names: {kind: A, plural: as}, versions: [{name: v1}]}"), "f:4:76: spec.versions: no version is served; serve one"),
    ];
    let mut wrong = Vec::new();
    for (text, expected) in &cases {
        let found = broken(text);
        assert!(!found.contains("hunter2") && !found.contains("12345"), "{found}");
        if found != *expected {
            wrong.push(format!("{text}\nexpected {expected}\nfound    {found}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn two_policies_with_the_same_name_are_reported_with_both_positions() {
    let text = policy(&format!("{TARGETS}  protect: {{always: {{}}}}\n"));
    let error =
        World::read(&files(&[("a/one", &text), ("b/two", &text)]), true).map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "b/two:3:18: a DeletionPolicy of this name is already at a/one:1:1; rename or remove one \
         of the two"
    );
}

#[test]
fn expanded_aliases_and_nesting_are_limited() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..5 {
        let all = vec![format!("*a{}", n - 1); 10].join(", ");
        text.push_str(&format!("a{n}: &a{n} [{all}]\n"));
    }
    assert!(
        broken(&text)
            .ends_with("the aliases of this file expand to too much; write the content out")
    );
    let flow = format!("a: {}{}", "[".repeat(150), "]".repeat(150));
    let block: String = (0..150).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    for deep in [flow, block] {
        assert!(broken(&deep).ends_with("lists and maps are nested too deeply"));
    }
}

#[test]
fn documents_lists_and_dumps_are_read_object_by_object() {
    let text = "# nothing\n---\n---\nkind: List\napiVersion: v1\nitems:\n\
        - {apiVersion: v1, kind: Secret, metadata: {name: a}}\n\
        - kind: List\n  apiVersion: v1\n  items:\n  - {apiVersion: v1, kind: Secret, metadata: {name: b}}\n\
        ---\n{\"kind\": \"PodList\", \"apiVersion\": \"v1\", \"items\": [{\"metadata\":\t{\"name\": \"c\"}}]}\n\
        ---\napiVersion: v1\nkind: ConfigMapList\nitems: []\n...\n\
        ---\napiVersion: e.x/v1\nkind: PriceList\nmetadata: {name: d}\nitems: []\n";
    let documents = parse(&files(&[("f", text)])[0]).unwrap();
    let found: Vec<_> = documents
        .iter()
        .map(|d| (d.kind.as_str(), d.name().unwrap(), d.node.position.line))
        .collect();
    assert_eq!(
        found,
        [("Secret", "a", 7), ("Secret", "b", 11), ("Pod", "c", 13), ("PriceList", "d", 20)]
    );
    assert_eq!(documents[2].version, "v1");
    let world = world(text);
    assert_eq!(world.graph.object_count(), 5, "and the Namespace default");
    find(&world, ("", "Pod"), "default", "c");
}

#[test]
fn plain_values_aliases_and_merged_keys_are_resolved() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {<<: {b: 1, n: 2}, b: \"\\ud83d\\ude00\", y: n}\n\
        more: &m\n  one: [yes, 0755, 1e2, ~]\nagain: *m\nbig: |\n  first\n  second\n";
    let documents = parse(&files(&[("f", text)])[0]).unwrap();
    let value = Value::from(documents.into_iter().next().unwrap().node.content);
    let more = json!({"one": [true, 493, 100, null]});
    assert_eq!(
        value,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "y"},
            "data": {"b": "\u{1f600}", "y": "n", "n": 2}, "more": more, "again": more, "big": "first\nsecond\n"})
    );
}

#[test]
fn crds_define_kinds_and_other_objects_show_their_own() {
    let world = world(
        "{apiVersion: e.x/v1, kind: Widget, metadata: {name: w, namespace: shop}}\n---\n\
        {apiVersion: e.x/v1, kind: Planet, metadata: {name: earth, namespace: ignored}}\n---\n\
        {apiVersion: u.x/v1, kind: Galaxy, metadata: {name: g}}\n---\n\
        {apiVersion: u.x/v2, kind: Galaxy, metadata: {name: h, namespace: void}}\n---\n\
        apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.e.x}\n\
        spec: {group: e.x, scope: Namespaced, names: {kind: Widget, plural: widgetz}, versions: [{name: v1, served: true}, {name: v0, served: false}]}\n---\n\
        apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: planets.e.x}\n\
        spec: {group: e.x, scope: Cluster, names: {kind: Planet, plural: planets}, versions: [{name: v1, served: true}]}\n---\n\
        apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: jobs.batch}\n\
        spec: {group: batch, scope: Cluster, names: {kind: Job, plural: jobs}, versions: [{name: v1, served: true}]}\n",
    );
    let kinds = &world.graph.kinds;
    let widget = kinds.info(kinds.find_resource("e.x", "widgetz").unwrap());
    assert_eq!((widget.versions.as_slice(), widget.namespaced), (&["v1".to_owned()][..], true));
    let galaxy = kinds.info(kinds.find_resource("u.x", "galaxies").unwrap());
    assert_eq!((galaxy.versions.len(), galaxy.namespaced), (2, true));
    assert_eq!(world.notes.guessed, ["galaxies.u.x"]);
    let job = kinds.info(kinds.find_resource("batch", "jobs").unwrap());
    assert!(job.namespaced, "files do not change built-in kinds");
    find(&world, ("e.x", "Planet"), "", "earth");
    find(&world, ("u.x", "Galaxy"), "default", "g");
    let definition =
        find(&world, ("apiextensions.k8s.io", "CustomResourceDefinition"), "", "widgets.e.x");
    assert_eq!(definition.phase(), crate::graph::ObjectPhase::Active, "a manifest is established");
    for (id, _) in kinds.iter().filter(|(id, _)| kinds.is_served(*id)) {
        assert!(world.graph.is_complete(id), "the files contain all objects");
    }
}

#[test]
fn objects_have_the_fields_that_an_api_server_sets() {
    let text = "{apiVersion: v1, kind: Secret, metadata: {name: a, creationTimestamp: null}}\n---\n\
        {apiVersion: v1, kind: Secret, metadata: {name: a, namespace: b, uid: one, labels: {version: old}}}\n---\n\
        {apiVersion: v1, kind: Namespace, metadata: {name: c, labels: {team: x}}}\n---\n\
        {apiVersion: v1, kind: Secret, metadata: {name: d, namespace: c, ownerReferences: [{apiVersion: v1, kind: Secret, name: a, uid: one}]}}\n---\n\
        {apiVersion: v1, kind: Secret, metadata: {name: a, namespace: b, uid: two, labels: {version: new}, annotations: {team: y, note: z}}}\n---\n"
        .to_owned()
        + &policy("  targets: [{apiGroups: [''], resources: [secrets, widgets], matchAnnotations: {team: y}}]\n  protect: {always: {}}\n");
    let (one, again) = (world(&text), world(&text));
    let a = find(&one, ("", "Secret"), "default", "a");
    assert!(!a.uid().is_none());
    assert_eq!(a.uid(), find(&again, ("", "Secret"), "default", "a").uid());
    let b = find(&one, ("", "Secret"), "b", "a");
    assert_eq!(b.uid(), Uid::new("two"), "the last document wins");
    assert_eq!(b.labels().iter().collect::<Vec<_>>(), [("version", "new")]);
    assert_eq!(b.annotations().iter().collect::<Vec<_>>(), [("team", "y")]);
    for name in ["b", "c", "default"] {
        let namespace = find(&one, ("", "Namespace"), "", name);
        assert_eq!(namespace.labels().get("kubernetes.io/metadata.name"), Some(name));
        assert!(!namespace.uid().is_none());
    }
    assert_eq!(find(&one, ("", "Namespace"), "", "c").labels().get("team"), Some("x"));
    assert!(
        one.graph.deleted_object(Uid::new("one")).is_none(),
        "a document that another one replaces adds no object"
    );
    assert_eq!(one.graph.object_count(), 6);
    assert_eq!(one.notes.unknown, ["policy p: widgets"]);
}

#[test]
fn all_belay_objects_in_files_are_loaded() {
    let world = world(
        &(policy(&format!(
            "{TARGETS}  protect: {{always: {{}}}}\nstatus: {{from: {{another: version}}}}\n"
        )) + "---\napiVersion: belay.dev/v1alpha1\nkind: Relation\nmetadata: {name: r}\n\
            spec: {from: {group: e.x, resource: widgets}, to: {resource: secrets}, nameFieldPath: spec.secret}\n\
            ---\napiVersion: belay.dev/v1alpha1\nkind: Relation\nmetadata: {name: s}\n\
            spec: {from: {group: e.x, resource: wodgets}, toRef: {groupFieldPath: spec.ref.group, kindFieldPath: spec.ref.kind}, nameFieldPath: spec.ref.name, until: {fieldPath: status.done}}\n\
            ---\napiVersion: belay.dev/v1alpha1\nkind: Relation\nmetadata: {name: t}\n\
            spec: {from: {group: e.x, resource: widgets}, to: {resource: pods}, selectorFieldPath: spec.selector, strength: Mentions}\n\
            ---\napiVersion: belay.dev/v1alpha1\nkind: DeletionApproval\nmetadata: {name: a, creationTimestamp: 2026-01-01T00:00:00Z}\n\
            spec: {targetRef: {resource: secrets, namespace: b, name: c, uid: u}, approver: x, reason: y, expirationTime: 2026-01-01T01:00:00Z}\n\
            ---\napiVersion: belay.dev/v1alpha1\nkind: Pause\nmetadata: {name: p}\nspec: {by: x, reason: y, expirationTime: 2026-01-01T00:00:00Z}\n\
            ---\n{apiVersion: e.x/v1, kind: Widget, metadata: {name: w, namespace: b}, spec: {secret: c, selector: {}}}\n\
            ---\n{apiVersion: v1, kind: Secret, metadata: {name: c, namespace: b}}\n"),
    );
    let World { policies, notes, .. } = &world;
    assert_eq!((notes.policies, notes.relations, notes.approvals, notes.pauses), (1, 3, 1, 1));
    assert_eq!(policies.iter().count(), 3, "two of the label, and p");
    assert_eq!(policies.approvals.of_uid(Uid::new("u"))[0].created, 1_767_225_600);
    assert_eq!(policies.pauses[0].expires, 1_767_225_600);
    assert_eq!(notes.unknown, ["relation s: wodgets.e.x"]);
    let users: Vec<_> = world
        .graph
        .users(find(&world, ("", "Secret"), "b", "c").id())
        .map(|user| user.node.name().to_owned())
        .collect();
    assert_eq!(users, ["w"], "the relation makes an edge");
}
