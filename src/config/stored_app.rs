//! The GitHub App that was registered on the page *Connect*: its credentials, as one directory in the data
//! directory.
//!
//! # Guarantees
//! The directory is whole or absent, and durable before anything is done with what it holds: it is written
//! under another name, synced and renamed. An App that replaces another takes its place in one step. Only
//! the owner can read it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};

use crate::types::Secret;

use super::GitHubLogin;

const APP_FILE: &str = "app.json";
const KEY_FILE: &str = "key.pem";
const SECRET_FILE: &str = "webhook_secret";

/// A GitHub App whose credentials the server keeps itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredApp {
    /// Which App it is.
    pub about: AppFacts,
    /// Its private key, in PEM.
    pub key: Secret,
    /// The secret of its webhook, if it has one.
    pub webhook_secret: Option<Secret>,
}

/// Which App it is, and at which GitHub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppFacts {
    /// Its id.
    pub id: u64,
    /// Its name in addresses.
    pub slug: String,
    /// The address of its public page.
    pub html_url: String,
    /// The address of GitHub's pages.
    pub web_url: String,
    /// The base of GitHub's REST API, to which alone the key's tokens go.
    pub api_url: String,
}

/// Why a stored App cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot read the GitHub App in {}: {why}; restore the directory, or remove it and register the App \
     again on the page Connect", dir.display()
)]
pub struct StoredAppError {
    dir: PathBuf,
    why: String,
}

impl StoredApp {
    /// The name of the directory in the data directory.
    pub const DIR: &'static str = "github-app";

    /// The directory and its files.
    pub fn paths(data: &Path) -> [PathBuf; 4] {
        let dir = data.join(Self::DIR);
        let files = [APP_FILE, KEY_FILE, SECRET_FILE].map(|name| dir.join(name));
        let [app, key, secret] = files;
        [dir, app, key, secret]
    }

    /// The stored App; `None` if there is none.
    ///
    /// # Errors
    /// If the directory is not whole or cannot be read.
    pub fn read(data: &Path) -> Result<Option<Self>, StoredAppError> {
        let [dir, app, key, secret] = Self::paths(data);
        let found = fs::symlink_metadata(&dir).map_err(|error| error.kind());
        // A caller who may not look into the data directory runs no server on it.
        if let Err(
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied,
        ) = found
        {
            return Ok(None);
        }
        let wrong = |path: &Path, why: &dyn std::fmt::Display| StoredAppError {
            dir: dir.clone(),
            why: format!("{}: {why}", path.display()),
        };
        let read = |path: &Path| fs::read_to_string(path).map_err(|error| wrong(path, &error));
        let about = serde_json::from_str(&read(&app)?).map_err(|error| wrong(&app, &error))?;
        let pem = read(&key)?;
        let webhook_secret = match fs::read_to_string(&secret) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(wrong(&secret, &error)),
            Ok(text) if text.trim().is_empty() => return Err(wrong(&secret, &"is empty")),
            Ok(text) => Some(Secret::new(text.trim())),
        };
        Ok(Some(Self { about, key: Secret::new(pem.trim()), webhook_secret }))
    }

    /// Stores it, durably, in place of the one that is stored. One caller at a time.
    ///
    /// # Errors
    /// If that failed. Then the one that was stored is there as before.
    pub fn write(&self, data: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(data)?;
        let unfinished = self.write_unfinished(data)?;
        put_in_place(&unfinished, &data.join(Self::DIR))
    }

    /// Writes the directory under another name.
    fn write_unfinished(&self, data: &Path) -> io::Result<PathBuf> {
        let dir = data.join(format!("{}.unfinished", Self::DIR));
        remove(&dir)?;
        DirBuilder::new().mode(0o700).create(&dir)?;
        let about = serde_json::to_string_pretty(&self.about).map_err(io::Error::other)?;
        let secret = self.webhook_secret.as_ref().map(|secret| (SECRET_FILE, secret.expose()));
        let files = [(APP_FILE, about.as_str()), (KEY_FILE, self.key.expose())];
        for (name, content) in files.into_iter().chain(secret) {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(dir.join(name))?;
            file.write_all(format!("{}\n", content.trim_end()).as_bytes())?;
            file.sync_all()?;
        }
        File::open(&dir)?.sync_all()?;
        Ok(dir)
    }

    /// How the server authenticates as this App.
    pub fn login(&self) -> GitHubLogin {
        GitHubLogin::App { id: self.about.id, key: self.key.clone() }
    }
}

/// Gives a directory its name; the one that had it is removed.
fn put_in_place(unfinished: &Path, dir: &Path) -> io::Result<()> {
    let parent = dir.parent().unwrap_or(Path::new("."));
    match fs::rename(unfinished, dir) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
            ) =>
        {
            renameat_with(CWD, unfinished, CWD, dir, RenameFlags::EXCHANGE)?;
            File::open(parent)?.sync_all()?;
            remove(unfinished)?;
        }
        renamed => renamed?,
    }
    File::open(parent)?.sync_all()
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn app(id: u64, webhook_secret: Option<&str>) -> StoredApp {
        StoredApp {
            about: AppFacts {
                id,
                slug: format!("app-{id}"),
                html_url: format!("https://github.com/apps/app-{id}"),
                web_url: "https://github.com".to_owned(),
                api_url: "https://api.github.com".to_owned(),
            },
            key: Secret::new(format!("-----BEGIN {id}\n-----END")),
            webhook_secret: webhook_secret.map(Secret::new),
        }
    }

    fn read(data: &Path) -> Option<StoredApp> {
        StoredApp::read(data).expect("whole")
    }

    #[test]
    fn an_app_is_read_as_it_was_written_and_only_its_owner_can() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        assert_eq!(read(&data), None);
        let written = app(1, Some("s3cret"));
        written.write(&data).expect("written");
        assert_eq!(read(&data), Some(written));
        for path in StoredApp::paths(&data) {
            let metadata = fs::metadata(&path).expect("there");
            let private = if metadata.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(metadata.permissions().mode() & 0o777, private, "{}", path.display());
        }
        assert_eq!(fs::read_dir(&data).expect("a directory").count(), 1, "nothing is left beside");
    }

    #[test]
    fn a_crash_leaves_the_old_app_or_the_new_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path();
        let (one, two, three) = (app(1, Some("one")), app(2, None), app(3, Some("three")));
        one.write_unfinished(data).expect("written");
        assert_eq!(read(data), None, "killed before the rename");
        one.write(data).expect("written");
        let unfinished = two.write_unfinished(data).expect("written");
        assert_eq!(read(data).as_ref(), Some(&one), "killed before the exchange");
        put_in_place(&unfinished, &data.join(StoredApp::DIR)).expect("exchanged");
        assert_eq!(read(data), Some(two), "without the secret of the one before");
        // Killed before the old one was removed: it is in the way of nothing.
        one.write_unfinished(data).expect("written");
        three.write(data).expect("written");
        assert_eq!(read(data), Some(three));
    }

    #[test]
    fn a_damaged_directory_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path();
        for (name, content) in
            [(KEY_FILE, None), (APP_FILE, Some("{}")), (APP_FILE, None), (SECRET_FILE, Some("\n"))]
        {
            app(1, Some("secret")).write(data).expect("written");
            let path = data.join(StoredApp::DIR).join(name);
            match content {
                None => fs::remove_file(&path).expect("removed"),
                Some(content) => fs::write(&path, content).expect("written"),
            }
            let error = StoredApp::read(data).expect_err(name).to_string();
            let named = path.display().to_string();
            assert!(error.contains(&named) && error.contains("register the App again"), "{error}");
        }
    }
}
