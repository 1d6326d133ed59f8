//! The AdmissionReview (`admission.k8s.io/v1`) that the API server sends.

use actix_web::http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::borrow::Cow;

use super::body::HttpRejection;
use super::entry_limits::{self, CountedObject, MAX_TEXT_BYTES};
use crate::decide::{AdmissionPhase, DeleteOptions, Operation, Resource, Review, ReviewDetails};
use crate::objects::{
    KeyedSet, Metadata, Object, ObjectRef, Text, is_dns_label, is_namespace, one_line,
};
use crate::policy::Requester;

pub(super) const API_VERSION: &str = "admission.k8s.io/v1";
pub(super) const KIND: &str = "AdmissionReview";

/// A parsed body.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an unreadable review is rare and is not stored")]
pub enum Parsed<'a> {
    /// A complete review.
    Review(Box<Review<'a>>),
    /// A review with an unreadable object. belay still answers it, so that the API server prints
    /// belay's message.
    Unreadable {
        /// The uid of the review, for the answer.
        uid: Text<'a>,
        /// The operation.
        operation: Operation,
        /// Who sends the request.
        requester: Requester<'a>,
        /// Whether the request is a dry run.
        dry_run: bool,
        /// The object of the request.
        target: ObjectRef,
        /// The error, and its position.
        detail: String,
    },
}

/// An AdmissionReview whose objects are parsed as `O`.
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

/// Only the objects of a review, so that parsing copies no other texts.
#[derive(Deserialize)]
struct Objects<'a> {
    #[serde(borrow)]
    request: ObjectsOfRequest<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectsOfRequest<'a> {
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
}

/// The fields of a review that an answer needs.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct AnswerFields<'a> {
    request: RequestHeader<'a>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct RequestHeader<'a> {
    uid: Text<'a>,
    operation: Operation,
    resource: GroupResource<'a>,
}

/// The fields that identify an AdmissionReview.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct VersionAndKind<'a> {
    #[serde(default)]
    api_version: Text<'a>,
    #[serde(default)]
    kind: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a, O: Deserialize<'de>"))]
struct Request<'a, O> {
    uid: Text<'a>,
    operation: Operation,
    #[serde(default)]
    kind: Option<WireKind<'a>>,
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

/// The default for a field of type `Option<O>`. Plain `serde(default)` would require `O: Default`.
fn none<T>() -> Option<T> {
    None
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct GroupResource<'a> {
    #[serde(default)]
    group: Text<'a>,
    resource: Text<'a>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct WireKind<'a> {
    #[serde(default)]
    kind: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct UserInfo<'a> {
    username: Text<'a>,
    #[serde(deserialize_with = "entry_limits::groups")]
    groups: KeyedSet<Text<'a>>,
}

impl<'a> From<UserInfo<'a>> for Requester<'a> {
    fn from(UserInfo { username, groups }: UserInfo<'a>) -> Self {
        Self { name: username, groups }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Options<'a> {
    #[serde(deserialize_with = "entry_limits::deserialize_short_text")]
    propagation_policy: Option<Text<'a>>,
    orphan_dependents: Option<bool>,
}

impl<'a> From<Options<'a>> for DeleteOptions<'a> {
    fn from(Options { propagation_policy, orphan_dependents }: Options<'a>) -> Self {
        Self { propagation_policy, orphan_dependents }
    }
}

/// The delete options of an Eviction.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Eviction<'a> {
    #[serde(default)]
    delete_options: Option<Options<'a>>,
}

/// Parses an envelope with its objects, if their lists are within the limits.
fn parse_envelope(body: &[u8]) -> Result<Envelope<'_, Object<'_>>, serde_json::Error> {
    if body.len() > entry_limits::MIN_COUNTED_BYTES {
        serde_json::from_slice::<Envelope<'_, CountedObject>>(body)?;
    }
    serde_json::from_slice(body)
}

/// Parses a body. If the review can't be parsed in one pass, parses it again to find the reason.
pub fn parse(body: &[u8], phase: AdmissionPhase) -> Result<Parsed<'_>, HttpRejection> {
    let error = match parse_envelope(body) {
        Ok(envelope) => {
            let mut request = into_request(envelope)?;
            for object in request.old_object.iter_mut().chain(&mut request.object) {
                // The API server accepts any length, and uses only the start.
                shorten(&mut object.metadata.generate_name);
            }
            if let Some(detail) = defect(&request) {
                return Ok(unreadable_request(request, detail));
            }
            let mut review = into_review(request, phase);
            if let Err(error) = add_details(&mut review, body) {
                return Ok(unreadable_review(&review, &error));
            }
            return Ok(Parsed::Review(Box::new(review)));
        }
        Err(error) => error,
    };
    // If the version or kind is wrong, this explains the error better.
    if let Ok(found) = serde_json::from_slice::<VersionAndKind<'_>>(body) {
        check_version(&found.api_version, &found.kind)?;
    }
    parse_unreadable(body, describe(&error))
}

