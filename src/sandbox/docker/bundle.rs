//! Files of the server in volumes, which containers see read-only: the helper with what it needs to
//! run in any image, and the programs that every sandbox is given.
//!
//! A volume's name has the hash of its content, so each engine gets each content once, and no volume
//! ever changes. A second, empty volume says that the first one is complete. The content goes in
//! through a container that is never started.
//!
//! People remove volumes, and an engine makes an empty one in place of a missing one that a container
//! mounts. So each create looks for the volumes, and a container that does not start is looked at for
//! empty ones.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, ContainerSummary, ContainerSummaryStateEnum, HostConfig, Mount, MountType,
    MountVolumeOptions, VolumeCreateRequest,
};
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, CreateContainerOptionsBuilder,
    ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bollard::{Docker, body_try_stream};
use bytes::Bytes;
use tokio::net::unix::pipe;
use tokio::sync::OnceCell;
use tokio_util::io::ReaderStream;

use super::engine::status;
use crate::sandbox::GivenProgram;
use crate::sandbox::confined::pipe as new_pipe;
use crate::types::Timestamp;

/// The helper's directory in containers.
pub const HELPER_DIR: &str = "/.issuebox";

/// The label of the server's own volumes: what they hold.
const PURPOSE_LABEL: &str = "issuebox.purpose";

/// How long filling a volume takes at most, in seconds.
const FILL_SECONDS_MAX: i64 = 900;

/// Longest piece of an archive on its way to the engine, in bytes.
const PIECE_LEN: usize = 256 * 1024;

/// One file of a volume.
#[derive(Clone, Debug)]
enum VolumeFile {
    /// A file of this machine.
    Copy(PathBuf),
    /// A text.
    Text(Bytes),
}

/// The content of a volume.
#[derive(Clone, Debug)]
pub struct VolumeContent {
    purpose: &'static str,
    target: &'static str,
    /// By the path below the target.
    files: Arc<BTreeMap<String, VolumeFile>>,
    /// The volume's name, once the files were read.
    name: Arc<OnceCell<String>>,
}

/// A complete volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedVolume {
    name: String,
    target: &'static str,
}

impl MountedVolume {
    /// Its mount in a sandbox.
    pub fn read_only(&self) -> Mount {
        self.mount(true)
    }

    /// The name of the volume that says that this one is complete.
    fn completion(&self) -> String {
        format!("{}-complete", self.name)
    }

    fn mount(&self, is_read_only: bool) -> Mount {
        Mount {
            target: Some(self.target.to_owned()),
            source: Some(self.name.clone()),
            typ: Some(MountType::VOLUME),
            read_only: Some(is_read_only),
            volume_options: Some(MountVolumeOptions {
                no_copy: Some(true),
                ..MountVolumeOptions::default()
            }),
            ..Mount::default()
        }
    }
}

impl VolumeContent {
    /// The helper: `binary`, its interpreter and its libraries, and git's settings. Also returns the name
    /// of the interpreter.
    ///
    /// # Errors
    /// The system's.
    pub fn helper(binary: &Path, git_settings: Bytes) -> io::Result<(Self, Option<String>)> {
        let (libraries, interpreter) = libraries()?;
        let mut files: BTreeMap<String, VolumeFile> = libraries
            .into_iter()
            .map(|(name, path)| (format!("lib/{name}"), VolumeFile::Copy(path)))
            .collect();
        files.insert("issuebox".to_owned(), VolumeFile::Copy(binary.to_owned()));
        files.insert("gitconfig".to_owned(), VolumeFile::Text(git_settings));
        Ok((Self::new("helper", HELPER_DIR, files), interpreter))
    }

    /// The given programs; `None` if there is none.
    pub fn programs(programs: &[GivenProgram]) -> Option<Self> {
        let mut files = BTreeMap::new();
        for program in programs {
            let inside = program.inside();
            // One that is not there any more is missed only by what runs it.
            if let Some(path) = inside.strip_prefix(GivenProgram::DIR)
                && program.file().is_file()
            {
                let path = path.trim_start_matches('/').to_owned();
                files.insert(path, VolumeFile::Copy(program.file().to_owned()));
            }
        }
        (!files.is_empty()).then(|| Self::new("programs", GivenProgram::DIR, files))
    }

