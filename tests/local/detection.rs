//! Doctor's findings on machines that can't make sandboxes: the failed step, and the remedy. They
//! are simulated by namespaces, which needs `unshare` of util-linux.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Doctor's finding about the local provider after this script; `$DOCTOR` runs doctor.
fn doctor(how: &[&str], user: Option<u32>, script: &str) -> String {
    let local = look(how, user, script);
    assert_eq!(local["state"], "broken", "{local}");
    format!("{} {}", local["found"], local["remedy"])
}

/// Doctor's whole check of the local provider.
fn look(how: &[&str], user: Option<u32>, script: &str) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::chown(dir.path(), user, user).expect("given away");
    let binary = dir.path().join("issuebox");
    std::fs::copy(env!("CARGO_BIN_EXE_issuebox"), &binary).expect("copied");
    let data = dir.path().join("data");
    let doctor = format!("{} doctor -o json --data {}", binary.display(), data.display());
    let mut command = Command::new("unshare");
    command.args(how).args(["sh", "-c", script]);
    command.env_clear().env("PATH", std::env::var("PATH").expect("a path")).env("DOCTOR", doctor);
    command.env("DIR", dir.path()).current_dir("/");
    if let Some(id) = user {
        command.uid(id).gid(id);
    }
    let ended = command.output().expect("unshare must be installed");
    let checks: Vec<Value> =
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    checks.into_iter().find(|check| check["check"] == "provider local").expect("the check")
}

/// A `/dev` with the devices that programs need, and of loop devices none or only the control.
fn own_dev(nodes: &str, then: &str) -> String {
    format!(
        "mkdir $DIR/dev && mount -t tmpfs dev $DIR/dev && cd $DIR/dev && touch none && \
         for d in null zero full random urandom tty; do cp -a /dev/$d . || exit 9; done; \
         mkdir shm pts; {nodes} mount --move $DIR/dev /dev && {then} cd / && exec $DOCTOR"
    )
}

#[test]
#[ignore = "needs root, loop devices, and unshare for mounts of its own"]
fn loop_devices_without_nodes_are_used_all_the_same() {
    assert!(rustix::process::geteuid().is_root(), "only root can mount");
    for nodes in ["", "mknod loop-control c 10 237;"] {
        for then in ["", "mount -o remount,ro /dev &&"] {
            let local = look(&["-m"], None, &own_dev(nodes, then));
            let found = local["found"].as_str().expect("text");
            assert!(found.contains("disk enforced"), "{nodes} {then}: {local}");
            assert_ne!(local["state"], "broken", "{local}");
        }
    }
}

#[test]
#[ignore = "needs root, loop devices, and unshare for mounts of its own"]
fn forbidden_loop_devices_are_reported_with_the_remedy() {
    assert!(rustix::process::geteuid().is_root(), "only root can mount");
    let script = own_dev("mknod loop-control c 10 237;", "");
    let without = "exec setpriv --bounding-set -mknod --inh-caps -mknod $DOCTOR";
    let script = script.replace("exec $DOCTOR", without);
    let local = look(&["-m"], None, &script);
    let found = local["found"].as_str().expect("text");
    assert!(found.contains("disk watched") && found.contains("/dev has no node"), "{local}");
}

#[test]
#[ignore = "needs unshare, and user namespaces for ordinary users"]
fn a_kernel_without_user_namespaces_is_reported_with_its_setting() {
    let is_root = rustix::process::geteuid().is_root();
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec $DOCTOR";
    let ordinary = ["--user", "--map-current-user", "--keep-caps"];
    let found = doctor(&ordinary, is_root.then_some(65_534), none);
    assert!(found.contains("cannot make a user namespace"), "{found}");
    assert!(found.contains("No space left on device"), "{found}");
    assert!(found.contains("sysctl user.max_user_namespaces"), "{found}");
}

#[test]
#[ignore = "needs unshare, and user namespaces for ordinary users"]
fn root_of_a_namespace_without_other_users_gets_a_remedy() {
    let is_root = rustix::process::geteuid().is_root();
    let found = doctor(&["-Ur"], is_root.then_some(65_534), "exec $DOCTOR");
    assert!(found.contains("are not mapped into this container"), "{found}");
    assert!(found.contains("run the server as an ordinary user"), "{found}");
}

#[test]
#[ignore = "needs root, and unshare for mounts of its own"]
fn a_chroot_is_reported_as_one() {
    assert!(rustix::process::geteuid().is_root(), "only root can make one");
    let shown: Vec<&str> = ["/usr", "/bin", "/lib", "/lib64", "/proc", "/dev", "/etc"]
        .into_iter()
        .filter(|path| Path::new(path).exists())
        .collect();
    let script = format!(
        "root=$DIR/root; mkdir -p $root$DIR; touch $root/none; \
         for d in {} $DIR; do mkdir -p $root$d && mount --rbind $d $root$d || exit 9; done; \
         exec chroot $root $DOCTOR",
        shown.join(" ")
    );
    let found = doctor(&["-m"], None, &script);
    assert!(found.contains("cannot make a user namespace"), "{found}");
    assert!(found.contains("This is a chroot"), "{found}");
}
