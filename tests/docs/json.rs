//! docs/json.md describes the documents of `-o json`. It is generated from the output
//! of `kubectl belay admin schemas`, which is generated from the types of the documents.
//!
//! `BELAY_WRITE_DOCS=1 cargo test --test docs json` writes the page.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

use crate::pages::{files, read, top};
use crate::schema::{Schema, differences, schemas};

const INTRODUCTION: &str = "\
# The documents of `-o json`

This page is generated from the types that the program prints; `tests/docs/json.rs` compares them. `kubectl belay admin schemas`
prints the same as JSON Schema, and `kubectl belay admin schemas Why` prints the schema of one kind.

`-o json` and `-o yaml` print one complete document on standard output. These rules apply to all documents:

- **`apiVersion` is the version.** Within `belay.dev/v1alpha1` a release may add fields, and add values to an enumeration:
  ignore fields and values that you don't know. A release does not remove a field, change its type or meaning, or omit a
  field that is always present; that needs a new version. The texts in `says`, `lines`, `message`, `note`, `why`, `evidence`
  and `next` are for people and can change.
- **Lists are always present**, and can be empty. The only exception is `mayApprove`, which is absent if it is unknown. Other
  fields can be absent if the column *always* contains \"no\"; the meaning says when.
- **A kind whose name ends in List** has `items`. `notRead` lists the failed reads; if there are any, the answer can be
  incomplete.
- **An [Object](#object) has the same form everywhere.** `typed` contains the arguments for `kubectl get` and for belay:
  `kubectl belay stuck -A -o json | jq -r '.items[].object.typed'`.
- `says` is one sentence. `lines` is the output for people, one entry for each line.
- Times have the format of RFC 3339, in UTC. `verdict` has the same values everywhere.
- **The exit code is the same as without `-o`** ([cli.md](cli.md)). If a command fails before it has an answer (a wrong option,
  no connection to the API server), it prints an error on standard error and no document.

`admin uninstall` writes its progress to standard error, and the document at the end. `test -o junit`, `impact -o markdown`
and graphs (`-o dot`, `-o mermaid` and `-o html`) have no version.

These commands have no `-o`: `completion` (prints a shell script), `serve` (answers no question), `admin certs` (writes
files), `admin crds` and `admin manifests` (print YAML), `admin schemas` (prints JSON).

## Refusals of the API server

The API server's answer to a denied request contains the facts of the message as data, in `details.causes` of the Status. To
see them: `kubectl delete … --dry-run=server -v=9`. They contain nothing that the message leaves out. If belay can't read or
check a request without knowing a policy, the answer has no causes. Each cause has a `reason` and a `message`:

| reason | message |
|---|---|
| `Protected`, `InUse`, `NotEmpty`, `StillNeeded`, `WouldOrphan`, `FinalizerGuarded`, `Unknown` | The sentence of one reason. The causes below it belong to it, up to the next reason or `MoreReasons`. |
| `Object` | The protected object, in the form of `typed`. |
| `Cause` | What blocks the request, for example an object that uses this one. The `field` is the field that refers to the object. |
| `MoreCauses` | The number of further causes of this reason. |
| `Policy` | The name of a DeletionPolicy that denies the request. |
| `Label` | The label that denies the request. |
| `MoreReasons` | The number of further reasons. |
| `NextStep` | What to do instead of an approval. |
| `Approve` | A command that approves the request. |
| `Approvers` | How many different people must run the command above, if more than one. |

belay describes at most 3 reasons and sends at most 48 causes. It cuts a text after 1,024 characters. A later release may add
reasons: ignore those that you don't know.
";

/// One field of a document.
struct Field {
    /// The path: `items[].object`.
    path: String,
    /// The type, in Markdown.
    of: String,
    /// Whether it is always present in its parent.
    always: bool,
    /// Whether it is a list.
    is_list: bool,
    /// The meaning.
    meaning: String,
}

/// All fields, without the fields of shared types.
fn fields(schema: &Schema<'_>, shared: &[&str]) -> Vec<Field> {
    let mut found = Vec::new();
    walk(schema.resolved(), "", shared, &mut found);
    found
}

fn walk(schema: Schema<'_>, above: &str, shared: &[&str], found: &mut Vec<Field>) {
    let required = schema.of["required"].as_array();
    for (name, of) in schema.of["properties"].as_object().into_iter().flatten() {
        let of = schema.with(of);
        let always = required.is_some_and(|all| all.iter().any(|one| one == name.as_str()));
        let is_list = of.types() == ["array"];
        let (path, one) = match is_list {
            true => (format!("{above}{name}[]"), of.with(&of.resolved().of["items"])),
            false => (format!("{above}{name}"), of),
        };
        let many = if is_list { "list of " } else { "" };
        let meant = shared_type(one, shared);
        let what = match (meant, one.words().is_empty()) {
            (Some(name), _) => format!("[{name}](#{})", name.to_lowercase()),
            (None, false) => "word".to_owned(),
            (None, true) => one.types().join(" or "),
        };
        // The description of the type replaces an absent description of the field.
        let mut meaning = of.meaning();
        for (word, says) in one.words() {
            let colon = if says.is_empty() { "" } else { ": " };
            let _ = write!(meaning, "<br>`{word}`{colon}{says}");
        }
        // The keys of a map are not fields.
        let values = one.resolved().of.get("additionalProperties").filter(|of| of.is_object());
        let what = match values {
            Some(values) => format!("map of {}", one.with(values).types().join(" or ")),
            None => what,
        };
        found.push(Field {
            path: path.clone(),
            of: many.to_owned() + &what,
            always,
            is_list,
            meaning,
        });
        if meant.is_none() {
            walk(one.resolved(), &format!("{path}."), shared, found);
        }
    }
}

/// The name of the shared type of a schema, which may be nullable.
fn shared_type<'s>(schema: Schema<'s>, shared: &[&str]) -> Option<&'s str> {
    let all = schema.of["anyOf"].as_array().into_iter().flatten();
    let mut named = std::iter::once(schema.of).chain(all).filter_map(|of| schema.with(of).refers());
    named.find(|name| shared.contains(name))
}

