/* SPDX-License-Identifier: Apache-2.0 */
/* Real children. Linked with --wrap, so that any call on the way can be made to fail. */
#include <sys/prctl.h>
#include <sys/stat.h>

#include "os/pty.h"
#include "os/spawn.h"
#include "process_fixture.h"

/* ---- faults: the n-th wrapped call after fail_after(n) answers EUCLEAN ---- */

#define FAULT EUCLEAN /* nothing here fails with this by itself */

static int calls_left;
static bool has_fired;

static void fail_after(int n)
{
    calls_left = n;
    has_fired = false;
}

static bool fires(void)
{
    if (calls_left == 0 || --calls_left != 0)
        return false;
    has_fired = true;
    errno = FAULT;
    return true;
}

int __real_dup2(int from, int to);
int __wrap_dup2(int from, int to);
int __wrap_dup2(int from, int to)
{
    return fires() ? -1 : __real_dup2(from, to);
}

static int null_like; /* what the slots are given back to cannot fail: the number is there */

int __real_dup3(int from, int to, int flags);
int __wrap_dup3(int from, int to, int flags);
int __wrap_dup3(int from, int to, int flags)
{
    return from != null_like && fires() ? -1 : __real_dup3(from, to, flags);
}

pid_t __real_setsid(void);
pid_t __wrap_setsid(void);
pid_t __wrap_setsid(void)
{
    return fires() ? -1 : __real_setsid();
}

int __real_ioctl(int fd, unsigned long what, ...);
int __wrap_ioctl(int fd, unsigned long what, long arg);
int __wrap_ioctl(int fd, unsigned long what, long arg)
{
    return fires() ? -1 : __real_ioctl(fd, what, arg);
}

int __real_prctl(int what, ...);
int __wrap_prctl(int what, long a, long b, long c, long d);
int __wrap_prctl(int what, long a, long b, long c, long d)
{
    return fires() ? -1 : __real_prctl(what, a, b, c, d);
}

int __real_setrlimit64(int what, const struct rlimit *limit);
int __wrap_setrlimit64(int what, const struct rlimit *limit);
int __wrap_setrlimit64(int what, const struct rlimit *limit)
{
    return fires() ? -1 : __real_setrlimit64(what, limit);
}

int __real_close_range(unsigned first, unsigned last, int flags);
int __wrap_close_range(unsigned first, unsigned last, int flags);
int __wrap_close_range(unsigned first, unsigned last, int flags)
{
    return fires() ? -1 : __real_close_range(first, last, flags);
}

/* ---- a child and what it says ---- */

static const char *puppet;
static char said[65536];

#define ARGS(...) ((char *const[]){__VA_ARGS__, NULL})
#define S(text)   ((char *)(uintptr_t)(text))

static struct sp_spawn plan(const char *file, char *const *argv)
{
    static char *const no_env[] = {NULL};

    return (struct sp_spawn){
        .stdio = {-1, -1, -1}, .cgroup = -1, .file = file, .argv = argv, .envp = no_env};
}

static int end_of(struct sp_spawn *s)
{
    const int r = reap(s->pid, DEADLINE_MS);

    (void)close(s->pidfd);
    return r;
}

/* Runs it to its end with its stdout and stderr heard; its exit status. */
static int hear(struct sp_spawn *s)
{
    int fd[2];

    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    s->stdio[1] = s->stdio[2] = fd[1];
    const int r = sp_spawn(s);
    (void)close(fd[1]);
    if (r == 0)
        assert_true(read_to_end(fd[0], said, sizeof said, NULL, DEADLINE_MS));
    (void)close(fd[0]);
    if (r < 0)
        fail_msg("%s: %s", sp_step_name(s->failed_step), strerror(s->failed_errno));
    return end_of(s);
}

static void said_line(const char *fmt, ...) SP_PRINTF(1, 2);
static void said_line(const char *fmt, ...)
{
    char want[600] = "\n";
    char all[sizeof said + 2];
    va_list ap;

    va_start(ap, fmt);
    const int n = vsnprintf(want + 1, sizeof want - 2, fmt, ap);
    va_end(ap);
    strcpy(want + 1 + n, "\n");
    (void)snprintf(all, sizeof all, "\n%s", said);
    if (strstr(all, want) == NULL)
        fail_msg("no line %s in:\n%s", want, said);
}

static int fds_before;

