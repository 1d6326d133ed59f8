//! The requests of a release, and what their answers mean to it.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use http::Request;
use kube::api::Patch;
use serde_json::Value;
use tokio::time::timeout;

use crate::cluster::api::{self, Body, Detail};
use crate::cluster::api_error::{chain, shortened};
use crate::cluster::list::{Buffers, read_object};
use crate::cluster::pace::within;
use crate::cluster::release::protobuf;
use crate::cluster::world::{ObjectKey, World};
use crate::hold::{RequestResult, TargetState};
use crate::objects::{ApiError, KindInfo, read_tolerant};
use crate::telemetry::NamespaceLineLimit;

/// The time limit of one read or patch of the target. A patch may take three requests. A longer
/// limit is useless, because the reads of the pass are too old by then.
const LIMIT: Duration = Duration::from_secs(10);

/// Sends the requests about one target.
#[derive(Debug, Clone)]
pub struct TargetClient {
    pub info: KindInfo,
    pub namespace: String,
    pub name: String,
    pub detail: Detail,
    /// The memory for large objects.
    pub buffers: Buffers,
}

/// The response to a request about the target.
#[derive(Debug)]
pub struct Response {
    /// The meaning of the response for a release.
    pub result: RequestResult,
    /// The target in the response.
    pub object: Result<Value, ApiError>,
}

impl Response {
    fn lost(error: ApiError) -> Self {
        Self { result: RequestResult::Unknown, object: Err(error) }
    }
}

/// Why the response to a request contains no object.
enum SendFailure {
    Unsent(ApiError),
    Failed(kube::Error),
}

/// Why the API server can't patch an object as JSON, although the patch itself is valid. belay then
/// patches the protobuf of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonPatchProblem {
    /// The API server can't decode the patched JSON, because a time in the object is not valid in
    /// JSON (H131). The managedFields, which can contain that time, must be reset as well.
    InvalidTime,
    /// The API server rejects the patched object, because JSON can't express all stored values, such
    /// as bytes that are not UTF-8. So a patch as JSON also changes fields that are immutable, or
    /// makes the object too large (H166, H171).
    LossyJson,
}

impl SendFailure {
    fn json_patch_problem(&self) -> Option<JsonPatchProblem> {
        let Self::Failed(kube::Error::Api(status)) = self else { return None };
        let message = &status.message;
        if status.code >= 500 {
            let is_too_large = ["request is too large", "ResourceExhausted"]
                .iter()
                .any(|reason| message.contains(reason));
            return is_too_large.then_some(JsonPatchProblem::LossyJson);
        }
        // Tests only the beginning, because belay reads only that part of a long message.
        let (_, reason) = message.split_once(" is invalid: ")?;
        (status.code == 422).then(|| match reason.starts_with("patch: Invalid value: ") {
            true => JsonPatchProblem::InvalidTime,
            false => JsonPatchProblem::LossyJson,
        })
    }
}

impl TargetClient {
    /// The client for the object with this key.
    pub fn at(world: &World, (kind, namespace, name): &ObjectKey) -> Self {
        Self {
            info: world.graph.kinds.info(*kind).clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            detail: world.detail(*kind),
            buffers: Buffers::new(1),
        }
    }

    /// Shares the memory for large objects with other clients.
    pub fn with_buffers(self, buffers: Buffers) -> Self {
        Self { buffers, ..self }
    }

    /// If a log line about the target may be written now, returns the number of omitted lines
    /// since the last one.
    pub fn admit_log_line(&self) -> Option<u64> {
        static LINES: LazyLock<NamespaceLineLimit> = LazyLock::new(NamespaceLineLimit::default);
        LINES.admit_log_line(&self.namespace, Instant::now())
    }

    /// Reads the target.
    pub async fn get(&self, client: &kube::Client) -> Response {
        let request = api::get_request(&self.info, self.namespace_and_name(), self.detail);
        self.await_response(self.send(client, request)).await
    }

