//! The AdmissionReview (`admission.k8s.io/v1`) as it stands on the wire.

use actix_web::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

use super::body::BadRequest;
use super::counts::{self, CountedObject};
use crate::decide::{
    self, Answer as Refused, DeleteOptions, Door, Extra, Operation, Reason, Resource, Review,
    Target, User, Verdict,
};
use crate::objects::{Metadata, Object, Text};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The longest name that objects may have is 253 bytes long.
const LONGEST: usize = 1 << 10;

/// What a body turned out to be.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// A review, fully read.
    Review(Box<Review<'a>>),
    /// A review whose object cannot be read for our purpose. It still gets a
    /// proper answer, so that the API server prints our words and not its own.
    Unreadable {
        /// The uid that the answer repeats.
        uid: Text<'a>,
        /// What is being done.
        operation: Operation,
        /// Who asks.
        user: User<'a>,
        /// Whether nothing will be stored.
        dry_run: bool,
        /// What the request is about.
        target: Target,
        /// What could not be read, and where.
        detail: String,
    },
}

/// An AdmissionReview; `O` is how its objects are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a, O: Deserialize<'de>"))]
struct Envelope<'a, O> {
    #[serde(default)]
    api_version: Text<'a>,
    #[serde(default)]
    kind: Text<'a>,
    #[serde(default = "none")]
    request: Option<Request<'a, O>>,
}

/// What tells an AdmissionReview from anything else.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Header<'a> {
    #[serde(default)]
    api_version: Text<'a>,
    #[serde(default)]
    kind: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a, O: Deserialize<'de>"))]
struct Request<'a, O> {
    uid: Text<'a>,
    operation: WireOperation,
    resource: GroupResource<'a>,
    #[serde(default)]
    sub_resource: Option<Text<'a>>,
    #[serde(default)]
    name: Option<Text<'a>>,
    #[serde(default)]
    namespace: Option<Text<'a>>,
    #[serde(default)]
    user_info: UserInfo<'a>,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    options: Option<Options<'a>>,
    #[serde(default = "none")]
    object: Option<O>,
    #[serde(default = "none")]
    old_object: Option<O>,
}

/// `serde(default)` alone would ask `O` for a default that it need not have.
fn none<T>() -> Option<T> {
    None
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum WireOperation {
    Create,
    Update,
    Delete,
    Connect,
}

impl From<WireOperation> for Operation {
    fn from(operation: WireOperation) -> Self {
        match operation {
            WireOperation::Create => Self::Create,
            WireOperation::Update => Self::Update,
            WireOperation::Delete => Self::Delete,
            WireOperation::Connect => Self::Connect,
        }
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct GroupResource<'a> {
    #[serde(default)]
    group: Text<'a>,
    resource: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct UserInfo<'a> {
    username: Text<'a>,
    #[serde(deserialize_with = "counts::groups")]
    groups: Vec<Text<'a>>,
}

impl<'a> From<UserInfo<'a>> for User<'a> {
    fn from(UserInfo { username, groups }: UserInfo<'a>) -> Self {
        Self { name: username, groups }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Options<'a> {
    propagation_policy: Option<Text<'a>>,
    orphan_dependents: Option<bool>,
}

impl<'a> From<Options<'a>> for DeleteOptions<'a> {
    fn from(Options { propagation_policy, orphan_dependents }: Options<'a>) -> Self {
        Self { propagation_policy, orphan_dependents }
    }
}

/// What an eviction says about the DELETE of its Pod.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Eviction<'a> {
    #[serde(default)]
    delete_options: Option<Options<'a>>,
}

/// Reads an envelope with its objects, if their lists are within the bounds. An
/// object that is watched has no such bounds.
fn envelope(body: &[u8]) -> Result<Envelope<'_, Object<'_>>, serde_json::Error> {
    if body.len() > counts::LARGE {
        serde_json::from_slice::<Envelope<'_, CountedObject>>(body)?;
    }
    serde_json::from_slice(body)
}

