//! What a sync has to do, decided from a manifest and a walk. Pure.

use std::collections::{HashMap, HashSet};

use super::ignored::{IgnoreRules, IgnoredWalk};
use super::manifest::{ContentChecksum, EntryContent, Manifest, ManifestEntry};
use crate::sandbox::{FileKind, TreeEntry, WalkedTree};
use crate::types::Timestamp;

/// How long before a walk a file must have been changed last, so that the same size and time mean
/// the same content: longer than a tick of the kernel's clock, by which it sets the times of files.
const TICK_NS: i64 = 50_000_000;

/// The same for times in whole seconds: a file system may keep no more, or two of them.
const WHOLE_SECONDS_NS: i64 = 2_000_000_000;

const SECOND_NS: i64 = 1_000_000_000;

/// What a push has to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PushPlan {
    /// Entries whose state is known: directories, links, and files that the last version has.
    pub known: Vec<ManifestEntry>,
    /// Files to be read.
    pub read: Vec<TreeEntry>,
    /// Paths of what could not be read.
    pub left_out: Vec<Vec<u8>>,
    /// Known links that the last version does not have.
    pub new_links: u64,
}

/// Plans a push. Files with one of the contents `lost`, which the object storage may not have any more,
/// are read again.
pub fn push(
    last: Option<&Manifest>,
    tree: WalkedTree,
    rules: &[IgnoreRules],
    lost: &HashSet<ContentChecksum>,
) -> PushPlan {
    let mut plan = PushPlan::default();
    let before = last.map(by_path).unwrap_or_default();
    let mut ignored = IgnoredWalk::new(rules);
    for entry in tree.entries {
        let is_directory = entry.kind == FileKind::Directory;
        if ignored.is_ignored(&entry.path, is_directory) {
            continue;
        }
        let old = before.get(&*entry.path).copied();
        let mode = entry.mode & 0o777;
        let content = match entry.kind {
            FileKind::Other => continue,
            FileKind::Directory => EntryContent::Directory,
            FileKind::Link => {
                let content = EntryContent::Link { target: entry.link_target };
                plan.new_links += u64::from(old.is_none_or(|old| old.content != content));
                content
            }
            FileKind::File => match (old.map(|old| &old.content), last) {
                (Some(content), Some(last))
                    if is_unchanged(old, last, &entry) && !is_lost(content, lost) =>
                {
                    content.clone()
                }
                _ => {
                    plan.read.push(entry);
                    continue;
                }
            },
        };
        let TreeEntry { path, modified_ns, .. } = entry;
        plan.known.push(ManifestEntry { path, mode, modified_ns, content });
    }
    let mut ignored = IgnoredWalk::new(rules);
    plan.left_out = tree.left_out;
    plan.left_out.retain(|path| path.is_empty() || !ignored.is_ignored(path, false));
    plan.left_out.sort_unstable();
    plan
}

fn is_lost(content: &EntryContent, lost: &HashSet<ContentChecksum>) -> bool {
    matches!(content, EntryContent::File { sha256, .. } if lost.contains(sha256))
}

/// Whether a push finds what the last version has, and need not read a file to know that. Times of
/// directories and links do not count.
pub fn has_changed(last: &Manifest, plan: &PushPlan) -> bool {
    let of = |entry: &ManifestEntry| match entry.content {
        EntryContent::File { .. } => entry.modified_ns,
        EntryContent::Directory | EntryContent::Link { .. } => 0,
    };
    let is_same = |(one, other): (&ManifestEntry, &ManifestEntry)| {
        one.path == other.path
            && one.mode == other.mode
            && one.content == other.content
            && of(one) == of(other)
    };
    !plan.read.is_empty()
        || plan.left_out != last.left_out
        || plan.known.len() != last.entries.len()
        || !plan.known.iter().zip(&last.entries).all(is_same)
}

