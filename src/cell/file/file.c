/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of an answer, reading and writing files, listing, walking and watching directories, and
 * the table of operations.
 *
 * Files are opened with O_NONBLOCK and O_NOCTTY: a FIFO without a writer, a terminal or a tape must
 * not block this process.
 */
#include "cell/file/file.h"

#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/grow.h"
#include "base/io.h"
#include "base/uri.h"
#include "cell/file/file_priv.h"
#include "os/notify.h"

#define NO_WAIT    (O_NONBLOCK | O_NOCTTY)
#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)
#define PIECE      (1U << 20)
#define SEND_PIECE (1U << 30)

#define WATCH_TRIES 64       /* gives up if a process keeps making and removing ancestors */
#define MAX_COUNTED 10000000 /* names of one directory, in case it has no end */
#define WANTED      (STATX_TYPE | STATX_MODE | STATX_SIZE | STATX_MTIME | STATX_BTIME)

#define HIGHEST_DEPTH       64
#define HIGHEST_DIRECTORIES 10000
#define HIGHEST_ENTRIES     50000
#define ERROR_TEXT          40 /* bytes counted for the message of an errno */

/* ---- the data of an answer ---- */

/* Data goes to the answer's window. Once the window is full, all of it moves to a memory file, and
 * the window becomes a staging buffer for writes to that file. */
struct out {
    struct sp_file_answer *answer;
    size_t at;     /* bytes so far */
    size_t staged; /* bytes in the window that the memory file does not have yet */
};

static bool has_memory(const struct out *o)
{
    return o->answer->memory >= 0;
}