/// Reads a body. The usual case is one pass over the bytes; only when that
/// fails is it looked at again, to tell what it is instead.
pub fn parse(body: &[u8], door: Door) -> Result<Parsed<'_>, BadRequest> {
    let error = match envelope(body) {
        Ok(envelope) => {
            let request = request(envelope)?;
            let missing = match request.operation {
                WireOperation::Delete if request.old_object.is_none() => "oldObject",
                WireOperation::Create if request.object.is_none() => "object",
                _ => {
                    let mut review = review(request, door);
                    for object in review.old_object.iter().chain(&review.object) {
                        let Metadata { name, generate_name, namespace, uid, .. } = &object.metadata;
                        check_lengths([name, generate_name, namespace, uid])?;
                    }
                    if let Err(error) = add_details(&mut review, body) {
                        return Ok(unreadable_review(&review, &error));
                    }
                    return Ok(Parsed::Review(Box::new(review)));
                }
            };
            return Ok(unreadable_request(request, format!("it has no .request.{missing}")));
        }
        Err(error) => error,
    };
    // Of another version or kind nothing else is expected to fit.
    if let Ok(header) = serde_json::from_slice::<Header<'_>>(body) {
        check_version(&header.api_version, &header.kind)?;
    }
    // The objects are set aside: what fails now is the review itself.
    match serde_json::from_slice::<Envelope<'_, &RawValue>>(body) {
        Ok(envelope) => Ok(unreadable_request(request(envelope)?, describe(&error))),
        Err(error) => Err(malformed(body, &error)),
    }
}

/// A second look at the bytes, for the few questions that need it.
fn add_details<'a>(review: &mut Review<'a>, body: &'a [u8]) -> Result<(), serde_json::Error> {
    if review.wants_extra() {
        review.extra = extra(body)?;
    }
    if review.evicts() {
        let envelope: Envelope<'_, Eviction<'_>> = serde_json::from_slice(body)?;
        let eviction = envelope.request.and_then(|request| request.object);
        let options = eviction.and_then(|eviction| eviction.delete_options);
        review.options = options.unwrap_or_default().into();
    }
    Ok(())
}

/// An object may be nested as deeply as its writer likes, and hold bytes that are no text.
fn extra(body: &[u8]) -> Result<Extra, serde_json::Error> {
    let text = std::str::from_utf8(body).map_or_else(|_| readable(body).into(), Cow::Borrowed);
    let envelope: Envelope<'_, &RawValue> = serde_json::from_str(&text)?;
    let request = envelope.request.as_ref();
    let old = request.and_then(|request| request.old_object);
    Ok(Extra::read(old, request.and_then(|request| request.object)))
}

/// The same with a question mark where no text is, so that it gets no longer.
fn readable(body: &[u8]) -> String {
    let mut text = String::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push('?');
        }
    }
    text
}

/// A review of which the objects could be read, and not all that they say.
fn unreadable_review<'a>(review: &Review<'a>, error: &serde_json::Error) -> Parsed<'a> {
    Parsed::Unreadable {
        uid: review.uid.clone(),
        operation: review.operation,
        user: review.user.clone(),
        dry_run: review.dry_run,
        target: review.target(),
        detail: describe(error),
    }
}

fn unreadable_request<O>(request: Request<'_, O>, detail: String) -> Parsed<'_> {
    Parsed::Unreadable {
        target: Target {
            resource: request.resource.resource.to_string(),
            group: request.resource.group.to_string(),
            namespace: request.namespace.unwrap_or_default().to_string(),
            name: request.name.unwrap_or_default().to_string(),
        },
        uid: request.uid,
        operation: request.operation.into(),
        user: request.user_info.into(),
        dry_run: request.dry_run.unwrap_or_default(),
        detail,
    }
}

/// What is wrong and where. The parser's own words quote what they found, and
/// what is found in an object may be a secret: only those that name nothing
/// but fields of our own types are repeated.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let ours = ["missing field `", "duplicate field `", counts::TOO_MANY];
    let ours = ours.iter().any(|beginning| text.starts_with(beginning));
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        _ if ours => text,
        serde_json::error::Category::Data => {
            format!("a value of the wrong type at line {line} column {column}")
        }
        serde_json::error::Category::Eof => {
            format!("the text ends too early, at line {line} column {column}")
        }
        _ => format!("a syntax error at line {line} column {column}"),
    }
}

/// A body that is no review at all: is it no JSON, or other JSON?
fn malformed(body: &[u8], error: &serde_json::Error) -> BadRequest {
    let expected = format!("expected an {KIND} of {API_VERSION}");
    let detail = describe(error);
    let message = match error.classify() {
        serde_json::error::Category::Data => {
            format!("the body is JSON, but no review that belay can read: {detail}; {expected}")
        }
        _ if body.is_empty() => format!("the body is empty; {expected}"),
        _ => format!("the body is not JSON: {detail}; {expected}"),
    };
    BadRequest::new(StatusCode::BAD_REQUEST, message)
}

