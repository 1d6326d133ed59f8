//! Checks that each value that a decision reads has a row in the table "Who may write what a
//! decision reads" of docs/THREATS.md.

use std::collections::BTreeSet;

use crate::decide::{DeleteOptions, Resource, Review, ReviewDetails, Situation};
use crate::objects::{Metadata, Object, OwnerReference};
use crate::policy::{Approval, Requester};

/// The names of all fields of a type. If a field is missing, the code does not compile.
macro_rules! fields {
    ($type:ident { $($field:ident),* $(,)? }) => {{
        let _is_complete = |value: $type<'_>| { let $type { $($field: _),* } = value; };
        names(stringify!($type), &[$(stringify!($field)),*])
    }};
    (owned $type:ident { $($field:ident),* $(,)? }) => {{
        let _is_complete = |value: $type| { let $type { $($field: _),* } = value; };
        names(stringify!($type), &[$(stringify!($field)),*])
    }};
}

fn names(type_name: &str, fields: &[&str]) -> Vec<String> {
    fields.iter().map(|field| format!("{type_name}.{field}")).collect()
}

fn inputs() -> BTreeSet<String> {
    let inputs = [
        fields!(Review {
            uid,
            phase,
            operation,
            resource,
            name,
            namespace,
            requester,
            dry_run,
            options,
            object,
            old_object,
            details,
            labelled,
        }),
        fields!(Resource { group, resource, subresource }),
        fields!(Requester { name, groups }),
        fields!(DeleteOptions { propagation_policy, orphan_dependents }),
        fields!(owned ReviewDetails { rest_changes, old_spec_finalizers, new_spec_finalizers }),
        fields!(Object { api_version, kind, metadata }),
        fields!(Metadata {
            name,
            generate_name,
            namespace,
            uid,
            resource_version,
            labels,
            annotations,
            finalizers,
            owner_references,
            deletion_timestamp,
            creation_timestamp,
            managed_fields,
        }),
        fields!(OwnerReference { api_version, kind, name, uid, block_owner_deletion, controller }),
        fields!(owned Approval {
            name,
            uid,
            approver,
            target,
            target_uid,
            content,
            exempts,
            version,
            created,
            expires,
        }),
        fields!(Situation { graph, policies, source, now, work }),
    ];
    inputs.into_iter().flatten().collect()
}

#[test]
fn every_input_of_a_decision_has_a_row_about_its_writers() {
    let page = include_str!("../../../docs/THREATS.md");
    let (_, table) = page.split_once("## Who may write what a decision reads").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let mut rows = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [inputs, writer, conclusion] = cells[..] else {
            panic!("a row has three cells: {row}")
        };
        assert!(!writer.is_empty() && !conclusion.is_empty(), "an empty cell: {row}");
        for input in inputs.split(", ") {
            assert!(rows.insert(input.trim_matches('`').to_owned()), "{input} has two rows");
        }
    }
    let inputs = inputs();
    let without: Vec<_> = inputs.difference(&rows).collect();
    assert!(without.is_empty(), "without a row in docs/THREATS.md: {without:?}");
    let unknown: Vec<_> = rows.difference(&inputs).collect();
    assert!(unknown.is_empty(), "rows of docs/THREATS.md that are no input: {unknown:?}");
}
