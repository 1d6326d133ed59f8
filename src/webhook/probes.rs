//! GET /healthz, /readyz and /metrics, and /debug/graph if it is enabled. They have their own
//! listener without TLS, for the kubelet and Prometheus, and other requests don't wait for
//! them.

use actix_web::http::header::ContentType;
use actix_web::{HttpRequest, HttpResponse, web};

use super::Shared;

/// The routes of the second listener.
pub fn routes(config: &mut web::ServiceConfig) {
    config
        .route("/healthz", web::get().to(healthz))
        .route("/readyz", web::get().to(readyz))
        .route("/metrics", web::get().to(metrics))
        .route("/debug/graph", web::get().to(graph));
}

/// belay is alive if this thread answers. Further checks would restart a process that waits for
/// the API server.
async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body("ok\n")
}

async fn readyz(request: HttpRequest, shared: web::Data<Shared>) -> HttpResponse {
    let ready = shared.readiness.is_ready();
    let mut response = if ready { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    let verbose =
        request.query_string().split('&').any(|pair| pair.split('=').next() == Some("verbose"));
    let mut text = if verbose || !ready { shared.readiness.describe() } else { String::new() };
    text.push_str(if ready { "ok\n" } else { "not ready\n" });
    response.content_type(ContentType::plaintext()).body(text)
}

async fn metrics(shared: web::Data<Shared>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(shared.metrics.encode())
}

/// The graph as text. It contains the names of objects, so only an option enables it.
async fn graph(shared: web::Data<Shared>) -> HttpResponse {
    match &shared.print_graph {
        Some(print) => {
            let print = print.clone();
            // Printing a large graph takes long, and this thread must answer the probes.
            match web::block(move || print()).await {
                Ok(text) => HttpResponse::Ok().content_type(ContentType::plaintext()).body(text),
                Err(_) => HttpResponse::ServiceUnavailable().finish(),
            }
        }
        None => HttpResponse::NotFound()
            .content_type(ContentType::plaintext())
            .body("start belay with --debug-graph to see the graph here\n"),
    }
}
