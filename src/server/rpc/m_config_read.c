/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environmentConfig/read: selected keys of the Codex configuration of this machine, layer by layer.
 * The files are read one after the other by core/files.h, like the client's own; their contents are
 * not trusted.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/auto.h"
#include "base/toml.h"
#include "base/uri.h"
#include "server/rpc/conn.h"
#include "server/rpc/fs.h"

#define MAX_LAYER (4U << 20) /* bytes of a layer's TOML text; its file has SP_TOML_MAX_BYTES */

struct paths {
    struct sp_toml_path *items;
    uint32_t count;
};

/* A file that becomes a layer. */
struct source {
    const char *path;  /* NULL: config.toml in the Codex home */
    const char *label; /* shown before the path; NULL: the path alone */
    bool is_requirements;
    bool is_below_cloud; /* counts for cloudInsertionIndex */
};

/* Lowest layer first. */
static const struct source sources[] = {
    {.path = "/etc/codex/config.toml", .label = "system", .is_below_cloud = true},
    {.label = "user"},
    {.path = "/etc/codex/managed_config.toml", .label = "legacy managed_config.toml"},
    {.path = "/etc/codex/requirements.toml", .is_requirements = true, .is_below_cloud = true},
};

#define SOURCE_COUNT (sizeof sources / sizeof sources[0])

struct stack {
    struct paths paths;
    struct sp_buf layers; /* JSON, without the brackets */
    uint32_t cloud_index;
};

struct config_read {
    struct sp_task task;
    struct sp_request *request;
    struct sp_files_call call;
    struct sp_arena arena; /* the keys of the paths */
    struct stack config, requirements;
    size_t source; /* index of the one being read */
    char home[SP_FILE_MAX_PATH + 1];
    char path[SP_FILE_MAX_PATH + 32]; /* of the source */
};

static void free_config_read(struct sp_task *t)
{
    struct config_read *c = SP_CONTAINER(t, struct config_read, task);

    sp_files_drop(&c->call);
    sp_arena_done(&c->arena);
    free(c->config.paths.items);
    free(c->requirements.paths.items);
    sp_buf_done(&c->config.layers);
    sp_buf_done(&c->requirements.layers);
    free(c);
}

/* ---- asking ---- */

typedef void done_fn(struct sp_files_call *call, const struct sp_file_answer *a,
                     const struct sp_err *e);

/* No sandbox: these are fixed paths and $CODEX_HOME of the server, not paths of the client. */
static void ask(struct config_read *c, enum sp_file_op op, const char *path, done_fn *done)
{
    struct sp_conn *conn = c->request->conn;
    struct sp_err e = {0};
    const struct sp_files_job job = {
        .request = {.op = op,
                    .path = path,
                    .follows = true,
                    .fd = -1,
                    .length = op == SP_FILE_READ ? SP_TOML_MAX_BYTES : 0},
        .session = conn->session->number,
    };

    c->call.done = done;
    if (sp_files_ask(conn->rpc->front->files, &conn->files, &job, &c->call, &e) < 0)
        sp_request_fail(c->request, &e);
}

/* ---- the answer ---- */

static bool add_stack(struct sp_buf *b, const struct stack *s)
{
    return sp_buf_printf(b, "{\"layers\":[") && sp_buf_add(b, s->layers.data, s->layers.len) &&
           sp_buf_printf(b, "],\"cloudInsertionIndex\":%u}", s->cloud_index);
}

/* ---- layers ---- */

