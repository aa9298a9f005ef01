/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to one server. Requests are made one after the other: sp_observe_ask() runs the
 * loop until the answer is there, while notifications go to the ops of the command.
 */
#include "cli/observe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/redact.h"
#include "base/runtime_dir.h"
#include "base/uri.h"
#include "cli/escape_text.h"
#include "cli/own_stdio.h"

#define FALLBACK_URL "ws://127.0.0.1:8765"
#define RESUME_MS    5000 /* a person waits for the connection to come back */
#define MAX_SHOWN    6    /* servers that an error lists */

const struct sp_option sp_observe_options[] = {
    SP_OPT_HEADING("Which server:"),
    SP_OPT_STRING(struct sp_observe_options, server, "server", "NAME|URL",
                  "an environment of the configuration, ws://HOST:PORT or unix:///PATH (default: "
                  "`server` of the configuration, else the only server of this user on this "
                  "machine, else " FALLBACK_URL ")"),
    SP_OPT_STRING(struct sp_observe_options, token_file, "token-file", "FILE",
                  "the token of the server"),
    SP_OPT_TABLE(struct sp_observe_options, config, sp_config_options),
    SP_OPT_END,
};

/* ---- the servers of this user ----
 *
 * A private directory has one unix socket for each server, PID.sock: $XDG_RUNTIME_DIR/sallyport if
 * that is ours, else the runtime directory that every server has. No confined command sees either.
 * The socket of a killed server is removed by the next process that looks at it.
 */

static void name_directory(char *ret, size_t size)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    struct stat st;

    /* After sudo, XDG_RUNTIME_DIR may be another user's. */
    if (xdg != NULL && xdg[0] == '/' && stat(xdg, &st) == 0 && S_ISDIR(st.st_mode) &&
        st.st_uid == geteuid())
        (void)snprintf(ret, size, "%s/sallyport", xdg);
    else
        sp_runtime_dir(ret, size);
}

/* Its descriptor; -1: missing, or EPERM if others have access. */
static int open_directory(const char *path)
{
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        errno = EPERM;
        return -1;
    }
    return TAKE_FD(fd);
}

struct live_server {
    pid_t pid;
    char url[160];
};

static bool is_dead(pid_t pid)
{
    return kill(pid, 0) < 0 && errno == ESRCH;
}

static int by_pid(const void *a, const void *b)
{
    const pid_t x = ((const struct live_server *)a)->pid;
    const pid_t y = ((const struct live_server *)b)->pid;

    return (x > y) - (x < y);
}

/* A server listens there. */
static bool accepts(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(path) >= sizeof un.sun_path) {
        errno = EINVAL;
        return false;
    }
    memcpy(un.sun_path, path, strlen(path) + 1);
    return connect(fd, (const struct sockaddr *)&un, sizeof un) == 0 || errno == EAGAIN;
}

/* Finds live servers, sorted by pid, and removes stale sockets. ret NULL: only looks at sockets
 * whose process is gone, to remove them. */
static unsigned find_servers(struct live_server *ret)
{
    char directory[512];
    char path[600];
    const struct dirent *entry;
    unsigned count = 0;
    uint64_t pid;

    name_directory(directory, sizeof directory);
    const int fd = open_directory(directory);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL && fd >= 0)
        (void)close(fd);
    while (d != NULL && count < SP_OBSERVE_SERVERS_MAX && (entry = readdir(d)) != NULL) {
        const size_t n = strlen(entry->d_name);

        if (n < 6 || strcmp(entry->d_name + n - 5, ".sock") != 0 ||
            !sp_str_to_u64((struct sp_str){entry->d_name, n - 5}, INT32_MAX, &pid) || pid == 0 ||
            (ret == NULL && !is_dead((pid_t)pid)))
            continue;
        (void)snprintf(path, sizeof path, "%.500s/%d.sock", directory, (int)pid);
        if (accepts(path)) {
            if (ret == NULL)
                continue;
            ret[count].pid = (pid_t)pid;
            (void)snprintf(ret[count].url, sizeof ret[count].url, "unix://%.120s", path);
            count++;
        } else if (errno == ECONNREFUSED && is_dead((pid_t)pid)) {
            /* A live process may be about to listen. (If another process got the pid of a dead
             * server, its socket stays.) Fails if another process was faster. */
            (void)unlinkat(dirfd(d), entry->d_name, 0);
        }
    }
    if (d != NULL)
        (void)closedir(d);
    if (count > 1)
        qsort(ret, count, sizeof ret[0], by_pid);
    return count;
}