fn check_version(api_version: &str, kind: &str) -> Result<(), BadRequest> {
    if api_version == API_VERSION && kind == KIND {
        return Ok(());
    }
    Err(BadRequest::new(
        StatusCode::BAD_REQUEST,
        format!(
            "the body has apiVersion \"{}\" and kind \"{}\"; expected \"{API_VERSION}\" and \
             \"{KIND}\"",
            shortened(api_version),
            shortened(kind)
        ),
    ))
}

fn request<O>(envelope: Envelope<'_, O>) -> Result<Request<'_, O>, BadRequest> {
    let Envelope { api_version, kind, request } = envelope;
    check_version(&api_version, &kind)?;
    let request = request.ok_or_else(|| {
        BadRequest::new(
            StatusCode::BAD_REQUEST,
            "the review has no request; expected .request with uid, operation and resource",
        )
    })?;
    let Request { uid, resource: of, user_info: user, .. } = &request;
    let options = [&request.sub_resource, &request.name, &request.namespace];
    check_lengths([uid, &of.group, &of.resource, &user.username])?;
    check_lengths(options.into_iter().flatten())?;
    Ok(request)
}

/// Answers, logs and live reads repeat these texts.
fn check_lengths<'t>(texts: impl IntoIterator<Item = &'t Text<'t>>) -> Result<(), BadRequest> {
    if texts.into_iter().all(|text| text.len() <= LONGEST) {
        return Ok(());
    }
    let message = format!("a name, uid, resource or user of the review has over {LONGEST} bytes");
    Err(BadRequest::new(StatusCode::BAD_REQUEST, message))
}

/// The start of a review, without its objects: the API server writes them behind all
/// that names the request.
pub fn start(body: &[u8]) -> Vec<u8> {
    // An authenticator may send an `extra` of this name as well.
    let ends = memchr::memmem::find_iter(body, b",\"object\":").take(4);
    let mut starts = ends.map(|end| [&body[..end], b"}}"].concat());
    let is_whole = |start: &Vec<u8>| serde_json::from_slice::<IgnoredAny>(start).is_ok();
    starts.find(is_whole).unwrap_or_else(|| body[..body.len().min(LONGEST)].to_vec())
}

/// Why the objects of a review are not read.
pub const NO_TIME: &str = "it is large, and there was no time left to read it";
pub const NO_MEMORY: &str = "its lists are long, and belay has no memory left for them";

/// Reads such a start. `why` is the reason that the answer gives.
pub fn parse_start<'a>(start: &'a [u8], why: &str) -> Result<Parsed<'a>, BadRequest> {
    let envelope: Envelope<'_, IgnoredAny> =
        serde_json::from_slice(start).map_err(|error| malformed(start, &error))?;
    Ok(unreadable_request(request(envelope)?, why.to_owned()))
}

/// As much of a stranger's text as an error message should repeat.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

