//! Objects that use each other, and objects that are created a moment before they are used.

use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, bound_claim, object, relation, secret};
use crate::harness::rbac::rule;
use crate::team::{Approver, Of, SOON, Team};
use crate::{policy, world};

#[test]
fn s17_a_user_that_was_created_a_moment_before_is_found() {
    let team = Team::new(&world().plane, "s17");
    let ns = team.ns.clone();
    policy::protect(team.plane, &ns, "configmaps", json!({"whileUsed": {}}));
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
        // The hold found a user that admission had not yet seen.
        team.was_kept(&format!("configmap/{name}"));
    }
    let names = team.plane.api().fields("configmaps", &team.ns, "", ".metadata.name").unwrap();
    assert_eq!(names.iter().filter(|name| name.contains("late-")).count(), 30);
    for name in &held {
        team.deleted(&[&format!("pod/{name}")]);
        team.wait_until_deleted(&format!("configmap/{name}"));
    }
}

/// Custom resources that use each other, in a cycle, through a Relation.
struct Ring {
    plural: String,
    group: String,
}

impl Ring {
    fn of(team: &Team<'_>) -> Self {
        let ns = &team.ns;
        let ring = Self { plural: "links".to_owned(), group: team.group() };
        let Self { plural, group } = &ring;
        team.plane.define_kind(group, "Link", plural).unwrap();
        let links = json!({"group": group, "resource": plural});
        let spec = json!({"from": links, "to": links, "nameFieldPath": "spec.next"});
        team.plane.apply(&relation(ns, spec)).unwrap();
        team.may(&[rule(group, "*", "*")]);
        ring
    }

    fn name(&self, link: &str) -> String {
        format!("{}.{}/{link}", self.plural, self.group)
    }

    /// Creates links, each of which uses the next, and the last one the first.
    fn close(&self, team: &Team<'_>, links: &[&str]) {
        let next = links.iter().cycle().skip(1);
        for (link, next) in links.iter().zip(next) {
            let link = object(&format!("{}/v1", self.group), "Link", link);
            let link = link.with(json!({"spec": {"next": next}}));
            eventually("a link", SOON, || team.send(&["apply", "-f", "-"], &link).success())
                .unwrap();
        }
    }
}

#[test]
fn s25_a_cycle_is_reported_and_can_be_broken() {
    let team = Team::new(&world().plane, "s25");
    let ns = &team.ns;
    let ring = Ring::of(&team);
    let (group, plural) = (&ring.group, &ring.plural);
    let target = policy::target(group, plural, ns);
    policy::apply(team.plane, ns, json!({"targets": [target], "protect": {"whileUsed": {}}}));
    ring.close(&team, &["a", "b", "c"]);

    // Each refusal names the next user of the cycle.
    for (link, user) in [("a", "c"), ("b", "a"), ("c", "b")] {
        let words = format!(
            "link.{group} \"{link}\" is in use by Link {ns}/{user} (spec.next); policy {ns}. \
             To delete it, first remove the reference from Link {ns}/{user}. "
        );
        eventually("a refusal", SOON, || {
            let refused = team.delete(&[&ring.name(link), "--dry-run=server"]).failure()?;
            if refused.contains(&words) { Ok(()) } else { Err(refused.into()) }
        })
        .unwrap();
    }
    // A user releases one of them, and the others follow one by one.
    let of = Of { resource: plural, group, name: "b", place: ns };
    team.approve(Approver::Carol, of, "Object");
    for link in ["b", "c", "a"] {
        eventually("a DELETE that passes", SOON, || team.delete(&[&ring.name(link)]).success())
            .unwrap();
        team.wait_until_deleted(&ring.name(link));
    }

    // Or the ring is opened where it is closed.
    ring.close(&team, &["d", "e"]);
    team.refused(&[&ring.name("d")]);
    let open = ["patch", &ring.name("e"), "--type=merge", "-p", r#"{"spec":{"next":null}}"#];
    team.kubectl(&open).success().unwrap();
    for link in ["d", "e"] {
        eventually("a DELETE that passes", SOON, || team.delete(&[&ring.name(link)]).success())
            .unwrap();
        team.wait_until_deleted(&ring.name(link));
    }
}

#[test]
fn s25_a_held_cycle_is_deleted_together() {
    let team = Team::new(&world().plane, "s25-held");
    let ns = &team.ns;
    let ring = Ring::of(&team);
    let target = policy::target(&ring.group, &ring.plural, ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {"onDelete": "Hold"}}});
    policy::apply(team.plane, ns, spec);
    ring.close(&team, &["a", "b", "c"]);
    let warning = team.deleted(&[&ring.name("a")]);
    assert!(warning.contains("stays Terminating until "), "{warning}");
    team.was_kept(&ring.name("a"));
    team.deleted(&[&ring.name("b")]);
    team.was_kept(&ring.name("b"));
    team.is_held(&ring.name("a"));
    team.deleted(&[&ring.name("c")]);
    for link in ["a", "b", "c"] {
        team.wait_until_deleted(&ring.name(link));
    }
}

