/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_amend: accepted rules, as one more line of a file and as one more part of a set.
 *
 * The line goes to USER_DIR/rules/default.rules. The file is locked while it is read and appended
 * to, so two processes write one after the other, and the line goes out in one write. No symbolic
 * link is followed: one that a command planted must not lead our write elsewhere.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/locked.h"
#include "approve/rules/rules_priv.h"
#include "base/auto.h"
#include "base/hostname.h"
#include "base/io.h"
#include "base/json.h"
#include "base/utf8.h"
#include "os/fd.h"

#define FILE_NAME "default.rules"

/* How the justification names the protocol; NULL: unknown. */
static const char *label_of(struct sp_str protocol)
{
    static const char *const labels[][2] = {
        {"http", "http"},
        {"https", "https_connect"},
        {"socks5_tcp", "socks5_tcp"},
        {"socks5_udp", "socks5_udp"},
    };

    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        if (sp_str_eq(protocol, sp_str_of(labels[i][0])))
            return labels[i][1];
    return NULL;
}

int sp_rules_add_network_line(struct sp_buf *line, struct sp_str host, struct sp_str protocol,
                              bool allows, struct sp_err *e)
{
    auto_buf struct sp_buf room = {0};
    auto_buf struct sp_buf why = {0};
    const char *label = label_of(protocol);
    char *normal_room = sp_buf_room(&room, host.n + 1);
    struct sp_str normal;

    if (label == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "network_rule protocol must be one of http, https, socks5_tcp, socks5_udp "
                       "(got " SP_STR_FMT ")",
                       SP_STR_ARG(protocol));
    if (normal_room == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
    const char *wrong = sp_utf8_is_valid(host) ? sp_hostname_normal(host, normal_room, &normal)
                                               : "is not valid UTF-8";
    if (wrong != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "network_rule host %s", wrong);
    const bool is_good =
        sp_buf_printf(&why, "%s %s access to ", allows ? "Allow" : "Deny", label) &&
        sp_buf_add_str(&why, normal) && sp_buf_add_str(line, SP_STR("network_rule(host=")) &&
        sp_json_add_str(line, normal) && sp_buf_add_str(line, SP_STR(", protocol=")) &&
        sp_json_add_str(line, protocol) && sp_buf_add_str(line, SP_STR(", decision=")) &&
        sp_json_add_str(line, allows ? SP_STR("allow") : SP_STR("deny")) &&
        sp_buf_add_str(line, SP_STR(", justification=")) &&
        sp_json_add_str(line, sp_buf_str(&why)) && sp_buf_add(line, ")", 1);
    return is_good ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
}

/* ---- into the file ---- */

static int fail_system(struct sp_err *e, int sys, const char *doing, const char *path)
{
    return sp_fail(e, SP_E_SYSTEM, sys, "failed to %s %s", doing, path);
}

static int open_rules_folder(const char *user_dir, struct sp_err *e)
{
    (void)mkdir(user_dir, 0700); /* open reports what is wrong */
    auto_close int home = open(user_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (home < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "failed to open policy directory %s", user_dir);
    if (mkdirat(home, "rules", 0700) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "failed to create policy directory %s/rules",
                       user_dir);
    const int fd = openat(home, "rules", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "failed to open policy directory %s/rules", user_dir);
    return sp_fd_lift(fd);
}

/* The number of that line; 0: there is none. *ret_count: of the lines. Of the rules for a host the
 * last counts: one that a later line about this host reverses is as good as none. */
static uint32_t find_line(struct sp_str text, struct sp_str line, uint32_t *ret_count)
{
    static const char network[] = "network_rule(";
    struct sp_str about = line;
    uint32_t found = 0;

    if (!sp_str_skip_prefix(&about, SP_STR(network))) {
        about.n = 0;
    } else {
        const char *decision = memmem(line.p, line.n, ", decision=", strlen(", decision="));

        about = (struct sp_str){line.p, decision == NULL ? 0 : (size_t)(decision - line.p)};
    }
    for (*ret_count = 0; text.n != 0;) {
        struct sp_str old = sp_str_cut(&text, '\n');

        ++*ret_count;
        old.n -= old.n > 0 && old.p[old.n - 1] == '\r';
        if (sp_str_eq(old, line))
            found = found == 0 ? *ret_count : found;
        else if (about.n != 0 && old.n > about.n && memcmp(old.p, about.p, about.n) == 0)
            found = 0;
    }
    return found;
}

/* Whether the file is the user's, and parses with `added` at its end. */
static int test_file(int fd, const char *path, struct sp_str before, struct sp_str added,
                     struct sp_err *e)
{
    auto_buf struct sp_buf whole = {0};
    struct sp_rules_maker m = {0};
    struct stat st;

    if (fstat(fd, &st) < 0)
        return fail_system(e, errno, "read policy file", path);
    if (st.st_uid != geteuid())
        return sp_fail(e, SP_E_FAILED, 0, "%s belongs to another user (uid %u)", path, st.st_uid);
    if (!sp_buf_add_str(&whole, before) || !sp_buf_add_str(&whole, added))
        return fail_system(e, ENOMEM, "read policy file", path);
    const int r = sp_rules_add_text(&m, path, sp_buf_str(&whole), NULL, NULL, e);
    sp_rules_parts_done(&m.parts);
    return r;
}

/* Appends the line to the locked file; *ret_line: its number there. tests: the file has to be the
 * user's own, and to parse with the line; otherwise it stays as it was. */
static int append_locked(int fd, const char *path, struct sp_str line, bool tests,
                         uint32_t *ret_line, bool *ret_is_new, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};
    const int sys = sp_read_all(fd, SP_RULES_MAX_BYTES, &text);
    uint32_t count;

    if (sys != 0 && sys != EFBIG) /* EFBIG: said below */
        return fail_system(e, sys, "read policy file", path);
    const struct sp_str before = sp_buf_str(&text);
    *ret_line = find_line(before, line, &count);
    *ret_is_new = *ret_line == 0;
    if (!*ret_is_new)
        return 0;

    /* In one write: a reader sees the whole line or nothing of it. */
    auto_buf struct sp_buf out = {0};
    const bool lacks_newline = before.n != 0 && before.p[before.n - 1] != '\n';

    if ((lacks_newline && !sp_buf_add(&out, "\n", 1)) || !sp_buf_add_str(&out, line) ||
        !sp_buf_add(&out, "\n", 1))
        return fail_system(e, ENOMEM, "write to policy file", path);
    if (before.n + out.len > SP_RULES_MAX_BYTES)
        return fail_system(e, EFBIG, "write to policy file", path);
    const int r = tests ? test_file(fd, path, before, sp_buf_str(&out), e) : 0;
    if (r < 0)
        return r;
    const ssize_t n = write(fd, out.data, out.len);
    *ret_line = count + 1;
    if (n == (ssize_t)out.len)
        return 0;
    const int err = n < 0 ? errno : ENOSPC;
    if (n > 0 &&
        ftruncate(fd, (off_t)before.n) < 0) /* half a line would make the whole file unparsable */
        return fail_system(e, errno, "take half a line back from", path);
    return fail_system(e, err, "write to policy file", path);
}

static int append_line(const char *user_dir, struct sp_str line, struct sp_err *e)
{
    auto_close int folder = open_rules_folder(user_dir, e);
    auto_free char *path = NULL;
    uint32_t number;
    bool is_new;

    if (folder < 0)
        return folder;
    if (asprintf(&path, "%s/rules/" FILE_NAME, user_dir) < 0)
        path = NULL;
    if (path == NULL)
        return fail_system(e, ENOMEM, "open policy file below", user_dir);
    auto_close int fd = sp_locked_open(folder, FILE_NAME);
    return fd < 0 ? fail_system(e, -fd, "open policy file", path)
                  : append_locked(fd, path, line, false, &number, &is_new, e);
}

int sp_rules_add_prefix_line(struct sp_buf *line, struct sp_words prefix, struct sp_err *e)
{
    bool is_good = sp_buf_add_str(line, SP_STR("prefix_rule(pattern=["));

    for (uint32_t i = 0; i < prefix.count; i++)
        if (!sp_utf8_is_valid(prefix.items[i]))
            return sp_fail(e, SP_E_INVALID, 0,
                           "word %u of the prefix is not valid UTF-8: no rule can name it", i + 1);
    for (uint32_t i = 0; is_good && i < prefix.count; i++)
        is_good = (i == 0 || sp_buf_add(line, ", ", 2)) && sp_json_add_str(line, prefix.items[i]);
    return is_good && sp_buf_add_str(line, SP_STR("], decision=\"allow\")"))
               ? 0
               : sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
}

static int append_prefix(const char *user_dir, struct sp_words prefix, struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    const int r = sp_rules_add_prefix_line(&line, prefix, e);

    return r < 0 ? r : append_line(user_dir, sp_buf_str(&line), e);
}

int sp_rules_amend_network(const char *user_dir, struct sp_str host, struct sp_str protocol,
                           bool allows, struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    const int r = sp_rules_add_network_line(&line, host, protocol, allows, e);

    return r < 0 ? r : append_line(user_dir, sp_buf_str(&line), e);
}

/* ---- into a set ---- */

static bool copy_parts(struct sp_rules_maker *m, const struct sp_rules *from, bool amendments_only)
{
    bool is_good = true;

    for (uint32_t i = 0; from != NULL && is_good && i < from->parts.count; i++)
        if (!amendments_only || from->parts.items[i]->is_amendment)
            is_good = sp_rules_parts_add(&m->parts, from->parts.items[i]);
    return is_good;
}

/* Makes the set and releases the parts of the maker. NULL: no memory, with "DOING" as the error. */
static struct sp_rules *make_set(struct sp_rules_maker *m, bool is_good, const char *doing,
                                 struct sp_err *e)
{
    struct sp_rules *made = is_good ? sp_rules_make(m) : NULL;

    if (made == NULL)
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "%s", doing);
    sp_rules_parts_done(&m->parts);
    return made;
}