/* Adds the selected keys of a file as a layer; none if it has none of them. */
static int add_selected(struct config_read *c, struct sp_str text, struct sp_err *e)
{
    const struct source *s = &sources[c->source];
    struct stack *to = s->is_requirements ? &c->requirements : &c->config;
    auto_toml struct sp_toml t = {0};
    auto_buf struct sp_buf name = {0};
    auto_buf struct sp_buf out = {.max = MAX_LAYER};

    if (text.n >= 3 && memcmp(text.p, "\xEF\xBB\xBF", 3) == 0) /* a byte order mark */
        text = (struct sp_str){text.p + 3, text.n - 3};
    const int r = sp_toml_parse(&t, c->path, text, e);

    if (r < 0) {
        e->code = SP_E_FAILED; /* the file is wrong, not the request */
        return sp_wrap(e, "failed to load executor-local config");
    }
    if (!sp_toml_select(t.root, to->paths.items, to->paths.count))
        return 0;
    if (!sp_toml_write(&out, t.root))
        return sp_fail(e, SP_E_FAILED, 0,
                       "failed to serialize executor-local config: what was asked for of %s has "
                       "more than %u bytes",
                       c->path, MAX_LAYER);
    struct sp_buf *b = &to->layers;
    const size_t before = b->len;
    const char *slash = strrchr(c->path, '/');
    const struct sp_str dir = {c->path, slash == c->path ? 1 : (size_t)(slash - c->path)};
    if (s->is_below_cloud)
        to->cloud_index++;
    if ((before != 0 && !sp_buf_add(b, ",", 1)) ||
        !(s->label == NULL ? sp_buf_printf(&name, "%s", c->path)
                           : sp_buf_printf(&name, "%s (%s)", s->label, c->path)) ||
        !sp_buf_printf(b, "{\"source\":") || !sp_json_add_str(b, sp_buf_str(&name)) ||
        !sp_buf_printf(b, ",\"baseDir\":\"") || !sp_uri_add(b, dir) ||
        !sp_buf_printf(b, "\",\"toml\":") || !sp_json_add_str(b, sp_buf_str(&out)) ||
        !sp_buf_add(b, "}", 1))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the answer");
    return sp_request_charge(c->request, to->layers.len - before, e);
}

static void read_source(struct config_read *c);

/* A missing file is skipped; any other error fails the request. */
static void on_read(struct sp_files_call *call, const struct sp_file_answer *a,
                    const struct sp_err *failed)
{
    struct config_read *c = SP_CONTAINER(call, struct config_read, call);
    char why[128] = "it is not a file";
    struct sp_err e = {0};
    int r = 0;

    if (a == NULL) {
        sp_request_fail(c->request, failed);
        return;
    }
    if (a->err == 0 && a->refusal == SP_FILE_NOT_REFUSED) { /* sp_toml_parse copies first */
        r = add_selected(c, (struct sp_str){a->window, a->data_len}, &e);
    } else if (a->err != ENOENT) {
        if (a->refusal == SP_FILE_TOO_LARGE)
            (void)snprintf(why, sizeof why, "it has more than %d bytes", SP_TOML_MAX_BYTES);
        else if (a->refusal == SP_FILE_NOT_REFUSED)
            sp_fs_error_text(a->err, why, sizeof why);
        r = sp_fail(&e, SP_E_FAILED, 0,
                    "failed to load executor-local config: Failed to read %s file %s: %s",
                    sources[c->source].is_requirements ? "requirements" : "config", c->path, why);
    }
    if (r < 0) {
        sp_request_fail(c->request, &e);
        return;
    }
    c->source++;
    read_source(c);
}

static void read_source(struct config_read *c)
{
    for (; c->source < SOURCE_COUNT; c->source++)
        if ((sources[c->source].is_requirements ? &c->requirements : &c->config)->paths.count != 0)
            break; /* else no key of this stack was asked for */
    if (c->source == SOURCE_COUNT) {
        const struct sp_host *host = &c->request->conn->rpc->host;
        auto_buf struct sp_buf b = {0};
        struct utsname name = {0};

        (void)uname(&name);
        const struct sp_str node = sp_str_of(name.nodename);
        if (sp_buf_printf(&b, "{\"userHomeDir\":") &&
            (host->home[0] == '/' ? sp_fs_add_uri(&b, sp_str_of(host->home))
                                  : sp_buf_printf(&b, "null")) &&
            sp_buf_printf(&b, ",\"codexHomeDir\":") && sp_fs_add_uri(&b, sp_str_of(c->home)) &&
            sp_buf_printf(&b, ",\"hostname\":") &&
            (node.n != 0 ? sp_json_add_str(&b, node) : sp_buf_printf(&b, "null")) &&
            sp_buf_printf(&b, ",\"config\":") && add_stack(&b, &c->config) &&
            sp_buf_printf(&b, ",\"requirements\":") && add_stack(&b, &c->requirements) &&
            sp_buf_add(&b, "}", 1))
            sp_request_reply(c->request, sp_buf_str(&b));
        else
            sp_request_fail_memory(c->request, "make the answer");
        return;
    }
    const char *path = sources[c->source].path;
    if (path != NULL)
        (void)snprintf(c->path, sizeof c->path, "%s", path);
    else
        (void)snprintf(c->path, sizeof c->path, "%s/config.toml", c->home);
    ask(c, SP_FILE_READ, c->path, on_read);
}

