/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <time.h>

#include "sandbox/denial.h"
#include "test.h"

static const char *const word_texts[] = {
#define X(name, word, reason) word,
    SP_DENIAL_WORDS(X)
#undef X
};

static struct sp_denial fed(const char *text)
{
    struct sp_denial d;

    sp_denial_init(&d);
    sp_denial_feed(&d, SP_STREAM_STDERR, text, strlen(text));
    return d;
}

static void has_path(const char *text, const char *path)
{
    const struct sp_denial d = fed(text);

    if (strcmp(d.path, path) != 0)
        fail_msg("\"%s\": path \"%s\", not \"%s\"", text, d.path, path);
}

static void test_each_word_is_found_in_any_case(void **state)
{
    (void)state;
    for (unsigned w = 0; w < SP_DENIAL_MAX; w++) {
        char text[64];

        (void)snprintf(text, sizeof text, "x%sy", word_texts[w]);
        assert_int_equal(fed(text).word, w);
        for (char *p = text; *p != 0; p++)
            *p = (char)toupper(*p);
        assert_int_equal(fed(text).word, w);
        text[strlen(text) - 2] ^= 1; /* its last letter */
        assert_int_equal(fed(text).word, SP_DENIAL_MAX);
    }
}

static void test_what_only_looks_alike_is_no_word(void **state)
{
    (void)state;
    /* The same five low bits, which is what the scanner's table knows. */
    assert_int_equal(fed("permission@denied").word, SP_DENIAL_MAX);
    assert_int_equal(fed("readMonly file system").word, SP_DENIAL_MAX);
    assert_int_equal(fed("\x13\x05\x03\x03\x0f\x0d\x10").word, SP_DENIAL_MAX);
    assert_int_equal(fed("\xf3\xe5\xe3\xe3\xef\xed\xf0").word, SP_DENIAL_MAX);
    assert_int_equal(fed("permission  denied").word, SP_DENIAL_MAX);
    assert_int_equal(fed("").word, SP_DENIAL_MAX);
}

static void test_only_a_confined_command_that_failed_is_denied(void **state)
{
    const struct sp_denial said = fed("cat: /x: Permission denied\n");
    const struct sp_denial silent = fed("all is well\n");

    (void)state;
    assert_true(sp_denial_is_likely(true, 1, &said));
    assert_true(sp_denial_is_likely(true, 2, &said)); /* the words come before the codes */
    assert_true(sp_denial_is_likely(true, 126, &said));
    assert_true(sp_denial_is_likely(true, 127, &said));
    assert_false(sp_denial_is_likely(true, 0, &said));
    assert_false(sp_denial_is_likely(false, 1, &said));
    assert_false(sp_denial_is_likely(false, 159, &said));

    assert_true(sp_denial_is_likely(true, 159, &silent));
    assert_false(sp_denial_is_likely(false, 159, &silent));
    for (int code = 0; code < 256; code++)
        assert_int_equal(sp_denial_is_likely(true, code, &silent), code == 159);
}

static void test_the_reason_is_that_of_the_first_word(void **state)
{
    struct sp_denial d = fed("in the Sandbox: permission denied");

    (void)state;
    assert_string_equal(sp_denial_reason(&d, 1), "policy_denied");
    d = fed("permission denied by seccomp");
    assert_string_equal(sp_denial_reason(&d, 1), "permission_denied");
    assert_string_equal(sp_denial_reason(&d, 159), "permission_denied");
    d = fed("nothing");
    assert_null(sp_denial_reason(&d, 1));
    assert_string_equal(sp_denial_reason(&d, 159), "sigsys");
}

