//! `belay serve`: answer admission reviews over TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use clap::Args;

use super::files::{self, Folders, Signs, World};
use super::welcome::welcome;
use super::{CommandError, print};
use crate::certs::{CertificateFiles, Made, make_pair};
use crate::decide::{FailurePolicy, Live, Review, Situation, Verdict, decide};
use crate::telemetry::{LogFormat, Metrics, Readiness, init_logs};
use crate::webhook::{self, Certificates, Limits, Server, Shared};

/// How long a certificate lives that the standalone server makes for itself.
const STANDALONE_DAYS: u32 = 365;

#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Serve with no cluster: listen on 127.0.0.1 and make certificates in
    /// --cert-dir on first start
    #[arg(long)]
    standalone: bool,

    /// Policies, relations, approvals and pauses: files of YAML or JSON, or
    /// folders of them. They are read again when they change
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "standalone")]
    policies: Vec<PathBuf>,

    /// The objects of the cluster, in the same form, such as kubectl get -o
    /// yaml prints them
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "standalone")]
    objects: Vec<PathBuf>,

    /// How often those files are looked at for changes
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    files_poll: Duration,

    /// Where reviews are answered, over TLS [default: 0.0.0.0:8443; standalone
    /// 127.0.0.1:8443]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Where /healthz, /readyz and /metrics are served, without TLS [default:
    /// 0.0.0.0:8081; standalone 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS:PORT")]
    probes: Option<SocketAddr>,

    /// Folder with ca.crt, tls.crt and tls.key (a mounted TLS Secret is one)
    #[arg(long, value_name = "DIR", default_value = "certs")]
    cert_dir: PathBuf,

    /// Server certificate, PEM [default: tls.crt in --cert-dir]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the server certificate, PEM [default: tls.key in --cert-dir]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Let in only clients with a certificate of these authorities, PEM
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,

    /// How often certificate files are looked at for changes
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    certificate_poll: Duration,

    /// What is said to a review whose object cannot be read
    #[arg(long, value_name = "Fail|Ignore", default_value = "Fail")]
    failure_policy: FailurePolicy,

    /// Time for one request; it has to stay below the webhook's timeoutSeconds
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    deadline: Duration,

    /// How long to answer on after SIGTERM while reporting not ready [default:
    /// 5; standalone 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds_or_none)]
    drain: Option<Duration>,

    /// Threads that answer reviews [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    workers: Option<u16>,

    /// How log lines are written
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    log_format: LogFormat,
}

/// Serves until a signal.
pub fn run(arguments: ServeArguments) -> Result<(), CommandError> {
    let ServeArguments {
        standalone,
        policies,
        objects,
        files_poll,
        listen,
        probes,
        cert_dir,
        tls_cert,
        tls_key,
        client_ca,
        certificate_poll,
        failure_policy,
        deadline,
        drain,
        workers,
        log_format,
    } = arguments;
    init_logs(log_format);
    let (metrics, readiness) = (Metrics::default(), Readiness::default());
    let with_objects = !objects.is_empty();
    let folders = Folders(policies.into_iter().chain(objects).collect());
    let world = world(folders, with_objects, files_poll, &metrics, &readiness)?;

    let own = Made::in_folder(&cert_dir);
    let files = CertificateFiles {
        tls_cert: tls_cert.unwrap_or_else(|| own.tls_cert.clone()),
        tls_key: tls_key.unwrap_or_else(|| own.tls_key.clone()),
        client_ca,
    };
    let embedded = standalone && files.tls_cert == own.tls_cert;
    if embedded {
        make_certificates_once(&cert_dir, &own)?;
    }
    let asks_clients = files.client_ca.is_some();

    let address = if standalone { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    let drain_by_default = Duration::from_secs(if standalone { 0 } else { 5 });
    let cores = || std::thread::available_parallelism().map_or(2, usize::from);
    let server = Server {
        listen: listen.unwrap_or(SocketAddr::from((address, 8443))),
        probes: probes.unwrap_or(SocketAddr::from((address, 8081))),
        certificates: Certificates::Files { files, every: certificate_poll },
        workers: workers.map_or_else(cores, usize::from),
    };
    let decider = Arc::new(decider(world));
    let shared = Shared {
        decider: decider.clone(),
        failure_policy,
        limits: Limits { deadline, drain: drain.unwrap_or(drain_by_default), ..Limits::default() },
        metrics,
        readiness,
    };

    actix_web::rt::System::new().block_on(async move {
        let bound = webhook::bind(server, shared)?;
        tracing::info!(listen = %bound.listen, probes = %bound.probes, "serving");
        if standalone {
            let ca = embedded.then_some(own.ca_cert.as_path());
            print(&welcome(bound.listen, bound.probes, ca, asks_clients, &*decider))?;
        }
        Ok(bound.serve().await?)
    })
}

/// A verdict from what the files say; with no files, from the label alone.
fn decider(world: Arc<ArcSwap<World>>) -> impl Fn(&Review<'_>) -> Verdict {
    move |review| {
        let world = world.load();
        let World { graph, policies, .. } = &**world;
        let now = jiff::Timestamp::now().as_second();
        let situation = Situation { graph, policies, live: Live::Graph, now };
        decide(&situation, review)
    }
}

/// The world of these folders, kept as they are from now on.
fn world(
    folders: Folders,
    with_objects: bool,
    every: Duration,
    metrics: &Metrics,
    readiness: &Readiness,
) -> Result<Arc<ArcSwap<World>>, CommandError> {
    if folders.is_empty() {
        return Ok(Arc::default());
    }
    let good = readiness
        .remark("files", "a file is broken, the log says which; what was read last is in use");
    let signs = Signs { metrics: metrics.clone(), good };
    Ok(files::watch(folders, with_objects, every, signs)?)
}

/// On the first start there is nothing in the folder; later all of it. What is
/// in between is somebody's own, and is not overwritten.
fn make_certificates_once(folder: &Path, own: &Made) -> Result<(), CommandError> {
    let existing = own.existing();
    match existing.len() {
        0 => {
            let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
            make_pair(folder, &names, STANDALONE_DAYS)?;
            tracing::info!(folder = %folder.display(), "made a certificate authority and a server certificate");
            Ok(())
        }
        3 => Ok(()),
        _ => Err(CommandError::Usage(format!(
            "{} is there, but not all of ca.crt, tls.crt and tls.key; give an empty --cert-dir, or \
             name your own pair with --tls-cert and --tls-key",
            existing.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" and ")
        ))),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_none(text)? {
        Duration::ZERO => Err("expected more than 0 seconds".to_owned()),
        duration => Ok(duration),
    }
}

fn seconds_or_none(text: &str) -> Result<Duration, String> {
    let number: f64 =
        text.parse().map_err(|_| "expected a number of seconds, such as 4 or 0.5".to_owned())?;
    // Above an hour it is a typing mistake, and below zero it is no time.
    if !(0.0..=3600.0).contains(&number) {
        return Err("expected between 0 and 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(number))
}
