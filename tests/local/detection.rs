//! Machines on which sandboxes can't be made, and what is said of each: which step fails, and what to
//! do. They are made of namespaces, so they need `unshare` of util-linux.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What `doctor` says is wrong with the local provider where this script has prepared the ground;
/// `$DOCTOR` runs it.
fn doctor(how: &[&str], user: Option<u32>, script: &str) -> String {
    let local = look(how, user, script);
    assert_eq!(local["state"], "broken", "{local}");
    format!("{} {}", local["found"], local["remedy"])
}

/// All that it says of that.
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
    let told: Vec<Value> =
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    told.into_iter().find(|one| one["check"] == "provider local").expect("it is looked at")
}

/// A `/dev` of its own that has what programs need, and of loop devices nothing or the control only.
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
fn loop_devices_that_may_not_be_made_are_named_with_what_to_do() {
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
fn a_kernel_that_allows_no_user_namespaces_is_named_with_its_setting() {
    let is_root = rustix::process::geteuid().is_root();
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec $DOCTOR";
    let ordinary = ["--user", "--map-current-user", "--keep-caps"];
    let told = doctor(&ordinary, is_root.then_some(65_534), none);
    assert!(told.contains("could not make a user namespace"), "{told}");
    assert!(told.contains("No space left on device"), "{told}");
    assert!(told.contains("sysctl user.max_user_namespaces"), "{told}");
}

#[test]
#[ignore = "needs unshare, and user namespaces for ordinary users"]
fn root_of_a_namespace_without_other_users_is_told_so() {
    let is_root = rustix::process::geteuid().is_root();
    let told = doctor(&["-Ur"], is_root.then_some(65_534), "exec $DOCTOR");
    assert!(told.contains("is not mapped here"), "{told}");
    assert!(told.contains("Run the server as an ordinary user"), "{told}");
}

#[test]
#[ignore = "needs root, and unshare for mounts of its own"]
fn a_chroot_is_named_as_what_it_is() {
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
    let told = doctor(&["-m"], None, &script);
    assert!(told.contains("could not make a user namespace"), "{told}");
    assert!(told.contains("This is a chroot"), "{told}");
}