/* ---- the Codex home ---- */

/* The value is quoted as JSON; err, if it is not 0, goes behind `after`. */
static void fail_home(struct config_read *c, const char *before, const char *after, int err)
{
    auto_buf struct sp_buf quoted = {0};
    const char *value = getenv("CODEX_HOME");
    char words[128] = "";

    if (err != 0)
        sp_fs_error_text(err, words, sizeof words);
    (void)sp_json_add_str(&quoted, sp_str_of(value == NULL ? "" : value));
    sp_request_refuse(c->request, SP_E_FAILED, 0,
                      "failed to find Codex home: %s " SP_STR_FMT "%s%s", before,
                      SP_STR_ARG((sp_buf_str(&quoted))), after, words);
}

static void on_canonical(struct sp_files_call *call, const struct sp_file_answer *a,
                         const struct sp_err *failed)
{
    struct config_read *c = SP_CONTAINER(call, struct config_read, call);

    if (a == NULL) {
        sp_request_fail(c->request, failed);
    } else if (a->err != 0 || a->data_len == 0 || a->data_len >= sizeof c->home) {
        fail_home(c, "failed to canonicalize CODEX_HOME", ": ",
                  a->err != 0 ? a->err : ENAMETOOLONG);
    } else {
        memcpy(c->home, a->window, a->data_len);
        c->home[a->data_len] = 0;
        if (c->home[0] == '/')
            read_source(c);
        else
            fail_home(c, "failed to canonicalize CODEX_HOME", ": ", EPROTO);
    }
}

static void on_home(struct sp_files_call *call, const struct sp_file_answer *a,
                    const struct sp_err *failed)
{
    struct config_read *c = SP_CONTAINER(call, struct config_read, call);

    if (a == NULL)
        sp_request_fail(c->request, failed);
    else if (a->err == ENOENT)
        fail_home(c, "CODEX_HOME points to", ", but that path does not exist", 0);
    else if (a->err != 0)
        fail_home(c, "failed to read CODEX_HOME", ": ", a->err);
    else if (!a->stat.is_directory)
        fail_home(c, "CODEX_HOME points to", ", but that path is not a directory", 0);
    else
        ask(c, SP_FILE_CANONICAL, c->home, on_canonical);
}

/* $CODEX_HOME, which must exist, or ~/.codex, which may be missing. */
static void find_home(struct config_read *c)
{
    const char *value = getenv("CODEX_HOME");
    const char *home = c->request->conn->rpc->host.home;
    auto_free char *cwd = NULL;
    int n;

    if (value == NULL || value[0] == 0) {
        if (home[0] != '/') {
            sp_request_refuse(c->request, SP_E_FAILED, 0,
                              "failed to find Codex home: Could not find home directory");
            return;
        }
        (void)snprintf(c->home, sizeof c->home, "%s/.codex", home);
        read_source(c);
        return;
    }
    if (value[0] == '/') {
        n = snprintf(c->home, sizeof c->home, "%s", value);
    } else {
        cwd = getcwd(NULL, 0);
        n = snprintf(c->home, sizeof c->home, "%s/%s", cwd == NULL ? "" : cwd, value);
    }
    if (n < 0 || n >= (int)sizeof c->home || c->home[0] != '/')
        fail_home(c, "failed to read CODEX_HOME", ": ", ENAMETOOLONG);
    else
        ask(c, SP_FILE_STAT, c->home, on_home);
}

