/* SPDX-License-Identifier: Apache-2.0 */
/* `sallyport audit`: the entries of an audit log, as they come, and the check of its hash chain. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "approve/audit.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/escape_text.h"
#include "config/config_approvals.h"

#define TAIL_DEFAULT 10
#define MAX_TAIL     100000
#define MAX_LINE     (16U << 20) /* bytes of an entry, as in approve/audit.c */
#define MAX_COMMAND  200         /* characters of a command that are shown */

static const struct sp_cli_command audit_verify, audit_show;

/* Exit status 1 is for a broken chain: a log that cannot be read is 2. */
static int report_unreadable(const struct sp_err *e)
{
    (void)sp_cli_complain(e);
    return SP_EXIT_USAGE;
}

/* The file that was named, or the configured one; to be freed. NULL: *ret_status is the end. */
static char *find_log(const struct sp_config_options *o, const char *named,
                      const struct sp_cli_command *c, int *ret_status)
{
    struct sp_config config __attribute__((cleanup(sp_config_done))) = {0};
    char *path = named == NULL ? NULL : strdup(named);
    struct sp_err e = {0};

    if (named != NULL && path == NULL)
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "read %s", named);
    if (named == NULL && sp_cli_load_config(o, NULL, &config, &e) == 0)
        (void)sp_config_audit_log(&config, &path, &e);
    if (path == NULL)
        *ret_status = e.code != SP_E_NONE
                          ? report_unreadable(&e)
                          : sp_command_misused(c, "no audit log is configured: name a file");
    return path;
}

/* ---- verify ---- */

struct verify_options {
    bool is_json;
    struct sp_config_options config;
};

static bool add_verdict(struct sp_buf *out, const struct sp_audit_report *report, const char *path)
{
    const bool is_whole = report->line == 0;

    return sp_buf_add(out, "{", 1) && sp_json_add_member(out, "file", sp_str_of(path)) &&
           sp_json_add_value(out, "intact", "%s", is_whole ? "true" : "false") &&
           (is_whole ? sp_json_add_value(out, "entries", "%" PRIu64, report->entries) &&
                           sp_json_add_member(out, "last", sp_str_of(report->last))
                     : sp_json_add_value(out, "line", "%" PRIu64, report->line) &&
                           sp_json_add_member(out, "fault", sp_str_of(report->fault))) &&
           sp_buf_printf(out, "}\n");
}

static int verify_log(const char *path, bool is_json)
{
    auto_buf struct sp_buf text = {0};
    struct sp_audit_report report;
    struct sp_err e = {0};
    bool ok;

    if (sp_audit_verify(path, &report, &e) < 0)
        return report_unreadable(&e);
    if (is_json)
        ok = add_verdict(&text, &report, path);
    else if (report.line != 0)
        ok = sp_buf_printf(&text, "%s:%" PRIu64 ": %s\n", path, report.line, report.fault);
    else
        ok = sp_buf_printf(&text, "%" PRIu64 " entries, last %s\n", report.entries, report.last);
    if ((ok ? sp_cli_print(sp_buf_str(&text), &e)
            : sp_fail(&e, SP_E_SYSTEM, ENOMEM, "tell the result")) < 0)
        return report_unreadable(&e);
    return report.line != 0 ? SP_EXIT_FAILED : SP_EXIT_OK;
}

static int run_verify(void *values, char **operands)
{
    const struct verify_options *o = values;
    int status = SP_EXIT_OK;
    auto_free char *path = find_log(&o->config, operands[0], &audit_verify, &status);

    return path == NULL ? status : verify_log(path, o->is_json);
}

/* ---- show, tail ---- */

#define MAX_SINCE_MS (100 * 365 * (uint64_t)86400000)

struct audit_options {
    uint64_t last; /* entries to begin with; UINT64_MAX: all */
    uint64_t since_ms;
    const char *decision, *program;
    bool follows, is_json;
    struct sp_config_options config;
};

/* The entries that were read so far. */
struct reading {
    const struct audit_options *o;
    struct sp_json json;
    char since[32];      /* entries before this time are left out; "": none is */
    char **kept;         /* the newest o->last entries as they are printed, a ring */
    size_t kept_count;   /* of all that were kept */
    bool is_past, ok;    /* entries are printed at once; false: stdout or memory failed */
    struct sp_buf line;  /* the beginning of an entry whose end is not written yet */
    bool is_broken;      /* the line is longer than any entry: skip to its end */
    uint64_t unreadable; /* lines that are no entries */
};

