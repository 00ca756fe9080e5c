//! Opens an object storage: a local directory, or S3 and what is compatible with it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt;
use http_body_util::StreamBody;
use hyper::body::Frame;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore};

use super::SyncError;
use crate::config::{S3Location, StorageKeys, StorageLocation};

/// An opened object storage.
#[derive(Clone, Debug)]
pub struct OpenStorage {
    /// It.
    pub store: Arc<dyn ObjectStore>,
    /// What names in it begin with.
    pub prefix: Path,
}

impl OpenStorage {
    /// Opens it. Nothing is asked of a server yet.
    ///
    /// # Errors
    /// [`SyncError::Storage`].
    pub fn open(location: &StorageLocation) -> Result<Self, SyncError> {
        match location {
            StorageLocation::Directory(path) => {
                let failed = |error: std::io::Error| {
                    SyncError::Storage(format!("cannot make {}: {error}", path.display()))
                };
                // As the data directory: what sandboxes hold is not for other users of the machine.
                DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
                // A version must not be there before what it names.
                let store = LocalFileSystem::new_with_prefix(path)?.with_fsync(true);
                // Else a version that is removed leaves a directory that looks like one.
                let store = store.with_automatic_cleanup(true);
                Ok(Self { store: Arc::new(store), prefix: Path::default() })
            }
            StorageLocation::S3(location) => Self::s3(location),
        }
    }

    fn s3(location: &S3Location) -> Result<Self, SyncError> {
        let S3Location { bucket, prefix, endpoint, region, keys } = location;
        let mut builder =
            AmazonS3Builder::from_env().with_http_connector(OurConnector).with_bucket_name(bucket);
        if let Some(endpoint) = endpoint {
            builder =
                builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        if let Some(region) = region {
            builder = builder.with_region(region);
        }
        if let Some(StorageKeys { id, key }) = keys {
            builder = builder
                .with_config(AmazonS3ConfigKey::AccessKeyId, id)
                .with_config(AmazonS3ConfigKey::SecretAccessKey, key.expose());
        }
        let prefix = Path::parse(prefix).map_err(|error| SyncError::Storage(error.to_string()))?;
        Ok(Self { store: Arc::new(builder.build()?), prefix })
    }
}

/// Makes clients with the TLS that all of issuebox has.
#[derive(Debug)]
struct OurConnector;

impl HttpConnector for OurConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(60))
            // A signature holds for one host.
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let failed = |error| object_store::Error::Generic { store: "S3", source: Box::new(error) };
        Ok(HttpClient::new(OurClient(client.map_err(failed)?)))
    }
}

#[derive(Debug)]
struct OurClient(reqwest::Client);

#[async_trait]
impl HttpService for OurClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let len = body.content_length();
        let mut sent = self.0.request(parts.method, parts.uri.to_string()).headers(parts.headers);
        if len > 0 {
            sent = sent.body(reqwest::Body::wrap(body));
        }
        let answer = sent.send().await.map_err(http_error)?;
        let mut response = HttpResponse::new(HttpResponseBody::from(bytes::Bytes::new()));
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        let body = answer.bytes_stream().map_ok(Frame::data).map_err(http_error);
        *response.body_mut() = HttpResponseBody::new(StreamBody::new(body));
        Ok(response)
    }
}

/// What may be tried again: what did not reach the server, and answers that broke off.
fn http_error(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_body() || error.is_decode() {
        HttpErrorKind::Interrupted
    } else if error.is_request() {
        HttpErrorKind::Request
    } else {
        HttpErrorKind::Unknown
    };
    // An address can have a signature in it.
    HttpError::new(kind, error.without_url())
}

#[cfg(test)]
mod tests;
