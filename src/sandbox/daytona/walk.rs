//! Walks through a directory of a workspace: a script says what is there, without contents.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};

use super::DaytonaProvider;
use super::files::{argument, decoded, kind_of, refusal};
use super::shell::Script;
use super::toolbox::Toolbox;
use crate::sandbox::confined::archive_form::parse_exact_time;
use crate::sandbox::confined::broken;
use crate::sandbox::{
    ExecEvent, ExecInput, ExecRequest, FileKind, Processes, Target, TreeEntry, WALK_ENTRIES_MAX,
    WalkedTree, WorkError, WorkspacePath, by_parts,
};

/// Most bytes that a script may print.
const PRINTED_LEN_MAX: usize = 256 * 1024 * 1024;

/// What a walk found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DirectoryWalk {
    /// Where the directory is in the sandbox.
    pub at: Vec<u8>,
    /// Its entries. `left_out` has files, too, which a reader of contents cannot read.
    pub tree: WalkedTree,
}

impl DaytonaProvider {
    /// Walks through a directory.
    pub(super) async fn walk_directory(
        &self,
        target: &Target,
        toolbox: &Toolbox,
        path: &WorkspacePath,
    ) -> Result<DirectoryWalk, WorkError> {
        let (path, names) = (argument(path)?, self.ids.request_id());
        let printed = self.archive_script(target, toolbox, &["walk", &path, &names]).await?;
        // A large one takes a while.
        tokio::task::spawn_blocking(move || parse(&printed)).await.map_err(broken)?
    }

    /// Runs the script for archives as a process, so that it may take longer than a call. Returns what
    /// it printed, without the dot at its end.
    pub(super) async fn archive_script(
        &self,
        target: &Target,
        toolbox: &Toolbox,
        arguments: &[&str],
    ) -> Result<Bytes, WorkError> {
        let script = Script::Archives.command(&toolbox.workspace, arguments);
        let request = ExecRequest {
            command: ["sh", "-c", &script].map(str::to_owned).into(),
            // The script goes where it works; a template's own directory need not be there.
            cwd: Some("/".into()),
            env: Vec::new(),
            stdin: ExecInput::channel().1,
            timeout: None,
        };
        let mut running = self.exec(target.clone(), request).await?;
        let mut printed = BytesMut::new();
        while let Some(event) = running.events.recv().await {
            match event {
                ExecEvent::Stdout(piece) => printed.extend_from_slice(&piece),
                ExecEvent::Stderr(_) | ExecEvent::Exit { .. } => {}
            }
            if printed.len() > PRINTED_LEN_MAX {
                return Err(WorkError::Refused("the directory has too many entries".into()));
            }
        }
        if !printed.ends_with(b".\n") {
            return Err(WorkError::Broken("a script in the sandbox broke off".into()));
        }
        printed.truncate(printed.len() - 2);
        match printed.starts_with(b"!") {
            true => Err(refusal(&String::from_utf8_lossy(&printed))),
            false => Ok(printed.freeze()),
        }
    }
}

/// Reads what a walk printed: where it was, what `stat` says, links with their targets, and what
/// cannot be read.
fn parse(printed: &[u8]) -> Result<DirectoryWalk, WorkError> {
    let not_understood = || refusal("");
    let end = printed.windows(2).position(|two| two == b":\n").ok_or_else(not_understood)?;
    let at = decoded(&String::from_utf8_lossy(&printed[..end]))?;
    let mut parts = printed[end + 2..].split(|byte| *byte == 0);
    let facts = parts.next().ok_or_else(not_understood)?;
    let mut targets = HashMap::new();
    loop {
        match parts.next().ok_or_else(not_understood)? {
            b"" => break,
            link => drop(targets.insert(link, parts.next().ok_or_else(not_understood)?)),
        }
    }
    let mut tree = WalkedTree::default();
    for record in records(facts) {
        let mut entry = entry(record).ok_or_else(not_understood)?;
        if entry.kind == FileKind::Link {
            // One without a target is gone, or could not be read.
            let Some(target) = targets.get(name_of(record)) else {
                tree.left_out.push(entry.path);
                continue;
            };
            entry.link_target = target.to_vec();
        }
        tree.entries.push(entry);
        check_len(&tree)?;
    }
    loop {
        match parts.next().ok_or_else(not_understood)? {
            b"" => break,
            path => {
                let path = path.strip_prefix(b"./").unwrap_or(b"");
                // A directory above a longer one is left out, too.
                if path.len() <= WorkspacePath::LEN_MAX {
                    tree.left_out.push(path.to_vec());
                }
            }
        }
        check_len(&tree)?;
    }
    if parts.next() != Some(b"whole") {
        return Err(WorkError::Broken("the walk was cut off".into()));
    }
    let all = tree.entries.iter().map(|entry| &entry.path).chain(&tree.left_out);
    if !all.into_iter().all(|path| is_clean(path)) {
        return Err(not_understood());
    }
    tree.entries.sort_unstable_by(|one, other| by_parts(&one.path, &other.path));
    Ok(DirectoryWalk { at, tree })
}

