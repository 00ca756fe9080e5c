/* Namespaces: new ones, in which there would be capabilities again, and those of others. */

/* The argument is the number of the CLONE_NEW flag. */
static outcome leave_by_unshare(const char *flag) { return of(unshare(strtol(flag, NULL, 0))); }

static outcome leave_by_clone(const char *flag) {
    long child = syscall(SYS_clone, strtol(flag, NULL, 0) | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return of(child);
}

static outcome leave_by_clone3(const char *_) {
    struct { unsigned long long flags, unused[10]; } what = {CLONE_NEWUSER, {0}};
    long child = syscall(SYS_clone3, &what, sizeof what);
    if (child == 0) _exit(0);
    return of(child);
}

static outcome enter_own(const char *_) {
    return of(setns(open("/proc/self/ns/user", O_RDONLY), CLONE_NEWUSER));
}

static outcome enter_by_process(const char *_) {
    int pid_1 = syscall(SYS_pidfd_open, 1, 0);
    return of(setns(pid_1, CLONE_NEWNS | CLONE_NEWUSER));
}

/* The parent of the user namespace, which its owner may ask for. */
static outcome parent_namespace(const char *_) {
    return of(ioctl(open("/proc/self/ns/user", O_RDONLY), 0xb702 /* NS_GET_PARENT */));
}

static outcome become_root(const char *_) { return of(setuid(0)); }

static outcome take_groups(const char *_) {
    gid_t root = 0;
    return of(syscall(SYS_setgroups, 1, &root));
}

static outcome map_root(const char *_) { return write_to("/proc/self/uid_map", "0 0 1"); }

static outcome allow_groups(const char *_) { return write_to("/proc/self/setgroups", "allow"); }

static outcome take_capabilities(const char *_) {
    struct { unsigned version; int pid; } head = {0x20080522, 0};
    unsigned all[6] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
    return of(syscall(SYS_capset, &head, all));
}

static outcome take_an_ambient_capability(const char *_) {
    return of(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21 /* CAP_SYS_ADMIN */, 0, 0));
}

static outcome allow_new_privileges(const char *_) {
    return of(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
}

static const struct attempt NAMESPACES[] = {
    {"leave_by_unshare", leave_by_unshare},
    {"leave_by_clone", leave_by_clone},
    {"leave_by_clone3", leave_by_clone3},
    {"enter_own", enter_own},
    {"enter_by_process", enter_by_process},
    {"parent_namespace", parent_namespace},
    {"become_root", become_root},
    {"take_groups", take_groups},
    {"map_root", map_root},
    {"allow_groups", allow_groups},
    {"take_capabilities", take_capabilities},
    {"take_an_ambient_capability", take_an_ambient_capability},
    {"allow_new_privileges", allow_new_privileges},
    {NULL, NULL},
};
