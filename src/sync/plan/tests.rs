//! Plans of small trees.

use super::*;
use crate::sync::manifest::ContentChecksum;
use crate::types::{SyncStats, SyncVersion};

const WALKED_MS: i64 = 1_700_000_000_000;
/// A time long before the walk, with nanoseconds.
const BEFORE_NS: i64 = (WALKED_MS - 60_000) * 1_000_000 + 5;

fn found(path: &str, kind: FileKind, size: u64) -> TreeEntry {
    let path = path.as_bytes().to_vec();
    let link_target = if kind == FileKind::Link { b"to".to_vec() } else { Vec::new() };
    TreeEntry { path, kind, size, mode: 0o755, modified_ns: BEFORE_NS, link_target }
}

fn file(path: &str, content: &str) -> TreeEntry {
    found(path, FileKind::File, content.len() as u64)
}

fn stored(path: &str, content: EntryContent) -> ManifestEntry {
    ManifestEntry { path: path.into(), mode: 0o755, modified_ns: BEFORE_NS, content }
}

fn stored_file(path: &str, content: &str) -> ManifestEntry {
    let sha256 = ContentChecksum::of(content.as_bytes());
    stored(path, EntryContent::File { sha256, size: content.len() as u64 })
}

fn manifest(entries: Vec<ManifestEntry>) -> Manifest {
    Manifest {
        version: SyncVersion { seconds: 1, number: 1 },
        walked_at: Timestamp::from_unix_ms(WALKED_MS),
        stats: SyncStats::default(),
        left_out: Vec::new(),
        entries,
    }
}

fn none() -> HashSet<ContentChecksum> {
    HashSet::new()
}

fn tree(entries: Vec<TreeEntry>) -> WalkedTree {
    WalkedTree { entries, left_out: Vec::new() }
}

fn paths<'a>(paths: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<&'a str> {
    paths.into_iter().map(|path| std::str::from_utf8(path).expect("text")).collect()
}

#[test]
fn a_push_reads_only_what_size_or_time_tell_apart() {
    let last = manifest(vec![
        stored_file("grown", "one"),
        stored_file("same", "one"),
        stored_file("touched", "one"),
    ]);
    let touched = TreeEntry { modified_ns: BEFORE_NS + 1, ..file("touched", "one") };
    let now = vec![
        found("d", FileKind::Directory, 4096),
        file("grown", "four"),
        found("l", FileKind::Link, 2),
        file("new", ""),
        file("same", "two"),
        found("socket", FileKind::Other, 0),
        touched,
    ];
    let plan = push(Some(&last), tree(now), &[], &none());
    assert_eq!(paths(plan.known.iter().map(|entry| &entry.path)), ["d", "l", "same"]);
    assert_eq!(paths(plan.read.iter().map(|entry| &entry.path)), ["grown", "new", "touched"]);
    assert_eq!(plan.new_links, 1);
    assert_eq!(deleted(Some(&last), &plan.known), 2, "grown and touched are not read yet");
}

#[test]
fn without_a_manifest_everything_is_read() {
    let plan = push(None, tree(vec![file("a", "one"), file("b", "two")]), &[], &none());
    assert_eq!((plan.known.len(), plan.read.len()), (0, 2));
}

#[test]
fn a_file_with_a_lost_content_is_read_again() {
    let last = manifest(vec![stored_file("a", "one"), stored_file("b", "two")]);
    let now = tree(vec![file("a", "one"), file("b", "two")]);
    let lost = HashSet::from([ContentChecksum::of(b"two")]);
    let plan = push(Some(&last), now, &[], &lost);
    assert_eq!(paths(plan.read.iter().map(|entry| &entry.path)), ["b"]);
    assert_eq!(paths(plan.known.iter().map(|entry| &entry.path)), ["a"]);
}

#[test]
fn a_file_that_changed_just_before_the_walk_is_read_again() {
    let walked_ns = WALKED_MS * 1_000_000;
    for (modified_ns, is_read) in [
        (walked_ns - 10_000_001, true),
        (walked_ns - 60_000_001, false),
        // Whole seconds say less.
        (walked_ns - 1_000_000_000, true),
        (walked_ns - 3_000_000_000, false),
    ] {
        let old = ManifestEntry { modified_ns, ..stored_file("a", "one") };
        let now = TreeEntry { modified_ns, ..file("a", "two") };
        let plan = push(Some(&manifest(vec![old])), tree(vec![now]), &[], &none());
        assert_eq!(!plan.read.is_empty(), is_read, "{modified_ns}");
    }
}

#[test]
fn a_file_with_another_time_is_read_again_even_within_the_same_second() {
    let last = manifest(vec![stored_file("a", "one")]);
    let unchanged = file("a", "one");
    assert_eq!(push(Some(&last), tree(vec![unchanged.clone()]), &[], &none()).read, []);
    // A whole second is what another archive leaves; another program can set the same time.
    for earlier_ns in [5, 4] {
        let other = TreeEntry { modified_ns: BEFORE_NS - earlier_ns, ..unchanged.clone() };
        let plan = push(Some(&last), tree(vec![other]), &[], &none());
        assert_eq!(plan.read.len(), 1, "{earlier_ns}");
    }
}

