//! Makes images: one template of each size with `mkfs.ext4`, and a sparse copy of it for each
//! sandbox. A copy takes a tenth of what `mkfs` takes, since a fresh file system is nearly empty.

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

/// Below this, in MiB, blocks are of 1 KiB and the journal is small: a disk of 16 MiB would
/// otherwise be a quarter journal.
const SMALL_BELOW_MB: u64 = 128;

/// How long `mkfs.ext4` may take, which takes hundredths of a second where nothing is wrong with the
/// disk.
const MKFS_TIME_MAX: Duration = Duration::from_secs(30);

/// The size of the image that is mounted to see whether that works, in MiB.
const TRIAL_MB: u64 = 16;

/// Fresh images, by size.
pub struct Templates {
    dir: PathBuf,
    mkfs: PathBuf,
    made: Mutex<HashSet<u64>>,
}

/// Why images can't be used, in words.
#[derive(Debug)]
pub enum NoImages {
    /// It may be otherwise a little later.
    ForNow(String),
    /// As long as this process runs.
    ForGood(String),
}

impl Templates {
    /// Some whose directory nobody has looked at.
    #[cfg(test)]
    pub(super) fn untried(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), mkfs: PathBuf::new(), made: Mutex::default() }
    }

    /// Finds out whether images can be made and mounted here, by doing it. Templates are kept in
    /// `dir`, and made anew each time.
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

    /// Makes a fresh image of `size_mb` MiB at `to`. It reaches the disk when that is synced.
    ///
    /// # Errors
    /// What the file system answers, and what `mkfs.ext4` says.
    pub fn copy(&self, size_mb: u64, to: &Path) -> io::Result<()> {
        let template = self.template(size_mb)?;
        let image = File::options().read(true).write(true).create_new(true).open(to)?;
        image.set_len(size_mb << 20)?;
        copy_data(&template, &image)
    }

    fn template(&self, size_mb: u64) -> io::Result<File> {
        let path = self.dir.join(format!("{size_mb}.ext4"));
        // Whoever needs the same size waits, and does not make it twice.
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
            // No room for root alone, and a name for every 8 KiB, as in a tree of sources.
            .args(["-q", "-F", "-m", "0", "-i", "8192", "-b", block, "-J", journal])
            // Checksums, by which a journal that lost a part of itself is told from a whole one.
            .args(["-O", "metadata_csum"])
            .args(["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"])
            .arg(path)
            .stdin(Stdio::null());
        let failed = |why: &str| format!("mkfs.ext4 of {size_mb} MiB failed: {why}");
        match tool::run(command, MKFS_TIME_MAX) {
            Ok((status, _)) if status.success() => Ok(()),
            Ok((_, said)) => Err(io::Error::other(failed(&said))),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let why = format!("it was not done in {} seconds", MKFS_TIME_MAX.as_secs());
                Err(io::Error::new(ErrorKind::TimedOut, failed(&why)))
            }
            Err(error) => Err(error),
        }
    }
}

/// Copies what is not a hole; where the file system can share blocks it copies none.
fn copy_data(from: &File, to: &File) -> io::Result<()> {
    let mut at = 0;
    loop {
        let begin = match seek(from, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data from here on.
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
