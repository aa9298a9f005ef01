/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file: reading, writing, blocks, facts, directories, names, and what every kind of thing in
 * the way answers.
 */
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "file_fixture.h"

static void test_a_file_is_read_whole(void **state)
{
    static char text[3 * WINDOW + 1];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    /* Around the window's size, where the memory file begins. */
    const size_t sizes[] = {0, 1, 4095, WINDOW - 1, WINDOW, WINDOW + 1, sizeof text - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        text[sizes[i]] = 0;
        make_file("f", text);
        assert_int_equal(do_op(SP_FILE_READ, "f"), 0);
        assert_int_equal(answer.data_len, sizes[i]);
        assert_int_equal(answer.memory >= 0, sizes[i] >= WINDOW);
        if (sizes[i] != 0)
            assert_memory_equal(answer_data(), text, sizes[i]);
        text[sizes[i]] = 'x';
    }
    assert_int_equal(do_op(SP_FILE_READ, "missing"), ENOENT);
    assert_int_equal(do_op(SP_FILE_READ, "f/x"), ENOTDIR);
}

/* A window with room for pieces, and what was told of them. */
static char wide[4 * SP_FILE_PIECE];
static uint64_t told_bytes, told_size;
static unsigned told_count;

static void on_some(struct sp_file_answer *a, uint64_t bytes, uint64_t size)
{
    assert_ptr_equal(a->window, wide);
    assert_true(bytes > told_bytes && bytes <= size);
    told_bytes = bytes;
    told_size = size;
    told_count++;
}

static void test_pieces_of_a_file_are_told(void **state)
{
    static char text[sizeof wide + 1];
    const size_t sizes[] = {2 * SP_FILE_PIECE - 1, 2 * SP_FILE_PIECE, sizeof wide - 1, sizeof wide};
    const unsigned counts[] = {0, 2, 4, 0}; /* a file that fills the window goes to memory */

    (void)state;
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = (char)('a' + i % 23);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const struct sp_file_request ask = an_ask(SP_FILE_READ, at("f"));

        forget_answer();
        make_file("f", text + sizeof text - 1 - sizes[i]);
        answer = (struct sp_file_answer){
            .window = wide, .window_size = sizeof wide, .read_some = on_some};
        told_bytes = told_size = told_count = 0;
        sp_file_do(&ask, &answer);
        assert_int_equal(answer.err, 0);
        assert_int_equal(answer.data_len, sizes[i]);
        assert_int_equal(answer.memory >= 0, sizes[i] == sizeof wide);
        if (answer.memory < 0)
            assert_memory_equal(wide, text + sizeof text - 1 - sizes[i], sizes[i]);
        assert_int_equal(told_count, counts[i]);
        assert_int_equal(told_size, counts[i] == 0 ? 0 : sizes[i]);
    }
}

static void test_what_is_no_file_is_not_read(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    make_dir("d");
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    (void)snprintf(name.sun_path, sizeof name.sun_path, "%s", at("socket"));
    assert_int_equal(bind(s, (struct sockaddr *)&name, sizeof name), 0);
    (void)close(s);
    for (int follows = 0; follows < 2; follows++) {
        struct sp_file_request ask = an_ask(SP_FILE_READ, at("d"));

        ask.follows = follows != 0;
        assert_int_equal(carry_out(&ask), 0);
        assert_int_equal(answer.refusal, SP_FILE_NOT_A_FILE);
        ask.path = at("fifo"); /* and nobody waits for a writer */
        assert_int_equal(carry_out(&ask), 0);
        assert_int_equal(answer.refusal, SP_FILE_NOT_A_FILE);
        ask.path = "/dev/null";
        assert_int_equal(carry_out(&ask), 0);
        assert_int_equal(answer.refusal, SP_FILE_NOT_A_FILE);
        ask.path = at("socket");
        assert_int_equal(carry_out(&ask), ENXIO);
        ask.op = SP_FILE_OPEN;
        ask.path = at("fifo");
        assert_int_equal(carry_out(&ask), 0);
        assert_int_equal(answer.refusal, SP_FILE_NOT_A_FILE);
    }
}