/// Deletes two objects that belong together in both orders and concurrently, each time
/// after they were re-created.
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
        pair.iter().for_each(|object| team.wait_until_deleted(object));
    }
    let pair = make(2);
    std::thread::scope(|scope| {
        for object in &pair {
            let args = ["delete", object, "-n", &team.ns, "--wait=false", "--ignore-not-found"];
            scope.spawn(move || team.plane.kubectl(&args).unwrap().success().unwrap());
        }
    });
    pair.iter().for_each(|object| team.wait_until_deleted(object));
}

#[test]
fn s48_a_service_and_its_endpoint_slice_are_deleted_in_any_order() {
    let team = Team::new(&world().plane, "s48-service");
    let ns = &team.ns;
    let services = policy::target("", "services", ns);
    let slices = policy::target("discovery.k8s.io", "endpointslices", ns);
    let used = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(team.plane, ns, json!({"targets": [services, slices], "protect": used}));
    in_any_order(&team, |round| {
        let name = format!("web-{round}");
        let spec = json!({"selector": {"app": "x"}, "ports": [{"port": 80}]});
        team.apply(&object("v1", "Service", &name).with(json!({"spec": spec})));
        let slice = eventually("its EndpointSlice", SOON, || {
            let label = format!("kubernetes.io/service-name={name}");
            let slices = team.plane.api().fields("endpointslices", ns, &label, ".metadata.name")?;
            Ok(format!("endpointslice.discovery.k8s.io/{}", slices.first().ok_or("none")?))
        });
        [format!("service/{name}"), slice.unwrap()]
    });
}

#[test]
fn s48_a_volume_and_its_claim_are_deleted_in_any_order() {
    let team = Team::new(&world().plane, "s48-volume");
    let ns = &team.ns;
    let names = format!("{ns}-*");
    let volumes = json!({"apiGroups": [""], "resources": ["persistentvolumes"], "names": [names]});
    let claims = policy::target("", "persistentvolumeclaims", ns);
    let used = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(team.plane, ns, json!({"targets": [volumes, claims], "protect": used}));
    in_any_order(&team, |round| {
        let name = format!("{ns}-{round}");
        for object in bound_claim(ns, &name, &name) {
            team.plane.apply(&object).unwrap();
        }
        let bound = ["wait", &format!("pvc/{name}"), "--for=jsonpath={.status.phase}=Bound"];
        team.kubectl(&bound).success().unwrap();
        [format!("pv/{name}"), format!("pvc/{name}")]
    });
}

#[test]
fn s48_an_account_and_its_token_are_deleted_in_any_order() {
    let team = Team::new(&world().plane, "s48-account");
    let ns = &team.ns;
    let used = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::protect(team.plane, ns, "serviceaccounts, secrets", used);
    in_any_order(&team, |round| {
        let name = format!("robot-{round}");
        let account = object("v1", "ServiceAccount", &name);
        team.apply(&account.with(json!({"secrets": [{"name": name}]})));
        team.apply(&secret(&name).with(json!({"type": "kubernetes.io/service-account-token",
            "metadata": {"annotations": {"kubernetes.io/service-account.name": name}}})));
        eventually("the token", SOON, || {
            let token = team.field(&format!("secret/{name}"), ".data.token");
            if token.is_empty() { Err("none".into()) } else { Ok(()) }
        })
        .unwrap();
        [format!("serviceaccount/{name}"), format!("secret/{name}")]
    });
}
