//! `kubectl belay why`, on files.

use super::{assert_snapshot, belay, fed};
use crate::harness::manifest::{Manifest as _, documents, object};

#[test]
fn blockers_of_an_object_in_a_dump() {
    assert_snapshot("why-used.txt", 1, "why secret/key -n shop --from ../going");
    assert_snapshot("why-unused.txt", 0, "why secret unused -n shop --from ../going");
}

#[test]
fn several_objects_are_reported_one_after_the_other() {
    assert_snapshot("why-several.txt", 1, "why secret key unused key -n shop --from ../going");
    let line = "why secret/unused secrt/key secret/none -n shop --from ../going -o json";
    let said = belay(line);
    assert_eq!(said.code, 3, "{said:?}");
    let errors: Vec<&str> =
        said.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 2, "{said:?}");
    let list: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(list["kind"], "WhyList");
    assert_eq!(list["items"][0]["object"]["name"], "unused");
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["notRead"][0]["resource"], "secrt/key");
    assert_eq!(list["notRead"][1]["resource"], "secret/none");
    // None of several objects is read.
    let said = belay("why secret/none secret/gone -n shop --from ../going");
    assert_eq!((said.code, said.stdout.as_str()), (3, ""), "{said:?}");
}

#[test]
fn reports_what_blocks_the_deletion_of_an_object_of_a_dump() {
    assert_snapshot("why-held.txt", 1, "why cm/settings -n shop --from ../going");
    assert_snapshot("why-down.txt", 1, "why cm/bucket -n shop --from ../going");
}

#[test]
fn why_and_impact_report_the_same() {
    for (object, code) in [("secret/key", 1), ("secret/unused", 0)] {
        for command in ["why", "impact"] {
            let said = belay(&format!("{command} {object} -n shop --from ../going -o json"));
            assert_eq!((said.code, said.stderr.as_str()), (code, ""), "{command}: {said:?}");
        }
    }
}

#[test]
fn a_label_that_protects_nothing_is_reported() {
    let wrong = object("v1", "ConfigMap", "a").with_namespace("shop").with_protect_label("always");
    let right = object("v1", "ConfigMap", "b").with_namespace("shop").with_protect_label("Always");
    let all = documents(&[wrong, right]);
    let warning = "the label belay.dev/protect=always protects nothing: set it to Always or \
                   WhileUsed or remove it";
    for (command, object, expected) in
        [("why", "a", true), ("impact", "a", true), ("why", "b", false), ("impact", "b", false)]
    {
        let said = fed(&format!("{command} cm/{object} -n shop --from=-,policies.yaml"), &all);
        assert_eq!(said.stdout.contains(warning), expected, "{command} {object}: {said:?}");
    }
}

#[test]
fn unknown_answers_are_reported() {
    for (line, code, words) in [
        ("why secret/key -n shop --from ../going/dump.yaml", 3, "name a file with the policies"),
        (
            "why secret/none -n shop --from ../going",
            3,
            "secret \"none\" not found in namespace \"shop\"",
        ),
        ("why secrt/key --from ../going", 3, "nor the files have a kind \"secrt\"; nearest: secr"),
        ("why secret/key --from ../going --context x", 2, "--from reads no cluster"),
        ("why secret --from ../going", 2, "\"secret\" is not an object"),
        ("why secret/key --from=-,-", 2, "standard input can be read only once"),
        ("why secret/key --from none.yaml", 2, "none.yaml: "),
    ] {
        let said = belay(line);
        assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{line}: {said:?}");
        assert!(said.stderr.contains(words), "{line}: {said:?}");
    }
}
