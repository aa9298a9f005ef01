/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/file/file.h"

#include <errno.h>
#include <string.h>

#include "base/auto.h"
#include "cell/file/file_priv.h"

bool sp_file_changes(enum sp_file_op op, bool is_replace)
{
    switch (op) {
    case SP_FILE_WRITE:
    case SP_FILE_MAKE:
    case SP_FILE_REMOVE:
    case SP_FILE_COPY:
    case SP_FILE_WRITE_BLOCK:
        return true;
    case SP_FILE_OPEN:
        return is_replace;
    case SP_FILE_READ:
    case SP_FILE_STAT:
    case SP_FILE_CANONICAL:
    case SP_FILE_LIST:
    case SP_FILE_WALK:
    case SP_FILE_READ_BLOCK:
    case SP_FILE_WATCH_MISSING:
    case SP_FILE_WATCH_PRESENT:
    case SP_FILE_OP_MAX:
        break;
    }
    return false;
}

bool sp_file_next_entry(struct sp_str *left, struct sp_file_entry *ret, struct sp_str *ret_name)
{
    struct sp_file_entry e;

    if (left->n < sizeof e)
        return false;
    memcpy(&e, left->p, sizeof e);
    if (e.name_len > left->n - sizeof e || e.kind < SP_FILE_ENTRY_FILE ||
        e.kind > SP_FILE_ENTRY_ERROR || e.err < 0 ||
        (e.err != 0) != (e.kind == SP_FILE_ENTRY_ERROR))
        return false;
    *ret = e;
    *ret_name = (struct sp_str){left->p + sizeof e, e.name_len};
    *left = (struct sp_str){left->p + sizeof e + e.name_len, left->n - sizeof e - e.name_len};
    return true;
}

static int do_it(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    switch (ask->op) {
    case SP_FILE_READ:
        return sp_content_read(ask, a);
    case SP_FILE_WRITE:
        return sp_content_write(ask, a);
    case SP_FILE_MAKE:
        return sp_make(ask, a);
    case SP_FILE_STAT:
        return sp_look_stat(ask, a);
    case SP_FILE_CANONICAL:
        return sp_look_canonical(ask, a);
    case SP_FILE_LIST:
        return sp_look_list(ask, a);
    case SP_FILE_WALK:
        return sp_walk(ask, a);
    case SP_FILE_REMOVE:
        return sp_remove(ask, a);
    case SP_FILE_COPY:
        return sp_copy(ask, a);
    case SP_FILE_OPEN:
        return sp_content_open(ask, a);
    case SP_FILE_READ_BLOCK:
        return sp_content_read_block(ask, a);
    case SP_FILE_WRITE_BLOCK:
        return sp_content_write_block(ask, a);
    case SP_FILE_WATCH_MISSING:
        return sp_watch_missing(ask, a);
    case SP_FILE_WATCH_PRESENT:
        return sp_watch_present(ask, a);
    case SP_FILE_OP_MAX:
        break;
    }
    return -EINVAL;
}

static bool has_path(const struct sp_file_ask *ask)
{
    const bool needs_none = ask->op == SP_FILE_READ_BLOCK || ask->op == SP_FILE_WRITE_BLOCK;

    return needs_none ||
           (ask->path != NULL && ask->path[0] == '/' &&
            (ask->op != SP_FILE_COPY || (ask->other != NULL && ask->other[0] == '/')));
}

void sp_file_do(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    *a = (struct sp_file_answer){
        .fd = -1, .memory = -1, .window = a->window, .window_size = a->window_size};
    const int r = has_path(ask) ? do_it(ask, a) : -EINVAL;
    if (r < 0)
        a->err = -r;
    if (a->err == 0 && a->refusal == SP_FILE_NOT_REFUSED)
        return;
    a->data_len = 0;
    if (a->memory >= 0)
        (void)close(TAKE_FD(a->memory));
}
