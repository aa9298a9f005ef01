/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_launch: the params of process/start and of the file methods. Policies are sent unresolved,
 * since only the server can resolve them: the policy of the variables with its overlay, the sandbox
 * policy, paths as URIs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/uri.h"
#include "base/utf8.h"
#include "engine/remote/remote_priv.h"
#include "sandbox/policy_json.h"
#include "sandbox/profile.h"

#define ASKING_ID_MAX 256 /* a longer process id cannot be in questions */

/* After a failure all further steps do nothing. */
struct writer {
    struct sp_buf *out;
    struct sp_err *e;
    int r;
};

static void put(struct writer *w, const char *text)
{
    if (w->r == 0 && !sp_buf_add_str(w->out, sp_str_of(text)))
        w->r = sp_fail(w->e, SP_E_SYSTEM, ENOMEM, "write a request");
}

/* JSON cannot carry invalid UTF-8, and replacing it would change the command. */
static void put_text(struct writer *w, struct sp_str s, const char *what)
{
    if (w->r != 0)
        return;
    if (!sp_utf8_is_valid(s))
        w->r = sp_fail(w->e, SP_E_INVALID, 0,
                       "%s is not UTF-8, and cannot be told to an exec-server", what);
    else if (!sp_json_add_str(w->out, s))
        w->r = sp_fail(w->e, SP_E_SYSTEM, ENOMEM, "write a request");
}

/* ---- paths, perhaps of a Windows host ---- */