int sp_observe_own_url(char *ret, size_t size, struct sp_err *e)
{
    char directory[512];

    name_directory(directory, sizeof directory);
    if (mkdir(directory, 0700) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "make %s", directory);
    auto_close int fd = open_directory(directory);
    if (fd < 0 && errno == EPERM)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s is not for us alone: give it mode 0700, or remove it", directory);
    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open %s", directory);
    (void)find_servers(NULL);
    if (snprintf(ret, size, "unix://%s/%d.sock", directory, (int)getpid()) >= (int)size)
        return sp_fail(e, SP_E_INVALID, 0, "the path %s is too long for a socket", directory);
    return 0;
}

/* ---- which server ---- */

/* The URL is copied twice: with its query for the connection, without it for messages. */
static int set_server(struct sp_observe *o, const char *url, const char *token_file,
                      struct sp_err *e)
{
    o->url = strdup(url);
    o->shown_url = sp_redact_url(url);
    if (o->url == NULL || o->shown_url == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the URL of the server");
    return token_file == NULL ? 0 : sp_config_read_token(token_file, &o->token, e);
}

/* The only server of this user that runs here. Its socket needs no token. */
static int set_local(struct sp_observe *o, const char *token_file, struct sp_err *e)
{
    auto_free struct live_server *found = calloc(SP_OBSERVE_SERVERS_MAX, sizeof *found);
    auto_buf struct sp_buf list = {0};

    if (found == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look for servers");
    const unsigned count = find_servers(found);
    if (count == 0)
        return set_server(o, FALLBACK_URL, token_file, e);
    if (count == 1)
        return set_server(o, found[0].url, NULL, e);
    for (unsigned i = 0; i < count && i < MAX_SHOWN; i++)
        (void)sp_buf_printf(&list, " %s", found[i].url); /* out of memory: a shorter list */
    return sp_fail(e, SP_E_INVALID, 0, "%u servers run here; name one with --server:%.*s%s", count,
                   (int)list.len, list.data != NULL ? list.data : "",
                   count > MAX_SHOWN ? " ..." : "");
}

/* --server, else `server` of the configuration, else the local socket of the only server here. */
static int find_server(struct sp_observe *o, const struct sp_observe_options *options,
                       struct sp_err *e)
{
    struct sp_config c __attribute__((cleanup(sp_config_done))) = {0};
    const int r = sp_cli_load_config(&options->config, "Warning", &c, e);

    if (r < 0)
        return r;
    /* The configured token is sent to the configured server only: not to one that --server names,
     * nor to a process that happens to listen at the fallback address. */
    const char *server = options->server != NULL ? options->server : c.server;
    const char *token_file = options->token_file;
    if (token_file == NULL && c.server != NULL && strcmp(server, c.server) == 0)
        token_file = c.token_file;
    if (server == NULL)
        return set_local(o, token_file, e);
    if (strstr(server, "://") != NULL)
        return set_server(o, server, token_file, e);
    const struct sp_config_environment *env = sp_config_find_environment(&c, server);
    if (env == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "no such server: %s is neither a URL nor an [environments.%s] of the "
                       "configuration",
                       server, server);
    if (env->url == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the environment %s is a program that is started for each use: no server "
                       "runs there",
                       server);
    o->connect_timeout_ms = env->connect_timeout_ms;
    return set_server(o, env->url, token_file != NULL ? token_file : env->token_file, e);
}

/* ---- events of the connection ---- */

/* The first time this ends connect_to_server(); later it is a reconnect. */
static void on_ready(void *user, struct sp_json *j, uint32_t at, bool was_resumed)
{
    static const char *const path[] = {"environmentInfo", "capabilities", "observe"};
    struct sp_observe *o = user;

    (void)was_resumed; /* attachments end with the connection also if the session is resumed */
    if (o->is_ready) {
        if (o->ops != NULL && o->ops->back != NULL)
            o->ops->back(o->user);
        return;
    }
    for (size_t i = 0; i < sizeof path / sizeof path[0] && at != SP_JSON_NONE; i++)
        at = sp_json_type(j, at) == SP_JSON_OBJECT ? sp_json_get(j, at, path[i]) : SP_JSON_NONE;
    o->is_ready = true;
    o->can_observe = at != SP_JSON_NONE && sp_json_type(j, at) == SP_JSON_TRUE;
    sp_loop_stop(o->loop);
}

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct sp_observe *o = user;

    if (o->ops != NULL && o->ops->notified != NULL)
        o->ops->notified(o->user, method, j, params);
}

static void on_interrupted(void *user, const char *why)
{
    struct sp_observe *o = user;

    if (o->ops != NULL && o->ops->interrupted != NULL)
        o->ops->interrupted(o->user, why);
}

/* The loop stops in any case, so that sp_observe_ask() does not wait for ever. */
static void on_dead(void *user, const struct sp_err *why)
{
    struct sp_observe *o = user;

    o->death = *why;
    if (o->death.code == SP_E_NONE)
        o->death.code = SP_E_FAILED;
    if (o->ops != NULL && o->ops->dead != NULL)
        o->ops->dead(o->user);
    sp_loop_stop(o->loop);
}

static int connect_to_server(struct sp_observe *o, struct sp_err *e)
{
    static const struct sp_client_ops client_ops = {
        .ready = on_ready, .notified = on_notified, .interrupted = on_interrupted, .dead = on_dead};
    const struct sp_client_options options = {
        .url = o->url,
        .token = o->token,
        .connect_timeout_ms = o->connect_timeout_ms,
        .resume_ms = RESUME_MS,
        .client_name = "sallyport",
    };
    int r = sp_loop_new(&o->loop, e);

    if (r == 0)
        r = sp_client_new(o->loop, &options, &client_ops, o, &o->client, e);
    if (r < 0)
        return r;
    sp_client_connect(o->client);
    r = sp_loop_run(o->loop, e); /* until on_ready or on_dead */
    if (r < 0)
        return r;
    if (o->death.code != SP_E_NONE) {
        *e = o->death;
        return -(int)e->code;
    }
    return o->can_observe
               ? 0
               : sp_fail(e, SP_E_FAILED, 0,
                         "the server at %s does not let its processes be observed", o->shown_url);
}

/* ---- requests ---- */

struct question {
    struct sp_client_request request;
    struct sp_observe *observe;
    void (*fn)(void *user, struct sp_json *j, uint32_t result);
    void *user;
    struct sp_err *error;
    int result;
    bool is_answered;
};

/* The message of a refusal comes from the server, so it is escaped. */
static void on_answer(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct question *q = SP_CONTAINER(r, struct question, request);
    auto_buf struct sp_buf text = {0};

    q->is_answered = true;
    sp_loop_stop(q->observe->loop);
    if (reply->fate == SP_CLIENT_RESULT) {
        if (q->fn != NULL)
            q->fn(q->user, reply->j, reply->value);
        return;
    }
    const bool is_attached =
        reply->fate == SP_CLIENT_REFUSED && reply->code == sp_code_wire(SP_E_ATTACHED);
    (void)sp_plain_add(&text, reply->message); /* out of memory: an error without text */
    q->result = sp_fail(q->error, is_attached ? SP_E_ATTACHED : SP_E_FAILED, 0, SP_STR_FMT,
                        (int)text.len, text.data != NULL ? text.data : "");
}

int sp_observe_ask(struct sp_observe *o, const char *method, struct sp_str params,
                   void (*fn)(void *user, struct sp_json *j, uint32_t result), void *user,
                   struct sp_err *e)
{
    struct question q = {
        .request = {.fn = on_answer, .is_repeatable = true},
        .observe = o,
        .fn = fn,
        .user = user,
        .error = e,
    };
    int r = 0;

