//! The life of containers: made, found, started, stopped, removed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ListContainersOptionsBuilder, LogsOptionsBuilder,
    RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
};
use futures_util::StreamExt;
use tokio::time::{Instant, sleep, timeout};

use super::bundle::VolumeContent;
use super::directories::{DirectoryOwner, give_directories};
use super::engine::{ContainerEngine, is_name_taken, name_is_held, status};
use super::images::ImagePulls;
use super::inside::READY;
use super::link::Links;
use super::orphans::{remove_orphans, remove_workspaces};
use super::prepared::{ImagePreparation, ImageToPrepare};
use super::server_volumes::{ServerVolume, filled, refill};
use super::settings::{ContainerUser, DockerOptions, DockerSettings};
use super::spec::{
    ContainerParts, FoundContainer, INSTANCE_LABEL, container, refuses_owner, with_scratch_of_all,
};
use super::workspaces::workspace_name;
use crate::clock::{Clock, IdSource};
use crate::sandbox::command_defaults::missing;
use crate::sandbox::{
    CreateSpec, Object, ObjectKey, ProviderError, Target, TargetCall, by_deadline,
};
use crate::types::{InstanceId, ObjectState, SandboxId, Timestamp, Workload, WorkloadSource};

/// How long processes are given between SIGTERM and SIGKILL, in seconds.
const STOP_GRACE: i32 = 2;

/// The pause before a look at a container that is being made or removed.
const RECHECK: Duration = Duration::from_millis(20);

/// How long a taken name may belong to no container that is shown.
const HIDDEN_MAX: Duration = Duration::from_secs(10);

/// How long the log is waited for before the helper is asked itself.
const READY_WAIT: Duration = Duration::from_secs(5);

/// Lines of a container's log in the error about one that does not come up.
const LOG_LINES: &str = "5";

