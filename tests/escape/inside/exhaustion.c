/* Taking all there is of something. What is taken is kept until the attempt ends.
 *
 * Where it says a number first, so many were had before the error.
 */

static char text[96];

static outcome had(long count, const char *error) {
    snprintf(text, sizeof text, "%ld %s", count, error);
    return text;
}

/* Far more than any limit that a test sets, far less than would hurt a machine without one. */
enum { BYTES_MAX = 400 << 20, PIECE = 1 << 20, BUFFERS_MAX = 1900 };

static outcome fill(int fd) {
    static char piece[PIECE];
    memset(piece, 1, sizeof piece);
    for (long got = 0; got < BYTES_MAX; got += PIECE)
        if (write(fd, piece, sizeof piece) < PIECE) {
            long error = errno;
            return had(got >> 20, strerrorname_np(error ? error : ENOSPC));
        }
    return had(BYTES_MAX >> 20, "done");
}

static outcome touch(void *memory) {
    if (memory == MAP_FAILED) return of(-1);
    for (long at = 0; at < BYTES_MAX; at += 4096) ((volatile char *)memory)[at] = 1;
    return "done";
}

static outcome private_memory(const char *_) {
    return touch(mmap(NULL, BYTES_MAX, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static outcome shared_memory(const char *_) {
    return touch(mmap(NULL, BYTES_MAX, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

static outcome memory_files(const char *_) {
    /* One file may be no longer than the disk. */
    for (long count = 0; count < 40; count++) {
        int fd = memfd_create("hog", 0);
        static char piece[PIECE];
        memset(piece, 1, sizeof piece);
        for (int n = 0; n < 10; n++)
            if (write(fd, piece, sizeof piece) < 0) return of(-1);
    }
    return "done";
}

static outcome old_shared_memory(const char *_) {
    int id = shmget(IPC_PRIVATE, BYTES_MAX, 0600);
    return id == -1 ? of(-1) : touch(shmat(id, NULL, 0));
}

/* The argument is a directory: files of ten pieces each. */
static outcome fill_a_place(const char *directory) {
    static char piece[PIECE], path[256];
    memset(piece, 1, sizeof piece);
    for (long got = 0; got < BYTES_MAX >> 20; got++) {
        snprintf(path, sizeof path, "%s/fill-%ld", directory, got / 10);
        int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
        if (fd == -1 || write(fd, piece, sizeof piece) < PIECE)
            return had(got, strerrorname_np(errno ? errno : ENOSPC));
        close(fd);
    }
    return had(BYTES_MAX >> 20, "done");
}

/* The same file over and over: only the page cache fills, and gives way. */
static outcome page_cache(const char *_) {
    static char piece[PIECE];
    for (long got = 0; got < BYTES_MAX >> 20; got++) {
        if (got % 10 == 0) close(open("cached", O_CREAT | O_WRONLY | O_TRUNC, 0600));
        int fd = open("cached", O_WRONLY | O_APPEND);
        if (write(fd, piece, sizeof piece) < PIECE) return had(got, strerrorname_np(errno));
        close(fd);
    }
    return "done";
}

static outcome one_long_file(const char *_) {
    signal(SIGXFSZ, SIG_IGN);
    return fill(open("long", O_CREAT | O_WRONLY | O_TRUNC, 0600));
}

/* The argument is a directory. */
static outcome many_files(const char *directory) {
    char path[256];
    for (long count = 0; count < 20000; count++) {
        snprintf(path, sizeof path, "%s/n%ld", directory, count);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        if (fd == -1) return strerrorname_np(errno);
        close(fd);
    }
    return "done";
}

static outcome processes(const char *_) {
    for (long count = 0;; count++)
        if (sibling() == -1) return had(count, strerrorname_np(errno));
}

/* Every child forks as well, and goes on. */
static outcome fork_bomb(const char *_) {
    if (fork() == 0) {
        fclose(stdout);
        for (;;) fork();
    }
    return "done";
}

static void *wait_for_ever(void *_) {
    pause();
    return NULL;
}

static outcome threads(const char *_) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (long count = 0;; count++) {
        pthread_t thread;
        int error = pthread_create(&thread, &small, wait_for_ever, NULL);
        if (error) return had(count, strerrorname_np(error));
    }
}

static outcome zombies(const char *_) {
    for (long count = 0;; count++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (child == -1) return had(count, strerrorname_np(errno));
    }
}

/* Children whose parents have gone are PID 1's to reap: this can go on for ever. */
static outcome orphans(const char *_) {
    for (int count = 0; count < 2000; count++) {
        pid_t child = vfork();
        if (child == -1) return had(count, strerrorname_np(errno));
        if (child == 0) _exit(fork() == -1);
        waitpid(child, NULL, 0);
    }
    return "done";
}

static outcome descriptors(const char *_) {
    for (long count = 3;; count++)
        if (dup(0) == -1) return strerrorname_np(errno);
}

/* Held by messages under way and by no descriptor table. */
static outcome descriptors_on_their_way(const char *_) {
    int pair[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    int wide = 1 << 20;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &wide, sizeof wide);
    for (long count = 0; count < 100000; count++) {
        char space[CMSG_SPACE(250 * sizeof(int))] = {0};
        struct iovec byte = {"x", 1};
        struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = space,
            .msg_controllen = sizeof space};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){CMSG_LEN(250 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        for (int n = 0; n < 250; n++) ((int *)CMSG_DATA(head))[n] = pair[1];
        if (sendmsg(pair[0], &message, MSG_DONTWAIT) == -1) {
            if (errno != EAGAIN) return strerrorname_np(errno);
            socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
        }
    }
    return "done";
}

/* Goes on holding what an attempt took, in a child that outlives it. */
static outcome kept(outcome result) {
    pid_t child = fork();
    if (child == 0) {
        for (int stream = 0; stream < 3; stream++) close(stream);
        pause();
        _exit(0);
    }
    return child == -1 ? of(-1) : result;
}

static outcome keep_descriptors_on_their_way(const char *_) {
    return kept(descriptors_on_their_way(""));
}

static outcome terminals(const char *_) {
    for (long count = 0;; count++)
        if (open("/dev/ptmx", O_RDWR | O_NOCTTY) == -1) return had(count, strerrorname_np(errno));
}

static outcome pipes(const char *_) {
    static char full[65536];
    for (long count = 0; count < BUFFERS_MAX; count++) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK) == -1) return strerrorname_np(errno);
        if (write(ends[1], full, sizeof full) == -1) return strerrorname_np(errno);
    }
    return "done";
}

static outcome socket_buffers(const char *_) {
    static char full[65536];
    for (long count = 0; count < BUFFERS_MAX; count++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == -1)
            return strerrorname_np(errno);
        while (write(pair[0], full, sizeof full) > 0) {}
    }
    return "done";
}

static outcome timers(const char *_) {
    for (long count = 0;; count++) {
        timer_t timer;
        if (timer_create(CLOCK_REALTIME, NULL, &timer) == -1) return strerrorname_np(errno);
    }
}

static outcome watches(const char *_) {
    for (long count = 0;; count++)
        if (inotify_init() == -1) return strerrorname_np(errno);
}

static outcome keep_watches(const char *_) { return kept(watches("")); }

static outcome watch(const char *_) {
    int fd = inotify_init();
    return of(fd == -1 ? -1 : inotify_add_watch(fd, "/workspace", IN_CREATE));
}

static outcome queues(const char *_) {
    char name[32];
    for (long count = 0;; count++) {
        snprintf(name, sizeof name, "/q%ld", count);
        if (mq_open(name, O_CREAT | O_RDWR, 0600, NULL) == -1) return strerrorname_np(errno);
    }
}

static outcome keep_queues(const char *_) { return kept(queues("")); }

static outcome queue(const char *_) {
    return of(mq_open("/one", O_CREAT | O_RDWR, 0600, NULL));
}

static outcome set_a_timer(const char *_) {
    timer_t timer;
    return of(timer_create(CLOCK_REALTIME, NULL, &timer));
}

/* A timer ends with its process, which therefore has to set them itself. */
static outcome keep_timers(const char *_) {
    int said[2];
    char end = 0;
    if (pipe(said) == -1) return of(-1);
    if (fork() == 0) {
        for (int stream = 0; stream < 3; stream++) close(stream);
        timers("");
        if (write(said[1], "!", 1) == 1) pause();
        _exit(0);
    }
    close(said[1]);
    return read(said[0], &end, 1) == 1 ? "EAGAIN" : "killed";
}

static outcome locked_memory(const char *_) {
    void *memory = mmap(NULL, BYTES_MAX, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? of(-1) : of(mlock(memory, BYTES_MAX));
}

static outcome long_arguments(const char *_) {
    static char text[130000];
    memset(text, 'a', sizeof text - 1);
    static char *arguments[2000];
    for (int n = 0; n < 1999; n++) arguments[n] = text;
    return of(execv("/bin/true", arguments));
}

/* Names as long as they may be, so deep that no path reaches the end, and closed. */
static outcome deep_tree(const char *_) {
    char name[256];
    memset(name, 'd', 255);
    name[255] = 0;
    for (int level = 0; level < 1000; level++) {
        if (mkdir(name, 0700) == -1 || chdir(name) == -1) return had(level, strerrorname_np(errno));
        close(open("closed", O_CREAT | O_WRONLY, 0));
        if (level % 100 == 99) chmod(".", 0500), chmod(".", 0700);
    }
    return of(chmod(".", 0));
}

static const struct attempt EXHAUSTION[] = {
    {"private_memory", private_memory},
    {"shared_memory", shared_memory},
    {"memory_files", memory_files},
    {"old_shared_memory", old_shared_memory},
    {"fill", fill_a_place},
    {"page_cache", page_cache},
    {"one_long_file", one_long_file},
    {"many_files", many_files},
    {"processes", processes},
    {"fork_bomb", fork_bomb},
    {"threads", threads},
    {"zombies", zombies},
    {"orphans", orphans},
    {"descriptors", descriptors},
    {"descriptors_on_their_way", descriptors_on_their_way},
    {"keep_descriptors_on_their_way", keep_descriptors_on_their_way},
    {"terminals", terminals},
    {"pipes", pipes},
    {"socket_buffers", socket_buffers},
    {"timers", timers},
    {"watches", watches},
    {"keep_watches", keep_watches},
    {"watch", watch},
    {"set_a_timer", set_a_timer},
    {"queue", queue},
    {"keep_timers", keep_timers},
    {"keep_queues", keep_queues},
    {"queues", queues},
    {"locked_memory", locked_memory},
    {"long_arguments", long_arguments},
    {"deep_tree", deep_tree},
    {NULL, NULL},
};
