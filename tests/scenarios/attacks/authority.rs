//! Approvals, exemption records and owner references of a hostile user.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::audit::ACCOUNT;
use crate::harness::manifest::{Manifest as _, config_map, reader, secret};
use crate::harness::rbac::rule;
use crate::harness::{direct, eventually};
use crate::people::Person;
use crate::team::{Approver, Of, SOON, Team};
use crate::{policy, world};

/// A namespace whose ConfigMaps with the label `vault` are always protected.
fn vault(prefix: &str, more: Value) -> Team<'static> {
    let team = Team::new(&world().plane, prefix);
    let selected = json!({"objectSelector": {"matchLabels": {"vault": "locked"}}});
    let target = policy::target("", "configmaps", &team.ns).with(selected);
    let spec = json!({"targets": [target], "protect": {"always": {}}});
    policy::apply(team.plane, &team.ns, spec.with(more));
    team
}

/// A ConfigMap that the policy protects.
fn locked(name: &str) -> Value {
    config_map(name).with_labels(json!({"vault": "locked"}))
}

/// jane sets the owner references of a ConfigMap.
fn own(team: &Team<'_>, name: &str, owners: &Value) -> crate::harness::Result<String> {
    let patch = json!({"metadata": {"ownerReferences": owners}}).to_string();
    let object = format!("configmap/{name}");
    let output = team.kubectl(&["patch", &object, "--type=merge", "-p", &patch]);
    if output.stderr.contains("(Forbidden)") {
        return Err(output.stderr.into());
    }
    output.failure()
}

/// A patch of owner references that has to be refused with this reason.
fn is_not_owned(team: &Team<'_>, name: &str, owners: &Value, reason: &str) {
    let said = own(team, name, owners).unwrap();
    assert!(said.contains(&format!("({reason})")), "{said}");
}

/// Waits until belay knows of an approval that covers this ConfigMap.
fn is_approval_counted(team: &Team<'_>, name: &str) {
    let object = format!("configmap/{name}");
    eventually("the approval", SOON, || team.delete(&[&object, "--dry-run=server"]).success())
        .unwrap();
}

#[test]
fn h01_an_approval_of_one_namespace_covers_nothing_in_another() {
    let (prod, dev) = (vault("h01-prod", json!({})), vault("h01-dev", json!({})));
    let dev_ns = Of { resource: "namespaces", group: "", name: &dev.ns, place: "" };
    dev.approve(Approver::Carol, dev_ns, "Content");
    dev.apply(&locked("known"));
    is_approval_counted(&dev, "known");

    // Her own object, with the approved Namespace as its owner from the start.
    let by_namespace = dev.owner("Namespace", &dev.ns);
    prod.apply(&locked("mine").with_owner(by_namespace.clone()));
    let said = prod.refused(&["configmap/mine"]);
    assert!(said.contains("configmap \"mine\" is protected"), "{said}");
    prod.assert_exists("configmap/mine");

    // An object of others gets no cluster-scoped owner, approved or not.
    prod.apply(&locked("precious"));
    is_not_owned(&prod, "precious", &json!([by_namespace]), "Protected");
    prod.refused(&["configmap/precious"]);
    prod.assert_exists("configmap/precious");
}

#[test]
fn h01b_a_protected_object_gets_no_owner_that_is_approved_or_being_deleted() {
    let team = vault("h01b", json!({}));
    team.apply(&config_map("approved"));
    team.apply(&config_map("above"));
    team.apply(&config_map("going").with_finalizers(&["example.com/slow"]));
    team.apply(&config_map("living"));
    team.apply(&locked("precious"));
    team.apply(&config_map("below").with_owner(team.owner("ConfigMap", "above")));
    for name in ["approved", "above"] {
        team.approve(Approver::Carol, team.of("configmaps", name), "Content");
        team.apply(&locked(&format!("known-{name}")).with_owner(team.owner("ConfigMap", name)));
        is_approval_counted(&team, &format!("known-{name}"));
    }
    team.deleted(&["configmap/going"]);

    // An owner that is neither Terminating nor approved is no attack, and is allowed.
    let living = team.owner("ConfigMap", "living");
    assert!(own(&team, "precious", &json!([living])).is_err(), "a living owner was refused");
    for name in ["approved", "below", "going"] {
        let owners = json!([living, team.owner("ConfigMap", name)]);
        is_not_owned(&team, "precious", &owners, "Protected");
        is_not_owned(&team, "precious", &json!([team.owner("ConfigMap", name)]), "Protected");
    }
    // Nor in two steps: her own object between, of a kind that no policy names.
    team.apply(&secret("between"));
    let between = team.owner("Secret", "between");
    assert!(own(&team, "precious", &json!([between])).is_err(), "a living owner was refused");
    let patch =
        json!({"metadata": {"ownerReferences": [team.owner("ConfigMap", "approved")]}}).to_string();
    let patch = ["patch", "secret/between", "--type=merge", "-p", &patch];
    eventually("a question about the owner", SOON, || {
        team.kubectl(&[&patch[..], &["--dry-run=server"]].concat()).failure()
    })
    .unwrap();
    let said = team.kubectl(&patch).failure().unwrap();
    let deletes = "lets Kubernetes delete secret \"between\", and with it configmap \"precious\"";
    assert!(said.contains(deletes), "{said}");
    team.refused(&["configmap/precious"]);
    team.assert_exists("configmap/precious");
}