#[test]
fn ignored_paths_are_in_no_version() {
    let rules = [IgnoreRules::parse(b"*.log\n/target/\n")];
    let now = vec![
        file("a.log", "x"),
        file("a.rs", "x"),
        found("target", FileKind::Directory, 4096),
        file("target/a", "x"),
        file("target2", "x"),
    ];
    let plan = push(None, tree(now), &rules, &none());
    assert_eq!(paths(plan.read.iter().map(|entry| &entry.path)), ["a.rs", "target2"]);
    assert_eq!(plan.known, []);
}

#[test]
fn a_pull_writes_what_differs_and_deletes_what_the_version_lacks() {
    let link = |to: &str| EntryContent::Link { target: to.into() };
    let wanted = manifest(vec![
        stored("d", EntryContent::Directory),
        stored_file("d/same", "one"),
        stored_file("grown", "four"),
        stored("l", link("to")),
        stored("m", link("elsewhere")),
        stored_file("missing", "one"),
        stored_file("mode", "one"),
        stored_file("touched", "one"),
    ]);
    let now = tree(vec![
        found("d", FileKind::Directory, 4096),
        file("d/extra", "x"),
        file("d/same", "one"),
        found("e", FileKind::Directory, 4096),
        found("e/f", FileKind::Directory, 4096),
        file("e/f/x", "x"),
        file("grown", "one"),
        found("l", FileKind::Link, 2),
        found("m", FileKind::Link, 2),
        TreeEntry { mode: 0o600, ..file("mode", "one") },
        TreeEntry { modified_ns: 7, ..file("touched", "two") },
    ]);
    let plan = pull(&wanted, &now, &[]);
    let named = |places: &[usize]| -> Vec<String> {
        let path = |at: &usize| String::from_utf8_lossy(&wanted.entries[*at].path).into_owned();
        places.iter().map(path).collect()
    };
    assert_eq!(named(&plan.write), ["grown", "m", "missing"]);
    assert_eq!(named(&plan.set_mode), ["mode"]);
    assert_eq!(plan.compare, [(7, true)]);
    assert_eq!(paths(&plan.delete), ["d/extra", "e"]);
    assert_eq!((plan.skipped, plan.deleted), (3, 2));
    assert_eq!((plan.in_the_way, plan.open), (Vec::new(), Vec::new()));
}

#[test]
fn a_pull_leaves_alone_what_is_ignored_unknown_or_no_file() {
    let wanted = Manifest { left_out: vec!["secret".into()], ..manifest(Vec::new()) };
    let now = WalkedTree {
        left_out: vec![b"closed".to_vec()],
        entries: vec![
            found("build", FileKind::Directory, 4096),
            file("build/a.o", "x"),
            file("build/b", "x"),
            found("closed", FileKind::Directory, 4096),
            found("run", FileKind::Directory, 4096),
            found("run/socket", FileKind::Other, 0),
            file("run/pid", "1"),
            found("secret", FileKind::Directory, 4096),
            file("secret/key", "x"),
            file("secrets", "x"),
        ],
    };
    let plan = pull(&wanted, &now, &[IgnoreRules::none(), IgnoreRules::parse(b"*.o\n")]);
    assert_eq!(paths(&plan.delete), ["build/b", "run/pid", "secrets"]);
    let all = Manifest { left_out: vec![Vec::new()], ..manifest(Vec::new()) };
    assert_eq!(pull(&all, &now, &[]).delete, Vec::<Vec<u8>>::new());
}

#[test]
fn what_is_in_the_way_goes_first_and_closed_directories_are_opened() {
    let closed = ManifestEntry { mode: 0o555, ..stored("ro", EntryContent::Directory) };
    let wanted = manifest(vec![
        stored("a", EntryContent::Directory),
        stored_file("a/x", "x"),
        stored_file("b", "x"),
        closed,
        stored_file("ro/new", "x"),
    ]);
    let now = tree(vec![
        found("a", FileKind::Link, 2),
        found("b", FileKind::Directory, 4096),
        file("b/x", "x"),
        TreeEntry { mode: 0o555, ..found("ro", FileKind::Directory, 4096) },
    ]);
    let plan = pull(&wanted, &now, &[]);
    assert_eq!(paths(&plan.in_the_way), ["a", "b"]);
    assert_eq!(plan.write, [0, 1, 2, 3, 4], "the closed directory is closed again");
    assert_eq!(plan.open, [(b"ro".to_vec(), 0o755)]);
    assert_eq!(paths(&plan.delete), [""; 0]);
    assert_eq!(plan.deleted, 1);
}
