//! The rows of the tables.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::policy::api::Scope;

/// 2026-01-01T12:00:00Z: "now" in every row.
pub(super) const NOW: i64 = 1_767_268_800;

const TABLES: &[(&str, &str)] = &[
    ("delete", include_str!("../tables/delete.yaml")),
    ("content", include_str!("../tables/content.yaml")),
    ("orphaning", include_str!("../tables/orphaning.yaml")),
    ("hold", include_str!("../tables/hold.yaml")),
    ("update", include_str!("../tables/update.yaml")),
    ("approvals", include_str!("../tables/approvals.yaml")),
    ("policies", include_str!("../tables/policies.yaml")),
    ("live", include_str!("../tables/live.yaml")),
];

pub(super) const LIBRARY: &str = include_str!("../tables/library.yaml");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) row: String,
    #[serde(default)]
    pub(super) rules: Vec<String>,
    #[serde(default)]
    pub(super) scenarios: Vec<u8>,
    #[serde(default)]
    pub(super) policies: Vec<Value>,
    #[serde(default)]
    pub(super) approvals: Vec<ApprovalRow>,
    #[serde(default)]
    pub(super) paused: bool,
    #[serde(default)]
    pub(super) objects: Vec<Value>,
    /// The same objects as they were before the approvals.
    #[serde(default)]
    pub(super) before: Vec<Value>,
    /// Objects that the watch reported and that were deleted before the request.
    #[serde(default)]
    pub(super) gone: Vec<String>,
    /// Kinds of which the graph does not have all objects, each with the reason.
    #[serde(default)]
    pub(super) incomplete: BTreeMap<String, String>,
    /// Kinds whose watch is not connected.
    #[serde(default)]
    pub(super) stale: Vec<String>,
    /// Objects that can't be read.
    #[serde(default)]
    pub(super) unreadable: Vec<String>,
    /// Objects with too many references.
    #[serde(default, rename = "too-many")]
    pub(super) too_many: Vec<String>,
    /// The live reads, for rows with a cluster.
    pub(super) live: Option<LiveRow>,
    pub(super) ask: Ask,
    pub(super) expect: Expect,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LiveRow {
    /// The successful reads, in the form of [`read_text`].
    #[serde(default)]
    pub(super) done: Vec<String>,
    /// The objects that the reads find.
    #[serde(default)]
    pub(super) found: Vec<Value>,
    /// The failed reads, each with the reason.
    #[serde(default)]
    pub(super) failed: BTreeMap<String, String>,
    /// Objects of the lists that can't be read.
    #[serde(default)]
    pub(super) unreadable: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ApprovalRow {
    pub(super) by: String,
    pub(super) of: String,
    /// Another uid than that of the object.
    pub(super) uid: Option<String>,
    #[serde(default)]
    pub(super) scope: Scope,
    #[serde(default)]
    pub(super) exempts: Vec<String>,
    /// The times of the creation and of the expiry, in minutes from now.
    #[serde(default = "five_minutes_ago")]
    pub(super) given: i64,
    #[serde(default = "in_half_an_hour")]
    pub(super) until: i64,
}

fn five_minutes_ago() -> i64 {
    -5
}

fn in_half_an_hour() -> i64 {
    30
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct Ask {
    pub(super) delete: Option<String>,
    /// The old object, if it differs from the object in the graph.
    pub(super) object: Option<Value>,
    pub(super) update: Option<String>,
    pub(super) subresource: String,
    /// A merge patch from the old object to the new one.
    pub(super) patch: Value,
    pub(super) finalize: Option<String>,
    pub(super) evict: Option<String>,
    /// The request has no name, because it is a deletecollection.
    pub(super) nameless: bool,
    pub(super) create: Option<Value>,
    pub(super) by: Option<String>,
    pub(super) groups: Vec<String>,
    pub(super) options: Options,
    pub(super) mutating: bool,
    pub(super) dry_run: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(super) struct Options {
    pub(super) propagation_policy: Option<String>,
    pub(super) orphan_dependents: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Expect {
    pub(super) verdict: String,
    pub(super) message: Option<String>,
    pub(super) warning: Option<String>,
    /// The number of warnings.
    pub(super) warnings: Option<usize>,
    /// The finalizers after the patch has been applied.
    pub(super) after: Option<Vec<String>>,
    /// The HTTP code of a denial.
    pub(super) code: Option<u16>,
    /// The names of the sufficient approvals.
    #[serde(default)]
    pub(super) approved: Vec<String>,
    /// The policies that exempt the requester.
    #[serde(default)]
    pub(super) exempted: Vec<String>,
    /// Whether belay records an exemption.
    #[serde(default)]
    pub(super) records: bool,
    /// The live reads that the verdict needs, in the form of [`read_text`].
    #[serde(default)]
    pub(super) confirm: Vec<String>,
    /// The audit annotation `would-deny`.
    pub(super) would: Option<String>,
}

pub(super) fn rows() -> Vec<(&'static str, Row)> {
    let parse = |(file, text): &(&'static str, &str)| {
        let rows: Vec<Row> = serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{file}: {e}"));
        rows.into_iter().map(|row| (*file, row)).collect::<Vec<_>>()
    };
    TABLES.iter().flat_map(parse).collect()
}
