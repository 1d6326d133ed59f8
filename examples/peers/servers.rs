//! Servers with the HTTP and TLS libraries of belay. One returns a constant, the other uses
//! kube's types and decides by a label.

use std::path::Path;
use std::sync::Arc;

use actix_web::http::header::ContentType;
use actix_web::{App, HttpResponse, HttpServer, web};
use belay::certs::{CertificateAndKey, CertificatePaths, Serving, server_config};
use belay::telemetry::Metrics;
use belay::webhook::default_threads;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use serde_json::json;

use crate::harness::Result;
use crate::reviews::{FINALIZER, KEEP_LABEL};

const CONSTANT: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"5a0c2f6e-7a4f-4f0e-8c55-000000000000","allowed":true}}"#;

/// The largest body, as in belay.
const MAX_BODY: usize = 40 << 20;

#[derive(Clone, Copy)]
pub enum Answer {
    /// The same bytes to each review.
    Constant,
    /// An answer from kube's types.
    Typed,
}

/// Serves on this port, with the certificate in a folder.
pub fn serve(answer: Answer, port: &str, folder: &str) -> Result<()> {
    let paths = CertificatePaths::in_folder(Path::new(folder));
    let (certificate, key) = (std::fs::read(paths.tls_cert)?, std::fs::read(paths.tls_key)?);
    let serving = Arc::new(Serving::default());
    let pair = CertificateAndKey::read(&certificate, &key)
        .map_err(|error| format!("the certificate in {folder} is unusable: {error:?}"))?;
    serving.replace(pair, &Metrics::default());
    let tls = server_config(&serving, false)?;
    let port: u16 = port.parse()?;
    let cores = std::thread::available_parallelism()?.get();
    let server = HttpServer::new(move || {
        let app = App::new().app_data(web::PayloadConfig::new(MAX_BODY));
        match answer {
            Answer::Constant => app.default_service(web::to(constant)),
            Answer::Typed => app.default_service(web::to(typed)),
        }
    })
    .workers(default_threads(cores))
    .bind_rustls_0_23(("127.0.0.1", port), tls)?;
    Ok(actix_web::rt::System::new().block_on(server.run())?)
}

async fn constant(_body: web::Bytes) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::json()).body(CONSTANT)
}

async fn typed(body: web::Bytes) -> HttpResponse {
    let answer = serde_json::from_slice::<AdmissionReview<DynamicObject>>(&body)
        .map_err(|error| error.to_string())
        .and_then(|review| review.try_into().map_err(|error| format!("{error}")))
        .and_then(|request| answer(&request));
    match answer {
        Ok(answer) => HttpResponse::Ok().json(answer.into_review()),
        Err(error) => HttpResponse::BadRequest().body(error),
    }
}

fn answer(
    request: &AdmissionRequest<DynamicObject>,
) -> std::result::Result<AdmissionResponse, String> {
    let answer = AdmissionResponse::from(request);
    let labels = request.old_object.as_ref().and_then(|object| object.metadata.labels.as_ref());
    let is_kept = labels.is_some_and(|labels| labels.contains_key(KEEP_LABEL));
    match request.operation {
        Operation::Delete if is_kept => {
            Ok(answer.deny(format!("{} has label {KEEP_LABEL}", request.name)))
        }
        Operation::Create => {
            let path = PointerBuf::from_tokens(["metadata", "finalizers"]);
            let add = AddOperation { path, value: json!([FINALIZER]) };
            let patch = Patch(vec![PatchOperation::Add(add)]);
            answer.with_patch(patch).map_err(|error| error.to_string())
        }
        _ => Ok(answer),
    }
}
