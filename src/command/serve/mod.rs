//! `belay serve`: answers admission reviews over TLS.

mod cluster;
mod seconds;
mod standalone;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use self::cluster::ClusterArguments;
pub use self::cluster::{DEFAULT_BACKFILL, LABELLED_KINDS, parse_kinds};
use self::seconds::{seconds, seconds_or_zero};
use self::standalone::{StandaloneArguments, make_certificates_once};
use super::timing::TimingArguments;
use super::welcome::welcome;
use super::{CommandError, print};
use crate::certs::{CertificateFiles, CertificatePaths, PairFiles, Serving};
use crate::decide::FailurePolicy;
use crate::telemetry::{LogFormat, Metrics, Readiness, init_logs};
use crate::timing::Timing;
use crate::webhook::{self, Certificates, Limits, ServerSettings, Shared, default_threads};

#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Serve without a cluster: listen on 127.0.0.1, create certificates in --cert-dir at
    /// the first start, and answer at /validate and /mutate without a secret path
    #[arg(long)]
    standalone: bool,

    #[command(flatten)]
    with_files: StandaloneArguments,

    #[command(flatten)]
    in_cluster: ClusterArguments,

    /// The address of the webhook, with TLS [default: 0.0.0.0:8443; standalone
    /// 127.0.0.1:8443]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// The address of /healthz, /readyz and /metrics, without TLS [default: 0.0.0.0:8081;
    /// standalone 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS:PORT")]
    probes: Option<SocketAddr>,

    /// Folder with ca.crt, tls.crt and tls.key, for example a mounted TLS Secret. In a
    /// cluster, used with --certificates=files
    #[arg(long, value_name = "DIR", default_value = "certs")]
    cert_dir: PathBuf,

    /// Server certificate, PEM [default: tls.crt in --cert-dir]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the server certificate, PEM [default: tls.key in --cert-dir]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Require client certificates of these CAs, PEM
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,

    /// How often to check certificate files for changes [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    certificate_poll: Option<Duration>,

    /// What belay answers if it can't parse the object of a review. It is not the failurePolicy of
    /// the webhooks, which applies if belay does not answer
    #[arg(long, value_name = "Fail|Ignore", default_value = "Fail")]
    failure_policy: FailurePolicy,

    /// The deadline of one request. Must be shorter than the webhook's timeoutSeconds
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = seconds)]
    deadline: Duration,

    /// How long to continue after SIGTERM while reporting not ready [default: 5;
    /// standalone 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds_or_zero)]
    drain: Option<Duration>,

    /// Threads that answer reviews [default: one for each core, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    workers: Option<u16>,

    #[command(flatten)]
    timing: TimingArguments,

    /// The format of log lines
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    log_format: LogFormat,
}

/// The options of both modes.
struct ServeOptions {
    listen: Option<SocketAddr>,
    probes: Option<SocketAddr>,
    pair: PairFiles,
    client_ca: Option<PathBuf>,
    failure_policy: FailurePolicy,
    limits: Limits,
    timing: Timing,
    workers: usize,
    metrics: Metrics,
    readiness: Readiness,
}

pub fn run(arguments: ServeArguments) -> Result<(), CommandError> {
    let ServeArguments {
        standalone,
        with_files,
        in_cluster,
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
        timing,
        log_format,
    } = arguments;
    init_logs(log_format);
    let mut timing = timing.read();
    if let Some(poll) = certificate_poll {
        timing.certificates.poll = poll;
    }
    let without_cluster = standalone.then_some(Duration::ZERO);
    timing.webhook.drain = drain.or(without_cluster).unwrap_or(timing.webhook.drain);
    in_cluster.set_timing(&mut timing);
    let in_folder = CertificatePaths::in_folder(&cert_dir);
    let pair = PairFiles {
        tls_cert: tls_cert.unwrap_or_else(|| in_folder.tls_cert.clone()),
        tls_key: tls_key.unwrap_or_else(|| in_folder.tls_key.clone()),
    };
    let cores = || std::thread::available_parallelism().map_or(2, usize::from);
    let options = ServeOptions {
        listen,
        probes,
        pair,
        client_ca,
        failure_policy,
        limits: Limits {
            answer_timeout: deadline,
            drain: timing.webhook.drain,
            ..Limits::default()
        },
        timing,
        workers: workers.map_or_else(|| default_threads(cores()), usize::from),
        metrics: Metrics::default(),
        readiness: Readiness::default(),
    };
    if standalone {
        serve_standalone(options, with_files, &in_folder)
    } else {
        serve_cluster(options, in_cluster, &in_folder)
    }
}

