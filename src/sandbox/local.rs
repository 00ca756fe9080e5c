//! Sandboxes on this machine: Linux namespaces, an unprivileged user of their own, a workspace.
//!
//! # How it works
//! The server starts its own binary as a *launcher* ([`run_hidden_command`]), with nothing
//! but one end of a socket. The launcher holds the sandbox's lock, makes the namespaces, forks
//! PID 1 and watches both it and the server. PID 1 builds what the sandbox sees, gives up every
//! privilege, checks itself from inside and says *ready*; then it starts commands and works on
//! files for the server, which treats all it says as hostile.
//!
//! # What it guarantees
//! - **One object per name.** An object is a directory that gets its name by a rename that never
//!   replaces; the directory as a whole belongs to one server.
//! - **The lock is free, or something may run.** Start, stop, delete and recovery wait for it.
//! - **Sandboxes die with the server**, however it ends, and are found again as *stopped* with
//!   their workspace.
//! - **External ids name incarnations**: one that was deleted never means its successor.
//! - **Isolation that can't be set up is an error.** There is no weaker fall-back.
//!
//! # Races it accepts
//! - A call whose deadline passes between its last look at the clock and a rename takes effect: a
//!   create's object can appear, half made, and a delete's can move to the trash. Both are one
//!   system call after the look, which [`Descriptor::late_effect_window`] covers also on a disk that stalls.
//! - Where both server and launcher are killed at once, the lock can be free a few milliseconds
//!   before the kernel has ended the last process (see `inside/launch.rs`).
//! - Run by an ordinary user, a sandbox keeps that user's supplementary groups, which no one but
//!   root can drop. They open nothing inside, where the only files that are not read-only are the
//!   sandbox's own.

mod archive;
mod cgroup;
mod connect;
mod disk;
mod doctor;
mod exec;
mod files;
mod frame;
mod health;
mod host_disk;
mod host_view;
mod image;
mod inside;
#[cfg(test)]
pub(crate) use inside::raise_loopback;
mod kind;
mod launching;
mod limit_events;
mod limits;
mod link;
mod objects;
mod options;
mod own_uids;
mod packet;
mod passed_socket;
mod processes;
mod read_only;
mod settings;
mod spawner;
mod terminal;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Capability, Capacity, ChunkReceiver, CreateSpec, Descriptor, Egress, Enforcement, Enforcements,
    ExecRequest, Execution, FileContent, FileListing, FilePart, GivenProgram, Health, Isolation,
    Lifecycle, LimitsInForce, Object, ObjectKey, Offset, PortAccess, ProcessExit, ProcessId,
    ProcessOutput, ProcessSpec, Processes, ProviderError, ProviderEvents, Signal, Target,
    TargetCall, Terminal, TerminalRequest, Uniqueness, WalkedTree, WorkError, Workspace,
    WorkspacePath, Written,
};
use crate::clock::{Clock, IdSource};
use crate::egress::{Resolve, SystemResolver};
use crate::git::LateGateway;
use crate::models::LateModelGateway;
use crate::types::{InstanceId, NamedSecrets, NetworkKind, Reserve, Template};
use link::Link;
use objects::{LocalObjects, Make};

pub use inside::run_hidden_command;
pub use kind::LocalKind;
pub use options::LocalOptions;
pub use own_uids::OwnUids;
pub use settings::LocalSettings;

/// How long after a call's deadline its effect may still appear: a deadline is looked at right
/// before the one system call that takes effect, and what a launcher has made ends within
/// milliseconds of its socket. Two seconds is for a disk that stalls in that call.
const LATE_EFFECT_WINDOW: Duration = Duration::from_secs(2);

/// What the provider needs to know.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The directory of the objects. It is made if it is missing, with access for the server's user only.
    pub dir: PathBuf,
    /// The binary that [`run_hidden_command`] is in. [`LocalConfig::new`] takes `/proc/self/exe`,
    /// which stays the running binary while a newer one is put in its place.
    pub launcher: PathBuf,
    /// Whether each sandbox has a host uid and gid of its own.
    pub own_uids: OwnUids,
    /// The host uids and gids of sandboxes if the server runs as root; `None` for those of
    /// `/etc/subuid`, else the usual ones. No other user of the host may have them.
    pub host_ids: Option<Range<u32>>,
    /// The most that each sandbox's `/tmp`, home and `/dev/shm` hold together, in MiB. They are in
    /// memory, do not survive a stop, and are smaller when the sandbox's memory is.
    pub scratch_mb: u32,
    /// The size of the warm pool: started sandboxes that belong to no issue yet, each of another make
    /// (resources and network). A create of the same make takes one at once. Each takes some 3 MB of memory.
    pub warm_pool: usize,
    /// How long processes are given between being asked to end and being killed.
    pub stop_grace: Duration,
    /// Refuse every sandbox whose limits this machine can't enforce for it as a whole.
    pub require_limits: bool,
    /// How much of the disk that `dir` is on is kept free: with less nothing is made or started,
    /// with half of it the sandboxes that write are ended.
    pub disk_reserve: Reserve,
    /// Finds the addresses of names for sandboxes that have a network.
    pub resolver: Arc<dyn Resolve>,
    /// Where the server itself listens: no sandbox reaches that, whatever its template says. `None`
    /// where there is no server.
    pub server: Option<SocketAddr>,
    /// The secrets that templates name.
    pub secrets: NamedSecrets,
    /// Answers git's requests; `None` without credentials for GitHub.
    pub gateway: Option<LateGateway>,
    /// Answers what agents ask models.
    pub models: LateModelGateway,
    /// The programs that every sandbox sees beside the host's own.
    pub programs: Arc<[GivenProgram]>,
}

