/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets that a cell hands out for its network: a cell that was taken over hands out others,
 * and none of them may be listened on.
 */
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/managed.h"
#include "process_fixture.h"

enum place { CELL, OTHER, HOST };

/* A socket, and what it is said to be. */
struct offer {
    struct sp_wire_port said;
    enum place place;
    bool is_udp, is_diag, is_deaf, is_loopback;
    uint16_t port;
};

static struct {
    struct sp_loop *loop;
    struct sp_managed_hub *hub;
    struct sp_managed *managed;
    pid_t pids[2];
    int sockets[2]; /* to a process in the namespace of the cell, and in another one; -1: none */
} fx;

/* ---- sockets of other namespaces ---- */

static int make_socket(const struct offer *o)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons(o->port),
                                   .sin_addr.s_addr =
                                       htonl(o->is_loopback ? INADDR_LOOPBACK : INADDR_ANY)};
    const int on = 1;
    const int fd = o->is_diag
                       ? socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 4)
                       : socket(AF_INET, (o->is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);

    if (o->is_diag)
        return fd;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    assert_int_equal(bind(fd, (const void *)&at, sizeof at), 0);
    if (!o->is_udp && !o->is_deaf)
        assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static bool enter_namespace(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    bool is_in = unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    is_in = is_in && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    (void)close(fd);
    return is_in;
}

static void serve_sockets(int s)
{
    struct offer o;
    const bool is_in = enter_namespace();

    while (recv(s, &o, sizeof o, 0) == sizeof o) {
        const int fd = is_in ? make_socket(&o) : -1;

        (void)sp_wire_send(s, true, "", 1, NULL, 0, &fd, fd >= 0);
        if (fd >= 0)
            (void)close(fd);
    }
    _exit(0);
}

static int socket_of(const struct offer *o)
{
    char byte;
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;

    if (o->place == HOST)
        return make_socket(o);
    assert_int_equal(send(fx.sockets[o->place], o, sizeof *o, 0), sizeof *o);
    assert_int_equal(recvmsg(fx.sockets[o->place], &m, MSG_CMSG_CLOEXEC), 1);
    if (CMSG_FIRSTHDR(&m) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    if (fd < 0)
        skip(); /* this host has no network namespaces for us */
    return fd;
}

/* ---- a front ---- */

static int begin(void **state)
{
    struct sp_err e;

    (void)state;
    assert_int_equal(sp_loop_new(&fx.loop, &e), 0);
    assert_int_equal(sp_managed_hub_new(fx.loop, getenv("SALLYPORT"), NULL, &fx.hub, &e), 0);
    for (int i = 0; i < 2; i++) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        fx.pids[i] = fork();
        if (fx.pids[i] == 0) {
            (void)close(pair[0]);
            if (i == 1)
                (void)close(fx.sockets[0]);
            serve_sockets(pair[1]);
        }
        (void)close(pair[1]);
        fx.sockets[i] = pair[0];
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    sp_managed_free(fx.managed);
    fx.managed = NULL;
    sp_managed_hub_free(fx.hub);
    sp_loop_free(fx.loop);
    for (int i = 0; i < 2; i++) {
        (void)close(fx.sockets[i]);
        assert_int_equal(waitpid(fx.pids[i], NULL, 0), fx.pids[i]);
    }
    assert_no_children();
    return 0;
}

static void new_network(void)
{
    struct sp_network_policy *policy = sp_network_policy_new();
    struct sp_err e;

    sp_managed_free(fx.managed);
    fx.managed = NULL;
    assert_non_null(policy);
    assert_int_equal(sp_managed_new(fx.hub, policy, -1, &fx.managed, &e), 0);
    sp_network_policy_free(policy);
}

static bool hand_out(const struct offer *offers, uint32_t count, bool is_last)
{
    struct sp_wire_ports m = {.count = count, .is_last = is_last};
    int fds[SP_WIRE_FDS];

    for (uint32_t i = 0; i < count; i++) {
        fds[i] = socket_of(&offers[i]);
        m.ports[i] = offers[i].said;
    }
    const bool is_taken = sp_managed_take_ports(fx.managed, &m, fds, (int)count);
    for (uint32_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    return is_taken;
}

static const struct offer dns_udp = {
    .said = {SP_PORT_DNS_UDP, 53}, .is_udp = true, .is_loopback = true, .port = 53};
static const struct offer dns_tcp = {
    .said = {SP_PORT_DNS_TCP, 53}, .is_loopback = true, .port = 53};
static const struct offer door = {.said = {SP_PORT_PROXY, 808}, .is_loopback = true, .port = 808};
static const struct offer diag = {.said = {SP_PORT_DIAG, 0}, .is_diag = true};

static struct offer by_name(uint16_t port)
{
    return (struct offer){.said = {SP_PORT_BY_NAME, port}, .port = port};
}

static void what_is_planned_is_taken(void **state)
{
    const struct offer first[] = {dns_udp, dns_tcp, door, diag};
    const struct offer rest[] = {by_name(22), by_name(80), by_name(443)};
    const struct offer more[] = {by_name(25)};

    (void)state;
    new_network();
    assert_true(hand_out(first, 4, false));
    assert_false(sp_managed_has_ports(fx.managed));
    assert_true(hand_out(rest, 3, true));
    assert_true(sp_managed_has_ports(fx.managed));
    assert_false(hand_out(more, 1, true)); /* after the last one */
}

static void anything_else_is_not(void **state)
{
    static const struct {
        const char *what;
        struct offer offer;
    } forged[] = {
        {"of the host", {.said = {SP_PORT_BY_NAME, 80}, .place = HOST}},
        {"a diag socket of the host", {.said = {SP_PORT_DIAG, 0}, .place = HOST, .is_diag = true}},
        {"another port", {.said = {SP_PORT_BY_NAME, 80}, .port = 81}},
        {"a port that is not planned", {.said = {SP_PORT_BY_NAME, 25}, .port = 25}},
        {"a door elsewhere", {.said = {SP_PORT_PROXY, 80}, .is_loopback = true, .port = 80}},
        {"does not listen", {.said = {SP_PORT_BY_NAME, 80}, .port = 80, .is_deaf = true}},
        {"no stream", {.said = {SP_PORT_BY_NAME, 80}, .port = 80, .is_udp = true}},
        {"a stream", {.said = {SP_PORT_DNS_UDP, 53}, .is_loopback = true, .port = 53}},
        {"loopback only", {.said = {SP_PORT_BY_NAME, 80}, .is_loopback = true, .port = 80}},
        {"all addresses", {.said = {SP_PORT_PROXY, 808}, .port = 808}},
        {"no diag socket", {.said = {SP_PORT_DIAG, 0}, .port = 80}},
        {"a diag socket", {.said = {SP_PORT_BY_NAME, 80}, .is_diag = true}},
        {"no kind", {.said = {77, 80}, .port = 80}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        new_network();
        if (hand_out(&forged[i].offer, 1, false))
            fail_msg("taken: %s", forged[i].what);
        assert_false(sp_managed_has_ports(fx.managed));
    }
}

static void messages_that_do_not_fit_are_not(void **state)
{
    const struct offer first[] = {dns_udp, dns_tcp, door, diag};
    const struct offer twice[] = {dns_udp, dns_udp};
    struct offer elsewhere = by_name(80);

    (void)state;
    new_network();
    assert_false(hand_out(first, 4, true)); /* not all of them */
    new_network();
    assert_false(hand_out(twice, 2, false));
    new_network();
    assert_false(hand_out(first, 0, false));
    new_network();
    assert_true(hand_out(first, 4, false));
    elsewhere.place = OTHER; /* of two namespaces */
    assert_false(hand_out(&elsewhere, 1, false));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(what_is_planned_is_taken, begin, end),
    cmocka_unit_test_setup_teardown(anything_else_is_not, begin, end),
    cmocka_unit_test_setup_teardown(messages_that_do_not_fit_are_not, begin, end),
};

TEST_MAIN(tests)
