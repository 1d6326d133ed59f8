//! An HTTP client that can misbehave: bytes over TLS, as slow and as invalid as a test
//! needs. Its errors are errors of the test, so it panics.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// Head, in lower case.
    pub head: String,
    /// Body.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// How to reach one belay.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

/// One connection.
pub type Connection = StreamOwned<ClientConnection, TcpStream>;

impl Client {
    /// A client that trusts the CA in this file and accepts every version of TLS.
    pub fn new(address: SocketAddr, ca: &Path) -> Self {
        Self::with(address, ca, rustls::ALL_VERSIONS, None)
    }

    /// A client that trusts these CAs in PEM and accepts every version of TLS.
    pub fn trusting(address: SocketAddr, ca: &[u8]) -> Self {
        Self::build(address, ca, rustls::ALL_VERSIONS, None)
    }

    /// The address of its connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client with these versions of TLS and this client certificate.
    pub fn with(
        address: SocketAddr,
        ca: &Path,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<(&Path, &Path)>,
    ) -> Self {
        Self::build(address, &std::fs::read(ca).unwrap(), versions, identity)
    }

    fn build(
        address: SocketAddr,
        ca: &[u8],
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<(&Path, &Path)>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = CertificateDer::pem_file_iter(cert).unwrap();
                let chain = chain.collect::<Result<_, _>>().unwrap();
                builder
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
                    .unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        Self { address, name, config: Arc::new(config) }
    }

    /// Expects a certificate for this name instead of localhost.
    pub fn for_name(self, name: &str) -> Self {
        Self { name: ServerName::try_from(name.to_owned()).unwrap(), ..self }
    }

    /// A connection after the handshake.
    pub fn connect(&self) -> std::io::Result<Connection> {
        let mut tls = ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(std::io::Error::other)?;
        let mut tcp = TcpStream::connect(self.address)?;
        tcp.set_read_timeout(Some(Duration::from_secs(20)))?;
        tcp.set_nodelay(true)?;
        tls.complete_io(&mut tcp)?;
        Ok(StreamOwned::new(tls, tcp))
    }

    /// The first message of a handshake.
    pub fn hello(&self) -> Vec<u8> {
        let mut tls = ClientConnection::new(self.config.clone(), self.name.clone()).unwrap();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        hello
    }

    /// POST of a JSON body on a new connection.
    pub fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.post_as(path, "application/json", body)
    }

    /// Like `post`, to a server that may be down.
    pub fn try_post(&self, path: &str, body: impl AsRef<[u8]>) -> std::io::Result<Answer> {
        let mut connection = self.connect()?;
        let _ = send(&mut connection, path, "application/json", body.as_ref());
        receive(&mut connection)
    }

    /// POST with this content type.
    pub fn post_as(&self, path: &str, content_type: &str, body: impl AsRef<[u8]>) -> Answer {
        let mut connection = self.connect().unwrap();
        // A server that refuses a body early closes while it is being sent.
        let _ = send(&mut connection, path, content_type, body.as_ref());
        receive(&mut connection).unwrap()
    }

    /// Sends these bytes and returns the response up to the end of the connection.
    pub fn raw(&self, bytes: &[u8]) -> std::io::Result<Answer> {
        let mut connection = self.connect()?;
        connection.write_all(bytes)?;
        connection.flush()?;
        receive(&mut connection)
    }
}

/// Sends one POST and leaves the connection open.
pub fn send(
    connection: &mut impl Write,
    path: &str,
    content_type: &str,
    body: &[u8],
) -> std::io::Result<()> {
    let length = body.len();
    write!(
        connection,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n\
         Content-Length: {length}\r\n\r\n"
    )?;
    connection.write_all(body)?;
    connection.flush()
}

/// Reads one answer.
pub fn receive(connection: &mut impl Read) -> std::io::Result<Answer> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        connection.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    Ok(Answer { code, head, body: String::from_utf8_lossy(&body).into_owned() })
}
