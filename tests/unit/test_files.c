/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File operations as the front sees them, with real processes in real cells: order, waiting, what
 * is dropped, who is killed, and that nothing is left.
 */
#include "files_fixture.h"
#include "os/tree.h"

static struct call calls[64];

/* The one process for file operations below the open cell. */
static pid_t file_process(void)
{
    pid_t pids[8];
    const uint64_t end = test_now_ms() + DEADLINE_MS;

    while (sp_tree_children(server->open[0].cell->self.pid, pids, 8) !=
           1) { /* the dead are reaped */
        assert_true(test_now_ms() < end);
        let_pass(5);
    }
    return pids[0];
}

static void test_operations_come_back(void **state)
{
    static char big[(3U << 20) + 1];
    struct sp_files_job job = a_write("f", "hello");
    uint64_t sum = 0;

    (void)state;
    does(calls, &job);
    assert_int_equal(calls[0].answer.err, 0);
    job = a_job(SP_FILE_READ, "f");
    does(calls, &job);
    assert_string_equal(calls[0].data, "hello");
    job = a_job(SP_FILE_STAT, "f");
    does(calls, &job);
    assert_true(calls[0].answer.stat.is_file && calls[0].answer.stat.size == 5);
    job = a_job(SP_FILE_READ, "none");
    does(calls, &job);
    assert_int_equal(calls[0].answer.err, ENOENT);
    job = a_job(SP_FILE_READ, "");
    does(calls, &job);
    assert_int_equal(calls[0].answer.refusal, SP_FILE_NOT_A_FILE);

    /* More than the window has room for, both ways. */
    for (size_t i = 0; i < sizeof big - 1; i++)
        sum += (unsigned char)(big[i] = (char)(1 + i * i % 250));
    job = a_write("big", big);
    does(calls, &job);
    job = a_job(SP_FILE_READ, "big");
    does(calls, &job);
    assert_int_equal(calls[0].answer.data_len, sizeof big - 1);
    assert_int_equal(calls[0].sum, sum);

    job = a_job(SP_FILE_WRITE, "b64");
    job.base64 = SP_STR("aGVsbG8=");
    does(calls, &job);
    job = a_job(SP_FILE_READ, "b64");
    does(calls, &job);
    assert_string_equal(calls[0].data, "hello");
    assert_int_equal(count_workers(), 1);
    assert_int_equal(server->files->working, 0);
}

static void test_what_is_wrong_is_refused_at_once(void **state)
{
    static char path[SP_FILE_MAX_PATH + 3];
    struct sp_files_job job = a_job(SP_FILE_WRITE, "f");

    (void)state;
    job.base64 = SP_STR("!!!!");
    assert_int_equal(ask(calls, &job), -SP_E_INVALID);
    job.base64 = SP_STR("abc");
    assert_int_equal(ask(calls, &job), -SP_E_INVALID);
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    job.request.path = path;
    assert_int_equal(ask(calls, &job), -SP_E_SYSTEM);
    assert_int_equal(error.sys, ENAMETOOLONG);
    path[SP_FILE_MAX_PATH] = 0;
    job = a_job(SP_FILE_STAT, "");
    job.request.path = path;
    does(calls, &job);
    assert_int_equal(calls[0].answer.err, ENAMETOOLONG);
    assert_true(sp_list_is_empty(&client.calls));
}

/* What concerns the same path is done one after the other, what does not may overtake it. */
static void test_order(void **state)
{
    char text[16];

    (void)state;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 40; i++) {
            (void)snprintf(text, sizeof text, "%d", i);
            const struct sp_files_job job =
                i % 4 == 3 ? a_job(SP_FILE_READ, "f") : a_write("f", text);

            asks(&calls[i], &job);
        }
        awaits(&calls[39]);
        for (int i = 0; i < 40; i++) {
            assert_true(calls[i].is_done);
            assert_int_equal(calls[i].turn, (unsigned)(round * 40 + i + 1));
            (void)snprintf(text, sizeof text, "%d", i - 1);
            if (i % 4 == 3)
                assert_string_equal(calls[i].data, text);
        }
    }
    /* A path above is the same matter: the directory is there before the file. */
    struct sp_files_job job = a_job(SP_FILE_MAKE, "d");
    asks(&calls[0], &job);
    job = a_write("d/f", "x");
    asks(&calls[1], &job);
    job = a_job(SP_FILE_COPY, "d");
    job.request.other = at("e");
    job.request.is_recursive = true;
    asks(&calls[2], &job);
    job = a_job(SP_FILE_READ, "e/f");
    asks(&calls[3], &job);
    job = a_job(SP_FILE_REMOVE, "d");
    job.request.is_recursive = true;
    asks(&calls[4], &job);
    awaits(&calls[3]);
    awaits(&calls[4]);
    assert_string_equal(calls[3].data, "x");
    for (int i = 0; i < 5; i++)
        assert_int_equal(calls[i].answer.err, 0);
}

