//! The AdmissionReview with the answer to the API server.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::wire::{API_VERSION, KIND};
use crate::decide::{self, DenialStatus, Reason, StatusCause, Verdict};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
}

#[derive(Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

#[derive(Serialize)]
struct Details {
    causes: Vec<StatusCause>,
}

/// The JSON of the answer to the review with this uid.
pub fn review_response_json(uid: &str, verdict: &Verdict, mut warnings: Vec<String>) -> Vec<u8> {
    warnings.extend(decide::warnings(verdict));
    let patch = decide::patch(verdict).map(|patch| STANDARD.encode(to_json(&patch)));
    let answer = ReviewResponse {
        api_version: API_VERSION,
        kind: KIND,
        response: Response {
            uid,
            allowed: verdict.decision.passes(),
            status: decide::denial(verdict).map(|(message, causes)| Status {
                code: match verdict.denial_status {
                    DenialStatus::Forbidden => 403,
                    DenialStatus::TooManyRequests => 429,
                    DenialStatus::NotFound => 404,
                },
                reason: verdict.reason.map_or("Forbidden", Reason::as_str),
                message,
                details: (!causes.is_empty()).then_some(Details { causes }),
            }),
            warnings,
            audit_annotations: decide::audit_annotations(verdict).into_iter().collect(),
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
        },
    };
    to_json(&answer)
}

/// These types only have string keys and no failing `Serialize`, so this can't fail.
fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
