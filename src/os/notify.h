/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify: what happens to files and directories, told by the kernel (inotify). Nothing is asked
 * again and again.
 */
#ifndef SP_OS_NOTIFY_H
#define SP_OS_NOTIFY_H

#include <stdbool.h>

enum sp_notify_flags {
    SP_NOTIFY_NAMES = 1,     /* entries that come, go, or take another's place */
    SP_NOTIFY_CONTENTS = 2,  /* files that were closed after writing, other modes and owners */
    SP_NOTIFY_FOLDER = 4,    /* nothing else than a directory */
    SP_NOTIFY_OWN_LINKS = 8, /* a symbolic link at the end of the path is not followed */
    SP_NOTIFY_MODES = 16,    /* other modes and owners alone */
};

struct sp_file_notice {
    int id;           /* whose; -1: some were lost, anything may have happened */
    const char *name; /* of the entry; NULL: the thing itself was written, moved, deleted ... */
    bool is_new;      /* an entry that was made; whoever made it may not have written it yet */
    bool is_gone;     /* an entry that was deleted or moved away */
    bool is_over;     /* the thing is gone, and nothing more will be told with this id */
};

/* The descriptor, readable when there is something to tell, or minus an errno: EMFILE: there are
 * too many of these, or of descriptors. */
int sp_notify_open(void);
/* An id, the same for the same thing, or minus an errno: ENOSPC: the user has no more. */
int sp_notify_add(int fd, const char *path, unsigned flags);
void sp_notify_remove(int fd, int id);
/* Tells some of what there is, without waiting. 0 or minus an errno. */
int sp_notify_read(int fd, void (*tell)(void *user, const struct sp_file_notice *n), void *user);

#endif