/// Types of several documents, described once.
const SHARED: &[&str] = &["Object", "FailedRead"];

/// Documents that are the items of a list as well.
const ITEMS: &[&str] = &["Approved", "Why"];

/// The kinds, and the commands that print them.
const PRINTED_BY: &[(&str, &str)] = &[
    ("ApprovalList", "belay approvals"),
    ("Approved", "belay approve"),
    ("ApprovedList", "belay approve A B"),
    ("Deleted", "belay delete"),
    ("Undone", "belay undo"),
    ("DeletionPlan", "belay impact --out FILE"),
    ("DenialList", "belay denials"),
    ("Impact", "belay impact"),
    ("PauseEnded", "belay pause --end"),
    ("Paused", "belay pause"),
    ("PolicyTestReport", "belay test"),
    ("Released", "belay release"),
    ("Selftest", "belay admin selftest"),
    ("Status", "belay status"),
    ("StatusPlan", "belay status --plan"),
    ("StuckList", "belay stuck"),
    ("Uninstalled", "belay admin uninstall"),
    ("UsedBy", "belay used-by"),
    ("Why", "belay why"),
    ("WhyList", "belay why A B"),
];

fn table(schema: &Schema<'_>, page: &mut String) {
    page.push_str("| field | type | always | meaning |\n|---|---|---|---|\n");
    for field in fields(schema, &[SHARED, ITEMS].concat()) {
        let always = if field.always { "yes" } else { "no" };
        let (path, of, meaning) = (&field.path, &field.of, field.meaning.replace('|', "\\|"));
        let _ = writeln!(page, "| `{path}` | {of} | {always} | {meaning} |");
    }
}

fn page() -> String {
    let all = schemas();
    let mut page = INTRODUCTION.to_owned();
    for shared in SHARED {
        let (root, of) = all
            .values()
            .find_map(|root| Some((root, root.pointer(&format!("/$defs/{shared}"))?)))
            .unwrap_or_else(|| panic!("no document has a {shared}"));
        let schema = Schema { root, of };
        let _ = write!(page, "\n## {shared}\n\n{}\n\n", schema.meaning());
        table(&schema, &mut page);
    }
    for (kind, root) in &all {
        let by = PRINTED_BY.iter().find(|(name, _)| name == kind);
        let (_, by) = by.unwrap_or_else(|| panic!("no command prints {kind}: see PRINTED_BY"));
        let by = if by.contains("--out") { (*by).to_owned() } else { format!("{by} -o json") };
        let _ = write!(page, "\n## {kind}\n\n`{by}`\n\n");
        table(&Schema { root, of: root }, &mut page);
    }
    page
}

