/* Rarely used parts of the kernel, and the machine as a whole. */

static outcome add_a_key(const char *_) {
    return of(syscall(SYS_add_key, "user", "k", "v", 1, -3 /* session keyring */));
}

static outcome read_keys(const char *_) {
    return of(syscall(SYS_keyctl, 11 /* KEYCTL_READ */, -3, 0, 0, 0));
}

/* Types into a terminal, which is this process's own. */
static outcome type_into_a_terminal(const char *_) {
    int master, slave;
    if (openpty(&master, &slave, NULL, NULL, NULL) == -1) return "no terminal";
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    return of(ioctl(slave, TIOCSTI, "x"));
}

static outcome paste_into_a_terminal(const char *_) {
    int master, slave;
    char paste = 3;
    if (openpty(&master, &slave, NULL, NULL, NULL) == -1) return "no terminal";
    return of(ioctl(slave, 0x541c /* TIOCLINUX */, &paste));
}

/* The driver of a modem's many channels, which any terminal could once be given. */
static outcome load_a_driver_behind_a_terminal(const char *_) {
    int master, slave, driver = 21 /* N_GSM0710 */;
    if (openpty(&master, &slave, NULL, NULL, NULL) == -1) return "no terminal";
    return of(ioctl(slave, TIOCSETD, &driver));
}

/* Where standard input is a terminal of the server's. */
static outcome type_into_the_server_s_terminal(const char *_) { return of(ioctl(0, TIOCSTI, "x")); }

static outcome become_the_console(const char *_) { return of(ioctl(0, TIOCCONS)); }

static outcome ring(const char *_) {
    char parameters[256] = {0};
    return of(syscall(SYS_io_uring_setup, 1, parameters));
}

/* Counted for the whole machine by `fs.aio-max-nr`. */
static outcome asynchronous_events(const char *_) {
    unsigned long context = 0;
    return of(syscall(SYS_io_setup, 30000, &context));
}

static outcome program_at(int option) {
    struct sock_filter all = {BPF_RET | BPF_K, 0, 0, 0xffff};
    struct sock_fprog program = {1, &all};
    int to = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(to, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    return of(setsockopt(to, SOL_SOCKET, option, &program, sizeof program));
}

static outcome packet_program(const char *_) { return program_at(SO_ATTACH_FILTER); }

static outcome sharing_program(const char *_) { return program_at(SO_ATTACH_REUSEPORT_CBPF); }

static outcome connection_key(const char *_) {
    struct tcp_md5sig key = {.tcpm_keylen = 1, .tcpm_key = "k"};
    ((struct sockaddr_in *)&key.tcpm_addr)->sin_family = AF_INET;
    return of(setsockopt(socket(AF_INET, SOCK_STREAM, 0), IPPROTO_TCP, TCP_MD5SIG, &key, sizeof key));
}

static outcome secret_memory(const char *_) { return of(syscall(447 /* memfd_secret */, 0)); }

static outcome fixed_addresses(const char *_) { return of(personality(ADDR_NO_RANDOMIZE)); }

static outcome handle_faults(const char *_) { return of(syscall(SYS_userfaultfd, 1)); }

static outcome load_a_program(const char *_) {
    char what[128] = {1};
    return of(syscall(SYS_bpf, 5, what, sizeof what));
}

static outcome count_events(const char *_) {
    char what[128] = {1};
    what[4] = sizeof what;
    return of(syscall(SYS_perf_event_open, what, 0, -1, -1, 0));
}

static outcome watch_a_file_system(const char *_) { return of(syscall(SYS_fanotify_init, 0, 0)); }

static outcome load_a_module(const char *_) { return of(syscall(SYS_init_module, "x", 1, "")); }

static outcome load_a_kernel(const char *_) { return of(syscall(SYS_kexec_load, 0, 0, 0, 0)); }

static outcome restart(const char *_) {
    return of(syscall(SYS_reboot, 0xfee1dead, 672274793, 0 /* CAD off */, 0));
}

static outcome read_the_log(const char *_) {
    char line[64];
    return of(syscall(SYS_syslog, 3, line, sizeof line));
}

static outcome swap(const char *_) { return of(syscall(SYS_swapoff, "/none")); }

static outcome account(const char *_) { return of(syscall(SYS_acct, NULL)); }

static outcome quota(const char *_) { return of(syscall(SYS_quotactl, 0, "/", 0, 0)); }

static outcome set_the_clock(const char *_) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return of(clock_settime(CLOCK_REALTIME, &now));
}