    fn new(
        purpose: &'static str,
        target: &'static str,
        files: BTreeMap<String, VolumeFile>,
    ) -> Self {
        Self { purpose, target, files: Arc::new(files), name: Arc::default() }
    }

    /// Its volume on an engine, which is made if it is missing. `image` is any image that is there.
    ///
    /// # Errors
    /// The engine's; 404 if it has no such image.
    pub async fn volume(&self, engine: &Docker, image: &str) -> Result<MountedVolume, Error> {
        let volume = self.mounted().await?;
        let complete = volume.completion();
        let (is_made, is_complete) =
            tokio::join!(is_there(engine, &volume.name), is_there(engine, &complete));
        if !(is_made? && is_complete?) {
            self.prepare(engine, image).await?;
        }
        Ok(volume)
    }

    /// Whether a container that mounts its volume lacks the files, because the volume is empty.
    ///
    /// # Errors
    /// The engine's; 404 if it has no such container.
    pub async fn is_missing_in(&self, engine: &Docker, container: &str) -> Result<bool, Error> {
        let Some(file) = self.files.keys().next() else { return Ok(false) };
        let path = format!("{}/{file}", self.target);
        let options = ContainerArchiveInfoOptionsBuilder::new().path(&path).build();
        match engine.get_container_archive_info(container, Some(options)).await {
            Ok(_) => Ok(false),
            Err(error) if status(&error) == Some(404) => {
                engine.inspect_container(container, None).await.map(|_| true)
            }
            Err(error) => Err(error),
        }
    }

    async fn mounted(&self) -> Result<MountedVolume, Error> {
        let this = self.clone();
        let named = async {
            let hash = blocking(move || this.hash()).await?;
            Ok::<String, Error>(format!("issuebox-{}-{hash}", self.purpose))
        };
        let name = self.name.get_or_try_init(|| named).await?;
        Ok(MountedVolume { name: name.clone(), target: self.target })
    }

    /// Makes its volume, or fills it again. `image` is any image that is there.
    ///
    /// # Errors
    /// The engine's; 404 if it has no such image.
    pub async fn prepare(&self, engine: &Docker, image: &str) -> Result<(), Error> {
        let volume = self.mounted().await?;
        let host_config = HostConfig {
            mounts: Some(vec![volume.mount(false)]),
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        };
        let labels = [(PURPOSE_LABEL.to_owned(), self.purpose.to_owned())];
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            // Never started; an image may have none of its own.
            entrypoint: Some(vec!["/issuebox".to_owned()]),
            labels: Some(labels.clone().into()),
            host_config: Some(host_config),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::new().build();
        let made = engine.create_container(Some(options), body).await?;
        let filled = self.fill(engine, &made.id).await;
        let removal = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let removed = engine.remove_container(&made.id, Some(removal)).await;
        filled.and(removed)?;
        let request = VolumeCreateRequest {
            name: Some(volume.completion()),
            labels: Some(labels.into()),
            ..VolumeCreateRequest::default()
        };
        engine.create_volume(request).await?;
        Ok(())
    }

    /// Sends the files into the volume of a container.
    async fn fill(&self, engine: &Docker, container: &str) -> Result<(), Error> {
        let (reader, writer) = new_pipe().map_err(io::Error::other)?;
        let reader = pipe::Receiver::from_owned_fd(reader)?;
        let this = self.clone();
        let packing = tokio::task::spawn_blocking(move || this.pack(writer));
        let options = UploadToContainerOptionsBuilder::new().path(self.target).build();
        let pieces = ReaderStream::with_capacity(reader, PIECE_LEN);
        let sent = engine.upload_to_container(container, Some(options), body_try_stream(pieces));
        let sent = sent.await;
        // Packing that failed is the reason of what the engine says of a cut archive.
        packing.await.map_err(io::Error::other)??;
        sent
    }

