//! Relations that a user wrote.

use super::*;

#[test]
fn custom_relations_follow_the_same_rules() {
    let mut kinds = Kinds::default();
    kinds.learn(Kinds::custom("example.com", "v1", "Backup", "backups", true));
    kinds.learn(Kinds::custom("example.com", "v1", "Cluster", "clusters", true));
    let path = |text: &str| Path::parse(text).unwrap();
    let name = |name: &str, namespace: Option<&str>| CustomTarget::Name {
        group: "example.com".into(),
        resource: "clusters".into(),
        name: path(name),
        namespace: namespace.map(path),
    };
    let from = ("example.com", "backups");
    let relations = [
        CustomRelation::new(
            "one",
            from,
            name("spec.cluster.name", None),
            Strength::Needs,
            Some((path("status.phase"), "Done")),
        )
        .unwrap(),
        CustomRelation::new(
            "many",
            from,
            name("spec.refs[*].to.name", Some("spec.refs[*].to.namespace")),
            Strength::Needs,
            None,
        )
        .unwrap(),
        CustomRelation::new("list", from, name("spec.names[*]", None), Strength::Mentions, None)
            .unwrap(),
        CustomRelation::new(
            "typed",
            from,
            CustomTarget::Typed {
                group: path("spec.target.apiVersion"),
                kind: path("spec.target.kind"),
                name: path("spec.target.name"),
                namespace: None,
            },
            Strength::Produces,
            None,
        )
        .unwrap(),
        CustomRelation::new(
            "selected",
            from,
            CustomTarget::Selector {
                group: "example.com".into(),
                resource: "clusters".into(),
                selector: path("spec.selector"),
            },
            Strength::Needs,
            None,
        )
        .unwrap(),
    ];
    let catalogue = Catalogue::new(&kinds, &relations).unwrap();
    let kind = kinds.find("example.com", "Backup").unwrap();
    let manifest = |phase: &str| {
        json!({
            "metadata": {"name": "b", "namespace": "ns"}, "status": {"phase": phase},
            "spec": {
                "cluster": {"name": "main"}, "names": ["x", "y"],
                "refs": [{"to": {"name": "a", "namespace": "m"}}, {"to": {"name": "b"}}],
                "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [
                    {"operator": "Exists"}, {"key": "age"}, {"key": "size", "operator": "Gt"}]},
            },
        })
    };
    let (_, edges) = catalogue.read(&mut kinds, kind, &manifest("Running").to_string()).unwrap();
    assert_eq!(
        describe(&kinds, &catalogue, &edges),
        [
            "list spec.names[0] mentions clusters ns/x",
            "list spec.names[1] mentions clusters ns/y",
            "many spec.refs[0].to.name needs clusters m/a",
            "many spec.refs[1].to.name needs clusters ns/b",
            "one spec.cluster.name needs clusters ns/main",
            // belay ignores requirements that it can't read, so that no need is lost.
            "selected spec.selector needs clusters ns/[In(\"app\", [\"web\"])]",
            "typed spec.target.name produces deployments ns/web",
        ]
    );
    let (_, edges) = catalogue.read(&mut kinds, kind, &manifest("Done").to_string()).unwrap();
    assert!(
        describe(&kinds, &catalogue, &edges)
            .contains(&"one spec.cluster.name mentions clusters ns/main".to_owned())
    );

    // Paths through different lists are not the same reference.
    let apart = CustomRelation::new(
        "apart",
        from,
        name("spec.refs[*].name", Some("spec.other[*].namespace")),
        Strength::Needs,
        None,
    );
    assert!(apart.unwrap_err().to_string().contains("same element"));
}

#[test]
fn h159_a_relation_can_mention_what_is_not_in_the_namespace_of_the_user() {
    let mut kinds = Kinds::default();
    for (kind, resource, namespaced) in [("Route", "routes", true), ("Class", "classes", false)] {
        kinds.learn(Kinds::custom("example.com", "v1", kind, resource, namespaced));
    }
    let path = |field: &str| Path::parse(&format!("spec.refs[*].{field}")).unwrap();
    let to = CustomTarget::Typed {
        group: path("group"),
        kind: path("kind"),
        name: path("name"),
        namespace: Some(path("namespace")),
    };
    let from = ("example.com", "routes");
    let mut relation = CustomRelation::new("refs", from, to, Strength::Needs, None).unwrap();
    relation.cross_namespace_strength = Some(Strength::Mentions);
    let catalogue = Catalogue::new(&kinds, &[relation]).unwrap();
    let route = kinds.find("example.com", "Route").unwrap();
    let reference = |kind: &str, namespace: Option<&str>| json!({"group": "example.com", "kind": kind, "name": "a", "namespace": namespace});
    let refs = [("Route", None), ("Route", Some("ns")), ("Route", Some("other")), ("Class", None)];
    let refs = refs.map(|(kind, namespace)| reference(kind, namespace));
    let object = json!({"metadata": {"name": "r", "namespace": "ns"}, "spec": {"refs": refs}});
    let (_, edges) = catalogue.read(&mut kinds, route, &object.to_string()).unwrap();
    assert_eq!(
        describe(&kinds, &catalogue, &edges),
        [
            "refs spec.refs[0].name needs routes ns/a",
            "refs spec.refs[1].name needs routes ns/a",
            "refs spec.refs[2].name mentions routes other/a",
            "refs spec.refs[3].name mentions classes a",
        ]
    );
    // Routes need Routes only in their own namespace. So an unreadable Route does not affect
    // other namespaces.
    let user_kinds = catalogue.user_kinds();
    assert!(user_kinds.user_kinds(&kinds, route).any(|user| user == (route, false)));
}
