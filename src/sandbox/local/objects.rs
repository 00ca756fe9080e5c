//! The life of objects: maps directories to objects and running sandboxes, and serializes changes.
//!
//! Calls for one name run one after another. A call may be dropped at any `.await`: a launched
//! sandbox ends with its socket, the disk is consistent at every moment, and the lock file makes
//! the next call wait for processes that are still ending.

mod capacity;
mod limited;
mod numbers;
mod probe;
mod recovery;
mod removal;
mod starting;
mod warm;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

pub use self::starting::Make;

use self::removal::{REMOVAL_AGAIN, Removal, Removals};
use self::starting::{Starter, Up};
use self::warm::Warm;
use super::cgroup::Cgroups;
use super::disk::{Disk, Lock, Naming, Stored, StoredIn};
use super::host_disk::HostDisk;
use super::launching::Listeners;
use super::limit_events;
use super::link::Link;
use super::spawner::LauncherSpawner;
use super::{LocalConfig, LocalOpenError, files};
use crate::clock::{Clock, IdSource};
use crate::egress::Proxies;
use crate::models::serve::ModelServer;
use crate::sandbox::command_defaults::{CommandDefaults, missing};
use crate::sandbox::{
    CreateSpec, EventSender, Object, ProviderError, Target, WorkError, WorkspacePath, by_deadline,
};
use crate::types::{ObjectName, ObjectState, Timestamp};

/// How long the server waits at its end for the control groups of its sandboxes to become empty,
/// which takes milliseconds.
const GROUPS_WAIT: Duration = Duration::from_millis(500);

/// How many names keep a mutex before unused ones are dropped.
const TURNS_LEN: usize = 1_024;

/// The last health check: when, and what it found.
type LastLook = Option<(Instant, Option<String>)>;

/// Every object of a provider.
pub struct LocalObjects {
    disk: Arc<Disk>,
    config: LocalConfig,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    starter: Arc<Starter>,
    warm: Arc<Warm>,
    runtime: Handle,
    links: Mutex<HashMap<ObjectName, Arc<Link>>>,
    turns: Mutex<HashMap<ObjectName, Arc<tokio::sync::Mutex<()>>>>,
    removals: Arc<Removals>,
    last_look: tokio::sync::Mutex<LastLook>,
    proxies: Proxies,
    host_disk: Arc<HostDisk>,
    events: EventSender,
    itself: Weak<Self>,
}

impl Drop for LocalObjects {
    fn drop(&mut self) {
        for link in locked(&self.links).values() {
            link.cut();
        }
        self.warm.close();
        self.starter.cgroups.clear_within(GROUPS_WAIT);
    }
}

