/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch: what would become of the files (approvals.md 14.3). Nothing is written here.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"
#include "base/utf8.h"

struct verifier {
    const struct sp_patch *patch;
    bool keeps_endings;
    const struct sp_patch_source *source;
    struct sp_patch_store *store;
    uint64_t steps, bytes; /* what is left of our bounds */
    struct sp_buf *why;
};

/* ---- reading ---- */

static int check_kind(const struct stat *st, uint64_t max)
{
    if (!S_ISREG(st->st_mode))
        return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
    return st->st_size > 0 && (uint64_t)st->st_size > max ? -EFBIG : 0;
}

/* A device may do something when it is opened, so it is not; what takes the file's place meanwhile
 * does not make us wait. */
static int open_file(const char *path, uint64_t max)
{
    struct stat st;
    int r = stat(path, &st) < 0 ? -errno : check_kind(&st, max);

    if (r < 0)
        return r;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    r = check_kind(&st, max);
    return r < 0 ? r : TAKE_FD(fd);
}

static int read_disk(void *user, const char *path, uint64_t max, struct sp_buf *out)
{
    (void)user;
    auto_close int fd = open_file(path, max);

    if (fd < 0)
        return fd;
    for (;;) {
        const size_t want = 65536;
        char *room = sp_buf_room(out, want);
        const ssize_t n = room == NULL ? -1 : read(fd, room, want);

        if (room == NULL)
            return -ENOMEM;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        out->len += (size_t)n;
        if (out->len > max)
            return -EFBIG;
        if (n == 0)
            return 0;
    }
}

static int look_at_disk(void *user, const char *path, enum sp_patch_there *ret)
{
    struct stat st;

    (void)user;
    if (lstat(path, &st) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode) && stat(path, &st) < 0)
        *ret = SP_PATCH_THERE_DANGLING;
    else
        *ret = S_ISREG(st.st_mode)   ? SP_PATCH_THERE_FILE
               : S_ISDIR(st.st_mode) ? SP_PATCH_THERE_DIR
                                     : SP_PATCH_THERE_OTHER;
    return 0;
}

static const struct sp_patch_source disk = {
    .look = look_at_disk,
    .read = read_disk,
    .max_file = SP_PATCH_FILE_BYTES,
    .max_all = SP_PATCH_ALL_BYTES,
    .max_steps = SP_PATCH_MAX_STEPS,
};

static struct sp_str text_of(const struct sp_buf *b)
{
    return b->len == 0 ? SP_STR("") : (struct sp_str){b->data, b->len};
}

static int unreadable(const struct verifier *v, const char *path, int err, struct sp_err *e)
{
    if (err == EFBIG)
        return sp_fail(
            e, SP_E_LIMIT, 0,
            "Failed to read file to update %s: it is larger than %u MiB, or all files of "
            "the patch are larger than %u MiB",
            path, (unsigned)(v->source->max_file >> 20), (unsigned)(v->source->max_all >> 20));
    if (err == EINVAL)
        return sp_fail(e, SP_E_FAILED, 0,
                       "Failed to read file to update %s: it is not a regular file", path);
    return sp_fail(e, SP_E_SYSTEM, err, "Failed to read file to update %s", path);
}

static int read_source(struct verifier *v, uint32_t i, struct sp_err *e)
{
    struct sp_patch_change *c = &v->store->items[i];
    struct sp_buf *text = &v->store->before[i];
    const uint64_t max = v->bytes < v->source->max_file ? v->bytes : v->source->max_file;
    const int r = v->source->read(v->source->user, c->full_path, max, text);

    if (r < 0)
        return unreadable(v, c->full_path, -r, e);
    c->before = text_of(text);
    v->bytes -= text->len;
    if (!sp_utf8_is_valid(c->before))
        return sp_fail(e, SP_E_FAILED, 0, "Failed to read file to update %s: it is not valid UTF-8",
                       c->full_path);
    return 0;
}

/* ---- each kind ---- */

static int check_target(const struct verifier *v, const char *path, struct sp_err *e)
{
    enum sp_patch_there there = SP_PATCH_THERE_DANGLING;

    if (v->source->look(v->source->user, path, &there) == 0 &&
        (there == SP_PATCH_THERE_DIR || there == SP_PATCH_THERE_OTHER))
        return sp_fail(e, SP_E_FAILED, 0, "Failed to write file %s: %s", path,
                       there == SP_PATCH_THERE_DIR ? "Is a directory" : "it is not a regular file");
    return 0;
}

static int verify_update(struct verifier *v, uint32_t i, struct sp_err *e)
{
    struct sp_patch_change *c = &v->store->items[i];
    int r = read_source(v, i, e);

    if (r == 0)
        r = sp_patch_update(c->before, &v->patch->hunks[i], c->full_path, v->keeps_endings,
                            &v->steps, &v->store->after[i], v->why, e);
    if (r == 0 && c->full_target != NULL)
        r = check_target(v, c->full_target, e);
    if (r == 0)
        c->after = text_of(&v->store->after[i]);
    return r;
}

static int verify_delete(struct verifier *v, uint32_t i, struct sp_err *e)
{
    struct sp_patch_change *c = &v->store->items[i];
    struct sp_buf *text = &v->store->before[i];
    enum sp_patch_there there = SP_PATCH_THERE_DANGLING;
    const int r = v->source->look(v->source->user, c->full_path, &there);

    if (r < 0)
        return sp_fail(e, SP_E_SYSTEM, -r, "Failed to delete file %s", c->full_path);
    if (there == SP_PATCH_THERE_DANGLING)
        return 0; /* it goes as it is */
    if (there == SP_PATCH_THERE_DIR)
        return sp_fail(e, SP_E_FAILED, 0, "Failed to delete file %s: path is a directory",
                       c->full_path);
    const uint64_t max = v->bytes < SP_PATCH_SHOWN_BYTES ? v->bytes : SP_PATCH_SHOWN_BYTES;
    if (v->source->read(v->source->user, c->full_path, max, text) == 0 &&
        sp_utf8_is_valid(text_of(text))) {
        c->before = text_of(text);
        v->bytes -= text->len;
    } else {
        sp_buf_done(text);
    }
    return 0;
}

static int verify_one(struct verifier *v, uint32_t i, struct sp_err *e)
{
    switch (v->store->items[i].kind) {
    case SP_PATCH_ADD:
        return check_target(v, v->store->items[i].full_path, e);
    case SP_PATCH_DELETE:
        return verify_delete(v, i, e);
    case SP_PATCH_UPDATE:
        return verify_update(v, i, e);
    }
    return sp_fail(e, SP_E_INVALID, 0, "invalid patch: an unknown kind of hunk");
}

int sp_patch_verify(const struct sp_patch *p, const char *cwd, bool keeps_line_endings,
                    const struct sp_patch_source *source, struct sp_patch_changes *ret,
                    struct sp_buf *ret_why, struct sp_err *e)
{
    struct sp_patch_changes found = {0};
    int r = sp_patch_list(p, cwd, &found, e);
    struct verifier v = {
        .patch = p,
        .keeps_endings = keeps_line_endings,
        .source = source != NULL ? source : &disk,
        .store = found.impl,
        .why = ret_why,
    };
    v.steps = v.source->max_steps;
    v.bytes = v.source->max_all;
    for (uint32_t i = 0; r == 0 && i < found.count; i++)
        r = verify_one(&v, i, e);
    if (r < 0)
        sp_patch_changes_done(&found);
    else
        *ret = found;
    return r;
}