static void test_files_of_the_kernel_are_read_to_their_end(void **state)
{
    struct sp_file_request ask = an_ask(SP_FILE_READ, "/proc/self/status");

    (void)state;
    assert_int_equal(carry_out(&ask), 0);
    assert_true(answer.data_len > 100);
    assert_memory_equal(window, "Name:", 5);
    ask.path = "/proc/self/mem"; /* nothing is at its beginning */
    assert_true(carry_out(&ask) != 0);
    ask.path = "/proc/kmsg"; /* which waits for news, or is not for us */
    (void)carry_out(&ask);
}

static void test_large_sparse_files(void **state)
{
    struct stat st;

    (void)state;
    make_file("f", "");
    assert_int_equal(truncate(at("f"), 32 << 20), 0);
    assert_int_equal(do_op(SP_FILE_READ, "f"), 0);
    assert_int_equal(answer.data_len, 32 << 20);
    assert_int_equal(answer_data()[(32 << 20) - 1], 0);
    assert_int_equal(truncate(at("f"), (off_t)SP_FILE_MAX_READ + 1), 0);
    assert_int_equal(do_op(SP_FILE_READ, "f"), 0);
    assert_int_equal(answer.refusal, SP_FILE_TOO_LARGE);
    assert_int_equal(answer.number, SP_FILE_MAX_READ);

    /* A copy has the same holes, the same bytes between them, and the same end. */
    assert_int_equal(truncate(at("f"), (off_t)1 << 33), 0);
    const int fd = open(at("f"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "middle", 6, (off_t)1 << 32), 6);
    (void)close(fd);
    assert_int_equal(stat(at("f"), &st), 0);
    if ((uint64_t)st.st_blocks * 512 > 1 << 20) {
        (void)printf("# no sparse files here\n");
        return;
    }
    assert_int_equal(do_copy("f", "g", false), 0);
    assert_int_equal(answer.refusal, 0);
    assert_int_equal(stat(at("g"), &st), 0);
    assert_int_equal(st.st_size, (off_t)1 << 33);
    assert_true((uint64_t)st.st_blocks * 512 <= 1 << 20);
    char middle[8] = {0};
    const int copy = open(at("g"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(copy, middle, 8, (off_t)1 << 32), 8);
    assert_memory_equal(middle, "middle\0\0", 8);
    (void)close(copy);
    /* Nothing but a hole. */
    make_file("h", "");
    assert_int_equal(truncate(at("h"), 1 << 20), 0);
    assert_int_equal(do_copy("h", "g", false), 0);
    assert_int_equal(stat(at("g"), &st), 0);
    assert_int_equal(st.st_size, 1 << 20);
}

static void test_a_file_is_written_in_place(void **state)
{
    struct stat before;
    struct stat after;

    (void)state;
    (void)umask(027);
    assert_int_equal(do_write("f", "one", true), 0);
    assert_file("f", "one");
    assert_int_equal(mode_of("f"), 0640);
    assert_int_equal(chmod(at("f"), 0604), 0);
    assert_int_equal(link(at("f"), at("hard")), 0);
    assert_int_equal(stat(at("f"), &before), 0);
    assert_int_equal(do_write("f", "2", true), 0);
    assert_int_equal(stat(at("f"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(mode_of("f"), 0604);
    assert_file("hard", "2");
    assert_int_equal(do_write("f", "", true), 0);
    assert_file("f", "");

    assert_int_equal(do_write("no/f", "x", true), ENOENT);
    make_dir("d");
    assert_int_equal(do_write("d", "x", true), EISDIR);
    make_link("made", "dangling");
    assert_int_equal(do_write("dangling", "through", true), 0);
    assert_file("made", "through");
    make_link("loop", "loop");
    assert_int_equal(do_write("loop", "x", true), ELOOP);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(do_write("fifo", "x", true), ENXIO);
}

static void test_links_that_lead_nowhere_by_name_are_not_written_through(void **state)
{
    const int fd = memfd_create("test", MFD_CLOEXEC);
    char path[64];
    struct sp_file_request ask = an_ask(SP_FILE_WRITE, path);

    (void)state;
    ask.data = "x";
    ask.data_len = 1;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(carry_out(&ask), ELOOP);
    make_link(path, "link");
    assert_int_equal(do_write("link", "x", true), ELOOP);
    ask.path = "/proc/self/exe";
    assert_int_equal(carry_out(&ask), ELOOP);
    ask.op = SP_FILE_OPEN;
    ask.is_replace = true;
    assert_int_equal(carry_out(&ask), ELOOP);
    make_file("f", "y");
    ask = an_ask(SP_FILE_COPY, at("f"));
    ask.other = path;
    assert_int_equal(carry_out(&ask), ELOOP);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    (void)close(fd);
}

static void test_memory_is_no_file(void **state)
{
    struct sp_file_request ask = an_ask(SP_FILE_OPEN, "/proc/self/mem");
    char by_task[64];

    (void)state;
    for (int i = 0; i < 2; i++) {
        ask.is_replace = i != 0;
        ask.path = "/proc/self/mem";
        assert_int_equal(carry_out(&ask), 0);
        assert_int_equal(answer.refusal, SP_FILE_NOT_A_FILE);
        (void)snprintf(by_task, sizeof by_task, "/proc/self/task/%d/mem", (int)getpid());
        ask.path = by_task;
        assert_int_equal(carry_out(&ask), 0);
        assert_int_equal(answer.refusal, SP_FILE_NOT_A_FILE);
    }
    ask.is_replace = false;
    ask.path = "/proc/self/status";
    assert_int_equal(carry_out(&ask), 0);
    assert_true(answer.fd >= 0);
}

static void test_no_link_is_followed(void **state)
{
    struct sp_file_request ask = an_ask(SP_FILE_READ, NULL);

    (void)state;
    make_file("d/f", "text");
    make_link("d", "to-d");
    make_link("f", "d/to-f");
    ask.follows = false;
    ask.path = at("d/f");
    assert_int_equal(carry_out(&ask), 0);
    assert_bytes(window, answer.data_len, "text");
    ask.path = at("to-d/f");
    assert_int_equal(carry_out(&ask), ENOTDIR);
    ask.path = at("d/to-f");
    assert_int_equal(carry_out(&ask), ELOOP);
    ask.path = at("d/.//f");
    assert_int_equal(carry_out(&ask), 0);
    ask.path = at("d/f/"); /* no directory */
    assert_int_equal(carry_out(&ask), ENOTDIR);
    ask.path = at("none/f");
    assert_int_equal(carry_out(&ask), ENOENT);
    ask.op = SP_FILE_STAT;
    ask.path = at("d/to-f");
    assert_int_equal(carry_out(&ask), 0);
    assert_int_equal(answer.refusal, SP_FILE_HAS_LINK);
    ask.path = at("to-d/f");
    assert_int_equal(carry_out(&ask), ENOTDIR);
    ask.path = "/";
    assert_int_equal(carry_out(&ask), 0);
    assert_true(answer.stat.is_directory);
    ask.op = SP_FILE_REMOVE;
    ask.path = at("d/to-f");
    assert_int_equal(carry_out(&ask), 0);
    assert_int_equal(answer.refusal, SP_FILE_HAS_LINK);
    ask.is_recursive = true;
    assert_int_equal(carry_out(&ask), 0);
    assert_int_equal(answer.refusal, SP_FILE_TREE_WITHOUT_LINKS);
    ask.is_recursive = false;
    ask.path = at("d/f");
    assert_int_equal(carry_out(&ask), 0);
    assert_false(exists("d/f"));
    ask.path = "/";
    assert_int_equal(carry_out(&ask), EBUSY);
    ask.path = at("d/..");
    assert_int_equal(carry_out(&ask), EINVAL);

    assert_int_equal(do_write("to-d/new", "x", false), ENOTDIR);
    assert_int_equal(do_write("d/to-f", "x", false), ELOOP);
    assert_int_equal(do_write("d/new", "x", false), 0);
    assert_int_equal(do_make("to-d/x", true, false), ENOTDIR);
    assert_int_equal(do_make("d/x/y", true, false), 0);
    assert_int_equal(do_make("d/x/y", true, false), 0);
    assert_int_equal(do_make("d/x/z", false, false), 0);
    assert_int_equal(do_make("d/x/z", false, false), EEXIST);
    assert_int_equal(do_make("to-d", false, false), EEXIST);
}

static void test_blocks(void **state)
{
    struct sp_file_request open_it = an_ask(SP_FILE_OPEN, at("f"));
    struct sp_file_request block = {.op = SP_FILE_WRITE_BLOCK, .data = "abc", .data_len = 3};
    struct stat st;

    (void)state;
    assert_int_equal(carry_out(&open_it), ENOENT);
    open_it.is_replace = true;
    assert_int_equal(carry_out(&open_it), 0);
    const int out = answer.fd;
    answer.fd = -1;
    assert_true(out >= 0);
    block.fd = out;
    block.offset = 5;
    assert_int_equal(carry_out(&block), 0);
    block.offset = 0;
    assert_int_equal(carry_out(&block), 0);
    block.data_len = 0;
    assert_int_equal(carry_out(&block), EINVAL);
    block.data_len = 3;
    block.offset = UINT64_MAX;
    assert_int_equal(carry_out(&block), EINVAL);
    block.offset = INT64_MAX - SP_FILE_MAX_BLOCK;
    assert_true(carry_out(&block) != 0); /* no file is so long */
    block = (struct sp_file_request){.op = SP_FILE_READ_BLOCK, .fd = out, .length = 3};
    assert_int_equal(carry_out(&block), EBADF);
    (void)close(out);

    open_it.is_replace = false;
    assert_int_equal(carry_out(&open_it), 0);
    block.fd = answer.fd;
    answer.fd = -1;
    block.length = 8;
    assert_int_equal(carry_out(&block), 0);
    assert_bytes(window, answer.data_len, "abc\0\0abc");
    assert_false(answer.is_cut);
    block.offset = 8;
    assert_int_equal(carry_out(&block), 0);
    assert_int_equal(answer.data_len, 0);
    assert_true(answer.is_cut);
    block.offset = 6;
    assert_int_equal(carry_out(&block), 0);
    assert_bytes(window, answer.data_len, "bc");
    assert_true(answer.is_cut);
    const uint32_t wrong[] = {0, WINDOW + 1, SP_FILE_MAX_BLOCK + 1};
    for (size_t i = 0; i < 3; i++) {
        block.length = wrong[i];
        assert_int_equal(carry_out(&block), EINVAL);
    }
    (void)close(block.fd);
    block.length = 1;
    assert_int_equal(carry_out(&block), EBADF);

    open_it.is_replace = true; /* empty at once, the same file */
    assert_int_equal(carry_out(&open_it), 0);
    assert_int_equal(stat(at("f"), &st), 0);
    assert_int_equal(st.st_size, 0);
}

static void test_facts(void **state)
{
    (void)state;
    make_file("f", "12345");
    make_dir("d");
    make_link("f", "to-f");
    make_link("nowhere", "dangling");
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(do_op(SP_FILE_STAT, "f"), 0);
    assert_true(answer.stat.is_file && !answer.stat.is_directory && !answer.stat.is_link);
    assert_int_equal(answer.stat.size, 5);
    const int64_t now = (int64_t)time(NULL) * 1000;
    assert_in_range(answer.stat.modified_ms, now - 600000, now + 60000);
    assert_int_equal(do_op(SP_FILE_STAT, "to-f"), 0);
    assert_true(answer.stat.is_file && answer.stat.is_link && answer.stat.size == 5);
    assert_int_equal(do_op(SP_FILE_STAT, "d"), 0);
    assert_true(answer.stat.is_directory && !answer.stat.is_file);
    assert_int_equal(do_op(SP_FILE_STAT, "fifo"), 0);
    assert_true(!answer.stat.is_directory && !answer.stat.is_file);
    assert_int_equal(do_op(SP_FILE_STAT, "dangling"), ENOENT);
    assert_int_equal(do_op(SP_FILE_STAT, "f/x"), ENOTDIR);

    assert_int_equal(do_op(SP_FILE_CANONICAL, "d/../to-f"), 0);
    assert_int_equal(answer.data_len, strlen(at("f")));
    assert_memory_equal(window, at("f"), answer.data_len);
    assert_int_equal(do_op(SP_FILE_CANONICAL, "dangling"), ENOENT);
    make_link("loop", "loop");
    assert_int_equal(do_op(SP_FILE_CANONICAL, "loop"), ELOOP);
}

static void test_paths_at_the_limits(void **state)
{
    static char path[SP_FILE_MAX_PATH + 2];
    struct sp_file_request ask = an_ask(SP_FILE_STAT, path);

    (void)state;
    for (size_t i = 0; i < sizeof path - 1; i++)
        path[i] = i % 2 == 0 ? '/' : '.';
    path[4095] = 0;
    for (int follows = 0; follows < 2; follows++) {
        ask.follows = follows != 0;
        assert_int_equal(carry_out(&ask), 0);
    }
    path[4095] = '.';
    assert_int_equal(carry_out(&ask), ENAMETOOLONG);
    memset(path + 1, 'n', 256);
    path[257] = 0;
    for (int op = SP_FILE_READ; op < SP_FILE_READ_BLOCK; op++) {
        ask = an_ask((enum sp_file_op)op, path);
        ask.other = path;
        ask.walk = (struct sp_file_walk){1, 1, 1, false, false};
        assert_int_equal(carry_out(&ask), ENAMETOOLONG);
        ask.follows = false;
        assert_int_equal(carry_out(&ask), ENAMETOOLONG);
    }
}

static void test_asks_that_are_none(void **state)
{
    struct sp_file_request ask = an_ask(SP_FILE_READ, "relative");

    (void)state;
    assert_int_equal(carry_out(&ask), EINVAL);
    ask.path = NULL;
    assert_int_equal(carry_out(&ask), EINVAL);
    ask.path = "";
    assert_int_equal(carry_out(&ask), EINVAL);
    ask = an_ask(SP_FILE_COPY, tree);
    assert_int_equal(carry_out(&ask), EINVAL);
    ask.other = "x";
    assert_int_equal(carry_out(&ask), EINVAL);
    ask = an_ask((enum sp_file_op)0, tree);
    assert_int_equal(carry_out(&ask), EINVAL);
    ask.op = SP_FILE_OP_MAX;
    assert_int_equal(carry_out(&ask), EINVAL);
    ask.op = (enum sp_file_op)1000;
    assert_int_equal(carry_out(&ask), EINVAL);
}

static void test_directories_are_made(void **state)
{
    (void)state;
    (void)umask(077);
    assert_int_equal(do_make("a/b", false, true), ENOENT);
    assert_int_equal(do_make("a", false, true), 0);
    assert_int_equal(mode_of("a"), 0700);
    assert_int_equal(do_make("a", false, true), EEXIST);
    assert_int_equal(do_make("a", true, true), 0);
    assert_int_equal(do_make("m//n/./o/", true, true), 0);
    assert_true(exists("m/n/o"));
    assert_int_equal(do_make("q/../r/s", true, true), 0);
    assert_true(exists("r/s"));
    make_file("f", "");
    assert_int_equal(do_make("f", true, true), EEXIST);
    assert_int_equal(do_make("f/x", true, true), ENOTDIR);
    make_link("nowhere/at/all", "dangling");
    assert_int_equal(do_make("dangling", true, true), EEXIST);
    make_link("a", "to-a");
    assert_int_equal(do_make("to-a/in", true, true), 0);
    assert_true(exists("a/in"));
}

static void test_names_of_a_directory(void **state)
{
    (void)state;
    make_dir("l");
    assert_int_equal(do_op(SP_FILE_LIST, "l"), 0);
    assert_int_equal(answer.data_len, 0);
    make_dir("l/d");
    assert_int_equal(do_op(SP_FILE_LIST, "l"), 0);
    assert_entries("D d\n");
    assert_int_equal(rmdir(at("l/d")), 0);
    make_link("nowhere", "l/dangling");
    make_link("dangling/x", "l/under");
    make_link("loop", "l/loop");
    make_file("f", "");
    make_link("../f/x", "l/no-directory");
    assert_int_equal(do_op(SP_FILE_LIST, "l"), 0);
    assert_entries("");
    make_link("../f", "l/to-f");
    assert_int_equal(do_op(SP_FILE_LIST, "l"), 0);
    assert_entries("F to-f\n");
    assert_int_equal(do_op(SP_FILE_LIST, "f"), ENOTDIR);
    assert_int_equal(do_op(SP_FILE_LIST, "none"), ENOENT);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(do_op(SP_FILE_LIST, "fifo"), ENOTDIR);
}

static void test_more_names_than_may_be_told(void **state)
{
    char name[300];

    (void)state;
    make_dir("many");
    const int dir = open(at("many"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    memset(name, 'n', 250);
    for (int i = 0; i < SP_FILE_MAX_ENTRIES; i++) {
        (void)snprintf(name + 240, 12, "%d", i);
        assert_int_equal(symlinkat(".", dir, name), 0);
    }
    assert_int_equal(do_op(SP_FILE_LIST, "many"), 0);
    assert_int_equal(answer.refusal, 0);
    assert_true(answer.data_len > (uint64_t)SP_FILE_MAX_ENTRIES * 240);
    const char *p = answer_data();
    size_t count = 0;
    for (uint64_t left = answer.data_len; left > 0; count++) {
        struct sp_file_entry e;

        memcpy(&e, p, sizeof e);
        assert_int_equal(e.kind, SP_FILE_ENTRY_DIRECTORY);
        assert_in_range(e.name_len, 241, 245);
        left -= sizeof e + e.name_len;
        p += sizeof e + e.name_len;
    }
    assert_int_equal(count, SP_FILE_MAX_ENTRIES);
    make_file("many/one-more", "");
    assert_int_equal(do_op(SP_FILE_LIST, "many"), 0);
    assert_int_equal(answer.refusal, SP_FILE_TOO_MANY);
    assert_int_equal(answer.number, SP_FILE_MAX_ENTRIES + 1);
    assert_int_equal(do_walk("many", (struct sp_file_walk){0, 1, 50000, false, false}), 0);
    assert_true(answer.is_cut);
    (void)close(dir);
    assert_int_equal(do_remove("many", true, false), 0);
}

/* What stands in for a name that nobody may plant is not there; what only looks like it is. */
static void test_placeholders_are_hidden(void **state)
{
    struct sp_file_request ask;

    (void)state;
    make_dir("p");
    make_dir("p/.git");
    make_dir("p/git");
    assert_int_equal(chmod(at("p/.git"), 0555), 0);
    assert_int_equal(chmod(at("p/git"), 0555), 0);
    assert_int_equal(do_op(SP_FILE_STAT, "p/.git"), 0);
    ask = an_ask(SP_FILE_STAT, at("p/.git"));
    ask.hides_placeholders = true;
    assert_int_equal(carry_out(&ask), ENOENT);
    ask.path = at("p/.git//");
    assert_int_equal(carry_out(&ask), ENOENT);
    ask.path = at("p/git");
    assert_int_equal(carry_out(&ask), 0);
    ask.op = SP_FILE_LIST;
    ask.path = at("p");
    assert_int_equal(carry_out(&ask), 0);
    assert_entries("D git\n");
    ask.op = SP_FILE_WALK;
    ask.walk = (struct sp_file_walk){4, 10, 10, false, false};
    assert_int_equal(carry_out(&ask), 0);
    assert_entries("D p/git\n");
    ask.op = SP_FILE_COPY;
    ask.other = at("q");
    ask.is_recursive = true;
    assert_int_equal(carry_out(&ask), 0);
    assert_false(exists("q/.git"));
    assert_true(exists("q/git"));
    assert_int_equal(chmod(at("p/.git"), 0755), 0);
    ask = an_ask(SP_FILE_STAT, at("p/.git"));
    ask.hides_placeholders = true;
    assert_int_equal(carry_out(&ask), 0);
}

static void test_a_path_that_is_a_placeholder_is_missing(void **state)
{
    static const enum sp_file_op ops[] = {SP_FILE_READ,   SP_FILE_STAT, SP_FILE_CANONICAL,
                                          SP_FILE_LIST,   SP_FILE_WALK, SP_FILE_COPY,
                                          SP_FILE_REMOVE, SP_FILE_OPEN};
    static const char *const names[] = {"p/.git", "p/.git/", "p/./.git/."};

    (void)state;
    make_dir("p");
    make_dir("p/.git");
    assert_int_equal(chmod(at("p/.git"), 0500), 0);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            struct sp_file_request ask = an_ask(ops[i], at(names[k]));

            ask.hides_placeholders = true;
            ask.walk = (struct sp_file_walk){4, 10, 10, false, false};
            ask.is_recursive = ops[i] == SP_FILE_REMOVE || ops[i] == SP_FILE_COPY;
            ask.other = at("q");
            assert_int_equal(carry_out(&ask), ENOENT);
            assert_false(exists("q"));
            ask.is_forced = true;
            assert_int_equal(carry_out(&ask), ops[i] == SP_FILE_REMOVE ? 0 : ENOENT);
        }
    assert_true(exists("p/.git"));
    assert_int_equal(do_remove("p", true, false), 0); /* with the directory that holds it */
}

/* In a set-group-ID directory mkdir passes that bit on, also to a placeholder. */
static void test_a_placeholder_may_have_the_set_group_id_bit(void **state)
{
    struct sp_file_request ask = an_ask(SP_FILE_STAT, at("p/.git"));
    struct stat st;

    (void)state;
    make_dir("p");
    make_dir("p/.git");
    assert_int_equal(chmod(at("p/.git"), 02500), 0);
    ask.path = at("p/.git");
    ask.hides_placeholders = true;
    assert_int_equal(carry_out(&ask), ENOENT);
    ask.op = SP_FILE_MAKE;
    assert_int_equal(carry_out(&ask), 0);
    assert_int_equal(stat(at("p/.git"), &st), 0);
    assert_int_equal(st.st_mode & 02500, 02500);
    assert_int_not_equal(st.st_mode & 0200, 0);
    ask.op = SP_FILE_STAT;
    assert_int_equal(carry_out(&ask), 0);
}

/* Bytes that are no entry are not mistaken for the end of the list. */
static void test_a_list_that_is_malformed_has_no_end(void **state)
{
    struct sp_file_entry entry = {.name_len = 1, .kind = SP_FILE_ENTRY_FILE};
    char bytes[2 * (sizeof entry + 1)];
    struct sp_str name;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        memcpy(bytes + i * sizeof bytes / 2, &entry, sizeof entry);
        bytes[(i + 1) * sizeof bytes / 2 - 1] = 'a';
    }
    for (size_t n = 0; n <= sizeof bytes; n++) {
        struct sp_str left = {bytes, n};
        const size_t whole = n / (sizeof entry + 1);

        for (size_t i = 0; i < whole; i++)
            assert_int_equal(sp_file_next_entry(&left, &entry, &name), 1);
        assert_int_equal(sp_file_next_entry(&left, &entry, &name),
                         n % (sizeof entry + 1) == 0 ? 0 : -1);
    }
    entry.kind = SP_FILE_ENTRY_ERROR + 1;
    memcpy(bytes, &entry, sizeof entry);
    struct sp_str left = {bytes, sizeof bytes};
    assert_int_equal(sp_file_next_entry(&left, &entry, &name), -1);
}

/* A limit on the size of files is an error of the operation; without the signal ignored it would be
 * the process's end (cell/cell_files.c ignores it). */
static void test_a_limit_on_sizes(void **state)
{
    static char text[300000];
    struct rlimit before;

    (void)state;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    memset(text, 'x', sizeof text - 1);
    make_file("f", text);
    const struct rlimit low = {.rlim_cur = 100000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    const int read_err = do_op(SP_FILE_READ, "f");
    const int write_err = do_write("g", text, true);
    const int copy_err = do_copy("f", "h", false);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(read_err, EFBIG); /* a memory file is a file */
    assert_int_equal(write_err, EFBIG);
    assert_int_equal(copy_err, EFBIG);
    (void)signal(SIGXFSZ, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        file_test(test_a_file_is_read_whole),
        file_test(test_pieces_of_a_file_are_told),
        file_test(test_what_is_no_file_is_not_read),
        file_test(test_files_of_the_kernel_are_read_to_their_end),
        file_test(test_large_sparse_files),
        file_test(test_a_file_is_written_in_place),
        file_test(test_links_that_lead_nowhere_by_name_are_not_written_through),
        file_test(test_memory_is_no_file),
        file_test(test_no_link_is_followed),
        file_test(test_blocks),
        file_test(test_facts),
        file_test(test_paths_at_the_limits),
        file_test(test_asks_that_are_none),
        file_test(test_directories_are_made),
        file_test(test_names_of_a_directory),
        file_test(test_more_names_than_may_be_told),
        file_test(test_placeholders_are_hidden),
        file_test(test_a_path_that_is_a_placeholder_is_missing),
        file_test(test_a_placeholder_may_have_the_set_group_id_bit),
        file_test(test_a_list_that_is_malformed_has_no_end),
        file_test(test_a_limit_on_sizes),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
