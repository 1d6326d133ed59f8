//! Binds both listeners, serves, and ends without losing a request.

use std::future::ready;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use actix_http::{HttpService, Protocol};
use actix_service::{ServiceFactoryExt as _, fn_service, map_config};
use actix_tls::accept::TlsError;
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_web::dev::{AppConfig, ServerHandle};
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpServer, web};
use tokio::signal::unix::{SignalKind, signal};

use super::timed::Timed;
use super::{ServeError, Shared, admit, probes};
use crate::certs::{self, CertificateFiles, Serving};

/// Where to listen, and with what.
#[derive(Debug, Clone)]
pub struct Server {
    /// The address of the webhook itself.
    pub listen: SocketAddr,
    /// The address of probes and metrics.
    pub probes: SocketAddr,
    /// The certificates.
    pub files: CertificateFiles,
    /// How often the certificates are looked at.
    pub certificate_poll: Duration,
    /// Threads that answer reviews.
    pub workers: usize,
}

/// A server that listens and does not serve yet, so that its addresses can be
/// told before the first request.
pub struct Bound {
    /// The webhook's address, with the port that the system chose for port 0.
    pub listen: SocketAddr,
    /// The probes' address.
    pub probes: SocketAddr,
    shared: Shared,
    draining: Draining,
    admission: actix_web::dev::Server,
    probing: actix_web::dev::Server,
    certificates: CertificateWatch,
}

struct CertificateWatch {
    files: CertificateFiles,
    loaded: certs::Contents,
    serving: Arc<Serving>,
    every: Duration,
}

/// Counts requests under way and knows whether the end has begun.
#[derive(Debug, Clone, Default)]
pub(super) struct Draining(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    draining: AtomicBool,
    under_way: AtomicUsize,
}

impl Draining {
    /// Counts a request for as long as the guard lives.
    pub(super) fn enter(&self) -> impl Drop + use<> {
        struct Guard(Arc<DrainState>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.under_way.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.0.under_way.fetch_add(1, Ordering::AcqRel);
        Guard(self.0.clone())
    }

    pub(super) fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire)
    }

    fn begin(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    fn is_idle(&self) -> bool {
        self.0.under_way.load(Ordering::Acquire) == 0
    }
}

/// Loads the certificates and listens on both addresses. Serves nothing yet.
pub fn bind(server: Server, shared: Shared) -> Result<Bound, ServeError> {
    let Server { listen, probes, files, certificate_poll, workers } = server;
    let serving = Arc::new(Serving::default());
    let loaded = files.load(&serving, &shared.metrics)?;
    let tls = certs::server_config(&files, &serving)?;
    let draining = Draining::default();

    let listener = TcpListener::bind(listen).map_err(|source| ServeError::Bind {
        address: listen,
        option: "--listen",
        source,
    })?;
    let address = listener.local_addr().unwrap_or(listen);
    let admission = admission(listener, tls, workers, &shared, &draining)
        .map_err(|source| ServeError::Bind { address: listen, option: "--listen", source })?;

    let handlers = shared.clone();
    let probing = HttpServer::new(move || {
        App::new().app_data(web::Data::new(handlers.clone())).configure(probes::routes)
    })
    .workers(1)
    .disable_signals()
    .bind(probes)
    .map_err(|source| ServeError::Bind { address: probes, option: "--probes", source })?;

    Ok(Bound {
        listen: address,
        probes: probing.addrs().first().copied().unwrap_or(probes),
        shared,
        draining,
        admission,
        probing: probing.run(),
        certificates: CertificateWatch { files, loaded, serving, every: certificate_poll },
    })
}

