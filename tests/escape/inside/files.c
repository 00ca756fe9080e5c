/* Files of the host and of PID 1, and what would lend the rights of another. */

static outcome above_the_root(const char *_) {
    return open_for("/../../../../../../etc/shadow", O_RDONLY);
}

/* Up from the working directory until nothing changes, which must be this sandbox's own root. */
static outcome up_from_the_workspace(const char *_) {
    struct stat here, root;
    for (int level = 0; level < 100; level++)
        if (chdir("..") == -1) return of(-1);
    if (stat(".", &here) == -1 || stat("/", &root) == -1) return of(-1);
    return here.st_ino == root.st_ino && here.st_dev == root.st_dev ? "its own root" : "elsewhere";
}

static outcome open_argument(const char *path) { return open_for(path, O_RDONLY); }

static outcome write_argument(const char *path) { return open_for(path, O_WRONLY); }

static outcome create_argument(const char *path) {
    return open_for(path, O_WRONLY | O_CREAT | O_EXCL);
}

static outcome list_argument(const char *path) { return opendir(path) ? "done" : of(-1); }

static outcome read_link_argument(const char *path) {
    char target[64];
    return of(readlink(path, target, sizeof target));
}

static outcome make_device(const char *_) { return of(mknod("device", S_IFCHR | 0666, 0x103)); }

static outcome make_block_device(const char *_) {
    return of(mknod("block", S_IFBLK | 0666, 0xfe00));
}

static outcome hard_link_to_a_program(const char *_) { return of(link("/usr/bin/env", "linked")); }

/* By the descriptor, past the path. */
static outcome hard_link_to_a_descriptor(const char *_) {
    int fd = open("/usr/bin/env", O_PATH);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return of(linkat(AT_FDCWD, path, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
}

/* A descriptor that was opened for reading, opened again for writing. */
static outcome reopen_a_program_for_writing(const char *_) {
    int fd = open("/usr/bin/env", O_RDONLY);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open_for(path, O_WRONLY);
}

static outcome by_file_handle(const char *_) {
    struct file_handle handle = {.handle_bytes = 0};
    int mount;
    return of(name_to_handle_at(AT_FDCWD, "/usr", &handle, &mount, 0));
}

static outcome open_file_handle(const char *_) {
    struct { struct file_handle handle; char inode[8]; } root = {{.handle_bytes = 8,
        .handle_type = 1}, {2}};
    return of(open_by_handle_at(open("/usr", O_RDONLY), &root.handle, O_RDONLY));
}

static outcome give_to_root(const char *_) {
    close(open("given", O_CREAT | O_WRONLY, 0600));
    return of(chown("given", 0, -1));
}

static outcome give_capabilities(const char *_) {
    /* VFS_CAP_REVISION_2 with the effective bit, everything permitted. */
    static const unsigned all[5] = {0x02000001, ~0u, 0, ~0u, 0};
    close(open("capable", O_CREAT | O_WRONLY, 0700));
    return of(setxattr("capable", "security.capability", all, sizeof all, 0));
}

static outcome effective_user(const char *_) { return say_number(geteuid()); }

/* A copy of this program, owned by who runs it and set-uid, run by its own name. */
static outcome set_uid_copy(const char *_) {
    if (system("cp escape copy && chmod 6755 copy") != 0) return "not copied";
    execl("./copy", "copy", "effective_user", (char *)NULL);
    return of(-1);
}

static const struct attempt FILES[] = {
    {"above_the_root", above_the_root},
    {"up_from_the_workspace", up_from_the_workspace},
    {"open", open_argument},
    {"write", write_argument},
    {"create", create_argument},
    {"list", list_argument},
    {"read_link", read_link_argument},
    {"make_device", make_device},
    {"make_block_device", make_block_device},
    {"hard_link_to_a_program", hard_link_to_a_program},
    {"hard_link_to_a_descriptor", hard_link_to_a_descriptor},
    {"reopen_a_program_for_writing", reopen_a_program_for_writing},
    {"by_file_handle", by_file_handle},
    {"open_file_handle", open_file_handle},
    {"give_to_root", give_to_root},
    {"give_capabilities", give_capabilities},
    {"effective_user", effective_user},
    {"set_uid_copy", set_uid_copy},
    {NULL, NULL},
};
