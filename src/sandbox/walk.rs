//! A walk through a workspace: what the system says of each entry, without contents, and its form
//! on the way out of a sandbox.
//!
//! The server does not trust what arrives: it bounds the length, checks each path, and stops at
//! the first entry that is none.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::confined::broken;
use super::{FileKind, WorkError, WorkspacePath};

/// Most entries of one walk.
pub const WALK_ENTRIES_MAX: usize = 1_000_000;

/// Bytes before an entry's path: kind, mode, size, time, and the lengths of path and target.
const HEAD_LEN: usize = 1 + 4 + 8 + 8 + 4 + 4;

/// The bit beside the kind of what could not be read.
const LEFT_OUT: u8 = 0x80;

/// One entry of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its path relative to the workspace.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// Its size, in bytes.
    pub size: u64,
    /// Its permission bits, such as `0o644`.
    pub mode: u32,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Where a link leads, as written; empty for all else.
    pub link_target: Vec<u8>,
}

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkedTree {
    /// The entries, parents before children.
    pub entries: Vec<TreeEntry>,
    /// The paths of what could not be read; nothing is known of it and of what is below. The empty
    /// path is the workspace.
    pub left_out: Vec<Vec<u8>>,
}

impl TreeEntry {
    /// Writes the entry as it leaves the sandbox.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            FileKind::File => 0,
            FileKind::Directory => 1,
            FileKind::Link => 2,
            FileKind::Other => 3,
        };
        head(out, kind, self, &self.path);
        out.extend_from_slice(&self.path);
        out.extend_from_slice(&self.link_target);
    }

    /// Writes the path of something that could not be read.
    pub fn encode_left_out(path: &[u8], out: &mut Vec<u8>) {
        let nothing = Self {
            path: Vec::new(),
            kind: FileKind::Other,
            size: 0,
            mode: 0,
            modified_ns: 0,
            link_target: Vec::new(),
        };
        head(out, LEFT_OUT, &nothing, path);
        out.extend_from_slice(path);
    }
}

fn head(out: &mut Vec<u8>, kind: u8, entry: &TreeEntry, path: &[u8]) {
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("bounded by the kernel");
    out.push(kind);
    out.extend_from_slice(&entry.mode.to_le_bytes());
    out.extend_from_slice(&entry.size.to_le_bytes());
    out.extend_from_slice(&entry.modified_ns.to_le_bytes());
    out.extend_from_slice(&len(path).to_le_bytes());
    out.extend_from_slice(&len(&entry.link_target).to_le_bytes());
}

/// What is at the front of a buffer.
enum ParsedTree {
    Entry(TreeEntry, usize),
    LeftOut(Vec<u8>, usize),
    Incomplete,
    Malformed,
}

fn parse(bytes: &[u8]) -> ParsedTree {
    let Some(head) = bytes.first_chunk::<HEAD_LEN>() else { return ParsedTree::Incomplete };
    let number = |from: usize, len: usize| {
        head[from..from + len].iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
    };
    let len = |from| usize::try_from(number(from, 4)).unwrap_or(usize::MAX);
    let (path_len, target_len) = (len(21), len(25));
    if path_len > WorkspacePath::LEN_MAX || target_len > WorkspacePath::LEN_MAX + 1 {
        return ParsedTree::Malformed;
    }
    let whole = HEAD_LEN + path_len + target_len;
    let Some(rest) = bytes.get(HEAD_LEN..whole) else { return ParsedTree::Incomplete };
    let (path, link_target) = (rest[..path_len].to_vec(), rest[path_len..].to_vec());
    let kind = match head[0] {
        LEFT_OUT => return ParsedTree::LeftOut(path, whole),
        0 => FileKind::File,
        1 => FileKind::Directory,
        2 => FileKind::Link,
        3 => FileKind::Other,
        _ => return ParsedTree::Malformed,
    };
    let entry = TreeEntry {
        path,
        kind,
        mode: u32::try_from(number(1, 4) & 0o7777).expect("twelve bits"),
        size: number(5, 8),
        modified_ns: i64::from_le_bytes(number(13, 8).to_le_bytes()),
        link_target,
    };
    ParsedTree::Entry(entry, whole)
}

/// Whether a path is what a walk writes: relative, without `..`.
fn is_clean(path: &[u8]) -> bool {
    WorkspacePath::parse(path).is_ok_and(|parsed| parsed.as_bytes() == path)
}

/// Reads a walk until its end.
///
/// # Errors
/// [`WorkError::Broken`] for what is no walk; [`WorkError::Refused`] for more than
/// [`WALK_ENTRIES_MAX`] entries.
pub async fn receive(mut pipe: impl AsyncRead + Unpin) -> Result<WalkedTree, WorkError> {
    let mut tree = WalkedTree::default();
    let mut buffer = BytesMut::with_capacity(64 * 1024);
    loop {
        buffer.reserve(64 * 1024);
        let got = pipe.read_buf(&mut buffer).await.map_err(broken)?;
        let mut used = 0;
        loop {
            match parse(&buffer[used..]) {
                ParsedTree::Entry(entry, len)
                    if !entry.path.is_empty() && is_clean(&entry.path) =>
                {
                    tree.entries.push(entry);
                    used += len;
                }
                ParsedTree::LeftOut(path, len) if is_clean(&path) => {
                    tree.left_out.push(path);
                    used += len;
                }
                ParsedTree::Incomplete => break,
                ParsedTree::Entry(..) | ParsedTree::LeftOut(..) | ParsedTree::Malformed => {
                    return Err(broken("the sandbox's walk makes no sense"));
                }
            }
            if tree.entries.len() + tree.left_out.len() > WALK_ENTRIES_MAX {
                return Err(WorkError::Refused(format!(
                    "the workspace has more than {WALK_ENTRIES_MAX} entries"
                )));
            }
        }
        drop(buffer.split_to(used));
        if got == 0 {
            let is_whole = buffer.is_empty();
            return is_whole.then_some(tree).ok_or_else(|| broken("the walk was cut off"));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[tokio::test]
    async fn entries_survive_the_way_out_and_paths_out_of_the_workspace_do_not() {
        let entry = TreeEntry {
            path: b"a/\xff".to_vec(),
            kind: FileKind::Link,
            size: 1 << 40,
            mode: 0o4755,
            modified_ns: -5,
            link_target: b"../\xfe".to_vec(),
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        TreeEntry::encode_left_out(b"b", &mut bytes);
        let tree = receive(&bytes[..]).await.expect("a walk");
        assert_eq!(tree.entries, std::slice::from_ref(&entry));
        assert_eq!(tree.left_out, [b"b".to_vec()]);
        assert!(receive(&bytes[..bytes.len() - 1]).await.is_err(), "it is cut off");
        for path in [&b"../a"[..], b"/a", b"a//b", b""] {
            let mut bytes = Vec::new();
            TreeEntry { path: path.to_vec(), ..entry.clone() }.encode(&mut bytes);
            assert!(receive(&bytes[..]).await.is_err(), "{path:?}");
        }
    }

    proptest! {
        #![proptest_config(crate::fuzz::cases(2048))]

        #[test]
        fn no_bytes_make_parsing_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