/// The TLS server: what `HttpServer` would build, with [`Timed`] between TLS
/// and HTTP.
fn admission(
    listener: TcpListener,
    tls: rustls::ServerConfig,
    workers: usize,
    shared: &Shared,
    draining: &Draining,
) -> std::io::Result<actix_web::dev::Server> {
    let (shared, draining) = (shared.clone(), draining.clone());
    let limits = shared.limits.clone();
    let shutdown = limits.shutdown.as_secs();
    // A refusal of what came too late is written before the connection ends.
    let answer = limits.deadline + Duration::from_secs(1);
    let idle = limits.keep_alive + Duration::from_secs(1);
    let service = move || {
        let app = App::new()
            .app_data(web::Data::new(shared.clone()))
            .app_data(web::Data::new(draining.clone()))
            .configure(admit::routes);
        let http = HttpService::build()
            .keep_alive(limits.keep_alive)
            .client_request_timeout(limits.deadline)
            .client_disconnect_timeout(Duration::from_secs(1))
            .finish(map_config(app, |_| AppConfig::default()));
        let mut acceptor = Acceptor::new(tls.clone());
        acceptor.set_handshake_timeout(limits.deadline);
        acceptor
            .map_err(TlsError::into_service_error)
            .and_then(fn_service(move |io: TlsStream<TcpStream>| {
                let peer = io.get_ref().0.peer_addr().ok();
                ready(Ok((Timed::new(io, answer, idle), Protocol::Http1, peer)))
            }))
            .and_then(http.map_err(TlsError::Service))
    };
    Ok(actix_web::dev::Server::build()
        .workers(workers)
        .shutdown_timeout(shutdown)
        .disable_signals()
        .listen("admission", listener, service)?
        .run())
}

impl Bound {
    /// Serves until SIGTERM or SIGINT, then ends in order: not ready at once,
    /// answering for the drain time, then no new connections, then the last
    /// requests end. A second signal ends it on the spot.
    pub async fn serve(self) -> Result<(), ServeError> {
        let Self { listen: _, probes: _, shared, draining, admission, probing, certificates } =
            self;
        let CertificateWatch { files, loaded, serving, every } = certificates;
        let ready = shared.readiness.condition("serving");
        let watching =
            tokio::spawn(certs::watch(files, loaded, serving, shared.metrics.clone(), every));
        let handle = admission.handle();
        let probe_handle = probing.handle();
        tokio::spawn(probing);
        let mut admission = tokio::spawn(admission);
        let mut signals = Signals::new().map_err(ServeError::Run)?;
        ready.set(true);

        tokio::select! {
            // Only an error ends the server before a signal does.
            ended = &mut admission => {
                let ended = ended.map_err(std::io::Error::other).and_then(|result| result);
                return ended.map_err(ServeError::Run);
            }
            () = signals.next() => {}
        }
        ready.set(false);
        draining.begin();
        tracing::info!(drain = ?shared.limits.drain, "ending: draining; a second signal aborts");
        let result = tokio::select! {
            () = drain(&draining, &handle, &shared) => Ok(()),
            () = signals.next() => Err(ServeError::Aborted),
        };
        watching.abort();
        // The servers are not awaited: actix would wait for connections that
        // the API server keeps idle, and for what a second signal cuts short.
        // They end with the process.
        drop(probe_handle.stop(false));
        tracing::info!("ended");
        result
    }
}

/// Answers on for the drain time, then stops accepting and waits until no
/// request is under way.
async fn drain(draining: &Draining, handle: &ServerHandle, shared: &Shared) {
    const LOOK: Duration = Duration::from_millis(20);
    // A request whose bytes are on the way when the last one has been answered
    // gets this long to arrive.
    const QUIET_LOOKS: u32 = 10;

    tokio::time::sleep(shared.limits.drain).await;
    // The command to stop accepting is sent by the call itself.
    drop(handle.stop(true));
    let give_up = tokio::time::Instant::now() + shared.limits.shutdown;
    let mut quiet = 0;
    while quiet < QUIET_LOOKS && tokio::time::Instant::now() < give_up {
        tokio::time::sleep(LOOK).await;
        quiet = if draining.is_idle() { quiet + 1 } else { 0 };
    }
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