static struct sp_str text_of(struct reading *r, const char *key)
{
    const uint32_t value = sp_json_get(&r->json, 0, key);

    return value != SP_JSON_NONE && sp_json_type(&r->json, value) == SP_JSON_STRING
               ? sp_json_str(&r->json, value)
               : SP_STR("");
}

/* Whether the first word of a segment, or of the command, is this program or ends with /it. */
static bool has_program(struct reading *r, const char *key, struct sp_str wanted)
{
    const uint32_t list = sp_json_get(&r->json, 0, key);
    bool has = false;

    if (list == SP_JSON_NONE || sp_json_type(&r->json, list) != SP_JSON_ARRAY)
        return false;
    sp_json_each(&r->json, list, item) {
        uint32_t word = item;

        if (sp_json_type(&r->json, item) == SP_JSON_ARRAY)
            word = sp_json_first(&r->json, item);
        if (word == SP_JSON_NONE || sp_json_type(&r->json, word) != SP_JSON_STRING)
            continue;
        struct sp_str name = sp_json_str(&r->json, word);
        const char *slash = name.n == 0 ? NULL : memrchr(name.p, '/', name.n);
        if (slash != NULL)
            name = (struct sp_str){slash + 1, name.n - (size_t)(slash + 1 - name.p)};
        has = has || sp_str_eq(name, wanted);
        if (word == item) /* the words of the command: the first is its program */
            break;
    }
    return has;
}

static struct sp_str first_word(struct reading *r)
{
    const uint32_t command = sp_json_get(&r->json, 0, "command");
    const uint32_t first =
        command != SP_JSON_NONE && sp_json_type(&r->json, command) == SP_JSON_ARRAY
            ? sp_json_first(&r->json, command)
            : SP_JSON_NONE;

    return first != SP_JSON_NONE && sp_json_type(&r->json, first) == SP_JSON_STRING
               ? sp_json_str(&r->json, first)
               : (struct sp_str){0};
}

/* What the command ran in: "in its sandbox", "without a sandbox"; "did not run". NULL: a connection
 * to a host, which runs nothing. */
static const char *attempt_of(struct reading *r)
{
    const uint32_t list = sp_json_get(&r->json, 0, "attempts");
    const uint32_t last = list != SP_JSON_NONE && sp_json_type(&r->json, list) == SP_JSON_ARRAY
                              ? sp_json_first(&r->json, list)
                              : SP_JSON_NONE;

    if (last == SP_JSON_NONE || sp_json_type(&r->json, last) != SP_JSON_STRING)
        return sp_str_eq(first_word(r), SP_STR("network-access")) ? NULL : "did not run";
    return sp_str_eq(sp_json_str(&r->json, last), SP_STR("free")) ? "without a sandbox"
                                                                  : "in its sandbox";
}

/* TIME  ended by REASON: CALL_ID, processor time */
static bool add_receipt_row(struct reading *r, uint32_t receipt, struct sp_str time,
                            struct sp_buf *out)
{
    uint64_t user = 0;
    uint64_t system = 0;
    struct sp_str reason = {0};

    (void)sp_json_opt_str(&r->json, receipt, "reason", &reason, NULL);
    (void)sp_json_opt_u64(&r->json, receipt, "user_ms", INT64_MAX, &user, NULL);
    (void)sp_json_opt_u64(&r->json, receipt, "system_ms", INT64_MAX, &system, NULL);
    return sp_plain_add(out, time) && sp_buf_printf(out, "Z  ended by ") &&
           sp_plain_add(out, reason) && sp_buf_printf(out, ": ") &&
           sp_plain_add(out, text_of(r, "call_id")) &&
           sp_buf_printf(out, ", %llu.%02u s of processor time\n",
                         (unsigned long long)((user + system) / 1000),
                         (unsigned)((user + system) % 1000 / 10));
}

