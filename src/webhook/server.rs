//! Binds both listeners, serves, and shuts down without losing a request.

use std::future::ready;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{ConnectionType, HttpService, Protocol};
use actix_server::GracefulShutdownSignal;
use actix_service::{
    Service, ServiceFactory, ServiceFactoryExt as _, apply_fn_factory, fn_service, map_config,
};
use actix_tls::accept::TlsError;
use actix_tls::accept::rustls_0_23::{Acceptor, AcceptorService, TlsStream};
use actix_web::body::EitherBody;
use actix_web::dev::{AppConfig, ServiceRequest, ServiceResponse};
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpResponse, web};
use futures_util::future::Either;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};

use super::admit::{self, MAX_QUICK_BYTES};
use super::body::BodyMemory;
use super::callers::{Callers, Client};
use super::connection::{ConnectionControl, MAX_HEAD_BYTES};
use super::draining::Draining;
use super::handshakes::Handshakes;
use super::slots::{ConnectionLimits, ConnectionSlots, StateSlots};
use super::timed::{Socket, TimedStream};
use super::tls_records::RecordSocket;
use super::{Limits, ServeError, Shared, probes};
use crate::certs::{self, CertificateFiles, Serving};

/// The number of connections that wait to be accepted. The kernel may allow fewer.
const BACKLOG: i32 = 4096;

/// The threads of each worker for decisions that wait for their turn, and for other blocking work.
const SPARE_THREADS: usize = 16;

/// The settings of the server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The address of the webhook.
    pub listen: SocketAddr,
    /// The address of probes and metrics.
    pub probes: SocketAddr,
    /// The certificates of the webhook.
    pub certificates: Certificates,
    /// The number of threads that answer reviews.
    pub workers: usize,
}

/// The certificates of the webhook, and the files that they come from.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The certificate in use. If no file contains it, another part of belay sets it here.
    /// Until then every handshake fails.
    pub serving: Arc<Serving>,
    /// The files. They must be valid at the start, and belay reads them again later.
    pub files: CertificateFiles,
    /// The interval between two reads of the files.
    pub poll_interval: Duration,
}

/// A server that listens and does not serve yet. Its addresses are known before the first
/// request.
pub struct BoundServer {
    /// The webhook's address, with the port that the system chose for port 0.
    pub listen: SocketAddr,
    /// The probes' address.
    pub probes: SocketAddr,
    shared: Shared,
    draining: Draining,
    review_server: actix_web::dev::Server,
    probe_server: actix_web::dev::Server,
    certificates: Certificates,
    loaded: certs::Contents,
}

/// Loads the certificates and listens on both addresses. Serves nothing yet.
pub fn bind(server: ServerSettings, shared: Shared) -> Result<BoundServer, ServeError> {
    let ServerSettings { listen, probes, certificates, workers } = server;
    let Certificates { serving, files, .. } = &certificates;
    let loaded = files.load(serving, &shared.metrics)?;
    let tls = certs::server_config(serving, files.client_ca.is_some())?;
    let draining = Draining::default();

    let bind_error = |address, option| move |source| ServeError::Bind { address, option, source };
    let listen_error = bind_error(listen, "--listen");
    let listener = open_listener(listen).map_err(listen_error)?;
    let listen_address = listener.local_addr().unwrap_or(listen);
    let limits = ConnectionLimits::for_threads(workers);
    let review_server = build_review_server(listener, tls, (workers, limits), &shared, &draining)
        .map_err(listen_error)?;

    let probes_error = bind_error(probes, "--probes");
    let listener = open_listener(probes).map_err(probes_error)?;
    // When belay closes a connection in favour of a newer one, the kernel drops unread data.
    sockopt::set_socket_linger(&listener, Some(Duration::ZERO))
        .map_err(|error| probes_error(error.into()))?;
    let probes_address = listener.local_addr().unwrap_or(probes);
    let probe_server =
        build_probe_server(listener, limits.probes, &shared).map_err(probes_error)?;

    Ok(BoundServer {
        listen: listen_address,
        probes: probes_address,
        shared,
        draining,
        review_server,
        probe_server,
        certificates,
        loaded,
    })
}

