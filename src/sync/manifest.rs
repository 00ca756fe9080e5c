//! The manifest of a version, `.sandbox-state`: what is in it, and with which contents.
//!
//! JSON. A path or a link's target that is not UTF-8 is in `pathBase64` or `targetBase64`.

use std::fmt;
use std::io::{self, Write};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::sandbox::WorkspacePath;
use crate::types::{SyncStats, SyncVersion, Timestamp};

/// The format that is written. A manifest of another one counts as unreadable.
const FORMAT: u32 = 1;

/// Longest manifest, in bytes: a version of some 300,000 files. A server holds a few in memory.
pub const MANIFEST_LEN_MAX: u64 = 64 * 1024 * 1024;

/// The SHA-256 of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentChecksum([u8; 32]);

impl ContentChecksum {
    /// Of a content.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Of what was hashed.
    pub fn finished(hash: Sha256) -> Self {
        Self(hash.finalize().into())
    }

    /// Reads 64 hexadecimal digits; `None` for another text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl fmt::Display for ContentChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ContentChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an entry of a version is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryContent {
    /// A regular file.
    File {
        /// Its checksum.
        sha256: ContentChecksum,
        /// Its size, in bytes.
        size: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// Where it leads, as written.
        target: Vec<u8>,
    },
}

/// One entry of a version.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "EntryIn")]
pub struct ManifestEntry {
    /// Its path relative to the workspace.
    pub path: Vec<u8>,
    /// Its permission bits, such as `0o644`.
    pub mode: u32,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// What it is.
    pub content: EntryContent,
}

/// A version: everything that its workspace had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Its name.
    pub version: SyncVersion,
    /// When the workspace was walked. What was changed later is not in it.
    pub walked_at: Timestamp,
    /// What the push did that made it.
    pub stats: SyncStats,
    /// The paths of what could not be read: what was there is not known.
    pub left_out: Vec<Vec<u8>>,
    /// The entries, parents before children.
    pub entries: Vec<ManifestEntry>,
}

/// Why a manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is no manifest, or a damaged one.
    #[error("the manifest is damaged: {0}")]
    Damaged(String),
    /// A later issuebox wrote it.
    #[error("the manifest has format {0}, which this issuebox does not read")]
    OtherFormat(u32),
    /// It is longer than [`MANIFEST_LEN_MAX`].
    #[error("the manifest has {0} bytes, more than the 64 MiB that are read")]
    TooLong(u64),
}

impl Manifest {
    /// As bytes: what a list of versions shows comes first, the entries last.
    ///
    /// # Errors
    /// [`ManifestTooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, ManifestTooLong> {
        let wire = ManifestOut {
            head: HeadWire {
                format: FORMAT,
                version: self.version.to_string(),
                walked_at_ms: self.walked_at.unix_ms(),
                stats: self.stats.into(),
                size: Some(self.size()),
            },
            left_out: self.left_out.iter().map(|path| PathWire::of(path)).collect(),
            entries: &self.entries,
        };
        let mut out = BoundedBytes(Vec::new());
        serde_json::to_writer(&mut out, &wire).map_err(|_| ManifestTooLong(self.entries.len()))?;
        Ok(out.0)
    }

    /// Reads a manifest. Its paths are checked: none leads out of a workspace.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let wire = match serde_json::from_slice::<ManifestIn>(bytes) {
            Ok(wire) if wire.format == FORMAT => wire,
            Ok(wire) => return Err(ManifestError::OtherFormat(wire.format)),
            // A later format may have other fields.
            Err(why) => match serde_json::from_slice::<Format>(bytes) {
                Ok(Format { format }) if format != FORMAT => {
                    return Err(ManifestError::OtherFormat(format));
                }
                Ok(_) | Err(_) => return Err(ManifestError::Damaged(why.to_string())),
            },
        };
        let wrong = |what: &str| ManifestError::Damaged(what.to_owned());
        let left_out = wire.left_out.into_iter().map(PathWire::bytes).collect::<Option<_>>();
        Ok(Self {
            version: SyncVersion::parse(&wire.version).ok_or_else(|| wrong("no version"))?,
            walked_at: Timestamp::from_unix_ms(wire.walked_at_ms),
            stats: wire.stats.into(),
            left_out: left_out.ok_or_else(|| wrong("a path that was left out"))?,
            entries: wire.entries,
        })
    }

    /// The sum of the files' sizes, in bytes.
    pub fn size(&self) -> u64 {
        let sizes = self.entries.iter().map(|entry| match entry.content {
            EntryContent::File { size, .. } => size,
            EntryContent::Directory | EntryContent::Link { .. } => 0,
        });
        sizes.sum()
    }

    /// The contents with their sizes, of those that have an object: an empty one has none.
    pub fn contents(&self) -> impl Iterator<Item = (ContentChecksum, u64)> {
        self.entries.iter().filter_map(|entry| match entry.content {
            EntryContent::File { sha256, size } if size > 0 => Some((sha256, size)),
            EntryContent::File { .. } | EntryContent::Directory | EntryContent::Link { .. } => None,
        })
    }
}

