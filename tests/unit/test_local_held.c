/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds the output of jobs that run here, and on which ports they listen; without a sandbox and
 * in one. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "inspect_fixture.h"
#include "os/cgroup.h"

/* ---- holders ---- */

static void await_exit(struct owner *o)
{
    until(has_told(o, "exited"));
    assert_false(o->is_over);
}

static struct sp_inspection holders_of(struct owner *o)
{
    struct looked l = {.look.wants_doing = true};

    assert_int_equal(look_for(o, &l), SP_JOB_OK);
    assert_int_equal(l.look.found.doing, SP_DOING_UNKNOWN);
    return l.look.found;
}

/* So many, and the first of that name: who was forked may not have begun its program yet. */
static struct sp_inspection await_holders(struct owner *o, uint32_t count, const char *name)
{
    const uint64_t end = test_now_ms() + DEADLINE_MS;
    struct sp_inspection found = holders_of(o);

    while (found.holder_count != count || strcmp(found.holders[0].name, name) != 0) {
        if (test_now_ms() > end)
            fail_msg("%u holders, the first is %s", found.holder_count, found.holders[0].name);
        run_for(10);
        found = holders_of(o);
    }
    return found;
}

static void check_holder(const char *text, bool is_tty)
{
    struct owner o = {0};

    start_script(&o, text, is_tty, true);
    await_exit(&o);
    const struct sp_inspection found = await_holders(&o, 1, "sleep");
    assert_int_equal(found.holders[0].pid, printed_pid(&o));
    assert_int_equal(kill(found.holders[0].pid, SIGKILL), 0);
    until(o.is_over);
    finish(&o);
}

static void check_holders(void)
{
    struct owner other = {0};

    /* Of another command: not to be taken for one of these. */
    start_script(&other, "echo up; sleep 600; :", false, true);
    until(other.out.len > 0);
    check_holder("sleep 600 & echo $!", false);
    check_holder("sleep 600 2>/dev/null & echo $!", false);
    check_holder("sleep 600 >/dev/null & echo $!", false);
    check_holder("(sleep 600 & echo $!); sleep 600 >/dev/null 2>&1 & :", false);
    check_holder("setsid sh -c 'echo $$; exec sleep 600' & sleep 0.3", false);
    check_holder("trap '' HUP; setsid sh -c 'echo $$; exec sleep 600' & sleep 0.3", true);
    end_job(&other);
}

static void test_who_holds_the_output_is_named(void **state)
{
    (void)state;
    check_holders();
}

static void test_who_holds_the_output_is_named_with_cgroups(void **state)
{
    struct sp_cgroup c = {.dir = -1};
    char name[SP_CGROUP_NAME];

    (void)state;
    if (!sp_cgroup_name(name) || !sp_cgroup_new(name, &c)) {
        print_message("# no cgroups here\n");
        return;
    }
    sp_cgroup_free(&c);
    sp_backend_free(backend);
    options.use_cgroups = true;
    make_backend();
    check_holders();
}

static void test_more_holders_than_are_listed_are_counted(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "for i in 1 2 3 4 5 6 7 8 9 10 11; do sleep 600 & done; echo up", false, true);
    await_exit(&o);
    const struct sp_inspection found = await_holders(&o, 11, "sleep");
    for (int i = 0; i < SP_INSPECT_HOLDERS; i++)
        assert_int_equal(kill(found.holders[i].pid, SIGKILL), 0);
    (void)await_holders(&o, 3, "sleep");
    assert_int_equal(signal_to(&o, SIGKILL), SP_JOB_OK);
    until(o.is_over);
    finish(&o);
}

static void test_a_name_can_do_no_harm(void **state)
{
    struct owner o = {0};

    (void)state;
    if (!has_program(PYTHON))
        return;
    start_script(&o,
                 PYTHON " -uc '\nimport os,time\nif os.fork() == 0:\n"
                        "  open(\"/proc/self/comm\",\"wb\").write(b\"a\\n\\x1b[2J)\\xff R 1 2\")\n"
                        "  print(1)\n  time.sleep(600)\ntime.sleep(0.5)'",
                 false, true);
    await_exit(&o);
    const struct sp_inspection found = holders_of(&o);
    assert_int_equal(found.holder_count, 1);
    assert_string_equal(found.holders[0].name, "a??[2J)? R 1 2");
    assert_int_equal(kill(found.holders[0].pid, SIGKILL), 0);
    until(o.is_over);
    finish(&o);
}

/* ---- ports ---- */

