//! POST /validate and POST /mutate.

use std::time::{Duration, Instant};

use actix_web::http::header::{self, ContentType, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse, web};
use tokio::sync::OwnedSemaphorePermit;

use super::body::{self, Body, BodyMemory, HttpRejection, Reserved, ResponseBody};
use super::connection::ConnectionControl;
use super::draining::Draining;
use super::path::{AcceptedPaths, SECRET_PATH_DIGITS};
use super::response::review_response_json;
use super::verdict_log::{ReviewSummary, record_verdict};
use super::wire::{self, Parsed};
use super::{LABELLED, Shared};
use crate::decide::{
    AdmissionPhase, FailurePolicy, Operation, Recordable, decide_paused, decide_unreadable,
};
use crate::objects::{one_line, one_line_name};
use crate::policy::Requester;
use crate::telemetry::LineLimit;

/// A larger body can take over 7 ms, if it consists of labels. So another thread parses it, one
/// body at a time.
pub(super) const MAX_QUICK_BYTES: usize = 128 << 10;

/// Routes for both phases. `route` finds the phase itself, because actix would match paths with a
/// secret by regular expressions, which take milliseconds for a long path of any client.
pub fn routes(config: &mut web::ServiceConfig) {
    config.default_service(web::to(route));
}

async fn route(
    request: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
    memory: web::Data<BodyMemory>,
    draining: web::Data<Draining>,
) -> HttpResponse {
    match phase_of(request.path(), shared.secret_paths.as_deref()) {
        None => not_found(&request, payload, &shared),
        Some(phase) if request.method() == Method::POST => {
            admit(phase, &request, payload, (&shared, &memory), &draining).await
        }
        Some(_) => wrong_method(&request, payload, &shared),
    }
}

/// The phase of a path: `/validate` or `/mutate`, with or without `/labelled`, after the secret if
/// there is one. `None` for any other path.
fn phase_of(path: &str, secret_paths: Option<&AcceptedPaths>) -> Option<AdmissionPhase> {
    let path = match secret_paths {
        None => path,
        Some(secret_paths) => {
            let (segment, path) = path.strip_prefix('/')?.split_at_checked(SECRET_PATH_DIGITS)?;
            secret_paths.accepts(segment).then_some(path)?
        }
    };
    let path = path.strip_suffix(LABELLED).unwrap_or(path).strip_prefix('/')?;
    [AdmissionPhase::Validate, AdmissionPhase::Mutate].into_iter().find(|p| p.as_str() == path)
}

fn wrong_method(request: &HttpRequest, payload: web::Payload, shared: &Shared) -> HttpResponse {
    // The path may contain the secret.
    let message = format!("this path takes POST, not {}", wire::cut(request.method().as_str()));
    let rejection = HttpRejection::new(StatusCode::METHOD_NOT_ALLOWED, message);
    let mut response = log_and_reject(request, shared, rejection, payload);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}

/// Any client that reaches the port can cause this answer, so belay counts it but logs nothing.
fn not_found(request: &HttpRequest, payload: web::Payload, shared: &Shared) -> HttpResponse {
    let message = match shared.secret_paths {
        Some(_) => "not found",
        None => "there is nothing here; belay answers POST /validate and POST /mutate",
    };
    answer_rejection(request, shared, HttpRejection::new(StatusCode::NOT_FOUND, message), payload)
}

async fn admit(
    phase: AdmissionPhase,
    request: &HttpRequest,
    mut payload: web::Payload,
    (shared, memory): (&web::Data<Shared>, &BodyMemory),
    draining: &Draining,
) -> HttpResponse {
    if let Some(connection) = ConnectionControl::from_request(request) {
        connection.set_known_caller();
    }
    match answer(phase, request, &mut payload, shared, memory).await {
        Ok((bytes, memory)) => {
            let mut response = HttpResponse::Ok();
            if draining.is_draining() {
                // The client must send its next request to another replica.
                response.force_close();
            }
            response
                .content_type(ContentType::json())
                .body(ResponseBody::new(bytes, request, memory))
        }
        Err(rejection) => log_and_reject(request, shared, rejection, payload),
    }
}