static bool is_slash(char c)
{
    return c == '/' || c == '\\';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Length of the host in \\\\HOST\\SHARE; 0: not such a path. */
static size_t host_length(struct sp_str path)
{
    size_t n = 0;

    if (path.n < 3 || path.p[0] != '\\' || path.p[1] != '\\')
        return 0;
    while (2 + n < path.n && (is_letter(path.p[2 + n]) || strchr("0123456789.-", path.p[2 + n])) &&
           path.p[2 + n] != 0)
        n++;
    return 2 + n == path.n || is_slash(path.p[2 + n]) ? n : 0;
}

static bool has_drive(struct sp_str path)
{
    return path.n >= 2 && is_letter(path.p[0]) && path.p[1] == ':' &&
           (path.n == 2 || is_slash(path.p[2]));
}

/* The rest of the path as a URI, behind root and name. false: out of memory. */
static bool add_foreign(struct sp_buf *out, const char *root, struct sp_str name,
                        struct sp_str rest)
{
    auto_buf struct sp_buf path = {0};
    auto_buf struct sp_buf uri = {0};

    if (rest.n == 0 && !sp_buf_add(&path, "/", 1))
        return false;
    for (size_t i = 0; i < rest.n; i++)
        if (!sp_buf_add(&path, is_slash(rest.p[i]) ? "/" : rest.p + i, 1))
            return false;
    return sp_uri_add(&uri, sp_buf_str(&path)) && sp_buf_add_str(out, sp_str_of(root)) &&
           sp_buf_add_str(out, name) &&
           sp_buf_add(out, uri.data + strlen("file://"), uri.len - strlen("file://"));
}

static void put_uri(struct writer *w, struct sp_str path)
{
    const size_t host = host_length(path);
    bool ok = true;

    put(w, "\"");
    if (w->r != 0)
        return;
    if (path.n != 0 && path.p[0] == '/')
        ok = sp_uri_add(w->out, path);
    else if (has_drive(path))
        ok = add_foreign(w->out, "file:///", (struct sp_str){path.p, 2},
                         (struct sp_str){path.p + 2, path.n - 2});
    else if (host != 0)
        ok = add_foreign(w->out, "file://", (struct sp_str){path.p + 2, host},
                         (struct sp_str){path.p + 2 + host, path.n - 2 - host});
    else
        w->r = sp_fail(w->e, SP_E_INVALID, 0, "`" SP_STR_FMT "` is not an absolute path",
                       SP_STR_ARG(path));
    if (!ok)
        w->r = sp_fail(w->e, SP_E_SYSTEM, ENOMEM, "write a request");
    put(w, "\"");
}

static void put_texts(struct writer *w, const struct sp_str *list, uint32_t count, const char *what)
{
    put(w, "[");
    for (uint32_t i = 0; i < count; i++) {
        put(w, i == 0 ? "" : ",");
        put_text(w, list[i], what);
    }
    put(w, "]");
}

/* ---- variables ---- */

static void put_set(struct writer *w, struct sp_env_vars set)
{
    put(w, "{");
    for (uint32_t i = 0; i < set.count; i++) {
        bool is_last = true; /* of its name: JSON keys are unique */

        for (uint32_t k = i + 1; k < set.count && is_last; k++)
            is_last = !sp_str_eq(set.items[k].name, set.items[i].name);
        if (!is_last)
            continue;
        put(w, w->out->data[w->out->len - 1] == '{' ? "" : ",");
        put_text(w, set.items[i].name, "a variable's name");
        put(w, ":");
        put_text(w, set.items[i].value, "a variable's value");
    }
    put(w, "}");
}

static void put_policy(struct writer *w, const struct sp_env_request *ask)
{
    const struct sp_env_policy *p = &ask->policy;
    const char *inherit = p->inherit == SP_ENV_ALL    ? "all"
                          : p->inherit == SP_ENV_CORE ? "core"
                                                      : "none";
    uint32_t count = p->exclude_count;
    auto_free struct sp_str *excludes = calloc(count + (size_t)SP_ENV_SECRETS, sizeof *excludes);

    if (excludes == NULL) {
        w->r = w->r != 0 ? w->r : sp_fail(w->e, SP_E_SYSTEM, ENOMEM, "write a request");
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        excludes[i] = p->exclude[i];
    /* A confined command gets no credentials. A pattern of them that would also match a name to be
     * kept is not sent. */
    for (const struct sp_str *i = sp_env_secrets; ask->is_confined && i->p != NULL; i++) {
        bool is_sent = true;

        for (uint32_t k = 0; is_sent && k < p->keep_count; k++)
            is_sent = !sp_env_matches(*i, p->keep[k]);
        for (uint32_t k = 0; is_sent && k < p->include_only_count; k++)
            is_sent = !sp_env_matches(*i, p->include_only[k]);
        if (is_sent)
            excludes[count++] = *i;
    }
    put(w, ",\"envPolicy\":{\"inherit\":\"");
    put(w, inherit);
    put(w, "\",\"ignoreDefaultExcludes\":");
    put(w, p->ignores_default_excludes ? "true" : "false");
    put(w, ",\"exclude\":");
    put_texts(w, excludes, count, "a pattern of variables");
    put(w, ",\"set\":");
    put_set(w, ask->set);
    put(w, ",\"includeOnly\":");
    put_texts(w, p->include_only, p->include_only_count, "a pattern of variables");
    put(w, "}");
}

static void put_env(struct writer *w, const struct sp_env_request *ask)
{
    auto_buf struct sp_buf of_policy = {0};
    auto_buf struct sp_buf made = {0};
    auto_buf struct sp_buf overlay = {0};
    uint32_t count = 0;

    if (ask == NULL) {
        put(w, ",\"envPolicy\":{\"inherit\":\"all\",\"ignoreDefaultExcludes\":true,\"exclude\":[],"
               "\"set\":{},\"includeOnly\":[]},\"env\":{}");
        return;
    }
    struct sp_env_request sent = *ask;
    if (ask->is_sent_whole) { /* the server adds nothing of its own */
        sent.policy =
            (struct sp_env_policy){.inherit = SP_ENV_NONE, .ignores_default_excludes = true};
        sent.set = (struct sp_env_vars){0};
    }
    if (w->r == 0)
        w->r = sp_env_of_policy(&sent, &of_policy, &count, w->e);
    if (w->r == 0)
        w->r = sp_env_make(ask, &made, &count, w->e);
    if (w->r == 0 && !sp_env_overlay((struct sp_str){of_policy.data, of_policy.len},
                                     (struct sp_str){made.data, made.len}, false, &overlay, &count))
        w->r = sp_fail(w->e, SP_E_SYSTEM, ENOMEM, "write a request");
    put_policy(w, &sent);
    put(w, ",\"env\":{");
    const char *p = overlay.data; /* NAME=VALUE strings, NUL-terminated */
    for (uint32_t i = 0; p != NULL && i < count && w->r == 0; i++) {
        const size_t name = strcspn(p, "=");

        put(w, i == 0 ? "" : ",");
        put_text(w, (struct sp_str){p, name}, "a variable's name");
        put(w, ":");
        put_text(w, sp_str_of(p + name + 1), "a variable's value");
        p += strlen(p) + 1;
    }
    put(w, "}");
}

static bool is_uuid(struct sp_str s)
{
    if (s.n != 36)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
        const char c = s.p[i];

        if (is_dash ? c != '-'
                    : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')))
            return false;
    }
    return true;
}

/* Servers take the call id only from metadata, together with the thread id, which must be a UUID.
 */
static void put_metadata(struct writer *w, const struct sp_env_request *ask)
{
    if (ask == NULL || ask->call_id.p == NULL ||
        (ask->thread_id.p != NULL && !is_uuid(ask->thread_id)))
        return;
    put(w, ",\"metadata\":{");
    if (ask->thread_id.p != NULL) {
        put(w, "\"threadId\":");
        put_text(w, ask->thread_id, "the thread's id");
        put(w, ",");
    }
    put(w, "\"toolCallId\":");
    put_text(w, ask->call_id, "the call's id");
    put(w, "}");
}

/* ---- the sandbox ---- */

static void put_sandbox(struct writer *w, const struct sp_policy *p)
{
    if (p == NULL) {
        put(w, "null");
        return;
    }
    put(w, "{\"permissions\":");
    /* `restricted`, for a managed network, too: its settings go beside the sandbox, and a server
     * that does not know them gives no network. */
    struct sp_profile profile = p->profile;
    profile.managed = NULL;
    if (w->r == 0)
        w->r = sp_profile_write(w->out, &profile, SP_PATH_URI, w->e);
    if (p->cwd != NULL) {
        put(w, ",\"cwd\":");
        put_uri(w, sp_str_of(p->cwd));
    }
    put(w, ",\"workspaceRoots\":[");
    for (size_t i = 0; i < p->root_count; i++) {
        put(w, i == 0 ? "" : ",");
        put_uri(w, sp_str_of(p->roots[i]));
    }
    if (p->root_count == 0 && p->cwd_is_root && p->cwd != NULL)
        put_uri(w, sp_str_of(p->cwd));
    put(w, "]");
    if (p->home != NULL) {
        put(w, ",\"userHomeDir\":");
        put_uri(w, sp_str_of(p->home));
    }
    put(w, ",\"windowsSandboxLevel\":\"disabled\",\"useLegacyLandlock\":false}");
}

/* Ports of patterns are not told on the wire: a deny then counts for all of them, an allow must
 * not.
 */
static void put_domains(struct writer *w, const struct sp_network_policy *n)
{
    auto_buf struct sp_buf text = {0};
    bool is_first = true;

    for (size_t i = 0; i < n->count && w->r == 0; i++) {
        struct sp_domain d = n->domains[i];

        if (d.word == SP_DOMAIN_NONE)
            continue;
        text.len = 0;
        if (d.word == SP_DOMAIN_ALLOW && d.pattern.port != 0) {
            w->r = sp_fail(w->e, SP_E_INVALID, 0,
                           "servers cannot be told of one port of a host: allow %s without its "
                           "port, or run the command here (--on local)",
                           d.pattern.text);
            return;
        }
        d.pattern.port = 0;
        put(w, is_first ? "" : ",");
        is_first = false;
        if (!sp_domain_add_text(&d, &text))
            w->r = sp_fail(w->e, SP_E_SYSTEM, ENOMEM, "write a request");
        put_text(w, sp_buf_str(&text), "a domain");
        put(w, d.word == SP_DOMAIN_ALLOW ? ":\"allow\"" : ":\"deny\"");
    }
}

/* asks: the server asks about hosts on no list, and waits long enough for any approver, whose own
 * time limit is the engine's. A lost connection denies at once. */
static void put_network(struct writer *w, const struct sp_network_policy *n, bool asks)
{
    put(w, ",\"enforceManagedNetwork\":true,\"networkProxy\":{\"proxy\":{\"enabled\":true,"
           "\"enableSocks5\":");
    put(w, n->has_socks ? "true" : "false");
    put(w, ",\"enableSocks5Udp\":false,\"allowUpstreamProxy\":");
    put(w, n->uses_upstream ? "true" : "false");
    put(w, ",\"dangerouslyAllowAllUnixSockets\":false,\"mode\":\"");
    put(w, n->is_limited ? "limited" : "full");
    put(w, "\",\"domains\":{");
    put_domains(w, n);
    put(w, "},\"unixSockets\":null,\"allowLocalBinding\":");
    put(w, n->allows_local ? "true" : "false");
    put(w, asks ? "},\"policyDecisionTimeoutMs\":86400000}" : "}}");
}

int sp_remote_write_launch(struct sp_buf *out, const char *id, const struct sp_start *l,
                           const char *cwd, struct sp_err *e)
{
    struct writer w = {.out = out, .e = e};
    char size[48];

    put(&w, "{\"processId\":");
    put_text(&w, sp_str_of(id), "the process's name");
    if (l->name.n != 0) {
        put(&w, ",\"name\":");
        put_text(&w, l->name, "the name");
    }
    put(&w, ",\"argv\":");
    put_texts(&w, l->argv, l->argc, "an argument");
    put(&w, ",\"cwd\":");
    put_uri(&w, l->cwd.n != 0 ? l->cwd : sp_str_of(cwd));
    struct sp_env_request environ = {0};
    if (l->environ != NULL)
        environ = *l->environ;
    environ.network = NULL; /* the server sets the variables of its proxy */
    put_env(&w, l->environ == NULL ? NULL : &environ);
    put_metadata(&w, l->environ);
    put(&w, l->is_tty ? ",\"tty\":true" : ",\"tty\":false");
    put(&w, l->wants_stdin && !l->is_tty ? ",\"pipeStdin\":true" : ",\"pipeStdin\":false");
    put(&w, ",\"arg0\":");
    if (l->arg0.p == NULL)
        put(&w, "null");
    else
        put_text(&w, l->arg0, "arg0");
    if (l->is_tty && (l->rows != 0 || l->cols != 0)) { /* ignored by servers without sizes */
        (void)snprintf(size, sizeof size, ",\"rows\":%u,\"cols\":%u", l->rows == 0 ? 24U : l->rows,
                       l->cols == 0 ? 80U : l->cols);
        put(&w, size);
    }
    put(&w, ",\"sandbox\":");
    put_sandbox(&w, l->policy);
    if (l->policy != NULL && sp_profile_managed(&l->policy->profile) != NULL)
        put_network(&w, sp_profile_managed(&l->policy->profile),
                    l->network != NULL && strlen(id) <= ASKING_ID_MAX);
    if (l->limits.is_given) {
        put(&w, ",\"limits\":");
        if (w.r == 0 && !sp_limits_add_json(out, &l->limits))
            w.r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "write a request");
    }
    put(&w, "}");
    return w.r;
}

int sp_remote_write_file(struct sp_buf *out, const struct sp_backend_file *f, struct sp_err *e)
{
    struct writer w = {.out = out, .e = e};
    const bool is_copy = f->op == SP_BACKEND_COPY;

    put(&w, is_copy ? "{\"sourcePath\":" : "{\"path\":");
    put_uri(&w, sp_str_of(f->path));
    if (is_copy) {
        put(&w, ",\"destinationPath\":");
        put_uri(&w, sp_str_of(f->target));
        put(&w, ",\"recursive\":false");
    } else if (f->op == SP_BACKEND_MAKE_DIR) {
        put(&w, ",\"recursive\":true");
    } else if (f->op == SP_BACKEND_REMOVE) {
        put(&w, ",\"recursive\":false,\"force\":false");
    } else if (f->op == SP_BACKEND_WRITE) {
        put(&w, ",\"dataBase64\":\"");
        char *room = w.r == 0 ? sp_buf_room(out, SP_BASE64_LEN(f->data.n) + 1) : NULL;
        if (room != NULL)
            out->len += (size_t)(sp_base64_encode(room, f->data.p, f->data.n) - room);
        else if (w.r == 0)
            w.r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "write a request");
        put(&w, "\"");
    }
    if (f->refuses_links && !is_copy)
        put(&w, ",\"followSymlinks\":false");
    put(&w, ",\"sandbox\":");
    put_sandbox(&w, f->policy);
    put(&w, "}");
    return w.r;
}
