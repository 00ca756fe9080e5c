//! Pages of a tree of files: what is below a directory, in the order of the paths' parts, so that
//! parents come before children. The same for a running sandbox and for a stored version.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::{FileEntry, FileKind, TreeEntry, WorkError, WorkspacePath};
use crate::types::Timestamp;

/// Which page is asked for.
#[derive(Clone, Copy, Debug)]
pub struct TreePageAsk<'a> {
    /// The directory, or a file, which is on its page alone.
    pub under: &'a WorkspacePath,
    /// How many levels below it; `None` for all.
    pub depth: Option<u32>,
    /// The last path of the page before.
    pub after: Option<&'a [u8]>,
    /// The most entries.
    pub limit: usize,
}

/// One page of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePage {
    /// The entries of this page.
    pub entries: Vec<FileEntry>,
    /// The directories above its first entry that are on earlier pages, from the top down.
    pub above: Vec<FileEntry>,
    /// Whether more entries follow.
    pub has_more: bool,
}

/// Something with a place in a tree.
pub trait InTree {
    /// Its path relative to the workspace.
    fn path(&self) -> &[u8];
    /// It, as callers see it.
    fn shown(&self) -> FileEntry;
}

impl InTree for FileEntry {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn shown(&self) -> FileEntry {
        self.clone()
    }
}

impl InTree for TreeEntry {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn shown(&self) -> FileEntry {
        FileEntry {
            path: self.path.clone(),
            kind: self.kind,
            size: self.size,
            mode: self.mode,
            modified_at: Timestamp::from_unix_ms(self.modified_ns.div_euclid(1_000_000)),
            is_unreadable: false,
        }
    }
}

/// Compares paths by their parts: by that, what is in a directory stands together behind it.
pub fn by_parts(one: &[u8], other: &[u8]) -> Ordering {
    one.split(|byte| *byte == b'/').cmp(other.split(|byte| *byte == b'/'))
}

impl TreePage {
    /// A page of all entries of a workspace. `left_out` are the paths of what could not be read.
    ///
    /// # Errors
    /// [`WorkError::NoSuchFile`].
    pub fn of<T: InTree>(
        all: &[T],
        left_out: &[Vec<u8>],
        ask: TreePageAsk<'_>,
    ) -> Result<Self, WorkError> {
        let mut sorted: Vec<&T> = all.iter().collect();
        let in_order = |one: &&T, other: &&T| by_parts(one.path(), other.path());
        if !sorted.is_sorted_by(|one, other| in_order(one, other).is_le()) {
            sorted.sort_unstable_by(in_order);
        }
        let find = |path: &[u8]| sorted.binary_search_by(|entry| by_parts(entry.path(), path));
        if !ask.under.is_root() {
            let entry = find(ask.under.as_bytes()).map_err(|_| WorkError::NoSuchFile)?;
            let entry = sorted[entry].shown();
            if entry.kind != FileKind::Directory {
                return Ok(Self { entries: vec![entry], ..Self::default() });
            }
        }
        let begin = ask.after.unwrap_or(ask.under.as_bytes());
        let from = match ask.after.is_none() && ask.under.is_root() {
            true => 0,
            false => sorted.partition_point(|entry| by_parts(entry.path(), begin).is_le()),
        };
        let is_wanted = |path: &[u8]| match levels_below(path, ask.under) {
            Some(levels) => ask.depth.is_none_or(|depth| levels <= depth as usize),
            None => false,
        };
        let below = sorted[from..].iter();
        let below = below.take_while(|entry| levels_below(entry.path(), ask.under).is_some());
        let below = below.filter(|entry| is_wanted(entry.path())).take(ask.limit + 1);
        let mut entries: Vec<FileEntry> = below.map(|entry| entry.shown()).collect();
        let unknown = left_out.iter().filter(|path| {
            let is_behind = ask.after.is_none_or(|after| by_parts(path, after).is_gt());
            is_behind && is_wanted(path) && find(path).is_err()
        });
        let known = entries.len();
        entries.extend(unknown.map(|path| unknown_entry(path)));
        if entries.len() > known {
            entries.sort_unstable_by(|one, other| by_parts(&one.path, &other.path));
        }
        let has_more = entries.len() > ask.limit;
        entries.truncate(ask.limit);
        let left_out: HashSet<&[u8]> = left_out.iter().map(Vec::as_slice).collect();
        for entry in &mut entries {
            entry.is_unreadable |= left_out.contains(&*entry.path);
        }
        let first = entries.first().map(|first| first.path.clone()).unwrap_or_default();
        let slashes = (0..first.len()).filter(|at| first[*at] == b'/');
        let parents = slashes.map(|at| &first[..at]).filter(|path| is_wanted(path));
        let above = parents.filter_map(|path| Some(sorted[find(path).ok()?].shown())).collect();
        Ok(Self { entries, above, has_more })
    }
}