/* TIME  DECISION by WHO, ATTEMPT: COMMAND */
static bool add_row(struct reading *r, struct sp_buf *out)
{
    const uint32_t receipt = sp_json_get(&r->json, 0, "receipt");
    const uint32_t command = sp_json_get(&r->json, 0, "command");
    struct sp_str time = text_of(r, "time");
    const char *attempt = attempt_of(r);
    auto_buf struct sp_buf words = {0};
    bool ok = true;

    if (time.n > 19) /* to the second: 2026-11-15T13:30:00 */
        time.n = 19;
    if (receipt != SP_JSON_NONE && sp_json_type(&r->json, receipt) == SP_JSON_OBJECT)
        return add_receipt_row(r, receipt, time, out);
    if (command != SP_JSON_NONE && sp_json_type(&r->json, command) == SP_JSON_ARRAY)
        sp_json_each(&r->json, command, word) {
            if (sp_json_type(&r->json, word) == SP_JSON_STRING)
                ok = ok && (words.len == 0 || sp_buf_add(&words, " ", 1)) &&
                     sp_plain_add_word(&words, sp_json_str(&r->json, word));
        }
    else
        ok = sp_buf_printf(&words, "(a long command)");
    if (words.len > MAX_COMMAND) {
        words.len = MAX_COMMAND;
        while (words.len > 0 && ((unsigned char)words.data[words.len] & 0xc0) == 0x80)
            words.len--;
        ok = ok && sp_buf_printf(&words, "…");
    }
    return ok && sp_plain_add(out, time) && sp_buf_printf(out, "Z  ") &&
           sp_plain_add(out, text_of(r, "decision")) && sp_buf_printf(out, " by ") &&
           sp_plain_add(out, text_of(r, "decided_by")) &&
           sp_buf_printf(out, "%s%s: ", attempt == NULL ? "" : ", ",
                         attempt == NULL ? "" : attempt) &&
           sp_buf_add_str(out, sp_buf_str(&words)) && sp_buf_add(out, "\n", 1);
}

/* One line of the log without its LF. */
static void take_entry(struct reading *r, struct sp_str line)
{
    const struct audit_options *o = r->o;
    auto_free char *copy = strndup(line.p, line.n);
    auto_buf struct sp_buf row = {0};

    if (copy == NULL) {
        r->ok = false;
        return;
    }
    if (memchr(line.p, 0, line.n) != NULL ||
        sp_json_parse(&r->json, copy, strlen(copy), NULL) < 0 ||
        sp_json_type(&r->json, 0) != SP_JSON_OBJECT) {
        r->unreadable++;
        return;
    }
    const struct sp_str time = text_of(r, "time");
    const struct sp_str decision = text_of(r, "decision");
    const size_t n = o->decision == NULL ? 0 : strlen(o->decision);
    if ((r->since[0] != 0 && (time.n < 19 || memcmp(time.p, r->since, 19) < 0)) ||
        (n != 0 && (decision.n < n || memcmp(decision.p, o->decision, n) != 0)))
        return;
    if (o->program != NULL && !has_program(r, "command", sp_str_of(o->program)) &&
        !has_program(r, "segments", sp_str_of(o->program)))
        return;
    r->ok = r->ok && (o->is_json ? sp_buf_add_str(&row, line) && sp_buf_add(&row, "\n", 1)
                                 : add_row(r, &row));
    if (!r->ok)
        return;
    if (r->is_past || o->last == UINT64_MAX) {
        r->ok = fwrite(row.data, 1, row.len, stdout) == row.len;
        return;
    }
    char **place = &r->kept[r->kept_count++ % o->last];
    free(*place);
    *place = strndup(row.data, row.len);
    r->ok = *place != NULL;
}

