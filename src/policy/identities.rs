//! The senders of requests, and the subjects in policies.

use super::api::{Subject, SubjectKind};
use crate::objects::{KeyedSet, Text};

/// The prefix of the user names of service accounts.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The service account of the garbage collector.
const GARBAGE_COLLECTOR: &str = "generic-garbage-collector";

/// The service account of the namespace controller.
const NAMESPACE_CONTROLLER: &str = "namespace-controller";

/// The sender of a request: the name and the groups from authentication.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Requester<'a> {
    /// The name.
    pub name: Text<'a>,
    /// The groups. A set, because a decision looks for them in each policy of each object.
    pub groups: KeyedSet<Text<'a>>,
}

impl Requester<'_> {
    /// The class of the requester for metrics: user names are never labels.
    pub fn class(&self) -> &'static str {
        let name = self.name.as_str();
        if name.starts_with("system:serviceaccount:kube-system:") {
            "controller"
        } else if name.starts_with(SERVICE_ACCOUNT_PREFIX) {
            "serviceaccount"
        } else if name.starts_with("system:node:") {
            "node"
        } else if name.starts_with("system:") {
            "system"
        } else {
            "user"
        }
    }
}

/// Whether one of these subjects is this requester.
pub fn includes(subjects: &[Subject], requester: &Requester<'_>) -> bool {
    subjects.iter().any(|subject| match subject.kind {
        SubjectKind::User => requester.name == subject.name.as_str(),
        SubjectKind::Group => requester.groups.contains(&Text::from(subject.name.as_str())),
        SubjectKind::ServiceAccount => {
            parse_service_account(&requester.name).is_some_and(|(ns, name)| {
                subject.namespace.as_deref() == Some(ns) && subject.name == name
            })
        }
    })
}

/// Namespace and name of a service account.
pub fn parse_service_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')
}

/// The possible names and groups of the garbage collector. kube-controller-manager has either
/// a service account for each controller, or one name for all.
pub fn garbage_collector_identities() -> [(&'static str, &'static [&'static str]); 2] {
    let groups =
        &["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    [
        ("system:serviceaccount:kube-system:generic-garbage-collector", groups),
        ("system:kube-controller-manager", &["system:authenticated"]),
    ]
}

/// The accounts and namespaces that belay knows by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identities {
    /// belay's own account, which releases holds and records exemptions.
    pub own: Option<String>,
    /// User names of the control plane, which removes the finalizers of Kubernetes. A name that
    /// ends with `:` is a prefix.
    pub control_plane: Vec<String>,
    /// The namespace that belay runs in.
    pub namespace: Option<String>,
}

impl Default for Identities {
    /// The names for both modes of kube-controller-manager: a service account for each
    /// controller, or one name for all.
    fn default() -> Self {
        let control_plane = [
            "system:kube-controller-manager",
            "system:kube-scheduler",
            "system:apiserver",
            "system:serviceaccount:kube-system:",
        ];
        let control_plane = control_plane.map(str::to_owned).into();
        Self { own: None, control_plane, namespace: None }
    }
}

/// The namespaces for which the API server sends no reviews, including belay's own. The
/// cluster must be able to repair itself and belay while belay is down. No policy applies
/// in these namespaces, because belay would hold objects there without reviews.
pub fn exempt_namespaces(belay_namespace: Option<&str>) -> impl Iterator<Item = &str> {
    ["kube-system", "kube-node-lease"].into_iter().chain(belay_namespace)
}

impl Identities {
    /// The default identities of an installation in this namespace.
    pub fn of_namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::default() }
    }

    /// Whether the API server sends no reviews for the objects of a namespace.
    pub fn is_exempt_namespace(&self, namespace: &str) -> bool {
        exempt_namespaces(self.namespace.as_deref()).any(|exempt| exempt == namespace)
    }

    /// Whether this is belay itself.
    pub fn is_belay(&self, user: &str) -> bool {
        self.own.as_deref() == Some(user)
    }

    /// Whether this is a control plane controller that deletes Pods for preemption, or because
    /// their Node was tainted or removed.
    pub fn evicts_pods(&self, user: &str) -> bool {
        let controllers = ["pod-garbage-collector", "taint-eviction-controller", "node-controller"];
        user == "system:kube-scheduler"
            || parse_service_account(user).is_some_and(|(namespace, name)| {
                namespace == "kube-system" && controllers.contains(&name)
            })
    }

    /// Whether this is the garbage collector. If all controllers have the same name, each
    /// of them counts as the garbage collector.
    pub fn is_garbage_collector(&self, user: &str) -> bool {
        self.is_control_plane(user)
            && match parse_service_account(user) {
                Some((_, name)) => name == GARBAGE_COLLECTOR,
                None => !["system:kube-scheduler", "system:apiserver"].contains(&user),
            }
    }

    /// Whether this may be a controller of the control plane other than the garbage collector.
    pub fn may_be_controller_except_collector(&self, user: &str) -> bool {
        self.is_control_plane(user)
            && parse_service_account(user).is_none_or(|(_, name)| name != GARBAGE_COLLECTOR)
    }

    /// Whether this is the namespace controller with its own service account.
    pub fn is_namespace_controller(&self, user: &str) -> bool {
        parse_service_account(user) == Some(("kube-system", NAMESPACE_CONTROLLER))
    }

    /// Whether this is a part of the control plane.
    pub fn is_control_plane(&self, user: &str) -> bool {
        self.control_plane.iter().any(|known| match known.ends_with(':') {
            true => user.starts_with(known.as_str()),
            false => user == known,
        })
    }
}
