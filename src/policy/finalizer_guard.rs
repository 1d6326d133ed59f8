//! The mode `fromStripping`: decides who may remove which finalizers.

use super::api::{FromStripping, Subject};
use super::identities::{Identities, Requester, includes, parse_service_account};
use super::selectors::Glob;
use crate::objects::{FOREGROUND, ORPHAN, is_kubernetes_finalizer};

/// The guarded finalizers, and the subjects that may remove them.
#[derive(Debug, Clone, PartialEq)]
pub struct FinalizerGuard {
    finalizers: Vec<Glob>,
    removers: Vec<Subject>,
}

impl FinalizerGuard {
    pub(super) fn compile(mode: &FromStripping) -> Self {
        Self {
            finalizers: mode.finalizers.iter().map(|f| Glob::new(f)).collect(),
            removers: mode.removers.clone(),
        }
    }

    /// Whether it denies that this requester removes this finalizer.
    pub fn denies(
        &self,
        requester: &Requester<'_>,
        finalizer: &str,
        identities: &Identities,
    ) -> bool {
        self.guards(finalizer) && !self.may_remove(requester, finalizer, identities)
    }

    /// Whether this finalizer is guarded.
    fn guards(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|glob| glob.matches(finalizer))
    }

    /// Whether this requester may remove the finalizer. The control plane may always remove
    /// Kubernetes' own finalizers, so that every cascade can complete.
    fn may_remove(
        &self,
        requester: &Requester<'_>,
        finalizer: &str,
        identities: &Identities,
    ) -> bool {
        let of_kubernetes = is_kubernetes_finalizer(finalizer);
        if of_kubernetes && identities.is_control_plane(&requester.name) {
            return true;
        }
        if !self.removers.is_empty() {
            return includes(&self.removers, requester);
        }
        // Editors of a namespace can create tokens of its service accounts. If only the control
        // plane removes a finalizer, no other service account needs this right.
        let is_service_account = parse_service_account(&requester.name).is_some();
        let is_system = requester.name.starts_with("system:")
            && !NO_REMOVERS.iter().any(|prefix| requester.name.starts_with(prefix));
        is_system && !(is_service_account && CONTROL_PLANE_FINALIZERS.contains(&finalizer))
    }
}

/// System users that remove no finalizers: kubelets, and requests without a name.
const NO_REMOVERS: &[&str] = &["system:node:", "system:anonymous"];

/// Finalizers that only controllers of the control plane remove.
const CONTROL_PLANE_FINALIZERS: &[&str] = &[
    FOREGROUND,
    ORPHAN,
    "kubernetes",
    "kubernetes.io/pvc-protection",
    "kubernetes.io/pv-controller",
    "kubernetes.io/pv-protection",
    "kubernetes.io/vac-protection",
    "service.kubernetes.io/load-balancer-cleanup",
    "batch.kubernetes.io/job-tracking",
    "customresourcecleanup.apiextensions.k8s.io",
    "networking.k8s.io/service-cidr-finalizer",
    "resource.kubernetes.io/delete-protection",
    "scheduling.k8s.io/podgroup-protection",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h118_service_accounts_of_editors_remove_no_finalizer_of_kubernetes() {
        let guard = FinalizerGuard { finalizers: vec![Glob::new("*")], removers: Vec::new() };
        let identities = Identities::default();
        let may = |name: &str, finalizer| {
            let user = Requester { name: name.into(), groups: Default::default() };
            guard.may_remove(&user, finalizer, &identities)
        };
        for finalizer in ["scheduling.k8s.io/podgroup-protection", "kubernetes.io/pv-protection"] {
            assert!(!may("system:serviceaccount:shop:build", finalizer), "{finalizer}");
            assert!(may("system:kube-controller-manager", finalizer), "{finalizer}");
        }
    }
}