static int begin(void **state)
{
    (void)state;
    fds_before = open_fds();
    said[0] = 0;
    fail_after(0);
    return 0;
}

static int leaves_nothing(void **state)
{
    (void)state;
    fail_after(0);
    assert_no_children();
    assert_int_equal(open_fds(), fds_before);
    return 0;
}

/* ---- what a child is born with ---- */

static void test_a_child_leads_its_own_session_and_has_three_descriptors(void **state)
{
    struct sp_spawn s = plan(puppet, ARGS(S("puppet"), S("report")));

    (void)state;
    assert_int_equal(hear(&s), 0);
    said_line("pid=%d", (int)s.pid);
    said_line("ppid=%d", (int)getpid());
    said_line("sid=%d", (int)s.pid);
    said_line("pgid=%d", (int)s.pid);
    said_line("fds=0,1,2,");
    said_line("tty=000");
    said_line("ctty=-1");
    said_line("pdeathsig=0");
    said_line("subreaper=0");
}

static void test_arguments_and_environment_arrive_as_given(void **state)
{
    struct sp_spawn s = plan(puppet, ARGS(S("arg zero"), S("strings"), S(""), S("\xFF \n")));

    (void)state;
    s.envp = ARGS(S("A=1"), S("=odd"), S("B="));
    assert_int_equal(hear(&s), 0);
    assert_string_equal(
        said, "arg=arg zero\narg=strings\narg=\narg=\xFF \n\nenv=A=1\nenv==odd\nenv=B=\nend\n");
}

static void test_stdio_is_what_was_given_or_nothing(void **state)
{
    struct sp_spawn s =
        plan("/bin/sh", ARGS(S("sh"), S("-c"), S("cat; echo out; echo err >&2; exit 5")));
    int in[2];

    (void)state;
    assert_int_equal(hear(&s), 5); /* stdin is /dev/null: cat ends at once */
    assert_string_equal(said, "out\nerr\n");
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(write(in[1], "given\n", 6), 6);
    (void)close(in[1]);
    s.stdio[0] = in[0];
    assert_int_equal(hear(&s), 5);
    assert_string_equal(said, "given\nout\nerr\n");
    (void)close(in[0]);
    s = plan("/bin/sh", ARGS(S("sh"), S("-c"), S("echo nowhere && test ! -t 1")));
    assert_int_equal(sp_spawn(&s), 0); /* all three are /dev/null */
    assert_int_equal(end_of(&s), 0);
}

static void test_a_terminal_becomes_the_controlling_one(void **state)
{
    struct sp_spawn s = plan(puppet, ARGS(S("puppet"), S("report")));
    struct sp_pty pty;

    (void)state;
    assert_int_equal(sp_pty_open(33, 99, &pty, NULL), 0);
    for (int i = 0; i < 3; i++)
        s.stdio[i] = pty.slave;
    s.is_tty = true;
    assert_int_equal(sp_spawn(&s), 0);
    assert_true(read_until(pty.master, said, sizeof said, "end\r\n", DEADLINE_MS));
    for (char *p = said; (p = strchr(p, '\r')) != NULL;)
        memmove(p, p + 1, strlen(p));
    said_line("sid=%d", (int)s.pid);
    said_line("tty=111");
    said_line("ctty=%d", (int)s.pid);
    said_line("foreground=%d", (int)s.pid);
    said_line("size=33x99");
    said_line("fds=0,1,2,");
    assert_int_equal(end_of(&s), 0);
    (void)close(pty.master);
    (void)close(pty.slave);
}

static void test_the_signal_mask_is_empty_and_handlers_are_gone(void **state)
{
    struct sp_spawn s = plan(puppet, ARGS(S("puppet"), S("report")));
    sigset_t some;
    sigset_t was;

    (void)state;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGCHLD);
    sigprocmask(SIG_BLOCK, &some, &was);
    const sighandler_t old = signal(SIGUSR2, (sighandler_t)(void (*)(void))leaves_nothing);
    const int r = hear(&s);
    (void)signal(SIGUSR2, old);
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    sigprocmask(SIG_SETMASK, &was, NULL);
    assert_int_equal(r, 0);
    assert_true(sigismember(&now, SIGUSR1) == 1 &&
                sigismember(&now, SIGTERM) == 0); /* ours is kept */
    said_line("SigBlk=0000000000000000");
    said_line("SigCgt=0000000000000000");
}

