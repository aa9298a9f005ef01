/* SPDX-License-Identifier: Apache-2.0 */
#include "config/own_places.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "config/config_approvals.h"
#include "sandbox/resolve.h"

#define SYSTEM_DIR "/etc/sallyport"

static const char *absolute_or_none(const char *path)
{
    return path != NULL && path[0] == '/' ? path : NULL;
}

/* dir/name, or dir itself if name is NULL. A relative path is below the working directory. false:
 * no memory. */
static bool add_path(struct sp_path_list *l, const char *dir, const char *name)
{
    auto_free char *here = dir == NULL || dir[0] == '/' ? NULL : getcwd(NULL, 0);
    auto_free char *path = NULL;

    if (dir == NULL || dir[0] == 0)
        return true;
    if (asprintf(&path, "%s%s%s%s%s", here == NULL ? "" : here, here == NULL ? "" : "/", dir,
                 name == NULL ? "" : "/", name == NULL ? "" : name) < 0) {
        path = NULL;
        return false;
    }
    auto_free char *normal = sp_path_normalise(path, NULL);
    return normal != NULL ? sp_path_list_add(l, normal) : errno == EINVAL;
}

/* A directory where this or another sallyport of the user looks for rules and configuration. */
static bool add_home(struct sp_hidden_paths *c, const char *home, const char *below)
{
    auto_free char *dir = NULL;

    if (home == NULL)
        return true;
    if (asprintf(&dir, "%s%s", home, below) < 0) {
        dir = NULL;
        return false;
    }
    return add_path(&c->own_dirs, dir, NULL) && add_path(&c->read_only, dir, "rules") &&
           add_path(&c->read_only, dir, "sallyport.conf");
}

/* program:PATH */
static bool add_program(struct sp_hidden_paths *c, const char *word)
{
    return word == NULL || strncmp(word, "program:", 8) != 0 ||
           add_path(&c->read_only, word + 8, NULL);
}

/* Each word is a list of approvers, separated by commas. */
static bool add_approvers(struct sp_hidden_paths *c, const char *const *words)
{
    bool ok = true;

    for (; ok && words != NULL && *words != NULL; words++)
        for (const char *at = *words; ok && *at != 0; at += *at == ',') {
            const size_t n = sp_approvers_first(at);
            auto_free char *one = strndup(at, n);

            ok = one != NULL && add_program(c, one);
            at += n;
        }
    return ok;
}

/* Hides the token's file from reads, and keeps its path from being replaced. */
static bool add_token(struct sp_hidden_paths *c, const char *path)
{
    return sp_hidden_paths_add_real(c, path) && add_path(&c->read_only, path, NULL);
}

/* Of trusted projects, all are protected, not only the current one: a command must not write the
 * rules for commands in another project. */
static bool add_configured(struct sp_hidden_paths *c, const struct sp_config *config)
{
    bool ok = add_home(c, config->home, "") && add_path(&c->read_only, config->path, NULL) &&
              add_approvers(c, (const char *const *)config->approvers) &&
              add_program(c, config->reviewer) && add_token(c, config->token_file);

    for (size_t i = 0; ok && i < config->environment_count; i++) {
        const struct sp_config_environment *env = &config->environments[i];
        const char *program = env->program == NULL ? NULL : absolute_or_none(env->program[0]);

        ok = add_token(c, env->token_file) && add_path(&c->read_only, program, NULL);
    }
    for (char *const *p = config->trusted_projects; ok && p != NULL && *p != NULL; p++)
        ok = add_path(&c->names, *p, ".sallyport") && add_path(&c->names, *p, ".codex");
    for (char *const *h = config->permission_hooks; ok && h != NULL && *h != NULL; h++)
        ok = add_path(&c->read_only, *h, NULL);
    return ok;
}

int sp_own_places_find(const struct sp_own_places_options *ask, struct sp_hidden_paths *ret,
                       struct sp_err *e)
{
    const struct sp_config *config = ask->config;
    auto_free char *log = NULL;
    /* The binary may be inside of a workspace (node_modules). */
    auto_free char *program =
        realpath(ask->program != NULL ? ask->program : "/proc/self/exe", NULL);
    bool ok = (program != NULL || errno != ENOMEM) && add_home(ret, SYSTEM_DIR, "") &&
              add_path(&ret->read_only, SYSTEM_DIR, "managed.rules") &&
              add_home(ret, absolute_or_none(getenv("SALLYPORT_HOME")), "") &&
              add_home(ret, absolute_or_none(getenv("HOME")), "/.sallyport") &&
              add_path(&ret->read_only, absolute_or_none(getenv("SALLYPORT_CONFIG")), NULL) &&
              add_approvers(ret, ask->approvers) && add_token(ret, ask->token_file) &&
              add_path(&ret->read_only, program, NULL) &&
              (config == NULL || add_configured(ret, config));

    for (size_t i = 0; ok && ask->rules != NULL && ask->rules[i] != NULL; i++)
        ok = add_path(&ret->read_only, ask->rules[i], NULL);
    if (!ok)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember what to protect");
    const int r = config == NULL ? 0 : sp_config_audit_log(config, &log, e);
    if (r < 0 || log == NULL)
        return r;
    if (config->audit_log != NULL) { /* the default is in the home, which commands cannot write */
        auto_free char *folder = strdup(log);
        char *slash = folder == NULL ? NULL : strrchr(folder, '/');

        /* Errors are left to the first entry that cannot be written. */
        if (slash != NULL && slash != folder) {
            *slash = 0;
            (void)mkdir(folder, 0700);
            auto_close int fd =
                open(log, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
            (void)fd;
        }
    }
    return sp_hidden_paths_add(ret, log) && add_path(&ret->read_only, log, NULL)
               ? 0
               : sp_fail(e, SP_E_SYSTEM, ENOMEM, "protect the audit log");
}
