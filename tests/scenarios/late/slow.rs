//! A webhook of another owner, which allows every request and delays its first answer.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::CertifiedKey;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use serde_json::json;

use crate::harness::manifest::validating_webhook;
use crate::harness::{ControlPlane, Result, eventually};

/// The webhook. Its threads end with the program.
pub struct Slow(Arc<State>);

#[derive(Default)]
struct State {
    /// The number of reviews so far, and whether they are answered.
    reviews: Mutex<(usize, bool)>,
    opened: Condvar,
}

impl Slow {
    /// Registers it for DELETEs of ConfigMaps in a namespace and waits until the API server
    /// calls it.
    pub fn on_deletes_in(plane: &ControlPlane, ns: &str) -> Self {
        let name = format!("slow.{ns}.svc");
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec![name]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        plane.service(ns, "slow", &[listener.local_addr().unwrap()]).unwrap();
        let slow = Self(Arc::default());
        let state = slow.0.clone();
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, config) = (state.clone(), config.clone());
                // A connection that breaks off is the caller's to try again.
                std::thread::spawn(move || state.serve(stream, config).ok());
            }
        });
        slow.register(plane, ns, &STANDARD.encode(cert.pem()));
        slow
    }

    fn register(&self, plane: &ControlPlane, ns: &str, authority: &str) {
        let service = json!({"namespace": ns, "name": "slow"});
        let config = json!({"caBundle": authority, "service": service});
        let mut webhook = validating_webhook("slow", ns, ("DELETE", "configmaps"), config);
        webhook["webhooks"][0]["timeoutSeconds"] = json!(30);
        plane.apply(&webhook).unwrap();
        // The API server uses it a moment later, and until then it answers at once.
        self.set(true);
        plane.kubectl(&["create", "configmap", "probe", "-n", ns]).unwrap().success().unwrap();
        eventually("the slow webhook", super::LIMIT, || {
            plane.api().delete(&["configmap", "probe", "--dry-run=server"], ns)?.success()?;
            if self.asked() > 0 { Ok(()) } else { Err("no request yet".into()) }
        })
        .unwrap();
        self.set(false);
    }

    /// The number of reviews so far.
    pub fn asked(&self) -> usize {
        self.0.reviews.lock().unwrap().0
    }

    /// Answers the current request and later ones.
    pub fn answer(&self) {
        self.0.reviews.lock().unwrap().1 = true;
        self.0.opened.notify_all();
    }

    fn set(&self, answers: bool) {
        *self.0.reviews.lock().unwrap() = (0, answers);
    }
}

impl State {
    fn serve(&self, stream: TcpStream, config: Arc<ServerConfig>) -> Result<()> {
        let mut stream = StreamOwned::new(ServerConnection::new(config)?, stream);
        let body = read(&mut stream)?;
        let review: serde_json::Value = serde_json::from_slice(&body)?;
        let mut reviews = self.reviews.lock().unwrap();
        reviews.0 += 1;
        while !reviews.1 {
            reviews = self.opened.wait(reviews).unwrap();
        }
        drop(reviews);
        let answer = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": true},
        })
        .to_string();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: \
             {}\r\nConnection: close\r\n\r\n{answer}",
            answer.len()
        )?;
        stream.conn.send_close_notify();
        Ok(stream.flush()?)
    }
}

/// The body of one request.
fn read(stream: &mut impl std::io::Read) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head)?.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.ok_or("no content-length")?.trim().parse()?];
    stream.read_exact(&mut body)?;
    Ok(body)
}
