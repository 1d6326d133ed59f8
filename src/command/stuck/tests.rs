use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::cluster::terminating::{Evidence, Survey};
use crate::command::document::FailedRead;
use crate::command::report::{Report as _, View};
use crate::command::screen::Screen;
use crate::objects::{Kinds, ObjectRef};

/// A ConfigMap with a finalizer whose controller does not exist.
fn stuck() -> TerminatingObject {
    let fields = json!({"f:metadata": {"f:finalizers": {"v:\"db.example.com/drop\"": {}}}});
    TerminatingObject {
        info: Kinds::custom("", "v1", "ConfigMap", "configmaps", true),
        object_ref: ObjectRef::new(("", "configmaps"), "shop", "settings"),
        uid: "u-1".to_owned(),
        since: jiff::Timestamp::from_second(100).unwrap(),
        object: json!({"metadata": {"finalizers": ["db.example.com/drop"],
            "managedFields": [{"manager": "db-operator", "fieldsV1": fields}]}}),
        unread: None,
    }
}

fn evidence() -> Evidence {
    let groups = ["", "apps"].map(str::to_owned);
    Evidence { groups: groups.into(), ..Evidence::default() }
}

fn report(count: usize, not_read: &[&str]) -> StuckReport {
    let now = jiff::Timestamp::from_second(100 + 720).unwrap();
    let item = || {
        let causes = find_causes(
            &stuck(),
            &Survey::default(),
            &evidence(),
            &Hold::default(),
            Timestamp::MAX,
        );
        StuckObject::new(&stuck(), causes, now)
    };
    let not_read = not_read
        .iter()
        .map(|name| FailedRead { resource: (*name).to_owned(), why: "forbidden".to_owned() });
    StuckReport {
        items: (0..count).map(|_| item()).collect(),
        not_read: not_read.collect(),
        evidence_not_read: Vec::new(),
        of_files: false,
        place: "shop".to_owned(),
        longer_than: "2m".to_owned(),
    }
}

fn shown(report: &StuckReport, output: Format, all: bool) -> String {
    report
        .render(output, View { screen: Screen::pipe(), all, wide: false, verbose: false })
        .unwrap()
}

#[test]
fn the_table_has_the_cause_its_evidence_and_the_next_step() {
    let text = shown(&report(1, &["secrets"]), Format::Table, false);
    let expected = "\
OBJECT                NAMESPACE   FOR   CAUSE
configmaps/settings   shop        12m   a finalizer whose controller was not found
  finalizer db.example.com/drop was added by db-operator. Its controller was not found
    no Deployment, StatefulSet or DaemonSet is called db-operator or runs an image of that name; \
editors of the object can change who added the finalizer
    the API server serves no API group of example.com
  next: if the controller no longer exists and you have cleaned up its resources: kubectl patch configmaps/settings \
-n shop --type=json -p '[{\"op\":\"test\",\"path\":\"/metadata/finalizers/0\",\"value\":\"db.example.com/drop\"},\
{\"op\":\"remove\",\"path\":\"/metadata/finalizers/0\"}]'
not read: secrets: forbidden
";
    assert_eq!(text, expected);
    let mut blind = report(0, &["secrets"]);
    let unread = |resource: &str| FailedRead { resource: resource.to_owned(), why: String::new() };
    blind.evidence_not_read = vec![unread("nodes"), unread("secrets"), unread("services")];
    let blind = shown(&blind, Format::Table, false);
    assert!(
        blind.ends_with("\nincomplete, because belay could not read: nodes, services\n"),
        "{blind}"
    );
    let kinds = ["a", "b", "c", "d"];
    assert_eq!(
        FailedRead::evidence_line(&kinds, false).unwrap(),
        "incomplete, because belay could not read: 4 kinds; --verbose lists them"
    );
    assert!(FailedRead::evidence_line(&kinds, true).unwrap().ends_with("a, b, c, d"));
    // Only a terminal gets a part of a long list.
    let on_terminal = |all| {
        report(25, &[]).text(View {
            screen: Screen::terminal(200),
            all,
            wide: false,
            verbose: false,
        })
    };
    let many = on_terminal(false);
    let expected = "\
25 objects: a finalizer whose controller was not found (db.example.com/drop)
OBJECT                NAMESPACE   FOR
configmaps/settings   shop        12m
configmaps/settings   shop        12m
configmaps/settings   shop        12m
… and 22 more objects with this cause; --all
for example configmaps/settings -n shop:
  finalizer db.example.com/drop was added by db-operator. Its controller was not found
";
    assert!(many.starts_with(expected) && many.matches("  next: ").count() == 1, "{many}");
    assert!(!on_terminal(true).contains("more objects"));
    assert!(!shown(&report(25, &[]), Format::Table, false).contains("more objects"));
}

#[test]
fn nothing_stuck_is_only_reported_after_a_complete_read() {
    for (count, not_read, expected) in
        [(0, &[][..], 0), (0, &["secrets"][..], 3), (1, &[], 1), (1, &["secrets"], 1)]
    {
        assert_eq!(report(count, not_read).exit_code(), expected, "{count} {not_read:?}");
    }
    assert_eq!(
        shown(&report(0, &[]), Format::Table, false),
        "nothing in namespace shop has been Terminating for longer than 2m\n"
    );
    let partly = shown(&report(0, &["secrets"]), Format::Table, false);
    assert!(partly.starts_with("nothing that was read in namespace shop"), "{partly}");
    let json: Value =
        serde_json::from_str(&shown(&report(25, &["x"]), Format::Json, false)).unwrap();
    assert_eq!((&json["kind"], json["items"].as_array().unwrap().len()), (&"StuckList".into(), 25));
    let item = &json["items"][0];
    assert_eq!(item["object"]["typed"], "configmaps/settings -n shop");
    assert_eq!(item["since"], "1970-01-01T00:01:40Z");
    assert_eq!(item["causes"][0]["cause"], "OwnerGone");
    assert_eq!(json["notRead"][0]["resource"], "x");
}

#[test]
fn h133_objects_of_one_namespace_cannot_hide_others_on_a_terminal() {
    let now = jiff::Timestamp::from_second(820).unwrap();
    let stuck_object = |namespace: &str, name: &str, finalizer: &str| {
        let mut object = stuck();
        object.object_ref = ObjectRef::new(("", "configmaps"), namespace, name);
        object.object["metadata"]["finalizers"] = json!([finalizer]);
        let causes =
            find_causes(&object, &Survey::default(), &evidence(), &Hold::default(), Timestamp::MAX);
        StuckObject::new(&object, causes, now)
    };
    // Many objects with the same cause as the other one, or many causes.
    for causes in [1, 30] {
        let own =
            |n: usize| stuck_object("eve", &format!("own{n}"), &format!("a{}.test/x", n % causes));
        let finalizer = if causes == 1 { "a0.test/x" } else { "b.test/x" };
        let own = (0..90).map(own);
        let items = own.chain([stuck_object("prod", "other", finalizer)]).collect();
        let report = StuckReport { items, ..report(0, &[]) };
        let view = View { screen: Screen::terminal(200), all: false, wide: false, verbose: false };
        let text = report.text(view);
        assert!(text.contains("configmaps/other   prod "), "{causes}: {text}");
        assert!(text.contains(" more "), "{causes}: {text}");
    }
}
