//! The objects of this provider, stored as directories.
//!
//! ```text
//! <dir>/lock                  held by the one server that uses this directory
//! <dir>/identity              the id of this directory, made once
//! <dir>/making/<id>/          not an object yet, possibly with a warm sandbox running in it;
//!                             removed at the next start
//! <dir>/objects/<name>/       an object, and with it the name
//!         record.json         its labels and limits; never changed
//!         made                exists once the object has been up; without it, it is half made
//!         lock                held while any of its processes runs
//!         workspace.ext4      the only part that the sandbox can access; an image if root can
//!         workspace/          mount it, else a directory
//! <dir>/images/               an empty workspace of each size; each server makes its own
//! <dir>/trash/<external id>/  an object that is being removed; its name is still taken
//! ```
//!
//! # Guarantees
//! - **A name has one object.** It becomes an object by a rename that refuses to replace.
//! - **A record from the first moment.** The record is on disk before the rename that makes the
//!   directory an object.
//! - **Absence is honest.** An object in the trash counts as present until its last file is gone.
//! - **An external id is never used twice**: it names the incarnation, not the name.
//!
//! Everything here blocks; call it on blocking threads. A directory in `objects/` without a
//! readable record is foreign: it is listed, and never changed.

mod layout;
mod unnamed;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub use self::layout::WorkspaceKind;
pub use self::unnamed::{Naming, Unnamed};

use super::LocalConfig;
use super::image::{self, IMAGE, Images};
use super::own_uids::{self, HostIds};
use crate::sandbox::Labels;
use crate::sandbox::confined::remove;
use crate::sandbox::stored_network::NetworkRow;
use crate::sandbox::stored_workload::WorkloadRow;
use crate::types::{ExternalId, Network, ObjectName, Resources, SandboxId, Workload};

/// Longest object name, in bytes. With the incarnation it stays below a file name's 255.
const NAME_LEN_MAX: usize = 100;

/// How long a killed server may still hold its directory: a process that it was starting holds the
/// lock until it executes. Then the pause between two tries.
const IN_USE_WAIT: Duration = Duration::from_millis(500);
const IN_USE_LOOK: Duration = Duration::from_millis(5);

/// Longest record that is read, in bytes. Real ones are a few hundred, and some KiB of environment.
const RECORD_LEN_MAX: u64 = 256 * 1024;

/// The content of `record.json`.
#[derive(Serialize, Deserialize)]
struct Row {
    external_id: String,
    labels: BTreeMap<String, String>,
    host_id: Option<u32>,
    processes_max: u32,
    /// As text, which restores the same number to the last bit. Records older than limits lack
    /// these three.
    cpu: Option<String>,
    memory_mb: Option<u64>,
    disk_mb: Option<u64>,
    /// Absent means no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<NetworkRow>,
    /// Absent means an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<WorkloadRow>,
}

/// The limits of a sandbox whose record lacks them: the defaults of a template.
const RESOURCES_DEFAULT: Resources =
    Resources { cpu: 1.0, memory_mb: 1024, processes: 256, disk_mb: 2048 };

/// Which directory holds an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredIn {
    /// Among the objects.
    Objects,
    /// In the trash.
    Trash,
}

/// An object as read from its directory.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its name.
    pub name: ObjectName,
    /// Its incarnation.
    pub external_id: ExternalId,
    /// In `objects/` or in the trash.
    pub place: StoredIn,
    /// Whether it has been up.
    pub made: bool,
    /// The kind of its workspace.
    pub workspace: WorkspaceKind,
    /// Its record; `None` for a foreign directory.
    pub owned: Option<Owned>,
}

/// The content of a readable record.
#[derive(Clone, Debug)]
pub struct Owned {
    /// The labels of its sandbox.
    pub labels: Labels,
    /// Its host uid and gid; `None` if it runs as the server's own user.
    pub host_id: Option<u32>,
    /// Its limits.
    pub resources: Resources,
    /// Its network.
    pub network: Network,
    /// Its workload, as far as this provider needs it.
    pub workload: Arc<Workload>,
}

