/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Amendments (5.6): one line more in USER_DIR/rules/default.rules.
 *
 * The file is locked while it is read and appended to, so that two of us write one after the
 * other; the line goes out in one write. No symbolic link is followed: what a command planted there
 * must not lead our hand elsewhere.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/locked.h"
#include "approve/rules/rules_set.h"
#include "base/auto.h"
#include "base/json.h"
#include "base/utf8.h"
#include "os/fd.h"

#define FILE_NAME "default.rules"

static int fail_system(struct sp_err *e, int sys, const char *doing, const char *user_dir)
{
    return sp_fail(e, SP_E_SYSTEM, sys, "failed to %s %s/rules/" FILE_NAME, doing, user_dir);
}

/* USER_DIR/rules; both are made, USER_DIR if its parent is there. */
static int open_folder(const char *user_dir, struct sp_err *e)
{
    (void)mkdir(user_dir, 0700); /* whether it is there is seen when it is opened */
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

static int open_file(const char *user_dir, struct sp_err *e)
{
    auto_close int folder = open_folder(user_dir, e);

    if (folder < 0)
        return folder;
    const int fd = sp_locked_open(folder, FILE_NAME);
    return fd < 0 ? fail_system(e, -fd, "open policy file", user_dir) : fd;
}

static bool has_line(struct sp_str text, struct sp_str line)
{
    while (text.n != 0) {
        const char *end = memchr(text.p, '\n', text.n);
        const size_t n = end == NULL ? text.n : (size_t)(end - text.p);
        const size_t shown = n > 0 && text.p[n - 1] == '\r' ? n - 1 : n;

        if (sp_str_eq((struct sp_str){text.p, shown}, line))
            return true;
        text = (struct sp_str){text.p + n + (end != NULL), text.n - n - (end != NULL)};
    }
    return false;
}

/* In one write: whoever reads sees the line, or does not. */
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
    if (n > 0 && ftruncate(fd, (off_t)before.n) < 0) /* half a line would break the whole file */
        return fail_system(e, errno, "take half a line back from", user_dir);
    return fail_system(e, sys, "write to policy file", user_dir);
}

static int append_line(const char *user_dir, struct sp_str line, struct sp_err *e)
{
    auto_close int fd = open_file(user_dir, e);
    auto_buf struct sp_buf text = {0};

    if (fd < 0)
        return fd;
    const int sys = sp_rules_read_bytes(fd, &text);
    if (sys != 0)
        return fail_system(e, sys, "read policy file", user_dir);
    const struct sp_str before = {text.data, text.len};
    return has_line(before, line) ? 0 : append(fd, before, line, user_dir, e);
}

int sp_rules_amend_prefix(const char *user_dir, struct sp_words prefix, struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    bool is_good = sp_buf_add_str(&line, SP_STR("prefix_rule(pattern=["));

    if (prefix.count == 0)
        return sp_fail(e, SP_E_INVALID, 0, "prefix rule requires at least one token");
    for (uint32_t i = 0; i < prefix.count; i++)
        if (!sp_utf8_is_valid(prefix.items[i]))
            return sp_fail(e, SP_E_INVALID, 0,
                           "word %u of the prefix is not valid UTF-8: no rule can name it", i + 1);
    for (uint32_t i = 0; is_good && i < prefix.count; i++)
        is_good = (i == 0 || sp_buf_add(&line, ", ", 2)) && sp_json_add_str(&line, prefix.items[i]);
    if (!is_good || !sp_buf_add_str(&line, SP_STR("], decision=\"allow\")")))
        return fail_system(e, ENOMEM, "write to policy file", user_dir);
    return append_line(user_dir, (struct sp_str){line.data, line.len}, e);
}

/* How the justification of a rule names the protocol. */
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

/* The rule as one line, without a line feed. */
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
    const char *wrong = sp_utf8_is_valid(host) ? sp_rules_normal_host(host, normal_room, &normal)
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
        sp_json_add_str(line, (struct sp_str){why.data, why.len}) && sp_buf_add(line, ")", 1);
    return is_good ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
}

int sp_rules_amend_network(const char *user_dir, struct sp_str host, struct sp_str protocol,
                           bool allows, struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    const int r = add_network_line(&line, host, protocol, allows, e);

    return r < 0 ? r : append_line(user_dir, (struct sp_str){line.data, line.len}, e);
}

struct sp_rules *sp_rules_with_network(struct sp_rules *r, struct sp_str host,
                                       struct sp_str protocol, bool allows, struct sp_err *e)
{
    struct sp_rules_maker m = {.is_incomplete = r != NULL && !r->is_complete};
    auto_buf struct sp_buf line = {0};
    struct sp_rules *extended = NULL;
    bool is_good = true;

    if (add_network_line(&line, host, protocol, allows, e) < 0)
        return NULL;
    for (uint32_t i = 0; r != NULL && is_good && i < r->parts.count; i++)
        is_good = sp_rules_parts_add(&m.parts, r->parts.items[i]);
    if (!is_good)
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
    else if (sp_rules_add_text(&m, "amendment", (struct sp_str){line.data, line.len}, e) == 0) {
        m.parts.items[m.parts.count - 1]->is_amendment = true;
        extended = sp_rules_make(&m);
        if (extended == NULL)
            (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "add a rule");
    }
    sp_rules_parts_done(&m.parts);
    return extended;
}