#[test]
fn the_page_is_what_the_documents_have_in_them() {
    let page = page();
    if std::env::var_os("BELAY_WRITE_DOCS").is_some() {
        std::fs::write(top().join("docs/json.md"), &page).unwrap();
    }
    let written = read("docs/json.md");
    let differs = written.lines().zip(page.lines()).find(|(written, page)| written != page);
    assert!(
        written == page,
        "docs/json.md is not what the documents have in them ({differs:?}); next: \
         BELAY_WRITE_DOCS=1 cargo test --test docs json"
    );
}

#[test]
fn every_field_has_a_description_with_its_condition() {
    let mut wrong = Vec::new();
    for (kind, root) in &schemas() {
        let whole = fields(&Schema { root, of: root }, &[]);
        assert!(whole.len() > 4, "{kind}");
        for field in whole {
            let absence = field.meaning.to_lowercase().contains("absent ");
            if field.meaning.is_empty() || field.always == absence {
                wrong.push(format!("{kind} {}: {:?}", field.path, field.meaning));
            }
            if field.is_list && !field.always && !field.path.ends_with("mayApprove[]") {
                wrong.push(format!("{kind} {}: a list is always there", field.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The values of `const KIND` and `const LIST` in the files below a folder.
fn declared(folder: &std::path::Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            declared(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        // Below this are unit tests.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for constant in ["KIND", "LIST"] {
            let before = format!("const {constant}: &'static str = \"");
            let names = code.split(&before).skip(1);
            found.extend(names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
}

#[test]
fn every_kind_that_is_printed_has_a_schema() {
    let mut found = Vec::new();
    declared(&top().join("src/command"), &mut found);
    found.sort();
    let known: Vec<String> = schemas().keys().cloned().collect();
    assert_eq!(found, known);
    let page = read("docs/json.md");
    for kind in known {
        assert!(page.contains(&format!("\n## {kind}\n")), "{kind}");
    }
    assert!(!files("docs", "md").is_empty());
}

#[test]
fn the_schema_of_one_kind_is_asked_for_by_its_name() {
    let ask = |kind: &str| {
        let program = env!("CARGO_BIN_EXE_belay");
        Command::new(program).args(["admin", "schemas", kind]).output().unwrap()
    };
    let why: Value = serde_json::from_slice(&ask("why").stdout).unwrap();
    assert_eq!(why, schemas()["Why"]);
    assert_eq!(why["properties"]["kind"]["const"], "Why");
    let unknown = ask("Wy");
    assert_eq!(unknown.status.code(), Some(2));
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(said.contains("there is no kind Wy; there are ") && said.contains("Why"), "{said}");
}

#[test]
fn differences_from_the_schema_are_found() {
    let all = schemas();
    let root = &all["StatusPlan"];
    let plan = serde_json::json!({
        "apiVersion": "belay.dev/v1alpha1", "kind": "StatusPlan", "notRead": [],
        "policies": [{"name": "p", "action": "Deny", "protects": ["always"], "protected": 1,
            "held": 0, "kinds": [], "notHeld": [], "unknownKinds": [], "notes": []}],
    });
    let found = |change: &dyn Fn(&mut Value)| {
        let mut plan = plan.clone();
        change(&mut plan);
        differences(Schema { root, of: root }, &plan, "plan")
    };
    assert_eq!(found(&|_| {}), [""; 0]);
    let policy = "plan.policies[]";
    for (wrong, says) in [
        (found(&|plan| plan["kind"] = "Plan".into()), "plan.kind: \"Plan\", and not".to_owned()),
        (found(&|plan| plan["more"] = 1.into()), "plan.more: no known field".to_owned()),
        (found(&|plan| plan["policies"][0]["held"] = "1".into()), format!("{policy}.held: string")),
        (found(&|plan| plan["policies"][0]["action"] = "No".into()), format!("{policy}.action: ")),
        (found(&|plan| plan["notRead"] = Value::Null), "plan.notRead: null".to_owned()),
        (
            found(&|plan| drop(plan.as_object_mut().unwrap().remove("notRead"))),
            "plan.notRead: it is not there".to_owned(),
        ),
    ] {
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].starts_with(&says), "{wrong:?}");
    }
}
