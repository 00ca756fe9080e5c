/* What the kernel counts for the whole machine, or in no group. What is taken is kept by a process
 * that outlives the attempt, so that others can be looked at meanwhile.
 */

static outcome kept_on(outcome result) {
    pid_t child = fork();
    if (child == 0) {
        for (int stream = 0; stream < 3; stream++) close(stream);
        pause();
        _exit(0);
    }
    return child == -1 ? of(-1) : result;
}

static int route(void) { return socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE); }

static outcome netlink_sockets(const char *_) {
    for (long count = 0;; count++)
        if (route() == -1) return kept_on(had(count, strerrorname_np(errno)));
}

/* None stays in this process: each is on its way to a receiver that never looks. */
static outcome netlink_sockets_on_their_way(const char *_) {
    int pair[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    for (long count = 0;; count++) {
        int socket = route();
        if (socket == -1) return kept_on(had(count, strerrorname_np(errno)));
        char space[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec byte = {"x", 1};
        struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = space,
            .msg_controllen = sizeof space};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        *(int *)CMSG_DATA(head) = socket;
        /* The queue of one pair is short. */
        if (sendmsg(pair[0], &message, MSG_DONTWAIT) == -1) {
            socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
            sendmsg(pair[0], &message, MSG_DONTWAIT);
        }
        close(socket);
    }
}

/* Many processes take what they can, all at once, and keep it. Says in how many `take` held. */
static outcome of_many(int (*take)(void)) {
    int said[2];
    if (pipe(said) == -1) return of(-1);
    for (int n = 0; n < 40; n++) {
        if (fork() != 0) continue;
        for (int stream = 0; stream < 3; stream++) close(stream);
        char got = take() ? 'y' : 'n';
        if (write(said[1], &got, 1) == 1) pause();
        _exit(0);
    }
    long count = 0;
    char got;
    for (int n = 0; n < 40; n++) count += read(said[0], &got, 1) == 1 && got == 'y';
    return had(count, "of 40");
}

static int takes_netlink(void) { return route() != -1; }

static outcome netlink_sockets_of_many(const char *_) { return of_many(takes_netlink); }

/* Until the process may have no more, not the machine. */
static int takes_files(void) {
    while (open("/dev/null", O_RDONLY) != -1) {}
    return errno == EMFILE;
}

static outcome files_of_many(const char *_) { return of_many(takes_files); }

static outcome interfaces(const char *_) {
    struct ifaddrs *all;
    if (getifaddrs(&all) == -1) return of(-1);
    return all ? all->ifa_name : "none";
}

/* How many bytes the kernel holds for a socket. */
static long held(int socket) {
    unsigned int info[16] = {0};
    socklen_t len = sizeof info;
    if (getsockopt(socket, SOL_SOCKET, 55 /* SO_MEMINFO */, info, &len) == -1) return 0;
    return info[0] /* received */ + (long)info[5] /* to be sent */;
}

static int connected(int kind, int ends[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    int wide = 4 << 20, listener = socket(AF_INET, kind, 0);
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &wide, sizeof wide);
    if (bind(listener, (struct sockaddr *)&at, len) == -1) return -1;
    if (kind == SOCK_STREAM) listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&at, &len);
    ends[0] = socket(AF_INET, kind, 0);
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &wide, sizeof wide);
    if (connect(ends[0], (struct sockaddr *)&at, len) == -1) return -1;
    ends[1] = kind == SOCK_STREAM ? accept(listener, NULL, NULL) : listener;
    return ends[1];
}

/* Fills connections that are never read; says how many MiB they hold, out of 400. */
static outcome connections(int kind) {
    static char full[32768];
    static int all[200];
    long sum = 0;
    for (int n = 0; n < 200 && sum < BYTES_MAX; n += 2) {
        if (connected(kind, all + n) == -1) return of(-1);
        fcntl(all[n], F_SETFL, O_NONBLOCK);
        /* What was sent moves over in a moment, and then there may be room for more. */
        for (int idle = 0; idle < 3; usleep(1000)) {
            long before = held(all[n]) + held(all[n + 1]);
            for (int times = 0; times < 300; times++)
                if (send(all[n], full, sizeof full, 0) == -1) break;
            idle = held(all[n]) + held(all[n + 1]) > before ? 0 : idle + 1;
        }
        sum = 0;
        for (int each = 0; each <= n + 1; each++) sum += held(all[each]);
    }
    return kept_on(had(sum >> 20, "MB"));
}

static outcome tcp_buffers(const char *_) { return connections(SOCK_STREAM); }

static outcome udp_buffers(const char *_) { return connections(SOCK_DGRAM); }

/* A megabyte over loopback. */
static outcome move_a_megabyte(const char *_) {
    static char part[65536];
    int ends[2];
    if (connected(SOCK_STREAM, ends) == -1) return of(-1);
    for (int n = 0; n < 16; n++) {
        if (send(ends[0], part, sizeof part, 0) != sizeof part) return of(-1);
        if (recv(ends[1], part, sizeof part, MSG_WAITALL) != sizeof part) return of(-1);
    }
    return "done";
}

static const struct attempt COUNTERS[] = {
    {"netlink_sockets", netlink_sockets},
    {"netlink_sockets_on_their_way", netlink_sockets_on_their_way},
    {"netlink_sockets_of_many", netlink_sockets_of_many},
    {"interfaces", interfaces},
    {"tcp_buffers", tcp_buffers},
    {"udp_buffers", udp_buffers},
    {"move_a_megabyte", move_a_megabyte},
    {"files_of_many", files_of_many},
    {NULL, NULL},
};