/// What a list of versions shows of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestHead {
    /// Its name.
    pub version: SyncVersion,
    /// When the workspace was walked.
    pub walked_at: Timestamp,
    /// The sum of its files' sizes, in bytes.
    pub size: u64,
    /// What the push did that made it.
    pub stats: SyncStats,
}

impl ManifestHead {
    /// Reads it from the first bytes of a manifest; `None` if they do not have it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let end = memchr::memmem::find(bytes, HEAD_END)?;
        let head = [&bytes[..end], b"}"].concat();
        let HeadWire { format, version, walked_at_ms, stats, size } =
            serde_json::from_slice(&head).ok()?;
        let version = SyncVersion::parse(&version).filter(|_| format == FORMAT)?;
        let walked_at = Timestamp::from_unix_ms(walked_at_ms);
        Some(Self { version, walked_at, size: size?, stats: stats.into() })
    }
}

impl From<&Manifest> for ManifestHead {
    fn from(manifest: &Manifest) -> Self {
        let Manifest { version, walked_at, stats, .. } = manifest;
        Self { version: *version, walked_at: *walked_at, size: manifest.size(), stats: *stats }
    }
}

/// A version has too many entries: so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestTooLong(pub usize);

/// Bytes up to [`MANIFEST_LEN_MAX`].
struct BoundedBytes(Vec<u8>);

impl Write for BoundedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() as u64 + bytes.len() as u64 > MANIFEST_LEN_MAX {
            return Err(io::Error::other("the manifest is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a manifest begins with.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadWire {
    format: u32,
    version: String,
    walked_at_ms: i64,
    stats: StatsWire,
    /// Not in the first manifests.
    #[serde(default)]
    size: Option<u64>,
}

/// What follows the head, as [`ManifestOut`] writes it.
const HEAD_END: &[u8] = b",\"leftOut\":[";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ManifestOut<'a> {
    #[serde(flatten)]
    head: HeadWire,
    left_out: Vec<PathWire>,
    #[serde(serialize_with = "write_entries")]
    entries: &'a [ManifestEntry],
}

/// The fields of [`HeadWire`] are here, too: a flattened struct would be kept in memory twice.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestIn {
    format: u32,
    version: String,
    walked_at_ms: i64,
    stats: StatsWire,
    #[serde(default)]
    left_out: Vec<PathWire>,
    entries: Vec<ManifestEntry>,
}

