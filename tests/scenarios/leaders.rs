//! A leader that dies in the middle of letting go, and two that believe they
//! lead: no hold goes while somebody needs its object, and what is free goes
//! all the same.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{ControlPlane, Install, Options, eventually};
use crate::team::{SOON, Team, owned_by, pod};
use crate::{policy, program};

/// As many lose their user in a round, and as many keep it: deleting so many
/// users one by one takes longer than letting go of what the first one used.
const EACH: usize = 24;

/// The ConfigMaps that are there, with their uids.
fn maps(team: &Team<'_>) -> BTreeSet<String> {
    let path = "jsonpath={range .items[*]}{.metadata.name}/{.metadata.uid} {end}";
    let all = team.kubectl(&["get", "configmaps", "-l", "round", "-o", path]).success().unwrap();
    all.split_whitespace().map(str::to_owned).collect()
}

/// Makes ConfigMaps, each with a Pod that reads it, and deletes them: all wait.
fn waiting(team: &Team<'_>, round: &str) -> BTreeSet<String> {
    let mut manifest = String::new();
    for part in ["goes", "stays"] {
        for number in 0..EACH {
            let name = format!("{round}-{part}-{number}");
            let label = format!("{{name: {name}, labels: {{round: {round}-{part}}}}}");
            manifest += &format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {label}\n---\n");
            let pod = pod(&name, "configMapRef", &name);
            manifest += &pod.replace(&format!("{{name: {name}}}\nspec"), &format!("{label}\nspec"));
            manifest += "---\n";
        }
    }
    team.apply(&manifest);
    let of = |part: &str| format!("round in ({round}-{part})");
    team.deleted(&["configmap", "-l", &of("goes")]);
    team.deleted(&["configmap", "-l", &of("stays")]);
    for part in ["goes", "stays"] {
        eventually("a look at each", SOON, || {
            let looked = tokens(team, &format!("{round}-{part}")).len();
            if looked == EACH { Ok(()) } else { Err(format!("{looked}").into()) }
        })
        .unwrap();
    }
    let stays = format!("{round}-stays-");
    maps(team).into_iter().filter(|map| map.starts_with(&stays)).collect()
}

/// The tokens of the last passes over the ConfigMaps of a round.
fn tokens(team: &Team<'_>, round: &str) -> Vec<String> {
    let path =
        r#"jsonpath={range .items[*]}{.metadata.annotations.belay\.dev/release-token} {end}"#;
    let label = format!("round={round}");
    let all = team.kubectl(&["get", "configmaps", "-l", &label, "-o", path]).success().unwrap();
    all.split_whitespace().map(str::to_owned).collect()
}

/// The part of a token that says whose it is.
fn replica(token: &str) -> &str {
    token.rsplit_once('/').unwrap().0
}

/// The users of one half go.
fn let_go(team: &Team<'_>, round: &str) {
    team.deleted(&["pod", "-l", &format!("round={round}-goes"), "--grace-period=0", "--force"]);
}

/// That half goes, and of the others nobody was lost.
fn ends(team: &Team<'_>, round: &str, kept: &BTreeSet<String>) {
    let goes = format!("{round}-goes-");
    eventually(&format!("what round {round} lets go of"), SOON * 2, || {
        let left: Vec<_> = maps(team).into_iter().filter(|map| map.starts_with(&goes)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}").into()) }
    })
    .unwrap();
    let lost: Vec<_> = kept.difference(&maps(team)).cloned().collect();
    assert!(lost.is_empty(), "in use and gone: {lost:?}");
}

#[test]
fn s34_no_hold_goes_while_a_user_lives_whoever_leads() {
    let plane = ControlPlane::start_with(&Options::default()).unwrap();
    let install = Install {
        replicas: 2,
        manifests: vec!["--watch-everything".to_owned()],
        ..Install::default()
    };
    let mut belay = install.on(&plane, program()).unwrap();
    let team = Team::new(&plane, "s34");
    let target = policy::target("", "configmaps", &team.ns);
    let spec = format!("{target}  protect: {{whileUsed: {{onDelete: Hold}}}}\n");
    policy::apply(&plane, &team.ns, &spec);
    let mut kept = BTreeSet::new();

    // Killed at different moments of the passes: with some tokens written, some
    // lists read, some holds taken off.
    for (round, moment) in [("a", 0), ("b", 25), ("c", 120)] {
        kept.extend(waiting(&team, round));
        let leader = belay.leader().unwrap();
        let_go(&team, round);
        // The moment itself is what is tried here.
        std::thread::sleep(Duration::from_millis(moment));
        belay.replicas[leader].process.kill();
        ends(&team, round, &kept);
        belay.replicas[leader].process.restart().unwrap();
        belay.replicas[leader].wait_until_ready().unwrap();
    }

    // Stopped as leader in the middle of letting go, and waked when another one
    // leads. Meanwhile what it knows has become untrue: everything has a user
    // again, who counts because its owner is older.
    team.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: elder}\n");
    let elder = owned_by("ConfigMap", "elder", &team.field("configmap/elder", ".metadata.uid"));
    kept.extend(waiting(&team, "d"));
    let first = belay.leader().unwrap();
    let before = tokens(&team, "d-goes");
    let left = || maps(&team).into_iter().filter(|map| map.starts_with("d-goes-")).count();
    std::thread::scope(|scope| {
        let going = scope.spawn(|| let_go(&team, "d"));
        eventually("the first one to go", SOON, || {
            if left() < EACH { Ok(()) } else { Err("none".into()) }
        })
        .unwrap();
        belay.replicas[first].process.signal(Signal::STOP).unwrap();
        going.join().unwrap();
    });
    let users = (0..EACH).map(|number| {
        let name = format!("d-goes-{number}");
        let named = format!("{{name: {name}-again, {elder}}}");
        pod(&name, "configMapRef", &name).replacen(&format!("{{name: {name}}}"), &named, 1)
    });
    team.apply(&users.collect::<Vec<_>>().join("---\n"));
    let leads = || {
        let text = belay.replicas[1 - first].metrics()?;
        let leads = text.lines().any(|line| line == "belay_leader 1");
        if leads { Ok(()) } else { Err("it does not lead".into()) }
    };
    eventually("another leader", SOON, leads).unwrap();
    let is_new = |token: &String| !before.iter().any(|old| replica(old) == replica(token));
    eventually("looks of the new leader", SOON, || {
        let tokens = tokens(&team, "d-goes");
        if tokens.iter().all(is_new) { Ok(()) } else { Err(format!("{tokens:?}").into()) }
    })
    .unwrap();
    assert!(left() > 0, "all were gone before the leader was stopped");
    kept.extend(maps(&team).into_iter().filter(|map| map.starts_with("d-goes-")));
    belay.replicas[first].process.signal(Signal::CONT).unwrap();
    kept.extend(waiting(&team, "e"));
    let_go(&team, "e");
    ends(&team, "e", &kept);

    // And nothing is stuck that has lost its last user.
    team.deleted(&["pod", "--all", "--grace-period=0", "--force"]);
    eventually("the end of all", SOON * 2, || {
        let left = maps(&team);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}").into()) }
    })
    .unwrap();
}
