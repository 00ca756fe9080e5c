//! `[sync]`: the object storage in which workspaces are kept.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::reader::ConfigReader;
use super::sections::{SECONDS_MAX, secret, web_address};
use crate::types::Secret;

/// Why a key of the section is of no use.
const WITHOUT_URL: &str = "has no effect without sync.url: nothing is synced";

/// The versions of a sandbox that are kept, if nothing is said.
const KEEP_VERSIONS: u64 = 0;
const KEEP_VERSIONS_MAX: u64 = 1_000_000;

/// How long they are kept, if nothing is said: 30 days.
const KEEP_SECONDS: u64 = 0;

/// How workspaces are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncConfig {
    /// `url` and what goes with it.
    pub location: StorageLocation,
    /// `keep_versions`: the most versions of a sandbox; `None` for all.
    pub keep_versions: Option<usize>,
    /// `keep_seconds`: how long a version is kept that is not the newest; `None` for ever.
    pub keep: Option<Duration>,
    /// `every_seconds`: how often running sandboxes are pushed; `None` for never.
    pub every: Option<Duration>,
}

/// Where workspaces are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageLocation {
    /// A directory of this machine; it is made if it is missing.
    Directory(PathBuf),
    /// A bucket of S3 or of something compatible.
    S3(S3Location),
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Location {
    /// Its name.
    pub bucket: String,
    /// What names in it begin with; may be empty.
    pub prefix: String,
    /// `endpoint`: the server, if it is not AWS's own.
    pub endpoint: Option<String>,
    /// `region`
    pub region: Option<String>,
    /// `key` or the content of `key_file`; `None` for what the environment has.
    pub keys: Option<StorageKeys>,
}

/// Credentials of an object storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageKeys {
    /// The access key's id.
    pub id: String,
    /// The secret access key.
    pub key: Secret,
}

/// What `url` says.
enum StorageUrl {
    Directory(PathBuf),
    S3 { bucket: String, prefix: String },
}

/// Reads the section; `None` if nothing is synced.
pub(super) fn sync(r: &mut ConfigReader) -> Option<SyncConfig> {
    let keep_versions = r.number("sync.keep_versions", KEEP_VERSIONS, 0..=KEEP_VERSIONS_MAX);
    let keep_seconds = r.number("sync.keep_seconds", KEEP_SECONDS, 0..=SECONDS_MAX);
    let every_seconds = r.number("sync.every_seconds", 0, 0..=SECONDS_MAX);
    let Some(location) = location(r) else {
        if every_seconds > 0 {
            r.warn("sync.every_seconds", WITHOUT_URL);
        }
        return None;
    };
    let seconds = |number: u64| (number > 0).then(|| Duration::from_secs(number));
    let keep_versions = usize::try_from(keep_versions).ok().filter(|versions| *versions > 0);
    let (keep, every) = (seconds(keep_seconds), seconds(every_seconds));
    Some(SyncConfig { location, keep_versions, keep, every })
}

fn location(r: &mut ConfigReader) -> Option<StorageLocation> {
    let url = r.parsed("sync.url", None, |text| storage_url(text).map(Some));
    let endpoint = r.parsed("sync.endpoint", None, |text| web_address(text).map(Some));
    let region = r.parsed("sync.region", None, |text| match text.trim() {
        "" => Err("must not be empty".to_owned()),
        region => Ok(Some(region.to_owned())),
    });
    let keys = secret(r, "sync.key", |given| keys_of(&given.text()?));
    match url {
        Some(StorageUrl::S3 { bucket, prefix }) => {
            Some(StorageLocation::S3(S3Location { bucket, prefix, endpoint, region, keys }))
        }
        Some(StorageUrl::Directory(path)) => {
            let without = "has no effect with a directory in sync.url";
            warn_of_bucket_keys(r, without);
            Some(StorageLocation::Directory(path))
        }
        None => {
            warn_of_bucket_keys(r, WITHOUT_URL);
            None
        }
    }
}