/// Two patches at the same moment don't see each other: belay's own account attaches,
/// because belay doesn't judge it.
#[test]
fn h01b_an_object_that_is_attached_past_belay_is_no_approved_content() {
    let team = vault("h01b-late", json!({}));
    team.apply(&config_map("approved"));
    team.apply(&config_map("mine"));
    team.apply(&locked("precious"));
    team.approve(Approver::Carol, team.of("configmaps", "approved"), "Content");
    team.apply(&locked("known").with_owner(team.owner("ConfigMap", "approved")));
    is_approval_counted(&team, "known");

    for (object, above) in [("precious", "mine"), ("mine", "approved")] {
        let patch =
            json!({"metadata": {"ownerReferences": [team.owner("ConfigMap", above)]}}).to_string();
        let object = format!("configmap/{object}");
        let patch =
            ["patch", &object, "--type=merge", "-p", &patch, "-n", &team.ns, "--as", ACCOUNT];
        team.plane.kubectl(&patch).unwrap().success().unwrap();
    }
    eventually("a refusal that names the approval", SOON, || {
        let said = team.delete(&["configmap/precious", "--dry-run=server"]).failure()?;
        match said.contains("does not count: it was given before an owner reference changed") {
            true => Ok(()),
            false => Err(said.into()),
        }
    })
    .unwrap();
    team.refused(&["configmap/precious"]);

    // Nor is it deleted with the approved object, until the object is approved in its
    // current state.
    let said = team.refused(&["configmap/approved"]);
    assert!(said.contains("also deletes configmap \"precious\""), "{said}");
    team.assert_exists("configmap/precious");
    team.approve(Approver::Dave, team.of("configmaps", "approved"), "Content");
    is_approval_counted(&team, "precious");
}

#[test]
fn h25_a_delete_by_an_exempt_subject_does_not_cascade_to_objects_that_an_editor_attached() {
    let team = vault("h25", json!({}));
    let bot = format!("bot-{}", team.ns);
    let target = policy::target("", "configmaps", &team.ns).with(json!({"names": ["precious"]}));
    let exempt = json!([{"kind": "User", "name": bot}]);
    let spec = json!({"targets": [target], "protect": {"always": {}}, "exemptSubjects": exempt});
    policy::apply(team.plane, &format!("{}-exempt", team.ns), spec);
    team.apply(&config_map("precious"));
    team.apply(&config_map("pruned"));
    let pruned = team.owner("ConfigMap", "pruned");
    is_not_owned(&team, "precious", &json!([pruned]), "Protected");
    // An operator that is not bound by it creates objects with owners as before.
    team.apply(&config_map("other").with_owner(pruned));
    let user = format!("--user={bot}");
    let edit = ["create", "rolebinding", "bot", "-n", &team.ns, "--clusterrole=edit", &user];
    team.plane.kubectl(&edit).unwrap().success().unwrap();
    let delete = ["delete", "configmap/pruned", "-n", &team.ns, "--wait=false", "--as", &bot];
    team.plane.kubectl(&delete).unwrap().success().unwrap();
    team.wait_until_deleted("configmap/other");
    team.assert_exists("configmap/precious");
}

