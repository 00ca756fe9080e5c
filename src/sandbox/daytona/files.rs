//! Files in workspaces: scripts find and check them, the toolbox carries their bytes.

use std::collections::HashSet;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::pack::pack;
use super::processes::UPLOAD_WAIT;
use super::shell::{Script, escaped};
use super::toolbox::Toolbox;
use super::{DaytonaParts, DaytonaProvider};
use crate::sandbox::{
    ChunkReceiver, FileContent, FileEntry, FileKind, FileListing, FilePart, LIST_ENTRIES_MAX,
    Target, TreeEntry, WalkedTree, WorkError, Workspace, WorkspacePath, Written,
};
use crate::types::Timestamp;

/// Longest name in a path, in bytes (Linux' own limit).
const NAME_LEN_MAX: usize = 255;

/// What a script says of a refusal.
pub(super) fn refusal(printed: &str) -> WorkError {
    let (word, why) = printed.trim().split_once(' ').unwrap_or((printed.trim(), ""));
    match word {
        "!none" => WorkError::NoSuchFile,
        "!kind" => WorkError::WrongKind(why.into()),
        "!path" => WorkError::PathNotAllowed(why.into()),
        "!exists" => WorkError::Exists(why.into()),
        "!refused" => WorkError::Refused(why.into()),
        _ => WorkError::Broken("a script in the sandbox printed what is not understood".into()),
    }
}

/// A path for a script.
pub(super) fn argument(path: &WorkspacePath) -> Result<String, WorkError> {
    if path.as_bytes().split(|byte| *byte == b'/').any(|name| name.len() > NAME_LEN_MAX) {
        return Err(WorkError::PathNotAllowed("a name in it is longer than 255 bytes".into()));
    }
    Ok(escaped(path.as_bytes()))
}

/// A path that is not the workspace itself.
fn below_root(path: &WorkspacePath) -> Result<String, WorkError> {
    if path.is_root() {
        return Err(WorkError::PathNotAllowed("it is the workspace itself".into()));
    }
    argument(path)
}

pub(super) fn decoded(text: &str) -> Result<Vec<u8>, WorkError> {
    let text: String = text.split_ascii_whitespace().collect();
    let wrong = |_| WorkError::Broken("a script in the sandbox printed no base64".into());
    BASE64_STANDARD.decode(text).map_err(wrong)
}

fn written(printed: &str) -> Result<Written, WorkError> {
    match printed.trim() {
        "created" => Ok(Written::Created),
        "replaced" => Ok(Written::Replaced),
        _ => Err(refusal(printed)),
    }
}

impl DaytonaParts {
    /// Runs the script for files.
    async fn file_script(
        &self,
        target: &Target,
        toolbox: &Toolbox,
        arguments: &[&str],
    ) -> Result<String, WorkError> {
        match toolbox.run(Script::Files, arguments).await {
            Ok(Some(printed)) if printed.starts_with('!') => Err(refusal(&printed)),
            Ok(Some(printed)) => Ok(printed),
            Ok(None) => Err(WorkError::Broken("the sandbox took too long for it".into())),
            Err(failure) => Err(self.work_error(target, failure).await),
        }
    }

    /// Uploads to a place of ours and moves it to where it belongs.
    async fn upload(
        &self,
        target: &Target,
        toolbox: &Toolbox,
        (path, upload): (&str, &str),
        content: ChunkReceiver,
    ) -> Result<Written, WorkError> {
        let place = self.file_script(target, toolbox, &["place", path, upload]).await?;
        let place = decoded(&place)?;
        let body = ReceiverStream::new(content);
        let body = body.map(|chunk| chunk.map_err(std::io::Error::other));
        let sent = toolbox.upload(&place, reqwest::Body::wrap_stream(body), UPLOAD_WAIT).await;
        if let Err(failure) = sent {
            let error = self.work_error(target, failure).await;
            // If that fails, too, a start after a day removes it.
            let _ = self.file_script(target, toolbox, &["discard", path, upload]).await;
            return Err(error);
        }
        written(&self.file_script(target, toolbox, &["commit", path, upload]).await?)
    }
}