/// The bytes of unread answers that the kernel keeps for a connection.
const SEND_BUFFER: usize = 64 << 10;

/// The time for which the kernel keeps unread answers, in milliseconds.
const UNREAD_TIMEOUT_MS: u32 = 5_000;

/// The bytes of requests that the kernel keeps until belay reads them. Without a limit the
/// kernel keeps more on a connection that has sent much.
const RECEIVE_BUFFER: usize = 32 << 10;

/// The time that a client of the probes has to read its answer.
const LINGER: Duration = Duration::from_secs(1);

/// Opens a listener. With std's queue of 128 connections, the kernel would drop the API
/// server's connection when more arrive at once, and the API server would try again a second
/// later.
fn open_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // Connections inherit the options of their listener.
    sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER)?;
    sockopt::set_socket_recv_buffer_size(&listener, RECEIVE_BUFFER)?;
    // Without this the first answer waits 40 ms until the client has acknowledged the TLS
    // session tickets.
    sockopt::set_tcp_nodelay(&listener, true)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(&listener, UNREAD_TIMEOUT_MS)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Builds the server that answers reviews.
fn build_review_server(
    listener: TcpListener,
    tls: rustls::ServerConfig,
    (workers, connection_limits): (usize, ConnectionLimits),
    shared: &Shared,
    draining: &Draining,
) -> std::io::Result<actix_web::dev::Server> {
    let (shared, draining) = (shared.clone(), draining.clone());
    let memory = BodyMemory::new(&shared.limits);
    let limits = shared.limits.clone();
    let shutdown = limits.shutdown.as_secs();
    let blocking_threads = blocking_threads(&limits);
    let callers = Callers::default();
    // With actix's own limit new handshakes would wait. `ConnectionSlots` limits their number.
    actix_tls::accept::max_concurrent_tls_connect(usize::MAX);
    let builder = actix_web::dev::Server::build();
    let graceful = builder.graceful_shutdown_signal();
    let service = move || {
        let (data, draining, memory) = (shared.clone(), draining.clone(), memory.clone());
        let routes = move |config: &mut web::ServiceConfig| {
            config
                .app_data(web::Data::new(data))
                .app_data(web::Data::new(draining))
                .app_data(web::Data::new(memory));
            admit::routes(config);
        };
        let slots = (StateSlots::new(&connection_limits), callers.clone());
        let http = http(routes, slots, limits.keep_alive, limits.clone(), graceful.clone());
        let mut acceptor = Acceptor::new(tls.clone());
        acceptor.set_handshake_timeout(limits.answer_timeout);
        let (handshakes, callers) = (Handshakes::new(limits.answer_timeout), callers.clone());
        let known = ConnectionSlots::new(connection_limits.known_handshakes);
        let unknown = ConnectionSlots::new(connection_limits.handshakes);
        let accept = move |io: TcpStream, tls: &AcceptorService| {
            let client = callers.client(io.peer_addr().ok().map(|peer| peer.ip()));
            let slots = match client {
                Client::Known(_) => &known,
                Client::Unknown(_) => &unknown,
            };
            let handshake = Box::pin(tls.call(RecordSocket::new(io)));
            let output = slots.run(client.address(), handshakes.run(client, handshake));
            async move { output.await.flatten().unwrap_or(Err(TlsError::Timeout)) }
        };
        apply_fn_factory::<_, _, _, _, TcpStream, RecordSocket, _, _>(acceptor, accept)
            .map_err(TlsError::into_service_error)
            .and_then(fn_service(move |io: TlsStream<RecordSocket>| {
                io.get_ref().0.end_handshake();
                let peer = io.get_ref().0.socket().peer_addr().ok();
                ready(Ok((io, peer)))
            }))
            .and_then(http.map_err(TlsError::Service))
    };
    Ok(builder
        .workers(workers)
        .worker_max_blocking_threads(blocking_threads)
        .max_concurrent_connections(connection_limits.connections)
        .shutdown_timeout(shutdown)
        .disable_signals()
        .listen("admission", listener, service)?
        .run())
}

