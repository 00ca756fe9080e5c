/* PID 1, other processes, and what they hold. */

static outcome trace_pid_1(const char *_) { return of(ptrace(PTRACE_ATTACH, 1, 0, 0)); }

static outcome seize_pid_1(const char *_) { return of(ptrace(PTRACE_SEIZE, 1, 0, 0)); }

static outcome trace_a_sibling(const char *_) {
    pid_t child = sibling();
    outcome result = of(ptrace(PTRACE_SEIZE, child, 0, 0));
    kill(child, SIGKILL);
    return result;
}

static outcome read_memory_of_pid_1(const char *_) {
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
    return of(process_vm_readv(1, &here, 1, &there, 1, 0));
}

static outcome write_memory_of_pid_1(const char *_) {
    char byte = 0;
    struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
    return of(process_vm_writev(1, &here, 1, &there, 1, 0));
}

static outcome compare_with_pid_1(const char *_) {
    return of(syscall(SYS_kcmp, getpid(), 1, 1 /* KCMP_VM */, 0, 0));
}

/* PID 1's socket to the server is among its first descriptors. */
static outcome take_a_descriptor_of_pid_1(const char *_) {
    int pid_1 = syscall(SYS_pidfd_open, 1, 0);
    if (pid_1 == -1) return "no pidfd";
    for (int fd = 0; fd < 16; fd++)
        if (syscall(SYS_pidfd_getfd, pid_1, fd, 0) != -1 || errno != EPERM) return of(-1);
    return of(-1);
}

static outcome open_a_descriptor_of_pid_1(const char *_) {
    char path[64];
    for (int fd = 0; fd < 16; fd++) {
        snprintf(path, sizeof path, "/proc/1/fd/%d", fd);
        if (open(path, O_RDWR) != -1 || errno != EACCES) return of(-1);
    }
    return of(-1);
}

static outcome advise_pid_1(const char *_) {
    struct iovec there = {(void *)0x400000, 4096};
    return of(syscall(SYS_process_madvise, syscall(SYS_pidfd_open, 1, 0), &there, 1, MADV_COLD, 0));
}

static outcome move_pages_of_pid_1(const char *_) {
    void *page = (void *)0x400000;
    int node = 0, status;
    return of(syscall(SYS_move_pages, 1, 1, &page, &node, &status, 0));
}

/* Limits of its own could keep PID 1 from its work, or have the kernel kill it. */
static outcome limit_pid_1(const char *_) {
    struct rlimit none = {0, 0};
    outcome result = of(prlimit(1, RLIMIT_NOFILE, &none, NULL));
    return strcmp(result, "done") == 0 ? of(prlimit(1, RLIMIT_CPU, &none, NULL)) : result;
}

/* It is of the same user: who does so slows down its own sandbox, and no one else. */
static outcome slow_pid_1(const char *_) { return of(setpriority(PRIO_PROCESS, 1, 19)); }

/* Each signal there is, by each way of sending one. */
static outcome signal_pid_1(const char *_) {
    int pid_1 = syscall(SYS_pidfd_open, 1, 0);
    for (int signal = 1; signal < 65; signal++) {
        kill(1, signal);
        syscall(SYS_tgkill, 1, 1, signal);
        syscall(SYS_pidfd_send_signal, pid_1, signal, NULL, 0);
        siginfo_t forged = {.si_code = SI_QUEUE, .si_signo = signal};
        syscall(SYS_rt_sigqueueinfo, 1, signal, &forged);
    }
    return of(kill(1, 0));
}

static outcome signal_everyone(const char *_) {
    sibling();
    return of(kill(-1, SIGKILL));
}

/* The argument is a process of the host. */
static outcome signal_argument(const char *pid) { return of(kill(atoi(pid), SIGKILL)); }

static outcome stop_pid_1(const char *_) {
    return of(syscall(SYS_pidfd_send_signal, open("/proc/1", O_RDONLY | O_DIRECTORY), SIGSTOP,
        NULL, 0));
}

/* A command that executes PID 1's own program by its link in /proc, as a `#!` line or a link in the
 * workspace can have it done, is dumpable then. Waits for one and takes its program's file. */
static int program_of_pid_1(void) {
    for (time_t end = time(NULL) + 30; time(NULL) < end;) {
        DIR *all = opendir("/proc");
        for (struct dirent *entry; (entry = readdir(all));) {
            char path[300], command[16] = "";
            snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
            int fd = open(path, O_RDONLY);
            if (fd == -1) continue;
            ssize_t got = read(fd, command, sizeof command - 1);
            close(fd);
            if (got <= 0 || strcmp(command, "/proc/self/exe") != 0) continue;
            snprintf(path, sizeof path, "/proc/%s/exe", entry->d_name);
            fd = open(path, O_RDONLY);
            if (fd != -1) return closedir(all), fd;
        }
        closedir(all);
    }
    return -1;
}

static outcome change_the_program_of_pid_1(const char *_) {
    static char found[256];
    int program = program_of_pid_1();
    if (program == -1) return "it never ran";
    snprintf(found, sizeof found, "%s ", of(fchmod(program, 04777)));
    strcat(found, of(fsetxattr(program, "user.changed", "1", 1, 0)));
    strcat(found, " ");
    strcat(found, of(futimens(program, NULL)));
    return found;
}

static outcome open_descriptors(const char *_) {
    static char found[256];
    for (int fd = 0; fd < 70000; fd++)
        if (fcntl(fd, F_GETFD) != -1)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%d ", fd);
    return found;
}

static outcome environment(const char *_) {
    extern char **environ;
    static char found[4096];
    for (char **entry = environ; *entry; entry++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%.*s ",
            (int)strcspn(*entry, "="), *entry);
    return found;
}

static outcome controlling_terminal(const char *_) { return open_for("/dev/tty", O_RDWR); }

static const struct attempt PROCESSES[] = {
    {"trace_pid_1", trace_pid_1},
    {"seize_pid_1", seize_pid_1},
    {"trace_a_sibling", trace_a_sibling},
    {"read_memory_of_pid_1", read_memory_of_pid_1},
    {"write_memory_of_pid_1", write_memory_of_pid_1},
    {"compare_with_pid_1", compare_with_pid_1},
    {"take_a_descriptor_of_pid_1", take_a_descriptor_of_pid_1},
    {"open_a_descriptor_of_pid_1", open_a_descriptor_of_pid_1},
    {"advise_pid_1", advise_pid_1},
    {"move_pages_of_pid_1", move_pages_of_pid_1},
    {"limit_pid_1", limit_pid_1},
    {"slow_pid_1", slow_pid_1},
    {"signal_pid_1", signal_pid_1},
    {"signal_everyone", signal_everyone},
    {"signal", signal_argument},
    {"stop_pid_1_by_its_directory", stop_pid_1},
    {"change_the_program_of_pid_1", change_the_program_of_pid_1},
    {"open_descriptors", open_descriptors},
    {"environment", environment},
    {"controlling_terminal", controlling_terminal},
    {NULL, NULL},
};
