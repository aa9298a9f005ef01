/* SPDX-License-Identifier: Apache-2.0 */
#include "core/records.h"

#include <stddef.h>
#include <string.h>

#include "core/leaves.h"
#include "core/ledger.h"
#include "core/session.h"

/* ---- processes ---- */

static char *put(char *to, struct sp_str s)
{
    if (s.n > 0)
        memcpy(to, s.p, s.n);
    return to + s.n;
}

bool sp_proc_write_record(struct sp_proc *p)
{
    struct sp_ledger *l = p->session->front->ledger;
    const struct sp_str name = sp_str_of(p->name == NULL ? "" : p->name);

    struct sp_leaf_record leaf = {0};
    struct sp_str leaf_bytes = {0};

    if (l == NULL)
        return true;
    if (p->limits.leaf != NULL) {
        sp_leaf_write_record(p->limits.leaf, &leaf);
        leaf_bytes = (struct sp_str){(const char *)&leaf, sizeof leaf};
    }
    sp_proc_drop_record(p);
    struct sp_proc_record *r = sp_ledger_alloc(l, SP_LEDGER_PROC, SP_PROC_LOOSE,
                                               sizeof *r - SP_PROC_LOOSE + p->id.n + name.n +
                                                   p->strings.len + leaf_bytes.n);
    if (r == NULL)
        return false;
    atomic_store(&r->marks, p->is_forgotten ? SP_MARK_FORGOTTEN : 0U);
    atomic_store(&r->size, (uint64_t)p->rows << 16 | p->cols);
    r->number = p->number;
    r->session = p->session->number;
    r->seat_number = p->seat.number;
    r->cell = p->seat.cell->key;
    r->slot = p->seat.slot;
    r->started_ms = p->started_ms;
    r->argc = p->argc;
    r->id_size = (uint32_t)p->id.n;
    r->name_size = (uint32_t)name.n;
    r->strings_size = (uint32_t)p->strings.len;
    r->leaf_size = (uint32_t)leaf_bytes.n;
    r->is_tty = p->is_tty;
    r->is_confined = p->is_confined;
    r->network = (uint8_t)p->network;
    r->tier = (uint8_t)p->tier;
    r->are_limits_asked = p->limits.is_asked;
    for (int i = 0; i < SP_LIMIT_COUNT; i++) {
        r->limits[i] = p->limits.set.of[i];
        r->scopes[i] = (uint8_t)p->limits.scopes[i];
    }
    (void)put(put(put(put(r->text, p->id), name), sp_buf_str(&p->strings)), leaf_bytes);
    sp_ledger_commit(l, r);
    p->record = r;
    return true;
}

void sp_proc_mark(struct sp_proc *p, enum sp_proc_mark mark, bool is_set)
{
    if (p->record == NULL)
        return;
    if (is_set)
        atomic_fetch_or(&p->record->marks, (uint64_t)mark);
    else
        atomic_fetch_and(&p->record->marks, ~(uint64_t)mark);
}

void sp_proc_record_size(struct sp_proc *p)
{
    if (p->record != NULL)
        atomic_store(&p->record->size, (uint64_t)p->rows << 16 | p->cols);
}

void sp_proc_drop_record(struct sp_proc *p)
{
    if (p->record == NULL)
        return;
    sp_ledger_free(p->session->front->ledger, p->record);
    p->record = NULL;
}

/* ---- reading ---- */

static bool take_text(const char **at, size_t *left, uint32_t n, struct sp_str *ret)
{
    if (n > *left)
        return false;
    *ret = (struct sp_str){*at, n};
    *at += n;
    *left -= n;
    return true;
}

/* cwd, file and argc arguments, each with its NUL. */
static bool are_strings(struct sp_str s, uint32_t argc)
{
    uint64_t count = 0;

    for (size_t i = 0; i < s.n; i++)
        count += s.p[i] == 0;
    return s.n > 0 && s.p[s.n - 1] == 0 && count == (uint64_t)argc + 2;
}

bool sp_proc_record_texts(const struct sp_proc_record *r, size_t fixed, struct sp_proc_texts *ret)
{
    size_t left = fixed - (sizeof *r - SP_PROC_LOOSE);
    const char *at = r->text;

    return fixed >= sizeof *r - SP_PROC_LOOSE && r->id_size > 0 &&
           take_text(&at, &left, r->id_size, &ret->id) &&
           take_text(&at, &left, r->name_size, &ret->name) &&
           take_text(&at, &left, r->strings_size, &ret->strings) &&
           take_text(&at, &left, r->leaf_size, &ret->leaf) && left == 0 &&
           (r->leaf_size == 0 || r->leaf_size == sizeof(struct sp_leaf_record)) &&
           !sp_str_has_nul(ret->name) && are_strings(ret->strings, r->argc);
}
