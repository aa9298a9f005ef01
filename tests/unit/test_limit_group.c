/* SPDX-License-Identifier: Apache-2.0 */
/* The files that limit_group reads and writes, in directories that look like cgroups. Real ones are
 * in tests/functional/test_tree_limits.py. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "os/limit_group.h"
#include "test.h"

static char base[64];
static struct sp_limit_host host;

static int begin(void **state)
{
    (void)state;
    strcpy(base, "/tmp/limit-group-XXXXXX");
    return mkdtemp(base) == NULL ? -1 : 0;
}

static int end(void **state)
{
    char command[128];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", base);
    return system(command);
}

/* Writes base/name, with the directories above it. */
static void put(const char *name, const char *text)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", base, name);
    for (char *slash = path + strlen(base) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        (void)mkdir(path, 0755);
        *slash = '/';
    }
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void assert_file(const char *name, const char *want)
{
    char text[256];
    const ssize_t n = sp_read_text(text, sizeof text, "%s/%s", base, name);

    assert_int_equal(n, strlen(want));
    assert_string_equal(text, want);
}

static void look(const char *cgroup, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Each %s of the format is the base. */
static void look(const char *cgroup, const char *format, ...)
{
    char mounts[2048];
    va_list args;

    va_start(args, format);
    assert_true(vsnprintf(mounts, sizeof mounts, format, args) < (int)sizeof mounts);
    va_end(args);
    sp_limit_host_read(mounts, cgroup, getpid(), true, &host);
}

#define V1(name) "31 23 0:29 / %s/" name " rw,relatime - cgroup cgroup rw," name "\n"
#define V2(root) "41 31 0:38 " root " %s/v2 rw,relatime shared:3 - cgroup2 cgroup2 rw\n"

static void version_1_has_a_hierarchy_for_each_controller(void **state)
{
    char want[256];

    (void)state;
    put("memory/a/b/x", "");
    put("pids/x", "");
    put("cpu,cpuacct/x", "");
    look("5:memory:/a/b\n4:pids:/\n3:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n",
         V1("memory") V1("pids") V1("cpu,cpuacct"), base, base, base);
    assert_int_equal(host.count, 3);
    assert_int_equal(host.controllers, 15);
    (void)snprintf(want, sizeof want, "%s/memory/a/b", base);
    assert_string_equal(host.items[0].own, want);
    assert_false(host.items[0].is_v2);
    assert_int_equal(host.items[2].controllers,
                     SP_CONTROL_BIT(SP_CONTROL_CPU) | SP_CONTROL_BIT(SP_CONTROL_CPUACCT));
    for (int i = 0; i < SP_CONTROLLERS; i++)
        assert_null(host.remedies[i]);
}

static void a_mount_may_show_a_part_of_the_tree(void **state)
{
    char want[256];

    (void)state;
    put("memory/b/x", "");
    look("5:memory:/a/b\n", "31 23 0:29 /a %s/memory rw - cgroup cgroup rw,memory\n", base);
    (void)snprintf(want, sizeof want, "%s/memory/b", base);
    assert_string_equal(host.items[0].own, want);
    look("5:memory:/elsewhere\n", "31 23 0:29 /a %s/memory rw - cgroup cgroup rw,memory\n", base);
    (void)snprintf(want, sizeof want, "%s/memory", base);
    assert_string_equal(host.items[0].own, want);
    look("5:memory:/../b\n", "31 23 0:29 / %s/memory rw - cgroup cgroup rw,memory\n", base);
    assert_int_equal(host.count, 0);
}

static void version_2_gives_what_it_has(void **state)
{
    char pid[16];

    (void)state;
    (void)snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    put("v2/app/cgroup.controllers", "cpu io memory pids\n");
    put("v2/app/cgroup.events", "populated 1\n");
    put("v2/app/cgroup.procs", pid);
    look("0::/app\n", V2("/"), base);
    assert_int_equal(host.count, 1);
    assert_true(host.items[0].is_v2);
    assert_int_equal(host.controllers, 15);

    put("v2/app/cgroup.procs", "1\n"); /* not a descendant of ours */
    look("0::/app\n", V2("/"), base);
    assert_int_equal(host.controllers, 0);
    assert_non_null(strstr(host.remedies[SP_CONTROL_MEMORY], "Delegate=yes"));
    assert_non_null(strstr(host.remedies[SP_CONTROL_CPUACCT], "other processes"));

    put("v2/app/cgroup.procs", "");
    put("v2/app/cgroup.controllers", "pids\n");
    look("0::/app\n", V2("/"), base);
    assert_int_equal(host.controllers,
                     SP_CONTROL_BIT(SP_CONTROL_PIDS) | SP_CONTROL_BIT(SP_CONTROL_CPUACCT));
    assert_non_null(strstr(host.remedies[SP_CONTROL_MEMORY], "no cgroup file system"));
}

static void a_host_may_have_both(void **state)
{
    (void)state;
    put("memory/x", "");
    put("v2/cgroup.controllers", "pids\n");
    look("5:memory:/\n0::/\n", V2("/") V1("memory"), base, base);
    assert_int_equal(host.count, 2);
    assert_false(host.items[0].is_v2);
    assert_true(host.items[1].is_v2);
    assert_int_equal(host.controllers, 15 & ~SP_CONTROL_BIT(SP_CONTROL_CPU));
}

static void nothing_is_offered_without_cgroups(void **state)
{
    (void)state;
    look("", "31 23 0:29 / %s rw - tmpfs tmpfs rw\nnonsense\n", base);
    assert_int_equal(host.count, 0);
    for (int i = 0; i < SP_CONTROLLERS; i++)
        assert_non_null(host.remedies[i]);
}

/* A group whose directories are those of the fake hierarchies. */
static void open_group(struct sp_limit_group *g)
{
    sp_limit_group_init(g, &host, NULL, "g");
    for (unsigned h = 0; h < host.count; h++)
        g->dirs[h] = open(host.items[h].own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* As if the directories had been made. */
static bool set(struct sp_limit_group *g, enum sp_controller which, uint64_t value)
{
    uint64_t limits[SP_CONTROLLERS] = {0};

    limits[which] = value;
    g->ready = 15;
    return sp_limit_group_make(g, SP_CONTROL_BIT(which), limits);
}

static void close_group(struct sp_limit_group *g)
{
    for (unsigned h = 0; h < host.count; h++)
        (void)close(g->dirs[h]);
}

static void limits_of_version_1_are_written(void **state)
{
    struct sp_limit_group g;

    (void)state;
    put("memory/memory.limit_in_bytes", "");
    put("memory/memory.memsw.limit_in_bytes", "");
    put("pids/pids.max", "");
    put("cpu/cpu.cfs_quota_us", "");
    put("cpu/cpu.cfs_period_us", "");
    look("5:memory:/\n4:pids:/\n3:cpu:/\n", V1("memory") V1("pids") V1("cpu"), base, base, base);
    open_group(&g);
    assert_true(set(&g, SP_CONTROL_MEMORY, 67108864));
    assert_file("memory/memory.limit_in_bytes", "67108864");
    assert_file("memory/memory.memsw.limit_in_bytes", "67108864");
    assert_true(set(&g, SP_CONTROL_PIDS, 20));
    assert_file("pids/pids.max", "20");
    assert_true(set(&g, SP_CONTROL_CPU, 1500));
    assert_file("cpu/cpu.cfs_period_us", "100000");
    assert_file("cpu/cpu.cfs_quota_us", "150000");
    assert_int_equal(g.limits[SP_CONTROL_CPU], 1500);
    put("pids/pids.max", "");
    assert_true(set(&g, SP_CONTROL_PIDS, 20)); /* it has that value */
    assert_file("pids/pids.max", "");
    assert_true(set(&g, SP_CONTROL_PIDS, 0));
    assert_file("pids/pids.max", "max");
    close_group(&g);
}

static void limits_of_version_2_are_written(void **state)
{
    struct sp_limit_group g;

    (void)state;
    put("v2/cgroup.controllers", "cpu memory pids\n");
    put("v2/memory.max", "");
    put("v2/memory.swap.max", "");
    put("v2/cpu.max", "");
    look("0::/\n", V2("/"), base);
    open_group(&g);
    assert_true(set(&g, SP_CONTROL_MEMORY, 67108864));
    assert_file("v2/memory.max", "67108864");
    assert_file("v2/memory.swap.max", "0");
    assert_true(set(&g, SP_CONTROL_CPU, 500));
    assert_file("v2/cpu.max", "50000 100000");
    assert_false(set(&g, SP_CONTROL_PIDS, 20)); /* no such file */
    assert_int_equal(g.limits[SP_CONTROL_PIDS], 0);
    close_group(&g);
}

static void counts_are_read(void **state)
{
    struct sp_group_counts c;
    struct sp_limit_group g;

    (void)state;
    put("v2/cgroup.controllers", "cpu memory pids\n");
    put("v2/memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 7\n");
    put("v2/memory.events.local", "low 0\noom 1\noom_kill 5\n");
    put("v2/memory.peak", "4096\n");
    put("v2/pids.events", "max 12\n");
    put("v2/cpu.stat", "usage_usec 70\nuser_usec 40\nsystem_usec 30\nnr_periods 1\n");
    look("0::/\n", V2("/"), base);
    open_group(&g);
    sp_limit_group_read(&g, 15, SP_READ_COUNTS | SP_RESET_PEAK, &c);
    assert_int_equal(c.kills, 2);
    assert_int_equal(c.memory_hits, 1);
    assert_int_equal(c.peak_memory, 4096);
    assert_false(c.has_reset_peak);
    assert_int_equal(c.refusals, 12);
    assert_int_equal(c.peak_pids, 0); /* before Linux 6.11 */
    assert_int_equal(c.cpu_us, 70);
    assert_int_equal(c.user_us + c.system_us, 70);
    sp_limit_group_read(&g, SP_CONTROL_BIT(SP_CONTROL_PIDS), SP_READ_COUNTS, &c);
    assert_int_equal(c.kills, 0);
    assert_int_equal(c.refusals, 12);
    close_group(&g);
}

static void counts_of_version_1_are_read(void **state)
{
    struct sp_group_counts c;
    struct sp_limit_group g;

    (void)state;
    put("memory/memory.oom_control", "oom_kill_disable 1\nunder_oom 0\noom_kill 4\n");
    put("memory/memory.failcnt", "2\n");
    put("memory/memory.memsw.failcnt", "3\n");
    put("memory/memory.max_usage_in_bytes", "8192\n");
    put("memory/memory.limit_in_bytes", "");
    put("memory/memory.usage_in_bytes", "1000\n");
    put("memory/memory.stat", "cache 1\ntotal_inactive_file 300\ntotal_active_file 200\n");
    look("5:memory:/\n", V1("memory"), base);
    open_group(&g);
    sp_limit_group_read(&g, 15, SP_READ_COUNTS | SP_READ_HELD, &c);
    assert_int_equal(c.kills, 4);
    assert_int_equal(c.memory_hits, 5);
    assert_int_equal(c.peak_memory, 8192);
    assert_int_equal(c.held_memory, 0); /* without a limit it is not read */
    assert_true(set(&g, SP_CONTROL_MEMORY, 1024));
    sp_limit_group_read(&g, 15, SP_READ_COUNTS | SP_READ_HELD, &c);
    assert_int_equal(c.held_memory, 500);
    assert_true(set(&g, SP_CONTROL_MEMORY, 16000)); /* far from its limit the caches count */
    sp_limit_group_read(&g, 15, SP_READ_COUNTS | SP_READ_HELD, &c);
    assert_int_equal(c.held_memory, 1000);
    close_group(&g);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        T(version_1_has_a_hierarchy_for_each_controller),
        T(a_mount_may_show_a_part_of_the_tree),
        T(version_2_gives_what_it_has),
        T(a_host_may_have_both),
        T(nothing_is_offered_without_cgroups),
        T(limits_of_version_1_are_written),
        T(limits_of_version_2_are_written),
        T(counts_are_read),
        T(counts_of_version_1_are_read),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