fn warn_of_bucket_keys(r: &mut ConfigReader, why: &str) {
    for key in ["sync.endpoint", "sync.region", "sync.key", "sync.key_file"] {
        if r.origin(key).is_some() {
            r.warn(key, why);
        }
    }
}

fn storage_url(text: &str) -> Result<StorageUrl, String> {
    if let Some(path) = text.strip_prefix("file://") {
        let path = percent_decode_str(path).decode_utf8();
        let path = path.map_err(|_| "must have a path that is UTF-8".to_owned())?;
        if !path.starts_with('/') {
            return Err("must have an absolute path, such as file:///var/lib/issuebox".into());
        }
        return Ok(StorageUrl::Directory(PathBuf::from(path.into_owned())));
    }
    let Some(rest) = text.strip_prefix("s3://") else {
        return Err("must begin with file:/// or s3://".into());
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if bucket.is_empty() || !bucket.bytes().all(is_name) {
        return Err("must name a bucket, such as s3://bucket/prefix".into());
    }
    let prefix = prefix.trim_matches('/');
    if prefix.split('/').any(|part| matches!(part, "." | "..") || part.contains(char::is_control)) {
        return Err("must have a prefix without . and .. parts".into());
    }
    Ok(StorageUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

/// Reads key id and key: on two lines, or as AWS's own files have them. An error never has a value.
fn keys_of(text: &str) -> Result<StorageKeys, String> {
    let (mut id, mut key, mut bare) = (None, None, Vec::new());
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', '[']) {
            continue;
        }
        let named = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        match named.map(|(name, value)| (name.to_ascii_lowercase(), value)) {
            Some((name, value)) if name == "aws_access_key_id" => id = Some(value),
            Some((name, value)) if name == "aws_secret_access_key" => key = Some(value),
            // A key can end in `=`.
            Some(_) | None => bare.push(line),
        }
    }
    let (id, key) = match (id, key, bare.as_slice()) {
        (Some(id), Some(key), _) => (id, key),
        (None, None, [id, key]) => (*id, *key),
        _ => return Err("must have the access key's id and the secret key, on two lines".into()),
    };
    if id.is_empty() || key.is_empty() {
        return Err("has an empty key".into());
    }
    Ok(StorageKeys { id: id.to_owned(), key: Secret::new(key) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_two_lines_or_as_aws_has_them() {
        let keys = |text: &str| keys_of(text).map(|keys| (keys.id, keys.key.expose().to_owned()));
        let expected = Ok(("AK".to_owned(), "s/e+c==".to_owned()));
        assert_eq!(keys("AK\ns/e+c==\n"), expected);
        let file = "[default]\naws_access_key_id = AK\naws_secret_access_key = s/e+c==\n";
        assert_eq!(keys(file), expected);
        assert_eq!(keys("AWS_ACCESS_KEY_ID=AK\nAWS_SECRET_ACCESS_KEY=s/e+c=="), expected);
        for bad in ["", "AK", "AK\nB\nC", "aws_access_key_id = AK\n"] {
            assert!(keys(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_url_is_a_directory_or_a_bucket() {
        let directory = |text| match storage_url(text) {
            Ok(StorageUrl::Directory(path)) => path,
            Ok(StorageUrl::S3 { .. }) | Err(_) => panic!("{text} is a directory"),
        };
        assert_eq!(directory("file:///var/sync%20d"), PathBuf::from("/var/sync d"));
        let bucket = |text| match storage_url(text) {
            Ok(StorageUrl::S3 { bucket, prefix }) => (bucket, prefix),
            Ok(StorageUrl::Directory(_)) | Err(_) => panic!("{text} is a bucket"),
        };
        assert_eq!(bucket("s3://b"), ("b".into(), String::new()));
        assert_eq!(bucket("s3://b/c/d/"), ("b".into(), "c/d".into()));
        for bad in ["", "/var", "file://host/x", "s3://", "s3:///x", "s3://b/../c", "gs://b"] {
            assert!(storage_url(bad).is_err(), "{bad:?}");
        }
    }
}
