//! Binds both listeners, serves, and ends without losing a request.

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

use super::body::BodyMemory;
use super::callers::{Callers, Client};
use super::connection::{Connection, MAX_HEAD_BYTES};
use super::draining::Draining;
use super::handshakes::Handshakes;
use super::records::RecordSocket;
use super::slots::{ConnectionLimits, ConnectionSlots, StateSlots};
use super::timed::{Socket, Timed};
use super::{Limits, ServeError, Shared, admit, probes};
use crate::certs::{self, CertificateFiles, Serving};

/// How many connections may wait to be accepted; the kernel may allow fewer.
const BACKLOG: i32 = 4096;

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

/// A server that listens and does not serve yet, so that its addresses are known before the
/// first request.
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

/// Loads the certificates and listens on both addresses. Serves nothing yet.
pub fn bind(server: Server, shared: Shared) -> Result<Bound, ServeError> {
    let Server { listen, probes, certificates, workers } = server;
    let Certificates { serving, files, .. } = &certificates;
    let loaded = files.load(serving, &shared.metrics)?;
    let tls = certs::server_config(serving, files.client_ca.is_some())?;
    let draining = Draining::default();

    let unbound = |address, option| move |source| ServeError::Bind { address, option, source };
    let no_webhook = unbound(listen, "--listen");
    let listener = open_listener(listen).map_err(no_webhook)?;
    let address = listener.local_addr().unwrap_or(listen);
    let bounds = ConnectionLimits::for_threads(workers);
    let admission =
        admission(listener, tls, (workers, &bounds), &shared, &draining).map_err(no_webhook)?;

    let no_probes = unbound(probes, "--probes");
    let listener = open_listener(probes).map_err(no_probes)?;
    // A connection that ends for a newer one leaves nothing in the kernel.
    sockopt::set_socket_linger(&listener, Some(Duration::ZERO))
        .map_err(|error| no_probes(error.into()))?;
    let probes_address = listener.local_addr().unwrap_or(probes);
    let probing = probing(listener, bounds.probes, &shared).map_err(no_probes)?;

    Ok(Bound {
        listen: address,
        probes: probes_address,
        shared,
        draining,
        admission,
        probing,
        certificates,
        loaded,
    })
}

/// What the kernel keeps of answers that a client does not read, in bytes.
const UNREAD: usize = 64 << 10;

/// How long it keeps them, in milliseconds.
const UNREAD_TIME: u32 = 5_000;

/// What it keeps of requests that belay has not read yet. Without a limit it keeps more of
/// a connection the more was read on it.
const ARRIVED: usize = 32 << 10;

/// How long a client of the probes may read its answer.
const LINGER: Duration = Duration::from_secs(1);

/// Listens. std lets 128 connections wait to be accepted. When more come at once,
/// the kernel drops the API server's, which tries again a second later.
fn open_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // Connections have the options of their listener.
    sockopt::set_socket_send_buffer_size(&listener, UNREAD)?;
    sockopt::set_socket_recv_buffer_size(&listener, ARRIVED)?;
    // Else the first answer waits 40 ms until the client has acknowledged the tickets of TLS.
    sockopt::set_tcp_nodelay(&listener, true)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(&listener, UNREAD_TIME)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// The server of reviews.
fn admission(
    listener: TcpListener,
    tls: rustls::ServerConfig,
    (workers, bounds): (usize, &ConnectionLimits),
    shared: &Shared,
    draining: &Draining,
) -> std::io::Result<actix_web::dev::Server> {
    let (shared, draining) = (shared.clone(), draining.clone());
    let room = BodyMemory::new(&shared.limits);
    let limits = shared.limits.clone();
    let shutdown = limits.shutdown.as_secs();
    let (bounds, callers) = (*bounds, Callers::default());
    // Its own limit lets new connections wait. `ConnectionSlots` bounds their number.
    actix_tls::accept::max_concurrent_tls_connect(usize::MAX);
    let builder = actix_web::dev::Server::build();
    let graceful = builder.graceful_shutdown_signal();
    let service = move || {
        let (data, draining, room) = (shared.clone(), draining.clone(), room.clone());
        let routes = move |config: &mut web::ServiceConfig| {
            let secret = data.tokens.is_some();
            config
                .app_data(web::Data::new(data))
                .app_data(web::Data::new(draining))
                .app_data(web::Data::new(room));
            admit::routes(config, secret);
        };
        let slots = StateSlots::new(&bounds);
        let known = callers.clone();
        let http =
            http(routes, (slots, known), limits.keep_alive, limits.clone(), graceful.clone());
        let mut acceptor = Acceptor::new(tls.clone());
        acceptor.set_handshake_timeout(limits.deadline);
        let (handshakes, callers) = (Handshakes::new(limits.deadline), callers.clone());
        let known = ConnectionSlots::new(bounds.known_handshakes);
        let unknown = ConnectionSlots::new(bounds.handshakes);
        let accept = move |io: TcpStream, tls: &AcceptorService| {
            let client = callers.client(io.peer_addr().ok().map(|peer| peer.ip()));
            let (slots, address) = match client {
                Client::Known(address) => (&known, Some(address)),
                Client::Unknown(address) => (&unknown, address),
            };
            let ended = slots.admit_handshake(address).then(|| {
                let handshake = Box::pin(tls.call(RecordSocket::new(io)));
                let handshakes = handshakes.clone();
                slots.run_for(address, move |wait| handshakes.run(client, handshake, wait))
            });
            async move {
                match ended {
                    Some(ended) => ended.await.flatten().unwrap_or(Err(TlsError::Timeout)),
                    None => Err(TlsError::Timeout),
                }
            }
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
        .max_concurrent_connections(bounds.connections)
        .shutdown_timeout(shutdown)
        .disable_signals()
        .listen("admission", listener, service)?
        .run())
}

/// The server of the probes: one thread, and one request on each connection.
fn probing(
    listener: TcpListener,
    connections: usize,
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
        let slots = (StateSlots::for_probes(connections), Callers::default());
        let http = http(routes, slots, Duration::ZERO, limits.clone(), graceful.clone());
        fn_service(move |io: TcpStream| {
            let peer = io.peer_addr().ok();
            ready(Ok((io, peer)))
        })
        .and_then(http)
    };
    Ok(builder
        .workers(1)
        // The oldest ones end before new ones have to wait.
        .max_concurrent_connections(2 * connections)
        .disable_signals()
        .listen("probes", listener, service)?
        .run())
}