/* Blocks of one handle, asked for before it is open. */
static void test_blocks_wait_for_their_file(void **state)
{
    static char chunk[40][16];
    struct sp_files_job job = a_job(SP_FILE_OPEN, "f");
    int handle = -1;
    char text[40 * 4 + 16] = "";

    (void)state;
    job.request.is_replace = true;
    job.handle = &handle;
    asks(&calls[0], &job);
    awaits(&calls[0]);
    assert_true(calls[0].answer.fd >= 0);
    handle = calls[0].answer.fd;
    for (int i = 0; i < 40; i++) {
        (void)snprintf(chunk[i], sizeof chunk[i], "%03d,", i);
        job = (struct sp_files_job){
            .request = {.op = SP_FILE_WRITE_BLOCK, .fd = -1, .offset = (uint64_t)i * 4},
            .raw = {chunk[i], 4},
            .handle = &handle};
        asks(&calls[i], &job);
        memset(chunk[i], 'x', 4); /* nothing is borrowed for longer than the call */
    }
    awaits(&calls[39]);
    (void)close(handle);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(calls[i].answer.err, 0);
        (void)snprintf(text + (size_t)i * 4, 16, "%03d,", i);
    }
    char found[sizeof text] = "";
    const int fd = open(at("f"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, found, sizeof found), strlen(text));
    (void)close(fd);
    assert_string_equal(found, text);

    handle = -1; /* it could not be opened, so to say */
    job = (struct sp_files_job){.request = {.op = SP_FILE_READ_BLOCK, .fd = -1, .length = 4},
                                .handle = &handle};
    assert_int_equal(ask(calls, &job), -SP_E_NOT_FOUND);
}

static void test_calls_are_dropped_at_any_moment(void **state)
{
    (void)state;
    for (int after = 0; after < 12; after++) {
        for (int i = 0; i < 20; i++) {
            const struct sp_files_job job = a_write("f", "text");

            asks(&calls[i], &job);
        }
        for (int i = 0; i < after; i++)
            awaits(&calls[i]);
        for (int i = 19; i >= 0; i--) {
            const bool was_done = calls[i].is_done;

            sp_files_drop(&calls[i].call);
            sp_files_drop(&calls[i].call); /* again is nothing */
            assert_true(calls[i].is_done == was_done);
        }
        assert_int_equal(client.working + client.waiting, 0);
    }
    const struct sp_files_job job = a_job(SP_FILE_READ, "f");
    does(calls, &job);
}

static void test_a_process_that_is_killed(void **state)
{
    struct sp_files_job job = a_write("f", "text");

    (void)state;
    does(calls, &job);
    pid_t pid = file_process();
    assert_int_equal(kill(pid, SIGSTOP), 0); /* as one that hangs on a disk */
    job = a_job(SP_FILE_READ, "f");
    asks(&calls[0], &job);
    const struct sp_files_job write = a_write("f", "new");
    asks(&calls[1], &write);
    let_pass(20);
    assert_false(calls[0].is_done || calls[1].is_done);
    job = a_job(SP_FILE_STAT, "");
    job.request.path = "/dev"; /* what does not concern that is done by another one */
    does(&calls[2], &job);
    assert_int_equal(count_workers(), 2);
    assert_int_equal(kill(pid, SIGKILL), 0);
    awaits(&calls[0]);
    assert_false(calls[0].has_answer);
    assert_int_equal(calls[0].e.code, SP_E_FAILED);
    awaits(&calls[1]); /* which waited, and is done by the next */
    assert_true(calls[1].has_answer);
    /* One at rest: nobody notices. */
    until_workers(1);
    pid = file_process();
    assert_int_equal(kill(pid, SIGKILL), 0);
    until_workers(0);
    does(calls, &job);
}

