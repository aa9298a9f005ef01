/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program is built from its end to its beginning: BPF jumps go forward only, so the target of a
 * jump is already there and its distance is known. From the end: the returns, the tests of
 * arguments, a binary tree over the call numbers, and the check of the architecture.
 */
#include "os/seccomp.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "os/seccomp_calls.h"

/* Missing in older kernel headers. */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif

#define ALL_NAMESPACES 0x7E020000U /* every CLONE_NEW* that clone takes */
#define IOC_VERITY     0x40806685U /* FS_IOC_ENABLE_VERITY: makes a file read-only for good */
#define IOC_ENCRYPTION 0x800C6613U /* FS_IOC_SET_ENCRYPTION_POLICY of a directory */
#define IOC_FAT_ATTRS  0x40047211U /* FAT_IOCTL_SET_ATTRIBUTES */
#define TYPE_MASK      0xFU        /* socket type without SOCK_CLOEXEC and SOCK_NONBLOCK */

#define CALL_LIMIT 512 /* above every call number in the table */

/* Jump targets. From LABEL_MAX on: inner nodes of the tree. */
enum label {
    ALLOW,
    REFUSE,     /* EPERM */
    TELL,       /* a notification if there is a listener, else EPERM */
    NO_SUCH,    /* ENOSYS */
    PRETEND,    /* returns 0 without making the call */
    BY_NUMBER,  /* the tree */
    TEST_FIRST, /* tests of arguments, as enum sp_syscall_test */
    TEST_UNSHARE_HIGH = TEST_FIRST + SP_TEST_MAX,
    TEST_INET_TYPE,
    TEST_UNIX_TYPE,
    TEST_NETLINK,
    TEST_SUBREAPER,
    TEST_LIMIT,
    TEST_LIMIT_NEW,
    TEST_LIMIT_NEW_HIGH,
    TEST_LIMIT_OLD,
    TEST_LIMIT_OLD_HIGH,
    LABEL_MAX,
};

struct maker {
    struct sp_filter *f;                 /* in reverse order until turn_around */
    unsigned at[LABEL_MAX + CALL_LIMIT]; /* index of the instruction of each label */
};

static unsigned put(struct maker *m, struct sock_filter code)
{
    assert(m->f->count < SP_FILTER_MAX);
    m->f->code[m->f->count] = code;
    return m->f->count++;
}

