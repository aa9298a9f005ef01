/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environments of a manager. A call refers to the one that it began in, so replacing an
 * environment changes nothing for what runs.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/manager_priv.h"

struct sp_home *sp_home_ref(struct sp_home *h)
{
    h->refs++;
    return h;
}

void sp_home_unref(struct sp_home *h)
{
    if (h == NULL || --h->refs != 0)
        return;
    *(h->prev != NULL ? &h->prev->next : &h->m->all_homes) = h->next;
    if (h->next != NULL)
        h->next->prev = h->prev;
    sp_policy_done(&h->policy);
    free(h->id);
    free(h->cwd);
    free(h->policy_name);
    free(h);
}

static bool copy_text(const char *text, char **ret)
{
    *ret = text == NULL ? NULL : strdup(text);
    return text == NULL || *ret != NULL;
}

static struct sp_home *make_home(struct sp_manager *m, const struct sp_environment *o)
{
    const struct sp_policy *policy = o->has_own_policy ? o->policy
                                     : m->has_policy   ? &m->policy
                                                       : NULL;
    struct sp_home *h = calloc(1, sizeof *h);

    if (h == NULL)
        return NULL;
    h->m = m;
    h->refs = 1;
    h->next = m->all_homes;
    if (h->next != NULL)
        h->next->prev = h;
    m->all_homes = h;
    h->backend = o->backend;
    h->has_policy = policy != NULL;
    if (!copy_text(o->id, &h->id) || !copy_text(o->cwd, &h->cwd) ||
        !copy_text(o->has_own_policy ? o->policy_name : m->options.policy_name, &h->policy_name) ||
        (policy != NULL && !sp_policy_copy(policy, &h->policy))) {
        sp_home_unref(h);
        return NULL;
    }
    return h;
}

struct sp_home *sp_manager_find_home(const struct sp_manager *m, struct sp_str id)
{
    for (uint32_t i = 0; i < m->home_count; i++)
        if (id.p == NULL || sp_str_eq(sp_str_of(m->homes[i]->id), id))
            return m->homes[i];
    return NULL;
}

int sp_manager_set_environment(struct sp_manager *m, const struct sp_environment *environment,
                               struct sp_err *e)
{
    uint32_t i = 0;

    while (i < m->home_count && strcmp(m->homes[i]->id, environment->id) != 0)
        i++;
    if (i == SP_ENVIRONMENTS_MAX)
        return sp_fail(e, SP_E_LIMIT, 0, "there are %d environments already; remove one of them",
                       SP_ENVIRONMENTS_MAX);
    struct sp_home *h = make_home(m, environment);
    if (h == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember an environment");
    if (i == m->home_count)
        m->home_count++;
    else
        sp_home_unref(m->homes[i]);
    m->homes[i] = h;
    return 0;
}

bool sp_manager_remove_environment(struct sp_manager *m, const char *id)
{
    uint32_t i = 1; /* the primary one stays */

    while (i < m->home_count && strcmp(m->homes[i]->id, id) != 0)
        i++;
    if (i >= m->home_count)
        return false;
    for (struct sp_process *p = m->first; p != NULL; p = p->next)
        if (p->is_stored && !sp_process_has_exited(p) && p->home != NULL &&
            strcmp(p->home->id, id) == 0)
            sp_manager_terminate(m, p->id, NULL, NULL);
    sp_home_unref(m->homes[i]);
    m->home_count--;
    memmove(&m->homes[i], &m->homes[i + 1], (m->home_count - i) * sizeof(struct sp_home *));
    return true;
}

uint32_t sp_manager_environment_count(const struct sp_manager *m)
{
    return m->home_count;
}

bool sp_manager_uses(const struct sp_manager *m, const struct sp_backend *b)
{
    for (const struct sp_home *h = m->all_homes; h != NULL; h = h->next)
        if (h->backend == b)
            return true;
    return false;
}

int sp_manager_open_homes(struct sp_manager *m, const struct sp_manager_options *o,
                          struct sp_err *e)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < o->environment_count; i++)
        r = sp_manager_set_environment(m, &o->environments[i], e);
    if (r == 0 && m->home_count != 0)
        m->homes[0]->has_snapshots = true;
    return r;
}

void sp_manager_close_homes(struct sp_manager *m)
{
    while (m->home_count != 0)
        sp_home_unref(m->homes[--m->home_count]);
}