impl LocalObjects {
    /// Opens the provider's objects; see [`LocalProvider::open`](super::LocalProvider::open).
    pub fn open(
        config: LocalConfig,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Arc<Self>, LocalOpenError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::WouldBlock => LocalOpenError::InUse(config.dir.clone()),
            _ => LocalOpenError::Directory { dir: config.dir.clone(), source },
        };
        let disk = Disk::open(&config, &ids.request_id());
        let disk = Arc::new(disk.map_err(failed)?);
        let spawner =
            LauncherSpawner::new(config.launcher.clone(), config.dir.clone()).map_err(failed)?;
        recovery::wait_for_orphans(&disk).map_err(failed)?;
        let cgroups = Cgroups::open(disk.identity());
        cgroups.clear();
        let events = EventSender::default();
        let host_disk = HostDisk::open(&config.dir, config.disk_reserve, events.clone());
        let host_disk = Arc::new(host_disk.map_err(failed)?);
        let trashed = disk.trashed().map_err(failed)?;
        let proxies = Proxies::new(Arc::clone(&config.resolver), config.server, events.clone());
        let runtime = Handle::current();
        let starter = Starter::new(config.clone(), cgroups, spawner, Arc::clone(&ids));
        let starter = Arc::new(starter);
        let warm = {
            let (disk, starter, ids) = (Arc::clone(&disk), Arc::clone(&starter), Arc::clone(&ids));
            let (most, host_disk) = (config.warm_pool, Arc::clone(&host_disk));
            Arc::new(Warm::new(most, disk, starter, host_disk, ids, runtime.clone()))
        };
        let objects = Arc::new_cyclic(|itself| Self {
            disk,
            config,
            clock,
            ids,
            starter,
            warm,
            runtime,
            links: Mutex::default(),
            turns: Mutex::default(),
            removals: Arc::default(),
            last_look: tokio::sync::Mutex::new(None),
            proxies,
            host_disk,
            events,
            itself: Weak::clone(itself),
        });
        for stored in trashed {
            objects.removal(stored, REMOVAL_AGAIN);
        }
        Ok(objects)
    }

    /// The id of this provider's directory.
    pub fn identity(&self) -> &str {
        self.disk.identity()
    }

    /// Runs a call's work until its deadline.
    pub async fn by<T>(
        &self,
        deadline: Timestamp,
        work: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let late = "the call did not finish before its deadline";
        by_deadline(&*self.clock, deadline, late, work).await
    }

    /// Every object. The remains of a removal whose record is gone already are none: nothing is left
    /// in them, and a create of their name removes them first.
    pub async fn all(&self) -> Result<Vec<Object>, ProviderError> {
        let all = self.blocking(|disk| disk.all()).await?;
        let is_object =
            |stored: &&Stored| stored.place == StoredIn::Objects || stored.owned.is_some();
        Ok(all.iter().filter(is_object).map(|stored| self.object(stored)).collect())
    }

    /// The running sandbox of a target.
    pub fn link(&self, target: &Target) -> Result<Arc<Link>, WorkError> {
        let name = Disk::name_of(&target.external_id).ok_or(WorkError::NotRunning)?;
        let link = self.link_of(&name).filter(|link| link.target == *target && link.is_up());
        link.ok_or(WorkError::NotRunning)
    }

    /// Makes the object unless the name exists, and starts it.
    pub async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError> {
        if !Disk::accepts(&spec.name) {
            return Err(ProviderError::Refused(format!(
                "the name {:?} must be lower-case letters, digits and '-'",
                spec.name.as_str()
            )));
        }
        let _turn = self.turn(&spec.name).await;
        let make = Make::of(&spec.template);
        let _creating = self.warm.creating();
        let created = self.create_like(spec, &make).await;
        if created.is_ok() {
            self.warm.want(make);
        }
        created
    }

    async fn create_like(&self, spec: CreateSpec, make: &Make) -> Result<Object, ProviderError> {
        let (stored, came) = self.find_or_make(spec, make).await?;
        let (is_new, up) = match came {
            ObjectOrigin::Existing => (false, None),
            ObjectOrigin::Cold => (true, None),
            ObjectOrigin::Warm(up) => (true, Some(up)),
        };
        let brought_up = self.bring_up(&stored, up).await;
        if brought_up.is_err() && is_new {
            // This call made it, and nothing has run in it: remove it.
            self.begin_removal(stored).await?;
        }
        brought_up
    }

    /// Starts an object.
    pub async fn start(&self, target: &Target) -> Result<Object, ProviderError> {
        let (_turn, stored) = self.take(target).await?;
        match stored.place {
            StoredIn::Objects => self.bring_up(&stored, None).await,
            StoredIn::Trash => Err(ProviderError::Refused("the object is being deleted".into())),
        }
    }

    /// Stops an object; with `force` its processes are killed without SIGTERM first.
    pub async fn stop(&self, target: &Target, force: bool) -> Result<Object, ProviderError> {
        let (_turn, stored) = self.take(target).await?;
        if let Some(link) = self.link_of(&stored.name) {
            if force {
                link.end().await;
            } else {
                link.stop(self.config.stop_grace).await;
            }
        }
        let stored = self
            .blocking(move |disk| {
                // Also without a link: processes of an earlier server may still be ending.
                let _nothing_runs = disk.lock(&stored)?;
                Ok(stored)
            })
            .await?;
        Ok(self.object(&stored))
    }

    /// Deletes an object.
    pub async fn delete(&self, target: &Target) -> Result<(), ProviderError> {
        let (_turn, stored) = self.take(target).await?;
        let removal = self.begin_removal(stored).await?;
        // A removal that takes longer goes on.
        removal::ended(removal).await.unwrap_or(Ok(())).map_err(ProviderError::Broken)
    }

    /// Keeps a warm sandbox of this make.
    pub fn keep_warm(&self, make: Make) {
        self.warm.keep(make);
    }

    /// The number of warm sandboxes.
    pub fn waiting(&self) -> usize {
        self.warm.len()
    }

    /// The egress proxies of sandboxes.
    pub fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// Publishes events that no call caused.
    pub const fn events(&self) -> &EventSender {
        &self.events
    }

    /// Locks a target's name and looks the object up, which must have the target's sandbox id.
    async fn take(&self, target: &Target) -> Result<(OwnedMutexGuard<()>, Stored), ProviderError> {
        let name = Disk::name_of(&target.external_id).ok_or(ProviderError::Absent)?;
        let turn = self.turn(&name).await;
        let external_id = target.external_id.clone();
        let found = self
            .blocking(move |disk| {
                let is_meant = |stored: &Stored| stored.external_id == external_id;
                Ok(match disk.object(&name)?.filter(is_meant) {
                    Some(stored) => Some(stored),
                    None => disk.trashed()?.into_iter().find(is_meant),
                })
            })
            .await?;
        let stored = found.ok_or(ProviderError::Absent)?;
        // The rest of an interrupted removal has no record any more. The id still proves whose it
        // is, since no id is used twice.
        let is_remains = stored.place == StoredIn::Trash && stored.owned.is_none();
        if stored.sandbox() != Some(&target.expected) && !is_remains {
            return Err(ProviderError::Present(Box::new(self.object(&stored))));
        }
        Ok((turn, stored))
    }

    /// Finds or makes the object of this name and sandbox.
    async fn find_or_make(
        &self,
        spec: CreateSpec,
        make: &Make,
    ) -> Result<(Stored, ObjectOrigin), ProviderError> {
        self.free(&spec.name).await?;
        let incarnation = self.ids.request_id();
        let (clock, warm, make) = (Arc::clone(&self.clock), Arc::clone(&self.warm), make.clone());
        let abandoned = Abandoned::default();
        let is_abandoned = Arc::clone(&abandoned.0);
        let host_disk = Arc::clone(&self.host_disk);
        let found = self
            .blocking(move |disk| {
                let existing = || {
                    let stored = disk.object(&spec.name)?;
                    Ok::<_, io::Error>(stored.map(|stored| {
                        let is_same = stored.sandbox() == Some(&spec.labels.sandbox);
                        if is_same { Obtained::Same(stored) } else { Obtained::Other(stored) }
                    }))
                };
                if let Some(found) = existing()? {
                    return Ok(found);
                }
                if let Some(shortage) = host_disk.shortage()? {
                    return Ok(Obtained::NoRoom(shortage));
                }
                let is_wanted =
                    || !is_abandoned.load(Ordering::Relaxed) && clock.now() < spec.deadline;
                let (naming, up) = match warm.take(&make) {
                    Some(ready) => warm.name(ready, &spec, is_wanted)?,
                    None => {
                        let mut directory = disk.lay_out(incarnation, make.resources.disk_mb)?;
                        (directory.name(&spec, is_wanted)?, None)
                    }
                };
                match naming {
                    Naming::Named(stored) => Ok(Obtained::Made(*stored, up)),
                    Naming::Unwanted => Ok(Obtained::Nothing),
                    // The name lock leaves only a foreign directory that was just put here.
                    Naming::Taken => Ok(existing()?.unwrap_or(Obtained::Nothing)),
                }
            })
            .await?;
        match found {
            Obtained::Same(stored) => Ok((stored, ObjectOrigin::Existing)),
            Obtained::Made(stored, up) => {
                Ok((stored, up.map_or(ObjectOrigin::Cold, ObjectOrigin::Warm)))
            }
            Obtained::Other(stored) => Err(ProviderError::Present(Box::new(self.object(&stored)))),
            Obtained::NoRoom(shortage) => Err(ProviderError::Broken(shortage)),
            Obtained::Nothing => Err(ProviderError::unavailable("the deadline has passed")),
        }
    }

    /// Starts an object unless it runs; `up` is a sandbox that runs in it already and is not in
    /// service yet.
    async fn bring_up(&self, stored: &Stored, up: Option<Up>) -> Result<Object, ProviderError> {
        if stored.made {
            self.run(stored, up).await?;
            return Ok(self.object(stored));
        }
        // Running sandboxes do not survive a power failure. So the name need not be durable before
        // the sandbox runs, but before the caller gets the answer.
        let name = stored.name.clone();
        let named = self.blocking(move |disk| disk.sync_new(&name));
        tokio::try_join!(self.run(stored, up), named)?;
        // One system call; without the mark the object counts as half made.
        self.disk.mark_made(&stored.name).map_err(disk_failed)?;
        Ok(self.object(&Stored { made: true, ..stored.clone() }))
    }

    /// Starts a sandbox for an object unless one runs.
    async fn run(&self, stored: &Stored, up: Option<Up>) -> Result<(), ProviderError> {
        let Some(owned) = &stored.owned else {
            return Err(ProviderError::Present(Box::new(self.object(stored))));
        };
        if let Some(link) = self.link_of(&stored.name) {
            if link.is_up() {
                return Ok(());
            }
            link.gone().await;
        }
        self.has_room()?;
        if let Some(why) = self.disk.host_ids.why_not_started(owned.host_id) {
            return Err(ProviderError::Refused(why));
        }
        if let Some(refused) = self.refused(stored.workspace, owned.host_id) {
            return Err(ProviderError::Refused(refused));
        }
        if let Err(name) = self.config.secrets.resolve(&owned.workload.secrets) {
            return Err(ProviderError::Refused(missing(&name)));
        }
        let Up { mut arrived, group } = match up {
            Some(up) => up,
            None => {
                let name = stored.name.clone();
                let directory = self.blocking(move |disk| disk.open_object(&name)).await?;
                let make = Make::with(&owned.resources, &owned.network, &owned.workload);
                let label = stored.name.as_str();
                self.starter.start(label, &directory, owned.host_id, &make).await?
            }
        };

        let target = Target {
            external_id: stored.external_id.clone(),
            expected: owned.labels.sandbox.clone(),
        };
        let (itself, name) = (Weak::clone(&self.itself), stored.name.clone());
        let (network, sandbox) = (&owned.network, &owned.labels.sandbox);
        let gateway = self.config.gateway.clone().filter(|_| owned.workload.git.is_some());
        let Listeners { models, proxy } = std::mem::take(&mut arrived.listeners);
        let proxy = self.proxies.start(proxy, network, sandbox, gateway);
        let gateway = self.config.models.clone();
        let models = models.map(|socket| ModelServer::start(socket, sandbox.clone(), gateway));
        let kept = (Arc::clone(&group), proxy, models);
        let defaults =
            CommandDefaults::new(Arc::clone(&owned.workload), self.config.secrets.clone());
        let link = Link::new(arrived, target, owned.resources.disk_mb, defaults, move |link| {
            drop(kept);
            if let Some(objects) = itself.upgrade() {
                let mut links = locked(&objects.links);
                if links.get(&name).is_some_and(|known| Arc::ptr_eq(known, link)) {
                    links.remove(&name);
                }
            }
        });
        locked(&self.links).insert(stored.name.clone(), Arc::clone(&link));
        self.watch_host_disk(&link, &group, stored, owned);
        make_working_dir(&link, owned.workload.working_dir.as_deref()).await;
        let (labels, resources) = (owned.labels.clone(), owned.resources.clone());
        let watched = limit_events::LimitWatch {
            link,
            group,
            workspace: stored.workspace,
            labels,
            resources,
        };
        self.runtime.spawn(limit_events::watch(watched, self.events.clone()));
        Ok(())
    }

    /// Ends an object's sandbox, moves the object to the trash and begins its removal.
    async fn begin_removal(&self, stored: Stored) -> Result<Removal, ProviderError> {
        if let Some(link) =
            self.link_of(&stored.name).filter(|l| l.target.external_id == stored.external_id)
        {
            link.end().await;
        }
        let trashed = match stored.place {
            StoredIn::Trash => stored,
            StoredIn::Objects => {
                let move_it = move |disk: &Arc<Disk>| {
                    let nothing_runs: Lock = disk.lock(&stored)?;
                    disk.trash(&stored, &nothing_runs)
                };
                self.blocking(move_it).await?
            }
        };
        Ok(self.removal(trashed, REMOVAL_AGAIN))
    }

    fn link_of(&self, name: &ObjectName) -> Option<Arc<Link>> {
        locked(&self.links).get(name).cloned()
    }

    /// An object as the port shows it.
    fn object(&self, stored: &Stored) -> Object {
        // An ending sandbox counts as running until its last process is gone.
        let runs = || {
            let link = self.link_of(&stored.name);
            link.is_some_and(|l| !l.is_gone() && l.target.external_id == stored.external_id)
        };
        let state = match stored.place {
            StoredIn::Trash => ObjectState::Destroying,
            StoredIn::Objects if !stored.made => ObjectState::Partial,
            StoredIn::Objects if runs() => ObjectState::Running,
            StoredIn::Objects => ObjectState::Stopped,
        };
        Object {
            external_id: stored.external_id.clone(),
            name: stored.name.clone(),
            labels: stored.owned.as_ref().map(|owned| owned.labels.clone()),
            state,
        }
    }

    /// Waits for the lock of a name.
    async fn turn(&self, name: &ObjectName) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = locked(&self.turns);
            if turns.len() >= TURNS_LEN {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            Arc::clone(turns.entry(name.clone()).or_default())
        };
        turn.lock_owned().await
    }

    /// Runs blocking work on a blocking thread.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Disk>) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ProviderError> {
        let disk = Arc::clone(&self.disk);
        match self.runtime.spawn_blocking(move || work(&disk)).await {
            Ok(done) => done.map_err(disk_failed),
            Err(_) => Err(ending()),
        }
    }
}