static unsigned put_return(struct maker *m, uint32_t action)
{
    return put(m, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static unsigned put_load(struct maker *m, size_t offset)
{
    return put(m, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* The jump offset from the next instruction to the label. */
static unsigned distance(const struct maker *m, unsigned label)
{
    return m->f->count - m->at[label] - 1;
}

static unsigned put_branch(struct maker *m, uint16_t op, uint32_t k, unsigned yes, unsigned no)
{
    assert(distance(m, yes) <= UINT8_MAX && distance(m, no) <= UINT8_MAX);
    return put(m, (struct sock_filter)BPF_JUMP(BPF_JMP | op | BPF_K, k, (uint8_t)distance(m, yes),
                                               (uint8_t)distance(m, no)));
}

/* ---- arguments ---- */

struct check {
    uint16_t op; /* BPF_JEQ, or BPF_JSET: any of these bits */
    uint32_t k;
    enum label then;
};

#define F_SETDELEG_NEW 1040 /* F_SETDELEG, Linux 6.19: leases on directories */
#define NO_MASK        UINT32_MAX
#define COUNT(array)   (sizeof(array) / sizeof(array)[0])

static size_t low_half(unsigned arg)
{
    return sp_syscall_low_half(arg);
}

static size_t high_half(unsigned arg)
{
    return low_half(arg) ^ 4; /* args are aligned to 8 */
}

/* Checks the word at `offset` in this order; the first check that holds decides. */
static void put_checks(struct maker *m, enum label label, size_t offset, uint32_t mask,
                       const struct check *checks, size_t count, enum label otherwise)
{
    unsigned next = otherwise;

    for (size_t i = count; i-- > 0; next = label)
        m->at[label] = put_branch(m, checks[i].op, checks[i].k, checks[i].then, next);
    if (mask != NO_MASK)
        (void)put(m, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    m->at[label] = put_load(m, offset);
}

/* The only check of a word, without a mask. */
static void put_check(struct maker *m, enum label label, size_t offset, struct check check,
                      enum label otherwise)
{
    put_checks(m, label, offset, NO_MASK, &check, 1, otherwise);
}

#define EQUALS(value, then)    ((struct check){BPF_JEQ, (value), (then)})
#define HAS_ANY_OF(bits, then) ((struct check){BPF_JSET, (bits), (then)})

static enum label label_of_test(enum sp_syscall_test test)
{
    return TEST_FIRST + (unsigned)test;
}

static void put_socket_tests(struct maker *m, enum sp_filter_net net)
{
    /* SOCK_PACKET: AF_PACKET through AF_INET, as of Linux 2.0. */
    static const struct check inet[] = {{BPF_JEQ, SOCK_RAW, TELL}, {BPF_JEQ, SOCK_PACKET, TELL}};
    /* A datagram socket, also one of a pair, can send to any address with sendmsg, whose argument a
     * filter cannot read: to every daemon of the user. SOCK_RAW means SOCK_DGRAM for AF_UNIX. */
    static const struct check local[] = {{BPF_JEQ, SOCK_DGRAM, REFUSE},
                                         {BPF_JEQ, SOCK_RAW, REFUSE}};
    static const struct check loopback[] = {
        {BPF_JEQ, AF_INET, TEST_INET_TYPE},  {BPF_JEQ, AF_INET6, TEST_INET_TYPE},
        {BPF_JEQ, AF_PACKET, TELL},          {BPF_JEQ, AF_VSOCK, TELL},
        {BPF_JEQ, AF_NETLINK, TEST_NETLINK},
    };
    static const struct check none[] = {
        {BPF_JEQ, AF_UNIX, TEST_UNIX_TYPE}, {BPF_JEQ, AF_INET, TELL},  {BPF_JEQ, AF_INET6, TELL},
        {BPF_JEQ, AF_PACKET, TELL},         {BPF_JEQ, AF_VSOCK, TELL},
    };
    const enum label label = label_of_test(SP_TEST_SOCKET);

    put_checks(m, TEST_UNIX_TYPE, low_half(1), TYPE_MASK, local, COUNT(local), ALLOW);
    put_check(m, label_of_test(SP_TEST_SOCKETPAIR), low_half(0), EQUALS(AF_UNIX, TEST_UNIX_TYPE),
              REFUSE);
    if (net == SP_FILTER_NONE) {
        put_checks(m, label, low_half(0), NO_MASK, none, COUNT(none), REFUSE);
        return;
    }
    put_checks(m, TEST_INET_TYPE, low_half(1), TYPE_MASK, inet, COUNT(inet), ALLOW);
    /* NETLINK_ROUTE is allowed: programs that list their addresses need it, and a network namespace
     * of its own has nothing to hide. */
    put_check(m, TEST_NETLINK, low_half(2), EQUALS(NETLINK_ROUTE, ALLOW), REFUSE);
    put_checks(m, label, low_half(0), NO_MASK, loopback, COUNT(loopback), REFUSE);
}

static void put_tests(struct maker *m, const struct sp_filter_options *o)
{
    static const struct check fcntls[] = {{BPF_JEQ, F_SETLEASE, REFUSE},
                                          {BPF_JEQ, F_SETDELEG_NEW, REFUSE}};
    static const struct check personalities[] = {{BPF_JEQ, 0, ALLOW}, {BPF_JEQ, ~0U, ALLOW}};
    static const struct check ioctls[] = {
        {BPF_JEQ, TIOCSTI, TELL},
        {BPF_JEQ, TIOCLINUX, TELL},
        {BPF_JEQ, (uint32_t)FS_IOC_SETFLAGS, REFUSE}, /* from here: denies_metadata alone */
        {BPF_JEQ, (uint32_t)FS_IOC_FSSETXATTR, REFUSE},
        {BPF_JEQ, IOC_VERITY, REFUSE},
        {BPF_JEQ, IOC_ENCRYPTION, REFUSE},
        {BPF_JEQ, IOC_FAT_ATTRS, REFUSE},
    };
    /* A list of allowed bits, because newer kernels give meanings to unused ones. */
    const uint32_t unshared =
        CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;

    put_checks(m, label_of_test(SP_TEST_PERSONALITY), low_half(0), NO_MASK, personalities,
               COUNT(personalities), REFUSE);
    put_check(m, TEST_SUBREAPER, low_half(1), EQUALS(0, REFUSE), ALLOW);
    put_check(m, label_of_test(SP_TEST_PRCTL), low_half(0),
              EQUALS(PR_SET_CHILD_SUBREAPER, TEST_SUBREAPER), ALLOW);
    put_checks(m, label_of_test(SP_TEST_FCNTL), low_half(1), NO_MASK, fcntls, COUNT(fcntls), ALLOW);
    /* RLIMIT_CORE cannot be changed, but read. Programs that handle secrets (gpg) set it to 0 and
     * give up if that fails, so setting it returns 0 without effect. A prlimit that also wants the
     * old value is refused, because the filter cannot write it. */
    put_check(m, TEST_LIMIT_OLD_HIGH, high_half(3), EQUALS(0, PRETEND), REFUSE);
    put_check(m, TEST_LIMIT_OLD, low_half(3), EQUALS(0, TEST_LIMIT_OLD_HIGH), REFUSE);
    put_check(m, TEST_LIMIT_NEW_HIGH, high_half(2), EQUALS(0, ALLOW), TEST_LIMIT_OLD);
    put_check(m, TEST_LIMIT_NEW, low_half(2), EQUALS(0, TEST_LIMIT_NEW_HIGH), TEST_LIMIT_OLD);
    put_check(m, TEST_LIMIT, low_half(1), EQUALS(RLIMIT_CORE, TEST_LIMIT_NEW), ALLOW);
    put_check(m, label_of_test(SP_TEST_PRLIMIT), low_half(0), EQUALS(0, TEST_LIMIT), REFUSE);
    put_check(m, label_of_test(SP_TEST_SETRLIMIT), low_half(0), EQUALS(RLIMIT_CORE, PRETEND),
              ALLOW);

    /* Of two filters that return USER_NOTIF, the newer one's listener decides. After our listener
     * is closed, a command could install its own and let every such call continue. */
    if (o->notifies)
        put_check(m, label_of_test(SP_TEST_SECCOMP), low_half(1),
                  HAS_ANY_OF(SECCOMP_FILTER_FLAG_NEW_LISTENER, REFUSE), ALLOW);
    put_check(m, label_of_test(SP_TEST_CONNECT), low_half(2), EQUALS(SP_FILTER_OWN_ADDRESS, ALLOW),
              TELL);
    put_check(m, label_of_test(SP_TEST_CLONE), low_half(0), HAS_ANY_OF(ALL_NAMESPACES, TELL),
              ALLOW);
    put_check(m, TEST_UNSHARE_HIGH, high_half(0), EQUALS(0, ALLOW), TELL);
    put_check(m, label_of_test(SP_TEST_UNSHARE), low_half(0), HAS_ANY_OF(~unshared, TELL),
              TEST_UNSHARE_HIGH);
    put_socket_tests(m, o->net);
    put_checks(m, label_of_test(SP_TEST_IOCTL), low_half(1), NO_MASK, ioctls,
               o->denies_metadata ? COUNT(ioctls) : 2, ALLOW);
}

/* ---- numbers ---- */

/* All calls from `first` up to the next span have this label. */
struct span {
    uint32_t first;
    unsigned label;
};

static bool is_active(const struct sp_syscall_rule *c, const struct sp_filter_options *o)
{
    switch (c->when) {
    case SP_WHEN_NO_NETWORK:
        return o->net == SP_FILTER_NONE;
    case SP_WHEN_NO_METADATA:
        return o->denies_metadata;
    case SP_WHEN_LISTENER:
        return o->notifies;
    case SP_WHEN_ALWAYS:
        break;
    }
    return true;
}

static enum label label_of_call(const struct sp_syscall_rule *c, const struct sp_filter_options *o)
{
    if (c->test != SP_TEST_NONE)
        return label_of_test(c->test);
    if (c->error == ENOSYS)
        return NO_SUCH;
    return c->is_telling && o->notifies ? TELL : REFUSE;
}

/* A tree over the spans [lo, hi). Returns the label of its root. */
static unsigned put_tree(struct maker *m, const struct span *spans, size_t lo, size_t hi)
{
    if (hi - lo == 1)
        return spans[lo].label;
    const size_t mid = lo + (hi - lo) / 2;
    const unsigned node = LABEL_MAX + (unsigned)mid; /* unique: each mid belongs to one node */
    const unsigned right = put_tree(m, spans, mid, hi);
    const unsigned left = put_tree(m, spans, lo, mid);

    m->at[node] = put_branch(m, BPF_JGE, spans[mid].first, right, left);
    return node;
}

static void turn_around(struct sp_filter *f)
{
    for (size_t i = 0, k = f->count; i + 1 < k; i++) {
        const struct sock_filter first = f->code[i];

        f->code[i] = f->code[--k];
        f->code[k] = first;
    }
}

void sp_filter_make(const struct sp_filter_options *o, struct sp_filter *ret)
{
    struct maker m = {.f = ret};
    uint8_t labels[CALL_LIMIT] = {0}; /* ALLOW; the last one stands for all higher numbers */
    struct span spans[CALL_LIMIT];
    size_t span_count = 1;

    for (size_t i = 0; i < sp_syscall_rule_count; i++) {
        if (sp_syscall_rules[i].nr < 0 || !is_active(&sp_syscall_rules[i], o))
            continue;
        assert(sp_syscall_rules[i].nr < CALL_LIMIT - 1);
        labels[sp_syscall_rules[i].nr] = (uint8_t)label_of_call(&sp_syscall_rules[i], o);
    }
    /* The listener allows it, and learns who connects where. */
    if (o->net == SP_FILTER_LOOPBACK && o->notifies)
        labels[SYS_connect] = (uint8_t)label_of_test(SP_TEST_CONNECT);
    spans[0] = (struct span){0, labels[0]};
    for (uint32_t nr = 1; nr < CALL_LIMIT; nr++)
        if (labels[nr] != labels[nr - 1])
            spans[span_count++] = (struct span){nr, labels[nr]};

    ret->count = 0;
    m.at[NO_SUCH] = put_return(&m, SECCOMP_RET_ERRNO | ENOSYS);
    m.at[PRETEND] = put_return(&m, SECCOMP_RET_ERRNO);
    m.at[REFUSE] = put_return(&m, SECCOMP_RET_ERRNO | EPERM);
    m.at[TELL] = o->notifies ? put_return(&m, SECCOMP_RET_USER_NOTIF) : m.at[REFUSE];
    m.at[ALLOW] = put_return(&m, SECCOMP_RET_ALLOW);
    put_tests(&m, o);
    const unsigned tree = put_tree(&m, spans, 0, span_count);
    /* ioctl first: the only frequent call that has a test. */
    m.at[BY_NUMBER] = put_branch(&m, BPF_JEQ, SYS_ioctl, label_of_test(SP_TEST_IOCTL), tree);
#ifdef SP_X32_FIRST
    m.at[BY_NUMBER] = put_branch(&m, BPF_JGE, SP_X32_FIRST, NO_SUCH, BY_NUMBER);
#endif
    m.at[BY_NUMBER] = put_load(&m, offsetof(struct seccomp_data, nr));
    (void)put_branch(&m, BPF_JEQ, SP_NATIVE_ARCH, BY_NUMBER, NO_SUCH);
    (void)put_load(&m, offsetof(struct seccomp_data, arch));
    turn_around(ret);
}

static int install(const struct sp_filter *f, unsigned long flags)
{
    const struct sock_fprog program = {
        .len = f->count,
        .filter = (struct sock_filter *)(uintptr_t)f->code, /* the kernel only reads it */
    };
    const long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);

    return r < 0 ? -errno : (int)r;
}

int sp_filter_install(const struct sp_filter *f, bool notifies, int *ret_listener)
{
    const unsigned long flags = notifies ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0;
    int r = -EINVAL;

    /* From Linux 5.19: signals do not interrupt and restart a call that waits for the listener. */
    if (notifies)
        r = install(f, flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
    if (r == -EINVAL)
        r = install(f, flags);
    if (r < 0)
        return r;
    /* From Linux 6.6: the answer wakes the caller on the same CPU, ten times faster. */
    if (notifies)
        (void)ioctl(r, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
    *ret_listener = notifies ? r : -1;
    return 0;
}

/* ---- the listener ---- */

int sp_notice_take(int listener, struct sp_notice *ret)
{
    /* Room for fields of newer kernels; the kernel requires zeroes. */
    union {
        struct seccomp_notif notice;
        char room[512];
    } u = {.room = {0}};
    struct pollfd p = {.fd = listener, .events = POLLIN};

    /* NOTIF_RECV blocks while there is nothing. If the caller dies in between it returns ENOENT. */
    if (poll(&p, 1, 0) < 0)
        return errno == EINTR ? 0 : -errno;
    if ((p.revents & POLLIN) == 0)
        return (p.revents & POLLHUP) != 0 ? -ENOTCONN : (p.revents & POLLNVAL) != 0 ? -EBADF : 0;
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &u) < 0)
        return errno == ENOENT || errno == EINTR ? 0 : -errno;
    *ret = (struct sp_notice){
        .id = u.notice.id,
        .pid = (int)u.notice.pid,
        .call = u.notice.data.nr,
    };
    for (size_t i = 0; i < COUNT(ret->args); i++)
        ret->args[i] = u.notice.data.args[i];
    return 1;
}

void sp_notice_answer(int listener, const struct sp_notice *n, bool is_allowed)
{
    union {
        struct seccomp_notif_resp answer;
        char room[256];
    } u = {.room = {0}};
    const int err = sp_syscall_errno(n->call);

    u.answer.id = n->id;
    if (is_allowed)
        u.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else
        u.answer.error = err != 0 ? -err : -EPERM;
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &u); /* ENOENT: the caller has died */
}

static bool is_beyond_loopback(const struct sockaddr_storage *a)
{
    const struct sockaddr_in *v4 = (const void *)a;
    const struct sockaddr_in6 *v6 = (const void *)a;
    uint32_t host = 0;

    if (a->ss_family == AF_INET)
        memcpy(&host, &v4->sin_addr, sizeof host);
    else if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        memcpy(&host, v6->sin6_addr.s6_addr + 12, sizeof host);
    else
        return a->ss_family == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) &&
               !IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
    return host != 0 && ntohl(host) >> 24 != IN_LOOPBACKNET;
}

bool sp_notice_leaves_loopback(int listener, const struct sp_notice *n)
{
    struct sockaddr_storage address = {0};
    const uint64_t size = n->args[2] < sizeof address ? n->args[2] : sizeof address;
    char path[40];

    (void)snprintf(path, sizeof path, "/proc/%d/mem", n->pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    /* ID_VALID after the read: the pid was still that of the caller. */
    return fd >= 0 && pread(fd, &address, size, (off_t)n->args[1]) > 0 &&
           ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &n->id) == 0 &&
           is_beyond_loopback(&address);
}

static const struct sp_syscall_rule *find_call(int nr)
{
    for (size_t i = 0; nr >= 0 && i < sp_syscall_rule_count; i++)
        if (sp_syscall_rules[i].nr == nr)
            return &sp_syscall_rules[i];
    return NULL;
}

int sp_syscall_errno(int call)
{
    const struct sp_syscall_rule *c = find_call(call);

    return c != NULL ? c->error : 0;
}

const char *sp_syscall_name(int call)
{
    const struct sp_syscall_rule *c = find_call(call);

    return c != NULL ? c->name : NULL;
}
