//! What needs each other, and what is made a moment before it is needed.

use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::harness::eventually;
use crate::team::{Approver, Of, SOON, Team};
use crate::{policy, world};

#[test]
fn s17_a_user_that_was_made_a_moment_before_is_found() {
    let team = Team::new(&world().plane, "s17");
    let ns = team.ns.clone();
    let target = policy::target("", "configmaps", &ns);
    policy::apply(team.plane, &ns, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (mut denied, mut held) = (0, Vec::new());
    runtime.block_on(async {
        use k8s_openapi::api::core::v1::{ConfigMap, Pod};
        let client = team.plane.client().await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &ns);
        let pods: Api<Pod> = Api::namespaced(client, &ns);
        for number in 0..30 {
            let name = format!("late-{number}");
            let map = json!({"metadata": {"name": name}});
            let map = serde_json::from_value(map).unwrap();
            maps.create(&PostParams::default(), &map).await.unwrap();
            let from = json!([{"configMapRef": {"name": name}}]);
            let pod = serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"terminationGracePeriodSeconds": 0,
                         "containers": [{"name": "main", "image": "x", "envFrom": from}]},
            }));
            pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
            match maps.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) => {
                    assert!(
                        status.message.contains(&format!("is in use by Pod {ns}/{name}")),
                        "{status:?}"
                    );
                    denied += 1;
                }
                Ok(_) => held.push(name),
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(denied + held.len(), 30);
    for name in &held {
        // The hold found what admission had not yet seen.
        team.was_kept(&format!("configmap/{name}"));
    }
    let names = team.plane.api().fields("configmaps", &team.ns, "", ".metadata.name").unwrap();
    assert_eq!(names.iter().filter(|name| name.contains("late-")).count(), 30);
    for name in &held {
        team.deleted(&[&format!("pod/{name}")]);
        team.goes(&format!("configmap/{name}"));
    }
}

/// Custom resources that need the one that they name, through a Relation.
struct Ring {
    plural: String,
    group: String,
}

impl Ring {
    fn of(team: &Team<'_>) -> Self {
        let ns = &team.ns;
        let ring = Self { plural: "links".to_owned(), group: team.group() };
        let Self { plural, group } = &ring;
        let schema =
            "{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
        team.plane
            .apply(&format!(
                "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: \
                {{name: \
                 {plural}.{group}}}\nspec:\n  group: {group}\n  scope: Namespaced\n  names: \
                 {{plural: \
                 {plural}, singular: link, kind: Link}}\n  versions: [{{name: v1, served: true, \
                 storage: \
                 true, schema: {schema}}}]\n---\napiVersion: belay.dev/v1alpha1\nkind: \
                 Relation\nmetadata: \
                 {{name: {ns}}}\nspec:\n  from: {{group: {group}, resource: {plural}}}\n  to: \
                 {{group: \
                 {group}, resource: {plural}}}\n  nameFieldPath: spec.next\n"
            ))
            .unwrap();
        team.may(&format!("[{{apiGroups: ['{group}'], resources: ['*'], verbs: ['*']}}]"));
        ring
    }

    fn name(&self, link: &str) -> String {
        format!("{}.{}/{link}", self.plural, self.group)
    }

    /// Makes links, each of which needs the next, and the last one the first.
    fn close(&self, team: &Team<'_>, links: &[&str]) {
        let next = links.iter().cycle().skip(1);
        for (link, next) in links.iter().zip(next) {
            let manifest = format!(
                "apiVersion: {}/v1\nkind: Link\nmetadata: {{name: {link}}}\nspec: {{next: \
                {next}}}\n",
                self.group
            );
            eventually("a link", SOON, || team.send(&["apply", "-f", "-"], &manifest).success())
                .unwrap();
        }
    }
}

