/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify: changes of files and directories, by inotify.
 */
#ifndef SP_OS_NOTIFY_H
#define SP_OS_NOTIFY_H

#include <stdbool.h>

enum sp_notify_flags {
    SP_NOTIFY_NAMES = 1,     /* entries that are created, deleted or renamed */
    SP_NOTIFY_CONTENTS = 2,  /* files closed after writing; changed modes and owners */
    SP_NOTIFY_FOLDER = 4,    /* ENOTDIR unless the path is a directory */
    SP_NOTIFY_OWN_LINKS = 8, /* watch a symlink itself (the last component) */
    SP_NOTIFY_MODES = 16,    /* changed modes and owners only */
};

struct sp_file_notice {
    int id; /* of the watch; -1: the queue has overflowed and events are lost */
    const char
        *name;    /* of the entry; NULL: the watched file itself was written, moved, deleted ... */
    bool is_new;  /* the entry was created; it may not be written yet */
    bool is_gone; /* the entry was deleted or moved away */
    bool is_over; /* the watch has ended; its id is not used again */
};

/* A descriptor that is readable when there are events, or minus errno: EMFILE if the user has too
 * many inotify instances, or the process too many descriptors. */
int sp_notify_open(void);
/* The id of a watch, the same for the same inode, or minus errno: ENOSPC if the user has too many.
 */
int sp_notify_add(int fd, const char *path, unsigned flags);
void sp_notify_remove(int fd, int id);
/* Calls tell for some of the pending events; does not block. 0 or minus errno. */
int sp_notify_read(int fd, void (*tell)(void *user, const struct sp_file_notice *n), void *user);

#endif