/// The containers of an engine.
pub struct Containers {
    /// The engine.
    pub engine: Arc<ContainerEngine>,
    /// The connections to running ones.
    pub links: Arc<Links>,
    settings: DockerSettings,
    images: Arc<ImagePulls>,
    preparation: Arc<ImagePreparation>,
    helper: Vec<String>,
    contents: Vec<VolumeContent>,
    /// Makes those who fill volumes wait for each other.
    filling: tokio::sync::Mutex<()>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    /// Makes the creates of one name wait for each other.
    names: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// What containers are made of.
pub struct ContainersConfig {
    /// As configured.
    pub settings: DockerSettings,
    /// Pulls images.
    pub images: Arc<ImagePulls>,
    /// How the helper is started inside.
    pub helper: Vec<String>,
    /// What every container sees of the server.
    pub contents: Vec<VolumeContent>,
}

impl Containers {
    /// The containers of this engine.
    pub fn new(
        engine: Arc<ContainerEngine>,
        links: Arc<Links>,
        config: ContainersConfig,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Self {
        let ContainersConfig { settings, images, helper, contents } = config;
        Self {
            engine,
            links,
            settings,
            images,
            preparation: Arc::default(),
            helper,
            contents,
            filling: tokio::sync::Mutex::default(),
            clock,
            ids,
            names: Mutex::default(),
        }
    }

    /// Does work until the deadline; what the engine was asked for by then may still come into effect.
    ///
    /// # Errors
    /// The work's; [`ProviderError::Unavailable`].
    pub async fn by<T>(
        &self,
        deadline: Timestamp,
        work: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let late = "the engine did not answer before the deadline";
        by_deadline(&*self.clock, deadline, late, work).await
    }

    fn failed(&self, error: Error) -> ProviderError {
        self.engine.failed(error)
    }

    /// The containers of this key, foreign ones of its name included.
    ///
    /// # Errors
    /// As for [`Lifecycle::find`](crate::sandbox::Lifecycle::find).
    pub async fn find(&self, key: &ObjectKey) -> Result<Vec<Object>, ProviderError> {
        let home = format!("issuebox.home={}", key.home);
        let labels = vec![format!("{INSTANCE_LABEL}={}", key.instance), home];
        let (by_name, by_home) =
            tokio::join!(self.inspect_name(key.name.as_str()), self.list_with(labels));
        let mut all: BTreeMap<String, Object> =
            by_home?.into_iter().map(|found| (found.id.clone(), found.object())).collect();
        all.extend(by_name?.map(|found| (found.id.clone(), found.object())));
        Ok(all.into_values().collect())
    }

    /// The containers of this instance. Those that run are connected to, so that what runs in them
    /// reaches the server; workspaces that lost their container are removed.
    ///
    /// # Errors
    /// As for [`Lifecycle::list`](crate::sandbox::Lifecycle::list).
    pub async fn list(
        self: &Arc<Self>,
        instance: &InstanceId,
    ) -> Result<Vec<Object>, ProviderError> {
        self.links.own_calls().concern(instance);
        let found = self.list_with(vec![format!("{INSTANCE_LABEL}={instance}")]).await?;
        let objects: Vec<Object> = found.iter().map(FoundContainer::object).collect();
        for object in &objects {
            if object.state == ObjectState::Running
                && !self.links.has(object.external_id.as_str())
                && let Some(labels) = &object.labels
            {
                let target = Target {
                    external_id: object.external_id.clone(),
                    expected: labels.sandbox.clone(),
                };
                self.links.connect_soon(target);
            }
        }
        let (engine, instance) = (Arc::clone(&self.engine), instance.clone());
        let now = self.clock.now();
        tokio::spawn(async move { remove_orphans(&engine, &instance, now).await });
        Ok(objects)
    }

    async fn list_with(&self, labels: Vec<String>) -> Result<Vec<FoundContainer>, ProviderError> {
        let filters = HashMap::from([("label".to_owned(), labels)]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let client = self.engine.client().await?;
        let listed = client.list_containers(Some(options)).await;
        let listed = listed.map_err(|error| self.failed(error))?;
        let ours = listed.into_iter().filter_map(FoundContainer::listed);
        Ok(ours.filter(|found| found.labels().is_some()).collect())
    }

    /// The container of this name.
    async fn inspect_name(&self, name: &str) -> Result<Option<FoundContainer>, ProviderError> {
        match self.engine.client().await?.inspect_container(name, None).await {
            // The engine also takes ids and their beginnings.
            Ok(found) => Ok(FoundContainer::inspected(found).filter(|found| found.name() == name)),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The container of a target.
    async fn take(&self, target: &Target) -> Result<FoundContainer, ProviderError> {
        let found = self.links.inspect(target.external_id.as_str()).await?;
        let found = found.ok_or(ProviderError::Absent)?;
        match found.labels() {
            Some(labels) if labels.sandbox == target.expected => Ok(found),
            _ => Err(ProviderError::Present(Box::new(found.object()))),
        }
    }

    /// Makes a container, or completes the one of the same sandbox.
    ///
    /// # Errors
    /// As for [`Lifecycle::create`](crate::sandbox::Lifecycle::create).
    pub async fn create(&self, spec: &CreateSpec) -> Result<Object, ProviderError> {
        let user = self.check(&spec.template.workload)?;
        self.links.own_calls().concern(&spec.labels.instance);
        let turn = {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(names.entry(spec.name.to_string()).or_default())
        };
        let _turn = turn.lock().await;
        let options = DockerOptions::of(&spec.template.workload.options, &self.settings.options);
        let began = Instant::now();
        loop {
            let client = self.engine.client().await?;
            match self.make(client, spec, user, &options).await {
                Ok(MadeContainer { id, is_prepared }) => {
                    let owner = DirectoryOwner { user, is_read_only: options.is_read_only };
                    self.bring_up(client, &id, (!is_prepared).then_some(owner)).await?;
                    return self.begun(client, &id, &spec.labels.sandbox).await;
                }
                Err(CreateProblem::NoImage(image)) => {
                    self.images.fetch(&image, &spec.labels.sandbox).await?;
                }
                Err(CreateProblem::Failed(error)) if is_name_taken(&error) => {
                    match self.inspect_name(spec.name.as_str()).await? {
                        None if began.elapsed() > HIDDEN_MAX => return Err(name_is_held(error)),
                        // It is on its way: made by an earlier call, or removed.
                        None => sleep(RECHECK).await,
                        Some(found) if found.state == ObjectState::Destroying => {
                            sleep(RECHECK).await;
                        }
                        Some(found) => return self.complete(client, spec, found, user).await,
                    }
                }
                Err(CreateProblem::Failed(error)) => return Err(self.not_made(error)),
                Err(CreateProblem::Refused(why)) => return Err(ProviderError::Refused(why)),
            }
        }
    }

    /// What of a workload this provider can't give; otherwise its user.
    fn check(&self, workload: &Workload) -> Result<ContainerUser, ProviderError> {
        let secrets = &self.links.services().secrets;
        if let Err(name) = secrets.resolve(&workload.secrets) {
            return Err(ProviderError::Refused(missing(&name)));
        }
        match &workload.user {
            None => Ok(self.settings.user),
            Some(user) => ContainerUser::parse(user)
                .map_err(|why| ProviderError::Refused(format!("the template's user {why}"))),
        }
    }

    /// Creates the container, not started yet. Its image is prepared for its user, if it can be.
    async fn make(
        &self,
        client: &Docker,
        spec: &CreateSpec,
        user: ContainerUser,
        options: &DockerOptions,
    ) -> Result<MadeContainer, CreateProblem> {
        let image = match &spec.template.workload.source {
            Some(WorkloadSource::Image(image)) => Some(image),
            Some(WorkloadSource::Snapshot(_)) | None => self.settings.image.as_ref(),
        };
        let image = image.ok_or_else(|| {
            CreateProblem::Refused(format!(
                "no image is named: set templates.{}.image, or providers.docker.image for all \
                 templates",
                spec.template.name
            ))
        })?;
        let no_image = |error: Error| match status(&error) {
            Some(404) => CreateProblem::NoImage(image.clone()),
            _ => CreateProblem::Failed(error),
        };
        let mounted = self.mounted(client, image).await.map_err(no_image)?;
        let to_prepare = ImageToPrepare::of(client, image, user).await.map_err(no_image)?;
        let mut parts = ContainerParts {
            image: &to_prepare.prepared,
            is_prepared: true,
            user,
            options,
            workspace: workspace_name(&spec.labels, &self.ids.request_id()),
            mounted: &mounted,
            helper: &self.helper,
        };
        let is_missing =
            |made: &Result<String, Error>| made.as_ref().is_err_and(|e| status(e) == Some(404));
        let mut made = create_container(client, spec, &parts).await;
        if is_missing(&made) && self.preparation.prepare(&self.engine, &to_prepare).await {
            made = create_container(client, spec, &parts).await;
        }
        // The home in memory of such an engine gets the mode of a prepared image's, and not the owner.
        if is_missing(&made) || made.as_ref().is_err_and(refuses_owner) {
            parts = ContainerParts { image, is_prepared: false, ..parts };
            made = create_container(client, spec, &parts).await;
        }
        Ok(MadeContainer { id: made.map_err(no_image)?, is_prepared: parts.is_prepared })
    }

    /// The volumes that every container mounts.
    async fn mounted(&self, client: &Docker, image: &str) -> Result<Vec<ServerVolume>, Error> {
        let _filling = self.filling.lock().await;
        let mut all = Vec::new();
        for content in &self.contents {
            all.push(filled(client, content, image, &*self.ids).await?);
        }
        Ok(all)
    }

    /// Fills volumes again that are empty in a container, and says whether there was one.
    async fn refill(&self, client: &Docker, id: &str) -> Result<bool, Error> {
        let _filling = self.filling.lock().await;
        let mut is_filled = false;
        for content in &self.contents {
            is_filled |= refill(client, content, id).await?;
        }
        Ok(is_filled)
    }

    fn not_made(&self, error: Error) -> ProviderError {
        match self.failed(error) {
            // Nothing was asked for by id.
            ProviderError::Absent => ProviderError::Broken("the engine lost the container".into()),
            other => other,
        }
    }

    /// Brings up a container that has the name already, if it is this sandbox's.
    async fn complete(
        &self,
        client: &Docker,
        spec: &CreateSpec,
        found: FoundContainer,
        user: ContainerUser,
    ) -> Result<Object, ProviderError> {
        let is_same = found.labels().is_some_and(|l| l.sandbox == spec.labels.sandbox);
        if !is_same {
            return Err(ProviderError::Present(Box::new(found.object())));
        }
        if found.state != ObjectState::Running {
            self.bring_up(client, &found.id, to_give(&found, user)).await?;
        }
        self.up(&found.id, &spec.labels.sandbox).await
    }

    /// Starts a container, whose directories are given to its user first where they are not.
    async fn bring_up(
        &self,
        client: &Docker,
        id: &str,
        owner: Option<DirectoryOwner>,
    ) -> Result<(), ProviderError> {
        self.links.own_calls().runs(id);
        if let Some(owner) = owner {
            give_directories(client, id, owner).await.map_err(|error| self.failed(error))?;
        }
        let Err(error) = client.start_container(id, None).await else { return Ok(()) };
        let is_refused = status(&error).is_some_and(|status| status != 404);
        if is_refused && self.refill(client, id).await.map_err(|error| self.failed(error))? {
            let started = client.start_container(id, None).await;
            return started.map_err(|error| self.failed(error));
        }
        Err(self.failed(error))
    }

    /// The object of a container that was started for the first time, once its helper says in the log
    /// that it serves. That is there sooner than a connection, which work waits for.
    async fn begun(
        &self,
        client: &Docker,
        id: &str,
        sandbox: &SandboxId,
    ) -> Result<Object, ProviderError> {
        let options = LogsOptionsBuilder::new().follow(true).stdout(true).build();
        let mut log = std::pin::pin!(client.logs(id, Some(options)));
        let read = async {
            while let Some(Ok(line)) = log.next().await {
                if String::from_utf8_lossy(&line.into_bytes()).contains(READY) {
                    return true;
                }
            }
            false
        };
        // Some engines keep no log that can be read.
        if !timeout(READY_WAIT, read).await.unwrap_or(false) {
            return self.up(id, sandbox).await;
        }
        let target = Target {
            external_id: crate::types::ExternalId::trusted(id),
            expected: sandbox.clone(),
        };
        let object = self.take(&target).await?.object();
        self.links.connect_soon(target);
        Ok(object)
    }

    /// The object of a container that was started, once its helper answers.
    async fn up(&self, id: &str, sandbox: &SandboxId) -> Result<Object, ProviderError> {
        let target = Target {
            external_id: crate::types::ExternalId::trusted(id),
            expected: sandbox.clone(),
        };
        match self.links.get(&target).await {
            Ok(_) => Ok(self.take(&target).await?.object()),
            Err(error) => {
                self.take(&target).await?;
                let log = self.log_end(id).await;
                let log = if log.is_empty() { String::new() } else { format!("; it wrote: {log}") };
                Err(ProviderError::Broken(format!("the container does not come up: {error}{log}")))
            }
        }
    }

    /// The last lines of a container's log.
    async fn log_end(&self, id: &str) -> String {
        let Ok(client) = self.engine.client().await else { return String::new() };
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail(LOG_LINES).build();
        let mut log = std::pin::pin!(client.logs(id, Some(options)));
        let mut text = String::new();
        while let Some(Ok(line)) = log.next().await {
            text.push_str(&String::from_utf8_lossy(&line.into_bytes()));
        }
        crate::sandbox::confined::shortened(text.trim().to_owned())
    }

    /// Brings a target up.
    ///
    /// # Errors
    /// As for [`Lifecycle::start`](crate::sandbox::Lifecycle::start).
    pub async fn start(&self, call: &TargetCall) -> Result<Object, ProviderError> {
        let found = self.take(&call.target).await?;
        let client = self.engine.client().await?;
        if let Some(made) = found.made_from() {
            self.check(&made.workload)?;
        }
        if found.is_paused {
            client.unpause_container(&found.id).await.map_err(|error| self.failed(error))?;
        } else if found.state != ObjectState::Running {
            let user = found.user.unwrap_or(self.settings.user);
            self.bring_up(client, &found.id, to_give(&found, user)).await?;
        }
        self.up(&found.id, &call.target.expected).await
    }

    /// Takes a target down.
    ///
    /// # Errors
    /// As for [`Lifecycle::stop`](crate::sandbox::Lifecycle::stop).
    pub async fn stop(&self, call: &TargetCall) -> Result<Object, ProviderError> {
        let found = self.take(&call.target).await?;
        if found.state == ObjectState::Running {
            let client = self.engine.client().await?;
            let _ending = self.links.own_calls().ends(&found.id);
            self.links.end(&found.id).await;
            let grace = if call.force { 0 } else { STOP_GRACE };
            let options = StopContainerOptionsBuilder::new().t(grace).build();
            match client.stop_container(&found.id, Some(options)).await {
                Ok(()) => {}
                // It ended meanwhile.
                Err(error) if status(&error) == Some(304) => {}
                Err(error) => {
                    self.links.own_calls().runs(&found.id);
                    return Err(self.failed(error));
                }
            }
        }
        Ok(self.take(&call.target).await?.object())
    }

    /// Removes a target and its workspace.
    ///
    /// # Errors
    /// As for [`Lifecycle::delete`](crate::sandbox::Lifecycle::delete).
    pub async fn delete(&self, call: &TargetCall) -> Result<(), ProviderError> {
        let sandbox = &call.target.expected;
        match self.take(&call.target).await {
            Ok(found) => {
                let client = self.engine.client().await?;
                let _ending = self.links.own_calls().ends(&found.id);
                self.links.end(&found.id).await;
                let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
                match client.remove_container(&found.id, Some(options)).await {
                    Ok(()) => remove_workspaces(&self.engine, sandbox).await,
                    Err(error) => match status(&error) {
                        Some(404) => remove_workspaces(&self.engine, sandbox).await,
                        // Its removal goes on.
                        Some(409) => Ok(()),
                        _ => Err(self.failed(error)),
                    },
                }
            }
            Err(ProviderError::Absent) => {
                // What a call that was cut off has left.
                remove_workspaces(&self.engine, sandbox).await?;
                Err(ProviderError::Absent)
            }
            Err(error) => Err(error),
        }
    }

    /// What a target was made from.
    pub async fn made_from(&self, target: &Target) -> Option<super::spec::MadeFrom> {
        self.take(target).await.ok()?.made_from()
    }
}

/// A container that was created and not started.
struct MadeContainer {
    id: String,
    /// Whether its directories belong to its user.
    is_prepared: bool,
}

/// Asks the engine for a container; returns its id.
async fn create_container(
    client: &Docker,
    spec: &CreateSpec,
    parts: &ContainerParts<'_>,
) -> Result<String, Error> {
    let body: ContainerCreateBody = container(spec, parts);
    let name = CreateContainerOptionsBuilder::new().name(spec.name.as_str()).build();
    let made = client.create_container(Some(name.clone()), body.clone()).await;
    let made = match made {
        Err(error) if refuses_owner(&error) && !parts.is_prepared => {
            client.create_container(Some(name), with_scratch_of_all(body)).await
        }
        made => made,
    };
    Ok(made?.id)
}

/// To whom the directories of a container are given before it is started: those of one that has run
/// already have been.
fn to_give(found: &FoundContainer, user: ContainerUser) -> Option<DirectoryOwner> {
    let owner = DirectoryOwner { user, is_read_only: found.is_read_only };
    (found.state == ObjectState::Partial).then_some(owner)
}

/// Why no container was created.
enum CreateProblem {
    /// The engine does not have this image.
    NoImage(String),
    /// The engine's error.
    Failed(Error),
    /// The template cannot be used.
    Refused(String),
}