fn check_len(tree: &WalkedTree) -> Result<(), WorkError> {
    if tree.entries.len() + tree.left_out.len() > WALK_ENTRIES_MAX {
        let why = format!("the workspace has more than {WALK_ENTRIES_MAX} entries");
        return Err(WorkError::Refused(why));
    }
    Ok(())
}

/// What `stat` says of each entry. No path has two slashes in a row.
fn records(mut facts: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = facts.windows(3).position(|three| three == b"//\n")?;
        let record = &facts[..end];
        facts = &facts[end + 3..];
        Some(record)
    })
}

/// The path in a record, as `find` printed it.
fn name_of(record: &[u8]) -> &[u8] {
    record.splitn(4, |byte| *byte == b' ').nth(3).unwrap_or(b"")
}

/// An entry from what `stat -c '%f %s %.9Y %n'` prints: mode in hexadecimal, size, time, path.
fn entry(record: &[u8]) -> Option<TreeEntry> {
    let mut fields = record.splitn(4, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let mode = u32::from_str_radix(text()?, 16).ok()?;
    let size = text()?.parse().ok()?;
    let modified_ns = parse_exact_time(text()?.as_bytes())?;
    let path = name_of(record).strip_prefix(b"./")?.to_vec();
    let (kind, mode) = (kind_of(mode), mode & 0o7777);
    Some(TreeEntry { path, kind, size, mode, modified_ns, link_target: Vec::new() })
}

/// Whether a path is relative, and leads nowhere else.
fn is_clean(path: &[u8]) -> bool {
    WorkspacePath::parse(path).is_ok_and(|parsed| parsed.as_bytes() == path)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    fn printed(rest: &[u8]) -> Vec<u8> {
        let at = BASE64_STANDARD.encode(b"/home/a b");
        [format!("{at}\n:\n").as_bytes(), rest].concat()
    }

    #[test]
    fn names_and_targets_are_read_byte_for_byte_and_in_order() {
        let facts = b"41ed 4096 1.5 ./d//\n81a4 3 1700000000.123456789 ./d/a/\n//\n\
                      a1ff 1 3 ./d-l//\na1ff 1 3 ./gone//\n";
        let links = b"./d-l\0../x//\ny\n\0\0";
        let walk = parse(&printed(&[facts, &b"\0"[..], links, b".\0./d/a\0\0whole"].concat()));
        let DirectoryWalk { at, tree } = walk.expect("understood");
        assert_eq!(at, b"/home/a b");
        let shown: Vec<_> = tree
            .entries
            .iter()
            .map(|entry| (&*entry.path, entry.kind, entry.mode, entry.modified_ns))
            .collect();
        let file = (&b"d/a/\n"[..], FileKind::File, 0o644, 1_700_000_000_123_456_789);
        let expected = [
            (&b"d"[..], FileKind::Directory, 0o755, 1_500_000_000),
            file,
            (b"d-l", FileKind::Link, 0o777, 3_000_000_000),
        ];
        assert_eq!(shown, expected);
        assert_eq!(tree.entries[2].link_target, b"../x//\ny\n");
        assert_eq!(tree.left_out, [&b"gone"[..], b"", b"d/a"]);
    }

    #[test]
    fn what_is_no_walk_is_refused() {
        for wrong in ["", "x ", "41ed 1 1 ../a//\n\0\0", "41ed x 1 ./a//\n\0\0", "\0a"] {
            let whole = format!("{wrong}\0whole");
            assert!(parse(&printed(whole.as_bytes())).is_err(), "{wrong:?}");
        }
        // Parts of one.
        let whole = b"41ed 4096 1.5 ./d//\n\0\0./d\0\0whole";
        for len in 0..whole.len() {
            assert!(parse(&printed(&whole[..len])).is_err(), "{len} bytes");
        }
        assert!(parse(&printed(whole)).is_ok());
        assert!(parse(b"41ed").is_err());
        let nothing = parse(&printed(b"\0\0\0whole")).expect("an empty directory");
        assert_eq!(nothing.tree, WalkedTree::default());
    }

    /// What the script finds in a new workspace that `make` fills, with other programs in front of the
    /// system's.
    fn walked(make: &str, programs: &[(&str, &str)]) -> Result<DirectoryWalk, WorkError> {
        let home = tempfile::tempdir().expect("a directory");
        let (work, bin) = (home.path().join("work"), home.path().join("bin"));
        std::fs::create_dir_all(&bin).expect("made");
        std::fs::create_dir_all(&work).expect("made");
        for (name, text) in programs {
            let program = bin.join(name);
            std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).expect("written");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&program, mode).expect("set");
        }
        let sh = |script: &str| {
            let path = format!("{}:/usr/bin:/bin", bin.display());
            let mut sh = std::process::Command::new("sh");
            sh.args(["-c", script]).current_dir(&work).env("HOME", home.path()).env("PATH", path);
            sh.output().expect("a shell")
        };
        assert!(sh(make).status.success(), "{make}");
        let printed = sh(&Script::Archives.command("work", &["walk", "", "names"])).stdout;
        assert_eq!(std::fs::read_dir(home.path().join(".issuebox/tmp")).expect("made").count(), 0);
        parse(printed.strip_suffix(b".\n").expect("the script came to its end"))
    }

    #[test]
    fn a_helper_that_is_killed_is_no_small_directory() {
        let make = "mkdir d; echo x >d/f; ln -s f d/l";
        let paths = |walk: DirectoryWalk| {
            let entries = walk.tree.entries.into_iter();
            entries.map(|entry| String::from_utf8(entry.path).expect("text")).collect::<Vec<_>>()
        };
        assert_eq!(walked(make, &[]).map(paths), Ok(["d", "d/f", "d/l"].map(str::to_owned).into()));
        for program in ["find", "xargs"] {
            let walk = walked(make, &[(program, "kill -9 $$")]);
            assert!(walk.is_err(), "{program}: {walk:?}");
        }
        // After it has printed some of it.
        let stat = "case $* in *//*) printf '41ed 4096 1 ./d//\\n'; kill -9 $$ ;; esac; echo 1";
        assert!(walked(make, &[("stat", stat)]).is_err());
        let without = walked(make, &[("readlink", "kill -9 $$")]).expect("the rest is there");
        assert_eq!(without.tree.left_out, [b"d/l"]);
    }

    #[test]
    fn what_is_too_deep_for_a_path_is_left_out_by_its_directory() {
        let make = "n=$(printf 'n%.0s' 1 2 3 4 5 6 7 8 9 0); n=$n$n$n$n$n$n$n$n$n$n$n$n$n$n$n$n$n$n$n$n; \
                    for _ in 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2; do mkdir $n && cd $n; done; echo x >x";
        let tree = walked(make, &[]).expect("a walk").tree;
        let above = |path: &Vec<u8>| path.iter().filter(|byte| **byte == b'/').count();
        let first = tree.left_out.iter().map(above).min();
        assert_eq!(first, Some(18), "19 names are longer than 3,800 bytes");
        assert!(tree.entries.iter().any(|entry| above(&entry.path) == 18));
    }
}