static void test_limits_directory_and_guardianship_are_as_asked(void **state)
{
    struct sp_spawn s = plan(puppet, ARGS(S("puppet"), S("report")));
    const struct rlimit limit = {.rlim_cur = 77, .rlim_max = 99};

    (void)state;
    s.nofile = &limit;
    s.cwd = "/usr";
    s.is_subreaper = true;
    s.dies_with_us = true;
    assert_int_equal(hear(&s), 0);
    said_line("nofile=77,99");
    said_line("cwd=/usr");
    said_line("subreaper=1");
    said_line("pdeathsig=%d", SIGKILL);
}

static void test_what_dies_with_us_does(void **state)
{
    int fd[2];

    (void)state;
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sp_spawn s = plan(puppet, ARGS(S("puppet"), S("pause")));
        char text[16];

        s.stdio[1] = fd[1];
        s.dies_with_us = true;
        CHILD_CHECK(sp_spawn(&s) == 0);
        CHILD_CHECK(read_until(fd[0], text, sizeof text, "ready\n", DEADLINE_MS));
        (void)kill(getpid(), SIGKILL); /* however we end */
    }
    (void)close(fd[1]);
    assert_int_equal(reap(pid, DEADLINE_MS), 128 + SIGKILL);
    assert_true(read_to_end(fd[0], NULL, 0, NULL, DEADLINE_MS)); /* the puppet is gone */
    (void)close(fd[0]);
}

static void test_five_thousand_open_descriptors_are_not_inherited(void **state)
{
    struct rlimit limit;
    static int fds[5000];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < 5100) {
        print_message("# skipped: at most %llu descriptors\n", (unsigned long long)limit.rlim_cur);
        skip();
    }
    for (int i = 0; i < 5000; i++) {
        fds[i] = dup(1); /* without close-on-exec */
        assert_true(fds[i] >= 0);
    }
    struct sp_spawn s = plan(puppet, ARGS(S("puppet"), S("report")));
    const int r = hear(&s);
    for (int i = 0; i < 5000; i++)
        (void)close(fds[i]);
    assert_int_equal(r, 0);
    said_line("fds=0,1,2,");
}

static void test_one_apart_uses_what_is_reserved(void **state)
{
    struct sp_spawn s = plan(puppet, ARGS(S("puppet"), S("report")));
    const int extra = dup(1); /* without close-on-exec */

    (void)state;
    s.is_apart = true;
    const int r = hear(&s);
    (void)close(extra);
    assert_int_equal(r, 0);
    said_line("sid=%d", (int)s.pid);
    said_line("fds=0,1,2,");
    const char *blocked = strstr(said, "SigBlk=");
    assert_non_null(blocked);
    assert_true(strncmp(blocked, "SigBlk=fffffff", 14) == 0); /* as it is promised */
}

static void test_low_numbers_are_filled_for_good(void **state)
{
    struct sp_spawn s = plan(puppet, ARGS(S("puppet"), S("report")));

    (void)state;
    for (int i = 0; i < 2; i++) {
        sp_spawn_fill_low();
        const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(fd == 64);
        (void)close(fd);
    }
    fds_before = open_fds(); /* they stay */
    assert_int_equal(hear(&s), 0);
    said_line("fds=0,1,2,");
}

static void test_a_pipe_reads_as_ended_once_the_child_is_gone(void **state)
{
    struct sp_spawn s = plan("/bin/true", ARGS(S("true")));
    int fd[2];

    (void)state;
    /* The spawner keeps no copy of what it gave away. */
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    s.stdio[0] = s.stdio[1] = s.stdio[2] = fd[1];
    assert_int_equal(sp_spawn(&s), 0);
    (void)close(fd[1]);
    assert_true(read_to_end(fd[0], said, sizeof said, NULL, DEADLINE_MS));
    (void)close(fd[0]);
    assert_int_equal(end_of(&s), 0);
}

/* ---- how the program is found ---- */

static char directory[64];

static void make_file(const char *name, const char *text, mode_t mode)
{
    char path[128];

    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    (void)close(fd);
}