static void test_a_word_torn_anywhere_is_found(void **state)
{
    (void)state;
    for (unsigned w = 0; w < SP_DENIAL_MAX; w++)
        for (size_t cut = 1; cut < strlen(word_texts[w]); cut++) {
            const char *text = word_texts[w];
            struct sp_denial d;

            /* in one stream, with the other's output between: only the stream has it whole */
            sp_denial_init(&d);
            sp_denial_feed(&d, SP_STREAM_STDOUT, text, cut);
            sp_denial_feed(&d, SP_STREAM_STDERR, "--", 2);
            sp_denial_feed(&d, SP_STREAM_PTY, text + cut, strlen(text) - cut);
            assert_int_equal(d.word, w);

            /* over both streams: only the joined text has it whole */
            sp_denial_init(&d);
            sp_denial_feed(&d, SP_STREAM_STDOUT, text, cut);
            sp_denial_feed(&d, SP_STREAM_STDERR, text + cut, strlen(text) - cut);
            assert_int_equal(d.word, w);
        }
}

static void test_of_two_words_torn_at_once_the_first_to_end_counts(void **state)
{
    struct sp_denial d;

    (void)state;
    sp_denial_init(&d);
    sp_denial_feed(&d, SP_STREAM_STDOUT, "secco", 5);
    sp_denial_feed(&d, SP_STREAM_STDERR, "read-only file syste", 20);
    sp_denial_feed(&d, SP_STREAM_STDOUT, "mp", 2);
    assert_int_equal(d.word, SP_DENIAL_READ_ONLY);
}

static void test_a_word_before_a_torn_one_does_not_hide_it(void **state)
{
    struct sp_denial d;

    (void)state;
    sp_denial_init(&d);
    sp_denial_feed(&d, SP_STREAM_STDERR, "seccomp: /x: perm", 17);
    sp_denial_feed(&d, SP_STREAM_STDERR, "ission denied", 13);
    assert_int_equal(d.word, SP_DENIAL_SECCOMP);
    assert_string_equal(d.path, "/x");
}

static void test_bytes_one_by_one_make_words_and_paths(void **state)
{
    static const char text[] = "x\nsh: 1: could not make /etc/hosts: Read-Only File System\n";
    static const char clean[] = "x\nsh: 1: \"/etc/hosts\": Read-Only File System\n";
    struct sp_denial d;

    (void)state;
    sp_denial_init(&d);
    for (const char *p = text; *p != 0; p++)
        sp_denial_feed(&d, SP_STREAM_STDERR, p, 1);
    assert_int_equal(d.word, SP_DENIAL_READ_ONLY);
    assert_string_equal(d.path, ""); /* a sentence is no path */
    for (const char *p = clean; *p != 0; p++)
        sp_denial_feed(&d, SP_STREAM_STDERR, p, 1);
    assert_string_equal(d.path, "/etc/hosts");
}