impl Stored {
    /// Its sandbox id; `None` for a foreign directory.
    pub fn sandbox(&self) -> Option<&SandboxId> {
        self.owned.as_ref().map(|owned| &owned.labels.sandbox)
    }
}

/// The directory of a provider.
pub struct Disk {
    dir: PathBuf,
    identity: String,
    /// The host uids of sandboxes.
    pub host_ids: HostIds,
    /// This program, which removes files of those uids.
    program: PathBuf,
    /// The templates of workspaces, or why workspaces are directories.
    images: Images,
    _lock: File,
}

impl Disk {
    /// Opens the configured directory, completes it, and removes what an earlier server left half
    /// made. A new directory gets `fresh` as its identity.
    ///
    /// # Errors
    /// `WouldBlock` if another server uses it; the file system's error.
    pub fn open(config: &LocalConfig, fresh: &str) -> io::Result<Self> {
        let dir = config.dir.as_path();
        private_dir(dir)?;
        let lock = File::options().create(true).append(true).open(dir.join("lock"))?;
        lock_within(&lock, IN_USE_WAIT)?;
        for part in ["making", "objects", "trash"] {
            private_dir(&dir.join(part))?;
        }
        let identity = match fs::read_to_string(dir.join("identity")) {
            Ok(text) => text.trim().to_string(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write_durably(&dir.join("identity"), fresh.as_bytes())?;
                sync_dir(dir)?;
                fresh.to_string()
            }
            Err(error) => return Err(error),
        };
        let host_ids = HostIds::new(own_uids::find(config));
        let images = Images::open(&dir.join("images"));
        let (dir, program) = (dir.to_owned(), config.launcher.clone());
        let disk = Self { dir, identity, host_ids, program, images, _lock: lock };
        for name in names(&disk.dir.join("making"))? {
            // A warm sandbox in it ends with its server, within milliseconds.
            for held in ["lock", IMAGE] {
                let path = disk.dir.join("making").join(&name).join(held);
                let file = File::options().write(true).open(path);
                // One that hangs does not block the start, and nothing of it is used again.
                let locked = file.and_then(|file| lock_within(&file, IN_USE_WAIT));
                if locked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                    disk.host_ids.keep(layout::host_id_in(&disk.dir.join("making").join(&name)));
                }
            }
            if let Err(error) = disk.remove_unnamed(&name) {
                tracing::warn!(name, %error, "cannot remove what an earlier server left half made");
            }
        }
        for stored in disk.all()? {
            disk.host_ids.keep(stored.owned.and_then(|owned| owned.host_id));
        }
        Ok(disk)
    }

    /// The id of this directory.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Why the disk of a new sandbox is not limited; `None` if it is.
    pub fn why_no_images(&self) -> Option<String> {
        self.images.why_not()
    }

    /// Whether a name can be a directory's: `[a-z0-9]([a-z0-9-]*[a-z0-9])?` of at most 100 bytes.
    pub fn accepts(name: &ObjectName) -> bool {
        let bytes = name.as_str().as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let ok = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        bytes.len() <= NAME_LEN_MAX
            && bytes.iter().all(ok)
            && edge(bytes.first())
            && edge(bytes.last())
    }

    /// The name in an external id of this provider.
    pub fn name_of(external_id: &ExternalId) -> Option<ObjectName> {
        let name = ObjectName::trusted(external_id.as_str().split_once('@')?.0);
        Self::accepts(&name).then_some(name)
    }

    /// The object of a name; `None` if the name is free. [`Disk::trashed`] returns those in the
    /// trash.
    pub fn object(&self, name: &ObjectName) -> io::Result<Option<Stored>> {
        read(&self.object_dir(name), name.as_str(), StoredIn::Objects)
    }

    /// The objects in the trash.
    pub fn trashed(&self) -> io::Result<Vec<Stored>> {
        self.in_place(StoredIn::Trash)
    }

    /// Every object. One that is moved to the trash meanwhile is returned at least once.
    pub fn all(&self) -> io::Result<Vec<Stored>> {
        let mut all = self.in_place(StoredIn::Objects)?;
        let trashed = self.trashed()?;
        all.retain(|stored| trashed.iter().all(|other| other.external_id != stored.external_id));
        all.extend(trashed);
        Ok(all)
    }

    fn in_place(&self, place: StoredIn) -> io::Result<Vec<Stored>> {
        let part = self.dir.join(match place {
            StoredIn::Objects => "objects",
            StoredIn::Trash => "trash",
        });
        let mut found = Vec::new();
        for name in names(&part)? {
            found.extend(read(&part.join(&name), &name, place)?);
        }
        Ok(found)
    }

    /// Makes a new object's name and its empty workspace durable.
    pub fn sync_new(&self, name: &ObjectName) -> io::Result<()> {
        sync_image(&self.object_dir(name))?;
        self.sync_names()
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_dir(&self.dir.join("objects"))
    }

    /// Records that an object has been up. If this mark is lost, the object counts as half made
    /// and a start completes it, so the disk is not waited for.
    pub fn mark_made(&self, name: &ObjectName) -> io::Result<()> {
        File::create(self.object_dir(name).join("made")).map(drop)
    }

    /// Opens an object's directory, for its launcher.
    pub fn open_object(&self, name: &ObjectName) -> io::Result<OwnedFd> {
        File::open(self.object_dir(name)).map(OwnedFd::from)
    }

    /// The path of an object's image; `None` if its workspace is a directory.
    pub fn image(&self, stored: &Stored) -> Option<PathBuf> {
        match stored.workspace {
            WorkspaceKind::Image => Some(self.path_of(stored).join(IMAGE)),
            WorkspaceKind::Directory => None,
        }
    }

    /// Waits until no process of an object runs and its workspace is mounted nowhere. Nothing of
    /// it can start until the lock is dropped.
    pub fn lock(&self, stored: &Stored) -> io::Result<Lock> {
        let path = self.path_of(stored).join("lock");
        let file = match File::options().write(true).open(&path) {
            Ok(file) => file,
            // An interrupted removal has already removed the lock: nothing can run without one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock(None)),
            Err(error) => return Err(error),
        };
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        match File::options().write(true).open(self.path_of(stored).join(IMAGE)) {
            Ok(image) => image::wait_until_free(&image.into())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Lock(Some(file)))
    }

    /// Moves an object to the trash. Its name stays taken until the trash has been emptied.
    pub fn trash(&self, stored: &Stored, _nothing_runs: &Lock) -> io::Result<Stored> {
        let trashed = Stored { place: StoredIn::Trash, ..stored.clone() };
        fs::rename(self.path_of(stored), self.path_of(&trashed))?;
        self.sync_names()?;
        Ok(trashed)
    }

    /// Removes an object in the trash. The record goes last, so that the remains of an interrupted
    /// removal still name their owner.
    pub fn empty(&self, trashed: &Stored, _nothing_runs: &Lock) -> io::Result<()> {
        let path = self.path_of(trashed);
        // Both are opened first: without descriptors nothing is removed, least of all the record.
        let trash: OwnedFd = File::open(self.dir.join("trash"))?.into();
        let directory: OwnedFd = File::open(&path)?.into();
        for name in [IMAGE, "workspace", "made", "lock", "record.json"] {
            match own_uids::remove(&self.program, &directory, name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        match remove::remove(&trash, trashed.external_id.as_str().as_bytes()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        rustix::fs::fsync(&trash)?;
        self.host_ids.release(trashed.owned.as_ref().and_then(|owned| owned.host_id));
        Ok(())
    }

    /// Removes what is not an object yet.
    fn remove_unnamed(&self, name: &str) -> io::Result<()> {
        let making: OwnedFd = File::open(self.dir.join("making"))?.into();
        let directory: OwnedFd = File::open(self.dir.join("making").join(name))?.into();
        match own_uids::remove(&self.program, &directory, "workspace") {
            // The second is a file.
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(error);
            }
            Ok(()) | Err(_) => {}
        }
        Ok(remove::remove(&making, name.as_bytes())?)
    }

    /// An empty file without a name, which no sandbox can reach. A file of this `name` may be left only
    /// when the server is killed at this moment; the next start removes it.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn unnamed_file(&self, name: &str) -> io::Result<File> {
        let path = self.dir.join("making").join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(path)?;
        Ok(file)
    }

    fn object_dir(&self, name: &ObjectName) -> PathBuf {
        self.dir.join("objects").join(name.as_str())
    }

    fn path_of(&self, stored: &Stored) -> PathBuf {
        match stored.place {
            StoredIn::Objects => self.object_dir(&stored.name),
            StoredIn::Trash => self.dir.join("trash").join(stored.external_id.as_str()),
        }
    }
}

