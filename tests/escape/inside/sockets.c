/* Sockets of the host, families that are not needed, and changes to the network. */

/* The argument is the name of an abstract socket. */
static outcome abstract_socket(const char *name) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path + 1, name, sizeof to.sun_path - 2);
    socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    return of(connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&to, len));
}

/* The argument is `address port`. */
static outcome connect_to(const char *where) {
    char address[64];
    int port;
    if (sscanf(where, "%63s %d", address, &port) != 2) return "no address";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &to.sin_addr);
    return of(connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&to, sizeof to));
}

/* The argument is the number of a family. */
static outcome family(const char *number) { return of(socket(atoi(number), SOCK_DGRAM, 0)); }

/* The argument is the number of a protocol. */
static outcome protocol(const char *number) {
    return of(socket(AF_INET, SOCK_STREAM, atoi(number)));
}

/* The same. */
static outcome netlink(const char *number) {
    return of(socket(AF_NETLINK, SOCK_RAW, atoi(number)));
}

static outcome raw(const char *_) { return of(socket(AF_INET, SOCK_RAW, IPPROTO_RAW)); }

static outcome raw_6(const char *_) { return of(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)); }

static outcome low_port(const char *_) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(80)};
    return of(bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&at, sizeof at));
}

/* A new interface, by netlink; what counts is what the kernel answers. */
static outcome new_interface(const char *_) {
    struct { struct nlmsghdr head; struct ifinfomsg about; } ask = {
        {sizeof ask, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK, 1, 0}, {0}};
    struct { struct nlmsghdr head; struct nlmsgerr error; char rest[512]; } answer;
    int netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    if (send(netlink, &ask, sizeof ask, 0) == -1) return of(-1);
    if (recv(netlink, &answer, sizeof answer, 0) == -1) return of(-1);
    errno = -answer.error.error;
    return errno ? of(-1) : "done";
}

static outcome lower_loopback(const char *_) {
    struct ifreq request = {.ifr_name = "lo"};
    return of(ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &request));
}

static outcome audit(const char *_) {
    struct nlmsghdr ask = {sizeof ask, 1005 /* AUDIT_USER */, NLM_F_REQUEST | NLM_F_ACK, 1, 0};
    struct { struct nlmsghdr head; struct nlmsgerr error; char rest[512]; } answer;
    int netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT);
    if (netlink == -1 || send(netlink, &ask, sizeof ask, 0) == -1) return of(-1);
    if (recv(netlink, &answer, sizeof answer, 0) == -1) return of(-1);
    errno = -answer.error.error;
    return errno ? of(-1) : "done";
}

/* Credentials of another, beside a message. */
static outcome forge_credentials(const char *_) {
    int pair[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    char space[CMSG_SPACE(sizeof(struct ucred))] = {0};
    struct iovec byte = {"x", 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = space,
        .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){CMSG_LEN(sizeof(struct ucred)), SOL_SOCKET, SCM_CREDENTIALS};
    *(struct ucred *)CMSG_DATA(head) = (struct ucred){1, 1000, 1000};
    return of(sendmsg(pair[0], &message, 0));
}

static const struct attempt SOCKETS[] = {
    {"abstract_socket", abstract_socket},
    {"connect", connect_to},
    {"family", family},
    {"protocol", protocol},
    {"netlink", netlink},
    {"raw", raw},
    {"raw_6", raw_6},
    {"low_port", low_port},
    {"new_interface", new_interface},
    {"lower_loopback", lower_loopback},
    {"audit", audit},
    {"forge_credentials", forge_credentials},
    {NULL, NULL},
};
