/* The shape of the file system, by the old calls and the new. */

static outcome mount_tmpfs(const char *_) { return of(mount("none", "/tmp", "tmpfs", 0, NULL)); }

static outcome mount_proc(const char *_) { return of(mount("none", "/tmp", "proc", 0, NULL)); }

static outcome mount_cgroups(const char *_) { return of(mount("none", "/tmp", "cgroup2", 0, NULL)); }

static outcome remount_programs_writable(const char *_) {
    return of(mount("none", "/usr", NULL, MS_REMOUNT | MS_BIND, NULL));
}

static outcome make_mounts_shared(const char *_) {
    return of(mount("none", "/", NULL, MS_SHARED | MS_REC, NULL));
}

static outcome bind_the_root(const char *_) {
    return of(mount("/", "/tmp", NULL, MS_BIND | MS_REC, NULL));
}

static outcome unmount_proc(const char *_) { return of(umount2("/proc", MNT_DETACH)); }

static outcome unmount_root(const char *_) { return of(umount2("/", MNT_DETACH)); }

static outcome pivot(const char *_) { return of(syscall(SYS_pivot_root, "/tmp", "/tmp")); }

static outcome change_root(const char *_) { return of(chroot("/tmp")); }

static outcome clone_a_tree(const char *_) {
    return of(syscall(SYS_open_tree, AT_FDCWD, "/usr", 1 /* OPEN_TREE_CLONE */));
}

static outcome move_a_mount(const char *_) {
    return of(syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0));
}

static outcome open_a_file_system(const char *_) { return of(syscall(SYS_fsopen, "tmpfs", 0)); }

static outcome pick_a_mount(const char *_) { return of(syscall(SYS_fspick, AT_FDCWD, "/usr", 0)); }

static outcome clear_read_only(const char *_) {
    struct { unsigned long long set, clear, propagation, user; } change = {0, 1, 0, 0};
    return of(syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, &change, sizeof change));
}

static const struct attempt MOUNTS[] = {
    {"mount_tmpfs", mount_tmpfs},
    {"mount_proc", mount_proc},
    {"mount_cgroups", mount_cgroups},
    {"remount_programs_writable", remount_programs_writable},
    {"make_mounts_shared", make_mounts_shared},
    {"bind_the_root", bind_the_root},
    {"unmount_proc", unmount_proc},
    {"unmount_root", unmount_root},
    {"pivot", pivot},
    {"change_root", change_root},
    {"clone_a_tree", clone_a_tree},
    {"move_a_mount", move_a_mount},
    {"open_a_file_system", open_a_file_system},
    {"pick_a_mount", pick_a_mount},
    {"clear_read_only", clear_read_only},
    {NULL, NULL},
};