    sp_client_ask(o->client, &q.request, method, params);
    while (r == 0 && !q.is_answered && o->death.code == SP_E_NONE)
        r = sp_loop_run(o->loop, e);
    if (q.is_answered)
        return q.result;
    sp_client_forget(&q.request);
    if (r == 0) {
        *e = o->death;
        r = -(int)o->death.code;
    }
    return r;
}

/* ---- reading the list ---- */

static void free_list(struct sp_listed_all *l)
{
    for (size_t i = 0; i < l->count; i++) {
        struct sp_listed *p = &l->items[i];

        free(p->session);
        free(p->id);
        free(p->state);
        free(p->cwd);
        free(p->network);
        free(p->command);
    }
    free(l->items);
    *l = (struct sp_listed_all){0};
}

/* With a NUL at the end. escapes: for a terminal, since the server may send anything. */
static char *copy_text(struct sp_str s, bool escapes)
{
    struct sp_buf b = {0};

    if ((escapes ? sp_plain_add(&b, s) : sp_buf_add_str(&b, s)) && sp_buf_add(&b, "", 1))
        return b.data;
    sp_buf_done(&b);
    return NULL;
}

/* One word of a command line. The query of a URL may be a token. */
static bool add_word(struct sp_buf *b, struct sp_str word)
{
    auto_free char *copy = copy_text(word, false);

    if (copy == NULL)
        return false;
    if (!sp_redact_is_needed(copy))
        return sp_plain_add_word(b, word);
    sp_redact_in_place(copy);
    return sp_plain_add_word(b, sp_str_of(copy));
}

/* Everything is copied: the message is gone after the callback. */
static int read_listed(struct sp_json *j, uint32_t at, struct sp_listed *p, struct sp_err *e)
{
    struct sp_str session = {0};
    struct sp_str id = {0};
    struct sp_str state = {0};
    struct sp_str cwd = {0};
    auto_uri struct sp_uri uri = {0};
    auto_buf struct sp_buf command = {0};
    struct sp_str network = SP_STR("host");
    uint32_t argv = SP_JSON_NONE;
    uint32_t sandbox = SP_JSON_NONE;
    bool ok = true;

    if (sp_json_type(j, at) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, at, "a map", e);
    const uint32_t code = sp_json_get(j, at, "exitCode");
    const uint32_t pid = sp_json_get(j, at, "pid");
    const uint32_t started = sp_json_get(j, at, "startedAtMs");
    p->has_exited = code != SP_JSON_NONE && sp_json_i64(j, code, &p->exit_code);
    if (pid == SP_JSON_NONE || !sp_json_i64(j, pid, &p->pid) || started == SP_JSON_NONE ||
        !sp_json_i64(j, started, &p->started_ms))
        return sp_fail(e, SP_E_INVALID, 0, "a process without a pid or the time of its start");
    if (sp_json_need_u64(j, at, "nextSeq", UINT64_MAX, &p->next_seq, e) < 0 ||
        sp_json_need_bool(j, at, "tty", &p->is_tty, e) < 0 ||
        sp_json_need_str(j, at, "sessionId", &session, e) < 0 ||
        sp_json_need_str(j, at, "processId", &id, e) < 0 ||
        sp_json_need_str(j, at, "state", &state, e) < 0 ||
        sp_json_need_str(j, at, "cwd", &cwd, e) < 0 ||
        sp_json_need_array(j, at, "argv", &argv, e) < 0 ||
        sp_json_opt_object(j, at, "sandbox", &sandbox, e) < 0)
        return -(int)e->code;
    if (sandbox != SP_JSON_NONE) {
        network = SP_STR("?");
        if (sp_json_opt_str(j, sandbox, "network", &network, e) < 0)
            return -(int)e->code;
    }
    for (uint32_t t = sp_json_first(j, argv); ok && t != SP_JSON_NONE;
         t = sp_json_next(j, argv, t)) {
        if (sp_json_type(j, t) != SP_JSON_STRING)
            return sp_json_wrong_type(j, t, "a string", e);
        ok = (command.len == 0 || sp_buf_add(&command, " ", 1)) &&
             add_word(&command, sp_json_str(j, t));
    }
    if (sp_uri_read(cwd, &uri, NULL) == 0 && uri.path != NULL)
        cwd = sp_str_of(uri.path); /* otherwise it is shown as it is */
    p->session = copy_text(session, false);
    p->id = copy_text(id, false);
    p->id_len = id.n;
    p->state = copy_text(state, true);
    p->cwd = copy_text(cwd, true);
    p->network = copy_text(network, true);
    p->command = copy_text(sp_buf_str(&command), false);
    ok = ok && p->session != NULL && p->id != NULL && p->state != NULL && p->cwd != NULL &&
         p->command != NULL && p->network != NULL;
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the list");
}

struct reading {
    struct sp_listed_all *list;
    int result;
    struct sp_err *error;
};

static void on_list(void *user, struct sp_json *j, uint32_t result)
{
    struct reading *reading = user;
    struct sp_listed_all *list = reading->list;
    struct sp_err *e = reading->error;
    uint32_t all = SP_JSON_NONE;
    int r =
        sp_json_type(j, result) == SP_JSON_OBJECT ? 0 : sp_json_wrong_type(j, result, "a map", e);

    if (r == 0)
        r = sp_json_opt_u64(j, result, "omitted", UINT32_MAX, &list->omitted, e);
    if (r == 0)
        r = sp_json_need_array(j, result, "processes", &all, e);
    if (r == 0) {
        list->items = calloc((size_t)j->tokens[all].children + 1, sizeof *list->items);
        if (list->items == NULL)
            r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the list");
    }
    for (uint32_t t = r < 0 ? SP_JSON_NONE : sp_json_first(j, all); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, all, t))
        r = read_listed(j, t, &list->items[list->count++], e);
    reading->result = r;
}

