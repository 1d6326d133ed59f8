//! Rounds of releases, for tests that cause a fault during one: of the waiting ConfigMaps,
//! half lose their users and are deleted, half stay.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::{Value, json};

use crate::harness::kubectl::Output;
use crate::harness::manifest::{Manifest as _, config_map, reader};
use crate::harness::{ControlPlane, eventually};
use crate::policy;
use crate::team::{SOON, Team};

/// The rounds of one namespace.
pub struct Rounds<'p> {
    pub team: Team<'p>,
    /// How many go in a round, and as many stay.
    each: usize,
    /// The objects that must stay, of all rounds so far, with their uids.
    kept: BTreeSet<String>,
}

impl<'p> Rounds<'p> {
    /// A new namespace, whose ConfigMaps are held while they are used. Many
    /// are needed where a round has to take a while.
    pub fn new(plane: &'p ControlPlane, prefix: &str, each: usize) -> Self {
        let team = Team::new(plane, prefix);
        policy::protect(plane, &team.ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
        // Owned by it a user counts, though it is younger than the delete.
        team.apply(&config_map("elder"));
        Self { team, each, kept: BTreeSet::new() }
    }

    /// The existing ConfigMaps, with their uids.
    fn maps(&self) -> BTreeSet<String> {
        let named = |map: &Value| {
            let text = |field: &str| map["metadata"][field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", text("name"), text("uid"))
        };
        self.list("round").iter().map(named).collect()
    }

    fn list(&self, labels: &str) -> Vec<Value> {
        self.team.plane.api().list("configmaps", &self.team.ns, labels).unwrap()
    }

    /// The existing objects of a round that are to be released.
    fn unreleased(&self, round: &str) -> BTreeSet<String> {
        let goes = format!("{round}-goes-");
        self.maps().into_iter().filter(|map| map.starts_with(&goes)).collect()
    }

    /// The number of these.
    fn count_unreleased(&self, round: &str) -> usize {
        self.unreleased(round).len()
    }

    /// Creates ConfigMaps, each with a Pod that reads it, and deletes them. Waits until
    /// belay has checked each.
    pub fn wait(&mut self, round: &str) {
        let (team, each) = (&self.team, self.each);
        for part in ["goes", "stays"] {
            for number in 0..each {
                let name = format!("{round}-{part}-{number}");
                let labels = json!({"round": format!("{round}-{part}")});
                team.apply(&config_map(&name).with_labels(labels.clone()));
                team.apply(&reader(&name, "configMapRef", &name).with_labels(labels));
            }
        }
        let of = |part: &str| format!("round in ({round}-{part})");
        for rest in ["goes", "stays"] {
            let delete = ["delete", "configmap", "--wait=false", "-l", &of(rest)];
            team.kubectl(&delete).success().unwrap();
        }
        for part in ["goes", "stays"] {
            // A silent watch is considered dead after a minute and a half.
            eventually("a look at each", SOON * 3, || {
                let looked = self.tokens(&format!("{round}-{part}")).len();
                if looked == each { Ok(()) } else { Err(format!("{looked}").into()) }
            })
            .unwrap();
        }
        let stays = format!("{round}-stays-");
        self.kept.extend(self.maps().into_iter().filter(|map| map.starts_with(&stays)));
    }

    /// The tokens of the last passes over the ConfigMaps of a part of a round.
    fn tokens(&self, round: &str) -> Vec<String> {
        let maps = self.list(&format!("round={round}"));
        let token = |map: &Value| {
            map["metadata"]["annotations"]["belay.dev/release-token"].as_str().map(str::to_owned)
        };
        maps.iter().filter_map(token).collect()
    }

    /// The replicas that have checked the objects of a round that are to be released.
    pub fn replicas_that_checked(&self, round: &str) -> BTreeSet<String> {
        let replica = |token: String| token.rsplit_once('/').unwrap().0.to_owned();
        self.tokens(&format!("{round}-goes")).into_iter().map(replica).collect()
    }

    /// The users of one half go.
    pub fn delete_users(&self, round: &str) {
        self.try_to_delete_users(round).success().unwrap();
    }

    /// Deletes the users of one half, as far as the API server answers.
    pub fn try_to_delete_users(&self, round: &str) -> Output {
        let users = format!("round={round}-goes");
        self.team.kubectl(&["delete", "pod", "-l", &users, "--grace-period=0", "--force"])
    }

    /// The users of some of that half go.
    pub fn delete_some_users(&self, round: &str, some: Range<usize>) {
        let users: Vec<String> = some.map(|number| format!("pod/{round}-goes-{number}")).collect();
        let users: Vec<&str> = users.iter().map(String::as_str).collect();
        self.team.deleted(&[&users[..], &["--grace-period=0", "--force"]].concat());
    }

    /// Waits until the first object of that half was deleted.
    pub fn begins(&self, round: &str) {
        eventually("the first one to go", SOON, || {
            if self.count_unreleased(round) < self.each { Ok(()) } else { Err("none".into()) }
        })
        .unwrap();
    }

    /// The remaining objects of that half have users again, and stay from now on.
    pub fn use_again(&mut self, round: &str) {
        let elder = self.team.owner("ConfigMap", "elder");
        for number in 0..self.each {
            let name = format!("{round}-goes-{number}");
            let user = reader(&format!("{name}-again"), "configMapRef", &name);
            self.team.apply(&user.with_owner(elder.clone()));
        }
    }

    /// The remaining objects of a round stay: they have users again, and had them before
    /// they could be released. Returns their number.
    pub fn keep(&mut self, round: &str) -> usize {
        let left = self.unreleased(round);
        let many = left.len();
        self.kept.extend(left);
        many
    }

    /// That half is deleted, and none of the others is lost.
    pub fn ends(&self, round: &str) {
        eventually(&format!("what round {round} releases"), SOON * 2, || {
            let left = self.unreleased(round);
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}").into()) }
        })
        .unwrap();
        self.none_is_lost();
    }

    /// Checks that all objects that must stay exist.
    pub fn none_is_lost(&self) {
        let lost: Vec<_> = self.kept.difference(&self.maps()).cloned().collect();
        assert!(lost.is_empty(), "in use and gone: {lost:?}");
    }

    /// Checks that no object without users is stuck.
    pub fn end_all(&self) {
        let delete = ["delete", "pod", "--all", "--grace-period=0", "--force", "--wait=false"];
        self.team.kubectl(&delete).success().unwrap();
        eventually("the end of all", SOON * 2, || {
            let left = self.maps();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}").into()) }
        })
        .unwrap();
    }
}
