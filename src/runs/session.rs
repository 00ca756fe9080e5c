//! Copies of the agents' sessions, outside of their sandboxes: the next generation goes on with them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::inside::{AGENT_DIR, Inside};
use super::removal::homes_in;
use crate::agents::Agent;
use crate::types::{HomeId, SessionId};

/// Largest session file that is copied, in bytes.
const SESSION_LEN_MAX: usize = 64 << 20;

/// Where copies of sessions are kept: a directory for each home.
#[derive(Clone, Debug)]
pub struct SessionCopies {
    dir: PathBuf,
}

impl SessionCopies {
    /// In this directory, which is made when something is copied.
    pub const fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The session's file in the sandbox, as a path there. One that is missing there is put back from
    /// its copy, if there is one.
    pub(super) async fn restore(
        &self,
        inside: &Inside,
        home: HomeId,
        agent: &dyn Agent,
        session: &SessionId,
    ) -> Result<Option<String>, String> {
        for file in agent.session_files(session) {
            let there = inside.find(&file.directory, file.depth, &file.name_end).await?;
            if let Some(found) = there.iter().find(|path| file.matches(path)) {
                return Ok(Some(format!("{AGENT_DIR}/{found}")));
            }
            let copies = self.copies(home).map_err(|error| error.to_string())?;
            if let Some(copy) = copies.into_iter().find(|path| file.matches(path)) {
                let content = fs::read(self.of(home).join(&copy));
                let content = content.map_err(|error| error.to_string())?;
                let path = format!("{AGENT_DIR}/{copy}");
                inside.write(&path, Bytes::from(content)).await?;
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Copies the session's file out of the sandbox.
    pub(super) async fn keep(
        &self,
        inside: &Inside,
        home: HomeId,
        agent: &dyn Agent,
        session: &SessionId,
    ) -> Result<(), String> {
        for file in agent.session_files(session) {
            let there = inside.find(&file.directory, file.depth, &file.name_end).await?;
            for path in there.iter().filter(|path| file.matches(path)) {
                let content = inside.read(&format!("{AGENT_DIR}/{path}"), SESSION_LEN_MAX).await?;
                let Some(content) = content else { continue };
                let to = self.of(home).join(path);
                write(&to, &content).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Removes the copies of a home.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, home: HomeId) -> io::Result<()> {
        match fs::remove_dir_all(self.of(home)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The homes that have copies.
    pub(super) fn homes(&self) -> io::Result<Vec<HomeId>> {
        homes_in(&self.dir)
    }

    fn of(&self, home: HomeId) -> PathBuf {
        self.dir.join(home.to_string())
    }

    /// The copies of a home, relative to its directory.
    fn copies(&self, home: HomeId) -> io::Result<Vec<String>> {
        let (root, mut found) = (self.of(home), Vec::new());
        let mut left = vec![root.clone()];
        while let Some(dir) = left.pop() {
            let entries = match fs::read_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    left.push(entry.path());
                } else if let Ok(path) = entry.path().strip_prefix(&root) {
                    found.extend(path.to_str().map(str::to_owned));
                }
            }
        }
        Ok(found)
    }
}

/// Replaces a file as a whole.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let fresh = path.with_extension("new");
    let options = &mut fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}