    fn pack(&self, to: OwnedFd) -> io::Result<()> {
        let mut archive =
            tar::Builder::new(io::BufWriter::with_capacity(PIECE_LEN, File::from(to)));
        let mut made = std::collections::BTreeSet::new();
        for (path, file) in &*self.files {
            for parent in Path::new(path).ancestors().skip(1).collect::<Vec<_>>().into_iter().rev()
            {
                if !parent.as_os_str().is_empty() && made.insert(parent.to_owned()) {
                    let mut head = header(tar::EntryType::Directory, 0);
                    archive.append_data(&mut head, parent, io::empty())?;
                }
            }
            match file {
                VolumeFile::Text(text) => {
                    let mut head = header(tar::EntryType::Regular, text.len() as u64);
                    archive.append_data(&mut head, path, &text[..])?;
                }
                VolumeFile::Copy(from) => {
                    let file = File::open(from)?;
                    let len = file.metadata()?.len();
                    let mut head = header(tar::EntryType::Regular, len);
                    archive.append_data(&mut head, path, file.take(len))?;
                }
            }
        }
        use io::Write;
        archive.into_inner()?.flush()
    }

    /// The hash of the paths and the contents.
    fn hash(&self) -> io::Result<String> {
        let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
        let mut field = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for (path, file) in &*self.files {
            field(path.as_bytes());
            match file {
                VolumeFile::Text(text) => field(text),
                VolumeFile::Copy(from) => field(&digest(from)?),
            }
        }
        let digest = hash.finish();
        Ok(hex::encode(&digest.as_ref()[..12]))
    }
}

fn digest(path: &Path) -> io::Result<Vec<u8>> {
    let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
    let (mut file, mut piece) = (File::open(path)?, vec![0; PIECE_LEN]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hash.finish().as_ref().to_vec()),
            len => hash.update(&piece[..len]),
        }
    }
}

/// The head of an entry that every user may read and execute, and only root can change.
fn header(kind: tar::EntryType, size: u64) -> tar::Header {
    let mut head = tar::Header::new_gnu();
    head.set_entry_type(kind);
    head.set_mode(0o755);
    head.set_uid(0);
    head.set_gid(0);
    head.set_mtime(0);
    head.set_size(size);
    head
}