/// What `HttpServer` would build, with [`Timed`] below HTTP. The newest connection takes
/// the slot of the oldest.
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
    // A refusal of a body that came too late is written before that.
    let answer = limits.deadline + Duration::from_millis(500);
    let idle = answer.max(keep_alive + Duration::from_secs(1));
    let linger = if keep_alive.is_zero() { LINGER } else { Duration::ZERO };
    let http = HttpService::build()
        // Without it the end would wait for connections that the API server keeps
        // idle for minutes.
        .graceful_shutdown_signal(move || {
            let signal = graceful.clone();
            async move { signal.notified().await }
        })
        .keep_alive(keep_alive)
        // Its answer to a connection that has sent nothing yet is 408, which lets a request
        // pass where a webhook has failurePolicy Ignore. `Timed` ends it without a word.
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(linger + Duration::from_secs(1))
        .on_connect_ext(|io: &Timed<T>, data| {
            data.insert(io.connection().clone());
        })
        .finish(map_config(
            App::new()
                .wrap_fn(move |request, service| {
                    answer_up_to_last(request, service, keep_alive.is_zero())
                })
                .configure(routes),
            |_| AppConfig::default(),
        ));
    apply_fn_factory(http, move |(io, peer): (T, Option<SocketAddr>), http| {
        let connection = Connection::new(MAX_HEAD_BYTES);
        let timed = Timed::new(io, answer, idle, connection.clone()).with_linger(linger);
        let address = peer.map(|peer| peer.ip());
        let first = match callers.client(address) {
            Client::Known(_) => &slots.known,
            Client::Unknown(_) => &slots.new,
        };
        let (slot, ended) = first.occupy(Service::call(http, (timed, Protocol::Http1, peer)));
        let caller = address.map(|address| (address, callers.clone()));
        connection.set_slot(slot, first, slots.clone(), caller);
        async move { ended.await.unwrap_or(Ok(())) }
    })
}

/// Answers a request, unless it was sent behind one whose answer ends the connection.
fn answer_up_to_last<S, B>(
    request: ServiceRequest,
    service: &S,
    is_last: bool,
) -> impl Future<Output = Result<ServiceResponse<EitherBody<B>>, S::Error>> + use<S, B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>>,
{
    // Not of the answer: actix uses heads again that have the version of another request.
    let is_last = is_last || request.head().connection_type() == ConnectionType::Close;
    let connection = request.conn_data::<Rc<Connection>>().cloned();
    let admitted = connection.as_deref().is_none_or(Connection::admit_request);
    let answer = match admitted {
        true => Either::Left(service.call(request)),
        // It is not sent: the connection ends.
        false => Either::Right(request.into_response(HttpResponse::BadRequest().finish())),
    };
    async move {
        let answered = match answer {
            Either::Left(answer) => answer.await?.map_into_left_body(),
            Either::Right(refused) => return Ok(refused.map_into_right_body()),
        };
        if let Some(connection) = connection.filter(|_| is_last) {
            connection.end_requests();
        }
        Ok(answered)
    }
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
        // Linux doubles it.
        assert_eq!(sockopt::socket_send_buffer_size(&connection).unwrap(), 2 * UNREAD);
        assert_eq!(sockopt::socket_recv_buffer_size(&connection).unwrap(), 2 * ARRIVED);
        #[cfg(target_os = "linux")]
        assert_eq!(sockopt::tcp_user_timeout(&connection).unwrap(), UNREAD_TIME);
        assert!(sockopt::tcp_nodelay(&connection).unwrap());
    }
}