/// Proof that nothing of an object runs while it is held.
pub struct Lock(#[expect(dead_code, reason = "held, not read")] Option<File>);

/// Reads an object's directory; `None` if it does not exist.
fn read(path: &Path, entry: &str, place: StoredIn) -> io::Result<Option<Stored>> {
    match fs::symlink_metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let row = read_row(&path.join("record.json"))?;
    let (external_id, name) = match (place, &row) {
        (StoredIn::Objects, Some((row, _))) => (row.external_id.clone(), entry),
        // Stable while the directory exists, and never an id of this provider.
        (StoredIn::Objects, None) => (format!("{entry}@foreign"), entry),
        (StoredIn::Trash, _) => {
            (entry.to_string(), entry.split_once('@').map_or(entry, |(name, _)| name))
        }
    };
    Ok(Some(Stored {
        name: ObjectName::trusted(name),
        external_id: ExternalId::trusted(external_id),
        place,
        made: path.join("made").exists(),
        workspace: WorkspaceKind::found(path),
        owned: row.map(|(_, owned)| owned),
    }))
}

/// Reads a record; `None` if it is missing or not of this provider.
fn read_row(path: &Path) -> io::Result<Option<(Row, Owned)>> {
    let bytes = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.size() <= RECORD_LEN_MAX => fs::read(path),
        Ok(_) => return Ok(None),
        Err(error) => Err(error),
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(mut row) = serde_json::from_slice::<Row>(&bytes) else { return Ok(None) };
    let labels = Labels::from_pairs(|key| row.labels.get(key).map(String::as_str));
    let network = row.network.as_ref().map_or(Some(Network::None), NetworkRow::network);
    Ok(labels.zip(network).map(|(labels, network)| {
        let cpu = row.cpu.as_ref().and_then(|text| text.parse().ok());
        let resources = Resources {
            cpu: cpu.unwrap_or(RESOURCES_DEFAULT.cpu),
            memory_mb: row.memory_mb.unwrap_or(RESOURCES_DEFAULT.memory_mb),
            processes: row.processes_max,
            disk_mb: row.disk_mb.unwrap_or(RESOURCES_DEFAULT.disk_mb),
        };
        let workload =
            row.workload.take().map(WorkloadRow::into_workload).unwrap_or_default().into();
        let owned = Owned { labels, host_id: row.host_id, resources, network, workload };
        (row, owned)
    }))
}

/// The sorted names in a directory that are UTF-8, as this provider's always are.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.extend(entry?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// Syncs the image in an object's directory, if it has one.
fn sync_image(object: &Path) -> io::Result<()> {
    match File::open(object.join(IMAGE)) {
        Ok(image) => image.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes a lock, waiting up to `at_most` for its current holder.
fn lock_within(file: &File, at_most: Duration) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begin.elapsed() < at_most => thread::sleep(IN_USE_LOOK),
            taken => return Ok(taken?),
        }
    }
}

/// Creates a directory that only the server's user may enter, unless it exists.
fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file atomically, and returns once it is on disk.
fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
