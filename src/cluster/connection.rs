//! The connections to the API server.

use std::error::Error;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower::ServiceExt as _;
use tower::util::option_layer;

/// The same client as that of kube, but with TCP_NODELAY, and without retries.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let tls = config.rustls_https_connector_with_connector(tcp_connector())?;
    let mut connector = TimeoutConnector::new(tls);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http = legacy::Builder::new(TokioExecutor::new()).build::<_, Body>(connector);
    let namespace = config.default_namespace.clone();
    Ok(ClientBuilder::new(http.map_err(Box::<dyn Error + Send + Sync>::from), namespace)
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer())
        .build())
}

/// Without TCP_NODELAY, the first request of each connection waits up to 40 ms: the system sends it
/// only after the API server has acknowledged the end of the TLS handshake.
fn tcp_connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connections_have_tcp_nodelay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let stream = tcp_connector().oneshot(address.parse().unwrap()).await.unwrap();
        assert!(stream.inner().nodelay().unwrap());
    }
}