static outcome bend_the_clock(const char *_) {
    struct timex none = {.modes = ADJ_TICK, .tick = 10000};
    return of(adjtimex(&none));
}

static outcome rename_the_host(const char *_) { return of(sethostname("other", 5)); }

static outcome before_everyone(const char *_) { return of(setpriority(PRIO_PROCESS, 0, -20)); }

static outcome in_real_time(const char *_) {
    struct sched_param first = {.sched_priority = 99};
    return of(sched_setscheduler(0, SCHED_FIFO, &first));
}

static outcome disk_in_real_time(const char *_) {
    return of(syscall(SYS_ioprio_set, 1, 0, 1 << 13 /* realtime */));
}

static outcome survive_want_of_memory(const char *_) {
    return write_to("/proc/self/oom_score_adj", "-1");
}

static outcome write_argument_s_setting(const char *path) { return write_to(path, "1"); }

#ifdef __x86_64__
static outcome ports(const char *_) { return of(syscall(SYS_ioperm, 0x80, 1, 1)); }

static outcome all_ports(const char *_) { return of(syscall(SYS_iopl, 3)); }

static outcome segments(const char *_) {
    char entry[16] = {0};
    return of(syscall(SYS_modify_ldt, 0, entry, sizeof entry));
}

static outcome call_of_x32(const char *_) { return of(syscall(0x40000000 | 39)); }

/* `getpid` of 32-bit programs. */
static outcome call_of_32_bits(const char *_) {
    long result;
    fflush(stdout);
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
    return "done";
}
#endif

static outcome call_that_is_too_new(const char *_) { return of(syscall(470, 0, 0, 0)); }

static const struct attempt KERNEL[] = {
    {"add_a_key", add_a_key},
    {"read_keys", read_keys},
    {"type_into_a_terminal", type_into_a_terminal},
    {"paste_into_a_terminal", paste_into_a_terminal},
    {"load_a_driver_behind_a_terminal", load_a_driver_behind_a_terminal},
    {"type_into_the_server_s_terminal", type_into_the_server_s_terminal},
    {"become_the_console", become_the_console},
    {"ring", ring},
    {"asynchronous_events", asynchronous_events},
    {"packet_program", packet_program},
    {"sharing_program", sharing_program},
    {"connection_key", connection_key},
    {"secret_memory", secret_memory},
    {"fixed_addresses", fixed_addresses},
    {"handle_faults", handle_faults},
    {"load_a_program", load_a_program},
    {"count_events", count_events},
    {"watch_a_file_system", watch_a_file_system},
    {"load_a_module", load_a_module},
    {"load_a_kernel", load_a_kernel},
    {"restart", restart},
    {"read_the_log", read_the_log},
    {"swap", swap},
    {"account", account},
    {"quota", quota},
    {"set_the_clock", set_the_clock},
    {"bend_the_clock", bend_the_clock},
    {"rename_the_host", rename_the_host},
    {"before_everyone", before_everyone},
    {"in_real_time", in_real_time},
    {"disk_in_real_time", disk_in_real_time},
    {"survive_want_of_memory", survive_want_of_memory},
    {"set", write_argument_s_setting},
#ifdef __x86_64__
    {"ports", ports},
    {"all_ports", all_ports},
    {"segments", segments},
    {"call_of_x32", call_of_x32},
    {"call_of_32_bits", call_of_32_bits},
#endif
    {"call_that_is_too_new", call_that_is_too_new},
    {NULL, NULL},
};
