//! Runs the whole suite once more as an ordinary user.
//!
//! When run by root, this test starts its own binary again as a user with a directory and copies
//! of the two programs that the suite needs, because the built ones may not be readable.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::world::{PROGRAMS, hostile_program, launcher};

/// A user without other files, and not one of the sandboxes' uids.
const USER: u32 = 1_999_777;

/// Whether this is the run that root has started as an ordinary user.
pub fn is_run_by_root() -> bool {
    std::env::var_os(PROGRAMS).is_some()
}

#[test]
#[ignore = "needs root and a C compiler, and uses up what there is of the machine"]
fn the_suite_holds_for_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        // The user of the others is already an ordinary one.
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let own = dir.path().join("escape-suite");
    let itself = std::env::current_exe().expect("known");
    for (from, to) in [
        (itself.as_path(), own.clone()),
        (launcher().as_path(), dir.path().join("issuebox")),
        (hostile_program(), dir.path().join("escape")),
    ] {
        fs::copy(from, &to).expect("copied");
        fs::set_permissions(&to, PermissionsExt::from_mode(0o755)).expect("made to run");
        // The user owns what it runs, as after `cargo install`.
        chown(&to, Some(USER), Some(USER)).expect("root may give it away");
    }
    chown(dir.path(), Some(USER), Some(USER)).expect("root may give it away");
    let ended = Command::new(own)
        .args(["--ignored", "--test-threads=1"])
        .env(PROGRAMS, dir.path())
        .env("TMPDIR", dir.path())
        .current_dir(dir.path())
        .uid(USER)
        .gid(USER)
        .output()
        .expect("started");
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{output}\n{}", String::from_utf8_lossy(&ended.stderr));
    assert!(output.contains("20 passed"), "{output}");
    let table = fs::read_dir("/proc").expect("/proc").flatten();
    let is_theirs = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|data| data.uid() == USER);
    let left: Vec<_> = table.filter(is_theirs).map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "processes are left: {left:?}");
}
