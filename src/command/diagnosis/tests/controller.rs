//! Which workloads a finding names as the controller of a finalizer.

use super::*;

#[test]
fn h125_a_workload_of_the_same_name_hides_no_controller_that_is_down() {
    let stuck = settings("db.example.com/drop", "db-operator");
    let placed = |namespace: &str, name: &str, ready| Workload {
        namespace: namespace.to_owned(),
        ..workload(name, "x", ready)
    };
    let both = [placed("prod", "db-operator", 0), placed("eve", "db-operator", 1)];
    let mixed = of(&stuck, &evidence(&both));
    assert_eq!(mixed.cause, Cause::Unknown);
    let says = ". Possible controllers: Deployment prod/db-operator, 0 ready Pods; Deployment \
                eve/db-operator, 1 ready Pod";
    assert!(mixed.message.ends_with(says), "{mixed:?}");
    let next = "find out which workload is the controller; for that one: kubectl describe \
                deploy/db-operator -n prod, or kubectl logs deploy/db-operator -n eve";
    assert_eq!(mixed.next, next);
    assert!(mixed.evidence[0].starts_with("this is a guess from "), "{mixed:?}");

    // Many workloads of one namespace displace none of the others, running or not.
    let decoy = |at: usize| placed("eve", &format!("db-operator-{at}"), 1);
    let real = [placed("ops", "db-operator", 1), placed("prod", "db-operator", 0)];
    let all: Vec<Workload> = (0..10).map(decoy).chain(real).collect();
    let crowd = of(&stuck, &evidence(&all));
    assert_eq!(crowd.cause, Cause::Unknown);
    for part in [
        "prod/db-operator, 0 ready Pods; Deployment eve/db-operator-0, 1 ready Pod; ",
        "Deployment ops/db-operator, 1 ready Pod; 9 more workloads",
    ] {
        assert!(crowd.message.contains(part), "{crowd:?}");
    }
    for place in ["prod", "ops"] {
        assert!(crowd.next.contains(&format!("deploy/db-operator -n {place}")), "{crowd:?}");
    }

    // The finding names three namespaces.
    let places = ["a", "b", "c", "d"];
    let spread = places.map(|place| placed(place, "db-operator", 1));
    let spread = of(&stuck, &evidence(&spread));
    assert_eq!(spread.cause, Cause::Controller);
    let says = ". Possible controllers: Deployment a/db-operator, 1 ready Pod; Deployment \
                b/db-operator, 1 ready Pod; Deployment c/db-operator, 1 ready Pod; 1 more workload";
    assert!(spread.message.ends_with(says), "{spread:?}");
    assert_eq!(spread.next.matches("kubectl logs").count(), 3, "{spread:?}");

    // A workload that can't be read may be the controller.
    let unread = Evidence { more_workloads: true, ..evidence(&both[..1]) };
    let unread = of(&stuck, &unread);
    assert_eq!(unread.cause, Cause::ControllerDown);
    assert!(
        words(&unread).contains("not all workloads of the cluster could be read"),
        "{unread:?}"
    );
}