#[test]
fn s25_a_cycle_is_told_and_can_be_broken() {
    let team = Team::new(&world().plane, "s25");
    let ns = &team.ns;
    let ring = Ring::of(&team);
    let (group, plural) = (&ring.group, &ring.plural);
    let target = policy::target(group, plural, ns);
    policy::apply(team.plane, ns, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    ring.close(&team, &["a", "b", "c"]);

    // Each one says who needs it, all the way round.
    for (link, user) in [("a", "c"), ("b", "a"), ("c", "b")] {
        let words = format!(
            "{plural}.{group} \"{link}\" is in use by Link {ns}/{user} (spec.next); policy {ns}. \
            Way out: "
        );
        eventually("a refusal", SOON, || {
            let refused = team.delete(&[&ring.name(link), "--dry-run=server"]).failure()?;
            if refused.contains(&words) { Ok(()) } else { Err(refused.into()) }
        })
        .unwrap();
    }
    // One is let go of by a person, and the others follow one by one.
    let of = Of { resource: plural, group, name: "b", place: ns };
    team.approve(Approver::Carol, of, "Object");
    for link in ["b", "c", "a"] {
        eventually("a DELETE that passes", SOON, || team.delete(&[&ring.name(link)]).success())
            .unwrap();
        team.goes(&ring.name(link));
    }

    // Or the ring is opened where it is closed.
    ring.close(&team, &["d", "e"]);
    team.refused(&[&ring.name("d")]);
    let open = ["patch", &ring.name("e"), "--type=merge", "-p", r#"{"spec":{"next":null}}"#];
    team.kubectl(&open).success().unwrap();
    for link in ["d", "e"] {
        eventually("a DELETE that passes", SOON, || team.delete(&[&ring.name(link)]).success())
            .unwrap();
        team.goes(&ring.name(link));
    }
}

#[test]
fn s25_a_cycle_that_is_held_goes_together() {
    let team = Team::new(&world().plane, "s25-held");
    let ns = &team.ns;
    let ring = Ring::of(&team);
    let target = policy::target(&ring.group, &ring.plural, ns);
    let spec = format!("{target}  protect: {{whileUsed: {{onDelete: Hold}}}}\n");
    policy::apply(team.plane, ns, &spec);
    ring.close(&team, &["a", "b", "c"]);
    let warning = team.deleted(&[&ring.name("a")]);
    assert!(warning.contains("stays Terminating until "), "{warning}");
    team.was_kept(&ring.name("a"));
    team.deleted(&[&ring.name("b")]);
    team.was_kept(&ring.name("b"));
    team.is_held(&ring.name("a"));
    team.deleted(&[&ring.name("c")]);
    for link in ["a", "b", "c"] {
        team.goes(&ring.name(link));
    }
}

/// Deletes two that belong to each other in both orders and at one time, each
/// time after they were made anew.
fn in_any_order(team: &Team<'_>, make: impl Fn(usize) -> [String; 2]) {
    for round in 0..2 {
        let mut pair = make(round);
        if round == 1 {
            pair.reverse();
        }
        for object in &pair {
            eventually("a DELETE that passes", SOON, || {
                team.plane
                    .kubectl(&[
                        "delete",
                        object,
                        "-n",
                        &team.ns,
                        "--wait=false",
                        "--ignore-not-found",
                    ])?
                    .success()
            })
            .unwrap();
        }
        pair.iter().for_each(|object| team.goes(object));
    }
    let pair = make(2);
    std::thread::scope(|scope| {
        for object in &pair {
            let args = ["delete", object, "-n", &team.ns, "--wait=false", "--ignore-not-found"];
            scope.spawn(move || team.plane.kubectl(&args).unwrap().success().unwrap());
        }
    });
    pair.iter().for_each(|object| team.goes(object));
}

#[test]
fn s48_a_service_and_its_endpoint_slice_go_in_any_order() {
    let team = Team::new(&world().plane, "s48-service");
    let ns = &team.ns;
    let targets = format!(
        "  targets:\n  - {{apiGroups: [\"\"], resources: [services], {place}}}\n  - {{apiGroups: \
         [discovery.k8s.io], resources: [endpointslices], {place}}}\n",
        place = format_args!(
            "namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {ns}}}}}"
        )
    );
    let spec = format!("{targets}  protect: {{whileUsed: {{onDelete: Hold}}}}\n");
    policy::apply(team.plane, ns, &spec);
    in_any_order(&team, |round| {
        let name = format!("web-{round}");
        team.apply(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{selector: {{app: \
            x}}, \
             ports: [{{port: 80}}]}}\n"
        ));
        let slice = eventually("its EndpointSlice", SOON, || {
            let label = format!("kubernetes.io/service-name={name}");
            let slices = team.plane.api().fields("endpointslices", ns, &label, ".metadata.name")?;
            Ok(format!("endpointslice.discovery.k8s.io/{}", slices.first().ok_or("none")?))
        });
        [format!("service/{name}"), slice.unwrap()]
    });
}

#[test]
fn s48_a_volume_and_its_claim_go_in_any_order() {
    let team = Team::new(&world().plane, "s48-volume");
    let ns = &team.ns;
    let spec = format!(
        "  targets:\n  - {{apiGroups: [\"\"], resources: [persistentvolumes], names: \
        [\"{ns}-*\"]}}\n  - \
         {{apiGroups: [\"\"], resources: [persistentvolumeclaims], namespaceSelector: \
         {{matchLabels: \
         {{kubernetes.io/metadata.name: {ns}}}}}}}\n  protect: {{whileUsed: {{onDelete: Hold}}}}\n"
    );
    policy::apply(team.plane, ns, &spec);
    in_any_order(&team, |round| {
        let name = format!("{ns}-{round}");
        let manifest = format!(
            "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: \
            {name}}}\nspec:\n  capacity: \
             {{storage: 1Gi}}\n  accessModes: [ReadWriteOnce]\n  storageClassName: \
             ''\n  hostPath: {{path: \
             /nowhere}}\n  claimRef: {{namespace: {ns}, name: {name}}}\n---\napiVersion: v1\nkind: \
             PersistentVolumeClaim\nmetadata: {{name: {name}, namespace: {ns}}}\nspec: \
             {{accessModes: \
             [ReadWriteOnce], storageClassName: '', volumeName: {name}, resources: {{requests: \
             {{storage: \
             1Gi}}}}}}\n"
        );
        team.plane.apply(&manifest).unwrap();
        let bound = ["wait", &format!("pvc/{name}"), "--for=jsonpath={.status.phase}=Bound"];
        team.kubectl(&bound).success().unwrap();
        [format!("pv/{name}"), format!("pvc/{name}")]
    });
}

#[test]
fn s48_an_account_and_its_token_go_in_any_order() {
    let team = Team::new(&world().plane, "s48-account");
    let ns = &team.ns;
    let target = policy::target("", "serviceaccounts, secrets", ns);
    let spec = format!("{target}  protect: {{whileUsed: {{onDelete: Hold}}}}\n");
    policy::apply(team.plane, ns, &spec);
    in_any_order(&team, |round| {
        let name = format!("robot-{round}");
        team.apply(&format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}}}\nsecrets: [{{name: \
             {name}}}]\n---\napiVersion: v1\nkind: Secret\ntype: \
             kubernetes.io/service-account-token\nmetadata:\n  name: {name}\n  annotations: \
             {{kubernetes.io/service-account.name: {name}}}\n"
        ));
        eventually("the token", SOON, || {
            let token = team.field(&format!("secret/{name}"), ".data.token");
            if token.is_empty() { Err("none".into()) } else { Ok(()) }
        })
        .unwrap();
        [format!("serviceaccount/{name}"), format!("secret/{name}")]
    });
}