/* Whether a rule allows exactly this prefix. */
static bool allows_exactly(const struct sp_rules *r, struct sp_words words)
{
    for (int l = 0; l < SP_SET_LAYERS; l++) {
        const struct sp_set_layer *layer = &r->layers[l];
        const uint32_t number = sp_rules_find(&layer->programs, words.items[0]);

        for (uint32_t i = 0; number != SP_RULES_NONE && i < layer->items[number].count; i++) {
            const struct sp_prefix_rule *rule = layer->rules[layer->items[number].first + i].say;
            bool is_same = rule->verdict == SP_VERDICT_ALLOW && rule->rest_count + 1 == words.count;

            for (uint32_t k = 0; is_same && k < rule->rest_count; k++)
                is_same = sp_rules_element_has(&rule->rest[k], words.items[k + 1]);
            if (is_same)
                return true;
        }
    }
    return false;
}

/* A part with one rule that allows these words; NULL: no memory. */
static struct sp_rules_part *allow_prefix(struct sp_words prefix)
{
    struct sp_rules_part *p = sp_rules_part_new("amendment");
    struct sp_words *rest = p == NULL ? NULL : sp_arena_new(&p->arena, prefix.count * sizeof *rest);
    const struct sp_str *words = NULL;
    const bool is_good = rest != NULL &&
                         sp_arena_strs(&p->arena, prefix.items, prefix.count, &words) &&
                         (p->rules = calloc(1, sizeof *p->rules)) != NULL;