static void test_a_cell_that_is_killed(void **state)
{
    struct sp_files_job job = a_write("f", "text");

    (void)state;
    does(calls, &job);
    const pid_t pid = file_process();
    assert_int_equal(kill(pid, SIGSTOP), 0);
    job = a_job(SP_FILE_READ, "f");
    asks(&calls[0], &job);
    assert_int_equal(kill(server->open[0].cell->self.pid, SIGKILL), 0);
    awaits(&calls[0]);
    assert_false(calls[0].has_answer);
    until_workers(0);
    assert_int_equal(server->open_count, 0); /* what follows is said by the session */
}

/* The end of everything while operations hang: nothing is left (files_end looks). */
static void test_the_end_while_something_hangs(void **state)
{
    struct sp_files_job job = a_write("f", "text");

    (void)state;
    does(calls, &job);
    assert_int_equal(kill(file_process(), SIGSTOP), 0);
    asks(&calls[0], &job);
    asks(&calls[1], &job);
    let_pass(10);
    sp_files_drop(&calls[0].call);
    sp_files_drop(&calls[1].call);
}

static void test_what_a_client_sees_of_the_process(void **state)
{
    struct sp_files_job job = a_job(SP_FILE_LIST, "");
    char text[64] = "";

    (void)state;
    job.request.path = "/proc/self/fd"; /* 0 to 6 are nothing, 7 is the socket, 8 the list itself */
    does(calls, &job);
    for (uint64_t i = 0, n = 0; i < calls[0].answer.data_len;) {
        struct sp_file_entry e;

        memcpy(&e, calls[0].data + i, sizeof e);
        assert_int_equal(e.name_len, 1);
        text[n++] = calls[0].data[i + sizeof e];
        i += sizeof e + 1;
    }
    assert_string_equal(text, "012345678");
    job.request.op = SP_FILE_CANONICAL;
    job.request.path = "/proc/self/fd/0";
    does(calls, &job);
    assert_string_equal(calls[0].data, "/dev/null");
    job.request.op = SP_FILE_READ;
    job.request.path = "/proc/self/maps"; /* neither ring nor bell */
    does(calls, &job);
    assert_true(calls[0].answer.data_len > 0 || calls[0].answer.err == EACCES);
    const char *page = strstr(calls[0].data, "sallyport-");
    while (page != NULL) {
        assert_memory_equal(page, "sallyport-window", 16);
        page = strstr(page + 1, "sallyport-");
    }
    job = a_job(SP_FILE_OPEN, "");
    job.request.path = "/proc/self/mem";
    job.request.is_replace = true;
    does(calls, &job);
    assert_true(calls[0].answer.err == EACCES || calls[0].answer.refusal == SP_FILE_NOT_A_FILE);
}