async fn answer(
    phase: AdmissionPhase,
    request: &HttpRequest,
    payload: &mut web::Payload,
    shared: &Shared,
    memory: &BodyMemory,
) -> Result<(Vec<u8>, Reserved), HttpRejection> {
    require_json(request)?;
    let limits = &shared.limits;
    let limit = parse_timeout(request.query_string())?
        .map_or(limits.answer_timeout, |timeout| limits.answer_timeout.min(timeout.mul_f32(0.9)));
    let deadline = Instant::now() + limit;
    let body = body::read(request, payload, memory, limit).await?;
    if let Some(connection) = ConnectionControl::from_request(request) {
        connection.set_awaiting_answer();
    }
    let labelled = request.path().ends_with(LABELLED);
    let parameters = ReviewParameters { phase, labelled, deadline, is_late: false };
    if body.bytes.len() <= MAX_QUICK_BYTES {
        return Ok((
            decide_review(parameters, &body.bytes, shared, memory, None).await?,
            body.memory,
        ));
    }
    // Wait only for a part of the limit, because the time of the API server is already running.
    let permit = memory.acquire_parse_permit(limit / 4).await;
    // Without a permit, answer now without the objects: a late answer would let the request pass
    // if the failurePolicy is Ignore.
    let parameters = ReviewParameters { is_late: permit.is_none(), ..parameters };
    // A large review takes long, and this thread must answer others.
    let (shared, shared_memory) = (Shared::clone(shared), memory.clone());
    let runtime = tokio::runtime::Handle::current();
    let answered = web::block(move || {
        let Body { bytes, memory } = body;
        let answered =
            runtime.block_on(decide_review(parameters, &bytes, &shared, &shared_memory, permit));
        (answered, memory)
    });
    let (bytes, memory) = answered.await.map_err(|_| {
        HttpRejection::new(StatusCode::SERVICE_UNAVAILABLE, "belay has no free thread; try again")
    })?;
    Ok((bytes?, memory))
}

/// The parameters of a review from its URL and connection.
#[derive(Clone, Copy)]
struct ReviewParameters {
    phase: AdmissionPhase,
    labelled: bool,
    deadline: Instant,
    /// Whether there is no time to read its objects.
    is_late: bool,
}

/// Answers the review in a body. The permit is returned after parsing.
async fn decide_review(
    ReviewParameters { phase, labelled, deadline, is_late }: ReviewParameters,
    body: &[u8],
    shared: &Shared,
    memory: &BodyMemory,
    permit: Option<OwnedSemaphorePermit>,
) -> Result<Vec<u8>, HttpRejection> {
    let started = Instant::now();
    let summarize = |operation: Operation, requester: &Requester<'_>, dry_run| ReviewSummary {
        phase,
        operation: operation.as_str(),
        class: requester.class(),
        user: one_line_name(&requester.name).into_owned(),
        dry_run,
    };
    let truncated;
    let complete = match is_late {
        true => None,
        false => parse_complete_review(body, phase, memory, (permit, deadline)).await?,
    };
    let is_complete = complete.is_some();
    let (parsed, list_memory) = match complete {
        Some(complete) => complete,
        None => {
            truncated = wire::truncate_before_objects(body);
            let why = if is_late { wire::NO_TIME } else { wire::NO_MEMORY };
            (wire::parse_truncated(&truncated, why)?, Reserved::new())
        }
    };
    let (summary, verdict, bytes) = match parsed {
        Parsed::Review(mut review) => {
            review.labelled = labelled;
            let verdict = shared.decider.decide(&review, deadline).await;
            let bytes = review_response_json(&review.uid, &verdict, Vec::new());
            (summarize(review.operation, &review.requester, review.dry_run), verdict, bytes)
        }
        Parsed::Unreadable { uid, operation, requester, dry_run, target, detail } => {
            let warning = format!("belay could not read this request's object: {detail}");
            static LINES: LineLimit = LineLimit::new();
            if let Some(suppressed) = LINES.admit_log_line(started) {
                tracing::warn!(detail, left_out = suppressed, "unreadable review");
            }
            // `failure_policy` is for objects that can't be parsed. If there was no time or
            // memory to parse them, validation denies the request.
            let policy = match phase {
                _ if is_complete => shared.failure_policy,
                AdmissionPhase::Mutate => FailurePolicy::Ignore,
                AdmissionPhase::Validate => FailurePolicy::Fail,
            };
            let mut verdict = decide_unreadable(target, detail, policy);
            if shared.decider.is_paused() {
                verdict = decide_paused(verdict);
            }
            // The objects were not read, so they may not exist.
            verdict.recordable = Recordable::No;
            let bytes = review_response_json(&uid, &verdict, vec![warning]);
            (summarize(operation, &requester, dry_run), verdict, bytes)
        }
    };
    drop(list_memory);
    record_verdict(shared, &summary, &verdict, started.elapsed());
    Ok(bytes)
}

/// Parses a whole review, and reserves memory for its lists. Returns `None` if there is no
/// memory. The permit is returned after parsing.
async fn parse_complete_review<'b>(
    body: &'b [u8],
    phase: AdmissionPhase,
    memory: &BodyMemory,
    (permit, deadline): (Option<OwnedSemaphorePermit>, Instant),
) -> Result<Option<(Parsed<'b>, Reserved)>, HttpRejection> {
    let parsed = wire::parse(body, phase)?;
    drop(permit);
    let Parsed::Review(review) = &parsed else { return Ok(Some((parsed, Reserved::new()))) };
    let bytes = review.list_bytes();
    if let Some(memory) = memory.reserve_list_memory(bytes, Duration::ZERO).await {
        return Ok(Some((parsed, memory)));
    }
    // While it waits for memory, a review only keeps its body.
    drop(parsed);
    let wait = deadline.saturating_duration_since(Instant::now()) / 4;
    let Some(reserved) = memory.reserve_list_memory(bytes, wait).await else { return Ok(None) };
    let is_large = body.len() > MAX_QUICK_BYTES;
    let permit = if is_large { memory.acquire_parse_permit(wait).await } else { None };
    if is_large && permit.is_none() {
        return Ok(None);
    }
    Ok(Some((wire::parse(body, phase)?, reserved)))
}