/// The maximum number of blocking threads of each worker: one for each large body that the memory
/// admits, because the body keeps it until its answer, and `SPARE_THREADS`.
fn blocking_threads(limits: &Limits) -> usize {
    let Limits { small_body_memory, large_body_memory, max_small_body, .. } = limits;
    let bodies = small_body_memory / MAX_QUICK_BYTES + large_body_memory / max_small_body.max(&1);
    bodies + SPARE_THREADS
}

/// Builds the server of the probes, with one thread and one request on each connection.
fn build_probe_server(
    listener: TcpListener,
    max_connections: usize,
    shared: &Shared,
) -> std::io::Result<actix_web::dev::Server> {
    let (shared, limits) = (shared.clone(), shared.limits.clone());
    let builder = actix_web::dev::Server::build();
    let graceful = builder.graceful_shutdown_signal();
    let service = move || {
        let data = shared.clone();
        let routes = move |config: &mut web::ServiceConfig| {
            probes::routes(config.app_data(web::Data::new(data)));
        };
        let slots = (StateSlots::for_probes(max_connections), Callers::default());
        let http = http(routes, slots, Duration::ZERO, limits.clone(), graceful.clone());
        fn_service(move |io: TcpStream| {
            let peer = io.peer_addr().ok();
            ready(Ok((io, peer)))
        })
        .and_then(http)
    };
    Ok(builder
        .workers(1)
        // More than the slots, so that older connections end before new ones wait.
        .max_concurrent_connections(2 * max_connections)
        .disable_signals()
        .listen("probes", listener, service)?
        .run())
}

/// Builds the same HTTP service as `HttpServer`, with [`TimedStream`] below HTTP and a slot for
/// each connection.
fn http<T: AsyncRead + AsyncWrite + Socket + Unpin + 'static>(
    routes: impl FnOnce(&mut web::ServiceConfig),
    (slots, callers): (StateSlots, Callers),
    keep_alive: Duration,
    limits: Limits,
    graceful: GracefulShutdownSignal,
) -> impl ServiceFactory<
    (T, Option<SocketAddr>),
    Config = (),
    Response = (),
    Error = DispatchError,
    InitError = (),
> {
    // After the timeout belay still needs time to reject a late body.
    let answer_limit = limits.answer_timeout + Duration::from_millis(500);
    let idle_limit = answer_limit.max(keep_alive + Duration::from_secs(1));
    let linger_time = if keep_alive.is_zero() { LINGER } else { Duration::ZERO };
    let http = HttpService::build()
        // Without this a shutdown would wait for connections that the API server keeps
        // idle for minutes.
        .graceful_shutdown_signal(move || {
            let signal = graceful.clone();
            async move { signal.notified().await }
        })
        .keep_alive(keep_alive)
        // actix would answer 408 on a connection that has sent nothing yet. For a webhook with
        // failurePolicy Ignore, this answer lets a request pass. `TimedStream` ends the connection
        // without an answer.
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(linger_time + Duration::from_secs(1))
        .on_connect_ext(|io: &TimedStream<T>, data| {
            data.insert(io.connection().clone());
        })
        .finish(map_config(
            App::new()
                .wrap_fn(move |request, service| {
                    answer_until_last_request(request, service, keep_alive.is_zero())
                })
                .configure(routes),
            |_| AppConfig::default(),
        ));
    apply_fn_factory(http, move |(io, peer): (T, Option<SocketAddr>), http| {
        let connection = ConnectionControl::new(MAX_HEAD_BYTES);
        let timed = TimedStream::new(io, answer_limit, idle_limit, connection.clone())
            .with_linger_time(linger_time);
        let client = callers.client(peer.map(|peer| peer.ip()));
        let address = client.address();
        let first_slots = match client {
            Client::Known(_) => &slots.known_first_request,
            Client::Unknown(_) => &slots.unknown_first_request,
        };
        let service = Service::call(http, (timed, Protocol::Http1, peer));
        let (slot, output) = first_slots.occupy(address, service);
        let caller = address.map(|address| (address, callers.clone()));
        connection.set_slot(slot, first_slots, slots.clone(), caller);
        async move { output.await.unwrap_or(Ok(())) }
    })
}