#[test]
fn h10_the_owner_of_a_protected_object_is_not_replaced_by_another() {
    let team = Team::new(&world().plane, "h10");
    let target = policy::target("", "configmaps", &team.ns).with(json!({"names": ["child"]}));
    let spec = json!({"targets": [target], "protect": {"fromOrphaning": {}}});
    policy::apply(team.plane, &team.ns, spec);
    team.apply(&config_map("real"));
    team.apply(&config_map("mine"));
    let [real, mine] = ["real", "mine"].map(|name| team.owner("ConfigMap", name));
    team.apply(&config_map("child").with_owner(real.clone()));

    is_not_owned(&team, "child", &json!([mine]), "WouldOrphan");
    // In two patches: to add an owner is no loss, to remove the real one is.
    assert!(own(&team, "child", &json!([real, mine])).is_err(), "a second owner was refused");
    is_not_owned(&team, "child", &json!([mine]), "WouldOrphan");
    let said = team.kubectl(&["delete", "configmap/real", "--cascade=orphan"]).failure().unwrap();
    assert!(said.contains("(WouldOrphan)"), "{said}");
    let names = team.field("configmap/child", ".metadata.ownerReferences[*].name");
    assert_eq!(names, "real mine");

    // The collector removes the reference to an owner that was deleted.
    team.deleted(&["configmap/real", "--cascade=foreground"]);
    team.wait_until_deleted("configmap/real");
    eventually("the end of the reference", SOON, || {
        let names = team.field("configmap/child", ".metadata.ownerReferences[*].name");
        if names == "mine" { Ok(()) } else { Err(names.into()) }
    })
    .unwrap();
    team.assert_exists("configmap/child");
}

/// The group that policies exempt here; only the forger is in it.
fn exempt() -> Value {
    json!({"exemptSubjects": [{"kind": "Group", "name": "sre-on-call"}]})
}

/// Posts to each replica that an exempt subject deletes this object, as any Pod that knows
/// the path can. As if it was not deleted before.
fn forge(team: &Team<'_>, resource: &str, name: &str) {
    post_delete(team, resource, name, (&format!("jane-{}", team.ns), "sre-on-call"));
}

