//! A wrong command line gets one sentence and the next step.

use super::{belay, fed};

/// Command line, exit code, and the sentence.
const WRONG: &[(&str, i32, &str)] = &[
    ("impact --from .", 2, "no object is named; expected TYPE/NAME"),
    ("impact pvc --from .", 2, "\"pvc\" is a kind, and no object of it is named"),
    ("impact pvc/ --from .", 2, "\"pvc/\" is not an object"),
    ("impact pvc/a -l app=x --from .", 2, "omit the names, or -l"),
    ("impact pvc/a -f x.yaml --from .", 2, "-f selects the objects; omit TARGET and -l"),
    ("impact pvc/a -A --from .", 2, "an object is in one namespace"),
    ("impact pods -l a=b=c --from .", 2, "\"a=b=c\" is not a label selector; expected"),
    ("impact -f - --from -", 2, "standard input can be read only once"),
    ("impact --removed ../change/old", 2, ""),
    ("impact --removed . . --removed . .", 2, ""),
    ("impact pvc/a --removed . .", 2, "--removed selects the objects; omit TARGET, -f, -l and -A"),
    ("impact -f a.yaml --removed . .", 2, "--removed selects the objects; omit TARGET"),
    ("impact -A --removed . .", 2, "--removed selects the objects; omit TARGET"),
    ("impact --removed - -", 2, "standard input can be read only once"),
    ("impact --removed - . --from -", 2, "standard input can be read only once"),
    ("impact --removed nowhere .", 2, "nowhere: this cannot be read"),
    ("impact --removed . nowhere", 2, "nowhere: this cannot be read"),
    ("used-by pvc/a --from . -o markdown", 2, ""),
    ("impact pcv/a --from .", 3, "have a kind \"pcv\"; nearest: persistentvolumeclaims"),
    ("impact gizmo/a --from .", 3, "have a kind \"gizmo\"; kubectl api-resources lists the kinds"),
    (
        "impact pvc/a -n shop --from .",
        3,
        "persistentvolumeclaim \"a\" not found in namespace \"shop\"\nhint: ",
    ),
    (
        "impact ns/shop --from -",
        3,
        "standard input: it contains no object\nhint: check whether the",
    ),
    ("impact -f - --from .", 3, "standard input: it contains no object\nhint: check whether the"),
    ("impact ns/shop --from .,/dev/null", 3, "/dev/null: it contains no object\nhint: check"),
    ("impact ns/shop --from nowhere", 2, "nowhere: this cannot be read"),
    ("impact ns/shop --from . --context x", 2, "--from reads no cluster"),
    ("impact ns/shop --kubeconfig nowhere", 3, "cannot find a cluster: "),
    ("status --plan", 2, ""),
    ("status --from .", 2, ""),
    ("status -f .", 2, ""),
    ("status --plan -f shop.yaml", 2, "-f names no DeletionPolicy; name the files or folders"),
    ("status --plan -f nowhere", 2, "nowhere: this cannot be read"),
    ("status --plan -f policies.yaml,nowhere", 2, "nowhere: this cannot be read"),
    (
        "status --plan -f - --from .",
        3,
        "standard input: it contains no object\nhint: check whether",
    ),
    (
        "status --plan -f policies.yaml --from .,/dev/null",
        3,
        "/dev/null: it contains no object\nhint: ",
    ),
    (
        "status --plan -f policies.yaml --from ../snapshots",
        2,
        "../snapshots: no YAML or JSON file in this folder contains an object\nhint: check that \
         it is the right folder",
    ),
    ("status --plan -f - --from -", 2, "standard input can be read only once"),
    ("status --plan -f policies.yaml --from . --as x", 2, "--from reads no cluster"),
    ("status --plan -f policies.yaml", 3, "cannot find a cluster: "),
    ("used-by secret a b --from .", 2, ""),
    ("used-by pvc,svc a --from .", 2, "is more than one object"),
    ("used-by secret/none --from .", 3, "secret \"none\" not found in namespace \"default\""),
    ("used-by secret/a --depth 0 --from .", 2, ""),
    ("test", 2, ""),
    ("test .", 2, "there is no PolicyTest in .\nhint: see whether it is the right folder"),
    ("test - --policies -", 2, "standard input can be read only once"),
    ("test ../trials -o xml", 2, ""),
    ("test ../trials --policies ../snapshots", 2, "name the policies to be tested"),
];

#[test]
fn one_sentence_contains_the_error_and_the_next_step() {
    for (line, code, says) in WRONG {
        let said = belay(line);
        assert_eq!(said.code, *code, "{line}: {said:?}");
        assert!(said.stderr.contains(says), "{line}: {said:?}");
        assert_eq!(said.stdout, "", "{line}: {said:?}");
        if !says.is_empty() {
            let rest: Vec<&str> = said.stderr.lines().skip(1).collect();
            let hints = rest.iter().filter(|line| line.starts_with("hint: ")).count();
            assert!(rest.len() == hints && hints <= 1, "{line}: {said:?}");
        }
    }
}

#[test]
fn an_invalid_manifest_is_reported_with_its_place() {
    let said = fed("impact -f - --from .", "kind: [\n");
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("standard input:"), "{said:?}");
    let said = fed("impact -f - --from .", "apiVersion: v1\nkind: Gizmo\nmetadata: {name: a}\n");
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.stderr.contains("standard input:1:1: "), "{said:?}");
}
