//! belay itself, as a process in front of a control plane.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Result;
use super::process::Process;
use super::wait::while_running;

/// A running belay.
pub struct Belay {
    pub process: Process,
    pub listen: SocketAddr,
    pub probes: SocketAddr,
    pub ca: PathBuf,
}

impl Belay {
    /// Starts the program without a cluster, with these arguments in addition to its
    /// addresses, and waits until it is ready.
    pub fn start(name: &str, program: &Path, args: &[&str], folder: &Path) -> Result<Self> {
        let certs = folder.join(format!("{name}-certs"));
        if !certs.join("tls.crt").exists() {
            make_certificates(program, &certs)?;
        }
        let mut all = vec![
            "serve".to_owned(),
            "--listen=127.0.0.1:0".to_owned(),
            "--probes=127.0.0.1:0".to_owned(),
            format!("--cert-dir={}", certs.display()),
        ];
        if !args.contains(&"--standalone") {
            all.push("--standalone".to_owned());
        }
        all.extend(args.iter().map(ToString::to_string));
        let mut process = Process::start(name, program, &all, folder)?;
        let limit = Duration::from_secs(30);
        let log = folder.join(format!("{name}.log"));
        let mut addresses = None;
        while_running(&mut process, limit, || {
            addresses = addresses_of(&std::fs::read_to_string(&log)?);
            addresses.map(drop).ok_or_else(|| "it has not said where it serves".into())
        })?;
        let (listen, probes) = addresses.ok_or("no addresses")?;
        while_running(&mut process, limit, || match http_get(probes, "/readyz")? {
            (200, _) => Ok(()),
            (code, body) => Err(format!("{code}: {body}").into()),
        })?;
        Ok(Self { process, listen, probes, ca: certs.join("ca.crt") })
    }

    /// The content of /metrics.
    pub fn metrics(&self) -> Result<String> {
        Ok(http_get(self.probes, "/metrics")?.1)
    }
}

/// The addresses that belay logs: the system chose the ports.
fn addresses_of(log: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = log.lines().find(|line| line.contains("serving"))?;
    let address = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        Some(SocketAddr::from(([127, 0, 0, 1], text[..end].parse().ok()?)))
    };
    let mut addresses = line.split("127.0.0.1:").skip(1).filter_map(address);
    Some((addresses.next()?, addresses.next()?))
}

/// Certificates for the names under which tests call belay.
pub fn make_certificates(program: &Path, folder: &Path) -> Result<()> {
    let status = Command::new(program)
        .args(["admin", "certs", "--name=localhost", "--name=127.0.0.1", "--name=belay.belay.svc"])
        .arg(format!("--cert-dir={}", folder.display()))
        .stdout(std::process::Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err("belay admin certs failed".into()) }
}

/// A plain HTTP/1.1 GET: status and body.
pub fn http_get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: belay\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no HTTP answer")?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.ok_or("no status code")?, body.to_owned()))
}