/// The result of finding or making an object.
enum Obtained {
    /// It exists, with the same sandbox.
    Same(Stored),
    /// It is new, possibly with a running sandbox.
    Made(Stored, Option<Up>),
    /// The name belongs to another.
    Other(Stored),
    /// It does not exist, and the host's disk has no room.
    NoRoom(String),
    /// It does not exist, and was not made.
    Nothing,
}

/// How an object came to exist.
enum ObjectOrigin {
    /// It existed before.
    Existing,
    /// It was made, and is not started yet.
    Cold,
    /// It was made from a warm sandbox.
    Warm(Up),
}

/// Signals work on another thread that its caller has gone.
#[derive(Default)]
struct Abandoned(Arc<AtomicBool>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The error if a thread is gone.
fn ending() -> ProviderError {
    ProviderError::unavailable("the server is ending")
}

fn disk_failed(error: io::Error) -> ProviderError {
    ProviderError::Broken(format!("cannot access the directory of local sandboxes: {error}"))
}

/// Locks a mutex, also after a panic: every map here is consistent between statements.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the working directory of a template, if it lies in the workspace and is missing. A failure
/// shows when a command starts.
async fn make_working_dir(link: &Arc<Link>, working_dir: Option<&str>) {
    let path = working_dir.and_then(|path| WorkspacePath::parse(path.as_bytes()).ok());
    let Some(path) = path.filter(|path| !path.is_root()) else { return };
    if let Err(error) = files::make_directory(link, &path).await {
        tracing::debug!(%error, "the template's working directory was not made");
    }
}