/// Answers a request. If the answer to an earlier request on the connection ends the
/// connection, this returns a placeholder that is never sent.
fn answer_until_last_request<S, B>(
    request: ServiceRequest,
    service: &S,
    is_last: bool,
) -> impl Future<Output = Result<ServiceResponse<EitherBody<B>>, S::Error>> + use<S, B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>>,
{
    // belay reads the connection type from the request. The type in the head of a response depends
    // on its HTTP version, which may be of an earlier response, because actix reuses heads.
    let is_last = is_last || request.head().connection_type() == ConnectionType::Close;
    let connection = request.conn_data::<Rc<ConnectionControl>>().cloned();
    let admitted = connection.as_deref().is_none_or(ConnectionControl::admit_request);
    let answer = match admitted {
        true => Either::Left(service.call(request)),
        // The connection ends before belay sends this answer.
        false => Either::Right(request.into_response(HttpResponse::BadRequest().finish())),
    };
    async move {
        let response = match answer {
            Either::Left(answer) => answer.await?.map_into_left_body(),
            Either::Right(rejection) => return Ok(rejection.map_into_right_body()),
        };
        if let Some(connection) = connection.filter(|_| is_last) {
            connection.end_requests();
        }
        Ok(response)
    }
}

impl BoundServer {
    /// Serves until SIGTERM or SIGINT. Then belay reports that it is not ready, and answers
    /// for the drain time. After that it accepts no new connections and answers the last
    /// requests. A second signal ends it at once.
    pub async fn serve(self) -> Result<(), ServeError> {
        self.serve_until(std::future::pending()).await
    }

    /// Serves until a signal, or until `stop` is ready, and shuts down as `serve` does.
    pub async fn serve_until(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { shared, draining, review_server, probe_server, certificates, loaded, .. } = self;
        let ready = shared.readiness.condition("serving");
        let Certificates { serving, files, poll_interval } = certificates;
        let metrics = shared.metrics.clone();
        let watching = tokio::spawn(certs::watch(files, loaded, serving, metrics, poll_interval));
        let review_handle = review_server.handle();
        let probe_handle = probe_server.handle();
        let mut probe_server = tokio::spawn(probe_server);
        let mut review_server = tokio::spawn(review_server);
        let mut signals = Signals::new().map_err(ServeError::Run)?;
        ready.set(true);

        tokio::select! {
            // Before a signal a server ends only because of an error.
            result = &mut review_server => return Err(unexpected_end(result)),
            result = &mut probe_server => return Err(unexpected_end(result)),
            () = signals.next() => {}
            () = stop => {}
        }
        ready.set(false);
        draining.begin();
        tracing::info!(drain = ?shared.limits.drain, "ending: draining; a second signal aborts");
        let drain = async {
            tokio::time::sleep(shared.limits.drain).await;
            // Accepts no new connections, ends idle ones, and answers the requests in
            // progress within the shutdown time.
            review_handle.stop(true).await;
        };
        let result = tokio::select! {
            () = drain => Ok(()),
            () = signals.next() => {
                tracing::warn!("second signal: aborting");
                Err(ServeError::Aborted)
            }
        };
        watching.abort();
        // The remaining connections end with the process.
        drop(probe_handle.stop(false));
        tracing::info!("ended");
        result
    }
}

/// The error of a server that ended without a signal.
fn unexpected_end(result: Result<std::io::Result<()>, tokio::task::JoinError>) -> ServeError {
    let result = result.map_err(std::io::Error::other).and_then(|result| result);
    ServeError::Run(result.err().unwrap_or_else(|| std::io::Error::other("it ended unexpectedly")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h79_connections_have_the_options_of_their_listener() {
        let listener = open_listener(([127, 0, 0, 1], 0).into()).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (connection, _) = listener.accept().unwrap();
        // Linux doubles the sizes.
        assert_eq!(sockopt::socket_send_buffer_size(&connection).unwrap(), 2 * SEND_BUFFER);
        assert_eq!(sockopt::socket_recv_buffer_size(&connection).unwrap(), 2 * RECEIVE_BUFFER);
        #[cfg(target_os = "linux")]
        assert_eq!(sockopt::tcp_user_timeout(&connection).unwrap(), UNREAD_TIMEOUT_MS);
        assert!(sockopt::tcp_nodelay(&connection).unwrap());
    }
}