/// Posts to each replica that this user, in this group, deletes an object.
fn post_delete(team: &Team<'_>, resource: &str, name: &str, (user, group): (&str, &str)) {
    let stored = team.plane.api().get(&format!("{resource}/{name}"), &team.ns).unwrap();
    let mut object = stored.unwrap();
    object["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    let review = direct::delete_review(("", resource), user, &[group], &object);
    let path = direct::registered_path(team.plane, "validatingwebhookconfiguration").unwrap();
    for address in world().belay.addresses() {
        direct::client(team.plane, address).unwrap().post(&path, &review);
    }
}

/// The exemption records of objects in a namespace, by name.
fn records(team: &Team<'_>) -> Vec<String> {
    let list = team.plane.api().list("deletionapprovals", "", "").unwrap();
    let of = list
        .iter()
        .filter(|item| !item["spec"]["exempts"].is_null())
        .map(|item| &item["spec"]["targetRef"])
        .filter(|of| of["namespace"] == json!(team.ns) || of["name"] == json!(team.ns));
    of.map(|of| of["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn h02_a_forged_delete_opens_no_delete_by_another() {
    let team = vault("h02", exempt());
    let ns = team.ns.clone();
    team.may(&[
        rule("", "namespaces", "get, list, delete"),
        rule("belay.dev", "deletionapprovals", "get, list"),
    ]);
    team.apply(&locked("precious"));
    team.apply(&locked("content"));
    team.apply(&config_map("above"));
    let above = team.owner("ConfigMap", "above");
    team.apply(&locked("below").with_owner(above.clone()));
    for object in ["configmap/precious", "configmap/above", "configmap/below"] {
        team.refused(&[object]);
    }
    eventually("a question about the Namespace", SOON, || {
        team.kubectl(&["delete", "namespace", &ns, "--dry-run=server"]).failure()
    })
    .unwrap();

    forge(&team, "configmaps", "precious");
    forge(&team, "configmaps", "above");
    forge(&team, "namespaces", &ns);
    // Records are approvals, too.
    team.approvals_are_known();
    for object in ["precious", "content", "above", "below"] {
        let said = team.delete(&[&format!("configmap/{object}")]).failure().unwrap();
        assert!(said.contains("is protected"), "{object}: {said}");
        team.assert_exists(&format!("configmap/{object}"));
    }
    let said = team.kubectl(&["delete", "namespace", &ns, "--wait=false"]).failure().unwrap();
    assert!(said.contains("is protected"), "{said}");
    // An owner that a record names does not allow the deletion of objects attached to it
    // either.
    is_not_owned(&team, "precious", &json!([above]), "Protected");
}

#[test]
fn h02_a_forged_delete_releases_no_hold_and_ends_with_a_delete_by_another() {
    let team = Team::new(&world().plane, "h02-held");
    let target = policy::target("", "configmaps", &team.ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {"onDelete": "Hold"}}});
    policy::apply(team.plane, &team.ns, spec.with(exempt()));
    team.apply(&config_map("used"));
    team.apply(&reader("reader", "configMapRef", "used"));
    // No record is written before belay has seen the Pod.
    eventually("belay knows of the Pod", SOON, || {
        let said = team.delete(&["configmap/used", "--dry-run=server"]).stderr;
        if said.contains("stays Terminating until Pod") { Ok(()) } else { Err(said.into()) }
    })
    .unwrap();
    forge(&team, "configmaps", "used");
    let written = records(&team);
    assert_eq!(written, ["used"], "the forged review is as good as one of the API server");
    // A DELETE ends only a record that its replica knows.
    team.approvals_are_known();
    let said = team.deleted(&["configmap/used"]);
    assert!(said.contains("stays Terminating until Pod"), "{said}");
    assert_eq!(records(&team), Vec::<String>::new());
    team.was_kept("configmap/used");
    // H168: nor does a review that pretends that its deletion has not begun.
    forge(&team, "configmaps", "used");
    assert_eq!(records(&team), Vec::<String>::new());
    team.deleted(&["pod/reader"]);
    team.wait_until_deleted("configmap/used");
}

/// A group is exempt, and the policy applies to no other user.
fn exempt_beside_others() -> Value {
    let user = |name: &str| json!({"kind": "User", "name": name});
    exempt().with(json!({"subjects": [
        user("system:serviceaccount:kube-system:generic-garbage-collector"),
        user("system:kube-controller-manager"),
        {"kind": "Group", "name": "sre-on-call"},
    ]}))
}

/// The garbage collector asks about the dependents a few milliseconds after the DELETE of the owner,
/// before the watch has shown that belay has made the record of the forged DELETE a bar.
#[test]
fn h175_a_forged_delete_deletes_no_dependent_of_an_owner_that_another_deletes_at_once() {
    let team = vault("h175", exempt_beside_others());
    for number in 0..6 {
        let [above, below, free] =
            ["above", "below", "free"].map(|name| format!("{name}-{number}"));
        team.apply(&config_map(&above));
        let owner = team.owner("ConfigMap", &above);
        team.apply(&locked(&below).with_owner(owner.clone()));
        team.apply(&config_map(&free).with_owner(owner));
        eventually("a record", SOON, || {
            forge(&team, "configmaps", &above);
            let written = records(&team);
            if written.contains(&above) { Ok(()) } else { Err(format!("{written:?}").into()) }
        })
        .unwrap();
        team.approvals_are_known();
        team.deleted(&[&format!("configmap/{above}")]);
        team.wait_until_deleted(&format!("configmap/{free}"));
        team.assert_exists(&format!("configmap/{below}"));
        assert_eq!(records(&team), Vec::<String>::new());
    }
}

/// The caller repeats the forged DELETE until another user deletes the owner. The DELETEs of this
/// user that the test posts are those between the verdict and the storage.
#[test]
fn h169_a_forged_delete_that_is_repeated_deletes_no_dependent_of_an_owner_that_another_deletes() {
    let team = vault("h169", exempt_beside_others());
    team.apply(&config_map("above"));
    let above = team.owner("ConfigMap", "above");
    team.apply(&locked("below").with_owner(above.clone()));
    team.apply(&config_map("free").with_owner(above));
    eventually("a record", SOON, || {
        forge(&team, "configmaps", "above");
        let written = records(&team);
        if written == ["above"] { Ok(()) } else { Err(format!("{written:?}").into()) }
    })
    .unwrap();
    team.approvals_are_known();

    post_delete(&team, "configmaps", "above", ("jane", "workers"));
    for _ in 0..5 {
        forge(&team, "configmaps", "above");
        assert_eq!(records(&team), Vec::<String>::new());
    }
    let bot = format!("bot-{}", team.ns);
    let account = format!("--user={bot}");
    let edit = ["create", "rolebinding", "bot", "-n", &team.ns, "--clusterrole=edit", &account];
    team.plane.kubectl(&edit).unwrap().success().unwrap();
    let groups = ["--as", &bot, "--as-group", "sre-on-call", "--as-group", "system:authenticated"];
    let delete = ["delete", "configmap/above", "-n", &team.ns, "--wait=false"];
    let said = team.plane.kubectl(&[&delete[..], &groups].concat()).unwrap().failure().unwrap();
    let why = "another subject deletes this object at the same time; try again in two minutes";
    assert!(said.contains(why), "{said}");

    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| team.deleted(&["configmap/above"]));
        while !deleting.is_finished() {
            if team.plane.api().get("configmap/above", &team.ns).unwrap().is_some() {
                forge(&team, "configmaps", "above");
            }
        }
    });
    // The garbage collector has seen the deletion.
    team.wait_until_deleted("configmap/free");
    team.assert_exists("configmap/below");
    assert_eq!(records(&team), Vec::<String>::new());
}