static void make_dir(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static int make_directory(void **state)
{
    (void)snprintf(directory, sizeof directory, "/tmp/sallyport-test-XXXXXX");
    if (mkdtemp(directory) == NULL)
        return -1;
    make_dir("first");
    make_dir("second");
    make_dir("third");
    make_dir("third/prog"); /* a directory of that name */
    make_file("first/prog", "#!/bin/sh\necho first\n", 0644);
    make_file("second/prog", "#!/bin/sh\necho second\n", 0755);
    make_file("prog", "#!/bin/sh\necho here\n", 0755);
    make_file("noexec", "echo no interpreter\n", 0755);
    make_file("lost", "#!/no/such/interpreter\n", 0755);
    return begin(state);
}

static int remove_directory(void **state)
{
    static const char *const names[] = {"first/prog", "second/prog", "prog",   "noexec", "lost",
                                        "third/prog", "first",       "second", "third",  ""};
    char path[128];
    int r = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        r |= remove(path);
    }
    return r == 0 ? leaves_nothing(state) : r;
}

/* `path` with each @ standing for the directory. */
static const char *expand(const char *path)
{
    static char text[8192];
    size_t n = 0;

    if (path == NULL)
        return NULL;
    for (; *path != 0; path++)
        n += (size_t)(*path == '@' ? sprintf(text + n, "%s", directory)
                                   : sprintf(text + n, "%c", *path));
    text[n] = 0;
    return text;
}

static void finds(const char *path, const char *file, const char *want)
{
    struct sp_spawn s = plan(file, ARGS(S("prog")));

    s.search_path = expand(path);
    s.cwd = directory;
    assert_int_equal(hear(&s), 0);
    assert_string_equal(said, want);
}

static void fails(const char *path, const char *file, int want)
{
    struct sp_spawn s = plan(file, ARGS(S("prog")));

    s.search_path = expand(path);
    s.cwd = directory;
    assert_int_equal(sp_spawn(&s), -SP_E_SYSTEM);
    assert_int_equal(s.failed_step, SP_STEP_EXEC);
    if (s.failed_errno != want)
        fail_msg("%s in %s: %s, not %s", file, path, strerrorname_np(s.failed_errno),
                 strerrorname_np(want));
    assert_no_children();
}

static void test_the_first_program_in_the_path_runs(void **state)
{
    (void)state;
    finds("@/second:@", "prog", "second\n");
    finds("@:@/second", "prog", "here\n");
    finds("/nowhere:@/second", "prog", "second\n");
    finds("@/second/", "prog", "second\n");
}

static void test_what_may_not_be_executed_is_passed_over_and_remembered(void **state)
{
    (void)state;
    finds("@/first:@/second", "prog", "second\n");
    finds("@/third:@/second", "prog", "second\n"); /* a directory of that name */
    fails("@/first", "prog", EACCES);
    fails("@/first:/nowhere", "prog", EACCES);
    fails("/nowhere:@/third:/nowhere", "prog", EACCES);
}

static void test_what_is_no_directory_is_passed_over(void **state)
{
    (void)state;
    finds("@/prog:@/second", "prog", "second\n");
    fails("@/prog", "prog", ENOENT);
    fails("@/prog:/nowhere", "prog", ENOENT);
}

static void test_relative_and_empty_entries_mean_the_childs_directory(void **state)
{
    (void)state;
    finds("second", "prog", "second\n");
    finds("./second", "prog", "second\n");
    finds(".", "prog", "here\n");
    finds("", "prog", "here\n");
    finds(":@/second", "prog", "here\n");
    finds("/nowhere:", "prog", "here\n");
    finds("/nowhere::@/second", "prog", "here\n");
}

static void test_a_name_with_a_slash_is_not_searched_for(void **state)
{
    (void)state;
    finds("@/first", "./prog", "here\n");
    finds(NULL, "second/prog", "second\n");
    finds(NULL, expand("@/second/prog"), "second\n");
    fails("@/second", "./second", EACCES); /* a directory */
    fails("@", "sub/prog", ENOENT);
    fails("@", "prog/x", ENOTDIR);
}

static void test_without_a_path_the_systems_is_used(void **state)
{
    (void)state;
    struct sp_spawn s = plan("true", ARGS(S("true")));
    assert_int_equal(hear(&s), 0);
    fails(NULL, "prog", ENOENT);
}

static void test_long_names_and_paths_are_errors_or_passed_over(void **state)
{
    static char name[300];
    static char path[6000];

    (void)state;
    memset(name, 'n', 256);
    fails("@", name, ENAMETOOLONG);
    memset(path, 'p', 5000);
    strcpy(path + 5000, ":@/second");
    finds(path, "prog", "second\n");
}

