//! Kills a command after the API server has executed a change, and before the answer arrives, or
//! runs something else before the change.
//!
//! The command reaches the API server through a proxy without TLS, which has the certificate of the
//! administrator.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::ControlPlane;
use crate::harness::audit::text;
use crate::harness::client::Client;
use crate::harness::kubectl::Output;

/// Runs a command, and kills it before the answer to the `number`th change that the API server has
/// executed. Returns whether it was killed; otherwise it has succeeded.
pub fn is_killed(plane: &ControlPlane, args: &[&str], number: usize) -> bool {
    let (command, listener, _folder) = start(args);
    let (pid, left) = (pid(&command), AtomicUsize::new(number));
    let (killed, received) = channel();
    let is_kept = move |answer: &[u8]| {
        let is_last = answer.starts_with(b"HTTP/1.1 2") && left.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last {
            killed.send(()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        }
        !is_last
    };
    let (is_trigger, before) = (Box::new(is_change), Mutex::default());
    Proxy { server: client(plane), is_trigger, before, is_kept: Box::new(is_kept) }
        .listen(listener);
    let output = command.wait_with_output().unwrap();
    let is_killed = received.try_recv().is_ok();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(is_killed || output.status.success(), "{args:?}: {}\n{stderr}", output.status);
    is_killed
}

/// Runs a command, and something else before the API server gets its first change. Returns the
/// output, and the codes of the answers to all changes.
pub fn with_interruption(
    plane: &ControlPlane,
    args: &[&str],
    before: impl FnOnce() + Send + 'static,
) -> (String, Vec<String>) {
    let (output, codes) = with_interruption_at(plane, args, is_change, before);
    (output.stdout, codes)
}

/// The same, before the API server gets the first request that `is_trigger` selects.
pub fn with_interruption_at(
    plane: &ControlPlane,
    args: &[&str],
    is_trigger: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    before: impl FnOnce() + Send + 'static,
) -> (Output, Vec<String>) {
    let (codes, received) = channel();
    let send = move |code: &str| codes.send(code.to_owned()).unwrap();
    let output = with_answers(plane, args, is_trigger, before, send);
    (output, received.try_iter().collect())
}

/// The same. `after` is called with the code of each answer to a change, before the command gets it.
pub fn with_answers(
    plane: &ControlPlane,
    args: &[&str],
    is_trigger: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    before: impl FnOnce() + Send + 'static,
    after: impl Fn(&str) + Send + Sync + 'static,
) -> Output {
    let (command, listener, _folder) = start(args);
    let is_kept = move |answer: &[u8]| {
        let answer = String::from_utf8_lossy(answer);
        after(answer.get("HTTP/1.1 ".len()..).and_then(|rest| rest.get(..3)).unwrap_or_default());
        true
    };
    let before = Mutex::new(Some(Box::new(before) as Box<_>));
    let is_trigger = Box::new(is_trigger);
    Proxy { server: client(plane), is_trigger, before, is_kept: Box::new(is_kept) }
        .listen(listener);
    let output = command.wait_with_output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    Output { code: output.status.code().unwrap_or(-1), stdout, stderr }
}

/// Starts a command whose API server is the listener.
fn start(args: &[&str]) -> (Child, TcpListener, TempDir) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let server = format!("http://{}", listener.local_addr().unwrap());
    std::fs::write(&kubeconfig, without_tls(&server).to_string()).unwrap();
    (crate::spawn(&kubeconfig, args), listener, folder)
}

fn without_tls(server: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    })
}

/// The API server, for the administrator.
fn client(plane: &ControlPlane) -> Client {
    let config = std::fs::read_to_string(plane.kubeconfig()).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
    let address = text(&cluster["server"]).trim_start_matches("https://").parse().unwrap();
    let path = |field: &Value| PathBuf::from(text(field));
    let identity = (path(&user["client-certificate"]), path(&user["client-key"]));
    let identity = Some((identity.0.as_path(), identity.1.as_path()));
    let authority = path(&cluster["certificate-authority"]);
    Client::with(address, &authority, rustls::ALL_VERSIONS, identity)
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap()).unwrap()
}

type Filter = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

struct Proxy {
    server: Client,
    /// Whether `before` happens before a request.
    is_trigger: Filter,
    /// What happens once.
    before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Whether the command gets the answer to a change.
    is_kept: Filter,
}

impl Proxy {
    fn listen(self, listener: TcpListener) {
        let proxy = Arc::new(self);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let proxy = proxy.clone();
                std::thread::spawn(move || proxy.carry(client));
            }
        });
    }

    /// Carries one request and its answer. Each has its own connection.
    fn carry(&self, mut client: TcpStream) -> Option<()> {
        let request = read_request(&mut client)?;
        let is_change = is_change(&request);
        if (self.is_trigger)(&request)
            && let Some(before) = self.before.lock().unwrap().take()
        {
            before();
        }
        let mut server = self.server.connect().ok()?;
        server.write_all(&request).and_then(|()| server.flush()).ok()?;
        let mut answer = Vec::new();
        if is_change {
            // The end of the connection has no alert.
            let _ = server.read_to_end(&mut answer);
            if !(self.is_kept)(&answer) {
                return None;
            }
        }
        client.write_all(&answer).ok()?;
        std::io::copy(&mut server, &mut client).ok().map(drop)
    }
}

/// Reads a request with its body. Its connection to the API server ends with the answer.
fn read_request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    client.read_exact(&mut body).ok()?;
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    Some([head.as_bytes(), &body].concat())
}

/// Whether a request changes the cluster.
pub fn is_change(request: &[u8]) -> bool {
    let request = String::from_utf8_lossy(request);
    let line = request.lines().next().unwrap_or_default();
    let asks = ["GET ", "POST /apis/authorization.k8s.io/", "POST /apis/authentication.k8s.io/"];
    let is_dry_run = line.contains("dryRun=") || request.contains(r#""dryRun":["All"]"#);
    !asks.iter().any(|ask| line.starts_with(ask)) && !is_dry_run
}
