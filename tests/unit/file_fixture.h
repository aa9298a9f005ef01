/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_fixture: file operations on a tree of the test's own, with a window that is smaller than the
 * real one, so that memory files are met early.
 */
#ifndef SP_FILE_FIXTURE_H
#define SP_FILE_FIXTURE_H

#include <sys/mman.h>

#include "cell/file/file.h"
#include "tree_fixture.h"

#define WINDOW 65536

static char window[WINDOW];
static struct sp_file_answer answer;
static char *answer_map; /* of a memory file */
static size_t answer_map_len;

/* What the last answer held is let go. */
static inline void forget_answer(void)
{
    if (answer_map != NULL)
        assert_int_equal(munmap(answer_map, answer_map_len), 0);
    answer_map = NULL;
    if (answer.memory > 0)
        (void)close(answer.memory);
    if (answer.fd > 0)
        (void)close(answer.fd);
    answer = (struct sp_file_answer){.fd = -1, .memory = -1};
}

static inline int carry_out(const struct sp_file_request *ask)
{
    forget_answer();
    answer = (struct sp_file_answer){
        .window = window, .window_size = sizeof window, .fd = 77, .memory = 78, .err = 79};
    sp_file_do(ask, &answer);
    if (answer.err != 0 || answer.refusal != SP_FILE_NOT_REFUSED) {
        assert_int_equal(answer.memory, -1);
        assert_int_equal(answer.fd, -1);
        assert_int_equal(answer.data_len, 0);
    }
    return answer.err;
}

/* The data of the last answer, wherever it is. */
static inline const char *answer_data(void)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

    if (answer.memory < 0)
        return window;
    assert_int_equal(fcntl(answer.memory, F_GET_SEALS), seals);
    if (answer_map == NULL) {
        answer_map_len = (size_t)answer.data_len;
        answer_map = mmap(NULL, answer_map_len, PROT_READ, MAP_SHARED, answer.memory, 0);
        assert_true(answer_map != MAP_FAILED);
    }
    return answer_map;
}

static inline struct sp_file_request an_ask(enum sp_file_op op, const char *path)
{
    return (struct sp_file_request){.op = op, .path = path, .follows = true, .fd = -1};
}

static inline int do_op(enum sp_file_op op, const char *below)
{
    const struct sp_file_request ask = an_ask(op, at(below));

    return carry_out(&ask);
}

static inline int do_write(const char *below, const char *text, bool follows)
{
    struct sp_file_request ask = an_ask(SP_FILE_WRITE, at(below));

    ask.follows = follows;
    ask.data = text;
    ask.data_len = strlen(text);
    return carry_out(&ask);
}

static inline int do_make(const char *below, bool is_recursive, bool follows)
{
    struct sp_file_request ask = an_ask(SP_FILE_MAKE, at(below));

    ask.is_recursive = is_recursive;
    ask.follows = follows;
    return carry_out(&ask);
}

static inline int do_remove(const char *below, bool is_recursive, bool is_forced)
{
    struct sp_file_request ask = an_ask(SP_FILE_REMOVE, at(below));

    ask.is_recursive = is_recursive;
    ask.is_forced = is_forced;
    return carry_out(&ask);
}

static inline int do_copy(const char *from, const char *to, bool is_recursive)
{
    struct sp_file_request ask = an_ask(SP_FILE_COPY, at(from));

    ask.other = at(to);
    ask.is_recursive = is_recursive;
    return carry_out(&ask);
}

static inline int do_walk(const char *below, struct sp_file_walk limits)
{
    struct sp_file_request ask = an_ask(SP_FILE_WALK, at(below));

    ask.walk = limits;
    return carry_out(&ask);
}

/* What a file has, read without the code that is tested. */
static inline size_t slurp(const char *below, char *text, size_t size)
{
    const int fd = open(at(below), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    size_t len = 0;
    ssize_t n;

    if (fd < 0)
        fail_msg("%s: %s", below, strerror(errno));
    while (len + 1 < size && (n = read(fd, text + len, size - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = 0;
    (void)close(fd);
    return len;
}

static inline void assert_file(const char *below, const char *text)
{
    char found[4096];

    (void)slurp(below, found, sizeof found);
    assert_string_equal(found, text);
}

static inline bool exists(const char *below)
{
    struct stat st;

    return lstat(at(below), &st) == 0;
}

static inline mode_t mode_of(const char *below)
{
    struct stat st;

    assert_int_equal(lstat(at(below), &st), 0);
    return st.st_mode & 07777;
}

/* The entries of the last answer: "F name\n", sorted by nothing. The tree's own path is cut off. */
static inline void entries_text(char *text, size_t size)
{
    const char *p = answer_data();
    size_t left = (size_t)answer.data_len;
    size_t n = 0;

    text[0] = 0;
    while (left > 0) {
        struct sp_file_entry e;

        assert_true(left >= sizeof e);
        memcpy(&e, p, sizeof e);
        assert_true(left - sizeof e >= e.name_len);
        const char *name = p + sizeof e;
        size_t len = e.name_len;
        const size_t skip = strlen(tree) + 1;
        if (len >= skip && memcmp(name, tree, skip - 1) == 0 && name[skip - 1] == '/') {
            name += skip;
            len -= skip;
        }
        n += (size_t)snprintf(text + n, size - n, "%c %.*s", "?FDOE"[e.kind], (int)len, name);
        if (e.err != 0)
            n += (size_t)snprintf(text + n, size - n, " %d", e.err);
        n += (size_t)snprintf(text + n, size - n, "\n");
        assert_true(n < size);
        p += sizeof e + e.name_len;
        left -= sizeof e + e.name_len;
    }
}

static inline void assert_entries(const char *expected)
{
    static char text[1U << 20];

    entries_text(text, sizeof text);
    assert_string_equal(text, expected);
}

static inline int file_begin(void **state)
{
    answer = (struct sp_file_answer){.fd = -1, .memory = -1};
    (void)umask(022);
    return tree_begin(state);
}

static inline int file_end(void **state)
{
    forget_answer();
    return tree_end(state);
}

#define file_test(name) cmocka_unit_test_setup_teardown(name, file_begin, file_end)

#endif