/// Parses a review without its objects. If that fails, parses only the fields that an answer
/// needs. `detail` is the reason in the answer.
fn parse_unreadable(body: &[u8], detail: String) -> Result<Parsed<'_>, HttpRejection> {
    let error = match serde_json::from_slice::<Envelope<'_, &RawValue>>(body) {
        Ok(envelope) => return Ok(unreadable_request(into_request(envelope)?, detail)),
        Err(error) => error,
    };
    let fields: Result<AnswerFields<'_>, _> = serde_json::from_slice(body);
    let AnswerFields { request: RequestHeader { uid, operation, resource } } =
        fields.map_err(|_| malformed(body, &error))?;
    check_uid(&uid)?;
    Ok(Parsed::Unreadable {
        uid,
        operation,
        requester: UserInfo::default().into(),
        dry_run: false,
        target: ObjectRef {
            resource: cut(&resource.resource).to_owned(),
            group: cut(&resource.group).to_owned(),
            ..ObjectRef::default()
        },
        detail,
    })
}

/// Describes a missing field of a request, a field that is longer than in any stored object, or an
/// invalid namespace. Clients can send such requests. belay must answer them, because an HTTP error
/// would let the request pass if a webhook has `failurePolicy: Ignore`.
fn defect(request: &Request<'_, Object<'_>>) -> Option<String> {
    match request.operation {
        Operation::Delete if request.old_object.is_none() => {
            return Some("the review has no .request.oldObject".to_owned());
        }
        Operation::Create if request.object.is_none() => {
            return Some("the review has no .request.object".to_owned());
        }
        _ => {}
    }
    let Request { resource, user_info: user, sub_resource, name, namespace, .. } = request;
    let optional = [sub_resource, name, namespace].into_iter().flatten();
    if optional
        .chain([&resource.group, &resource.resource, &user.username])
        .any(|text| text.len() > MAX_TEXT_BYTES)
    {
        return Some(format!(
            "a name, resource or user of the request has over {MAX_TEXT_BYTES} bytes"
        ));
    }
    // belay writes Events to this namespace. With other characters, the name could lead to another
    // path of the API server.
    let own_name = name.as_ref().filter(|_| is_namespace(&resource.group, &resource.resource));
    if namespace.iter().chain(own_name).any(|name| !name.is_empty() && !is_dns_label(name)) {
        return Some("the namespace of the request is not a valid name of a Namespace".to_owned());
    }
    let mut objects = request.old_object.iter().chain(&request.object);
    let is_too_long = |object: &Object<'_>| {
        let Metadata { name, namespace, uid, .. } = &object.metadata;
        [name, namespace, uid].iter().any(|text| text.len() > MAX_TEXT_BYTES)
    };
    let words = || format!("a name, namespace or uid in it has over {MAX_TEXT_BYTES} bytes");
    objects.any(is_too_long).then(words)
}

/// Parses the body a second time, for the decisions that need more fields.
fn add_details<'a>(review: &mut Review<'a>, body: &'a [u8]) -> Result<(), serde_json::Error> {
    if review.needs_details() {
        review.details = read_details(body)?;
    }
    if review.is_eviction() {
        let envelope: Envelope<'_, Eviction<'_>> = serde_json::from_slice(body)?;
        let eviction = envelope.request.and_then(|request| request.object);
        let options = eviction.and_then(|eviction| eviction.delete_options);
        review.options = options.unwrap_or_default().into();
    }
    Ok(())
}

/// Reads the details of the objects. Clients may nest an object to any depth, and write invalid
/// UTF-8.
fn read_details(body: &[u8]) -> Result<ReviewDetails, serde_json::Error> {
    let text =
        std::str::from_utf8(body).map_or_else(|_| replace_invalid(body).into(), Cow::Borrowed);
    let Objects { request: ObjectsOfRequest { object, old_object } } = serde_json::from_str(&text)?;
    Ok(ReviewDetails::read(old_object, object))
}

/// The body with a question mark for each invalid sequence.
fn replace_invalid(body: &[u8]) -> String {
    let mut text = String::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push('?');
        }
    }
    text
}

/// A review whose objects were parsed, but not all their details.
fn unreadable_review<'a>(review: &Review<'a>, error: &serde_json::Error) -> Parsed<'a> {
    Parsed::Unreadable {
        uid: review.uid.clone(),
        operation: review.operation,
        requester: review.requester.clone(),
        dry_run: review.dry_run,
        target: review.target(),
        detail: describe(error),
    }
}

fn unreadable_request<O>(request: Request<'_, O>, detail: String) -> Parsed<'_> {
    let mut requester = Requester::from(request.user_info);
    shorten(&mut requester.name);
    Parsed::Unreadable {
        target: ObjectRef {
            resource: cut(&request.resource.resource).to_owned(),
            group: cut(&request.resource.group).to_owned(),
            namespace: cut(&request.namespace.unwrap_or_default()).to_owned(),
            name: cut(&request.name.unwrap_or_default()).to_owned(),
            // The kind of a subresource may be another one, such as Eviction.
            kind: match (request.kind, request.sub_resource) {
                (Some(kind), None) => cut(&kind.kind).to_owned(),
                _ => String::new(),
            },
        },
        uid: request.uid,
        operation: request.operation,
        requester,
        dry_run: request.dry_run.unwrap_or_default(),
        detail,
    }
}

/// Describes a parse error and its position. The message of the parser may quote a secret from
/// the object. So this repeats only messages that name fields of belay's own types.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let safe_prefixes = ["missing field `", "duplicate field `", entry_limits::TOO_MANY];
    let is_safe = safe_prefixes.iter().any(|prefix| text.starts_with(prefix));
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        _ if is_safe => text,
        serde_json::error::Category::Data => {
            format!("a value of the wrong type at line {line} column {column}")
        }
        serde_json::error::Category::Eof => {
            format!("the text ends too early, at line {line} column {column}")
        }
        _ => format!("a syntax error at line {line} column {column}"),
    }
}

