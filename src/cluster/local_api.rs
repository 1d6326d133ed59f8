//! An API server inside this process, which answers from files or from the script of a test.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response, header};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// A client whose requests a function answers one after the other with an HTTP status code and a
/// body. If the function returns `None`, the request gets no answer. The body of a request is Null
/// if it has none.
pub fn local_client<Text: ToString + Send + 'static>(
    answer: impl FnMut(Request<Value>) -> Option<(u16, Text)> + Send + 'static,
) -> kube::Client {
    let answer = Arc::new(Mutex::new(answer));
    concurrent_client(move |request| {
        let answered = answer.lock()(request);
        async move {
            match answered {
                Some(answered) => answered,
                None => std::future::pending().await,
            }
        }
    })
}

/// A client whose requests an async function answers concurrently.
pub fn concurrent_client<Text: ToString, Answering>(
    answer: impl Fn(Request<Value>) -> Answering + Send + Sync + 'static,
) -> kube::Client
where
    Answering: Future<Output = (u16, Text)> + Send,
{
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, text) = answer(Request::from_parts(parts, body)).await;
            let mut response = Response::new(Body::from(text.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            Ok::<_, Infallible>(response)
        }
    });
    kube::Client::new(service, "default")
}

/// The answer for a failed request about an object, by its plural and name.
pub fn failure(code: u16, message: &str, (resource, name): (&str, &str)) -> (u16, Value) {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": match code {
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            422 => "Invalid",
            _ => "BadRequest",
        },
        "details": {"kind": resource, "name": name},
        "code": code,
    });
    (code, status)
}