int sp_observe_list(struct sp_observe *o, struct sp_err *e)
{
    struct reading reading = {.list = &o->all, .error = e};
    const int r = sp_observe_ask(o, "process/list", SP_STR("{\"all\":true}"), on_list, &reading, e);

    return r == 0 && reading.result < 0 ? sp_wrap(e, "the list of %s cannot be read", o->shown_url)
                                        : r;
}

/* ---- finding one ---- */

/* How PROC may name a process, the exact ways first: the first way that matches any is used. */
enum way { WHOLE_ID, SESSION_AND_ID, ID_PREFIX, SESSION_AND_ID_PREFIX, WAY_MAX };

/* A session may be abbreviated in both forms that name one. */
static bool matches_way(const struct sp_listed *p, const char *proc, enum way way)
{
    const char *slash = strchr(proc, '/');
    const bool has_session = way == SESSION_AND_ID || way == SESSION_AND_ID_PREFIX;
    struct sp_str id = {p->id, p->id_len};

    if (has_session &&
        (slash == NULL || slash == proc || strncmp(p->session, proc, (size_t)(slash - proc)) != 0))
        return false;
    const struct sp_str wanted = sp_str_of(has_session ? slash + 1 : proc);
    return way == WHOLE_ID || way == SESSION_AND_ID ? sp_str_eq(id, wanted)
                                                    : sp_str_skip_prefix(&id, wanted);
}