fn write_entries<S: Serializer>(entries: &[ManifestEntry], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(entries.iter().map(EntryOut::of))
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatsWire {
    files_processed: u64,
    files_uploaded: u64,
    files_downloaded: u64,
    files_deleted: u64,
    files_skipped: u64,
    bytes_transferred: u64,
    duration_ms: u64,
}

impl From<SyncStats> for StatsWire {
    fn from(stats: SyncStats) -> Self {
        Self {
            files_processed: stats.files_processed,
            files_uploaded: stats.files_uploaded,
            files_downloaded: stats.files_downloaded,
            files_deleted: stats.files_deleted,
            files_skipped: stats.files_skipped,
            bytes_transferred: stats.bytes_transferred,
            duration_ms: stats.duration_ms,
        }
    }
}

impl From<StatsWire> for SyncStats {
    fn from(wire: StatsWire) -> Self {
        Self {
            files_processed: wire.files_processed,
            files_uploaded: wire.files_uploaded,
            files_downloaded: wire.files_downloaded,
            files_deleted: wire.files_deleted,
            files_skipped: wire.files_skipped,
            bytes_transferred: wire.bytes_transferred,
            duration_ms: wire.duration_ms,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PathWire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
}

impl PathWire {
    fn of(path: &[u8]) -> Self {
        let (path, path_base64) = text_or_base64(path);
        Self { path: path.map(str::to_owned), path_base64 }
    }

    fn bytes(self) -> Option<Vec<u8>> {
        checked(bytes_of(self.path, self.path_base64)?)
    }
}

/// An entry as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryIn {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    path_base64: Option<String>,
    kind: KindWire,
    #[serde(default)]
    sha256: Option<ContentChecksum>,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    target: Option<String>,
    #[serde(default)]
    target_base64: Option<String>,
    /// In octal, such as `0644`.
    mode: String,
    modified_ns: i64,
}

/// An entry as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    kind: KindWire,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<ContentChecksum>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_base64: Option<String>,
    #[serde(serialize_with = "write_mode")]
    mode: u32,
    modified_ns: i64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum KindWire {
    File,
    Directory,
    Link,
}

impl<'a> EntryOut<'a> {
    fn of(entry: &'a ManifestEntry) -> Self {
        let (mut sha256, mut size, mut link) = (None, None, (None, None));
        let kind = match &entry.content {
            EntryContent::File { sha256: checksum, size: len } => {
                (sha256, size) = (Some(*checksum), Some(*len));
                KindWire::File
            }
            EntryContent::Directory => KindWire::Directory,
            EntryContent::Link { target } => {
                link = text_or_base64(target);
                KindWire::Link
            }
        };
        let (path, path_base64) = text_or_base64(&entry.path);
        let ManifestEntry { mode, modified_ns, .. } = *entry;
        let (target, target_base64) = link;
        Self { path, path_base64, kind, sha256, size, target, target_base64, mode, modified_ns }
    }
}

impl TryFrom<EntryIn> for ManifestEntry {
    type Error = &'static str;

    fn try_from(wire: EntryIn) -> Result<Self, Self::Error> {
        wire.entry().ok_or("an entry makes no sense")
    }
}

impl EntryIn {
    fn entry(self) -> Option<ManifestEntry> {
        let path = bytes_of(self.path, self.path_base64)?;
        let path = checked(path).filter(|path| !path.is_empty())?;
        let content = match self.kind {
            KindWire::File => EntryContent::File { sha256: self.sha256?, size: self.size? },
            KindWire::Directory => EntryContent::Directory,
            KindWire::Link => {
                EntryContent::Link { target: bytes_of(self.target, self.target_base64)? }
            }
        };
        let mode = u32::from_str_radix(&self.mode, 8).ok()?;
        Some(ManifestEntry { path, mode, modified_ns: self.modified_ns, content })
    }
}

fn write_mode<S: Serializer>(mode: &u32, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(&format_args!("{mode:04o}"))
}

impl Serialize for ContentChecksum {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut text = [0; 64];
        hex::encode_to_slice(self.0, &mut text).expect("two digits a byte");
        out.serialize_str(std::str::from_utf8(&text).expect("digits are text"))
    }
}

impl<'de> Deserialize<'de> for ContentChecksum {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <&str>::deserialize(from)?;
        Self::parse(text).ok_or_else(|| D::Error::custom("no checksum"))
    }
}

fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

fn bytes_of(text: Option<String>, base64: Option<String>) -> Option<Vec<u8>> {
    match (text, base64) {
        (Some(text), None) => Some(text.into_bytes()),
        (None, Some(base64)) => BASE64_STANDARD.decode(base64).ok(),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

/// A path as a walk names it: relative, without `..`.
fn checked(path: Vec<u8>) -> Option<Vec<u8>> {
    WorkspacePath::parse(&path).ok().filter(|parsed| parsed.as_bytes() == path).map(|_| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let entry = |path: &[u8], content| ManifestEntry {
            path: path.to_vec(),
            mode: 0o750,
            modified_ns: 1_700_000_000_123_456_789,
            content,
        };
        let file = EntryContent::File { sha256: ContentChecksum::of(b"abc"), size: 3 };
        Manifest {
            version: SyncVersion { seconds: 1_700_000_001, number: 2 },
            walked_at: Timestamp::from_unix_ms(1_700_000_001_000),
            stats: SyncStats { files_processed: 2, ..SyncStats::default() },
            left_out: vec![b"secret".to_vec(), b"\xfe".to_vec(), Vec::new()],
            entries: vec![
                entry(b"d", EntryContent::Directory),
                entry(b"d/\xff\n", file),
                entry(b"l", EntryContent::Link { target: b"../\xfe".to_vec() }),
            ],
        }
    }

    fn encoded(manifest: &Manifest) -> Vec<u8> {
        manifest.encode().expect("it is short")
    }

    #[test]
    fn the_head_of_a_manifest_is_in_its_first_bytes() {
        let manifest = manifest();
        let bytes = encoded(&manifest);
        let head = ManifestHead::from(&manifest);
        assert_eq!(head.size, 3);
        let end = memchr::memmem::find(&bytes, b"entries").expect("there");
        assert_eq!(ManifestHead::decode(&bytes[..end]), Some(head));
        assert_eq!(ManifestHead::decode(&bytes[..20]), None);
        // The first manifests have no size in front.
        let text =
            String::from_utf8(bytes).expect("text").replace(",\"size\":3,\"leftOut", ",\"leftOut");
        assert_eq!(ManifestHead::decode(text.as_bytes()), None);
        assert_eq!(Manifest::decode(text.as_bytes()), Ok(manifest));
    }

    #[test]
    fn a_manifest_that_no_server_bears_is_refused() {
        let entry = ManifestEntry {
            path: vec![b'x'; 4000],
            mode: 0o644,
            modified_ns: 0,
            content: EntryContent::Directory,
        };
        let entries = vec![entry; usize::try_from(MANIFEST_LEN_MAX / 4000).expect("some")];
        let too_long = ManifestTooLong(entries.len());
        assert_eq!(Manifest { entries, ..manifest() }.encode(), Err(too_long));
    }

    #[test]
    fn a_manifest_survives_a_round_trip_with_names_that_are_not_utf_8() {
        let manifest = manifest();
        assert_eq!(Manifest::decode(&encoded(&manifest)), Ok(manifest));
    }

    #[test]
    fn what_is_damaged_or_leads_out_of_the_workspace_is_refused() {
        let bytes = encoded(&manifest());
        assert!(matches!(
            Manifest::decode(&bytes[..bytes.len() - 1]),
            Err(ManifestError::Damaged(_))
        ));
        for (from, to) in [("\"d\"", "\"../d\""), ("\"d\"", "\"\""), ("\"0750\"", "\"0780\"")] {
            let text = String::from_utf8(bytes.clone()).expect("JSON is text");
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            assert!(Manifest::decode(changed.as_bytes()).is_err(), "{to}");
        }
        let newer = String::from_utf8(bytes).expect("text").replace("\"format\":1", "\"format\":9");
        assert_eq!(Manifest::decode(newer.as_bytes()), Err(ManifestError::OtherFormat(9)));
    }
}
