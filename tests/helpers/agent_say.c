/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent tells its test, a line each. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../unit/manager_state.h"
#include "agent.h"
#include "base/auto.h"
#include "base/base64.h"

static void need(bool has_room)
{
    if (!has_room) {
        (void)fprintf(stderr, "agent: no memory\n");
        abort();
    }
}

static void put(struct sp_buf *out, const char *text)
{
    need(sp_buf_add_str(out, sp_str_of(text)));
}

static void put_str(struct sp_buf *out, const char *name, struct sp_str value)
{
    need(sp_buf_printf(out, ",\"%s\":", name) && sp_json_add_str(out, value));
}

static void put_number(struct sp_buf *out, const char *name, long long value)
{
    need(sp_buf_printf(out, ",\"%s\":%lld", name, value));
}

static void put_bool(struct sp_buf *out, const char *name, bool value)
{
    need(sp_buf_printf(out, ",\"%s\":%s", name, value ? "true" : "false"));
}

static void put_bytes(struct sp_buf *out, const char *name, struct sp_str bytes)
{
    need(sp_buf_printf(out, ",\"%s\":\"", name));
    char *room = sp_buf_room(out, SP_BASE64_LEN(bytes.n) + 1);
    need(room != NULL);
    room = sp_base64_encode(room, bytes.p, bytes.n);
    *room++ = '"';
    out->len = (size_t)(room - out->data);
}

static void put_words(struct sp_buf *out, const char *name, const struct sp_str *words, uint32_t n)
{
    need(sp_buf_printf(out, ",\"%s\":[", name));
    for (uint32_t i = 0; i < n; i++)
        need((i == 0 || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, words[i]));
    put(out, "]");
}

static void begin(struct sp_buf *out, const char *name, struct sp_str tag)
{
    need(sp_buf_printf(out, "{\"%s\":", name) && sp_json_add_str(out, tag));
}

void say(struct sp_buf *line)
{
    struct timespec now;
    size_t done = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    put_number(line, "t_ns", now.tv_sec * 1000000000LL + now.tv_nsec);
    put(line, "}\n");
    while (done < line->len) {
        const ssize_t n = write(STDOUT_FILENO, line->data + done, line->len - done);

        if (n <= 0)
            return; /* nobody listens: stdin will end, too */
        done += (size_t)n;
    }
}

void say_event(const struct sp_exec_event *e)
{
    auto_buf struct sp_buf line = {0};

    put(&line, "{\"event\":");
    need(sp_tools_add_event(&line, e));
    say(&line);
}

void say_question(const struct sp_approval_question *q)
{
    static const char *const kinds[] = {
        [SP_QUESTION_RUN] = "run",
        [SP_QUESTION_ESCALATE] = "escalate",
        [SP_QUESTION_ADDITIONAL] = "additional",
        [SP_QUESTION_RETRY] = "retry",
        [SP_QUESTION_PATCH] = "patch",
        [SP_QUESTION_PERMISSIONS] = "permissions",
        [SP_QUESTION_NETWORK] = "network",
    };
    auto_buf struct sp_buf line = {0};

    need(sp_buf_printf(&line, "{\"question\":%llu", (unsigned long long)q->id));
    put_str(&line, "kind", sp_str_of(kinds[q->kind]));
    put_str(&line, "call_id", q->call_id);
    put_str(&line, "reason", q->reason);
    put_str(&line, "command", q->command);
    put_str(&line, "cwd", q->cwd);
    put_words(&line, "argv", q->argv.items, q->argv.count);
    put_words(&line, "amendment", q->amendment.items, q->amendment.count);
    put_bool(&line, "free", q->is_free);
    put(&line, ",\"json\":");
    need(sp_question_add_json(&line, q));
    say(&line);
}

void say_reply(struct sp_str id, const struct sp_tool_reply *r)
{
    auto_buf struct sp_buf line = {0};

    begin(&line, "reply", id);
    put_bool(&line, "failed", r->has_failed);
    put_str(&line, "text", r->text);
    put(&line, ",\"structured\":");
    need(sp_buf_add_str(&line, r->structured.n == 0 ? SP_STR("null") : r->structured));
    if (r->from != NULL) {
        put_number(&line, "fault", r->from->fault);
        put_str(&line, "error", r->from->error);
        put_bool(&line, "denied", r->from->was_denied);
        put_number(&line, "process_id", r->from->process_id);
        put_number(&line, "signal", r->from->signal);
        put_number(&line, "from", (long long)r->from->from);
        put_number(&line, "to", (long long)r->from->to);
    }
    say(&line);
}

