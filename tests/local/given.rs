//! Programs that the server gives to sandboxes: files that they would not see otherwise.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use issuebox::sandbox::GivenProgram;
use issuebox::types::AgentName;
use rustix::process::geteuid;

use crate::common::{Local, request};
use crate::warm::waits;

fn script(path: &Path, words: &str) {
    fs::write(path, format!("#!/bin/sh\necho {words} \"$0\"\n")).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

fn given(agent: &str, path: &Path) -> GivenProgram {
    GivenProgram::new(AgentName::trusted(agent), path).expect("it is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_given_program_runs_under_its_own_name_and_cannot_be_changed() {
    let home = tempfile::tempdir().expect("a directory");
    let (real, link) = (home.path().join("v1"), home.path().join("helper"));
    script(&real, "one");
    symlink(&real, &link).expect("linked");
    // Root's launcher takes the program while it still may enter. An ordinary user's sandboxes that have
    // host users of their own are given only what every user may read.
    let mode = if geteuid().is_root() { 0o700 } else { 0o755 };
    fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).expect("changed");
    let (helper, shell) = (given("helper", &link), given("shell", Path::new("/bin/sh")));
    assert_eq!(helper.inside(), "/opt/issuebox/helper/helper");
    let programs: Arc<[_]> = [helper.clone(), shell.clone()].into();
    let Some(local) = Local::with(|config| config.programs = programs).await else { return };
    let sandbox = local.sandbox("given").await;
    let path = helper.inside();
    assert_eq!(sandbox.sh(&path).await, format!("one {path}\n"));
    let run = format!("{} -c 'echo the host shell'", shell.inside());
    assert_eq!(sandbox.sh(&run).await, "the host shell\n", "a program that is seen anyway");
    let touch = format!("chmod 777 {path} || echo x > {path} || rm -f {path}");
    let ended = sandbox.run(request(&["sh", "-c", &touch])).await;
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(fs::read_to_string(&real).expect("still there").contains("one"));
    let listed = sandbox.sh("ls -A /opt /opt/issuebox").await;
    assert_eq!(listed, "/opt:\nissuebox\n\n/opt/issuebox:\nhelper\nshell\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_program_is_given_to_the_next_sandbox_and_a_missing_one_to_none() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("helper");
    script(&file, "one");
    let program = given("helper", &file);
    let programs: Arc<[_]> = [program.clone()].into();
    let Some(local) = Local::with(|config| config.programs = programs).await else { return };
    let path = program.inside();
    let first = local.sandbox("first").await;
    // A sandbox that was started before the change would have the old one.
    waits(&local).await;
    script(&home.path().join("new"), "two");
    fs::rename(home.path().join("new"), &file).expect("replaced");
    let second = local.sandbox("second").await;
    assert_eq!(second.sh(&path).await, format!("two {path}\n"));
    assert_eq!(first.sh(&path).await, format!("one {path}\n"), "a sandbox keeps what it has");
    fs::remove_file(&file).expect("removed");
    let third = local.sandbox("third").await;
    assert_eq!(third.sh("ls -A /opt 2>/dev/null; echo it runs").await, "it runs\n");
}
