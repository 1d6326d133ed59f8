//! The egress proxy: the API server requests `clusterIP:port` of a Service and reaches a
//! port of this machine, without a pod network.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Result;
use super::shared::lock;

/// A fault of the network between the API server and its webhooks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Each piece of data towards the webhook waits this long.
    Slow(Duration),
    /// New connections are refused, and open ones are closed.
    Cut,
}

/// The proxy. Cheap to clone; it ends with the program.
#[derive(Clone, Default)]
pub struct EgressProxy(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// `clusterIP:port` to the backends behind it, used in turn.
    routes: Mutex<HashMap<String, Vec<SocketAddr>>>,
    fault: Mutex<Fault>,
    /// The open connections to backends, by number.
    open: Mutex<HashMap<usize, TcpStream>>,
    connections: AtomicUsize,
    /// Connections that the API server has not closed yet.
    live: AtomicUsize,
}

impl EgressProxy {
    /// Listens on a unix socket.
    pub fn listen(socket: &Path) -> Result<Self> {
        let proxy = Self::default();
        let listener = UnixListener::bind(socket)?;
        let accepting = proxy.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let proxy = accepting.clone();
                std::thread::spawn(move || proxy.serve(client));
            }
        });
        Ok(proxy)
    }

    /// Forwards connections for a Service's address to these backends in turn.
    pub fn route(&self, address: &str, backends: &[SocketAddr]) {
        lock(&self.0.routes).insert(address.to_owned(), backends.to_vec());
    }

    /// Sets the fault for new and open connections.
    pub fn set_fault(&self, fault: Fault) {
        *lock(&self.0.fault) = fault;
        if fault == Fault::Cut {
            self.cut_open();
        }
    }

    /// Closes every open connection, so that the next request opens a new one (and may
    /// reach another backend).
    pub fn cut_open(&self) {
        for (_, connection) in lock(&self.0.open).drain() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// The number of connections that the API server still considers open. If there is none, the
    /// next request opens a new connection.
    pub fn live(&self) -> usize {
        self.0.live.load(Ordering::Acquire)
    }

    fn serve(&self, mut client: UnixStream) {
        let Some(address) = read_connect(&mut client) else { return };
        let turn = self.0.connections.fetch_add(1, Ordering::Relaxed);
        let backend = lock(&self.0.routes)
            .get(&address)
            .filter(|backends| !backends.is_empty())
            .map(|backends| backends[turn % backends.len()]);
        let refused = *lock(&self.0.fault) == Fault::Cut;
        let server = match backend {
            Some(backend) if !refused => TcpStream::connect(backend).ok(),
            _ => None,
        };
        let Some(server) = server else {
            let _ = client.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
            return;
        };
        // As in the API server. Without this, each review waits 40 ms for an acknowledgement.
        let _ = server.set_nodelay(true);
        if client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").is_err() {
            return;
        }
        if let Ok(copy) = server.try_clone() {
            lock(&self.0.open).insert(turn, copy);
        }
        self.pump(client, server);
        lock(&self.0.open).remove(&turn);
    }

    fn pump(&self, client: UnixStream, server: TcpStream) {
        let (Ok(mut from_client), Ok(mut to_server)) = (client.try_clone(), server.try_clone())
        else {
            return;
        };
        let proxy = self.clone();
        self.0.live.fetch_add(1, Ordering::AcqRel);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from_client.read(&mut buffer) {
                let fault = *lock(&proxy.0.fault);
                if let Fault::Slow(delay) = fault {
                    std::thread::sleep(delay);
                }
                if to_server.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _ = to_server.shutdown(Shutdown::Both);
            // Discards the remaining data of the API server. When it closes its side, it
            // has seen the end.
            while let Ok(1..) = from_client.read(&mut buffer) {}
            proxy.0.live.fetch_sub(1, Ordering::AcqRel);
        });
        let (mut server, mut client) = (server, client);
        let _ = std::io::copy(&mut server, &mut client);
        let _ = client.shutdown(Shutdown::Write);
    }
}

/// Reads `CONNECT host:port HTTP/1.1` and its headers. The client sends nothing before
/// the answer.
fn read_connect(client: &mut UnixStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 8192 {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let text = String::from_utf8(head).ok()?;
    let mut words = text.lines().next()?.split(' ');
    (words.next()? == "CONNECT").then(|| words.next().map(str::to_owned))?
}
