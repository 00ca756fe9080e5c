//! Files: the host's, PID 1's, devices, and set-uid programs.

use crate::common::request;
use crate::world::{World, refused_if_there};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn only_the_sandbox_s_own_files_are_reached() {
    let Some(world) = World::new(1).await else { return };
    let canary = format!("open {}", world.local.dir.path().join("canary").display());
    world
        .try_all(&[
            ("reads a file of the host by its path", &canary, "ENOENT"),
            ("reads above the root", "above_the_root", "ENOENT"),
            ("walks up from the workspace", "up_from_the_workspace", "its own root"),
            ("reads the host's passwords", "open /etc/shadow", "ENOENT"),
            ("reads through its own root", "open /proc/self/root/etc/shadow", "ENOENT"),
            ("reads through its own directory", "open /proc/self/cwd/../etc/shadow", "ENOENT"),
            ("reads PID 1's environment", "open /proc/1/environ", "EACCES"),
            ("reads PID 1's memory", "open /proc/1/mem", "EACCES"),
            ("reads PID 1's memory map", "open /proc/1/maps", "EACCES"),
            ("reads PID 1's registers", "open /proc/1/syscall", "EACCES"),
            ("reads PID 1's stack", "open /proc/1/stack", "EACCES"),
            ("lists PID 1's descriptors", "list /proc/1/fd", "EACCES"),
            ("lists PID 1's root", "list /proc/1/root", "EACCES"),
            ("lists PID 1's directory", "list /proc/1/cwd", "EACCES"),
            ("finds the server's program", "read_link /proc/1/exe", "EACCES"),
            ("lists PID 1's mapped files", "list /proc/1/map_files", "EACCES"),
            ("lists the machine's devices", "list /sys", "ENOENT"),
            ("lists control groups", "list /sys/fs/cgroup", "ENOENT"),
            ("opens the kernel's log", "open /dev/kmsg", "ENOENT"),
            ("opens the kernel's log in /proc", "open /proc/kmsg", "EACCES"),
            ("opens the kernel's memory", "open /proc/kcore", refused_if_there("/proc/kcore")),
            ("opens a disk", "open /dev/vda", "ENOENT"),
            ("opens a loop device", "open /dev/loop-control", "ENOENT"),
            ("opens the machine's memory", "open /dev/mem", "ENOENT"),
            ("opens FUSE", "open /dev/fuse", "ENOENT"),
            ("opens a tunnel", "open /dev/net/tun", "ENOENT"),
            ("opens KVM", "open /dev/kvm", "ENOENT"),
            ("opens the console", "open /dev/console", "ENOENT"),
            ("makes a character device", "make_device", "EPERM"),
            ("makes a disk", "make_block_device", "EPERM"),
            ("writes a program", "write /usr/bin/env", "EACCES"),
            ("writes the loader", "write /etc/ld.so.cache", "EACCES"),
            ("writes its own users", "write /etc/passwd", "EROFS"),
            ("writes its own name service", "write /etc/resolv.conf", "EROFS"),
            ("puts a file beside programs", "create /usr/bin/new", "EROFS"),
            ("puts a file into the root", "create /new", "EROFS"),
            ("puts a device where devices are", "create /dev/new", "EROFS"),
            ("puts a terminal where terminals are", "create /dev/pts/new", "EROFS"),
            ("opens a program again for writing", "reopen_a_program_for_writing", "EACCES"),
            ("links a program into its workspace", "hard_link_to_a_program", "EXDEV"),
            ("links an open program", "hard_link_to_a_descriptor", "EXDEV"),
            ("names a file by a handle", "by_file_handle", "EPERM"),
            ("opens a file by a handle", "open_file_handle", "EPERM"),
            ("gives a file to root", "give_to_root", "EINVAL"),
            ("gives capabilities to a program", "give_capabilities", "EPERM"),
            ("is the user that it seems to be", "effective_user", "1000"),
            ("becomes another by a set-uid program", "set_uid_copy", "1000"),
        ])
        .await;
    world.end().await;
}

/// The auxiliary vector of a program shows whether its set-uid bit took effect.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn the_host_s_set_uid_programs_give_no_rights() {
    let Some(world) = World::new(2).await else { return };
    let hostile = world.hostile("lent", None).await;
    let found = "find /usr /bin /sbin -xdev -perm /6000 -type f -perm -o=x 2>/dev/null | sort -u";
    let programs = hostile.sandbox.sh(found).await;
    assert!(programs.lines().any(|path| path.ends_with("/su")), "{programs}");
    for program in programs.lines() {
        let script = format!("LD_SHOW_AUXV=1 {program} --version </dev/null 2>&1 | tr -s ' '");
        let output = hostile.sandbox.run(request(&["sh", "-c", &script])).await.stdout;
        for line in ["AT_EUID: 1000", "AT_EGID: 1000", "AT_SECURE: 0"] {
            assert!(output.lines().any(|other| other == line), "{program}: {line} in {output}");
        }
    }
    hostile.assert_gone_after_stop().await;
    world.end().await;
}
