//! A port that a provider reaches by an HTTP address of its own: a connection to that address, and
//! what a request needs to get from there to the port.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::sandbox::{HttpAccess, Stream, WorkError};

/// How long the provider's address may take to accept a connection, TLS included.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Where requests to a port go.
pub struct HttpWay {
    scheme: Scheme,
    authority: Authority,
    /// Comes before the path of each request; does not end in a slash.
    prefix: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl HttpWay {
    /// Reads what a provider answered.
    ///
    /// # Errors
    /// [`WorkError::Broken`] if it is no `http` or `https` address, or not a header.
    pub fn new(access: &HttpAccess) -> Result<Self, WorkError> {
        let broken = || WorkError::Broken("it answered no usable address for the port".into());
        let uri: Uri = access.base_url.parse().map_err(|_| broken())?;
        let parts = uri.into_parts();
        let scheme = parts.scheme.filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let path = parts.path_and_query.as_ref().map_or("", PathAndQuery::path);
        let header = |(name, value): &(String, String)| {
            let mut value = HeaderValue::from_str(value).ok()?;
            value.set_sensitive(true);
            Some((name.parse().ok()?, value))
        };
        Ok(Self {
            scheme: scheme.ok_or_else(broken)?,
            authority: parts.authority.ok_or_else(broken)?,
            prefix: path.trim_end_matches('/').to_owned(),
            headers: access.headers.iter().map(header).collect::<Option<_>>().ok_or_else(broken)?,
        })
    }

    /// A connection to the provider's address.
    ///
    /// # Errors
    /// [`WorkError::Broken`] if it cannot be reached, or TLS does not verify it.
    pub async fn connect(&self) -> Result<Box<dyn Stream>, WorkError> {
        let broken = |why: &str| {
            WorkError::Broken(format!("its address for the port, {}: {why}", self.authority))
        };
        let connecting = async {
            let is_tls = self.scheme == Scheme::HTTPS;
            let port = self.authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
            // An IPv6 address is in brackets there.
            let host = self.authority.host().trim_matches(['[', ']']);
            let stream = TcpStream::connect((host, port)).await?;
            if !is_tls {
                return Ok(Box::new(stream) as Box<dyn Stream>);
            }
            let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
            let stream = TlsConnector::from(tls()?).connect(name, stream).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        };
        match timeout(CONNECT_WAIT, connecting).await {
            Ok(connected) => connected.map_err(|error: std::io::Error| broken(&error.to_string())),
            Err(_) => Err(broken("no connection within 10 seconds")),
        }
    }

    /// Turns a request to the port's server into one to the provider's address.
    pub fn aim(&self, request: &mut hyper::Request<()>) {
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        *request.uri_mut() = format!("{}{path}", self.prefix).parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(self.authority.as_str()) {
            headers.insert(hyper::header::HOST, host);
        }
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
    }

    /// How the port's server may be called in a redirect, the longest form first; none of them ends
    /// in a slash.
    pub fn names(&self) -> Vec<String> {
        let whole = format!("{}://{}{}", self.scheme, self.authority, self.prefix);
        [whole, self.prefix.clone()].into_iter().filter(|name| !name.is_empty()).collect()
    }
}

/// TLS as every connection to a provider uses it.
fn tls() -> std::io::Result<Arc<ClientConfig>> {
    static TLS: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = TLS.get() {
        return Ok(Arc::clone(config));
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::clone(TLS.get_or_init(|| Arc::new(config))))
}