fn require_json(request: &HttpRequest) -> Result<(), HttpRejection> {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let essence = value.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let essence = one_line(essence, wire::MAX_REPEATED);
    Err(HttpRejection::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("the content type is \"{essence}\"; expected application/json"),
    ))
}

/// The timeout of the API server, as `?timeout=5s` in whole seconds. With less than one
/// second, live reads would have too little time.
fn parse_timeout(query: &str) -> Result<Option<Duration>, HttpRejection> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let seconds = value.and_then(|value| value.strip_suffix('s')?.parse::<f32>().ok());
    if seconds.is_some_and(|seconds| seconds < 1.0) {
        let message = "the timeout is below one second; expected at least timeout=1s";
        return Err(HttpRejection::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(seconds.and_then(|seconds| Duration::try_from_secs_f32(seconds).ok()))
}

fn log_and_reject(
    request: &HttpRequest,
    shared: &Shared,
    rejection: HttpRejection,
    unread: web::Payload,
) -> HttpResponse {
    static LINES: LineLimit = LineLimit::new();
    let HttpRejection { code, message } = &rejection;
    if let Some(suppressed) = LINES.admit_log_line(Instant::now()) {
        tracing::warn!(code = code.as_u16(), message, left_out = suppressed, "bad request");
    }
    answer_rejection(request, shared, rejection, unread)
}

fn answer_rejection(
    request: &HttpRequest,
    shared: &Shared,
    rejection: HttpRejection,
    unread: web::Payload,
) -> HttpResponse {
    let HttpRejection { code, message } = rejection;
    shared.metrics.count_bad_request(code.as_u16());
    if let Some(connection) = ConnectionControl::from_request(request) {
        connection.end_requests();
    }
    HttpResponse::build(code)
        .force_close()
        .content_type(ContentType::plaintext())
        .body(ResponseBody::new(format!("{message}\n").into_bytes(), request, unread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::SecretPath;

    #[test]
    fn h147_only_the_exact_paths_with_the_secret_are_found() {
        let accepted = SecretPath::generate().unwrap();
        let secret_paths = AcceptedPaths::default();
        secret_paths.replace(vec![accepted.clone()]);
        let secret = accepted.expose();
        let (validate, mutate) = (Some(AdmissionPhase::Validate), Some(AdmissionPhase::Mutate));
        let long = format!("/{}/validate", "a".repeat(16_000));
        for (path, phase) in [
            (format!("/{secret}/validate"), validate),
            (format!("/{secret}/validate/labelled"), validate),
            (format!("/{secret}/mutate"), mutate),
            (format!("/{secret}/mutate/labelled"), mutate),
            (format!("/{secret}/labelled"), None),
            (format!("/{secret}/validate/"), None),
            (format!("/{secret}//validate"), None),
            (format!("/{secret}validate"), None),
            (format!("/{secret}"), None),
            (format!("/{}/validate", "0".repeat(SECRET_PATH_DIGITS)), None),
            ("/validate".to_owned(), None),
            (format!("/{}", "é".repeat(40)), None),
            (long, None),
        ] {
            assert_eq!(phase_of(&path, Some(&secret_paths)), phase, "{path}");
        }
        assert_eq!(phase_of("/validate", None), validate);
        assert_eq!(phase_of("/mutate/labelled", None), mutate);
        assert_eq!(phase_of("/", None), None);
    }

    #[test]
    fn reads_the_timeout_of_the_caller_and_ignores_invalid_ones() {
        for (query, expected) in [
            ("timeout=5s", Some(5.0)),
            ("a=b&timeout=1.5s", Some(1.5)),
            ("timeout=500ms", None),
            ("timeout=NaNs", None),
            ("timeout=1e30s", None),
            ("timeout=s", None),
            ("", None),
        ] {
            let timeout = parse_timeout(query).unwrap();
            assert_eq!(timeout.map(|d| d.as_secs_f32()), expected, "{query}");
        }
    }

    #[test]
    fn h35_a_timeout_below_one_second_is_a_bad_request() {
        for query in ["timeout=0.16s", "a=b&timeout=0s", "timeout=-1s"] {
            assert_eq!(parse_timeout(query).unwrap_err().code, StatusCode::BAD_REQUEST);
        }
    }
}
