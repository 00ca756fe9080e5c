//! ImagePulls that an engine lacks are pulled, with progress for people.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::engine::{ContainerEngine, status};
use super::registries;
use super::settings::{DockerSettings, Pull};
use crate::sandbox::{EventSender, Notice, ProviderError, ProviderEvent};
use crate::types::SandboxId;

/// How long a pull may go without any news.
const QUIET_MAX: Duration = Duration::from_secs(120);

/// The pause between two notices about one pull.
const NOTICE_PAUSE: Duration = Duration::from_secs(5);

/// How a pull ended; `None` while it goes on.
type PullResult = Option<Result<(), ProviderError>>;

/// The pulls that go on. Each goes on without those who wait for it, so that one whose caller gave up is
/// there for the next.
pub struct ImagePulls {
    engine: Arc<ContainerEngine>,
    pull: Pull,
    /// The file with the credentials for registries.
    registry_auth: Option<PathBuf>,
    events: EventSender,
    pulls: Mutex<HashMap<String, watch::Receiver<PullResult>>>,
}

impl ImagePulls {
    /// The images of an engine. Notices go to `events`.
    pub fn new(
        engine: Arc<ContainerEngine>,
        settings: &DockerSettings,
        events: EventSender,
    ) -> Arc<Self> {
        let (pull, registry_auth) = (settings.pull, settings.registry_auth.clone());
        Arc::new(Self { engine, pull, registry_auth, events, pulls: Mutex::default() })
    }

    /// Gets an image that the engine does not have, for this sandbox.
    ///
    /// # Errors
    /// Why it cannot be had, and what to do.
    pub async fn fetch(
        self: &Arc<Self>,
        image: &str,
        sandbox: &SandboxId,
    ) -> Result<(), ProviderError> {
        if self.pull == Pull::Never {
            return Err(ProviderError::Refused(missing(image, "providers.docker.pull is never")));
        }
        let mut pull = {
            let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
            match pulls.get(image) {
                Some(pull) if pull.borrow().is_none() => pull.clone(),
                _ => {
                    let (sender, pull) = watch::channel(None);
                    pulls.retain(|_, pull| pull.borrow().is_none());
                    pulls.insert(image.to_owned(), pull.clone());
                    let (this, image) = (Arc::clone(self), image.to_owned());
                    let sandbox = sandbox.clone();
                    tokio::spawn(async move {
                        let pulled = this.pull(&image, &sandbox).await;
                        sender.send_replace(Some(pulled));
                    });
                    pull
                }
            }
        };
        let ended = pull.wait_for(Option::is_some).await.map(|ended| (*ended).clone());
        let gone = || Err(ProviderError::unavailable("the server is shutting down"));
        ended.ok().flatten().unwrap_or_else(gone)
    }

    async fn pull(&self, image: &str, sandbox: &SandboxId) -> Result<(), ProviderError> {
        let engine = self.engine.client().await?;
        // Read for each pull: tokens of registries are renewed.
        let credentials = match &self.registry_auth {
            None => None,
            Some(file) => registries::credentials(file, image)
                .await
                .map_err(|why| ProviderError::Broken(missing(image, &why)))?,
        };
        let notify = |text: String| {
            let notice = Notice { sandbox: sandbox.clone(), text };
            self.events.publish(ProviderEvent::Notice(notice));
        };
        notify(format!("pulling the image {image}"));
        // Without a tag the engine would pull all of them.
        let options = CreateImageOptionsBuilder::new().from_image(&tagged(image)).build();
        let mut news = std::pin::pin!(engine.create_image(Some(options), None, credentials));
        let (mut progress, mut noticed) = (PullProgress::default(), Instant::now());
        loop {
            let next = timeout(QUIET_MAX, news.next()).await.map_err(|_| {
                ProviderError::Broken(missing(image, "the pull made no progress for two minutes"))
            })?;
            match next {
                None => break,
                Some(Ok(info)) => {
                    if let Some(detail) = &info.error_detail {
                        let why = detail.message.as_deref().unwrap_or("the pull failed");
                        return Err(not_pulled(image, None, why));
                    }
                    progress.add(info);
                    if noticed.elapsed() >= NOTICE_PAUSE {
                        noticed = Instant::now();
                        notify(format!("pulling the image {image}: {}", progress.to_text()));
                    }
                }
                Some(Err(error)) => {
                    let why = match &error {
                        bollard::errors::Error::DockerResponseServerError { message, .. } => {
                            message.clone()
                        }
                        other => other.to_string(),
                    };
                    return Err(not_pulled(image, status(&error), &why));
                }
            }
        }
        notify(format!("pulled the image {image}"));
        Ok(())
    }
}

/// The layers of a pull.
#[derive(Default)]
struct PullProgress {
    layers: BTreeSet<String>,
    complete: BTreeSet<String>,
}

impl PullProgress {
    fn add(&mut self, info: CreateImageInfo) {
        let (Some(layer), Some(status)) = (info.id, info.status) else { return };
        match status.as_str() {
            "Pull complete" | "Already exists" => {
                self.complete.insert(layer.clone());
                self.layers.insert(layer);
            }
            // Its id is the tag.
            status if status.starts_with("Pulling from") => {}
            _ => drop(self.layers.insert(layer)),
        }
    }

    fn to_text(&self) -> String {
        format!("{} of {} layers", self.complete.len(), self.layers.len())
    }
}

/// The image with a tag or a digest.
fn tagged(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

fn missing(image: &str, why: &str) -> String {
    format!(
        "the engine does not have the image {image}, and it was not pulled: {why}; pull or import it \
         yourself (docker pull {image}), or set the image of the template to one that the engine has"
    )
}

/// What a failed pull means. An image that no registry has, or that it does not give out, is not there
/// the next time either.
fn not_pulled(image: &str, status: Option<u16>, why: &str) -> ProviderError {
    let is_denied =
        ["not found", "denied", "manifest unknown", "unauthorized", "invalid reference"];
    let message = missing(image, why);
    match status {
        Some(400..=404) => ProviderError::Refused(message),
        _ if is_denied.iter().any(|words| why.contains(words)) => ProviderError::Refused(message),
        _ => ProviderError::Broken(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_added_to_names_without_one() {
        for (image, expected) in [
            ("debian", "debian:latest"),
            ("host:5000/a/b", "host:5000/a/b:latest"),
            ("host:5000/a/b:c", "host:5000/a/b:c"),
            ("a@sha256:00", "a@sha256:00"),
        ] {
            assert_eq!(tagged(image), expected);
        }
    }

    #[test]
    fn progress_counts_layers_and_a_refusal_says_what_to_do() {
        let mut progress = PullProgress::default();
        for (layer, status) in [
            ("latest", "Pulling from library/debian"),
            ("a", "Pulling fs layer"),
            ("b", "Downloading"),
            ("a", "Pull complete"),
        ] {
            let (id, status) = (Some(layer.to_owned()), Some(status.to_owned()));
            progress.add(CreateImageInfo { id, status, ..CreateImageInfo::default() });
        }
        assert_eq!(progress.to_text(), "1 of 2 layers");
        let refused = not_pulled("x", Some(404), "pull access denied for x");
        let ProviderError::Refused(message) = refused else { panic!("{refused:?}") };
        assert!(message.contains("docker pull x"), "{message}");
        let away = not_pulled("x", Some(500), "dial tcp: no route to host");
        assert!(matches!(away, ProviderError::Broken(_)), "{away:?}");
    }
}
