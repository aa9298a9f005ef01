/* SPDX-License-Identifier: Apache-2.0 */
#include "core/process_inspect.h"

#include <sys/stat.h>

#include "core/proc.h"
#include "os/cgroup.h"

/* The inode of the pipe to its stdin; 0: none is open. */
static uint64_t input_of(const struct sp_proc *p)
{
    struct stat st;

    if (p->is_tty || p->input.state != SP_INPUT_OPEN || p->input.fd < 0 ||
        fstat(p->input.fd, &st) < 0)
        return 0;
    return st.st_ino;
}

/*
 * The processes of the command: those in its cgroup, and those below its first process. After the
 * first process has exited, and without cgroups, its children are somewhere below the cell, among
 * those of other commands; callers filter them by the descriptors they hold.
 */
static uint32_t find_members(const struct sp_proc *p, pid_t cell, pid_t leader, pid_t *pids)
{
    uint32_t count = 0;

    if (leader > 0)
        pids[count++] = leader;
    if (p->leaf != 0) {
        pid_t all[SP_INSPECT_PROCESSES];
        const uint32_t n =
            sp_cgroup_list(sp_cell_cgroup(p->seat.cell), p->leaf, all, SP_INSPECT_PROCESSES);

        for (uint32_t i = 0; i < n; i++)
            (void)sp_inspect_add(all[i], pids, &count, SP_INSPECT_PROCESSES);
    }
    if (leader == 0 && p->leaf != 0)
        return count;
    return sp_inspect_add_below(leader > 0 ? leader : cell, pids, count, SP_INSPECT_PROCESSES);
}

/* Keeps the processes of the command's kernel session. */
static uint32_t keep_own(const struct sp_proc *p, pid_t cell, pid_t *pids, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (sp_inspect_session(pids[i], cell) == p->pid)
            pids[kept++] = pids[i];
    return kept;
}

void sp_proc_look(const struct sp_proc *p, const struct sp_inspect_ask *ask,
                  struct sp_inspection *ret)
{
    pid_t members[SP_INSPECT_PROCESSES];
    const pid_t cell = p->seat.cell != NULL ? sp_cell_pid(p->seat.cell) : 0;

    *ret = (struct sp_inspection){0};
    if (cell <= 0 || p->is_lost || p->life == SP_PROC_STARTING || p->life == SP_PROC_CLOSED)
        return;
    const pid_t leader = p->life == SP_PROC_RUNNING ? sp_inspect_child(cell, p->pid) : 0;
    struct sp_inspect_target at = {
        .leader = leader,
        .cell = cell,
        .members = members,
        .member_count = find_members(p, cell, leader, members),
        .terminal = p->terminal,
        .input = input_of(p),
        .outputs = {p->outputs[0], p->outputs[1]},
    };
    if (ask->wants_doing && leader > 0)
        ret->doing = sp_inspect_doing(&at);
    if (ask->wants_doing && p->life == SP_PROC_EXITED)
        sp_inspect_holders(&at, ret);
    if (ask->port_count == 0)
        return;
    if (leader == 0 && p->leaf == 0)
        at.member_count = keep_own(p, cell, members, at.member_count);
    ret->listening = sp_inspect_listening(&at, ask->ports, ask->port_count);
}
