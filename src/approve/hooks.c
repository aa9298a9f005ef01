/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/hooks.h"

#include <string.h>

#include "approve/approver_program.h"

static int open_all(struct sp_hooks *h, struct sp_loop *loop, char *const *paths, struct sp_err *e)
{
    for (; paths != NULL && *paths != NULL; paths++) {
        if (h->count == SP_HOOKS_MAX)
            return sp_fail(e, SP_E_LIMIT, 0, "permission_hook: more than %d", SP_HOOKS_MAX);
        if (sp_approver_program_new(loop, *paths, &h->hooks[h->count], e) < 0)
            return sp_wrap(e, "permission_hook");
        h->count++;
    }
    return 0;
}

static int open_reviewer(struct sp_hooks *h, struct sp_loop *loop, const char *name,
                         struct sp_err *e)
{
    if (name == NULL)
        return 0;
    if (strncmp(name, "program:", 8) != 0)
        return sp_fail(e, SP_E_INVALID, 0, "reviewer: `%s` is not program:PATH", name);
    return sp_approver_program_new(loop, name + 8, &h->reviewer, e) < 0 ? sp_wrap(e, "reviewer")
                                                                        : 0;
}

int sp_hooks_open(struct sp_hooks *h, struct sp_loop *loop, char *const *paths,
                  const char *reviewer, struct sp_approvals_options *o, struct sp_err *e)
{
    int r = open_all(h, loop, paths, e);

    if (r == 0)
        r = open_reviewer(h, loop, reviewer, e);
    o->hooks = h->hooks;
    o->hook_count = h->count;
    o->reviewer = h->reviewer;
    return r;
}

void sp_hooks_done(struct sp_hooks *h)
{
    while (h->count > 0)
        sp_approver_free(h->hooks[--h->count]);
    sp_approver_free(h->reviewer);
    *h = (struct sp_hooks){0};
}
