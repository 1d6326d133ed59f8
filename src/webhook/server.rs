//! Binds both listeners, serves, and ends without losing a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer, web};
use tokio::signal::unix::{SignalKind, signal};

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

    let handlers = shared.clone();
    let drain = draining.clone();
    let admission = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::new(handlers.clone()))
            .app_data(web::Data::new(drain.clone()))
            .configure(admit::routes)
    })
    .workers(workers)
    .keep_alive(shared.limits.keep_alive)
    .client_request_timeout(shared.limits.deadline)
    .client_disconnect_timeout(Duration::from_secs(1))
    .tls_handshake_timeout(shared.limits.deadline)
    .shutdown_timeout(shared.limits.shutdown.as_secs())
    .disable_signals()
    .bind_rustls_0_23(listen, tls)
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
        listen: admission.addrs().first().copied().unwrap_or(listen),
        probes: probing.addrs().first().copied().unwrap_or(probes),
        shared,
        draining,
        admission: admission.run(),
        probing: probing.run(),
        certificates: CertificateWatch { files, loaded, serving, every: certificate_poll },
    })
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
        let probing = tokio::spawn(probing);
        let mut admission = tokio::spawn(admission);
        let mut signals = Signals::new().map_err(ServeError::Run)?;
        ready.set(true);

        let ended = tokio::select! {
            // Only an error ends the server before a signal does.
            ended = &mut admission => Some(ended),
            () = signals.next() => None,
        };
        ready.set(false);
        let ended = match ended {
            Some(ended) => ended,
            None => {
                tracing::info!(drain = ?shared.limits.drain, "ending: draining; a second signal aborts");
                draining.begin();
                tokio::select! {
                    () = drain(&draining, &handle, &shared) => {}
                    () = signals.next() => {
                        tracing::warn!("second signal: aborting");
                        handle.stop(false).await;
                    }
                }
                admission.await
            }
        };
        watching.abort();
        probe_handle.stop(false).await;
        // Its end says nothing that the server's own end does not.
        let _ = probing.await;
        match ended {
            Ok(result) => result.map_err(ServeError::Run),
            Err(join) => Err(ServeError::Run(std::io::Error::other(join))),
        }
    }
}

/// Answers on for the drain time, then stops accepting. The API server keeps
/// idle connections open, and waiting for those to end would take as long as
/// their keep-alive: so the end comes when no request is under way.
async fn drain(draining: &Draining, handle: &ServerHandle, shared: &Shared) {
    const LOOK: Duration = Duration::from_millis(20);
    // A request whose bytes are on the way when the last one has been answered
    // gets this long to arrive.
    const QUIET_LOOKS: u32 = 10;

    tokio::time::sleep(shared.limits.drain).await;
    // Stops accepting at once; its own end is not awaited for the reason above.
    let stopping = tokio::spawn(handle.stop(true));
    let give_up = tokio::time::Instant::now() + shared.limits.shutdown;
    let mut quiet = 0;
    while quiet < QUIET_LOOKS && !stopping.is_finished() && tokio::time::Instant::now() < give_up {
        tokio::time::sleep(LOOK).await;
        quiet = if draining.is_idle() { quiet + 1 } else { 0 };
    }
    handle.stop(false).await;
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