/* Lists up to four of the processes that match. */
static int fail_ambiguous(const struct sp_listed_all *l, const char *proc, enum way way,
                          size_t count, struct sp_err *e)
{
    auto_buf struct sp_buf names = {0};
    auto_buf struct sp_buf asked = {0};
    size_t shown = 0;

    (void)sp_plain_add(&asked, sp_str_of(proc)); /* out of memory: a shorter message */
    for (size_t i = 0; i < l->count && shown < 4; i++) {
        const struct sp_listed *p = &l->items[i];

        if (!matches_way(p, proc, way))
            continue;
        shown++;
        (void)(sp_buf_printf(&names, " %.8s/", p->session) &&
               sp_plain_add(&names, (struct sp_str){p->id, p->id_len < 40 ? p->id_len : 40}));
    }
    return sp_fail(e, SP_E_INVALID, 0, "%.*s means %zu processes; say which:%.*s%s", (int)asked.len,
                   sp_buf_str(&asked).p, count, (int)names.len, sp_buf_str(&names).p,
                   count > shown ? " ..." : "");
}

int sp_observe_find(struct sp_observe *o, const char *proc, const struct sp_listed **ret,
                    struct sp_err *e)
{
    const struct sp_listed_all *l = &o->all;
    auto_buf struct sp_buf asked = {0};
    const int r = l->items == NULL ? sp_observe_list(o, e) : 0;

