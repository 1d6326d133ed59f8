//! Sends a DELETE. As a dry run, admission answers as to a real DELETE, and no object is deleted.

use http::Response;
use http::header::{self, HeaderValue};
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::client::Body;
use kube::core::Status;

use super::api::{escaped, requests};
use super::caller::Caller;
use crate::objects::{ApiError, KindInfo};

/// The answer of the API server.
#[derive(Debug)]
pub enum DeleteResponse {
    /// The API server accepts the DELETE, with these warnings.
    Accepted(Vec<String>),
    /// The API server rejects the DELETE.
    Refused(Box<Status>),
}

impl Caller {
    /// Asks the API server for the result of a DELETE of the object with this uid. belay stores
    /// nothing in a dry run, and the API server rejects it if another webhook would have side
    /// effects. `None`: belay did not ask, because the server of the kind may ignore the option
    /// `dryRun`.
    pub async fn dry_run_delete(
        &self,
        info: &KindInfo,
        (namespace, name): (&str, &str),
        uid: &str,
        propagation_policy: Option<PropagationPolicy>,
    ) -> Result<Option<DeleteResponse>, ApiError> {
        if !self.dry_runs.is_supported(&self.client, info).await? {
            return Ok(None);
        }
        let same_object = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let params = DeleteParams {
            dry_run: true,
            preconditions: Some(same_object),
            propagation_policy,
            ..DeleteParams::default()
        };
        self.send_delete(info, (namespace, name), &params).await.map(Some)
    }

    /// Sends a DELETE with these options.
    pub async fn send_delete(
        &self,
        info: &KindInfo,
        (namespace, name): (&str, &str),
        params: &DeleteParams,
    ) -> Result<DeleteResponse, ApiError> {
        let request = requests(info, namespace).delete(&escaped(name), params)?;
        let response = self.client.send(request.map(Body::from)).await?;
        let (code, warnings) = (response.status(), warnings(&response));
        if code.is_success() {
            return Ok(DeleteResponse::Accepted(warnings));
        }
        let body = response.into_body().collect_bytes().await?;
        match serde_json::from_slice::<Status>(&body) {
            Ok(status) => Ok(DeleteResponse::Refused(Box::new(status))),
            Err(_) => Err(ApiError::of_status(code.as_u16(), &String::from_utf8_lossy(&body))),
        }
    }
}

/// The texts of the headers `Warning: 299 - "text"`.
fn warnings(response: &Response<Body>) -> Vec<String> {
    let headers = response.headers().get_all(header::WARNING).iter();
    let text = |header: &HeaderValue| {
        let header = String::from_utf8_lossy(header.as_bytes());
        let quoted = header.split_once('"')?.1.strip_suffix('"')?;
        Some(quoted.replace("\\\"", "\"").replace("\\\\", "\\"))
    };
    headers.filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::{failure, local_client};
    use crate::objects::Kinds;

    fn gizmos() -> KindInfo {
        Kinds::custom("example.com", "v1", "Gizmo", "gizmos", true)
    }

    /// Sends a dry run of a DELETE. The server of the kind documents these parameters, or has no
    /// document of the kind.
    async fn ask(info: KindInfo, parameters: Option<Value>) -> Option<DeleteResponse> {
        let client = local_client(move |request| {
            if request.method() == http::Method::GET {
                assert_eq!(request.uri(), "/openapi/v3/apis/example.com/v1");
                let Some(parameters) = &parameters else {
                    return Some(failure(404, "not found", ("", "")));
                };
                let path = "/apis/example.com/v1/namespaces/{namespace}/gizmos/{name}";
                return Some((
                    200,
                    json!({"paths": {path: {"delete": {
                    "parameters": parameters}}}}),
                ));
            }
            // Without these fields, the API server could delete an object.
            assert_eq!(request.body()["dryRun"], json!(["All"]));
            assert_eq!(request.body()["preconditions"], json!({"uid": "u"}));
            Some(failure(403, "refused", ("gizmos", "one")))
        });
        let caller = Caller::with_client(client);
        caller.dry_run_delete(&info, ("shop", "one"), "u", None).await.unwrap()
    }

    #[tokio::test]
    async fn a_kind_whose_server_does_not_document_dry_runs_is_not_asked() {
        for parameters in [None, Some(Value::Null), Some(json!([{"name": "pretty"}]))] {
            let answer = ask(gizmos(), parameters).await;
            assert!(answer.is_none(), "{answer:?}");
        }
        let dry = Some(json!([{"name": "pretty"}, {"name": "dryRun"}]));
        let own = KindInfo { group: String::new(), ..gizmos() };
        for (info, parameters) in [(gizmos(), dry), (own, None)] {
            let answer = ask(info, parameters).await;
            let Some(DeleteResponse::Refused(status)) = answer else { panic!("{answer:?}") };
            assert_eq!(status.message, "refused");
        }
    }

    #[tokio::test]
    async fn the_document_of_a_kind_is_read_once() {
        let reads = Arc::new(AtomicUsize::new(0));
        let count = reads.clone();
        let client = local_client(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Some((200, json!({})))
        });
        let caller = Caller::with_client(client);
        let info = gizmos();
        let ask = || caller.dry_run_delete(&info, ("shop", "one"), "u", None);
        for answer in futures_util::future::join_all([ask(), ask(), ask()]).await {
            assert!(answer.unwrap().is_none());
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn warnings_are_read_as_they_were_sent() {
        let response = Response::builder()
            .header(header::WARNING, r#"299 - "pod \"web\" stays…""#)
            .header(header::WARNING, "299 - \"second\"");
        let response = response.body(Body::empty()).unwrap();
        assert_eq!(warnings(&response), ["pod \"web\" stays…", "second"]);
    }
}