fn serve_standalone(
    options: ServeOptions,
    with_files: StandaloneArguments,
    in_folder: &CertificatePaths,
) -> Result<(), CommandError> {
    let decider = Arc::new(with_files.decider(&options.metrics, &options.readiness)?);
    let uses_folder = options.pair.tls_cert == in_folder.tls_cert;
    if uses_folder {
        make_certificates_once(in_folder)?;
    }
    let requires_client_certificate = options.client_ca.is_some();
    let (server, shared) = options.server(Ipv4Addr::LOCALHOST, None, decider.clone());
    actix_web::rt::System::new().block_on(async move {
        let bound = webhook::bind(server, shared)?;
        tracing::info!(listen = %bound.listen, probes = %bound.probes, "serving");
        let ca = uses_folder.then_some(in_folder.ca_cert.as_path());
        print(&welcome(bound.listen, bound.probes, ca, requires_client_certificate, &*decider))?;
        Ok(bound.serve().await?)
    })
}

fn serve_cluster(
    options: ServeOptions,
    arguments: ClusterArguments,
    in_folder: &CertificatePaths,
) -> Result<(), CommandError> {
    let shows_graph = arguments.debug_graph;
    let (metrics, readiness) = (options.metrics.clone(), options.readiness.clone());
    let cluster = arguments.start(options.timing, &in_folder.ca_cert, metrics, readiness)?;
    let (server, mut shared) =
        options.server(Ipv4Addr::UNSPECIFIED, cluster.serving(), cluster.decider());
    shared.secret_paths = Some(cluster.accepted_paths());
    if shows_graph {
        shared.print_graph = Some(Arc::new(cluster.dump()));
    }
    let died = cluster.died();
    let cluster_end = {
        let mut died = died.clone();
        async move {
            // An error means that all tasks have ended.
            let _ = died.wait_for(Option::is_some).await;
        }
    };
    let served = actix_web::rt::System::new().block_on(async move {
        let bound = webhook::bind(server, shared)?;
        tracing::info!(listen = %bound.listen, probes = %bound.probes, "serving");
        bound.serve_until(cluster_end).await
    });
    let died = *died.borrow();
    // The cluster side stops last, because reviews need up-to-date data until the server has
    // stopped.
    cluster.stop();
    served?;
    match died {
        None => Ok(()),
        Some(part) => Err(CommandError::Remote(format!(
            "a task of belay has ended unexpectedly ({part}); see the log"
        ))),
    }
}

impl ServeOptions {
    /// The server and the data that its handlers share. `address` is the default. Without
    /// `serving`, the certificate comes from files.
    fn server(
        self,
        address: Ipv4Addr,
        serving: Option<Arc<Serving>>,
        decider: Arc<dyn webhook::Decider>,
    ) -> (ServerSettings, Shared) {
        let pair = serving.is_none().then_some(self.pair);
        let certificates = Certificates {
            serving: serving.unwrap_or_default(),
            files: CertificateFiles { pair, client_ca: self.client_ca },
            poll_interval: self.timing.certificates.poll,
        };
        let server = ServerSettings {
            listen: self.listen.unwrap_or(SocketAddr::from((address, 8443))),
            probes: self.probes.unwrap_or(SocketAddr::from((address, 8081))),
            certificates,
            workers: self.workers,
        };
        let shared = Shared {
            decider,
            failure_policy: self.failure_policy,
            limits: self.limits,
            metrics: self.metrics,
            readiness: self.readiness,
            secret_paths: None,
            print_graph: None,
        };
        (server, shared)
    }
}
