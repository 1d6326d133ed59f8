//! Reviews that the API server did not send: any Pod can reach the port of the webhook.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::World;
use crate::harness::Result;

/// Who sends a forged review, and what about.
pub struct Forged<'a> {
    pub user: &'a str,
    pub groups: &'a [&'a str],
    pub operation: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    /// The object as it is stored.
    pub object: Value,
}

impl Forged<'_> {
    /// Posts it to each replica, as the webhook `delete.belay.dev` is asked; returns whether each allowed the request.
    pub fn post(&self, world: &World) -> Result<Vec<bool>> {
        let text = |path: &str| self.object.pointer(path).cloned().unwrap_or_else(|| json!(""));
        let request = json!({
            "uid": "7b1f4f5e-0000-4000-8000-000000000000",
            "operation": self.operation,
            "resource": {"group": self.group, "version": "v1", "resource": self.resource},
            "kind": {"group": self.group, "version": "v1", "kind": text("/kind")},
            "name": text("/metadata/name"),
            "namespace": text("/metadata/namespace"),
            "userInfo": {"username": self.user, "groups": self.groups},
            "oldObject": self.object,
            "dryRun": false,
            "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
        });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
        });
        let (path, roots) = registered(world)?;
        let addresses = world.belay.addresses();
        addresses
            .iter()
            .map(|address| {
                let stream = TcpStream::connect(address)?;
                let answer = call(stream, &path, roots.clone(), &review.to_string())?;
                let answer: Value = serde_json::from_str(&answer)?;
                Ok(answer["response"]["allowed"] == json!(true))
            })
            .collect()
    }
}

/// The path and the CA of the webhook, as the API server has them.
fn registered(world: &World) -> Result<(String, RootCertStore)> {
    let args = ["get", "validatingwebhookconfiguration", "belay", "-o", "json"];
    let configuration: Value = serde_json::from_str(&world.plane.kubectl(&args)?.success()?)?;
    let webhooks = configuration["webhooks"].as_array().ok_or("no webhooks")?;
    let named = |webhook: &&Value| webhook["name"] == json!("delete.belay.dev");
    let config = &webhooks.iter().find(named).ok_or("no delete.belay.dev")?["clientConfig"];
    let path = config["service"]["path"].as_str().unwrap_or("/validate").to_owned();
    let bundle = STANDARD.decode(config["caBundle"].as_str().ok_or("no caBundle")?)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bundle) {
        roots.add(certificate?)?;
    }
    Ok((path, roots))
}

/// Sends one POST over TLS and returns the body of the answer.
fn call(mut tcp: TcpStream, path: &str, roots: RootCertStore, body: &str) -> Result<String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("belay.belay.svc")?;
    let mut tls = ClientConnection::new(Arc::new(config), name)?;
    tls.complete_io(&mut tcp)?;
    let mut stream = StreamOwned::new(tls, tcp);
    write!(
        stream,
        "POST {path}?timeout=10s HTTP/1.1\r\nHost: belay\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.flush()?;
    let mut answer = Vec::new();
    // A server that closes without a TLS alert has answered all the same.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("no HTTP answer")?;
    Ok(body.to_owned())
}