/// What a listing of a directory printed: names, then what `stat` says of each.
fn listing(printed: &str, asked: &WorkspacePath) -> Result<Option<FileListing>, WorkError> {
    let (kind, rest) = printed.split_once('\n').unwrap_or((printed, ""));
    let (names, facts) = rest.split_once(":\n").unwrap_or((rest.trim_end_matches(':'), ""));
    let names = decoded(names)?;
    let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
    // Behind the last NUL there is nothing.
    names.pop();
    let facts: Vec<&str> = facts.lines().collect();
    // Something went or came between the two.
    if names.len() != facts.len() {
        return Ok(None);
    }
    let mut entries = Vec::with_capacity(names.len());
    for (name, fact) in names.into_iter().zip(facts) {
        let name = name.strip_prefix(b"./").unwrap_or(name);
        let path = match (kind, asked.is_root()) {
            ("file", _) => asked.as_bytes().to_vec(),
            (_, true) => name.to_vec(),
            (_, false) => [asked.as_bytes(), b"/", name].concat(),
        };
        entries.push(entry(path, fact).ok_or_else(|| refusal(fact))?);
    }
    entries.sort_by(|a, b| a.path.split(|b| *b == b'/').cmp(b.path.split(|b| *b == b'/')));
    let truncated = entries.len() > LIST_ENTRIES_MAX;
    entries.truncate(LIST_ENTRIES_MAX);
    Ok(Some(FileListing { entries, truncated }))
}

/// What a mode says that something is.
pub(super) const fn kind_of(mode: u32) -> FileKind {
    match mode & 0o170_000 {
        0o100_000 => FileKind::File,
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Link,
        _ => FileKind::Other,
    }
}

/// An entry from what `stat -c '%f %s %Y'` prints: mode in hexadecimal, size, seconds.
fn entry(path: Vec<u8>, fact: &str) -> Option<FileEntry> {
    let mut fields = fact.split(' ');
    let mode = u32::from_str_radix(fields.next()?, 16).ok()?;
    let size = fields.next()?.parse().ok()?;
    let seconds: i64 = fields.next()?.parse().ok()?;
    let kind = kind_of(mode);
    Some(FileEntry {
        path,
        kind,
        size,
        mode: mode & 0o7777,
        modified_at: Timestamp::from_unix_ms(seconds.saturating_mul(1_000)),
        is_unreadable: false,
    })
}

/// How often a directory that changes under a listing is listed again.
const LIST_TRIES: usize = 5;