fn review<'a>(request: Request<'a, Object<'a>>, door: Door) -> Review<'a> {
    let Request {
        uid,
        operation,
        resource: GroupResource { group, resource },
        sub_resource,
        name,
        namespace,
        user_info,
        dry_run,
        options,
        object,
        old_object,
    } = request;
    Review {
        uid,
        door,
        operation: operation.into(),
        resource: Resource { group, resource, subresource: sub_resource.unwrap_or_default() },
        name: name.unwrap_or_default(),
        namespace: namespace.unwrap_or_default(),
        user: user_info.into(),
        dry_run: dry_run.unwrap_or_default(),
        options: options.unwrap_or_default().into(),
        object,
        old_object,
        extra: Extra::default(),
        labelled: false,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
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
}

/// The bytes of the answer to the review `uid`.
pub fn respond(uid: &str, verdict: &Verdict, mut warnings: Vec<String>) -> Vec<u8> {
    warnings.extend(decide::warnings(verdict));
    let patch = decide::patch(verdict).map(|patch| STANDARD.encode(to_json(&patch)));
    let answer = Answer {
        api_version: API_VERSION,
        kind: KIND,
        response: Response {
            uid,
            allowed: verdict.decision.passes(),
            status: decide::message(verdict).map(|message| Status {
                code: match verdict.answer {
                    Refused::Forbidden => 403,
                    Refused::TooManyRequests => 429,
                },
                reason: verdict.reason.map_or("Forbidden", Reason::as_str),
                message,
            }),
            warnings,
            audit_annotations: decide::audit_annotations(verdict).into_iter().collect(),
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
        },
    };
    to_json(&answer)
}

/// These types have string keys only and no failing `Serialize`, so writing
/// them to memory cannot fail.
fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::OwnerReference;

    fn review(groups: usize, field: &str, value: &str) -> Vec<u8> {
        let groups = vec!["\"\""; groups].join(",");
        let object = format!(r#"{{"metadata":{{"name":"a","{field}":{value}}}}}"#);
        let request = format!(
            r#"{{"uid":"1","operation":"DELETE","resource":{{"resource":"configmaps"}},"name":"a",
            "userInfo":{{"username":"jane","groups":[{groups}]}},"oldObject":{object}}}"#
        );
        format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{request}}}"#).into()
    }

    #[test]
    fn h34_a_review_has_a_bounded_number_of_groups() {
        let body = review(counts::GROUPS, "labels", "null");
        let Parsed::Review(read) = parse(&body, Door::Validate).unwrap() else {
            panic!("it can be read")
        };
        assert_eq!(read.user.groups.len(), counts::GROUPS);
        let body = review(counts::GROUPS + 1, "labels", "null");
        let refused = parse(&body, Door::Validate).unwrap_err();
        assert_eq!(refused.code, StatusCode::BAD_REQUEST);
        assert!(refused.message.contains("more than 10000 groups in userInfo"), "{refused:?}");
    }

    #[test]
    fn h71_long_lists_are_counted_in_bytes_of_memory() {
        let bytes = |groups: usize| {
            let body = review(groups, "labels", "null");
            let Parsed::Review(read) = parse(&body, Door::Validate).unwrap() else {
                panic!("it can be read")
            };
            read.list_bytes()
        };
        assert_eq!(bytes(1_000) - bytes(0), 1_000 * size_of::<Text<'_>>());
        let metadata = r#"{"labels": {"a": ""}, "finalizers": ["a.b/c", "a.b/d"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}"#;
        let metadata: Metadata<'_> = serde_json::from_str(metadata).unwrap();
        let (text, reference) = (size_of::<Text<'_>>(), size_of::<OwnerReference<'_>>());
        assert_eq!(metadata.list_bytes(), 4 * text + reference);
    }

    #[test]
    fn h64_of_a_review_that_is_read_too_late_the_start_is_answered() {
        let body = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7",
            "resource":{"resource":"pods"},"name":"a","operation":"DELETE","userInfo":{"username":"jane"}
            ,"object":null,"oldObject":{"metadata"#;
        let start = start(body);
        let Parsed::Unreadable { uid, detail, target, .. } = parse_start(&start, NO_TIME).unwrap()
        else {
            panic!("it has no objects")
        };
        assert_eq!((&*uid, &*target.name), ("7", "a"));
        assert!(detail.contains("no time left"), "{detail}");
        assert_eq!(parse_start(b"}}", NO_TIME).err().unwrap().code, StatusCode::BAD_REQUEST);
        // An authenticator sent an `extra` of that name.
        let body =
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7",
            "resource":{"resource":"pods"},"name":"a","operation":"DELETE",
            "userInfo":{"extra":{"a":[],"object":[]}},"object":null,"oldObject":{"metadata"#;
        assert!(parse_start(&super::start(body), NO_TIME).is_ok());
    }

    #[test]
    fn h34_an_object_of_a_review_has_a_bounded_number_of_entries() {
        let finalizers = |count| format!("[{}]", vec!["\"a\""; count].join(","));
        let labels = |count| {
            let entries: Vec<String> = (0..count).map(|n| format!("\"{n}\":\"\"")).collect();
            format!("{{{}}}", entries.join(","))
        };
        let owner = r#"{"apiVersion":"v1","kind":"Pod","name":"a","uid":"a"}"#;
        let owners = |count| format!("[{}]", vec![owner; count].join(","));
        for (field, most, one_more) in [
            ("finalizers", finalizers(799_900), finalizers(800_001)),
            ("labels", labels(199_900), labels(200_001)),
            ("annotations", labels(199_900), labels(200_001)),
            ("ownerReferences", owners(199_900), owners(200_001)),
        ] {
            let body = review(0, field, &most);
            let read = parse(&body, Door::Validate).unwrap();
            assert!(matches!(read, Parsed::Review(_)), "{field}");
            let body = review(0, field, &one_more);
            let Parsed::Unreadable { detail, user, .. } = parse(&body, Door::Validate).unwrap()
            else {
                panic!("{field} is not bounded")
            };
            assert!(detail.starts_with("more than ") && user.name == "jane", "{detail}");
        }
    }

    /// An UPDATE that drops the hold, of an object with these fields and metadata.
    fn update(resource: &str, fields: &str, metadata: &str) -> Vec<u8> {
        let object = |finalizers: &str| {
            format!(r#"{{"metadata":{{"name":"a","uid":"u"{finalizers}{metadata}}}{fields}}}"#)
        };
        let held = object(r#","finalizers":["belay.dev/hold"]"#);
        format!(
            r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{{"uid":"1","operation":"UPDATE",
            "resource":{{"resource":"{resource}"}},"name":"a","userInfo":{{"username":"jane"}},
            "object":{},"oldObject":{held}}}}}"#,
            object("")
        )
        .into()
    }

    /// Whether a review is read, or why not.
    fn reads(body: &[u8]) -> Result<(), String> {
        match parse(body, Door::Mutate).unwrap() {
            Parsed::Review(_) => Ok(()),
            Parsed::Unreadable { detail, .. } => Err(detail),
        }
    }

    /// So many entries of a map.
    fn entries(count: usize) -> String {
        let entries: Vec<String> = (0..count).map(|n| format!("\"{n}\":\"\"")).collect();
        entries.join(",")
    }

    #[test]
    fn h49_what_a_second_look_reads_is_bounded() {
        let finalizers =
            |count| format!(r#","spec":{{"finalizers":[{}]}}"#, vec!["\"\""; count].join(","));
        let fields = |count| format!(",{}", entries(count));
        // What can be stored is read.
        assert_eq!(reads(&update("namespaces", &finalizers(600_000), "")), Ok(()));
        assert_eq!(reads(&update("configmaps", &fields(190_000), "")), Ok(()));
        assert_eq!(reads(&update("configmaps", "", &fields(190_000))), Ok(()));
        for body in [
            update("namespaces", &finalizers(900_000), ""),
            update("configmaps", &fields(210_000), ""),
            update("configmaps", "", &fields(210_000)),
        ] {
            let detail = reads(&body).unwrap_err();
            assert!(detail.starts_with("more than "), "{detail}");
        }
        // A spec of another type is not theirs.
        for spec in ["null", "7", "\"text\"", "[1]", r#"{"finalizers":{"a":[]}}"#] {
            assert_eq!(reads(&update("namespaces", &format!(r#","spec":{spec}"#), "")), Ok(()));
            let large = format!(r#","spec":{spec},"a":"{}""#, "a".repeat(1 << 20));
            assert_eq!(reads(&update("namespaces", &large, "")), Ok(()), "{spec}");
        }
    }

    #[test]
    fn h50_the_texts_that_an_answer_repeats_are_bounded() {
        let long = "n".repeat(1_025);
        let sample = String::from_utf8(review(1, "generateName", "\"g\"")).unwrap();
        let options = r#""name":"a","namespace":"b","subResource":"c""#;
        let sample = sample.replacen(r#""name":"a""#, options, 1);
        assert!(matches!(parse(sample.as_bytes(), Door::Validate).unwrap(), Parsed::Review(_)));
        for (short, text) in [
            (r#""uid":"1""#, format!(r#""uid":"{long}""#)),
            (r#""resource":"configmaps""#, format!(r#""resource":"{long}""#)),
            (r#""resource":"configmaps""#, format!(r#""resource":"configmaps","group":"{long}""#)),
            (r#""name":"a""#, format!(r#""name":"{long}""#)),
            (r#""namespace":"b""#, format!(r#""namespace":"{long}""#)),
            (r#""subResource":"c""#, format!(r#""subResource":"{long}""#)),
            (r#""username":"jane""#, format!(r#""username":"{long}""#)),
            (r#""metadata":{"name":"a""#, format!(r#""metadata":{{"name":"{long}""#)),
            (r#""generateName":"g""#, format!(r#""generateName":"{long}""#)),
            (r#""generateName":"g""#, format!(r#""namespace":"{long}""#)),
            (r#""generateName":"g""#, format!(r#""uid":"{long}""#)),
        ] {
            let body = sample.replacen(short, &text, 1);
            assert_ne!(body, sample, "{short}");
            let refused = parse(body.as_bytes(), Door::Validate).unwrap_err();
            assert_eq!(refused.code, StatusCode::BAD_REQUEST, "{short}");
            assert!(refused.message.len() < 200 && refused.message.contains("1024 bytes"));
        }
        // Of what can't be read, too.
        let body = sample.replace(r#""generateName":"g""#, r#""generateName":7"#);
        assert!(matches!(parse(body.as_bytes(), Door::Validate), Ok(Parsed::Unreadable { .. })));
        let body = body.replace(r#""uid":"1""#, &format!(r#""uid":"{long}""#));
        assert!(parse(body.as_bytes(), Door::Validate).is_err());
    }

    #[test]
    fn h56_all_lists_of_an_object_have_one_bound() {
        let finalizers = vec!["\"a\""; 400_000].join(",");
        let finalizers = format!(r#","finalizers":[{finalizers}]"#);
        let labels = format!(r#","labels":{{{}}}"#, entries(50_000));
        let annotations = format!(r#","annotations":{{{}}}"#, entries(60_000));
        let owner = r#"{"apiVersion":"v1","kind":"Pod","name":"a","uid":"a"}"#;
        let owners = format!(r#","ownerReferences":[{}]"#, vec![owner; 60_000].join(","));
        let ask = |lists: String| {
            let metadata = format!(r#"{{"name":"a"{lists}}}"#);
            let body = String::from_utf8(review(0, "x", "0")).unwrap();
            let body = body.replace(r#"{"name":"a","x":0}"#, &metadata);
            reads(body.as_bytes())
        };
        assert_eq!(ask(format!("{finalizers}{labels}")), Ok(()));
        assert_eq!(ask(format!("{labels}{annotations}{owners}")), Ok(()));
        let detail = ask(format!("{finalizers}{labels}{annotations}")).unwrap_err();
        assert!(detail.starts_with("more than "), "{detail}");
        let detail = ask(format!("{finalizers}{owners}{annotations}")).unwrap_err();
        assert!(detail.starts_with("more than "), "{detail}");
    }

    #[test]
    fn reads_the_finalizers_of_a_namespace_whatever_its_managed_fields_are() {
        let deep = format!("{}{{}}{}", "{\"f:a\":".repeat(300), "}".repeat(300));
        let namespace = |finalizers: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"shop","managedFields":[
                {{"fieldsV1":{deep}}},{{"fieldsV1":{{"f:XX":{{}}}}}}]}},"spec":{{"finalizers":{finalizers}}}}}"#
            )
        };
        let review = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","operation":"UPDATE",
            "resource":{{"group":"","version":"v1","resource":"namespaces"}},"subResource":"finalize","name":"shop",
            "userInfo":{{"username":"jane"}},"object":{},"oldObject":{}}}}}"#,
            namespace("[]"),
            namespace(r#"["kubernetes"]"#)
        );
        // In the place of a text, bytes that are none.
        let mut body = review.into_bytes();
        while let Some(at) = body.windows(2).position(|two| two == b"XX") {
            body[at..at + 2].fill(0xff);
        }
        let Parsed::Review(review) = parse(&body, Door::Validate).unwrap() else {
            panic!("it can be read")
        };
        assert_eq!(review.extra.old_spec_finalizers, ["kubernetes"]);
        assert_eq!(review.extra.new_spec_finalizers, Vec::<String>::new());
        assert!(review.extra.rest_changes);
    }

    #[test]
    fn h46_an_eviction_has_the_options_of_its_delete() {
        let read = |options: &str| {
            let request = format!(
                r#"{{"uid":"1","operation":"CREATE","resource":{{"resource":"pods"}},"subResource":"eviction",
                "name":"a","options":{{"dryRun":[]}},"object":{{"metadata":{{"name":"a"}}{options}}}}}"#
            );
            let body =
                format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{request}}}"#);
            match parse(body.as_bytes(), Door::Validate).unwrap() {
                Parsed::Review(review) => {
                    Ok(review.options.propagation_policy.map(|p| p.to_string()))
                }
                Parsed::Unreadable { detail, .. } => Err(detail),
            }
        };
        let orphan = r#","deleteOptions":{"gracePeriodSeconds":0,"propagationPolicy":"Orphan"}"#;
        assert_eq!(read(orphan), Ok(Some("Orphan".to_owned())));
        assert_eq!(read(r#","deleteOptions":null"#), Ok(None));
        assert_eq!(read(""), Ok(None));
        assert!(read(r#","deleteOptions":{"propagationPolicy":1}"#).is_err());
    }
}
