/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_priv: what the files of file/ share. Functions that can fail return 0 or minus errno; a
 * refusal of our own is in the answer, with 0.
 */
#ifndef SP_CELL_FILE_FILE_PRIV_H
#define SP_CELL_FILE_FILE_PRIV_H

#include <sys/types.h>

#include "cell/file/file.h"

/* ---- place.c: where a path leads ---- */

/*
 * The directory that the last component is in, from `dir` (AT_FDCWD: from the root) without
 * following any link. *ret_name is the component, within the path; "" for the directory itself.
 */
int sp_place_parent(int dir, const char *path, int *ret_dir, const char **ret_name);

/* Opens for an ask: through links, or without any. */
int sp_place_open(const struct sp_file_ask *ask, int flags);

/*
 * Opens through links, but not through those of /proc that lead where no path does: our own program
 * is behind one, also where it cannot be seen.
 */
int sp_place_open_to_write(const char *path, int flags, mode_t mode);

/* A directory to be listed, at a path below `dir` without any link on the way ("": dir). */
int sp_place_open_dir(int dir, const char *path);

/* What was written may fail as late as here: on a network, at a quota. */
int sp_place_close(int fd);

/* ---- room.c: where data goes ---- */

struct sp_room {
    struct sp_file_answer *answer;
    size_t at;     /* bytes so far */
    size_t staged; /* of those, in the window on their way to the memory file */
};

/* All of it, from where the file is. */
int sp_room_write(int fd, const char *data, size_t n);
bool sp_room_is_apart(const struct sp_room *r);
/* Appends; a memory file is made when the window is full. */
int sp_room_add(struct sp_room *r, const void *data, size_t n);
/* What is left of a file, at most `max` bytes in all: *ret_is_more says that there is more. */
int sp_room_take_file(struct sp_room *r, int fd, uint64_t max, bool *ret_is_more);
/* No more comes: the memory file, if there is one, is sealed. */
int sp_room_done(struct sp_room *r);

/* ---- the operations ---- */

int sp_content_read(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_content_write(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_content_open(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_content_read_block(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_content_write_block(const struct sp_file_ask *ask, struct sp_file_answer *a);

int sp_look_stat(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_look_canonical(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_look_list(const struct sp_file_ask *ask, struct sp_file_answer *a);

int sp_watch_missing(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_watch_present(const struct sp_file_ask *ask, struct sp_file_answer *a);

int sp_walk(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_make(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_remove(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_copy(const struct sp_file_ask *ask, struct sp_file_answer *a);
int sp_copy_tree(const struct sp_file_ask *ask, struct sp_file_answer *a);
/* follows: to_name is a path, at whose end a link may be; else a name in to_dir. */
int sp_copy_file(int from, int to_dir, const char *to_name, bool follows, struct sp_file_answer *a);
int sp_copy_link(int from_dir, const char *from_name, int to_dir, const char *to_name);

/* Whether an empty directory that stands in for a name is there. */
bool sp_look_is_placeholder(int dir, const char *path, const char *name);

/* One entry into the answer's data. */
int sp_look_add_entry(struct sp_room *r, enum sp_file_entry_kind kind, int err, const char *name,
                      size_t name_len);

static inline bool sp_is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

#endif