    if (r < 0)
        return r;
    for (int way = WHOLE_ID; way < WAY_MAX && proc[0] != 0; way++) {
        size_t count = 0;

        for (size_t i = 0; i < l->count; i++)
            if (matches_way(&l->items[i], proc, (enum way)way) && count++ == 0)
                *ret = &l->items[i];
        if (count == 1)
            return 0;
        if (count > 1)
            return fail_ambiguous(l, proc, (enum way)way, count, e);
    }
    (void)sp_plain_add_word(&asked, sp_str_of(proc));
    return sp_fail(e, SP_E_NOT_FOUND, 0, "no such process%s: %.*s (see `sallyport ps`)",
                   l->omitted > 0 ? " among those that the server lists" : "", (int)asked.len,
                   sp_buf_str(&asked).p);
}

bool sp_listed_add_params(struct sp_buf *b, const struct sp_listed *p, const char *rest, ...)
{
    auto_free char *more = NULL;
    va_list args;

    va_start(args, rest);
    const int n = vasprintf(&more, rest, args);
    va_end(args);
    if (n < 0)
        more = NULL; /* undefined after a failure */
    return n >= 0 && sp_buf_printf(b, "{\"sessionId\":") &&
           sp_json_add_str(b, sp_str_of(p->session)) && sp_buf_printf(b, ",\"processId\":") &&
           sp_json_add_str(b, (struct sp_str){p->id, p->id_len}) &&
           sp_buf_add_str(b, sp_str_of(more)) && sp_buf_add(b, "}", 1);
}

/* ---- notifications ---- */