impl LocalConfig {
    /// The usual, with objects in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            launcher: PathBuf::from("/proc/self/exe"),
            own_uids: OwnUids::Auto,
            host_ids: None,
            scratch_mb: 2048,
            warm_pool: 1,
            stop_grace: Duration::from_secs(2),
            require_limits: false,
            disk_reserve: Reserve::Auto,
            resolver: Arc::new(SystemResolver::default()),
            server: None,
            secrets: NamedSecrets::default(),
            gateway: None,
            models: LateModelGateway::default(),
            programs: Arc::new([]),
        }
    }

    /// As configured, with objects in `dir`.
    pub fn with(dir: impl Into<PathBuf>, settings: LocalSettings) -> Self {
        let LocalSettings { require_limits, disk_reserve, warm_pool, own_uids } = settings;
        Self { require_limits, disk_reserve, warm_pool, own_uids, ..Self::new(dir) }
    }
}

/// Why the provider could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LocalOpenError {
    /// Another server has the directory.
    #[error("another server uses {}", .0.display())]
    InUse(PathBuf),
    /// The directory can't be used.
    #[error("the directory {} of local sandboxes can't be used", .dir.display())]
    Directory {
        /// Which directory.
        dir: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// The provider `local`. Dropping it ends every sandbox, as the server's end does.
pub struct LocalProvider {
    objects: Arc<LocalObjects>,
    /// How each limit held when the provider was opened.
    declared_limits: Enforcements,
}

impl LocalProvider {
    /// Opens the directory, waits for what an earlier server left running to end, and goes on
    /// with the removals that it left. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`LocalOpenError`].
    pub fn open(
        config: LocalConfig,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, LocalOpenError> {
        let objects = LocalObjects::open(config, clock, ids)?;
        Ok(Self { declared_limits: objects.limits(), objects })
    }

    /// Starts a warm sandbox of this make, unless there is one.
    pub fn keep_warm(&self, template: &Template) {
        self.objects.keep_warm(Make::of(template));
    }

    /// How many warm sandboxes there are.
    pub fn waiting(&self) -> usize {
        self.objects.waiting()
    }

    /// The running sandbox of a target, if the process id names the same sandbox.
    fn process(&self, target: &Target, id: &ProcessId) -> Result<Arc<Link>, WorkError> {
        let link = self.objects.link(target)?;
        if id.sandbox == target.expected { Ok(link) } else { Err(WorkError::NoSuchProcess) }
    }

    /// The limits of a template that are not enforced here for a sandbox as a whole, in words with
    /// the reason of each; `None` where all are.
    pub fn limits_not_enforced(&self) -> Option<String> {
        self.objects.limits_not_enforced()
    }
}

#[async_trait]
impl Lifecycle for LocalProvider {
    fn descriptor(&self) -> Descriptor {
        let capabilities = [
            Capability::Terminal,
            Capability::Ports,
            Capability::Tunnels,
            Capability::Archives,
            Capability::DetachedProcesses,
            Capability::Git,
        ];
        Descriptor {
            uniqueness: Uniqueness::EnforcedNames,
            late_effect_window: LATE_EFFECT_WINDOW,
            dies_with_server: true,
            capabilities: capabilities.into(),
            networks: NetworkKind::ALL.to_vec(),
            isolation: Isolation {
                kind: "namespaces",
                seccomp: Enforcement::Enforced,
                memory_counts: Some(self.objects.memory_counts()),
            },
            limits: self.declared_limits.clone(),
        }
    }

    async fn health(&self) -> Health {
        Health {
            identity: Some(self.objects.identity().to_string()),
            trouble: self.objects.trouble().await,
            limits: self.objects.limits(),
        }
    }

    async fn find(&self, key: ObjectKey) -> Result<Vec<Object>, ProviderError> {
        let all = self.objects.all().await?;
        let is_meant = |object: &Object| {
            let labels = object.labels.as_ref();
            object.name == key.name
                || labels.is_some_and(|l| l.home == key.home && l.instance == key.instance)
        };
        Ok(all.into_iter().filter(is_meant).collect())
    }

    async fn list(&self, instance: InstanceId) -> Result<Vec<Object>, ProviderError> {
        let all = self.objects.all().await?;
        let is_ours =
            |object: &Object| object.labels.as_ref().is_some_and(|l| l.instance == instance);
        Ok(all.into_iter().filter(is_ours).collect())
    }

    async fn create(&self, spec: CreateSpec) -> Result<Object, ProviderError> {
        let deadline = spec.deadline;
        self.objects.by(deadline, self.objects.create(spec)).await
    }

    async fn start(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.objects.by(call.deadline, self.objects.start(&call.target)).await
    }

    async fn stop(&self, call: TargetCall) -> Result<Object, ProviderError> {
        self.objects.by(call.deadline, self.objects.stop(&call.target, call.force)).await
    }

    async fn delete(&self, call: TargetCall) -> Result<(), ProviderError> {
        self.objects.by(call.deadline, self.objects.delete(&call.target)).await
    }

    fn capacity(&self) -> Capacity {
        self.objects.capacity()
    }

    fn subscribe(&self) -> ProviderEvents {
        self.objects.events().subscribe()
    }

    async fn limits(&self, target: Target) -> Option<LimitsInForce> {
        self.objects.limits_of(&target).await
    }

    fn egress(&self) -> Option<Egress> {
        Some(self.objects.proxies().egress())
    }
}

#[async_trait]
impl Workspace for LocalProvider {
    async fn list_files(
        &self,
        target: Target,
        path: WorkspacePath,
        depth: u32,
    ) -> Result<FileListing, WorkError> {
        files::list(&self.objects.link(&target)?, &path, depth).await
    }

    async fn read_file(
        &self,
        target: Target,
        path: WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, WorkError> {
        files::read(&self.objects.link(&target)?, &path, part).await
    }

    async fn write_file(
        &self,
        target: Target,
        path: WorkspacePath,
        content: ChunkReceiver,
    ) -> Result<Written, WorkError> {
        files::write(&self.objects.link(&target)?, &path, content).await
    }

    async fn delete_file(&self, target: Target, path: WorkspacePath) -> Result<(), WorkError> {
        files::delete(&self.objects.link(&target)?, &path).await
    }

    async fn make_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<Written, WorkError> {
        files::make_directory(&self.objects.link(&target)?, &path).await
    }

    async fn move_file(
        &self,
        target: Target,
        from: WorkspacePath,
        to: WorkspacePath,
        overwrite: bool,
    ) -> Result<Written, WorkError> {
        files::relocate(&self.objects.link(&target)?, &from, &to, overwrite).await
    }

    async fn set_file_mode(
        &self,
        target: Target,
        path: WorkspacePath,
        mode: u32,
    ) -> Result<(), WorkError> {
        files::set_mode(&self.objects.link(&target)?, &path, mode).await
    }

    async fn pack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<ChunkReceiver, WorkError> {
        archive::pack(&self.objects.link(&target)?, &path).await
    }

    async fn unpack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
        archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        archive::unpack(&self.objects.link(&target)?, &path, archive).await
    }

    async fn walk(&self, target: Target) -> Result<WalkedTree, WorkError> {
        files::walk(&self.objects.link(&target)?).await
    }
}

#[async_trait]
impl Processes for LocalProvider {
    async fn spawn(&self, target: Target, spec: ProcessSpec) -> Result<ProcessId, WorkError> {
        let link = self.objects.link(&target)?;
        let (number, file) = self.objects.new_process().await?;
        processes::spawn(&link, number, spec, file).await?;
        Ok(ProcessId { sandbox: target.expected, number })
    }

    async fn tagged(&self, target: Target, tag: &str) -> Result<Option<ProcessId>, WorkError> {
        let found = self.objects.link(&target)?.processes.tagged(tag);
        Ok(found.map(|number| ProcessId { sandbox: target.expected, number }))
    }

    async fn attach(
        &self,
        target: Target,
        id: ProcessId,
        from: Offset,
    ) -> Result<ProcessOutput, WorkError> {
        processes::attach(&*self.process(&target, &id)?, id.number, from)
    }

    async fn write_stdin(
        &self,
        target: Target,
        id: ProcessId,
        bytes: Bytes,
    ) -> Result<(), WorkError> {
        processes::write_stdin(&*self.process(&target, &id)?, id.number, bytes).await
    }

    async fn close_stdin(&self, target: Target, id: ProcessId) -> Result<(), WorkError> {
        processes::close_stdin(&*self.process(&target, &id)?, id.number)
    }

    async fn signal(&self, target: Target, id: ProcessId, signal: Signal) -> Result<(), WorkError> {
        processes::signal(&*self.process(&target, &id)?, id.number, signal).await
    }

    async fn wait(&self, target: Target, id: ProcessId) -> Result<ProcessExit, WorkError> {
        processes::wait(&*self.process(&target, &id)?, id.number).await
    }

    async fn exec(&self, target: Target, request: ExecRequest) -> Result<Execution, WorkError> {
        let running = exec::start(&self.objects.link(&target)?, request).await?;
        Ok(running.execution)
    }

    async fn terminal(
        &self,
        target: Target,
        request: TerminalRequest,
    ) -> Result<Terminal, WorkError> {
        terminal::terminal(&self.objects.link(&target)?, request).await
    }

    async fn port(&self, target: Target, port: u16) -> Result<PortAccess, WorkError> {
        let stream = connect::connect(&self.objects.link(&target)?, port).await?;
        Ok(PortAccess::Stream(Box::new(stream)))
    }
}
