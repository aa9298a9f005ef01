/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/policy_args.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "sandbox/policy_json.h"

/* ---- from a file ---- */

static int read_file(const char *path, struct sp_buf *ret, struct sp_err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : 1;

    while (n > 0) {
        char *room = sp_buf_room(ret, 65536);

        if (room == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", path);
        n = read(fd, room, 65536);
        if (n > 0)
            ret->len += (size_t)n;
        if (ret->len > SP_PROFILE_FILE_MAX)
            return sp_fail(e, SP_E_INVALID, 0, "%s: a profile has at most 1 MiB", path);
        if (n < 0 && errno == EINTR)
            n = 1;
    }
    return n < 0 ? sp_fail(e, SP_E_SYSTEM, errno, "read %s", path) : 0;
}

static int read_profile(const char *path, struct sp_profile *ret, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};
    struct sp_json json __attribute__((cleanup(sp_json_done))) = {0};
    int r = read_file(path, &text, e);

    if (r < 0)
        return r;
    r = sp_json_parse(&json, text.data, text.len, e);
    if (r == 0)
        r = sp_profile_read(&json, 0, ret, e);
    return r < 0 ? sp_wrap(e, "%s", path) : 0;
}

/* ---- from words ---- */

static int from_mode(const char *name, struct sp_profile *ret, struct sp_err *e)
{
    struct sp_legacy l = {.mode = SP_MODE_READ_ONLY};

    if (name != NULL && !sp_mode_read(sp_str_of(name), &l.mode))
        return sp_fail(e, SP_E_INVALID, 0,
                       "--mode: `%s` is not read-only, workspace-write, danger-full-access or "
                       "external-sandbox",
                       name);
    return sp_profile_from_legacy(&l, ret, e);
}

static int add_writable(struct sp_profile *p, const char *dir, struct sp_err *e)
{
    auto_free char *path = realpath(dir, NULL);

    if (path == NULL)
        return sp_fail(e, SP_E_INVALID, errno, "--writable: %s", dir);
    if (p->kind != SP_PROFILE_MANAGED || p->is_unrestricted)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--writable: %s: everything may be written under this policy already", dir);
    return sp_profile_add(p, SP_PLACE_PATH, SP_ACCESS_WRITE, false, sp_str_of(path),
                          (struct sp_str){0}, e);
}

static int make_profile(const struct sp_policy_args *a, struct sp_profile *ret, struct sp_err *e)
{
    if (a->mode != NULL && a->profile_file != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "--mode and --profile: give one of them");
    int r = a->profile_file != NULL ? read_profile(a->profile_file, ret, e)
                                    : from_mode(a->mode, ret, e);
    for (size_t i = 0; r == 0 && i < a->writable_count; i++)
        r = add_writable(ret, a->writable[i], e);
    if (r == 0 && a->has_network)
        ret->has_network = true;
    return r;
}

static bool copy(const char *text, char **ret)
{
    *ret = text == NULL || text[0] == 0 ? NULL : strdup(text);
    return *ret != NULL || text == NULL || text[0] == 0;
}

int sp_policy_from_args(const struct sp_policy_args *a, struct sp_policy *ret, struct sp_err *e)
{
    struct sp_policy p = {.cwd_is_root = true};
    int r = make_profile(a, &p.profile, e);

    if (r == 0 && (!copy(a->cwd, &p.cwd) || !copy(getenv("TMPDIR"), &p.tmpdir) ||
                   !copy(getenv("HOME"), &p.home) || !sp_policy_add_root(&p, sp_str_of(a->cwd))))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a policy");
    if (r < 0) {
        sp_policy_done(&p);
        return r;
    }
    *ret = p;
    return 0;
}
