/* SPDX-License-Identifier: Apache-2.0 */
/*
 * [permissions.NAME] (sandbox.md 2.9). A profile that extends another begins with all the other
 * says; what it names itself, it says anew.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "config/config_filesystem.h"
#include "config/config_keys.h"
#include "config/policy.h"
#include "sandbox/policy_words.h"

#define MAX_PROFILES 256

enum state { UNMADE, MAKING, MADE };

/* All profiles while they are made. */
struct making {
    struct sp_config_loading *l;
    const struct sp_toml_value **tables; /* one a profile */
    struct sp_config_raw_profile *raw;
    enum state *states;
};

static int make(struct making *m, size_t i);

static int check_name(const struct sp_toml_value *v, struct sp_err *e)
{
    enum sp_mode mode;

    if (v->key.n != 0 && v->key.p[0] == ':')
        return sp_toml_refuse_key(v, e,
                                  "permissions profile `%.60s` uses a reserved built-in profile "
                                  "prefix",
                                  v->key.p);
    if (v->key.n == 0 || sp_str_has_nul(v->key) || sp_mode_read(v->key, &mode))
        return sp_toml_refuse_key(v, e, "`%.60s` cannot be the name of a profile: it is %s",
                                  v->key.p, v->key.n == 0 ? "empty" : "a mode, or has a NUL in it");
    if (v->type != SP_TOML_TABLE)
        return sp_toml_refuse(v, e, "permissions profile `%.60s`: expected a table, not %s",
                              v->key.p, sp_toml_type_name(v->type));
    return 0;
}

/* ---- what it extends ---- */

static size_t find(const struct making *m, const char *name)
{
    const struct sp_config *c = m->l->config;
    size_t i = 0;

    while (i < c->profile_count && strcmp(c->profiles[i].name, name) != 0)
        i++;
    return i;
}

static const struct sp_toml_value *extends_of(const struct making *m, size_t i)
{
    return sp_toml_get(m->tables[i], SP_STR("extends"));
}

/* a -> b -> a */
static int refuse_cycle(const struct making *m, size_t first)
{
    char chain[240];
    size_t n = (size_t)snprintf(chain, sizeof chain, "%.60s", m->l->config->profiles[first].name);
    size_t i = first;

    do {
        i = find(m, m->raw[i].extends);
        const int more =
            snprintf(chain + n, sizeof chain - n, " -> %.60s", m->l->config->profiles[i].name);
        if (more < 0 || (size_t)more >= sizeof chain - n)
            break; /* enough to see it */
        n += (size_t)more;
    } while (i != first);
    return sp_toml_refuse(extends_of(m, first), m->l->e,
                          "permissions profiles extend each other: %s", chain);
}

static int copy_builtin(struct making *m, size_t i, struct sp_profile *ret)
{
    const char *name = m->raw[i].extends;
    bool is_known = false;
    const int r = sp_config_builtin(name, ret, &is_known, m->l->e);

    if (r < 0)
        return r;
    if (!is_known)
        return sp_toml_refuse(extends_of(m, i), m->l->e,
                              "`extends`: there is no profile `%.60s`; built in are :read-only and "
                              ":workspace",
                              name);
    if (ret->kind != SP_PROFILE_MANAGED) {
        sp_profile_done(ret);
        return sp_toml_refuse(extends_of(m, i), m->l->e,
                              "`extends`: `%s` restricts nothing, so nothing can be changed in it",
                              name);
    }
    return 0;
}

static int copy_parent(struct making *m, size_t i, struct sp_profile *ret)
{
    const char *name = m->raw[i].extends;

    if (name == NULL)
        return 0;
    const size_t parent = find(m, name);
    if (parent == m->l->config->profile_count)
        return copy_builtin(m, i, ret);
    if (m->states[parent] == MAKING)
        return refuse_cycle(m, parent);
    const int r = make(m, parent);
    if (r < 0)
        return r;
    return sp_profile_copy(&m->l->config->profiles[parent].profile, ret)
               ? 0
               : sp_config_no_memory(m->l->e);
}

/* ---- what it says itself ---- */

static bool is_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool is_named(const struct sp_profile *p, const struct sp_entry *entry)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->entries[i].place == entry->place && is_same_text(p->entries[i].text, entry->text) &&
            is_same_text(p->entries[i].subpath, entry->subpath))
            return true;
    return false;
}

static struct sp_str str_or_none(const char *text)
{
    const struct sp_str none = {0};

    return text == NULL ? none : sp_str_of(text);
}