    for (uint32_t i = 0; is_good && i < prefix.count; i++)
        rest[i] = (struct sp_words){&words[i], 1};
    if (!is_good) {
        sp_rules_part_unref(p);
        return NULL;
    }
    p->rules[0] = (struct sp_prefix_rule){.first = words[0],
                                          .rest = rest + 1,
                                          .rest_count = prefix.count - 1,
                                          .verdict = SP_VERDICT_ALLOW};
    p->rule_count = p->rule_cap = 1;
    p->is_amendment = true;
    return p;
}

struct sp_rules *sp_rules_with_prefix(struct sp_rules *r, const char *user_dir,
                                      struct sp_words prefix, struct sp_err *e)
{
    struct sp_rules_maker m = {.is_incomplete = r != NULL && !r->is_complete};

    if (prefix.count == 0) {
        (void)sp_fail(e, SP_E_INVALID, 0, "prefix rule requires at least one token");
        return NULL;
    }
    if (user_dir != NULL && append_prefix(user_dir, prefix, e) < 0)
        return NULL;
    if (r != NULL && allows_exactly(r, prefix))
        return sp_rules_ref(r);
    struct sp_rules_part *p = allow_prefix(prefix);
    const bool is_good = p != NULL && copy_parts(&m, r, false) && sp_rules_parts_add(&m.parts, p);
    sp_rules_part_unref(p);
    return make_set(&m, is_good, "add a rule", e);
}

struct sp_rules *sp_rules_with_network(struct sp_rules *r, struct sp_str host,
                                       struct sp_str protocol, bool allows, struct sp_err *e)
{
    struct sp_rules_maker m = {.is_incomplete = r != NULL && !r->is_complete};
    auto_buf struct sp_buf line = {0};

    if (sp_rules_add_network_line(&line, host, protocol, allows, e) < 0)
        return NULL;
    const bool is_good = copy_parts(&m, r, false);
    if (is_good && sp_rules_add_text(&m, "amendment", sp_buf_str(&line), NULL, NULL, e) < 0) {
        sp_rules_parts_done(&m.parts);
        return NULL;
    }
    if (is_good)
        m.parts.items[m.parts.count - 1]->is_amendment = true;
    return make_set(&m, is_good, "add a rule", e);
}

