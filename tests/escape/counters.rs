//! What the kernel counts for the whole machine, or in no group: a sandbox takes all it can
//! get and keeps it, and its neighbour has its own meanwhile.
//!
//! `docs/counters.md` has a row for each counter; here the running kernel's are looked up in it.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use issuebox::types::Resources;

use crate::world::World;

/// The page, whose rows begin with the names of counters.
const PAGE: &str = include_str!("../../docs/counters.md");

/// The directories whose files have rows.
const DIRECTORIES: [&str; 4] = ["fs", "net/core", "kernel", "user"];

const SMALL: Resources = Resources { cpu: 1.0, memory_mb: 96, processes: 64, disk_mb: 32 };

/// A number before these words.
fn number(result: &str, words: &str) -> u64 {
    let number = result.strip_suffix(words).and_then(|number| number.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{result:?} must be a number and {words:?}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn uncounted_memory_of_sockets_is_bounded_and_neighbours_have_their_own() {
    let Some(world) = World::new(20).await else { return };
    let other = world.hostile("other", None).await;
    // Without a control group, the kernel has bounds for all sockets of the machine only.
    let is_counted = world.holds("memory").await == "enforced";
    let buffers: RangeInclusive<u64> = if is_counted { 0..=96 } else { 0..=500 };
    for (takes, words, bound) in [
        ("netlink_sockets", "ENOBUFS", 4..=16),
        ("netlink_sockets_on_their_way", "ENOBUFS", 4..=16),
        ("netlink_sockets_of_many", "of 40", 4..=16),
        ("tcp_buffers", "MB", buffers.clone()),
        ("udp_buffers", "MB", buffers),
        // Each process meets its own limit before the machine's.
        ("files_of_many", "of 40", 40..=40),
    ] {
        let hostile = world.hostile(&takes.replace('_', "-"), Some(SMALL)).await;
        let result = hostile.attempt(takes).await;
        assert!(bound.contains(&number(&result, words)), "{takes}: {result}");
        assert_eq!(other.attempt("interfaces").await, "lo", "beside {takes}");
        assert_eq!(other.attempt("move_a_megabyte").await, "done", "beside {takes}");
        let own = hostile.attempt("interfaces").await;
        assert!(["lo", "ENOBUFS"].contains(&&*own), "after {takes}: {own}");
        world.assert_unharmed(takes).await;
        hostile.assert_gone_after_stop().await;
    }
    other.assert_gone_after_stop().await;
    world.end().await;
}

/// The names that a row begins with.
fn names(row: &str) -> impl Iterator<Item = &str> {
    let first = row.strip_prefix('|').and_then(|row| row.split('|').next()).unwrap_or_default();
    first.split('`').skip(1).step_by(2)
}

fn is_named(counter: &str, name: &str) -> bool {
    match name.split_once('*') {
        Some((prefix, suffix)) => counter.starts_with(prefix) && counter.ends_with(suffix),
        None => counter == name,
    }
}

fn counters(at: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            counters(&path, found);
        } else {
            let name = path.strip_prefix("/proc/sys").expect("below");
            found.insert(name.to_str().expect("ASCII").to_owned());
        }
    }
}

#[test]
#[ignore = "reads the running kernel's counters"]
fn every_counter_of_this_kernel_has_a_row() {
    let rows: Vec<&str> = PAGE.lines().flat_map(names).collect();
    let mut found = BTreeSet::new();
    for directory in DIRECTORIES {
        counters(&Path::new("/proc/sys").join(directory), &mut found);
    }
    assert!(found.contains("fs/file-max"), "{found:?}");
    found.retain(|counter| !rows.iter().any(|name| is_named(counter, name)));
    assert!(
        found.is_empty(),
        "docs/counters.md has no row for {found:?}: say for each what bounds it, or that it counts \
         nothing"
    );
}