static void test_an_empty_name_is_not_found(void **state)
{
    (void)state;
    fails("@:/bin", "", ENOENT);
    fails(NULL, "", ENOENT);
}

static void test_broken_programs_are_errors(void **state)
{
    (void)state;
    fails("@:@/second", "noexec", ENOEXEC);
    fails("@", "./noexec", ENOEXEC);
    fails("@", "./lost", ENOENT);
}

/* ---- failures ---- */

static void refuses(struct sp_spawn *s, enum sp_step step, int err)
{
    assert_int_equal(sp_spawn(s), -SP_E_SYSTEM);
    if (s->failed_step != step || s->failed_errno != err)
        fail_msg("%s: %s", sp_step_name(s->failed_step), strerrorname_np(s->failed_errno));
    assert_no_children();
    assert_int_equal(open_fds(), fds_before);
}

static void test_each_failing_step_is_named_with_its_errno(void **state)
{
    static const struct rlimit upside_down = {.rlim_cur = 100, .rlim_max = 50};
    struct sp_spawn s;

    (void)state;
    s = plan("/bin/true", ARGS(S("true")));
    s.stdio[1] = 1000000;
    refuses(&s, SP_STEP_STDIO, EBADF);
    s = plan("/bin/true", ARGS(S("true")));
    s.is_tty = true; /* /dev/null is none */
    refuses(&s, SP_STEP_TERMINAL, ENOTTY);
    s = plan("/bin/true", ARGS(S("true")));
    s.nofile = &upside_down;
    refuses(&s, SP_STEP_LIMITS, EINVAL);
    s = plan("/bin/true", ARGS(S("true")));
    s.cwd = "/nowhere";
    refuses(&s, SP_STEP_CWD, ENOENT);
    s.cwd = "/bin/true";
    refuses(&s, SP_STEP_CWD, ENOTDIR);
    s = plan("/bin/nowhere", ARGS(S("true")));
    refuses(&s, SP_STEP_EXEC, ENOENT);
    s = plan("/bin/true", ARGS(S("true")));
    s.cgroup = 1000000;
    refuses(&s, SP_STEP_CLONE, EBADF);
}

static void test_a_program_of_another_inode_does_not_start(void **state)
{
    struct sp_spawn s = plan("/bin/true", ARGS(S("a name")));
    struct stat st;

    (void)state;
    assert_int_equal(stat(s.file, &st), 0);
    s.dev = st.st_dev;
    s.ino = st.st_ino;
    assert_int_equal(hear(&s), 0);
    s = plan("/bin/true", ARGS(S("a name")));
    s.dev = st.st_dev;
    s.ino = st.st_ino + 1;
    refuses(&s, SP_STEP_PROGRAM, ESTALE);
    s.dev = st.st_dev + 1;
    s.ino = st.st_ino;
    refuses(&s, SP_STEP_PROGRAM, ESTALE);
    s.file = "/bin/nowhere";
    refuses(&s, SP_STEP_PROGRAM, ENOENT);
}

static void test_too_many_arguments_are_the_kernels_error(void **state)
{
    const size_t size = 8U << 20;
    char *big = malloc(size);
    struct sp_spawn s;

    (void)state;
    assert_non_null(big);
    memset(big, 'x', size - 1);
    big[size - 1] = 0;
    s = plan("/bin/true", ARGS(S("true"), big));
    refuses(&s, SP_STEP_EXEC, E2BIG);
    free(big);
}

static void test_every_step_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < SP_STEP_MAX; i++)
        assert_true(strlen(sp_step_name((enum sp_step)i)) > 2);
    assert_string_equal(sp_step_name(SP_STEP_MAX), "unknown");
    assert_string_equal(sp_step_name((enum sp_step) - 1), "unknown");
}