static void test_the_path_may_be_quoted_at_the_end_of_a_sentence(void **state)
{
    static const struct {
        const char *text, *path;
    } cases[] = {
        {"touch: cannot touch '/usr/x': Read-only file system\n", "/usr/x"},
        {"mkdir: cannot create directory \xE2\x80\x98/usr/a b\xE2\x80\x99: Permission denied\n",
         "/usr/a b"},
        {"x: cannot rename '/a' to '/b c': Permission denied\n", "/b c"},
        {"x: cannot open 'name': Permission denied\n", ""},
        {"x: cannot open /a': Permission denied\n", ""},
        {"\xE2\x80\x99: Permission denied\n", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct sp_denial d = fed(cases[i].text);

        assert_string_equal(d.path, cases[i].path);
    }
}

static void test_a_shell_names_the_path_behind_its_verb(void **state)
{
    (void)state;
    has_path("sh: 1: cannot create /usr/a b: Read-only file system\n", "/usr/a b");
    has_path("sh: 1: cannot create ./.git/x: Permission denied\n", "./.git/x");
    has_path("sh: 1: cannot open ../x: Permission denied\n", "../x");
    has_path("cannot create /x: Permission denied", "/x");
    has_path("sh: 1: cannot create name: Permission denied\n", "");
    has_path("sh: 1: cannot create : Permission denied\n", "");
    has_path("sh: 1: cannot create: Permission denied\n", "");
    has_path("sh: 1: they cannot create /x: Permission denied\n", "");
}

static void test_the_path_stands_before_the_phrase(void **state)
{
    (void)state;
    has_path("cat: /etc/shadow: Permission denied\n", "/etc/shadow");
    has_path("bash: line 1: ./x: Operation not permitted", "./x");
    has_path("../y: Read-only file system", "../y"); /* the first line, nothing before it */
    has_path("ok\n/a b: permission denied", "/a b");
    has_path("ls: '/q': permission denied", "/q");
    has_path("ls: \"/q\": permission denied", "/q");
    has_path("ls: `/q': permission denied", "/q");
    has_path("a: /p:q: permission denied", "/p:q");
    has_path("a: /first: permission denied\nb: /second: permission denied\n", "/first");
    has_path("a: no path: permission denied\nb: /second: permission denied\n", "/second");
    has_path("a: /x: sandbox\nb: /y: permission denied", "/y");

    has_path("permission denied", "");
    has_path(": permission denied", "");
    has_path("/x permission denied", "");
    has_path("/x:permission denied", "");
    has_path("a: x: permission denied", "");
    has_path("a: .x: permission denied", "");
    has_path("a: ..: permission denied", "");
    has_path("a: /x: seccomp", ""); /* not one of the three phrases */
    has_path("/x\n: permission denied", "");
    has_path("/x: \npermission denied", "");
}

static void test_a_path_is_of_its_own_stream(void **state)
{
    struct sp_denial d;

    (void)state;
    sp_denial_init(&d);
    sp_denial_feed(&d, SP_STREAM_STDERR, "cat: /a", 7);
    sp_denial_feed(&d, SP_STREAM_STDOUT, "cat: /b", 7);
    sp_denial_feed(&d, SP_STREAM_STDERR, ": permission denied", 19);
    assert_string_equal(d.path, "/a");

    sp_denial_init(&d);
    sp_denial_feed(&d, SP_STREAM_STDERR, "cat: /a: perm", 13);
    sp_denial_feed(&d, SP_STREAM_STDOUT, "ission denied", 13);
    assert_int_equal(d.word, SP_DENIAL_PERMISSION);
    assert_string_equal(d.path, "");
}

static void test_a_path_of_512_bytes_is_the_longest(void **state)
{
    (void)state;
    for (size_t len = SP_DENIAL_PATH - 3; len <= SP_DENIAL_PATH + 3; len++)
        for (size_t step = 1; step <= 1024; step *= 4) {
            char text[700];
            char path[600] = "/";
            struct sp_denial d;

            memset(path + 1, 'p', len - 1);
            (void)snprintf(text, sizeof text, "cat: '%s': permission denied", path);
            sp_denial_init(&d);
            for (size_t i = 0; i < strlen(text); i += step)
                sp_denial_feed(&d, SP_STREAM_STDERR, text + i, strnlen(text + i, step));
            assert_string_equal(d.path, len <= SP_DENIAL_PATH ? path : "");
        }
}

static void test_a_line_that_began_long_ago_gives_no_false_path(void **state)
{
    static char text[2000];
    struct sp_denial d;

    (void)state;
    memset(text, '/', sizeof text);
    sp_denial_init(&d);
    sp_denial_feed(&d, SP_STREAM_STDERR, text, sizeof text);
    sp_denial_feed(&d, SP_STREAM_STDERR, ": permission denied", 19);
    assert_int_equal(d.word, SP_DENIAL_PERMISSION);
    assert_string_equal(d.path, "");
    memset(text + sizeof text - 20, '\'', 20); /* also if quotes make it look short enough */
    sp_denial_feed(&d, SP_STREAM_STDERR, text, sizeof text);
    sp_denial_feed(&d, SP_STREAM_STDERR, ": permission denied", 19);
    assert_string_equal(d.path, "");
}

/* ---- against the obvious way ---- */

struct text {
    char bytes[4096];
    size_t len;
};

struct naive {
    struct text own[2], joined;
    unsigned word;
    char path[600];
};

static bool naive_is_at(const struct text *t, size_t at, const char *word)
{
    for (size_t i = 0; word[i] != 0; i++)
        if (at + i >= t->len || tolower((unsigned char)t->bytes[at + i]) != word[i])
            return false;
    return true;
}

/* The word that ends at `end`. */
static unsigned naive_word(const struct text *t, size_t end)
{
    for (unsigned w = 0; w < SP_DENIAL_MAX; w++)
        if (end >= strlen(word_texts[w]) &&
            naive_is_at(t, end - strlen(word_texts[w]), word_texts[w]))
            return w;
    return SP_DENIAL_MAX;
}

static void naive_path(struct naive *n, const struct text *t, size_t end)
{
    const unsigned w = naive_word(t, end);
    char line[4096];

    if (w > 2)
        return;
    const size_t at = end - strlen(word_texts[w]);
    if (at < 2 || memcmp(t->bytes + at - 2, ": ", 2) != 0)
        return;
    size_t from = at - 2;
    while (from > 0 && t->bytes[from - 1] != '\n')
        from--;
    memcpy(line, t->bytes + from, at - 2 - from);
    line[at - 2 - from] = 0;
    char *p = line;
    for (char *next; (next = strstr(p, ": ")) != NULL;)
        p = next + 1 + (next[1] == ' ');
    const size_t len = strlen(p);
    for (size_t i = len; len > 0 && strchr("'\"`", p[len - 1]) != NULL && i-- > 0;)
        if (p[i] == ' ' && i + 1 < len && strchr("'\"`", p[i + 1]) != NULL) {
            p += i + 1;
            break;
        }
    p += strspn(p, "'\"`");
    while (*p != 0 && strchr("'\"`", p[strlen(p) - 1]) != NULL)
        p[strlen(p) - 1] = 0;
    if (p[0] == '/' || strncmp(p, "./", 2) == 0 || strncmp(p, "../", 3) == 0)
        (void)snprintf(n->path, sizeof n->path, "%s", p);
}

static void naive_feed(struct naive *n, unsigned stream, const char *bytes, size_t len)
{
    struct text *own = &n->own[stream];

    for (size_t i = 0; i < len; i++) {
        own->bytes[own->len++] = bytes[i];
        n->joined.bytes[n->joined.len++] = bytes[i];
        if (n->word == SP_DENIAL_MAX)
            n->word = naive_word(own, own->len);
        if (n->word == SP_DENIAL_MAX)
            n->word = naive_word(&n->joined, n->joined.len);
        if (n->path[0] == 0)
            naive_path(n, own, own->len);
    }
}

/* Pieces of words, so that words come about by chance, in one stream, in the other, across both. */
static size_t random_piece(uint64_t *seed, char piece[64])
{
    static const char *const others[] = {": ",    "\n",       "/etc/x: ", "./y': ", "../",
                                         "'",     "\"/q\": ", "a",        ":",      " ",
                                         "cat: ", "/",        "seccom"};
    const uint32_t r = test_random(seed);
    const char *from = r % 3 != 0 ? word_texts[test_random(seed) % SP_DENIAL_MAX]
                                  : others[test_random(seed) % (sizeof others / sizeof others[0])];
    size_t begin = 0;
    size_t len = strlen(from);

    if (r % 4 == 1) { /* its beginning or its end */
        const size_t cut = test_random(seed) % (len + 1);

        begin = (r & 64) != 0 ? cut : 0;
        len = (r & 64) != 0 ? len - cut : cut;
    }
    for (size_t i = 0; i < len; i++)
        piece[i] = (char)((r & 128) != 0 ? toupper(from[begin + i]) : from[begin + i]);
    return len;
}

static void test_it_agrees_with_the_obvious_way(void **state)
{
    static struct naive n;
    uint64_t seed = 7;
    unsigned found = 0;
    unsigned paths = 0;

    (void)state;
    for (int round = 0; round < 60000; round++) {
        struct sp_denial d;

        sp_denial_init(&d);
        n.own[0].len = n.own[1].len = n.joined.len = 0;
        n.word = SP_DENIAL_MAX;
        n.path[0] = 0;
        for (uint32_t chunks = 1 + test_random(&seed) % 8; chunks > 0; chunks--) {
            const unsigned stream = test_random(&seed) % 2;
            char text[256];
            size_t len = 0;

            for (uint32_t pieces = test_random(&seed) % 4; pieces > 0; pieces--)
                len += random_piece(&seed, text + len);
            char *copy = test_copy((struct sp_str){text, len});
            sp_denial_feed(&d, stream == 1 ? SP_STREAM_STDERR : SP_STREAM_STDOUT, copy, len);
            free(copy);
            naive_feed(&n, stream, text, len);
        }
        if (d.word != n.word || strcmp(d.path, n.path) != 0)
            fail_msg("round %d: word %u, path %s; not %u, %s: %.*s", round, d.word, d.path, n.word,
                     n.path, (int)n.joined.len, n.joined.bytes);
        found += d.word != SP_DENIAL_MAX;
        paths += d.path[0] != 0;
    }
    assert_true(found > 5000 && found < 59000); /* else it tests nothing */
    assert_true(paths > 500);
}

/* ---- speed ---- */

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double mb_per_s(const char *line, size_t chunk)
{
    const size_t size = 1 << 20;
    char *text = malloc(size);
    double best = 1e9;

    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        text[i] = line[i % strlen(line)];
    for (int i = 0; i < 5; i++) {
        struct sp_denial d;
        const double begin = now_s();

        sp_denial_init(&d);
        for (size_t at = 0; at < size; at += chunk)
            sp_denial_feed(&d, SP_STREAM_STDOUT, text + at, size - at < chunk ? size - at : chunk);
        const double took = now_s() - begin;
        best = took < best ? took : best;
    }
    free(text);
    return (double)size / 1e6 / best;
}

/* Bounds that hold under a sanitizer on a busy machine, and that a quadratic way would not keep. */
static void test_a_megabyte_is_read_in_no_time(void **state)
{
    static const struct {
        const char *name, *line;
        size_t chunk;
    } cases[] = {
        {"prose",
         "The quick brown fox jumps over the lazy dog; it is a condition of the process.\n", 65536},
        {"compiler", "  CC      drivers/net/wireless/foo.o: warning: unused variable 'sandboy'\n",
         4096},
        {"worst", "permission denied", 65536},
        {"worst with colons", ": permission denied", 65536},
        {"small chunks", "The quick brown fox jumps over the lazy dog.\n", 16},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double speed = mb_per_s(cases[i].line, cases[i].chunk);

        print_message("# %s: %.0f MB/s\n", cases[i].name, speed);
        assert_true(speed > 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_each_word_is_found_in_any_case),
    cmocka_unit_test(test_what_only_looks_alike_is_no_word),
    cmocka_unit_test(test_only_a_confined_command_that_failed_is_denied),
    cmocka_unit_test(test_the_reason_is_that_of_the_first_word),
    cmocka_unit_test(test_a_word_torn_anywhere_is_found),
    cmocka_unit_test(test_of_two_words_torn_at_once_the_first_to_end_counts),
    cmocka_unit_test(test_a_word_before_a_torn_one_does_not_hide_it),
    cmocka_unit_test(test_bytes_one_by_one_make_words_and_paths),
    cmocka_unit_test(test_a_shell_names_the_path_behind_its_verb),
    cmocka_unit_test(test_the_path_stands_before_the_phrase),
    cmocka_unit_test(test_a_path_is_of_its_own_stream),
    cmocka_unit_test(test_a_path_of_512_bytes_is_the_longest),
    cmocka_unit_test(test_the_path_may_be_quoted_at_the_end_of_a_sentence),
    cmocka_unit_test(test_a_line_that_began_long_ago_gives_no_false_path),
    cmocka_unit_test(test_it_agrees_with_the_obvious_way),
    cmocka_unit_test(test_a_megabyte_is_read_in_no_time),
};

TEST_MAIN(tests)
