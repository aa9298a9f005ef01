/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_inspect: what a process of ours is doing, as the kernel tells it (os/inspect.h).
 * Everything is looked up anew each time; nothing waits. A look takes a fraction of a millisecond
 * for a usual command and some for one of hundreds of processes.
 */
#ifndef SP_CORE_PROCESS_INSPECT_H
#define SP_CORE_PROCESS_INSPECT_H

#include "os/inspect.h"

struct sp_proc;

struct sp_inspect_ask {
    bool wants_doing; /* state and holders; false: the ports alone */
    const uint16_t *ports;
    uint32_t port_count;
};

/* Of a process that has started. After its end `doing` is UNKNOWN; holders are looked for between
 * its exit and its close. */
void sp_proc_look(const struct sp_proc *p, const struct sp_inspect_ask *ask,
                  struct sp_inspection *ret);

#endif