/* All that the file has now. */
static int read_entries(struct reading *r, int fd)
{
    char chunk[65536];
    ssize_t got;

    while (r->ok && (got = read(fd, chunk, sizeof chunk)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno;
        struct sp_str rest = {chunk, (size_t)got};
        const char *lf;
        while (r->ok && (lf = memchr(rest.p, '\n', rest.n)) != NULL) {
            r->ok = r->is_broken || sp_buf_add(&r->line, rest.p, (size_t)(lf - rest.p));
            rest = (struct sp_str){lf + 1, rest.n - (size_t)(lf + 1 - rest.p)};
            if (r->is_broken)
                r->unreadable++;
            else if (r->ok)
                take_entry(r, sp_buf_str(&r->line));
            r->line.len = 0;
            r->is_broken = false;
        }
        r->is_broken = r->is_broken || r->line.len + rest.n > MAX_LINE;
        if (!r->is_broken)
            r->ok = r->ok && sp_buf_add_str(&r->line, rest);
    }
    return 0;
}

/* The log, opened without waiting: -1 with errno if it is no regular file. */
static int open_log(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
        return fd;
    (void)close(fd);
    errno = EINVAL;
    return -1;
}

/* Entries as they are written, also to the file that replaces a log that was renamed. Ends with a
 * signal, or when stdout is gone. */
static int follow(struct reading *r, const char *path, int *fd)
{
    auto_free char *dir = strdup(path);
    auto_close int events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    if (dir == NULL || events < 0)
        return errno;
    char *slash = strrchr(dir, '/');
    if (slash != NULL)
        slash[slash == dir] = 0;
    if (inotify_add_watch(events, slash == NULL ? "." : dir,
                          IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM) < 0)
        return errno;
    for (;;) {
        char news[4096];
        struct pollfd wait[2] = {{.fd = events, .events = POLLIN}, {.fd = STDOUT_FILENO}};
        struct stat now;
        struct stat old;
        const int err = read_entries(r, *fd);

        if (err != 0 || !r->ok || fflush(stdout) != 0)
            return err;
        if (stat(path, &now) == 0 && fstat(*fd, &old) == 0 &&
            (now.st_ino != old.st_ino || now.st_dev != old.st_dev)) {
            const int fresh = open_log(path);

            if (fresh >= 0) {
                (void)close(*fd);
                *fd = fresh;
                continue;
            }
        }
        (void)poll(wait, 2, -1);
        if ((wait[1].revents & (POLLERR | POLLHUP)) != 0)
            return 0;
        while (read(events, news, sizeof news) > 0)
            ;
    }
}

/* Whether a decision of the log may begin with the word; else a complaint. */
static bool is_decision(const char *word, char *complaint, size_t size)
{
    static const char *const words[] = {"approved", "denied", "timed_out", "abort"};
    struct sp_nearest near = sp_nearest_to(sp_str_of(word));

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(word) < strlen(words[i]) ? strlen(word) : strlen(words[i]);

        if (strncmp(word, words[i], n) == 0)
            return true;
        sp_nearest_offer(&near, words[i]);
    }
    (void)snprintf(complaint, size,
                   "--decision: `%.40s` is not approved, denied, timed_out or abort%s%s%s", word,
                   near.best != NULL ? "; did you mean `" : "", near.best != NULL ? near.best : "",
                   near.best != NULL ? "`?" : "");
    return false;
}

static int run_show(void *values, char **operands)
{
    const struct audit_options *o = values;
    char complaint[160];

    if (o->decision != NULL && !is_decision(o->decision, complaint, sizeof complaint))
        return sp_command_misused(&audit_show, complaint);
    struct reading r = {.o = o, .ok = true, .line.max = MAX_LINE};
    int status = SP_EXIT_OK;
    struct sp_err e = {0};
    auto_free char *path = find_log(&o->config, operands[0], &audit_show, &status);

    if (path == NULL)
        return status;
    auto_close int fd = open_log(path);
    if (fd < 0) {
        (void)sp_fail(&e, SP_E_SYSTEM, errno, "%s %s",
                      errno == ENOENT && operands[0] == NULL ? "no decision was logged yet: read"
                                                             : "read",
                      path);
        return report_unreadable(&e);
    }
    if (o->since_ms != 0) {
        const time_t from = (time_t)((sp_clock_unix_ms() - o->since_ms) / 1000);
        struct tm t;

        if (gmtime_r(&from, &t) != NULL)
            (void)strftime(r.since, sizeof r.since, "%FT%T", &t);
    }
    if (o->last != UINT64_MAX)
        r.kept = calloc(o->last, sizeof *r.kept);
    r.ok = o->last == UINT64_MAX || r.kept != NULL;
    int err = read_entries(&r, fd);
    const size_t shown = r.kept == NULL ? 0 : r.kept_count < o->last ? r.kept_count : o->last;
    for (size_t i = r.kept_count - shown; r.ok && i < r.kept_count; i++)
        r.ok = fputs(r.kept[i % o->last], stdout) >= 0;
    r.is_past = true;
    if (o->follows && err == 0 && r.ok)
        err = follow(&r, path, &fd);
    if (r.unreadable != 0)
        (void)fprintf(stderr,
                      "sallyport: %llu lines are no entries; see `sallyport audit verify`\n",
                      (unsigned long long)r.unreadable);
    for (size_t i = 0; r.kept != NULL && i < o->last; i++)
        free(r.kept[i]);
    free(r.kept);
    sp_json_done(&r.json);
    sp_buf_done(&r.line);
    if (err == 0 && r.ok && fflush(stdout) == 0)
        return SP_EXIT_OK;
    if (err != 0 || !ferror(stdout))
        (void)sp_fail(&e, SP_E_SYSTEM, err != 0 ? err : errno, "show %s", path);
    else
        (void)sp_fail(&e, SP_E_SYSTEM, errno, "write to stdout");
    return report_unreadable(&e);
}