/// Removes the containers through which volumes were to be filled by servers that ended meanwhile.
///
/// # Errors
/// The engine's.
pub async fn remove_abandoned(engine: &Docker, now: Timestamp) -> Result<(), Error> {
    let filters = HashMap::from([("label", vec![PURPOSE_LABEL])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    let listed = engine.list_containers(Some(options)).await?;
    for container in listed.into_iter().filter(|container| is_abandoned(container, now)) {
        let id = container.id.unwrap_or_default();
        tracing::info!(
            container = id,
            "removes a container through which a volume was to be filled"
        );
        let removal = RemoveContainerOptionsBuilder::new().build();
        match engine.remove_container(&id, Some(removal)).await {
            // Another server has removed it, or is removing it.
            Err(error) if matches!(status(&error), Some(404 | 409)) => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Whether no server fills a volume through this container any more.
fn is_abandoned(container: &ContainerSummary, now: Timestamp) -> bool {
    let abandoned_from =
        |seconds: i64| seconds.saturating_add(FILL_SECONDS_MAX).saturating_mul(1000);
    // Checked here, too: engines differ in what several filters mean.
    container.labels.as_ref().is_some_and(|labels| labels.contains_key(PURPOSE_LABEL))
        && container.state == Some(ContainerSummaryStateEnum::CREATED)
        && container.created.is_some_and(|at| at > 0 && abandoned_from(at) < now.unix_ms())
}

async fn is_there(engine: &Docker, volume: &str) -> Result<bool, Error> {
    match engine.inspect_volume(volume).await {
        Ok(_) => Ok(true),
        Err(error) if status(&error) == Some(404) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??)
}

/// Libraries by the names that programs ask for.
type Libraries = BTreeMap<String, PathBuf>;

/// The libraries that this process maps, and the name of its interpreter among them; none if it is
/// linked to nothing. The helper is the same program, or, in tests, one that is linked to the same.
fn libraries() -> io::Result<(Libraries, Option<String>)> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut found = Libraries::new();
    for path in mapped(&maps) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        found.insert(name.to_owned(), path.clone());
        // A program may ask for it by the name of a link beside it.
        for entry in fs::read_dir(path.parent().unwrap_or(Path::new("/")))? {
            let link = entry?.path();
            if let Some(other) = link.file_name().and_then(|name| name.to_str())
                && other.contains(".so.")
                && link.is_symlink()
                && fs::canonicalize(&link).is_ok_and(|to| to == path)
            {
                found.insert(other.to_owned(), path.clone());
            }
        }
    }
    let interpreter = found.keys().find(|name| name.starts_with("ld-")).cloned();
    Ok((found, interpreter))
}

/// The shared libraries in a table of mappings (`/proc/PID/maps`).
fn mapped(maps: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let path = &line[line.find('/')?..];
        let name = path.rsplit('/').next()?;
        (name.contains(".so") && !path.ends_with(" (deleted)")).then(|| PathBuf::from(path))
    };
    let mut found: Vec<PathBuf> = maps.lines().filter_map(path).collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_old_container_is_abandoned() {
        let now = Timestamp::from_unix_ms(10_000_000_000);
        let of = |created| ContainerSummary {
            created,
            labels: Some(HashMap::from([(PURPOSE_LABEL.to_owned(), "helper".to_owned())])),
            state: Some(ContainerSummaryStateEnum::CREATED),
            ..ContainerSummary::default()
        };
        for (created, expected) in [
            (Some(10_000_000), false),
            (Some(10_000_000 - 900), false),
            (Some(10_000_000 - 901), true),
            (Some(-1), false),
            (None, false),
        ] {
            assert_eq!(is_abandoned(&of(created), now), expected, "{created:?}");
        }
        let another_s = ContainerSummary { labels: None, ..of(Some(1)) };
        let state = Some(ContainerSummaryStateEnum::RUNNING);
        let running = ContainerSummary { state, ..of(Some(1)) };
        assert!(!is_abandoned(&another_s, now) && !is_abandoned(&running, now));
    }

    #[test]
    fn mapped_libraries_are_found_once_each() {
        let maps = "7f00-7f01 r-xp 0 08:01 1   /usr/lib/x86_64-linux-gnu/libc.so.6\n\
            7f01-7f02 rw-p 0 08:01 1   /usr/lib/x86_64-linux-gnu/libc.so.6\n\
            7f03-7f04 r-xp 0 08:01 2   /usr/bin/issuebox\n\
            7f05-7f06 rw-p 0 00:00 0   [heap]\n\
            7f07-7f08 r-xp 0 08:01 3   /lib/ld-linux-x86-64.so.2\n\
            7f09-7f0a r-xp 0 08:01 4   /lib/gone.so.1 (deleted)\n";
        let expected = ["/lib/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/libc.so.6"];
        assert_eq!(mapped(maps), expected.map(PathBuf::from));
    }

    #[test]
    fn the_helper_brings_its_interpreter_and_the_hash_tells_contents_apart() {
        let dir = tempfile::tempdir().expect("a directory");
        let binary = dir.path().join("binary");
        let hash = |content: &str, settings: &'static str| {
            fs::write(&binary, content).expect("written");
            let (helper, interpreter) =
                VolumeContent::helper(&binary, settings.into()).expect("readable");
            if let Some(name) = interpreter {
                assert!(helper.files.contains_key(&format!("lib/{name}")), "{name}");
            }
            helper.hash().expect("hashed")
        };
        assert_eq!(hash("one", "a"), hash("one", "a"));
        assert_ne!(hash("one", "a"), hash("two", "a"));
        assert_ne!(hash("one", "a"), hash("one", "b"));
    }
}