void say_done(struct sp_str tag, bool was_done)
{
    auto_buf struct sp_buf line = {0};

    begin(&line, "done", tag);
    put_bool(&line, "ok", was_done);
    say(&line);
}

static void put_entry(void *user, const struct sp_manager_view *e)
{
    struct sp_buf *line = user;

    if (e->has_exited || e->is_answered)
        return;
    if (line->data[line->len - 1] == '}')
        put(line, ",");
    put(line, "{\"item_id\":");
    need(sp_json_add_str(line, e->call_id));
    need(sp_buf_printf(line, ",\"process_id\":\"%d\"", e->process_id));
    put_str(line, "command", e->command);
    put_str(line, "cwd", e->cwd);
    put_bool(line, "tty", e->is_tty);
    put(line, "}");
}

void say_list(struct sp_str tag, struct sp_manager *m)
{
    auto_buf struct sp_buf line = {0};

    begin(&line, "done", tag);
    put(&line, ",\"list\":[");
    sp_manager_each(m, put_entry, &line);
    put(&line, "]");
    say(&line);
}

static long long count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    long long n = -3; /* two names that are none, and the directory itself */

    if (dir == NULL)
        return -1;
    while (readdir(dir) != NULL)
        n++;
    (void)closedir(dir);
    return n;
}

static long long rss_kb(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    long long size = 0;
    long long resident = 0;

    if (f == NULL)
        return -1;
    if (fscanf(f, "%lld %lld", &size, &resident) != 2) /* NOLINT(cert-err34-c): the kernel's */
        resident = -1;
    (void)fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

void say_stats(struct sp_str tag, const struct sp_manager *m)
{
    auto_buf struct sp_buf line = {0};
    struct rusage used = {0};

    (void)getrusage(RUSAGE_SELF, &used);
    begin(&line, "done", tag);
    put_number(&line, "reserved", sp_manager_reserved(m));
    put_number(&line, "stored", sp_manager_stored(m));
    put_number(&line, "rss_kb", rss_kb());
    put_number(&line, "fds", count_fds());
    put_number(&line, "cpu_us",
               (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000LL + used.ru_utime.tv_usec +
                   used.ru_stime.tv_usec);
    say(&line);
}

static void put_text(struct sp_buf *line, const char *name, struct sp_buf *text)
{
    put_str(line, name, (struct sp_str){text->data, text->len});
    sp_buf_done(text);
}

void say_run(struct sp_str id, const struct sp_run_result *r)
{
    static const char *const kinds[] = {
        [SP_RUN_EXITED] = "exited",       [SP_RUN_SIGNALLED] = "signalled",
        [SP_RUN_TIMED_OUT] = "timed_out", [SP_RUN_CANCELLED] = "cancelled",
        [SP_RUN_FAILED] = "failed",       [SP_RUN_REJECTED] = "rejected",
    };
    static const char *const classes[] = {
        [SP_RUN_OK] = "ok",         [SP_RUN_SIGNAL] = "signal", [SP_RUN_TIMEOUT] = "timeout",
        [SP_RUN_DENIED] = "denied", [SP_RUN_ERROR] = "error",
    };
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, 10000};
    auto_buf struct sp_buf line = {0};
    auto_buf struct sp_buf text = {0};

    begin(&line, "ran", id);
    put_str(&line, "kind", sp_str_of(kinds[r->kind]));
    put_str(&line, "class", sp_str_of(classes[r->class]));
    put_number(&line, "exit_code", r->exit_code);
    put_number(&line, "signal", r->signal);
    put_bytes(&line, "stdout", r->out);
    put_bytes(&line, "stderr", r->err);
    put_bytes(&line, "aggregated", r->aggregated);
    put_number(&line, "out_total", (long long)r->out_total);
    put_number(&line, "err_total", (long long)r->err_total);
    put_bool(&line, "lost", r->has_lost_output);
    put_number(&line, "duration_ns", (long long)r->duration_ns);
    put_str(&line, "error", r->error == NULL ? SP_STR("") : sp_str_of(r->error->msg));
    need(sp_run_add_text(&text, r, max));
    put_text(&line, "text", &text);
    need(sp_run_add_message(&text, r));
    put_text(&line, "message", &text);
    say(&line);
}

void say_trouble(const char *what, const struct sp_err *e)
{
    auto_buf struct sp_buf line = {0};
    char text[600];

    begin(&line, "trouble", sp_str_of(what));
    put_str(&line, "why", sp_str_of(sp_error_text(e, text, sizeof text)));
    say(&line);
}