struct sp_rules *sp_rules_renew(struct sp_rules *r, const struct sp_rules *from, bool in_doubt,
                                struct sp_err *e)
{
    struct sp_rules_maker m = {.is_incomplete = in_doubt || (r != NULL && !r->is_complete)};
    bool has_amendment = false;

    for (uint32_t i = 0; from != NULL && i < from->parts.count; i++)
        has_amendment |= from->parts.items[i]->is_amendment;
    if (r != NULL && !has_amendment && r->is_complete != m.is_incomplete)
        return sp_rules_ref(r);
    const bool is_good = copy_parts(&m, r, false) && copy_parts(&m, from, true);
    return make_set(&m, is_good, "read rules again", e);
}

/* ---- rules that a person adds and takes out ----
 *
 * A removal writes a new file and renames it: a writer that waits for the lock of the old one
 * notices, and opens the new one (sp_locked_open).
 */

static int fail_file(struct sp_err *e, int sys, const char *doing, const char *path)
{
    return sp_fail(e, SP_E_SYSTEM, sys, "%s %s", doing, path);
}

/* ---- adding ---- */

static bool add_words(struct sp_buf *line, struct sp_words words)
{
    bool ok = sp_buf_add_str(line, SP_STR("prefix_rule(pattern=["));

    for (uint32_t i = 0; ok && i < words.count; i++)
        ok = (i == 0 || sp_buf_add(line, ", ", 2)) && sp_json_add_str(line, words.items[i]);
    return ok && sp_buf_add(line, "]", 1);
}

static int add_prefix_line(struct sp_buf *line, const struct sp_rules_addition *a, struct sp_err *e)
{
    for (uint32_t i = 0; i < a->words.count; i++)
        if (!sp_utf8_is_valid(a->words.items[i]))
            return sp_fail(e, SP_E_INVALID, 0, "word %u is not valid UTF-8: no rule can name it",
                           i + 1);
    const bool ok =
        add_words(line, a->words) &&
        sp_buf_printf(line, ", decision=\"%s\"", sp_verdict_name(a->verdict)) &&
        (a->justification.p == NULL || (sp_buf_add_str(line, SP_STR(", justification=")) &&
                                        sp_json_add_str(line, a->justification))) &&
        sp_buf_add(line, ")", 1);
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
}

/* Opens and locks the file of the rule. -code or a descriptor. */
static int open_file(const char *user_dir, const char *file, const char *path, struct sp_err *e)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    auto_free char *folder = slash == NULL ? strdup(".") : strndup(path, (size_t)(name - path));

    if (folder == NULL)
        return fail_file(e, ENOMEM, "open", path);
    auto_close int dir = file == NULL ? open_rules_folder(user_dir, e)
                                      : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return file == NULL ? dir : fail_file(e, errno, "open the directory", folder);
    const int fd = sp_locked_open(dir, name);
    if (fd == -ELOOP)
        return sp_fail(e, SP_E_FAILED, 0, "%s is a symbolic link: name the file itself", path);
    return fd < 0 ? fail_file(e, -fd, "open", path) : fd;
}

int sp_rules_edit_add(const char *user_dir, const char *file, const struct sp_rules_addition *a,
                      char **ret_path, uint32_t *ret_line, bool *ret_is_new, struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    struct sp_rules_maker alone = {0};

    if (asprintf(ret_path, "%s%s", file == NULL ? user_dir : file,
                 file == NULL ? "/rules/default.rules" : "") < 0) {
        *ret_path = NULL;
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
    }
    int r = a->words.count > 0 ? add_prefix_line(&line, a, e)
                               : sp_rules_add_network_line(&line, a->host, a->protocol,
                                                           a->verdict == SP_VERDICT_ALLOW, e);
    if (r < 0)
        return r;
    r = sp_rules_add_text(&alone, "the rule", sp_buf_str(&line), NULL, NULL, e);
    sp_rules_parts_done(&alone.parts); /* before the file is created: is it a rule at all? */
    if (r < 0)
        return r;
    auto_close int fd = open_file(user_dir, file, *ret_path, e);
    return fd < 0 ? fd
                  : append_locked(fd, *ret_path, sp_buf_str(&line), true, ret_line, ret_is_new, e);
}

/* ---- removing ---- */

