//! The subjects that may approve the deletion of an object, from the RBAC objects that the
//! current user may read.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::rbac::{AccessRight, Grantee, MASTERS, Rbac, RbacReader, intersection};
use crate::cluster::{Caller, UserIdentity};
use crate::command::document::FailedRead;
use crate::command::screen::without_controls;
use crate::decide::{Decision, Verdict};
use crate::objects::{ObjectRef, and_more};
use crate::policy::api::GROUP;

/// The maximum number of approvers in the text, without `--all`.
const MAX_NAMED: usize = 8;

/// The text about the current user, a service account, if the policies are unknown.
const UNLISTED: &str = " (you can't read the policies, so it is unknown whether they accept your \
                        approval)";

/// A required approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededApproval {
    /// The object that the approval names.
    pub object: ObjectRef,
    /// Whether the approval also covers the objects that are deleted as well.
    pub content: bool,
}

/// The approvals that a denied or held request requires, as its message names them.
pub fn needed_approvals(verdict: &Verdict) -> Vec<NeededApproval> {
    if !matches!(verdict.decision, Decision::Deny | Decision::Hold) {
        return Vec::new();
    }
    // An approval does not remove a blocker without a policy.
    let deciding = || verdict.deciding_blockers().filter(|blocker| !blocker.policies.is_empty());
    let content = deciding().any(|blocker| blocker.covered_by_content_approval);
    let mut needs = Vec::new();
    for blocker in deciding() {
        let object = blocker.object_to_approve(&verdict.target);
        let content = content && *object == verdict.target;
        let need = NeededApproval { object: object.clone(), content };
        if !needs.contains(&need) {
            needs.push(need);
        }
    }
    needs
}

/// The right to create an approval.
const CREATE: AccessRight<'_> = AccessRight {
    verb: "create",
    group: GROUP,
    resource: "deletionapprovals",
    name: "",
    namespace: "",
};

impl NeededApproval {
    /// The rights that the API server requires of a user who creates the approval.
    fn rights(&self) -> impl Iterator<Item = AccessRight<'_>> {
        let ObjectRef { resource, group, name, .. } = &self.object;
        let (verb, namespace) = ("approve-deletion", self.object.own_namespace());
        let of_object = AccessRight { verb, group, resource, name, namespace };
        let of_all = AccessRight { verb, group: "*", resource: "*", name: "", namespace };
        [of_object].into_iter().chain(self.content.then_some(of_all))
    }
}

/// Who may give all required approvals.
#[derive(Debug, Default)]
pub struct Approvers {
    /// The subjects that RBAC names.
    pub named: Vec<String>,
    /// The subjects that may approve the deletion, but whose right to create approvals is
    /// unknown. They may be in a group with that right.
    pub unsure: Vec<String>,
    /// Whether the current user may approve; `None` if unknown.
    pub you: Option<bool>,
    /// Whether the current user is a service account, and unread policies decide whether its
    /// approval counts.
    pub is_unlisted: bool,
    /// Whether the current user has approved all of it. A second approval does not count.
    pub has_approved: bool,
    /// The RBAC objects that could not be read.
    pub unread: Vec<FailedRead>,
}

impl Approvers {
    /// Finds who may give these approvals. A service account counts if it is one of
    /// `accounts`, written `namespace/name`. `None`: the policies, which list them, are unknown.
    pub async fn find(
        (caller, me): (&Caller, &UserIdentity),
        needs: &[NeededApproval],
        accounts: Option<&[String]>,
        rbac: &mut RbacReader,
    ) -> Option<Self> {
        if needs.is_empty() {
            return None;
        }
        let rights: Vec<AccessRight<'_>> = needs.iter().flat_map(NeededApproval::rights).collect();
        let namespaces: BTreeSet<&str> = rights.iter().map(|right| right.namespace).collect();
        let ((rbac, unread), you) =
            tokio::join!(rbac.read(&caller.client, &namespaces), has_rights(caller, &rights));
        let counts = match Grantee::user(&me.name) {
            Grantee::Account(name) => accounts.map(|accounts| accounts.contains(&name)),
            Grantee::User(_) | Grantee::Group(_) => Some(true),
        };
        let you = match counts {
            Some(true) => you,
            Some(false) => Some(false),
            None => you.filter(|may| !may),
        };
        let (mut named, unsure) = approvers(rbac, &rights, accounts.unwrap_or_default());
        // RBAC does not name the group, because the API server allows its members everything.
        named.extend(me.groups.iter().any(|group| group == MASTERS).then(masters));
        let is_unlisted = counts.is_none() && you.is_none();
        Some(Self { named, unsure, you, is_unlisted, has_approved: false, unread })
    }

