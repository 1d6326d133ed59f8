//! Binds both listeners, serves, and ends without losing a request.

use std::future::ready;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_http::{HttpService, Protocol};
use actix_service::{
    Service as _, ServiceFactoryExt as _, apply_fn_factory, fn_service, map_config,
};
use actix_tls::accept::TlsError;
use actix_tls::accept::rustls_0_23::{Acceptor, AcceptorService, TlsStream};
use actix_web::dev::AppConfig;
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpServer, web};
use tokio::signal::unix::{SignalKind, signal};

use super::body::Room;
use super::handshakes::{Handshakes, ThreadBounds};
use super::timed::Timed;
use super::{ServeError, Shared, admit, probes};
use crate::certs::{self, CertificateFiles, Serving};

/// How many connections may wait to be accepted; the kernel may allow fewer.
const BACKLOG: i32 = 4096;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// Where to listen, and with what.
#[derive(Debug, Clone)]
pub struct Server {
    /// The address of the webhook itself.
    pub listen: SocketAddr,
    /// The address of probes and metrics.
    pub probes: SocketAddr,
    /// The certificates.
    pub certificates: Certificates,
    /// Threads that answer reviews.
    pub workers: usize,
}

/// Where the certificates come from.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// What is served. Where no file holds the server's certificate, another
    /// part of belay replaces it here; until then every handshake fails.
    pub serving: Arc<Serving>,
    /// The files, which have to be good now, and are read again.
    pub files: CertificateFiles,
    /// How often they are read.
    pub every: Duration,
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
    certificates: Certificates,
    loaded: certs::Contents,
}

/// Whether the end has begun: clients are to take their next request elsewhere.
#[derive(Debug, Clone, Default)]
pub(super) struct Draining(Arc<AtomicBool>);

impl Draining {
    pub(super) fn is_draining(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Loads the certificates and listens on both addresses. Serves nothing yet.
pub fn bind(server: Server, shared: Shared) -> Result<Bound, ServeError> {
    let Server { listen, probes, certificates, workers } = server;
    let Certificates { serving, files, .. } = &certificates;
    let loaded = files.load(serving, &shared.metrics)?;
    let tls = certs::server_config(serving, files.client_ca.is_some())?;
    let draining = Draining::default();

    let listener = open_listener(listen).map_err(|source| ServeError::Bind {
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
        certificates,
        loaded,
    })
}

/// Listens. std lets 128 connections wait to be accepted. When more come at once,
/// the kernel drops the API server's, which tries again a second later.
fn open_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
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
    let room = Room::new(&shared.limits);
    let limits = shared.limits.clone();
    let shutdown = limits.shutdown.as_secs();
    // A refusal of a body that came too late is written before that.
    let answer = limits.deadline + Duration::from_millis(500);
    let idle = limits.keep_alive + Duration::from_secs(1);
    // Its own limit lets new connections wait. `Handshakes` bounds their number.
    actix_tls::accept::max_concurrent_tls_connect(usize::MAX);
    let bounds = ThreadBounds::of(workers);
    let builder = actix_web::dev::Server::build();
    // Without it the end would wait for connections that the API server keeps
    // idle for minutes.
    let graceful = builder.graceful_shutdown_signal();
    let service = move || {
        let graceful = graceful.clone();
        let app = App::new()
            .app_data(web::Data::new(shared.clone()))
            .app_data(web::Data::new(draining.clone()))
            .app_data(web::Data::new(room.clone()))
            .configure(|config| admit::routes(config, shared.tokens.is_some()));
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let signal = graceful.clone();
                async move { signal.notified().await }
            })
            .keep_alive(limits.keep_alive)
            .client_request_timeout(limits.deadline)
            .client_disconnect_timeout(Duration::from_secs(1))
            .finish(map_config(app, |_| AppConfig::default()));
        let mut acceptor = Acceptor::new(tls.clone());
        acceptor.set_handshake_timeout(limits.deadline.min(HANDSHAKE));
        let handshakes = Handshakes::new(bounds.handshakes);
        let accept = move |io: TcpStream, tls: &AcceptorService| {
            let ended = handshakes.run(tls.call(io));
            async move { ended.await.unwrap_or(Err(TlsError::Timeout)) }
        };
        apply_fn_factory::<_, _, _, _, TcpStream, TcpStream, _, _>(acceptor, accept)
            .map_err(TlsError::into_service_error)
            .and_then(fn_service(move |io: TlsStream<TcpStream>| {
                let peer = io.get_ref().0.peer_addr().ok();
                ready(Ok((Timed::new(io, answer, idle), Protocol::Http1, peer)))
            }))
            .and_then(http.map_err(TlsError::Service))
    };
    Ok(builder
        .workers(workers)
        .max_concurrent_connections(bounds.connections)
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
        self.serve_until(std::future::pending()).await
    }

    /// Serves until a signal, or until `over`, and ends in the same order.
    pub async fn serve_until(self, over: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { shared, draining, admission, probing, certificates, loaded, .. } = self;
        let ready = shared.readiness.condition("serving");
        let Certificates { serving, files, every } = certificates;
        let metrics = shared.metrics.clone();
        let watching = tokio::spawn(certs::watch(files, loaded, serving, metrics, every));
        let handle = admission.handle();
        let probe_handle = probing.handle();
        let mut probing = tokio::spawn(probing);
        let mut admission = tokio::spawn(admission);
        let mut signals = Signals::new().map_err(ServeError::Run)?;
        ready.set(true);

        tokio::select! {
            // Only an error ends a server before a signal does.
            ended = &mut admission => return Err(unexpected(ended)),
            ended = &mut probing => return Err(unexpected(ended)),
            () = signals.next() => {}
            () = over => {}
        }
        ready.set(false);
        draining.begin();
        tracing::info!(drain = ?shared.limits.drain, "ending: draining; a second signal aborts");
        let drain = async {
            tokio::time::sleep(shared.limits.drain).await;
            // No new connections, idle ones end, requests under way are
            // answered, within the shutdown time.
            handle.stop(true).await;
        };
        let result = tokio::select! {
            () = drain => Ok(()),
            () = signals.next() => {
                tracing::warn!("second signal: aborting");
                Err(ServeError::Aborted)
            }
        };
        watching.abort();
        // What is left ends with the process.
        drop(probe_handle.stop(false));
        tracing::info!("ended");
        result
    }
}

/// A server that ended with no signal, by an error or for no reason it gives.
fn unexpected(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> ServeError {
    let result = ended.map_err(std::io::Error::other).and_then(|result| result);
    ServeError::Run(result.err().unwrap_or_else(|| std::io::Error::other("it ended by itself")))
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
