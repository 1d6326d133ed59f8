//! kube-controller-manager without a service account for each controller: all of them are
//! `system:kube-controller-manager`. Cascades must not depend on their names.

use crate::harness::{ControlPlane, Install, Options};
use crate::{cascades, deleting, finalizing, orphaning, program};

#[test]
fn s08_s10_and_cascades_under_one_name_for_all_controllers() {
    let options = Options { nodes: 1, service_account_credentials: false, ..Options::default() };
    let plane = ControlPlane::start_with(&options).unwrap();
    let _belay = Install::of_everything(1).on(&plane, program()).unwrap();
    let plane = &plane;
    std::thread::scope(|scope| {
        let parts: [fn(&ControlPlane); 4] = [
            deleting::namespaces_are_not_begun,
            finalizing::finalizing,
            orphaning::the_collectors_patches,
            cascades::cascades_end,
        ];
        for part in parts {
            scope.spawn(move || part(plane));
        }
    });
    // The controllers had no names of their own in that run.
    let log = plane.audit_log().unwrap();
    assert!(log.contains("\"username\":\"system:kube-controller-manager\""));
    assert!(!log.contains("system:serviceaccount:kube-system:"));
}