static int add_entry(struct sp_profile *p, const struct sp_entry *entry, struct sp_err *e)
{
    if (p->count == SP_POLICY_MAX_ENTRIES)
        return sp_fail(e, SP_E_INVALID, 0, "more than %d entries", SP_POLICY_MAX_ENTRIES);
    return sp_profile_add(p, entry->place, entry->access, entry->skips_missing,
                          str_or_none(entry->text), str_or_none(entry->subpath), e);
}

/* The parent's entries that `own` does not name, then those of `own`. */
static int join_entries(const struct sp_profile *parent, const struct sp_profile *own,
                        struct sp_profile *ret, struct sp_err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < parent->count; i++)
        if (!is_named(own, &parent->entries[i]))
            r = add_entry(ret, &parent->entries[i], e);
    for (size_t i = 0; r == 0 && i < own->count; i++)
        r = add_entry(ret, &own->entries[i], e);
    return r;
}

static int read_own(struct making *m, size_t i, const struct sp_profile *parent,
                    struct sp_profile *own)
{
    struct sp_config_raw_network network = {.is_enabled = parent->has_network};
    int r = sp_config_read_section(m->l, "permissions.NAME.network", m->raw[i].network, &network);

    own->has_network = network.is_enabled;
    own->glob_depth = parent->glob_depth;
    if (r == 0 && m->raw[i].filesystem != NULL)
        r = sp_config_read_filesystem(m->l, m->raw[i].filesystem, own);
    return r;
}

static int make(struct making *m, size_t i)
{
    auto_profile struct sp_profile parent = {0};
    auto_profile struct sp_profile own = {0};
    struct sp_config_profile *p = &m->l->config->profiles[i];

    if (m->states[i] == MADE)
        return 0;
    m->states[i] = MAKING;
    int r = copy_parent(m, i, &parent);
    if (r == 0)
        r = read_own(m, i, &parent, &own);
    if (r < 0)
        return r;
    r = join_entries(&parent, &own, &p->profile, m->l->e);
    if (r < 0)
        return sp_wrap(m->l->e, "permissions profile `%.60s`", p->name);
    p->profile.has_network = own.has_network;
    p->profile.glob_depth = own.glob_depth;
    m->states[i] = MADE;
    if (p->profile.count != 0)
        return 0;
    return sp_config_warn(m->l, m->tables[i],
                          "permissions profile `%.60s` has no file-system entries: nothing may be "
                          "read",
                          p->name);
}

/* ---- all of them ---- */

static int read_members(struct making *m, const struct sp_toml_value *table)
{
    struct sp_config *c = m->l->config;
    int r = 0;

    for (const struct sp_toml_value *v = table->first; r == 0 && v != NULL; v = v->next) {
        const size_t i = c->profile_count;

        r = check_name(v, m->l->e);
        if (r == 0)
            r = sp_config_read_section(m->l, "permissions.NAME", v, &m->raw[i]);
        if (r < 0)
            return r;
        c->profiles[i].name = sp_arena_copy(&m->l->impl->arena, v->key);
        if (c->profiles[i].name == NULL)
            return sp_config_no_memory(m->l->e);
        m->tables[i] = v;
        c->profile_count++;
    }
    return r;
}

int sp_config_read_profiles(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    struct making m = {.l = l};
    struct sp_config *c = l->config;

    if (table == NULL)
        return 0;
    if (table->count > MAX_PROFILES)
        return sp_toml_refuse_key(table, l->e, "more than %d permissions profiles", MAX_PROFILES);
    const size_t n = table->count + 1;
    c->profiles = sp_arena_new(&l->impl->arena, n * sizeof *c->profiles);
    m.tables = sp_arena_new(&l->impl->arena, n * sizeof(struct sp_toml_value *));
    m.raw = sp_arena_new(&l->impl->arena, n * sizeof *m.raw);
    m.states = sp_arena_new(&l->impl->arena, n * sizeof *m.states);
    if (c->profiles == NULL || m.tables == NULL || m.raw == NULL || m.states == NULL)
        return sp_config_no_memory(l->e);
    int r = read_members(&m, table);
    for (size_t i = 0; r == 0 && i < c->profile_count; i++)
        r = make(&m, i);
    return r;
}

const struct sp_config_profile *sp_config_find_profile(const struct sp_config *c, const char *name)
{
    for (size_t i = 0; i < c->profile_count; i++)
        if (strcmp(c->profiles[i].name, name) == 0)
            return &c->profiles[i];
    return NULL;
}