/* A reader of a FIFO that goes away is an error, and the process is there for the next one. */
static void test_signals_are_errors(void **state)
{
    static char big[(1U << 20) + 1];

    (void)state;
    memset(big, 'x', sizeof big - 1);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    const int reader = open(at("fifo"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct sp_files_job job = a_write("fifo", big);
    does(calls, &job);
    assert_int_equal(calls[0].answer.err, EAGAIN); /* it is full, and nobody is waited for */
    (void)close(reader);
    does(calls, &job);
    assert_int_equal(calls[0].answer.err, ENXIO);
    assert_int_equal(count_workers(), 1);
    const pid_t pid = file_process();
    char status[64];
    char text[4096];
    (void)snprintf(status, sizeof status, "/proc/%d/status", (int)pid);
    const int fd = open(status, O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    assert_true(n > 0);
    text[n] = 0;
    const char *ignored = strstr(text, "SigIgn:");
    assert_non_null(ignored);
    const unsigned long long mask = strtoull(ignored + 7, NULL, 16);
    assert_true((mask & 1ULL << (SIGPIPE - 1)) != 0 && (mask & 1ULL << (SIGXFSZ - 1)) != 0);
}

/* A process that is made and then not asked does not stay for ever. */
static void test_one_that_is_never_asked_goes(void **state)
{
    struct sp_files_job job = a_job(SP_FILE_WRITE, "f");

    (void)state;
    job.base64 = SP_STR("!!!!");
    assert_int_equal(ask(calls, &job), -SP_E_INVALID);
    assert_int_equal(count_workers(), 1);
    const uint64_t began = test_now_ms();
    until_workers(0);
    assert_true(test_now_ms() - began >= SP_FILES_IDLE_MS - 1000);
}

/* ---- under policies ---- */

static bool has_full_tier(void)
{
    const struct sp_host_features *host_features;

    if (sp_cell_pool_features(server->cell_pool, &host_features, &error) == 0 &&
        host_features->has_full_tier)
        return true;
    (void)printf("# no confined cells here\n");
    return false;
}

static struct sp_policy writing(const char *below)
{
    struct sp_policy p = {0};

    assert_int_equal(sp_profile_add(&p.profile, SP_PLACE_ROOT, SP_ACCESS_READ, false,
                                    (struct sp_str){0}, (struct sp_str){0}, &error),
                     0);
    assert_int_equal(sp_profile_add(&p.profile, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                                    sp_str_of(at(below)), (struct sp_str){0}, &error),
                     0);
    return p;
}

static bool no_pool_cells(const void *unused)
{
    (void)unused;
    return server->cell_pool->count == 0;
}

static int changes_left; /* so many times w is another directory when the cell looks */
static int launches;

int __real_sp_cell_launch(const char *file, struct sp_wire_hello *hello, const struct sp_bell *bell,
                          const struct sp_buf *plan, const struct sp_cell_launch_hook *hook,
                          int *ret_socket, struct sp_cell_child *ret, struct sp_err *e);
int __wrap_sp_cell_launch(const char *file, struct sp_wire_hello *hello, const struct sp_bell *bell,
                          const struct sp_buf *plan, const struct sp_cell_launch_hook *hook,
                          int *ret_socket, struct sp_cell_child *ret, struct sp_err *e);
int __wrap_sp_cell_launch(const char *file, struct sp_wire_hello *hello, const struct sp_bell *bell,
                          const struct sp_buf *plan, const struct sp_cell_launch_hook *hook,
                          int *ret_socket, struct sp_cell_child *ret, struct sp_err *e)
{
    if (plan != NULL && changes_left > 0) {
        char from[PATH_MAX + 16];
        char to[PATH_MAX + 16];

        (void)snprintf(from, sizeof from, "%s/w", tree);
        (void)snprintf(to, sizeof to, "%s/w%d", tree, changes_left--);
        assert_int_equal(rename(from, to), 0);
        assert_int_equal(mkdir(from, 0755), 0);
    }
    launches += plan != NULL;
    return __real_sp_cell_launch(file, hello, bell, plan, hook, ret_socket, ret, e);
}

/* As for a start: the operation is repeated in another cell, with its data. */
static void test_the_disk_changes_while_the_cell_is_built(void **state)
{
    struct sp_files_job job = a_write("w/f", "the data");
    char text[16] = {0};

    (void)state;
    if (!has_full_tier())
        return;
    make_dir("w");
    struct sp_policy p = writing("w");
    job.policy = &p;
    launches = 0;
    changes_left = 3;
    does(calls, &job);
    assert_int_equal(calls[0].answer.err, 0);
    assert_int_equal(launches, 4);
    const int fd = open(at("w/f"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof text), 8);
    (void)close(fd);
    assert_string_equal(text, "the data");
    until(no_pool_cells, NULL);

    changes_left = 100; /* the retries have an end */
    asks(&calls[0], &job);
    awaits(&calls[0]);
    changes_left = 0;
    assert_false(calls[0].has_answer);
    assert_int_equal(calls[0].e.code, SP_E_INVALID);
    sp_policy_done(&p);
}

static void test_under_a_policy(void **state)
{
    struct sp_files_job job = a_write("w/f", "in");

    (void)state;
    if (!has_full_tier())
        return;
    make_dir("w");
    make_dir("other");
    struct sp_policy p = writing("w");
    job.policy = &p;
    does(calls, &job);
    assert_int_equal(calls[0].answer.err, 0);
    /* The process is there, at rest, and keeps nobody from ending its cell. */
    struct sp_cell *cell = NULL;
    assert_int_equal(sp_cell_pool_get(server->cell_pool, job.session, &p, &cell, &error), 0);
    assert_int_equal(count_workers(), 1);
    assert_true(cell->busy > 0);
    assert_true(sp_cell_is_deserted(cell));
    asks(&calls[1], &job);
    assert_false(sp_cell_is_deserted(cell));
    awaits(&calls[1]);
    job.request.path = at("other/f");
    does(calls, &job);
    assert_int_equal(calls[0].answer.err, EROFS);
    job.request.path = "/proc/self/exe"; /* our program is not reached that way */
    does(calls, &job);
    assert_int_equal(calls[0].answer.err, ELOOP);
    /* What waits keeps its policy. */
    for (int i = 0; i < 30; i++)
        asks(&calls[i], &job);
    job.request.path = at("w/f");
    asks(&calls[30], &job);
    sp_policy_done(&p);
    for (int i = 0; i < 31; i++)
        awaits(&calls[i]);
    assert_int_equal(calls[29].answer.err, ELOOP);
    assert_int_equal(calls[30].answer.err, 0);
    assert_int_equal(server->cell_pool->count, 1);
    /* The process goes, the placeholders of its cell go, and nobody asked for that. */
    assert_true(access(at("w/.git"), F_OK) == 0);
    const uint64_t began = test_now_ms();
    until(no_pool_cells, NULL);
    assert_in_range(test_now_ms() - began, 200, 19000);
    until_workers(0);
    for (int i = 0; i < 200 && access(at("w/.git"), F_OK) == 0; i++)
        let_pass(20);
    assert_int_equal(access(at("w/.git"), F_OK), -1);
}

/* More policies than there may be cells, one after the other: those at rest make room. */
static void test_many_policies(void **state)
{
    (void)state;
    if (!has_full_tier())
        return;
    for (int i = 0; i < SP_MAX_CONFINED + 4; i++) {
        char dir[32];

        (void)snprintf(dir, sizeof dir, "w%d", i);
        make_dir(dir);
        struct sp_policy p = writing(dir);
        struct sp_files_job job = a_job(SP_FILE_STAT, dir);
        job.policy = &p;
        does(calls, &job);
        assert_int_equal(calls[0].answer.err, 0);
        sp_policy_done(&p);
    }
    assert_true(server->cell_pool->count <= SP_MAX_CONFINED);
}

static void test_the_end_of_a_session(void **state)
{
    (void)state;
    if (!has_full_tier())
        return;
    make_dir("w");
    struct sp_policy p = writing("w");
    struct sp_files_job job = a_job(SP_FILE_STAT, "w");
    job.policy = &p;
    asks(&calls[0], &job); /* the cell is not even made yet */
    sp_cell_pool_end_session(server->cell_pool, job.session);
    awaits(&calls[0]);
    assert_false(calls[0].has_answer);
    does(&calls[1], &job);
    asks(&calls[2], &job);
    sp_cell_pool_end_session(server->cell_pool, job.session);
    awaits(&calls[2]);
    sp_policy_done(&p);
    until_workers(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        files_test(test_operations_come_back),
        files_test(test_what_is_wrong_is_refused_at_once),
        files_test(test_order),
        files_test(test_blocks_wait_for_their_file),
        files_test(test_calls_are_dropped_at_any_moment),
        files_test(test_a_process_that_is_killed),
        files_test(test_a_cell_that_is_killed),
        files_test(test_the_end_while_something_hangs),
        files_test(test_what_a_client_sees_of_the_process),
        files_test(test_signals_are_errors),
        files_test(test_one_that_is_never_asked_goes),
        files_test(test_under_a_policy),
        files_test(test_the_disk_changes_while_the_cell_is_built),
        files_test(test_many_policies),
        files_test(test_the_end_of_a_session),
    };

    return files_main(tests, sizeof tests / sizeof tests[0]);
}