    /// One line of text. `all`: lists are not cut.
    pub fn text(&self, all: bool) -> String {
        let mut parts = Vec::new();
        if !self.named.is_empty() {
            parts.push(names_text(&self.named, all));
        }
        if !self.unsure.is_empty() {
            let unsure = names_text(&self.unsure, all);
            parts.push(format!("{unsure}, if they may create approvals as well"));
        }
        match (parts.last_mut(), self.unread.is_empty()) {
            (None, true) => parts.push(masters()),
            (None, false) => parts.push("unknown".to_owned()),
            (Some(last), false) => last.push_str(", as far as could be read"),
            (Some(_), true) => {}
        }
        let you = match self.you {
            _ if self.has_approved => " (you have approved)",
            Some(true) => " (includes you)",
            Some(false) => " (not you)",
            None if self.is_unlisted => UNLISTED,
            None => "",
        };
        format!("who can approve: {}{you}\n", without_controls(&parts.join("; ")))
    }

    /// The names for JSON; `None` if it is unknown whether there are any.
    pub fn names(&self) -> Option<Vec<String>> {
        match (self.named.is_empty(), self.unread.is_empty()) {
            (true, true) if self.unsure.is_empty() => Some(vec![masters()]),
            (true, false) => None,
            _ => Some(self.named.clone()),
        }
    }
}

fn masters() -> String {
    Grantee::Group(MASTERS.to_owned()).to_string()
}

fn names_text(names: &[String], all: bool) -> String {
    match names.split_at_checked(MAX_NAMED) {
        Some((shown, rest)) if !all && rest.len() > 1 => {
            format!("{}{} (--all)", shown.join(", "), and_more(rest.len(), "subject"))
        }
        _ => names.join(", "),
    }
}

