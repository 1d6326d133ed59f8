//! One line of the audit log.

use serde_json::Value;

/// When something happened: somewhere between when its request was received
/// and when the answer was ready. In microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Not before.
    pub from: i64,
    /// Not after.
    pub to: i64,
}

/// A second.
pub const SECOND: i64 = 1_000_000;

/// A request that was answered.
#[derive(Debug, Clone)]
pub struct Event {
    /// The id of the request. The log contains the start and the end of a watch.
    pub id: String,
    /// Whether it is over.
    pub complete: bool,
    /// The verb: create, update, patch, delete, deletecollection, watch.
    pub verb: String,
    /// The user of the request.
    pub user: String,
    /// API group of the object.
    pub group: String,
    /// Plural name.
    pub resource: String,
    /// The subresource, or an empty text.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// The name of the object, or an empty text.
    pub name: String,
    /// The path, without its query.
    pub path: String,
    /// The HTTP status.
    pub code: u64,
    /// The reason of the refusal, or an empty text.
    pub reason: String,
    /// When.
    pub span: Span,
    /// The response.
    pub response: Value,
}

impl Event {
    /// Parses a line. `None`: it is not a request about an object, is a dry run, or is
    /// invalid.
    pub fn parse(line: &str) -> Option<Self> {
        let mut line: Value = serde_json::from_str(line).ok()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uri = text(&line["requestURI"]);
        let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
        if query.contains("dryRun=All") || !line["requestObject"]["dryRun"].is_null() {
            return None;
        }
        let about = &line["objectRef"];
        let resource = about["resource"].as_str()?.to_owned();
        let status = &line["responseStatus"];
        Some(Self {
            id: text(&line["auditID"]),
            complete: line["stage"] != "ResponseStarted",
            verb: text(&line["verb"]),
            user: text(&line["user"]["username"]),
            group: text(&about["apiGroup"]),
            subresource: text(&about["subresource"]),
            namespace: text(&about["namespace"]),
            name: text(&about["name"]),
            path: path.to_owned(),
            code: status["code"].as_u64().unwrap_or_default(),
            reason: text(&status["reason"]),
            span: Span {
                from: micros(&line["requestReceivedTimestamp"])?,
                to: micros(&line["stageTimestamp"])?,
            },
            resource,
            response: line["responseObject"].take(),
        })
    }

    /// Whether it was done.
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// A time as the log has it.
fn micros(value: &Value) -> Option<i64> {
    Some(value.as_str()?.parse::<jiff::Timestamp>().ok()?.as_microsecond())
}

/// A time as objects have it, in microseconds.
pub fn time(value: &Value) -> Option<i64> {
    micros(value)
}