/// The error for a body that is no review: whether it is not JSON, or other JSON.
fn malformed(body: &[u8], error: &serde_json::Error) -> HttpRejection {
    let expected = format!("expected an {KIND} of {API_VERSION}");
    let detail = describe(error);
    let message = match error.classify() {
        serde_json::error::Category::Data => {
            format!("the body is JSON, but not a valid AdmissionReview: {detail}; {expected}")
        }
        _ if body.is_empty() => format!("the body is empty; {expected}"),
        _ => format!("the body is not JSON: {detail}; {expected}"),
    };
    HttpRejection::new(StatusCode::BAD_REQUEST, message)
}

/// The limit of characters of a client's text that an error message repeats.
pub(super) const MAX_REPEATED: usize = 64;

fn check_version(api_version: &str, kind: &str) -> Result<(), HttpRejection> {
    if api_version == API_VERSION && kind == KIND {
        return Ok(());
    }
    Err(HttpRejection::new(
        StatusCode::BAD_REQUEST,
        format!(
            "the body has apiVersion \"{}\" and kind \"{}\"; expected \"{API_VERSION}\" and \
             \"{KIND}\"",
            one_line(api_version, MAX_REPEATED),
            one_line(kind, MAX_REPEATED)
        ),
    ))
}

fn into_request<O>(envelope: Envelope<'_, O>) -> Result<Request<'_, O>, HttpRejection> {
    let Envelope { api_version, kind, request } = envelope;
    check_version(&api_version, &kind)?;
    let request = request.ok_or_else(|| {
        HttpRejection::new(
            StatusCode::BAD_REQUEST,
            "the review has no request; expected .request with uid, operation and resource",
        )
    })?;
    check_uid(&request.uid)?;
    Ok(request)
}

/// The answer repeats the uid, so its length needs a limit.
fn check_uid(uid: &Text<'_>) -> Result<(), HttpRejection> {
    if uid.len() <= MAX_TEXT_BYTES {
        return Ok(());
    }
    let message = format!("the uid of the review has over {MAX_TEXT_BYTES} bytes");
    Err(HttpRejection::new(StatusCode::BAD_REQUEST, message))
}

/// At most the first `MAX_TEXT_BYTES` of a text, for answers, logs and live reads.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

fn shorten(text: &mut Text<'_>) {
    if text.len() > MAX_TEXT_BYTES {
        *text = Text::from(cut(text)).to_static();
    }
}

/// The start of a review, without its objects. The API server writes the objects after the fields
/// that identify the request.
pub fn truncate_before_objects(body: &[u8]) -> Vec<u8> {
    // The user info may contain this key as well.
    let ends = memchr::memmem::find_iter(body, b",\"object\":").take(4);
    let mut starts = ends.map(|end| [&body[..end], b"}}"].concat());
    let is_valid = |start: &Vec<u8>| serde_json::from_slice::<IgnoredAny>(start).is_ok();
    starts.find(is_valid).unwrap_or_else(|| body[..body.len().min(MAX_TEXT_BYTES)].to_vec())
}

/// Why the objects of a review were not read: no time.
pub const NO_TIME: &str = "it is large, and there was no time left to read it";
/// Why the objects of a review were not read: no memory.
pub const NO_MEMORY: &str = "its lists are long, and belay has no memory left for them";

/// Parses the result of [`truncate_before_objects`]. `why` is the reason in the answer.
pub fn parse_truncated<'a>(truncated: &'a [u8], why: &str) -> Result<Parsed<'a>, HttpRejection> {
    parse_unreadable(truncated, why.to_owned())
}

fn into_review<'a>(request: Request<'a, Object<'a>>, phase: AdmissionPhase) -> Review<'a> {
    let Request {
        uid,
        operation,
        kind: _,
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
    let name = name.unwrap_or_default();
    // The API server gives the name of a Namespace as its namespace. Another caller could name any
    // namespace, and use up its turns and log lines.
    let namespace = match is_namespace(&group, &resource) {
        true => name.clone(),
        false => namespace.unwrap_or_default(),
    };
    Review {
        uid,
        phase,
        operation,
        resource: Resource { group, resource, subresource: sub_resource.unwrap_or_default() },
        name,
        namespace,
        requester: user_info.into(),
        dry_run: dry_run.unwrap_or_default(),
        options: options.unwrap_or_default().into(),
        object,
        old_object,
        details: ReviewDetails::default(),
        labelled: false,
    }
}

#[cfg(test)]
mod tests;