/* The one call of the text that is wanted. */
static int find_call(const char *path, struct sp_str text,
                     bool (*wants)(const void *user, const struct sp_rules_entry *x),
                     const void *user, struct sp_rules_entry *ret, struct sp_err *e)
{
    struct sp_rules_maker m = {0};
    uint32_t found = 0;
    int r = sp_rules_add_text(&m, path, text, NULL, NULL, e);

    for (uint32_t i = 0; r == 0 && i < m.parts.items[0]->entry_count; i++)
        if (wants(user, &m.parts.items[0]->entries[i])) {
            *ret = m.parts.items[0]->entries[i];
            found++;
        }
    if (r == 0 && found != 1)
        r = sp_fail(e, SP_E_NOT_FOUND, 0, "%s has %s there", path,
                    found == 0 ? "no rule" : "several rules");
    sp_rules_parts_done(&m.parts);
    return r;
}

/* The text without the lines of the call, and whether the rest parses. */
static int cut_lines(struct sp_buf *out, const char *path, struct sp_str text,
                     const struct sp_rules_entry *x, struct sp_err *e)
{
    const char *end = memchr(text.p + x->to, '\n', text.n - x->to);
    const size_t to = end == NULL ? text.n : (size_t)(end - text.p) + 1;
    struct sp_rules_maker m = {0};
    int r;

    if (!sp_buf_add(out, text.p, x->from) || !sp_buf_add(out, text.p + to, text.n - to))
        return fail_file(e, ENOMEM, "read", path);
    r = sp_rules_add_text(&m, path, sp_buf_str(out), NULL, NULL, e);
    sp_rules_parts_done(&m.parts);
    return r < 0 ? sp_wrap(e, "without the rule the file is not valid") : 0;
}

/* Puts a file with these bytes in the place of `name`, which is *old. */
static int replace_file(int dir, const char *name, const char *path, const struct stat *old,
                        struct sp_str bytes, struct sp_err *e)
{
    auto_free char *temporary = NULL;

    /* Its name does not end in .rules: no program reads it. */
    if (asprintf(&temporary, "%s.%ld.new", name, (long)getpid()) < 0) {
        temporary = NULL;
        return fail_file(e, ENOMEM, "write", path);
    }
    (void)unlinkat(dir, temporary, 0); /* of a process that died */
    auto_close int fd = sp_fd_lift(
        openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0)
        return fail_file(e, errno, "create a file beside", path);
    int sys = sp_write_all(fd, bytes.p, bytes.n);
    if (sys == 0 &&
        (fchown(fd, (uid_t)-1, old->st_gid) < 0 || fchmod(fd, old->st_mode & 07777) < 0 ||
         fsync(fd) < 0 || renameat(dir, temporary, dir, name) < 0))
        sys = errno;
    if (sys != 0)
        (void)unlinkat(dir, temporary, 0);
    return sys == 0 ? 0 : fail_file(e, sys, "write", path);
}

int sp_rules_edit_remove(const char *file,
                         bool (*wants)(const void *user, const struct sp_rules_entry *x),
                         const void *user, struct sp_err *e)
{
    const char *slash = strrchr(file, '/');
    const char *name = slash == NULL ? file : slash + 1;
    auto_free char *folder = slash == NULL ? strdup(".") : strndup(file, (size_t)(name - file));
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf rest = {0};
    struct sp_rules_entry call = {0};
    struct stat st;

    if (folder == NULL)
        return fail_file(e, ENOMEM, "read", file);
    auto_close int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_file(e, errno, "open", file);
    if (!S_ISREG(st.st_mode))
        return sp_fail(e, SP_E_FAILED, 0, "%s is not a regular file: name the file itself", file);
    if (st.st_uid != geteuid())
        return sp_fail(e, SP_E_FAILED, 0, "%s belongs to another user (uid %u)", file, st.st_uid);
    auto_close int fd = sp_locked_open(dir, name);
    if (fd < 0)
        return fail_file(e, -fd, "open", file);
    if (fstat(fd, &st) < 0)
        return fail_file(e, errno, "read", file);
    if (st.st_uid != geteuid())
        return sp_fail(e, SP_E_FAILED, 0, "%s belongs to another user (uid %u)", file, st.st_uid);
    const int sys = sp_read_all(fd, SP_RULES_MAX_BYTES, &text);
    if (sys != 0)
        return fail_file(e, sys, "read", file);
    int r = find_call(file, sp_buf_str(&text), wants, user, &call, e);
    if (r == 0)
        r = cut_lines(&rest, file, sp_buf_str(&text), &call, e);
    return r < 0 ? r : replace_file(dir, name, file, &st, sp_buf_str(&rest), e);
}