/// Whether size and time say that a file has the content of the last version.
fn is_unchanged(old: Option<&ManifestEntry>, last: &Manifest, entry: &TreeEntry) -> bool {
    old.is_some_and(|old| {
        matches!(old.content, EntryContent::File { size, .. } if size == entry.size)
            && old.modified_ns == entry.modified_ns
            && is_settled(old.modified_ns, last.walked_at)
    })
}

/// Whether no later change of a file can have left its time as it was at the walk.
const fn is_settled(modified_ns: i64, walked_at: Timestamp) -> bool {
    let tick = if modified_ns.rem_euclid(SECOND_NS) == 0 { WHOLE_SECONDS_NS } else { TICK_NS };
    modified_ns.saturating_add(tick) < walked_at.unix_ms().saturating_mul(1_000_000)
}

fn by_path(manifest: &Manifest) -> HashMap<&[u8], &ManifestEntry> {
    manifest.entries.iter().map(|entry| (&*entry.path, entry)).collect()
}

/// Counts the files of a version that a later state does not have.
pub fn deleted(last: Option<&Manifest>, now: &[ManifestEntry]) -> u64 {
    let now: HashSet<&[u8]> = now.iter().map(|entry| &*entry.path).collect();
    let gone = |entry: &&ManifestEntry| !is_directory(entry) && !now.contains(&*entry.path);
    last.map_or(0, |last| last.entries.iter().filter(gone).count() as u64)
}

/// Whether an entry is a directory.
pub fn is_directory(entry: &ManifestEntry) -> bool {
    entry.content == EntryContent::Directory
}

/// What a pull has to do, in this order. Entries are places in the manifest's list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PullPlan {
    /// Directories that must be opened first, because something in them changes.
    pub open: Vec<(Vec<u8>, u32)>,
    /// What is in the way of an entry of another kind.
    pub in_the_way: Vec<Vec<u8>>,
    /// Files of the same size, whose content must be compared, and whether their permission bits are
    /// right.
    pub compare: Vec<(usize, bool)>,
    /// Entries to write.
    pub write: Vec<usize>,
    /// Files that only need other permission bits.
    pub set_mode: Vec<usize>,
    /// What the version does not have.
    pub delete: Vec<Vec<u8>>,
    /// Files that are as they should be.
    pub skipped: u64,
    /// Files that are deleted, also those below a directory.
    pub deleted: u64,
}

/// Plans a pull.
pub fn pull(wanted: &Manifest, tree: &WalkedTree, rules: &[IgnoreRules]) -> PullPlan {
    let mut plan = PullPlan::default();
    let found: HashMap<&[u8], &TreeEntry> =
        tree.entries.iter().map(|entry| (&*entry.path, entry)).collect();
    for (place, entry) in wanted.entries.iter().enumerate() {
        let there = found.get(&*entry.path).copied();
        plan.entry(place, entry, there, wanted.walked_at);
    }
    plan.deletions(wanted, tree, rules);
    plan.openings(wanted, &found);
    plan
}

impl PullPlan {
    fn entry(
        &mut self,
        place: usize,
        entry: &ManifestEntry,
        there: Option<&TreeEntry>,
        walked_at: Timestamp,
    ) {
        let Some(there) = there else { return self.write.push(place) };
        let has_mode = there.mode & 0o777 == entry.mode;
        match (&entry.content, there.kind) {
            (EntryContent::Directory, FileKind::Directory) => {
                if !has_mode {
                    self.write.push(place);
                }
            }
            (EntryContent::Link { target }, FileKind::Link) => {
                if *target == there.link_target {
                    self.skipped += 1;
                } else {
                    self.write.push(place);
                }
            }
            (EntryContent::File { size, .. }, FileKind::File) if *size == there.size => {
                if entry.modified_ns != there.modified_ns
                    || !is_settled(entry.modified_ns, walked_at)
                {
                    self.compare.push((place, has_mode));
                    return;
                }
                self.skipped += 1;
                if !has_mode {
                    self.set_mode.push(place);
                }
            }
            (EntryContent::Directory, _) | (_, FileKind::Directory) => {
                self.in_the_way.push(entry.path.clone());
                self.write.push(place);
            }
            // A file or link takes the place of another one.
            (EntryContent::File { .. } | EntryContent::Link { .. }, _) => self.write.push(place),
        }
    }