#[async_trait]
impl Workspace for DaytonaProvider {
    async fn list_files(
        &self,
        target: Target,
        path: WorkspacePath,
        depth: u32,
    ) -> Result<FileListing, WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let (argument, depth) = (argument(&path)?, depth.max(1).to_string());
        let most = (LIST_ENTRIES_MAX + 1).to_string();
        for _ in 0..LIST_TRIES {
            let own = self.ids.request_id();
            let arguments = ["list", &argument, &depth, &most, &own];
            let printed = self.file_script(&target, &toolbox, &arguments).await?;
            if let Some(listing) = listing(&printed, &path)? {
                return Ok(listing);
            }
        }
        Err(WorkError::Refused("the directory changes too quickly to be listed".into()))
    }

    async fn read_file(
        &self,
        target: Target,
        path: WorkspacePath,
        part: FilePart,
    ) -> Result<FileContent, WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let found = self.file_script(&target, &toolbox, &["open", &argument(&path)?]).await?;
        let (size, at) = found.split_once('\n').ok_or_else(|| refusal(&found))?;
        let size: u64 = size.parse().map_err(|_| refusal(&found))?;
        let range = part.of(size).ok_or(WorkError::OutOfRange { size })?;
        let mut answer = match toolbox.download(&decoded(at)?).await {
            Ok(answer) => answer,
            Err(failure) if failure.is_absence() => {
                // Not for a sandbox that has gone with all its files.
                self.toolbox(&target).await?;
                return Err(WorkError::NoSuchFile);
            }
            Err(failure) => return Err(self.work_error(&target, failure).await),
        };
        let (sender, chunks) = mpsc::channel(2);
        let (mut skip, mut left) = (range.start, range.end - range.start);
        tokio::spawn(async move {
            // The toolbox has no ranges: what comes before is read and left out.
            while left > 0 {
                let mut chunk: Bytes = match answer.chunk().await {
                    Ok(Some(chunk)) => chunk,
                    Ok(None) => {
                        return drop(sender.send(Err("the file has become shorter".into())).await);
                    }
                    Err(_) => {
                        return drop(sender.send(Err("the connection broke off".into())).await);
                    }
                };
                let before = chunk.len().min(usize::try_from(skip).unwrap_or(usize::MAX));
                skip -= before as u64;
                chunk = chunk.split_off(before);
                chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                left -= chunk.len() as u64;
                if !chunk.is_empty() && sender.send(Ok(chunk)).await.is_err() {
                    return;
                }
            }
        });
        Ok(FileContent { size, range, chunks })
    }

    async fn write_file(
        &self,
        target: Target,
        path: WorkspacePath,
        content: ChunkReceiver,
    ) -> Result<Written, WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let (path, upload) = (below_root(&path)?, self.ids.request_id());
        self.upload(&target, &toolbox, (&path, &upload), content).await
    }

    async fn delete_file(&self, target: Target, path: WorkspacePath) -> Result<(), WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let arguments = ["delete", &below_root(&path)?];
        self.file_script(&target, &toolbox, &arguments).await.map(drop)
    }

    async fn make_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<Written, WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let arguments = ["mkdir", &argument(&path)?];
        written(&self.file_script(&target, &toolbox, &arguments).await?)
    }

    async fn move_file(
        &self,
        target: Target,
        from: WorkspacePath,
        to: WorkspacePath,
        overwrite: bool,
    ) -> Result<Written, WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let overwrite = if overwrite { "overwrite" } else { "keep" };
        let arguments = ["move", &below_root(&from)?, &below_root(&to)?, overwrite];
        written(&self.file_script(&target, &toolbox, &arguments).await?)
    }

    async fn set_file_mode(
        &self,
        target: Target,
        path: WorkspacePath,
        mode: u32,
    ) -> Result<(), WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let mode = format!("{:o}", mode & 0o777);
        let arguments = ["mode", &argument(&path)?, &mode];
        self.file_script(&target, &toolbox, &arguments).await.map(drop)
    }

    async fn pack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
    ) -> Result<ChunkReceiver, WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let walk = self.walk_directory(&target, &toolbox, &path).await?;
        Ok(pack(self.clone(), target, toolbox, walk))
    }

    async fn unpack_directory(
        &self,
        target: Target,
        path: WorkspacePath,
        archive: ChunkReceiver,
    ) -> Result<(), WorkError> {
        let toolbox = self.toolbox(&target).await?;
        self.unpack(&target, &toolbox, &path, archive).await
    }

    async fn walk(&self, target: Target) -> Result<WalkedTree, WorkError> {
        let toolbox = self.toolbox(&target).await?;
        let root = WorkspacePath::parse(b"").expect("the workspace itself");
        let mut tree = self.walk_directory(&target, &toolbox, &root).await?.tree;
        // A file that cannot be read is met by who reads it.
        let is_file = |entry: &&TreeEntry| entry.kind == FileKind::File;
        let files: HashSet<&[u8]> =
            tree.entries.iter().filter(is_file).map(|entry| &*entry.path).collect();
        tree.left_out.retain(|path| !files.contains(&**path));
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_pairs_names_with_facts_and_is_in_order() {
        let root = WorkspacePath::parse(b"").expect("a path");
        // `./b`, `./a`, `./b/c` with a NUL behind each.
        let names = BASE64_STANDARD.encode(b"./b\0./a\0./b/c\0");
        let printed = format!("directory\n{names}\n:\n41ed 4096 1\n81a4 3 2\na1ff 1 3\n");
        let listing = |printed: &str| listing(printed, &root);
        let found = listing(&printed).expect("understood").expect("whole");
        let shown: Vec<_> = found.entries.iter().map(|e| (&*e.path, e.kind, e.mode)).collect();
        let expected = [
            (&b"a"[..], FileKind::File, 0o644),
            (b"b", FileKind::Directory, 0o755),
            (b"b/c", FileKind::Link, 0o777),
        ];
        assert_eq!(shown, expected);
        let shorter = format!("directory\n{names}\n:\n41ed 4096 1\n");
        assert_eq!(listing(&shorter), Ok(None), "it is listed again");
        let empty = listing("directory\n:\n").expect("understood").expect("whole");
        assert_eq!(empty.entries, []);
        assert!(listing(&format!("directory\n{names}\n:\nx\ny\nz\n")).is_err());
    }
}