int sp_note_read(const struct sp_listed *p, struct sp_str method, struct sp_json *j,
                 uint32_t params, struct sp_note *ret, struct sp_err *e)
{
    static const char *const methods[] = {
        [SP_NOTE_OUTPUT] = "process/output",
        [SP_NOTE_EXITED] = "process/exited",
        [SP_NOTE_CLOSED] = "process/closed",
        [SP_NOTE_INPUT_LOST] = "process/inputLost",
    };
    struct sp_note n = {.kind = SP_NOTE_INPUT_LOST};
    uint32_t gap = SP_JSON_NONE;
    uint64_t bytes = UINT64_MAX;
    struct sp_str session = {0};
    struct sp_str id = {0};
    int r = 0;

    *ret = (struct sp_note){.kind = SP_NOTE_OTHER};
    while (n.kind != SP_NOTE_OTHER && !sp_str_eq(method, sp_str_of(methods[n.kind])))
        n.kind--;
    if (n.kind == SP_NOTE_OTHER || params == SP_JSON_NONE ||
        sp_json_type(j, params) != SP_JSON_OBJECT)
        return 0;
    if (n.kind != SP_NOTE_INPUT_LOST)
        r = sp_json_need_u64(j, params, "seq", UINT64_MAX, &n.seq, e);
    if (r == 0) /* {"records":N,"bytes":N}: output that was dropped before this record */
        r = sp_json_opt_object(j, params, "gap", &gap, e);
    if (r == 0 && gap != SP_JSON_NONE) {
        r = sp_json_need_u64(j, gap, "records", UINT64_MAX, &n.missed_records, e);
        if (r == 0)
            r = sp_json_opt_u64(j, gap, "bytes", UINT64_MAX, &bytes, e);
        n.knows_missed_bytes = bytes != UINT64_MAX;
        n.missed_bytes = n.knows_missed_bytes ? bytes : 0;
    }
    if (r == 0 && n.kind == SP_NOTE_EXITED) {
        const uint32_t code = sp_json_get(j, params, "exitCode");

        if (code == SP_JSON_NONE || !sp_json_i64(j, code, &n.exit_code))
            r = sp_fail(e, SP_E_INVALID, 0, "an exit without a code");
    }
    if (r == 0)
        r = sp_json_opt_str(j, params, "sessionId", &session, e);
    if (r == 0)
        r = sp_json_need_str(j, params, "processId", &id, e);
    if (r < 0 || !sp_str_eq(session, sp_str_of(p->session)) ||
        !sp_str_eq(id, (struct sp_str){p->id, p->id_len}))
        return r;
    if (n.kind == SP_NOTE_OUTPUT) {
        r = sp_json_need_str(j, params, "stream", &n.stream, e);
        if (r == 0)
            r = sp_json_need_str(j, params, "chunk", &n.bytes, e);
        if (r == 0) /* in place, in the message */
            r = sp_base64_decode(n.bytes, (char *)(uintptr_t)n.bytes.p, &n.bytes.n, e);
        n.is_stderr = sp_str_eq(n.stream, SP_STR("stderr"));
        if (!n.is_stderr && !sp_str_eq(n.stream, SP_STR("pty")))
            n.stream = SP_STR("stdout");
    }
    if (r == 0)
        *ret = n;
    return r;
}

void sp_note_say_gap(const struct sp_note *n, char ret[160])
{
    char bytes[48] = "";

    if (n->knows_missed_bytes)
        (void)snprintf(bytes, sizeof bytes, " (%" PRIu64 " bytes)", n->missed_bytes);
    (void)snprintf(ret, 160, "%" PRIu64 " record%s%s of its output %s not there any more",
                   n->missed_records, n->missed_records == 1 ? "" : "s", bytes,
                   n->missed_records == 1 ? "is" : "are");
}

/* ---- the whole ---- */

int sp_observe_run(const struct sp_observe_options *options,
                   int (*run)(struct sp_observe *o, void *user, struct sp_err *e), void *user)
{
    struct sp_observe o = {0};
    struct sp_err e = {0};

    sp_port_fill_gaps();
    (void)signal(SIGCHLD, SIG_DFL);
    int r = find_server(&o, options, &e);
    if (r == 0)
        r = connect_to_server(&o, &e);
    if (r == 0)
        r = run(&o, user, &e);
    if (r < 0) {
        (void)sp_cli_complain(&e);
        r = o.death.code != SP_E_NONE ? SP_EXIT_UNREACHABLE : SP_EXIT_FAILED;
    }
    o.ops = NULL;
    sp_client_free(o.client, 0);
    sp_loop_free(o.loop);
    free_list(&o.all);
    free(o.url);
    free(o.shown_url);
    free(o.token);
    return r;
}
