//! The container engine behind its socket, and what its errors mean.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::SystemInfo;
use bollard::query_parameters::RemoveVolumeOptionsBuilder;
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::address::EngineAddress;
use crate::sandbox::ProviderError;

/// How long the engine may take to answer a question that needs no work.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How long one request may take, in seconds. Callers have deadlines of their own.
const REQUEST_SECONDS: u64 = 600;

/// An engine that is reached once it is asked for something.
pub struct ContainerEngine {
    address: EngineAddress,
    client: OnceCell<Docker>,
}

impl ContainerEngine {
    /// The engine at this address.
    pub fn new(address: EngineAddress) -> Self {
        Self { address, client: OnceCell::new() }
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.address.url
    }

    /// The engine, in the newest version of its interface that both know.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`] if it is not reached.
    pub async fn client(&self) -> Result<&Docker, ProviderError> {
        let connect = async || {
            let connected = self.connect().map_err(|why| self.not_reached(why))?;
            let negotiated = timeout(ANSWER_WAIT, connected.negotiate_version()).await;
            let negotiated = negotiated.map_err(|_| self.not_reached("no answer in time"))?;
            negotiated.map_err(|error| self.not_reached(first_cause(&error)))
        };
        self.client.get_or_try_init(connect).await
    }

    /// A client, which connects with its first request.
    fn connect(&self) -> Result<Docker, String> {
        let (url, version) = (&self.address.url, API_DEFAULT_VERSION);
        let client = match (url.strip_prefix("unix://"), &self.address.tls_dir) {
            (Some(path), _) => Docker::connect_with_unix(path, REQUEST_SECONDS, version),
            (None, None) => Docker::connect_with_http(url, REQUEST_SECONDS, version),
            (None, Some(dir)) => {
                let [ca, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| dir.join(name));
                // The client would look for the key only while it connects, and go on without it.
                for file in [&ca, &cert, &key] {
                    readable(file)?;
                }
                Docker::connect_with_ssl(url, &key, &cert, &ca, REQUEST_SECONDS, version)
            }
        };
        client.map_err(|error| first_cause(&error))
    }

    /// What the engine says of itself.
    ///
    /// # Errors
    /// As for [`Self::client`].
    pub async fn info(&self) -> Result<SystemInfo, ProviderError> {
        let client = self.client().await?;
        client.info().await.map_err(|error| self.not_reached(first_cause(&error)))
    }

    fn not_reached(&self, why: impl std::fmt::Display) -> ProviderError {
        ProviderError::unavailable(format!(
            "cannot reach the container engine at {}: {why}; check that it runs and that the \
             server's user may use its socket, or set providers.docker.host",
            self.address.url
        ))
    }

    /// What an error of a request means. Callers look for the status codes that they expect first.
    pub fn failed(&self, error: Error) -> ProviderError {
        match error {
            Error::DockerResponseServerError { status_code, message } => {
                answered(status_code, message)
            }
            Error::DockerStreamError { error } => ProviderError::Broken(error),
            other => self.not_reached(first_cause(&other)),
        }
    }
}

fn readable(file: &Path) -> Result<(), String> {
    let opened = File::open(file).map(drop);
    opened.map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// What an error began with, such as "Connection refused": what is around it names only our client.
fn first_cause(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The status code of the engine's answer, if it answered.
pub fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Whether the engine refused a create because there is a container of that name: Docker answers 409, Podman 500
/// with these words.
pub fn is_name_taken(error: &Error) -> bool {
    match error {
        Error::DockerResponseServerError { status_code: 409, .. } => true,
        Error::DockerResponseServerError { status_code: 500, message } => {
            message.contains("the container name") && message.contains("is already in use")
        }
        _ => false,
    }
}

/// Removes a volume, unless a container mounts it. One that is gone already is no error.
///
/// # Errors
/// The engine's.
pub async fn remove_unmounted(engine: &Docker, volume: &str) -> Result<(), Error> {
    let options = RemoveVolumeOptionsBuilder::new().build();
    match engine.remove_volume(volume, Some(options)).await {
        Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
        removed => removed,
    }
}

/// What it means that a name is taken for long, and no container has it.
pub fn name_is_held(error: Error) -> ProviderError {
    let message = match error {
        Error::DockerResponseServerError { message, .. } => message,
        other => other.to_string(),
    };
    ProviderError::Broken(format!(
        "{message}; the engine shows no container of that name: restart it, or with Podman remove what a crash \
         has left (podman rm --storage NAME)"
    ))
}

/// What an answer of the engine means that is not a success.
fn answered(status: u16, message: String) -> ProviderError {
    let is_full = ["no space left on device", "disk quota exceeded", "too many open files"];
    if is_full.iter().any(|words| message.contains(words)) {
        return ProviderError::exhausted(format!(
            "{message}; make room where the engine keeps its data (docker system df)"
        ));
    }
    match status {
        404 => ProviderError::Absent,
        429 => ProviderError::exhausted(message),
        400..500 => ProviderError::Refused(message),
        502..=504 => ProviderError::unavailable(message),
        _ => ProviderError::Broken(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_engine_are_told_apart() {
        let of = |status, message: &str| answered(status, message.to_owned());
        assert_eq!(of(404, "No such container: x"), ProviderError::Absent);
        assert_eq!(of(400, "invalid"), ProviderError::Refused("invalid".into()));
        assert_eq!(of(409, "conflict"), ProviderError::Refused("conflict".into()));
        assert_eq!(of(500, "oops"), ProviderError::Broken("oops".into()));
        assert!(matches!(of(503, "later"), ProviderError::Unavailable { .. }));
        let full = of(500, "write /x: no space left on device");
        assert!(
            matches!(&full, ProviderError::Exhausted { what, .. } if what.contains("make room"))
        );
    }

    #[test]
    fn a_name_that_is_taken_is_known_by_either_engine_s_answer() {
        let of = |status_code, message: &str| {
            let message = message.to_owned();
            is_name_taken(&Error::DockerResponseServerError { status_code, message })
        };
        assert!(of(
            409,
            "Conflict. The container name \"/a\" is already in use by container \"b\"."
        ));
        assert!(of(
            500,
            "container create: creating container storage: the container name \"a\" is already in \
             use by b. You have to remove that container to be able to reuse that name"
        ));
        assert!(!of(500, "no space left on device") && !of(404, "No such image: a"));
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_unavailable_and_named() {
        let engine = ContainerEngine::new(EngineAddress::plain("unix:///no/such/socket"));
        let Err(ProviderError::Unavailable { message, .. }) = engine.info().await else {
            panic!("nothing is there")
        };
        assert!(message.contains("unix:///no/such/socket"), "{message}");
        assert!(message.contains("providers.docker.host"), "{message}");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let engine =
            ContainerEngine::new(EngineAddress::plain(format!("unix://{}", file.path().display())));
        let Err(ProviderError::Unavailable { message, .. }) = engine.info().await else {
            panic!("no engine listens there")
        };
        assert!(message.contains(": Connection refused"), "{message}");
    }
}
