/* SPDX-License-Identifier: Apache-2.0 */
/*
 * print: plans and missing powers in words.
 */
#include <errno.h>

#include "sandbox/compile.h"

const char *sp_tier_name(uint32_t tier)
{
    static const char *const names[] = {
        [SP_TIER_NONE] = "none", [SP_TIER_THIN] = "thin", [SP_TIER_CELL] = "cell"};

    return tier <= SP_TIER_CELL ? names[tier] : "unknown";
}

const char *sp_powers_remedy(uint32_t step, int err)
{
    switch (step) {
    case SP_BUILD_NAMESPACES:
        if (err == ENOSPC)
            return "raise user.max_user_namespaces (sysctl)";
        if (err == ENOSYS || err == EINVAL)
            return "use a kernel with user, pid and network namespaces";
        return "set kernel.unprivileged_userns_clone=1, or let the container's seccomp profile "
               "pass "
               "unshare";
    case SP_BUILD_ID_MAP:
    case SP_BUILD_MOUNT_PRIVATE:
    case SP_BUILD_ROOT_READONLY:
        return "let sallyport use user namespaces in AppArmor (a profile with `userns,`, or "
               "kernel.apparmor_restrict_unprivileged_userns=0)";
    case SP_BUILD_PROC:
        return "unmask /proc in the container (--security-opt systempaths=unconfined)";
    case SP_BUILD_SECCOMP:
        return "use a kernel with seccomp filters, and a container that passes seccomp(2)";
    case SP_BUILD_LANDLOCK:
        return "put landlock into the kernel's lsm= list";
    default:
        return "see `sallyport doctor`";
    }
}

/* What a name says to a terminal is not its business. */
static bool print_path(struct sp_buf *out, const char *before, const char *path, const char *after)
{
    bool ok = sp_buf_printf(out, "%s", before);

    for (; ok && *path != 0; path++)
        ok = (unsigned char)*path < 0x20 || *path == 0x7f
                 ? sp_buf_printf(out, "\\x%02x", (unsigned char)*path)
                 : sp_buf_add(out, path, 1);
    return ok && sp_buf_printf(out, "%s", after);
}

static bool print_op(const struct sp_plan *p, const struct sp_place_op *o, struct sp_buf *out)
{
    const char *path = sp_plan_string(p, o->path);

    switch ((enum sp_op)o->op) {
    case SP_OP_WRITE:
        return print_path(out, "  write        ", path, "\n");
    case SP_OP_READ:
        return print_path(out, "  read-only    ", path, "\n");
    case SP_OP_PIN:
        return print_path(out, "  pinned       ", path, "\n");
    case SP_OP_EMPTY:
        if (o->mode == 0)
            return print_path(out, "  denied       ", path,
                              o->is_reopened ? " (something below it is open)\n" : "\n");
        return print_path(out, o->ino == 0 ? "  placeholder  " : "  empty        ", path, "\n");
    case SP_OP_ALIAS:
        return print_path(out, "  link         ", path, " -> ") &&
               print_path(out, "", sp_plan_string(p, o->target), "\n");
    case SP_OP_NOTHING:
        return true;
    case SP_OP_MAX:
        break;
    }
    return false;
}

bool sp_plan_print(const struct sp_plan *p, struct sp_buf *out)
{
    static const char *const views[] = {[SP_VIEW_READ] = "the host's files, read-only",
                                        [SP_VIEW_OPEN] = "the host's files as they are",
                                        [SP_VIEW_NEW] = "an empty root with the places below"};
    static const char *const nets[] = {
        [SP_NET_OWN] = "none but a loopback of its own",
        [SP_NET_FILTER] = "none: sockets are refused",
        [SP_NET_HOST] = "the host's",
    };
    bool ok = sp_buf_printf(out, "tier: %s\nfiles: %s\nnetwork: %s\n", sp_tier_name(p->tier),
                            views[p->view], nets[p->net]);

    if (p->tier == SP_TIER_CELL)
        ok = ok && sp_buf_printf(out, "namespaces: user mount pid ipc uts cgroup%s\n",
                                 p->net == SP_NET_OWN ? " net" : "");
    ok = ok && (p->landlock > 0 ? sp_buf_printf(out, "landlock: level %u\n", p->landlock)
                                : sp_buf_printf(out, "landlock: not there\n"));
    ok = ok && sp_buf_printf(out, "seccomp: %s\nplaces:\n",
                             p->notifies ? "filter, refusals are told" : "filter");
    for (uint32_t i = 0; ok && i < p->op_count; i++)
        ok = print_op(p, &p->ops[i], out);
    return ok;
}