/* Fail the first call, then the second ... until none fails: nothing leaks on the way. */
static void test_every_fault_is_told_and_leaves_nothing(void **state)
{
    const struct rlimit limit = {.rlim_cur = 100, .rlim_max = 100};
    bool step_seen[SP_STEP_MAX] = {false};

    (void)state;
    for (int n = 1;; n++) {
        struct sp_spawn s = plan("true", ARGS(S("true")));
        struct sp_pty pty;

        assert_true(n < 100);
        assert_int_equal(sp_pty_open(24, 80, &pty, NULL), 0);
        for (int i = 0; i < 3; i++)
            s.stdio[i] = pty.slave;
        s.is_tty = s.dies_with_us = s.is_subreaper = true;
        s.nofile = &limit;
        s.cwd = "/";
        s.search_path = "/bin";
        fail_after(n);
        const int r = sp_spawn(&s);
        const bool fired = has_fired;
        fail_after(0);
        if (r == 0) {
            assert_int_equal(end_of(&s), 0);
        } else {
            assert_true(fired);
            assert_int_equal(r, -SP_E_SYSTEM);
            assert_int_equal(s.failed_errno, FAULT);
            assert_true(s.failed_step != SP_STEP_NONE && s.failed_step < SP_STEP_MAX);
            step_seen[s.failed_step] = true;
        }
        (void)close(pty.master);
        (void)close(pty.slave);
        assert_no_children();
        assert_int_equal(open_fds(), fds_before);
        if (!fired) {
            assert_int_equal(r, 0);
            break;
        }
    }
    static const enum sp_step all[] = {SP_STEP_FDS,      SP_STEP_STDIO,  SP_STEP_SESSION,
                                       SP_STEP_TERMINAL, SP_STEP_PARENT, SP_STEP_LIMITS};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!step_seen[all[i]])
            fail_msg("no fault in step %s", sp_step_name(all[i]));
}

static void test_a_failed_start_does_not_disturb_the_next(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct sp_spawn bad = plan("/nowhere", ARGS(S("x")));
        struct sp_spawn good = plan("/bin/true", ARGS(S("true")));

        refuses(&bad, SP_STEP_EXEC, ENOENT);
        assert_int_equal(sp_spawn(&good), 0);
        assert_int_equal(end_of(&good), 0);
    }
}

#define spawn_test(f) cmocka_unit_test_setup_teardown(f, begin, leaves_nothing)
#define path_test(f)  cmocka_unit_test_setup_teardown(f, make_directory, remove_directory)

static const struct CMUnitTest tests[] = {
    spawn_test(test_a_child_leads_its_own_session_and_has_three_descriptors),
    spawn_test(test_arguments_and_environment_arrive_as_given),
    spawn_test(test_stdio_is_what_was_given_or_nothing),
    spawn_test(test_a_terminal_becomes_the_controlling_one),
    spawn_test(test_the_signal_mask_is_empty_and_handlers_are_gone),
    spawn_test(test_limits_directory_and_guardianship_are_as_asked),
    spawn_test(test_what_dies_with_us_does),
    spawn_test(test_five_thousand_open_descriptors_are_not_inherited),
    spawn_test(test_one_apart_uses_what_is_reserved),
    spawn_test(test_a_pipe_reads_as_ended_once_the_child_is_gone),
    path_test(test_the_first_program_in_the_path_runs),
    path_test(test_what_may_not_be_executed_is_passed_over_and_remembered),
    path_test(test_what_is_no_directory_is_passed_over),
    path_test(test_relative_and_empty_entries_mean_the_childs_directory),
    path_test(test_a_name_with_a_slash_is_not_searched_for),
    path_test(test_without_a_path_the_systems_is_used),
    path_test(test_long_names_and_paths_are_errors_or_passed_over),
    path_test(test_an_empty_name_is_not_found),
    path_test(test_broken_programs_are_errors),
    spawn_test(test_each_failing_step_is_named_with_its_errno),
    spawn_test(test_a_program_of_another_inode_does_not_start),
    spawn_test(test_too_many_arguments_are_the_kernels_error),
    spawn_test(test_every_step_has_a_name),
    spawn_test(test_every_fault_is_told_and_leaves_nothing),
    spawn_test(test_a_failed_start_does_not_disturb_the_next),
    spawn_test(test_low_numbers_are_filled_for_good), /* the last: they stay */
};

int main(void)
{
    struct sp_err e = {0};

    puppet = getenv("PUPPET");
    if (puppet == NULL || sp_spawn_reserve(&e) < 0)
        return 77;
    null_like = 6; /* the first number above the slots is the spawner's own */
    (void)signal(SIGPIPE, SIG_DFL);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)fflush(NULL);
    /* Not exit: children that failed in our memory may have left the sanitizer's locks taken. */
    _exit(failed);
}