    /// Finds what to delete: all that the version does not have, but what is ignored, could not be
    /// read, or is neither file, directory nor link.
    fn deletions(&mut self, wanted: &Manifest, tree: &WalkedTree, rules: &[IgnoreRules]) {
        let has: HashSet<&[u8]> = wanted.entries.iter().map(|entry| &*entry.path).collect();
        let left_out: Vec<&[u8]> =
            tree.left_out.iter().chain(&wanted.left_out).map(Vec::as_slice).collect();
        let is_unknown =
            |path: &[u8]| left_out.iter().any(|left_out| is_at_or_below(path, left_out));
        let mut ignored = IgnoredWalk::new(rules);
        // A directory stays if something in it does.
        let mut staying: HashSet<&[u8]> = left_out.iter().flat_map(|path| above(path)).collect();
        let mut extra: Vec<&TreeEntry> = Vec::new();
        for entry in &tree.entries {
            let is_directory = entry.kind == FileKind::Directory;
            let is_protected = ignored.is_ignored(&entry.path, is_directory)
                || entry.kind == FileKind::Other
                || is_unknown(&entry.path);
            if is_protected {
                staying.extend(above(&entry.path));
            } else if !has.contains(&*entry.path) {
                extra.push(entry);
            }
        }
        let mut gone: Option<&[u8]> = None;
        for entry in extra {
            let is_directory = entry.kind == FileKind::Directory;
            self.deleted += u64::from(!is_directory);
            let is_gone = |below: &[u8]| is_at_or_below(&entry.path, below);
            if gone.is_some_and(is_gone) || self.in_the_way.iter().any(|path| is_gone(path)) {
                continue;
            }
            if !is_directory {
                self.delete.push(entry.path.clone());
            } else if !staying.contains(&*entry.path) {
                gone = Some(&entry.path);
                self.delete.push(entry.path.clone());
            }
        }
    }

    /// Finds the directories that are closed for their owner and in which something changes.
    fn openings(&mut self, wanted: &Manifest, found: &HashMap<&[u8], &TreeEntry>) {
        let compared = self.compare.iter().map(|(place, _)| place);
        let written = self.write.iter().chain(compared).map(|at| &wanted.entries[*at].path);
        let changed: Vec<&Vec<u8>> = written.chain(&self.delete).chain(&self.in_the_way).collect();
        let mut closed: Vec<&[u8]> = Vec::new();
        for parent in changed.into_iter().flat_map(|path| above(path)) {
            let is_closed = found.get(parent).is_some_and(|there| {
                there.kind == FileKind::Directory && there.mode & 0o700 != 0o700
            });
            if is_closed {
                closed.push(parent);
            }
        }
        closed.sort_unstable();
        closed.dedup();
        let writes: HashSet<usize> = self.write.iter().copied().collect();
        let places = wanted.entries.iter().enumerate();
        // They are closed again, as the version has them.
        let again = places.filter(|(place, entry)| {
            closed.binary_search(&&*entry.path).is_ok() && !writes.contains(place)
        });
        self.write.extend(again.map(|(place, _)| place));
        self.write.sort_unstable();
        let opened = |path: &[u8]| {
            let mode = found.get(path).map_or(0, |there| there.mode);
            (path.to_vec(), (mode | 0o700) & 0o777)
        };
        self.open = closed.into_iter().map(opened).collect();
    }
}

/// Whether a path is another one or below it. All is below the empty path.
fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    above.is_empty()
        || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The directories above a path, without the workspace.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests;
