//! The notes after an install.

use crate::helm::Render;

/// The first words of the line of each policy.
const POLICIES: &[&str] = &[
    "CustomResourceDefinitions with",
    "StorageClasses and CSIDrivers in use",
    "PersistentVolumes in use",
    "Namespaces with",
    "PersistentVolumeClaims in use",
    "ConfigMaps in use",
    "Secrets in use",
    "removal of finalizers",
    "deletes that orphan",
];

const EMERGENCY: &str =
    "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration guard";

#[test]
fn they_say_what_is_protected_now_and_the_line_for_an_emergency() {
    for (profile, action, count) in [
        ("observe", "Audit", 7),
        ("guarded", "Deny", 7),
        ("strict", "Deny", 7),
        ("strict", "Hold", 2),
    ] {
        let values = format!("profile={profile:?},fullnameOverride=\"guard\"");
        let notes = Render::default().set(&values).notes();
        let told = POLICIES.iter().filter(|policy| {
            notes.lines().any(|line| line.starts_with(&format!("  {action:<7} {policy}")))
        });
        assert_eq!(told.count(), count, "{notes}");
        assert!(notes.contains("Deny    objects with the label belay.dev/protect"), "{notes}");
        assert!(notes.contains("kube-node-lease and belay."), "{notes}");
        assert!(notes.contains(EMERGENCY), "{notes}");
        assert!(notes.contains("WOULD-DENY:.status.last24h.wouldDeny"), "{notes}");
        // A CRD whose instances belay may not list.
        let unseen = ["Unknown", "rbac.watchAlso", "rbac.aggregateView", "approve"];
        let told = unseen.iter().all(|word| notes.contains(word));
        assert_eq!(told, profile == "guarded", "{notes}");
        assert_eq!(notes.contains("--set profile=guarded"), profile == "observe", "{notes}");
        // Held objects stop an Argo CD sync, unless they are pruned last.
        assert_eq!(notes.contains("PruneLast=true"), profile == "strict", "{notes}");
    }
    // Without that policy strict does not list all kinds.
    let values = "profile=\"strict\",policies.namespacesWithContent={\"enabled\":false}";
    let notes = Render::default().set(values).notes();
    assert!(notes.contains("it refuses to delete the CRD as Unknown"), "{notes}");
}

#[test]
fn they_say_what_values_make_different() {
    let values =
        "policies={\"claimsInUse\":{\"action\":\"Warn\"},\"orphaning\":{\"enabled\":false}}";
    let notes = Render::default().set(values).notes();
    assert!(notes.contains("  Warn    PersistentVolumeClaims in use"), "{notes}");
    assert!(!notes.contains("deletes that orphan"), "{notes}");
    assert!(notes.contains("helm test belay -n belay"), "{notes}");
    assert!(!notes.contains("admin uninstall"), "the hook does it: {notes}");

    let without = "uninstall.enabled=false,selftest.enabled=false,rbac.create=false,\
                   formerHolds=[\"example.com/hold\"]";
    let notes = Render::default().set(without).notes();
    let line = "admin uninstall --installation=belay/belay --former-hold=example.com/hold";
    assert!(notes.contains(line), "{notes}");
    assert!(notes.contains("grant system:serviceaccount:belay:belay its permissions"), "{notes}");
    assert!(!notes.contains("helm test"), "{notes}");
}