/// An entry of which only the path is known.
fn unknown_entry(path: &[u8]) -> FileEntry {
    FileEntry {
        path: path.to_vec(),
        kind: FileKind::Other,
        size: 0,
        mode: 0,
        modified_at: Timestamp::from_unix_ms(0),
        is_unreadable: true,
    }
}

/// How many levels a path is below a directory; `None` for one that is not below it.
pub fn levels_below(path: &[u8], directory: &WorkspacePath) -> Option<usize> {
    let rest = if directory.is_root() {
        Some(path).filter(|path| !path.is_empty())?
    } else {
        path.strip_prefix(directory.as_bytes())?.strip_prefix(b"/")?
    };
    Some(rest.split(|byte| *byte == b'/').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> FileEntry {
        let is_file = path.ends_with('f');
        let kind = if is_file { FileKind::File } else { FileKind::Directory };
        FileEntry { kind, is_unreadable: false, ..unknown_entry(path.as_bytes()) }
    }

    fn paths(entries: &[FileEntry]) -> Vec<&str> {
        entries.iter().map(|entry| std::str::from_utf8(&entry.path).expect("text")).collect()
    }

    #[test]
    fn pages_in_a_row_have_each_entry_once_and_the_directories_above_it() {
        // By bytes, "a-f" and "a.f" would stand between "a" and "a/…".
        let all: Vec<FileEntry> =
            ["b", "b/c", "b/c/1f", "b/c/2f", "b/3f", "a", "a/f", "a-f", "a.f", "z f"]
                .map(entry)
                .into();
        let in_order = ["a", "a/f", "a-f", "a.f", "b", "b/3f", "b/c", "b/c/1f", "b/c/2f", "z f"];
        let root = WorkspacePath::parse(b"").expect("a path");
        for limit in 1..12 {
            let (mut seen, mut after) = (Vec::new(), None::<Vec<u8>>);
            loop {
                let ask = TreePageAsk { under: &root, depth: None, after: after.as_deref(), limit };
                let page = TreePage::of(&all, &[], ask).expect("there");
                if let Some(first) = page.entries.first().filter(|_| after.is_some()) {
                    let parts = first.path.split(|byte| *byte == b'/').count();
                    assert_eq!(page.above.len(), parts - 1);
                }
                seen.extend(page.entries);
                if !page.has_more {
                    break;
                }
                after = seen.last().map(|last| last.path.clone());
            }
            assert_eq!(paths(&seen), in_order, "{limit} a page");
        }
    }

    #[test]
    fn a_page_ends_at_its_directory_and_its_depth_and_names_what_could_not_be_read() {
        let all: Vec<FileEntry> = ["a", "a/b", "a/b/f", "a/f", "a2", "a2/f"].map(entry).into();
        let left_out = [b"a/b".to_vec(), b"a/gone".to_vec(), b"a2/gone".to_vec()];
        let page = |under: &str, depth| {
            let under = WorkspacePath::parse(under.as_bytes()).expect("a path");
            let ask = TreePageAsk { under: &under, depth, after: None, limit: 10 };
            TreePage::of(&all, &left_out, ask)
        };
        let found = page("a", None).expect("there");
        assert_eq!(paths(&found.entries), ["a/b", "a/b/f", "a/f", "a/gone"]);
        let unreadable: Vec<bool> = found.entries.iter().map(|one| one.is_unreadable).collect();
        assert_eq!(unreadable, [true, false, false, true]);
        assert_eq!(paths(&page("a", Some(1)).expect("there").entries), ["a/b", "a/f", "a/gone"]);
        assert_eq!(paths(&page("a/f", None).expect("there").entries), ["a/f"]);
        assert_eq!(paths(&page("", Some(1)).expect("there").entries), ["a", "a2"]);
        assert!(matches!(page("nope", None), Err(WorkError::NoSuchFile)));
    }
}
