//! Mounts, namespaces and privileges.

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn mounts_stay_as_they_are() {
    let Some(world) = World::new(3).await else { return };
    world
        .try_all(&[
            ("mounts a file system in memory", "mount_tmpfs", "EPERM"),
            ("mounts /proc anew", "mount_proc", "EPERM"),
            ("mounts control groups", "mount_cgroups", "EPERM"),
            ("makes programs writable", "remount_programs_writable", "EPERM"),
            ("makes programs writable by the new call", "clear_read_only", "EPERM"),
            ("has its mounts spread", "make_mounts_shared", "EPERM"),
            ("binds the root elsewhere", "bind_the_root", "EPERM"),
            ("uncovers what is below /proc", "unmount_proc", "EPERM"),
            ("uncovers what is below the root", "unmount_root", "EPERM"),
            ("changes the root", "change_root", "EPERM"),
            ("swaps the root", "pivot", "EPERM"),
            ("copies a tree", "clone_a_tree", "EPERM"),
            ("moves a mount", "move_a_mount", "EPERM"),
            ("opens a file system", "open_a_file_system", "EPERM"),
            ("picks a mount to change", "pick_a_mount", "EPERM"),
        ])
        .await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn no_namespace_and_no_privilege_is_gained() {
    let Some(world) = World::new(4).await else { return };
    world
        .try_all(&[
            ("leaves for a new mount namespace", "leave_by_unshare 0x00020000", "EPERM"),
            ("leaves for a new cgroup namespace", "leave_by_unshare 0x02000000", "EPERM"),
            ("leaves for a new name of the host", "leave_by_unshare 0x04000000", "EPERM"),
            ("leaves for new queues", "leave_by_unshare 0x08000000", "EPERM"),
            ("leaves for a new user namespace", "leave_by_unshare 0x10000000", "EPERM"),
            ("leaves for a new pid namespace", "leave_by_unshare 0x20000000", "EPERM"),
            ("leaves for a new network", "leave_by_unshare 0x40000000", "EPERM"),
            ("leaves for another time", "leave_by_unshare 0x00000080", "EPERM"),
            ("has a child in a new user namespace", "leave_by_clone 0x10000000", "EPERM"),
            ("has a child with new mounts as root", "leave_by_clone 0x10020000", "EPERM"),
            ("has a child in a new network", "leave_by_clone 0x40000000", "EPERM"),
            ("has a child by the call that hides its flags", "leave_by_clone3", "ENOSYS"),
            ("enters its own namespace again", "enter_own", "EPERM"),
            ("enters PID 1's namespaces", "enter_by_process", "EPERM"),
            ("opens PID 1's mount namespace", "open /proc/1/ns/mnt", "EACCES"),
            ("opens PID 1's user namespace", "open /proc/1/ns/user", "EACCES"),
            ("asks for the host's user namespace", "parent_namespace", "EPERM"),
            ("becomes root", "become_root", "EINVAL"),
            ("takes root's group", "take_groups", "EPERM"),
            ("maps root", "map_root", "EPERM"),
            ("allows groups again", "allow_groups", "EACCES"),
            ("takes capabilities", "take_capabilities", "EPERM"),
            ("takes an ambient capability", "take_an_ambient_capability", "EPERM"),
            ("allows itself new privileges", "allow_new_privileges", "EINVAL"),
            ("allows user namespaces", "set /proc/sys/user/max_user_namespaces", "EACCES"),
        ])
        .await;
    world.end().await;
}