#define LISTEN(family, place)                                            \
    "import socket,time\ns=socket.socket(socket." family ")\n"           \
    "s.bind((\"" place "\",0))\ns.listen()\nprint(s.getsockname()[1])\n" \
    "time.sleep(600)"

static uint16_t printed_port(struct owner *o)
{
    until(o->out.len > 0 && o->out.data[o->out.len - 1] == '\n');
    return (uint16_t)printed_pid(o);
}

static void test_who_listens_is_found(void **state)
{
    struct owner o = {0};
    struct owner other = {0};

    (void)state;
    if (!has_program(PYTHON))
        return;
    start_script(&other, "echo up; sleep 600; :", false, true);
    until(other.out.len > 0);
    start_script(&o, PYTHON " -uc '" LISTEN("AF_INET", "127.0.0.1") "'; :", false, false);
    const uint16_t port = printed_port(&o);
    assert_int_equal(listening(&o, port, 9), port);
    assert_int_equal(listening(&o, 9, port), port);
    assert_int_equal(listening(&o, 9, 10), 0);
    assert_int_equal(listening(&other, port, 9), 0); /* another command does */
    end_job(&o);
    assert_int_equal(listening(&other, port, 9), 0);
    end_job(&other);
}

static void test_who_listens_on_a_newer_address_is_found(void **state)
{
    const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    const bool is_there = probe >= 0 && bind(probe, (const void *)&any, sizeof any) == 0;
    struct owner o = {0};

    (void)state;
    if (probe >= 0)
        (void)close(probe);
    if (!is_there || !has_program(PYTHON)) {
        print_message("# no IPv6 here\n");
        return;
    }
    start_script(&o, PY(LISTEN("AF_INET6", "::")), false, false);
    const uint16_t port = printed_port(&o);
    assert_int_equal(listening(&o, port, 9), port);
    end_job(&o);
}

/* One of ours that no command has anything to do with; and one that does not listen. */
static void test_a_socket_of_somebody_else_does_not_count(void **state)
{
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    struct owner o = {0};
    char text[200];

    (void)state;
    assert_int_equal(bind(s, (void *)&a, sizeof a), 0);
    assert_int_equal(listen(s, 1), 0);
    assert_int_equal(getsockname(s, (void *)&a, &n), 0);
    (void)snprintf(text, sizeof text,
                   "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/%u; echo up; exec sleep 600'",
                   ntohs(a.sin_port));
    if (has_program("/bin/bash")) {
        start_script(&o, text, false, false);
        until(o.out.len > 0);
        assert_int_equal(listening(&o, ntohs(a.sin_port), 9), 0);
        end_job(&o);
    }
    (void)close(s);
}

/* ---- in a sandbox ---- */

static void test_in_a_sandbox_holders_have_their_numbers_there(void **state)
{
    struct owner o = {0};

    (void)state;
    if (!start_confined(&o, "sleep 600 & echo $!", false, false))
        return;
    await_exit(&o);
    const struct sp_inspection found = await_holders(&o, 1, "sleep");
    assert_int_equal(found.holders[0].pid, printed_pid(&o));
    assert_int_equal(signal_to(&o, SIGKILL), SP_JOB_OK);
    until(o.is_over);
    finish(&o);
}

static void test_in_a_sandbox_ports_are_found(void **state)
{
    (void)state;
    if (!has_program(PYTHON))
        return;
    for (int has_network = 0; has_network < 2; has_network++) {
        struct owner o = {0};

        if (!start_confined(&o, PY(LISTEN("AF_INET", "127.0.0.1")), false, has_network != 0))
            return;
        until(o.is_over || o.out.len > 0);
        if (o.is_over) { /* it may not even listen without a network */
            print_message("# %.*s\n", (int)o.err.len, o.err.data);
            finish(&o);
            continue;
        }
        const uint16_t port = printed_port(&o);
        assert_int_equal(listening(&o, 9, port), port);
        assert_int_equal(listening(&o, 9, 10), 0);
        end_job(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        local_test(test_who_holds_the_output_is_named),
        local_test(test_who_holds_the_output_is_named_with_cgroups),
        local_test(test_more_holders_than_are_listed_are_counted),
        local_test(test_a_name_can_do_no_harm),
        local_test(test_who_listens_is_found),
        local_test(test_who_listens_on_a_newer_address_is_found),
        local_test(test_a_socket_of_somebody_else_does_not_count),
        local_test(test_in_a_sandbox_holders_have_their_numbers_there),
        local_test(test_in_a_sandbox_ports_are_found),
    };

    (void)sp_log_set_level("error");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