/* Moves the window's bytes to a new memory file. */
static int move_to_memory(struct out *o)
{
    struct sp_file_answer *a = o->answer;

    a->memory = memfd_create("sallyport-file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return a->memory < 0 ? -errno : -sp_write_all(a->memory, a->window, o->at);
}

static int flush(struct out *o)
{
    const size_t n = o->staged;

    o->staged = 0;
    return -sp_write_all(o->answer->memory, o->answer->window, n);
}

static int add_bytes(struct out *o, const void *data, size_t n)
{
    struct sp_file_answer *a = o->answer;
    int err = 0;

    if (!has_memory(o) && n <= a->window_size - o->at) {
        memcpy(a->window + o->at, data, n);
        o->at += n;
        return 0;
    }
    if (!has_memory(o))
        err = move_to_memory(o);
    if (err == 0 && n > a->window_size - o->staged)
        err = flush(o);
    if (err < 0)
        return err;
    o->at += n;
    if (n > a->window_size)
        return -sp_write_all(a->memory, data, n);
    memcpy(a->window + o->staged, data, n);
    o->staged += n;
    return 0;
}

/* No more data comes: seals the memory file, if there is one, and sets data_len. */
static int finish_data(struct out *o)
{
    const int err = has_memory(o) ? flush(o) : 0;

    o->answer->data_len = o->at;
    if (err < 0)
        return err;
    return has_memory(o) && fcntl(o->answer->memory, F_ADD_SEALS, SEALS) < 0 ? -errno : 0;
}

/* Copies one piece of the file: its size, 0 at the end of the file, or minus errno. */
static ssize_t take_piece(struct out *o, int fd, uint64_t max, bool *can_send)
{
    struct sp_file_answer *a = o->answer;
    char *to = has_memory(o) ? a->window : a->window + o->at;
    const size_t room = has_memory(o) ? PIECE : a->window_size - o->at;
    const size_t n = max < room ? (size_t)max : room;
    ssize_t got;

    if (has_memory(o) && *can_send) {
        got = sendfile(a->memory, fd, NULL, max < SEND_PIECE ? (size_t)max : SEND_PIECE);
        if (got >= 0)
            return got;
        *can_send = false; /* not from every file system, nor under every seccomp filter */
    }
    got = read(fd, to, n < a->window_size ? n : a->window_size);
    if (got < 0)
        return -errno;
    const int err = has_memory(o) ? -sp_write_all(a->memory, to, (size_t)got) : 0;
    return err < 0 ? err : got;
}

/* Copies the rest of the file, of about `size` bytes. *ret_is_more: it has more than `max` bytes.
 */
static int take_file(struct out *o, int fd, uint64_t size, uint64_t max, bool *ret_is_more)
{
    struct sp_file_answer *a = o->answer;
    const bool is_told = a->read_some != NULL && size >= 2 * SP_FILE_PIECE && size < a->window_size;
    bool can_send = true;
    char probe;

    *ret_is_more = false;
    while (o->at < max) {
        if (!has_memory(o) && o->at == o->answer->window_size) {
            const int err = move_to_memory(o);

            if (err < 0)
                return err;
        }
        const uint64_t left = max - o->at;
        const bool is_piece = is_told && !has_memory(o) && left > SP_FILE_PIECE;
        const ssize_t n = take_piece(o, fd, is_piece ? SP_FILE_PIECE : left, &can_send);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        o->at += (size_t)n;
        if (is_piece)
            a->read_some(a, o->at, size);
    }
    const ssize_t n = read(fd, &probe, 1);
    *ret_is_more = n > 0;
    return n < 0 ? -errno : 0;
}

/* ---- whole files ---- */

static int open_path(const struct sp_file_request *request, int flags)
{
    auto_close int dir = -1;
    const char *name = "";
    int fd;

    if (request->follows && (flags & O_CREAT) != 0)
        return sp_file_open_to_write(request->path, flags | O_CLOEXEC, 0666);
    if (request->follows) { /* wherever it leads: this view has only what the policy shows */
        fd = open(request->path, flags | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
    }
    const int r = sp_file_open_parent(AT_FDCWD, request->path, &dir, &name);
    if (r < 0)
        return r;
    fd = openat(dir, name[0] == 0 ? "." : name, flags | O_CLOEXEC | O_NOFOLLOW, 0666);
    return fd < 0 ? -errno : fd;
}

/* Paths inside a placeholder directory do not exist for clients. */
static bool is_in_placeholder(const struct sp_file_request *request)
{
    const char *slash = strrchr(request->path, '/');

    if (!request->hides_placeholders || slash == NULL || slash == request->path)
        return false;
    auto_free char *dir = strndup(request->path, (size_t)(slash - request->path));
    return dir != NULL && sp_file_is_placeholder(AT_FDCWD, dir, strrchr(dir, '/') + 1);
}

/* Opens a regular file, or makes it to be written. Anything else is refused: test a->refusal before
 * the result, which is a descriptor or minus errno. */
static int open_regular(const struct sp_file_request *request, bool is_to_write,
                        struct sp_file_answer *a, struct stat *st)
{
    if (is_to_write && is_in_placeholder(request))
        return -ENOENT;
    auto_close int fd = open_path(request, (is_to_write ? O_WRONLY | O_CREAT : O_RDONLY) | NO_WAIT);
    if (fd < 0)
        return TAKE_FD(fd);
    if (fstat(fd, st) < 0)
        return -errno;
    if (!S_ISREG(st->st_mode)) {
        a->refusal = SP_FILE_NOT_A_FILE;
        return -1;
    }
    return TAKE_FD(fd);
}

static int op_read(const struct sp_file_request *request, struct sp_file_answer *a)
{
    const uint32_t limit = request->length != 0 && request->length < SP_FILE_MAX_READ
                               ? request->length
                               : SP_FILE_MAX_READ;
    struct out out = {.answer = a};
    struct stat st;
    bool is_more = false;
    int r = 0;
    auto_close int fd = open_regular(request, false, a, &st);

    if (a->refusal != SP_FILE_NOT_REFUSED)
        return 0;
    if (fd < 0)
        return fd;
    if (st.st_size <= (off_t)limit)
        r = take_file(&out, fd, (uint64_t)st.st_size, limit, &is_more);
    if (r < 0)
        return r;
    if (is_more || st.st_size > (off_t)limit) {
        a->refusal = SP_FILE_TOO_LARGE;
        a->number = limit;
        return 0;
    }
    return finish_data(&out);
}

/* Overwrites in place and truncates afterwards, so that the file keeps its inode and page cache.
 * Not atomic: readers may see old and new bytes mixed, and a failure leaves that on the disk. Old
 * bytes behind the new ones go even after a short write. */
static int op_write(const struct sp_file_request *request, struct sp_file_answer *a)
{
    struct stat st;
    int r = 0;

    (void)a;
    if (is_in_placeholder(request))
        return -ENOENT;
    auto_close int fd = open_path(request, O_WRONLY | O_CREAT | NO_WAIT);
    if (fd < 0)
        return fd;
    const int written = -sp_write_all(fd, request->data, request->data_len);
    const off_t end = lseek(fd, 0, SEEK_CUR);
    if (fstat(fd, &st) < 0 ||
        (S_ISREG(st.st_mode) && end >= 0 && st.st_size > end && ftruncate(fd, end) < 0))
        r = -errno;
    const int closed = sp_file_close(TAKE_FD(fd));
    return written < 0 ? written : r < 0 ? r : closed;
}

/* ---- open files and their blocks ---- */

static int op_open(const struct sp_file_request *request, struct sp_file_answer *a)
{
    struct stat st;
    auto_close int fd = open_regular(request, request->is_replace, a, &st);

    if (a->refusal != SP_FILE_NOT_REFUSED)
        return 0;
    if (fd < 0)
        return TAKE_FD(fd);
    if (request->is_replace && st.st_size != 0 && ftruncate(fd, 0) < 0)
        return -errno;
    if (sp_file_is_process_memory(fd))
        a->refusal = SP_FILE_NOT_A_FILE;
    else
        a->fd = TAKE_FD(fd);
    return 0;
}

static int op_read_block(const struct sp_file_request *request, struct sp_file_answer *a)
{
    size_t at = 0;

    if (request->length == 0 || request->length > SP_FILE_MAX_BLOCK ||
        request->length > a->window_size || request->offset > INT64_MAX - SP_FILE_MAX_BLOCK)
        return -EINVAL;
    while (at < request->length) {
        const ssize_t n =
            pread(request->fd, a->window + at, request->length - at, (off_t)(request->offset + at));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        at += (size_t)n;
    }
    a->data_len = at;
    a->is_cut = at < request->length;
    return 0;
}

static int op_write_block(const struct sp_file_request *request, struct sp_file_answer *a)
{
    const char *data = request->data;
    size_t at = 0;

    (void)a;
    if (request->data_len == 0 || request->data_len > SP_FILE_MAX_BLOCK ||
        request->offset > INT64_MAX - SP_FILE_MAX_BLOCK)
        return -EINVAL;
    while (at < request->data_len) {
        const ssize_t n =
            pwrite(request->fd, data + at, request->data_len - at, (off_t)(request->offset + at));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    return 0;
}

/* ---- one path ---- */

static int64_t to_ms(const struct statx_timestamp *t)
{
    return t->tv_sec * 1000 + t->tv_nsec / 1000000;
}

static int op_stat(const struct sp_file_request *request, struct sp_file_answer *a)
{
    auto_close int dir = -1; /* not used for an absolute path */
    const char *name = request->path;
    struct statx sx;

    const int r = request->follows ? 0 : sp_file_open_parent(AT_FDCWD, request->path, &dir, &name);
    if (r < 0)
        return r;
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, WANTED, &sx) < 0)
        return -errno;
    const bool is_link = S_ISLNK(sx.stx_mode);
    if (is_link && !request->follows) {
        a->refusal = SP_FILE_HAS_LINK;
        return 0;
    }
    if (is_link && statx(AT_FDCWD, request->path, 0, WANTED, &sx) < 0)
        return -errno;
    a->stat = (struct sp_file_stat){
        .is_directory = S_ISDIR(sx.stx_mode),
        .is_file = S_ISREG(sx.stx_mode),
        .is_link = is_link,
        .size = sx.stx_size,
        .created_ms = (sx.stx_mask & STATX_BTIME) != 0 ? to_ms(&sx.stx_btime) : 0,
        .modified_ms = (sx.stx_mask & STATX_MTIME) != 0 ? to_ms(&sx.stx_mtime) : 0,
    };
    return 0;
}

static int op_canonical(const struct sp_file_request *request, struct sp_file_answer *a)
{
    struct out out = {.answer = a};
    char path[PATH_MAX];

    if (realpath(request->path, path) == NULL)
        return -errno;
    const int r = add_bytes(&out, path, strlen(path));
    return r < 0 ? r : finish_data(&out);
}

/* ---- one directory ---- */

static int add_entry(struct out *o, enum sp_file_entry_kind kind, int err, const char *name,
                     size_t name_len)
{
    const struct sp_file_entry entry = {
        .name_len = (uint32_t)name_len, .kind = (uint16_t)kind, .err = (int16_t)err};
    const int failed = add_bytes(o, &entry, sizeof entry);

    return failed < 0 ? failed : add_bytes(o, name, name_len);
}

/* Follows symlinks. false: a dangling symlink, or the name is gone. */
static bool kind_of(int dir, const struct dirent *d, enum sp_file_entry_kind *ret)
{
    struct stat st;

    *ret = SP_FILE_ENTRY_OTHER;
    if (d->d_type == DT_REG || d->d_type == DT_DIR) {
        *ret = d->d_type == DT_REG ? SP_FILE_ENTRY_FILE : SP_FILE_ENTRY_DIRECTORY;
        return true;
    }
    if (d->d_type != DT_LNK && d->d_type != DT_UNKNOWN)
        return true;
    if (fstatat(dir, d->d_name, &st, 0) < 0)
        return errno != ENOENT && errno != ELOOP && errno != ENOTDIR;
    if (S_ISREG(st.st_mode))
        *ret = SP_FILE_ENTRY_FILE;
    else if (S_ISDIR(st.st_mode))
        *ret = SP_FILE_ENTRY_DIRECTORY;
    return true;
}

/* Names above SP_FILE_MAX_ENTRIES are counted, not listed. */
static int op_list(const struct sp_file_request *request, struct sp_file_answer *a)
{
    struct out out = {.answer = a};
    enum sp_file_entry_kind kind;
    const struct dirent *d;
    uint64_t count = 0;
    DIR *dir = opendir(request->path);
    int r = 0;

    if (dir == NULL)
        return -errno;
    while (r == 0 && (errno = 0, d = readdir(dir)) != NULL && count < MAX_COUNTED) {
        if (sp_is_dots(d->d_name) || !kind_of(dirfd(dir), d, &kind) ||
            (request->hides_placeholders && kind == SP_FILE_ENTRY_DIRECTORY &&
             sp_file_is_placeholder(dirfd(dir), d->d_name, d->d_name)) ||
            ++count > SP_FILE_MAX_ENTRIES)
            continue;
        r = add_entry(&out, kind, 0, d->d_name, strlen(d->d_name));
    }
    if (r == 0)
        r = -errno;
    (void)closedir(dir);
    if (r == 0)
        r = finish_data(&out);
    if (r == 0 && count > SP_FILE_MAX_ENTRIES) {
        a->refusal = SP_FILE_TOO_MANY;
        a->number = count;
    }
    return r;
}

/* ---- a walk: breadth first, each directory's names sorted bytewise ---- */

/* A directory in the queue. */
struct directory {
    struct directory *next;
    uint32_t depth;
    bool is_link;
    char path[];
};

struct seen {
    dev_t dev;
    ino_t ino;
};

struct name {
    const char *text;
    unsigned char type;
};

/* The names of one directory. While the list grows, text is an offset into the buffer, which may
 * still move. */
struct names {
    struct name *items;
    size_t count, cap;
    struct sp_buf text;
};

struct walk {
    const struct sp_file_walk *limits;
    bool hides_placeholders;
    struct out out;
    int root; /* where symlinks are not followed, everything is opened below it */
    size_t root_len;
    struct sp_buf uri, path;
    uint64_t cost; /* bytes of the JSON answer, about */
    uint32_t counted, queued;
    struct directory *first, *last;
    void *seen; /* directories that were queued: a tree of struct seen */
    bool is_cut, is_over;
};

static int by_inode(const void *a, const void *b)
{
    const struct seen *x = a;
    const struct seen *y = b;

    return x->ino != y->ino   ? (x->ino < y->ino ? -1 : 1)
           : x->dev != y->dev ? (x->dev < y->dev ? -1 : 1)
                              : 0;
}

/* 1: new; 0: seen before. */
static int note_seen(struct walk *w, const struct stat *st)
{
    struct seen *s = malloc(sizeof *s);

    if (s == NULL)
        return -ENOMEM;
    *s = (struct seen){st->st_dev, st->st_ino};
    struct seen *const *at = tsearch(s, &w->seen, by_inode);
    const int r = at == NULL ? -ENOMEM : *at == s;
    if (r != 1)
        free(s);
    return r;
}

static int add_path(struct walk *w, enum sp_file_entry_kind kind, int err, struct sp_str path)
{
    w->uri.len = 0;
    if (!sp_uri_add(&w->uri, path))
        return -ENOMEM;
    w->cost += w->uri.len + SP_FILE_WALK_ITEM + (err != 0 ? ERROR_TEXT : 0);
    if (w->cost > SP_FILE_MAX_WALK) {
        w->is_cut = w->is_over = true;
        return 0;
    }
    return add_entry(&w->out, kind, err, path.p, path.n);
}

/* dir/name in w->path. */
static bool join(struct walk *w, const char *dir, const char *name)
{
    w->path.len = 0;
    return sp_buf_add_str(&w->path, sp_str_of(dir)) &&
           (dir[1] == 0 || sp_buf_add_str(&w->path, SP_STR("/"))) &&
           sp_buf_add_str(&w->path, sp_str_of(name));
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static int enqueue(struct walk *w, uint32_t depth, bool is_link, struct sp_str path)
{
    if (w->queued >= w->limits->max_directories) {
        w->is_cut = true;
        return 0;
    }
    struct directory *d = malloc(sizeof *d + path.n + 1);
    if (d == NULL)
        return -ENOMEM;
    *d = (struct directory){.depth = depth, .is_link = is_link};
    memcpy(d->path, path.p, path.n);
    d->path[path.n] = 0;
    *(w->first == NULL ? &w->first : &w->last->next) = d;
    w->last = d;
    w->queued++;
    return 0;
}

static int visit(struct walk *w, const struct directory *in, int dir, const struct name *n)
{
    unsigned char type = n->type;
    struct stat st;

    if (type == DT_UNKNOWN) {
        if (fstatat(dir, n->text, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return join(w, in->path, n->text)
                       ? add_path(w, SP_FILE_ENTRY_ERROR, errno, sp_buf_str(&w->path))
                       : -ENOMEM;
        type = S_ISREG(st.st_mode)   ? DT_REG
               : S_ISDIR(st.st_mode) ? DT_DIR
               : S_ISLNK(st.st_mode) ? DT_LNK
                                     : DT_FIFO;
    }
    if (w->hides_placeholders && type == DT_DIR && sp_file_is_placeholder(dir, n->text, n->text))
        return 0;
    const bool is_link = type == DT_LNK;
    if (is_link && fstatat(dir, n->text, &st, 0) < 0)
        return 0; /* a dangling symlink does not count */
    if (w->counted == w->limits->max_entries) {
        w->is_cut = w->is_over = true;
        return 0;
    }
    w->counted++;
    if (is_link && (!w->limits->follows_directories || !S_ISDIR(st.st_mode)))
        return 0;
    if (is_link)
        type = DT_DIR;
    if (type != DT_REG && type != DT_DIR)
        return 0;
    if (!join(w, in->path, n->text))
        return -ENOMEM;
    const int r = add_path(w, type == DT_REG ? SP_FILE_ENTRY_FILE : SP_FILE_ENTRY_DIRECTORY, 0,
                           sp_buf_str(&w->path));
    if (r < 0 || w->is_over || type == DT_REG || in->depth >= w->limits->max_depth ||
        (w->limits->prunes_hidden && n->text[0] == '.'))
        return r;
    if (w->limits->follows_directories) {
        if (fstatat(dir, n->text, &st, 0) < 0)
            return 0; /* gone meanwhile */
        const int is_new = note_seen(w, &st);
        if (is_new <= 0)
            return is_new;
    }
    return enqueue(w, in->depth + 1, is_link, sp_buf_str(&w->path));
}

static int visit_directory(struct walk *w, const struct directory *d)
{
    struct names names = {0};
    DIR *dir = w->limits->follows_directories
                   ? sp_file_read_dir(AT_FDCWD, d->path, d->is_link ? 0 : O_NOFOLLOW)
                   : sp_file_read_dir_below(w->root, d->path + w->root_len);
    const struct dirent *e;
    int r = dir == NULL ? -errno : 0;

    while (dir != NULL && r == 0 && names.count <= HIGHEST_ENTRIES &&
           (errno = 0, e = readdir(dir)) != NULL) {
        const size_t at = names.text.len;

        if (sp_is_dots(e->d_name))
            continue;
        if (!SP_GROW(names.items, names.count, names.cap) ||
            !sp_buf_add(&names.text, e->d_name, strlen(e->d_name) + 1))
            r = -ENOMEM;
        else
            names.items[names.count++] = (struct name){(const char *)(uintptr_t)at, e->d_type};
    }
    if (r == 0 && names.count <= HIGHEST_ENTRIES)
        r = -errno;
    for (size_t i = 0; i < names.count; i++)
        names.items[i].text = names.text.data + (uintptr_t)names.items[i].text;
    if (names.count > 1)
        qsort(names.items, names.count, sizeof *names.items, by_bytes);
    if (r < 0 && r != -ENOMEM)
        r = add_path(w, SP_FILE_ENTRY_ERROR, -r, sp_str_of(d->path));
    for (size_t i = 0; i < names.count && r == 0 && !w->is_over; i++)
        r = visit(w, d, dirfd(dir), &names.items[i]);
    w->is_cut = w->is_cut || names.count > HIGHEST_ENTRIES; /* no answer may have more names */
    free(names.items);
    sp_buf_done(&names.text);
    if (dir != NULL)
        (void)closedir(dir);
    return r;
}

/* A path that is no directory to walk leaves the queue empty. */
static int enter_root(struct walk *w, const char *path)
{
    struct stat st;
    struct stat itself;

    if (lstat(path, &itself) < 0 || stat(path, &st) < 0)
        return -errno;
    const bool is_link = S_ISLNK(itself.st_mode);
    if (!S_ISDIR(st.st_mode) || (is_link && !w->limits->follows_directories))
        return 0;
    w->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | (is_link ? 0 : O_NOFOLLOW));
    if (w->root < 0)
        return -errno;
    w->root_len = strlen(path);
    const int r = note_seen(w, &st);
    return r < 0 ? r : enqueue(w, 0, is_link, sp_str_of(path));
}

static int op_walk(const struct sp_file_request *request, struct sp_file_answer *a)
{
    const struct sp_file_walk *limits = &request->walk;
    struct walk w = {.limits = limits,
                     .hides_placeholders = request->hides_placeholders,
                     .root = -1,
                     .out = {.answer = a}};

    if (limits->max_directories == 0 || limits->max_entries == 0) {
        a->refusal = SP_FILE_WALK_LIMITS_ZERO;
        return 0;
    }
    if (limits->max_depth > HIGHEST_DEPTH || limits->max_directories > HIGHEST_DIRECTORIES ||
        limits->max_entries > HIGHEST_ENTRIES) {
        a->refusal = SP_FILE_WALK_LIMITS_HIGH;
        return 0;
    }
    auto_free char *path = strdup(request->path);
    if (path == NULL)
        return -ENOMEM;
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    int r = enter_root(&w, path);
    while (w.first != NULL) {
        struct directory *d = w.first;

        if (r == 0 && !w.is_over)
            r = visit_directory(&w, d);
        w.first = d->next;
        free(d);
    }
    if (r == 0)
        r = finish_data(&w.out);
    a->is_cut = w.is_cut;
    if (w.root >= 0)
        (void)close(w.root);
    tdestroy(w.seen, free);
    sp_buf_done(&w.uri);
    sp_buf_done(&w.path);
    return r;
}

/*
 * ---- watches that tell when a path appears or changes ----
 *
 * A path also changes when one of its ancestors is moved or removed, or when a symlink among them
 * is pointed elsewhere. So each ancestor is watched, too.
 */

/* 0: missing. */
static mode_t mode_of(const char *path, int flags)
{
    struct stat st;

    return fstatat(AT_FDCWD, path, &st, flags) == 0 ? st.st_mode : 0;
}

static bool exists(const char *path)
{
    return mode_of(path, AT_SYMLINK_NOFOLLOW) != 0;
}

static bool is_link(const char *path)
{
    return S_ISLNK(mode_of(path, AT_SYMLINK_NOFOLLOW));
}

/* Cuts the last component off; returns the length of the rest, at least 1. */
static size_t cut_last(char *path)
{
    char *slash = strrchr(path, '/');

    slash[slash == path] = 0;
    return strlen(path);
}

/* The two halves of SP_FILE_WATCH_*'s number. */
static uint64_t pack(int low, size_t high)
{
    return (uint64_t)(uint32_t)low | (uint64_t)high << 32;
}

/* Watches each ancestor of `dir`, which is watched already. Cuts `dir` down to "/". */
static int watch_ancestors(const struct sp_file_request *request, char *dir,
                           struct sp_file_answer *a)
{
    struct out out = {.answer = a};
    int r = 0;

    while (r == 0 && dir[1] != 0) {
        const bool has_link = is_link(dir);
        const uint32_t len = (uint32_t)cut_last(dir);
        const int id =
            sp_notify_add(request->fd, dir, SP_NOTIFY_FOLDER | (has_link ? SP_NOTIFY_NAMES : 0U));
        const struct sp_file_above above = {.watch = id, .len = has_link ? len : 0};

        r = id < 0 ? id : add_bytes(&out, &above, sizeof above);
    }
    return r < 0 ? r : finish_data(&out);
}

static int op_watch_missing(const struct sp_file_request *request, struct sp_file_answer *a)
{
    /* Watches the nearest existing directory above the path. */
    for (int i = 0; i < WATCH_TRIES; i++) {
        auto_free char *dir = strdup(request->path);
        auto_free char *next = NULL;
        size_t len;

        if (exists(request->path))
            return -EEXIST;
        if (dir == NULL)
            return -ENOMEM;
        for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--)
            dir[n - 1] = 0;
        do {
            free(next);
            next = strdup(dir);
            len = cut_last(dir);
        } while (next != NULL && len > 1 && !S_ISDIR(mode_of(dir, 0)));
        if (next == NULL)
            return -ENOMEM;
        if (is_link(next)) /* dangling: its target may appear anywhere */
            return -ELOOP;
        const int id = sp_notify_add(request->fd, dir, SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER);
        if (id < 0)
            return id;
        a->number = pack(id, len);
        const int r = watch_ancestors(request, dir, a);
        if (r < 0)
            return r;
        if (!S_ISDIR(mode_of(next, 0))) /* else it has appeared meanwhile: try again */
            return exists(request->path) ? -EEXIST
                                         : 0; /* created before the watches were in place */
    }
    return -EBUSY;
}

static int op_watch_present(const struct sp_file_request *request, struct sp_file_answer *a)
{
    auto_free char *dir = strdup(request->path);

    if (dir == NULL)
        return -ENOMEM;
    const int self =
        sp_notify_add(request->fd, request->path, SP_NOTIFY_CONTENTS | SP_NOTIFY_OWN_LINKS);
    if (self < 0)
        return self;
    (void)cut_last(dir);
    const int id = sp_notify_add(request->fd, dir, SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER);
    if (id < 0)
        return id;
    a->number = pack(id, (size_t)self);
    const int r = watch_ancestors(request, dir, a);
    if (r < 0)
        return r;
    return exists(request->path) ? 0 : -ENOENT;
}

/* ---- dispatch ---- */

int sp_file_next_entry(struct sp_str *left, struct sp_file_entry *ret, struct sp_str *ret_name)
{
    struct sp_file_entry e;

    if (left->n < sizeof e)
        return left->n == 0 ? 0 : -1;
    memcpy(&e, left->p, sizeof e);
    if (e.name_len > left->n - sizeof e || e.kind < SP_FILE_ENTRY_FILE ||
        e.kind > SP_FILE_ENTRY_ERROR || e.err < 0 ||
        (e.err != 0) != (e.kind == SP_FILE_ENTRY_ERROR))
        return -1;
    *ret = e;
    *ret_name = (struct sp_str){left->p + sizeof e, e.name_len};
    *left = (struct sp_str){left->p + sizeof e + e.name_len, left->n - sizeof e - e.name_len};
    return 1;
}

static const struct operation {
    int (*run)(const struct sp_file_request *, struct sp_file_answer *);
    unsigned
        path_count; /* of path and other, how many the request must have; 0: it has a descriptor */
    bool changes;   /* the disk */
    bool wants_existing; /* the path: a placeholder there counts as missing */
} operations[SP_FILE_OP_MAX] = {
    [SP_FILE_READ] = {op_read, 1, false, true},
    [SP_FILE_WRITE] = {op_write, 1, true, false},
    [SP_FILE_MAKE] = {sp_file_op_make, 1, true, false},
    [SP_FILE_STAT] = {op_stat, 1, false, true},
    [SP_FILE_CANONICAL] = {op_canonical, 1, false, true},
    [SP_FILE_LIST] = {op_list, 1, false, true},
    [SP_FILE_WALK] = {op_walk, 1, false, true},
    [SP_FILE_REMOVE] = {sp_file_op_remove, 1, true, true},
    [SP_FILE_COPY] = {sp_file_op_copy, 2, true, true},
    [SP_FILE_OPEN] = {op_open, 1, false, true},
    [SP_FILE_READ_BLOCK] = {op_read_block, 0, false, false},
    [SP_FILE_WRITE_BLOCK] = {op_write_block, 0, true, false},
    [SP_FILE_WATCH_MISSING] = {op_watch_missing, 1, false, false},
    [SP_FILE_WATCH_PRESENT] = {op_watch_present, 1, false, false},
};

bool sp_file_changes(enum sp_file_op op, bool is_replace)
{
    return (unsigned)op < SP_FILE_OP_MAX &&
           (operations[op].changes || (op == SP_FILE_OPEN && is_replace));
}

/* With its trailing slashes. */
static const char *last_component(const char *path)
{
    const char *end = path + strlen(path);

    while (end > path && end[-1] == '/')
        end--;
    while (end > path && end[-1] != '/')
        end--;
    return end;
}

/* Placeholders do not exist for clients: a client that removed one would open its name to the
 * confined commands that it is kept from. */
static bool is_hidden(const struct operation *o, const struct sp_file_request *request)
{
    return request->hides_placeholders && o->wants_existing && !request->is_replace &&
           sp_file_is_placeholder(AT_FDCWD, request->path, last_component(request->path));
}

void sp_file_do(const struct sp_file_request *request, struct sp_file_answer *a)
{
    const struct operation *o =
        (unsigned)request->op < SP_FILE_OP_MAX ? &operations[request->op] : &operations[0];
    const bool is_valid =
        o->run != NULL &&
        (o->path_count < 1 || (request->path != NULL && request->path[0] == '/')) &&
        (o->path_count < 2 || (request->other != NULL && request->other[0] == '/'));

    *a = (struct sp_file_answer){.fd = -1,
                                 .memory = -1,
                                 .window = a->window,
                                 .window_size = a->window_size,
                                 .read_some = a->read_some};
    int r = -EINVAL;
    if (is_valid && is_hidden(o, request))
        r = request->op == SP_FILE_REMOVE && request->is_forced ? 0 : -ENOENT;
    else if (is_valid)
        r = o->run(request, a);
    if (r < 0)
        a->err = -r;
    if (a->err == 0 && a->refusal == SP_FILE_NOT_REFUSED)
        return;
    a->data_len = 0;
    if (a->memory >= 0)
        (void)close(TAKE_FD(a->memory));
}
