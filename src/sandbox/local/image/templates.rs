//! Makes images: one template per size with `mkfs.ext4`, and a sparse copy of it per sandbox. A
//! copy takes a tenth of the time of `mkfs`, since a fresh file system is nearly empty.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{SeekFrom, copy_file_range, seek};
use rustix::io::Errno;

use super::tool;

/// Below this size, in MiB, blocks are 1 KiB and the journal is small. Otherwise a quarter of a 16
/// MiB disk would be journal.
const SMALL_BELOW_MB: u64 = 128;

/// The timeout of `mkfs.ext4`, which takes hundredths of a second on a healthy disk.
const MKFS_TIME_MAX: Duration = Duration::from_secs(30);

/// The size of the image that is mounted as a probe, in MiB.
const TRIAL_MB: u64 = 16;

/// Fresh images, by size.
pub struct Templates {
    dir: PathBuf,
    mkfs: PathBuf,
    made: Mutex<HashSet<u64>>,
}

/// Why images are not usable, for people.
#[derive(Debug)]
pub enum NoImages {
    /// It may work later.
    ForNow(String),
    /// It can't work while this process runs.
    ForGood(String),
}

impl Templates {
    /// Templates whose directory was not probed.
    #[cfg(test)]
    pub(super) fn untried(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), mkfs: PathBuf::new(), made: Mutex::default() }
    }

    /// Probes whether images can be made and mounted here. Templates are kept in `dir`; each
    /// server makes its own.
    ///
    /// # Errors
    /// [`NoImages`].
    pub fn open(dir: &Path) -> Result<Self, NoImages> {
        if !rustix::process::geteuid().is_root() {
            return Err(NoImages::ForGood("only root can mount an image".into()));
        }
        Self::try_out(dir).map_err(NoImages::ForNow)
    }

    fn try_out(dir: &Path) -> Result<Self, String> {
        let mkfs = tool::find("mkfs.ext4").ok_or("mkfs.ext4 is missing: install e2fsprogs")?;
        let failed = |error: io::Error| error.to_string();
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        fs::create_dir(dir).map_err(failed)?;
        let templates = Self { dir: dir.to_owned(), mkfs, made: Mutex::default() };
        let probe = dir.join("trial");
        templates.copy(TRIAL_MB, &probe).map_err(failed)?;
        let image = File::options().read(true).write(true).open(&probe).map_err(failed)?;
        let mounted = super::mount(&OwnedFd::from(image), 1);
        fs::remove_file(&probe).map_err(failed)?;
        let flushed = mounted.and_then(|mounted| super::flush(&mounted, || {}));
        flushed.map(|()| templates).map_err(|error| {
            let remedy = super::remedy(error.step, error.errno);
            remedy.map_or_else(|| error.to_string(), |remedy| format!("{error}. {remedy}"))
        })
    }

    /// Makes a fresh image of `size_mb` MiB at `to`. The caller syncs it.
    ///
    /// # Errors
    /// The error of the file system or of `mkfs.ext4`.
    pub fn copy(&self, size_mb: u64, to: &Path) -> io::Result<()> {
        let template = self.template(size_mb)?;
        let image = File::options().read(true).write(true).create_new(true).open(to)?;
        image.set_len(size_mb << 20)?;
        copy_data(&template, &image)
    }

    fn template(&self, size_mb: u64) -> io::Result<File> {
        let path = self.dir.join(format!("{size_mb}.ext4"));
        // A concurrent call for the same size waits instead of making it twice.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !made.contains(&size_mb) {
            self.make(size_mb, &path)?;
            made.insert(size_mb);
        }
        File::open(path)
    }

    fn make(&self, size_mb: u64, path: &Path) -> io::Result<()> {
        let is_small = size_mb < SMALL_BELOW_MB;
        let (block, journal) = if is_small { ("1024", "size=1") } else { ("4096", "size=8") };
        File::create(path)?.set_len(size_mb.saturating_mul(1 << 20))?;
        let mut command = Command::new(&self.mkfs);
        command
            // No blocks reserved for root, and an inode per 8 KiB, as for a tree of sources.
            .args(["-q", "-F", "-m", "0", "-i", "8192", "-b", block, "-J", journal])
            // Checksums, which detect an incomplete journal.
            .args(["-O", "metadata_csum"])
            .args(["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"])
            .arg(path)
            .stdin(Stdio::null());
        let failed = |why: &str| format!("mkfs.ext4 of {size_mb} MiB failed: {why}");
        match tool::run(command, MKFS_TIME_MAX) {
            Ok((status, _)) if status.success() => Ok(()),
            Ok((_, output)) => Err(io::Error::other(failed(&output))),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let why = format!("it did not finish within {} seconds", MKFS_TIME_MAX.as_secs());
                Err(io::Error::new(ErrorKind::TimedOut, failed(&why)))
            }
            Err(error) => Err(error),
        }
    }
}

/// Copies the data and skips holes; shares blocks if the file system can.
fn copy_data(from: &File, to: &File) -> io::Result<()> {
    let mut at = 0;
    loop {
        let begin = match seek(from, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data after this offset.
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        at = seek(from, SeekFrom::Hole(begin))?;
        copy_range(from, to, begin, at)?;
    }
}

fn copy_range(from: &File, to: &File, begin: u64, end: u64) -> io::Result<()> {
    let (mut read, mut written) = (begin, begin);
    while read < end {
        let left = usize::try_from(end - read).unwrap_or(usize::MAX);
        let copied =
            copy_file_range(from.as_fd(), Some(&mut read), to.as_fd(), Some(&mut written), left)?;
        if copied == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn a_copy_has_the_data_and_the_holes() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = |name: &str| {
            let path = dir.path().join(name);
            File::options().read(true).write(true).create(true).truncate(true).open(path)
        };
        let (from, to) = (open("from").expect("made"), open("to").expect("made"));
        for file in [&from, &to] {
            file.set_len(64 << 20).expect("sized");
        }
        for (at, byte) in [(0, 1), (5 << 20, 2), ((64 << 20) - 1, 3)] {
            from.write_all_at(&[byte], at).expect("written");
        }
        copy_data(&from, &to).expect("copied");
        let read = |name: &str| fs::read(dir.path().join(name)).expect("read");
        assert!(read("from") == read("to"));
        let blocks = to.metadata().expect("there").blocks();
        assert!(blocks * 512 < 1 << 20, "{blocks} blocks of what is mostly a hole");
    }
}
