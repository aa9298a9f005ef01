/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local: our own program in a sandbox, wherever it is installed.
 *
 * In a cell that sees the host's root, /proc/self/exe is what the cell itself runs: nothing that a
 * command could have put there. A cell with a root of its own has only the places that its policy
 * opens, and no other way leads to them: there the program is opened, too, and run by its path.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "engine/local_priv.h"
#include "sandbox/resolve.h"

static int open_program(const struct sp_local *l, struct sp_policy *policy,
                        const struct sp_resolved *rules, char **ret, struct sp_err *e)
{
    auto_free char *program =
        realpath(l->options.program != NULL ? l->options.program : "/proc/self/exe", NULL);

    if (program == NULL)
        return sp_fail(e, SP_E_SYSTEM, errno, "find the sallyport program");
    if (sp_resolved_can_write(rules, program, NULL, NULL))
        return sp_fail(e, SP_E_INVALID, 0,
                       "the sallyport program, %s, is where commands may write, so it is not run "
                       "for them; install it elsewhere, or let the sandbox read all files",
                       program);
    const int r = sp_profile_add(&policy->profile, SP_PLACE_PATH, SP_ACCESS_READ, true,
                                 sp_str_of(program), (struct sp_str){0}, e);
    if (r == 0)
        *ret = TAKE_PTR(program);
    return r;
}

int sp_local_open_program(const struct sp_local *l, struct sp_policy *policy, char **ret,
                          struct sp_err *e)
{
    struct sp_resolved rules = {0};
    int r = sp_resolve(policy, &rules, e);

    if (r == 0 && sp_resolved_access(&rules, "/", NULL) == SP_ACCESS_DENY)
        r = open_program(l, policy, &rules, ret, e);
    sp_resolved_done(&rules);
    return r;
}
