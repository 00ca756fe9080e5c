//! Files of the server that containers see read-only: the helper with what it needs to run in any image,
//! and the programs that every sandbox is given.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::sandbox::GivenProgram;

/// The helper's directory in containers.
pub const HELPER_DIR: &str = "/.issuebox";

/// Longest piece of an archive on its way to the engine, in bytes.
pub const PIECE_LEN: usize = 256 * 1024;

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
    /// Its name, once the files were read.
    name: Arc<OnceCell<String>>,
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

    /// What it is for, in a word.
    pub fn purpose(&self) -> &'static str {
        self.purpose
    }

    /// The directory in containers.
    pub fn target(&self) -> &'static str {
        self.target
    }

    /// The path of one of its files in containers; `None` if it has none.
    pub fn a_file(&self) -> Option<String> {
        self.files.keys().next().map(|file| format!("{}/{file}", self.target))
    }

    /// The name that all servers with the same content give it.
    ///
    /// # Errors
    /// The system's.
    pub async fn name(&self) -> io::Result<&str> {
        let this = self.clone();
        let named = async {
            let hash = tokio::task::spawn_blocking(move || this.hash()).await??;
            Ok::<String, io::Error>(format!("issuebox-{}-{hash}", self.purpose))
        };
        Ok(self.name.get_or_try_init(|| named).await?)
    }

    /// Writes an archive of the files.
    ///
    /// # Errors
    /// The system's.
    pub fn pack(&self, to: OwnedFd) -> io::Result<()> {
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