#define FILTERS                                                                   \
    SP_OPT_TIME(struct audit_options, since_ms, "since", "TIME", 1, MAX_SINCE_MS, \
                "only entries of this long ago or less: 30s, 5m, 2h"),            \
        SP_OPT_STRING(struct audit_options, decision, "decision", "WORD",         \
                      "only decisions that begin so: approved, denied, "          \
                      "timed_out, abort"),                                        \
        SP_OPT_STRING(struct audit_options, program, "program", "NAME",           \
                      "only commands that run this program"),                     \
        SP_OPT_FLAG(struct audit_options, is_json, "json",                        \
                    "print the lines as they are in the log")

static const struct sp_option show_options[] = {
    SP_OPT_NUMBER(struct audit_options, last, "tail", "LINES", 1, MAX_TAIL,
                  "only the last LINES entries (default: all)", .short_name = 'n'),
    FILTERS,
    SP_OPT_TABLE(struct audit_options, config, sp_config_options),
    SP_OPT_END,
};

static const struct sp_option tail_options[] = {
    SP_OPT_NUMBER(struct audit_options, last, "tail", "LINES", 1, MAX_TAIL,
                  "the last LINES entries (default 10)", .short_name = 'n'),
    SP_OPT_FLAG(struct audit_options, follows, "follow", "go on with entries as they are written",
                .short_name = 'f'),
    FILTERS,
    SP_OPT_TABLE(struct audit_options, config, sp_config_options),
    SP_OPT_END,
};

static const struct sp_option verify_options[] = {
    SP_OPT_FLAG(struct verify_options, is_json, "json", "print one JSON object"),
    SP_OPT_TABLE(struct verify_options, config, sp_config_options),
    SP_OPT_END,
};

static const struct sp_cli_command audit_show = {
    .name = "audit show",
    .summary = "print the decisions of the log, a line each",
    .usage = "sallyport audit show [OPTIONS] [FILE]\n"
             "\n"
             "Prints what was decided about each command, by whom, and whether it ran. FILE is by "
             "default the configured log.\n",
    .notes = "Example: sallyport audit show --since 1h --decision denied\n",
    .options = show_options,
    .operand = "FILE",
    .max_operands = 1,
    .values_size = sizeof(struct audit_options),
    .defaults = &(const struct audit_options){.last = UINT64_MAX},
    .run = run_show,
};

static const struct sp_cli_command audit_tail = {
    .name = "audit tail",
    .summary = "print the newest decisions, and follow the log",
    .usage = "sallyport audit tail [OPTIONS] [FILE]\n"
             "\n"
             "Prints the last entries of the log, and with -f each new one until Ctrl-C, also "
             "after the log was renamed and begun anew.\n",
    .notes = "Example: sallyport audit tail -f\n",
    .options = tail_options,
    .operand = "FILE",
    .max_operands = 1,
    .values_size = sizeof(struct audit_options),
    .defaults = &(const struct audit_options){.last = TAIL_DEFAULT},
    .run = run_show,
};

static const struct sp_cli_command audit_verify = {
    .name = "audit verify",
    .summary = "check that an audit log is whole",
    .usage =
        "sallyport audit verify [OPTIONS] [FILE]\n"
        "\n"
        "Reads an audit log (default: the configured one) and checks that each line is an "
        "entry, that its number follows the one before, and that it has the hash of that one. "
        "Prints the number of entries and the hash of the last one: keep both somewhere else to "
        "notice later that entries were cut off at the end.\n",
    .notes = "Exit status: 0 the chain is intact; 1 it is broken: stdout says where; 2 the file "
             "cannot be read, or the command line is wrong.\n"
             "Example: sallyport audit verify\n",
    .options = verify_options,
    .operand = "FILE",
    .max_operands = 1,
    .values_size = sizeof(struct verify_options),
    .run = run_verify,
};

static const struct sp_cli_command *const subcommands[] = {&audit_show, &audit_tail, &audit_verify,
                                                           NULL};

const struct sp_cli_command sp_command_audit = {
    .name = "audit",
    .summary = "show, follow and check the log of decisions",
    .usage = "sallyport audit SUBCOMMAND [OPTIONS]\n",
    .notes = "Example: sallyport audit show --since 1h\n",
    .subcommands = subcommands,
};