/// The subjects with all of these rights: first the subjects that may also create approvals,
/// then the subjects for which that is unknown.
fn approvers(
    rbac: &Rbac,
    rights: &[AccessRight<'_>],
    accounts: &[String],
) -> (Vec<String>, Vec<String>) {
    let granted = rights.iter().map(|right| rbac.granted(right));
    let approving = granted.reduce(|all, more| intersection(&all, &more)).unwrap_or_default();
    let certain = intersection(&approving, &rbac.granted(&CREATE));
    let named = |set: &BTreeSet<Grantee>| -> Vec<String> {
        let approvers = set.iter().filter(|subject| subject.can_be_approver(accounts));
        approvers.map(Grantee::to_string).collect()
    };
    (named(&certain), named(&(&approving - &certain)))
}

/// Whether the current user has all of these rights and may create approvals.
async fn has_rights(caller: &Caller, rights: &[AccessRight<'_>]) -> Option<bool> {
    let questions = rights.iter().chain([&CREATE]).map(|right| {
        let AccessRight { verb, group, resource, name, namespace } = *right;
        caller.may(verb, (group, resource), (namespace, name))
    });
    let answers = join_all(questions).await;
    if answers.contains(&Some(false)) {
        return Some(false);
    }
    answers.into_iter().collect::<Option<Vec<bool>>>().map(|_| true)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::rbac::ALL_USERS;
    use super::*;

    fn objects<K: serde::de::DeserializeOwned>(all: &[Value]) -> Vec<K> {
        all.iter().map(|object| serde_json::from_value(object.clone()).unwrap()).collect()
    }

    fn user(name: &str) -> Value {
        json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name})
    }

    fn group(name: &str) -> Value {
        json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name})
    }

    fn binding(role: (&str, &str), place: &str, subjects: &[Value]) -> Value {
        json!({"metadata": {"name": "b", "namespace": place}, "subjects": subjects, "roleRef":
            {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1}})
    }

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
        json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
    }

    fn role(name: &str, place: &str, rules: &[Value]) -> Value {
        json!({"metadata": {"name": name, "namespace": place}, "rules": rules})
    }

    /// The subjects that may approve the deletion of the Secret shop/key through this role,
    /// bound to alice, if all users may create approvals.
    fn approving(rules: &[Value], kind: &str, place: &str) -> Vec<String> {
        let everybody = binding(("ClusterRole", "create"), "", &[group(ALL_USERS)]);
        let create = role("create", "", &[rule(&[GROUP], &["deletionapprovals"], &["create"])]);
        let own = |kind_of: &str, place: &str| match kind == kind_of {
            true => vec![role("own", place, rules)],
            false => Vec::new(),
        };
        let alice = binding((kind, "own"), place, &[user("alice")]);
        let (everywhere, here) = match place {
            "" => (vec![everybody, alice], Vec::new()),
            _ => (vec![everybody], vec![alice]),
        };
        let cluster_roles = [vec![create], own("ClusterRole", "")].concat();
        let rbac = Rbac {
            cluster_bindings: objects(&everywhere),
            cluster_roles: objects(&cluster_roles),
            bindings: objects(&here),
            roles: objects(&own("Role", place)),
        };
        approvers(&rbac, &rights(), &[]).0
    }

    fn rights() -> Vec<AccessRight<'static>> {
        let verb = "approve-deletion";
        vec![AccessRight { verb, group: "", resource: "secrets", name: "key", namespace: "shop" }]
    }

    #[test]
    fn a_rule_grants_the_same_as_in_the_api_server() {
        let named = |names: &[&str]| {
            let mut rule = rule(&[""], &["secrets"], &["approve-deletion"]);
            rule["resourceNames"] = json!(names);
            rule
        };
        for (what, rule, granted) in [
            ("the very right", rule(&[""], &["secrets"], &["approve-deletion"]), true),
            ("every verb", rule(&[""], &["secrets"], &["*"]), true),
            ("every kind", rule(&["*"], &["*"], &["approve-deletion"]), true),
            ("another verb", rule(&[""], &["secrets"], &["delete"]), false),
            ("another group", rule(&["apps"], &["secrets"], &["approve-deletion"]), false),
            ("another kind", rule(&[""], &["configmaps"], &["approve-deletion"]), false),
            ("a subresource", rule(&[""], &["secrets/status"], &["approve-deletion"]), false),
            ("its name", named(&["other", "key"]), true),
            ("another name", named(&["other"]), false),
            ("no names", named(&[]), true),
            ("no resource", json!({"nonResourceURLs": ["*"], "verbs": ["*"]}), false),
        ] {
            let expected: &[&str] = if granted { &["alice"] } else { &[] };
            assert_eq!(approving(&[rule], "ClusterRole", ""), expected, "{what}");
        }
    }

    #[test]
    fn a_role_is_found_where_it_is_bound() {
        let rules = [rule(&[""], &["secrets"], &["approve-deletion"])];
        for (kind, place, granted) in [
            ("ClusterRole", "", true),
            ("ClusterRole", "shop", true),
            ("Role", "shop", true),
            ("ClusterRole", "other", false),
            ("Role", "other", false),
        ] {
            let expected: &[&str] = if granted { &["alice"] } else { &[] };
            assert_eq!(approving(&rules, kind, place), expected, "{kind} in {place}");
        }
        // The rules of an aggregated role are in the role itself. A role that is missing or
        // not filled in yet grants nothing.
        let aggregated = |rules: Value| {
            let role = json!({"metadata": {"name": "own"}, "rules": rules, "aggregationRule":
                {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
            let bound = binding(("ClusterRole", "own"), "", &[user("alice")]);
            let rbac = Rbac {
                cluster_bindings: objects(&[bound]),
                cluster_roles: objects(&[role]),
                ..Rbac::default()
            };
            rbac.granted(&rights()[0]).len()
        };
        assert_eq!((aggregated(json!(rules)), aggregated(Value::Null)), (1, 0));
    }

    #[test]
    fn full_approvers_are_named_apart_from_partial_ones() {
        let account = json!({"kind": "ServiceAccount", "name": "ci", "namespace": "ops"});
        let same = user("system:serviceaccount:ops:cd");
        let part = user("system:kube-controller-manager");
        let all = [group("sre"), user("zoe"), user("alice"), group(MASTERS), account, same, part];
        let pods = group("system:serviceaccounts:ops");
        let both = role("both", "", &[rule(&["*"], &["*"], &["*"])]);
        let one = role("one", "", &[rule(&["*"], &["*"], &["approve-deletion"])]);
        let rbac = Rbac {
            cluster_bindings: objects(&[
                binding(("ClusterRole", "both"), "", &[&all[..], &[pods]].concat()),
                binding(("ClusterRole", "one"), "", &[user("bob"), user("alice")]),
            ]),
            cluster_roles: objects(&[both, one]),
            ..Rbac::default()
        };
        let need = NeededApproval {
            object: ObjectRef::new(("", "namespaces"), "", "shop"),
            content: true,
        };
        let rights: Vec<AccessRight<'_>> = need.rights().collect();
        assert_eq!((rights.len(), rights[1].namespace), (2, "shop"));
        let (named, unsure) = approvers(&rbac, &rights, &["ops/ci".to_owned()]);
        assert_eq!(named, ["alice", "zoe", "group sre", "service account ops/ci"]);
        assert_eq!(unsure, ["bob"]);
    }

    #[test]
    fn unread_approvers_are_unknown() {
        let mut approvers = Approvers { you: Some(false), ..Approvers::default() };
        assert_eq!(approvers.text(false), "who can approve: group system:masters (not you)\n");
        assert_eq!(approvers.names(), Some(vec!["group system:masters".to_owned()]));
        approvers.unread = vec![FailedRead { resource: "clusterroles".into(), why: "x".into() }];
        assert_eq!(approvers.text(false), "who can approve: unknown (not you)\n");
        assert_eq!(approvers.names(), None);
        approvers.named = vec!["alice".to_owned()];
        approvers.you = None;
        assert_eq!(approvers.text(false), "who can approve: alice, as far as could be read\n");
        approvers.unread.clear();
        approvers.unsure = vec!["bob".to_owned()];
        let says = "who can approve: alice; bob, if they may create approvals as well\n";
        assert_eq!(approvers.text(false), says);
        approvers.unsure.clear();
        approvers.has_approved = true;
        assert!(approvers.text(false).ends_with(" (you have approved)\n"));
        approvers.has_approved = false;
        approvers.named = (10..20).map(|n| format!("u{n}")).collect();
        let cut = approvers.text(false);
        assert!(cut.ends_with("u17 and 2 more subjects (--all)\n"), "{cut}");
        assert!(approvers.text(true).ends_with("u18, u19\n"));
    }
}
