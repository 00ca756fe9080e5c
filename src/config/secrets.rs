//! The two secrets of a server. The first start generates those that are not configured and stores
//! them in the data directory, readable by its owner alone; later starts read them.
//!
//! # Guarantees
//! A stored secret is complete or absent: it is written to a temporary file and then linked to its
//! name, so two servers that start together use the same one. An empty file is an error.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::types::Secret;

use super::Config;

/// The secrets in effect.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// The token that authenticates API calls.
    pub admin_token: Secret,
    /// The secrets that sign deliveries; several during a rotation.
    pub webhook_secrets: Vec<Secret>,
    /// The secrets that this start generated, for the log.
    pub made: Vec<Made>,
}

/// A generated secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// What it is, such as `admin token`.
    pub what: &'static str,
    /// Its file.
    pub path: PathBuf,
}

/// Why the secrets cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    /// A kept secret is empty.
    #[error("{} is empty; write a secret into it, or remove it to have one generated", .0.display())]
    Empty(PathBuf),
    /// A file or directory cannot be read or written.
    #[error("cannot store the {what} in {}", path.display())]
    Io {
        /// Which secret.
        what: &'static str,
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Secrets {
    /// The name of the admin token's file in the data directory.
    pub const ADMIN_TOKEN_FILE: &'static str = "admin-token";
    /// The name of the webhook secret's file in the data directory.
    pub const WEBHOOK_SECRET_FILE: &'static str = "webhook-secret";

    /// The configured secrets; for those that are not configured, the stored or newly generated ones. The
    /// webhook secret of the stored App comes after the others.
    ///
    /// # Errors
    /// [`SecretsError`] if a stored secret is empty or the data directory cannot be used.
    pub fn ensure(config: &Config) -> Result<Self, SecretsError> {
        let data = &config.server.data;
        let mut made = Vec::new();
        let admin_token = match &config.auth.admin_token {
            Some(token) => token.clone(),
            None => kept(data, "admin token", Self::ADMIN_TOKEN_FILE, &mut made)?,
        };
        let mut webhook_secrets = match config.github.webhook_secrets.as_slice() {
            [] => vec![kept(data, "webhook secret", Self::WEBHOOK_SECRET_FILE, &mut made)?],
            configured => configured.to_vec(),
        };
        let of_app = config.github.stored_app.as_ref().and_then(|app| app.webhook_secret.clone());
        webhook_secrets.extend(of_app);
        Ok(Self { admin_token, webhook_secrets, made })
    }
}

/// Reads a stored secret, or generates one.
fn kept(
    data: &Path,
    what: &'static str,
    name: &str,
    made: &mut Vec<Made>,
) -> Result<Secret, SecretsError> {
    let path = data.join(name);
    let io = |source| SecretsError::Io { what, path: path.clone(), source };
    match std::fs::read_to_string(&path) {
        Ok(text) => return secret_of(&text).ok_or(SecretsError::Empty(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
    }
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(io)?;
    if make(data, &path).map_err(io)? {
        made.push(Made { what, path: path.clone() });
    }
    let text = std::fs::read_to_string(&path).map_err(io)?;
    secret_of(&text).ok_or(SecretsError::Empty(path))
}

fn secret_of(text: &str) -> Option<Secret> {
    let text = text.trim();
    (!text.is_empty()).then(|| Secret::new(text))
}

/// Writes a new secret; `false` if another server was faster.
fn make(data: &Path, path: &Path) -> io::Result<bool> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let written = file
        .write_all(format!("{}\n", hex::encode(random_bytes()?)).as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| match std::fs::hard_link(&beside, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            linked => linked.map(|()| true),
        });
    std::fs::remove_file(&beside)?;
    let linked = written?;
    File::open(data)?.sync_all()?;
    Ok(linked)
}

/// 256 bits from the system.
fn random_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Overrides;

    fn config(data: &Path, env: &[(&str, &str)]) -> Config {
        let env = env.iter().map(|(name, word)| ((*name).to_owned(), (*word).to_owned()));
        let overrides = Overrides { listen: None, data: Some(data.to_owned()) };
        Config::load(None, env, overrides, &[]).expect("a good configuration").config
    }

    #[test]
    fn the_first_start_generates_strong_secrets_and_later_ones_read_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("deep/data");
        let config = config(&data, &[]);
        let first = Secrets::ensure(&config).expect("made");
        assert_eq!(first.admin_token.expose().len(), 64);
        assert_ne!(first.admin_token, first.webhook_secrets[0]);
        assert_eq!(
            first.made.iter().map(|made| made.path.as_path()).collect::<Vec<_>>(),
            [data.join("admin-token"), data.join("webhook-secret")]
        );
        for made in &first.made {
            let mode = std::fs::metadata(&made.path).expect("kept").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(&data).expect("a directory").count(), 2);

        let second = Secrets::ensure(&config).expect("read back");
        assert_eq!(second.admin_token, first.admin_token);
        assert_eq!(second.webhook_secrets, first.webhook_secrets);
        assert_eq!(second.made, []);
    }

    #[test]
    fn configured_secrets_are_not_stored() {
        let dir = tempfile::tempdir().expect("a directory");
        let env = [("ISSUEBOX_ADMIN_TOKEN", "t"), ("ISSUEBOX_WEBHOOK_SECRET", "new,old")];
        let secrets = Secrets::ensure(&config(dir.path(), &env)).expect("configured");
        assert_eq!(secrets.admin_token.expose(), "t");
        let words: Vec<&str> = secrets.webhook_secrets.iter().map(Secret::expose).collect();
        assert_eq!(words, ["new", "old"]);
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn an_empty_secret_file_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("admin-token"), "\n").expect("written");
        let error = Secrets::ensure(&config(dir.path(), &[])).expect_err("empty");
        assert!(matches!(error, SecretsError::Empty(_)), "{error}");
    }

    #[test]
    fn a_data_directory_that_cannot_be_created_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("written");
        let error = Secrets::ensure(&config(&file.join("data"), &[])).expect_err("no directory");
        assert!(error.to_string().starts_with("cannot store the admin token in "), "{error}");
    }

    #[test]
    fn two_servers_that_start_at_once_agree() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("admin-token");
        std::fs::write(&path, "theirs\n").expect("written");
        assert!(!make(dir.path(), &path).expect("no error"));
        assert_eq!(std::fs::read_to_string(&path).expect("kept"), "theirs\n");
    }
}