#[test]
fn h170_forged_deletes_by_many_users_leave_one_record_of_an_object() {
    let team = vault("h170", exempt());
    team.apply(&locked("precious"));
    team.refused(&["configmap/precious"]);
    for n in 0..20 {
        let user = format!("user-{n}-{}", team.ns);
        post_delete(&team, "configmaps", "precious", (&user, "sre-on-call"));
    }
    assert_eq!(records(&team), ["precious"]);
    // An approval counts as before.
    team.approve(Approver::Carol, team.of("configmaps", "precious"), "Object");
    eventually("an approval that counts", SOON, || team.delete(&["configmap/precious"]).success())
        .unwrap();
    team.wait_until_deleted("configmap/precious");
}

/// A record allows the later deletes of the garbage collector.
#[test]
fn h02_a_delete_by_an_exempt_subject_cascades_to_dependents() {
    let team = Team::new(&world().plane, "h02-exempt");
    let target = policy::target("", "configmaps", &team.ns);
    let jane = json!([{"kind": "User", "name": format!("jane-{}", team.ns)}]);
    let spec = json!({"targets": [target], "protect": {"always": {}}, "exemptSubjects": jane});
    policy::apply(team.plane, &team.ns, spec);
    for (name, how) in [("back", "background"), ("fore", "foreground")] {
        team.apply(&config_map(name));
        let (child, grandchild) = (format!("{name}-child"), format!("{name}-grandchild"));
        team.apply(&config_map(&child).with_owner(team.owner("ConfigMap", name)));
        team.apply(&config_map(&grandchild).with_owner(team.owner("ConfigMap", &child)));
        let grandchild = format!("configmap/{grandchild}");
        eventually("the rights", SOON, || {
            team.delete(&[&grandchild, "--dry-run=server"]).success()
        })
        .unwrap();
        team.deleted(&[&format!("configmap/{name}"), &format!("--cascade={how}")]);
        team.wait_until_deleted(&grandchild);
        team.wait_until_deleted(&format!("configmap/{name}"));
    }
}

#[test]
fn f03_an_approval_that_lasts_too_long_reports_it() {
    let team = vault("f03", json!({"approval": {"maxDurationSeconds": 600}}));
    let ns = team.ns.clone();
    team.apply(&locked("precious"));
    let of = team.of("configmaps", "precious");
    team.approve_for(Approver::Carol, of, "Object", Duration::from_secs(3600));
    let carol = team.name_of(Approver::Carol);
    let says = format!(
        "approval of configmaps/precious -n {ns} by {carol} does not count: it lasts longer than \
         policy {ns} allows (10m)"
    );
    eventually("a refusal that says so", SOON, || {
        let said = team.delete(&["configmap/precious"]).failure()?;
        if said.contains(&says) { Ok(()) } else { Err(said.into()) }
    })
    .unwrap();

    let erin = Person::worker(team.plane, &ns, "erin", Some(("", "configmaps")));
    let why = erin.belay(&["why", "configmaps/precious", "-n", &ns]);
    assert!(why.stdout.contains(&says), "{why:?}");
    let list = erin.belay(&["approvals", "-n", &ns]).success().unwrap();
    let row = list.lines().find(|line| line.contains("precious")).unwrap().to_owned();
    let reason = format!("no: it lasts longer than policy {ns} allows (10m)");
    assert!(row.contains(&reason), "{list}");

    // The approve command never sends a reason that is too long.
    let approve = ["approve", "configmaps/precious", "-n", &ns, "--reason", "x", "--for", "1h"];
    let said = erin.belay(&approve).success().unwrap();
    assert!(
        said.contains(&format!(
            "instead of 1h, because policy {ns} allows no longer approval; to extend it"
        )),
        "{said}"
    );
    eventually("an approval that counts", SOON, || team.delete(&["configmap/precious"]).success())
        .unwrap();
    team.wait_until_deleted("configmap/precious");
}
