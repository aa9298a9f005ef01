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

/* Appends a network rule as one line, without LF. */
static int add_network_line(struct sp_buf *line, struct sp_str host, struct sp_str protocol,
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

static int fail_system(struct sp_err *e, int sys, const char *doing, const char *user_dir)
{
    return sp_fail(e, SP_E_SYSTEM, sys, "failed to %s %s/rules/" FILE_NAME, doing, user_dir);
}

/* Opens USER_DIR/rules and creates both, but not the parents of USER_DIR. */
static int open_folder(const char *user_dir, struct sp_err *e)
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

static bool has_line(struct sp_str text, struct sp_str line)
{
    while (text.n != 0) {
        struct sp_str old = sp_str_cut(&text, '\n');

        old.n -= old.n > 0 && old.p[old.n - 1] == '\r';
        if (sp_str_eq(old, line))
            return true;
    }
    return false;
}

/* In one write: a reader sees the whole line or nothing of it. */
static int append(int fd, struct sp_str before, struct sp_str line, const char *user_dir,
                  struct sp_err *e)
{
    auto_buf struct sp_buf out = {0};
    const bool lacks_newline = before.n != 0 && before.p[before.n - 1] != '\n';

    if ((lacks_newline && !sp_buf_add(&out, "\n", 1)) || !sp_buf_add_str(&out, line) ||
        !sp_buf_add(&out, "\n", 1))
        return fail_system(e, ENOMEM, "write to policy file", user_dir);
    if (before.n + out.len > SP_RULES_MAX_BYTES)
        return fail_system(e, EFBIG, "write to policy file", user_dir);
    const ssize_t n = write(fd, out.data, out.len);
    if (n == (ssize_t)out.len)
        return 0;
    const int sys = n < 0 ? errno : ENOSPC;
    if (n > 0 &&
        ftruncate(fd, (off_t)before.n) < 0) /* half a line would make the whole file unparsable */
        return fail_system(e, errno, "take half a line back from", user_dir);
    return fail_system(e, sys, "write to policy file", user_dir);
}

static int append_line(const char *user_dir, struct sp_str line, struct sp_err *e)
{
    auto_close int folder = open_folder(user_dir, e);
    auto_buf struct sp_buf text = {0};

    if (folder < 0)
        return folder;
    auto_close int fd = sp_locked_open(folder, FILE_NAME);
    if (fd < 0)
        return fail_system(e, -fd, "open policy file", user_dir);
    const int sys = sp_read_all(fd, SP_RULES_MAX_BYTES, &text);
    if (sys != 0 && sys != EFBIG) /* EFBIG: `append` says so */
        return fail_system(e, sys, "read policy file", user_dir);
    const struct sp_str before = sp_buf_str(&text);
    return has_line(before, line) ? 0 : append(fd, before, line, user_dir, e);
}

static int append_prefix(const char *user_dir, struct sp_words prefix, struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    bool is_good = sp_buf_add_str(&line, SP_STR("prefix_rule(pattern=["));

    for (uint32_t i = 0; i < prefix.count; i++)
        if (!sp_utf8_is_valid(prefix.items[i]))
            return sp_fail(e, SP_E_INVALID, 0,
                           "word %u of the prefix is not valid UTF-8: no rule can name it", i + 1);
    for (uint32_t i = 0; is_good && i < prefix.count; i++)
        is_good = (i == 0 || sp_buf_add(&line, ", ", 2)) && sp_json_add_str(&line, prefix.items[i]);
    if (!is_good || !sp_buf_add_str(&line, SP_STR("], decision=\"allow\")")))
        return fail_system(e, ENOMEM, "write to policy file", user_dir);
    return append_line(user_dir, sp_buf_str(&line), e);
}

int sp_rules_amend_network(const char *user_dir, struct sp_str host, struct sp_str protocol,
                           bool allows, struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    const int r = add_network_line(&line, host, protocol, allows, e);

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

    if (add_network_line(&line, host, protocol, allows, e) < 0)
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