    /// Patches the finalizers and annotations of the target. If the API server can't patch its JSON,
    /// replaces the target by its patched protobuf.
    pub async fn patch(&self, client: &kube::Client, patch: &json_patch::Patch) -> Response {
        self.await_response(async {
            let request = api::patch_request(
                &self.info,
                self.namespace_and_name(),
                &Patch::<Value>::Json(patch.clone()),
                self.detail,
            );
            let sent = self.send(client, request).await;
            let problem = sent.as_ref().err().and_then(SendFailure::json_patch_problem);
            let Some(problem) = problem else { return sent };
            let body = {
                let _permit = self.buffers.acquire().await;
                let read = api::protobuf(client, &self.info, self.namespace_and_name()).await;
                // Custom resources have no protobuf.
                let Ok(Some(object)) = read else { return sent };
                let version = self.info.api_version();
                let reset = (problem == JsonPatchProblem::InvalidTime).then_some(&*version);
                let Some(object) = protobuf::patch(&object, patch, reset) else { return sent };
                let request = api::replace_request(
                    &self.info,
                    self.namespace_and_name(),
                    object,
                    self.detail,
                );
                let request = request.map_err(SendFailure::Unsent)?;
                api::send(client, request).await.map_err(SendFailure::Failed)?
            };
            Ok(self.read(body).await)
        })
        .await
    }

    /// Resets the managedFields of the target if they are nested too deeply (H137). Returns whether
    /// they were.
    pub async fn reset_deep_fields(&self, client: &kube::Client) -> Result<bool, ApiError> {
        let _permit = self.buffers.acquire().await;
        let read = within(api::protobuf(client, &self.info, self.namespace_and_name())).await?;
        let version = self.info.api_version();
        let reset = read.and_then(|object| protobuf::reset_deep_fields(&object, &version));
        let Some(object) = reset else { return Ok(false) };
        let request =
            api::replace_request(&self.info, self.namespace_and_name(), object, Detail::Metadata)?;
        within(api::send(client, request)).await?;
        Ok(true)
    }

    fn namespace_and_name(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    /// Sends a request. Returns `None` if the API server carried it out and its response can't
    /// be read.
    async fn send(
        &self,
        client: &kube::Client,
        request: Result<Request<Vec<u8>>, ApiError>,
    ) -> Result<Option<Value>, SendFailure> {
        let request = request.map_err(SendFailure::Unsent)?;
        let body = api::send(client, request).await.map_err(SendFailure::Failed)?;
        Ok(self.read(body).await)
    }

    /// Reads the object in an answer. An answer that breaks off proves nothing.
    async fn read(&self, body: Body) -> Option<Value> {
        let read = read_object(body, &self.buffers, |json| read_tolerant(json).ok()).await;
        read.ok().flatten()
    }

    async fn await_response(
        &self,
        sending: impl Future<Output = Result<Option<Value>, SendFailure>>,
    ) -> Response {
        let value = match timeout(LIMIT, sending).await {
            Ok(Ok(value)) => value,
            Ok(Err(SendFailure::Unsent(error))) => {
                let result = RequestResult::Failed(error.to_string().into());
                return Response { result, object: Err(error) };
            }
            Ok(Err(SendFailure::Failed(error))) => {
                return Response {
                    result: self.result_of_error(&error),
                    object: Err(error.into()),
                };
            }
            Err(_) => return Response::lost(ApiError::TimedOut(LIMIT)),
        };
        match value.map(|value| (TargetState::read(&value), value)) {
            Some((Some(observed), value)) => {
                Response { result: RequestResult::Object(observed), object: Ok(value) }
            }
            // The API server carried the request out, and its result is unknown.
            _ => Response::lost(ApiError::Unreadable("the answer can't be read".to_owned())),
        }
    }

    fn result_of_error(&self, error: &kube::Error) -> RequestResult {
        let kube::Error::Api(status) = error else { return RequestResult::Unknown };
        let details = status.details.as_ref();
        let names_kind = |kind: &str| details.is_some_and(|details| details.kind == kind);
        let names_target = details.is_some_and(|details| details.name == self.name);
        match status.code {
            404 if names_kind("namespaces") => RequestResult::NamespaceMissing,
            404 if names_target => RequestResult::TargetMissing,
            404 => RequestResult::Failed("the API server does not serve its kind".into()),
            409 | 422 => RequestResult::Conflict,
            code @ (401 | 403 | 405 | 429) => {
                let message = shortened(&status.message);
                RequestResult::Failed(format!("the API server answers {code}: {message}").into())
            }
            _ => {
                tracing::debug!(error = chain(error), "a release was not answered");
                RequestResult::Unknown
            }
        }
    }
}
