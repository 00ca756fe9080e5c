/* The hostile program: makes the attempt that its first argument names and says what came of it.
 *
 * It is put into a sandbox's workspace and run there. What it says is one word: the name of the
 * error that refused it, or what it got. Each file beside this one holds attempts of one kind.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

typedef const char *outcome;

struct attempt {
    const char *name;
    outcome (*make)(const char *argument);
};

/* What a call came to: "done", or the name of its error. */
static outcome of(long result) {
    return result == -1 ? strerrorname_np(errno) : "done";
}

static outcome say_number(long number) {
    static char text[32];
    snprintf(text, sizeof text, "%ld", number);
    return text;
}

static outcome open_for(const char *path, int flags) {
    return of(open(path, flags | O_CLOEXEC, 0600));
}

static outcome write_to(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    return of(fd == -1 ? -1 : write(fd, text, strlen(text)));
}

/* A child that waits to be looked into or killed. */
static pid_t sibling(void) {
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    return child;
}

#include "exhaustion.c"
#include "counters.c"
#include "files.c"
#include "kernel.c"
#include "mounts.c"
#include "namespaces.c"
#include "processes.c"
#include "sockets.c"

static const struct attempt *const ALL[] = {
    COUNTERS, EXHAUSTION, FILES, KERNEL, MOUNTS, NAMESPACES, PROCESSES, SOCKETS,
};

int main(int count, char **arguments) {
    for (size_t group = 0; count > 1 && group < sizeof ALL / sizeof *ALL; group++) {
        for (const struct attempt *attempt = ALL[group]; attempt->name; attempt++) {
            if (strcmp(attempt->name, arguments[1]) == 0) {
                printf("%s", attempt->make(count > 2 ? arguments[2] : ""));
                return 0;
            }
        }
    }
    fprintf(stderr, "there is no such attempt\n");
    return 2;
}