/* ---- params ---- */

static int read_path(struct config_read *c, struct sp_json *j, uint32_t array,
                     struct sp_toml_path *ret, struct sp_err *e)
{
    const uint32_t count = j->tokens[array].children;
    struct sp_str *keys = sp_arena_new(&c->arena, (count + 1) * sizeof *keys);

    assert(ret != NULL);
    if (keys == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a path");
    *ret = (struct sp_toml_path){keys, count};
    sp_json_each(j, array, t) {
        if (sp_json_type(j, t) != SP_JSON_STRING)
            return sp_json_wrong_type(j, t, "a string", e);
        const struct sp_str key = sp_json_str(j, t);
        const char *copy = sp_arena_copy(&c->arena, key);
        if (copy == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a path");
        *keys++ = (struct sp_str){copy, key.n};
    }
    return 0;
}

static void read_paths(struct config_read *c, const struct sp_params *p, const char *key,
                       struct paths *ret)
{
    struct sp_json *j = p->json;
    uint32_t array = SP_JSON_NONE;

    sp_params_array(p, key, &array);
    if (!sp_params_ok(p))
        return;
    ret->items = calloc(j->tokens[array].children + 1, sizeof *ret->items);
    if (ret->items == NULL)
        (void)sp_fail(p->err, SP_E_SYSTEM, ENOMEM, "read paths");
    sp_params_each(p, array, t) {
        if (sp_json_type(j, t) != SP_JSON_ARRAY)
            (void)sp_json_wrong_type(j, t, "a sequence", p->err);
        else
            (void)read_path(c, j, t, &ret->items[ret->count++], p->err);
    }
}

/* An empty path would select a whole file. */
static int check_read(const struct config_read *c, const struct sp_uri *cwd, struct sp_err *e)
{
    const struct paths *config = &c->config.paths;
    const struct paths *requirements = &c->requirements.paths;

    if (config->count == 0 && requirements->count == 0)
        return sp_fail(e, SP_E_INVALID, 0, "at least one config or requirements path is required");
    for (uint32_t i = 0; i < config->count + requirements->count; i++)
        if ((i < config->count ? config->items[i] : requirements->items[i - config->count]).count ==
            0)
            return sp_fail(e, SP_E_INVALID, 0, "TOML paths must contain at least one key segment");
    if (cwd->is_foreign || cwd->path == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "'%s' is invalid on 'linux'", cwd->text);
    return 0;
}

static int environment_config_read(struct sp_rpc_call *call, struct sp_err *e)
{
    const struct sp_params p = sp_rpc_call_params(call, e);
    auto_uri struct sp_uri cwd = {0};
    struct config_read *c = calloc(1, sizeof *c);

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the configuration");
    c->task.free = free_config_read;
    sp_fs_read_path(&p, "cwd", &cwd);
    read_paths(c, &p, "configPaths", &c->config.paths);
    read_paths(c, &p, "requirementsPaths", &c->requirements.paths);
    if (sp_params_ok(&p) && sp_rpc_call_check(call, e) == 0 && check_read(c, &cwd, e) == 0)
        c->request = sp_rpc_call_park(call, 0, e);
    if (c->request == NULL) {
        free_config_read(&c->task);
        return sp_params_result(&p);
    }
    c->request->task = &c->task;
    /* The message is an upper bound of the memory that the paths take. */
    if (sp_request_charge(c->request, sizeof *c + sp_json_raw(call->json, call->params).n, e) < 0) {
        sp_request_drop(c->request);
        return sp_params_result(&p);
    }
    find_home(c);
    return 0;
}

static const struct sp_method methods[] = {
    {"environmentConfig/read", "environment config", .fn = environment_config_read},
    {0},
};

const struct sp_family sp_config_family = {.methods = methods};
