//! belay itself, as a process in front of a control plane.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::plane::free_ports;
use super::process::Process;
use super::wait::while_running;
use super::{ControlPlane, Result};

/// A running belay.
pub struct Belay {
    pub process: Process,
    pub listen: SocketAddr,
    pub probes: SocketAddr,
    pub ca: PathBuf,
}

impl Belay {
    /// Starts the program with these arguments beside its addresses, and waits
    /// until it is ready.
    pub fn start(name: &str, program: &Path, args: &[&str], folder: &Path) -> Result<Self> {
        let [listen, probes] = free_ports()?.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let certs = folder.join(format!("{name}-certs"));
        if !certs.join("tls.crt").exists() {
            make_certificates(program, &certs)?;
        }
        let mut all = vec![
            "serve".to_owned(),
            format!("--listen={listen}"),
            format!("--probes={probes}"),
            format!("--cert-dir={}", certs.display()),
        ];
        all.extend(args.iter().map(ToString::to_string));
        let mut process = Process::start(name, program, &all, folder)?;
        while_running(&mut process, Duration::from_secs(20), || {
            match http_get(probes, "/readyz")? {
                (200, _) => Ok(()),
                (code, body) => Err(format!("{code}: {body}").into()),
            }
        })?;
        Ok(Self { process, listen, probes, ca: certs.join("ca.crt") })
    }

    /// What /metrics says.
    pub fn metrics(&self) -> Result<String> {
        Ok(http_get(self.probes, "/metrics")?.1)
    }
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

/// Registers belay through the Service belay/belay, by the manifests that the
/// program itself prints.
pub fn register(plane: &ControlPlane, program: &Path, backends: &[&Belay]) -> Result<()> {
    plane.kubectl(&["create", "namespace", "belay"])?.success()?;
    let addresses: Vec<_> = backends.iter().map(|belay| belay.listen).collect();
    plane.service("belay", "belay", &addresses)?;
    let ca = &backends.first().ok_or("no belay to register")?.ca;
    let output = Command::new(program)
        .args(["admin", "manifests", "--service=belay/belay"])
        .arg(format!("--ca-file={}", ca.display()))
        .output()?;
    plane.apply(&String::from_utf8(output.stdout)?)
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
