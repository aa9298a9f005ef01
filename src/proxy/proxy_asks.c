/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_asks: questions to the front and its verdicts.
 *
 * A verdict with SP_PROXY_KEEP answers later questions about the same host, port and protocol until
 * FORGET. Of SP_PROXY_VERDICTS_MAX kept ones the one unused longest makes room. A question outlives
 * its connection by linger_ms, because clients give up sooner than people answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/proxy_priv.h"

/* ---- kept verdicts ---- */

struct kept_verdict {
    struct sp_list link, age;
    struct sp_hash key;
    bool is_allowed;
    uint8_t reason, flags;
    size_t text_len;
    char text[];
};

/* The hash stands for the text: its key is random and secret (base/hash.h). */
static struct sp_hash key_of(const char *host, uint16_t port, uint8_t protocol)
{
    const struct sp_str name = sp_str_of(host);
    char text[SP_PROXY_HOST_MAX + 4] = {(char)protocol};

    memcpy(text + 1, &port, sizeof port);
    memcpy(text + 1 + sizeof port, name.p, name.n);
    return sp_hash((struct sp_str){text, 1 + sizeof port + name.n});
}

static struct kept_verdict *find_kept(struct sp_proxy *p, struct sp_hash key)
{
    sp_list_each(i, &p->kept[key.a % SP_PROXY_BUCKETS]) {
        struct kept_verdict *k = SP_CONTAINER(i, struct kept_verdict, link);

        if (k->key.a == key.a && k->key.b == key.b)
            return k;
    }
    return NULL;
}

static void drop_kept(struct sp_proxy *p, struct kept_verdict *k)
{
    sp_list_remove(&k->link);
    sp_list_remove(&k->age);
    free(k);
    p->kept_count--;
}

static bool drop_oldest(struct sp_proxy *p)
{
    struct sp_list *oldest = sp_list_first(&p->kept_by_age);

    if (oldest != NULL)
        drop_kept(p, SP_CONTAINER(oldest, struct kept_verdict, age));
    return oldest != NULL;
}

bool sp_proxy_kept(struct sp_proxy *p, const char *host, uint16_t port, uint8_t protocol,
                   struct sp_proxy_answer *ret)
{
    struct kept_verdict *k = find_kept(p, key_of(host, port, protocol));

    if (k == NULL)
        return false;
    sp_list_remove(&k->age);
    sp_list_append(&p->kept_by_age, &k->age);
    *ret = (struct sp_proxy_answer){k->is_allowed, k->reason, k->flags, {k->text, k->text_len}};
    return true;
}

/* Without memory the verdict is not kept, and the front is asked again. */
static void keep(struct sp_proxy *p, const struct sp_proxy_asking *a,
                 const struct sp_proxy_answer *answer)
{
    const struct sp_hash key = key_of(a->host, a->port, a->protocol);
    struct kept_verdict *k = find_kept(p, key);

    if (k != NULL)
        drop_kept(p, k);
    if (p->kept_count >= SP_PROXY_VERDICTS_MAX)
        drop_oldest(p);
    k = malloc(sizeof *k + answer->text.n);
    if (k == NULL)
        return;
    *k = (struct kept_verdict){.key = key,
                               .is_allowed = answer->is_allowed,
                               .reason = answer->reason,
                               .flags = answer->flags,
                               .text_len = answer->text.n};
    if (answer->text.n != 0)
        memcpy(k->text, answer->text.p, answer->text.n);
    sp_list_append(&p->kept[key.a % SP_PROXY_BUCKETS], &k->link);
    sp_list_append(&p->kept_by_age, &k->age);
    p->kept_count++;
}

void sp_proxy_forget(struct sp_proxy *p)
{
    while (drop_oldest(p))
        ;
}

/* ---- open questions ---- */

static void free_asking(struct sp_proxy_asking *a)
{
    sp_loop_cancel(a->p->loop, &a->timer);
    sp_list_remove(&a->link);
    sp_list_remove(&a->linger);
    a->p->asking_count--;
    free(a);
}

static void give_up(struct sp_timer *t)
{
    struct sp_proxy_asking *a = SP_CONTAINER(t, struct sp_proxy_asking, timer);
    struct sp_proxy_head gone = {.op = SP_PROXY_GONE, .number = a->number};

    sp_proxy_tell(a->p, &gone, sizeof gone, SP_STR(""), SP_STR(""));
    free_asking(a);
}

static struct sp_proxy_asking *new_asking(struct sp_proxy *p, const char *host)
{
    struct sp_list *oldest = sp_list_first(&p->lingering);

    /* The front kills a proxy that asks too much: questions of gone connections make room. */
    if (p->asking_count >= SP_PROXY_ASKS_MAX && oldest != NULL)
        give_up(&SP_CONTAINER(oldest, struct sp_proxy_asking, linger)->timer);
    if (p->asking_count >= SP_PROXY_ASKS_MAX)
        return NULL;
    struct sp_proxy_asking *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->p = p;
    a->number = ++p->last_number;
    memcpy(a->host, host, strlen(host) + 1);
    sp_list_append(&p->askings[a->number % SP_PROXY_BUCKETS], &a->link);
    p->asking_count++;
    return a;
}

static void answer_conn(void *owner, const struct sp_proxy_answer *answer)
{
    struct sp_proxy_conn *c = owner;

    c->asking = NULL;
    sp_proxy_conn_verdict(c, answer);
    sp_proxy_conn_run(c);
}

struct sp_proxy_asking *sp_proxy_ask(struct sp_proxy_conn *c, struct sp_str method,
                                     bool is_kept_away)
{
    struct sp_proxy_asking *a = new_asking(c->p, c->host);
    const struct sp_str host = sp_str_of(c->host);

    if (a == NULL)
        return NULL;
    a->is_kept_away = is_kept_away;
    a->port = c->port;
    a->protocol = c->protocol;
    a->fn = answer_conn;
    a->owner = c;
    struct sp_proxy_ask ask = {
        .head = {.op = SP_PROXY_ASK, .number = a->number},
        .protocol = c->protocol,
        .via = c->via,
        .host_len = (uint8_t)host.n,
        .method_len = (uint8_t)method.n,
        .port = c->port,
        .client_port = ntohs(c->client_at.sin_port),
        .local_port = ntohs(c->local_at.sin_port),
        .client_address = c->client_at.sin_addr.s_addr,
        .local_address = c->local_at.sin_addr.s_addr,
    };
    sp_proxy_tell(c->p, &ask, sizeof ask, host, method);
    return a;
}

struct sp_proxy_asking *sp_proxy_know(struct sp_proxy *p, const char *host, uint16_t port,
                                      void (*fn)(void *, const struct sp_proxy_answer *),
                                      void *owner)
{
    struct sp_proxy_asking *a = new_asking(p, host);
    char at_port[8] = "";

    if (a == NULL)
        return NULL;
    a->is_know = true;
    a->protocol = SP_PROXY_KNOWN;
    a->port = port;
    a->fn = fn;
    a->owner = owner;
    struct sp_proxy_head know = {.op = SP_PROXY_KNOW, .number = a->number};
    if (port != 0)
        (void)snprintf(at_port, sizeof at_port, ":%u", port);
    sp_proxy_tell(p, &know, sizeof know, sp_str_of(host), sp_str_of(at_port));
    return a;
}

/* A KNOW is answered at once, since no person is asked: its record waits for that. */
void sp_proxy_ask_abandon(struct sp_proxy_asking *a)
{
    if (a == NULL)
        return;
    a->owner = NULL;
    if (a->is_know)
        return;
    sp_list_append(&a->p->lingering, &a->linger);
    if (!sp_loop_timer(a->p->loop, &a->timer, sp_loop_now(a->p->loop) + a->p->linger_ms, give_up))
        give_up(&a->timer);
}

static void tell_abandoned(struct sp_proxy_asking *a)
{
    struct sp_proxy_done done = a->done;

    if (a->is_know)
        return;
    done.head = (struct sp_proxy_head){.op = SP_PROXY_DONE, .number = a->number};
    done.outcome = SP_PROXY_ABANDONED;
    sp_proxy_tell(a->p, &done, sizeof done, sp_str_of(a->host), SP_STR(""));
}

bool sp_proxy_take_verdict(struct sp_proxy *p, const struct sp_proxy_verdict *v)
{
    struct sp_proxy_asking *a = NULL;
    const struct sp_proxy_answer answer = {v->is_allowed != 0, v->reason, v->flags,
                                           sp_proxy_text(&v->head, sizeof *v)};

    sp_list_each(i, &p->askings[v->head.number % SP_PROXY_BUCKETS]) {
        a = SP_CONTAINER(i, struct sp_proxy_asking, link);
        if (a->number == v->head.number)
            break;
        a = NULL;
    }
    if (a == NULL) /* GONE and the verdict passed each other; any other number is the front's bug */
        return v->head.number != 0 && v->head.number <= p->last_number;
    if ((v->flags & SP_PROXY_KEEP) != 0 && !a->is_kept_away)
        keep(p, a, &answer);
    void (*fn)(void *, const struct sp_proxy_answer *) = a->fn;
    void *owner = a->owner;
    if (owner == NULL)
        tell_abandoned(a);
    free_asking(a);
    if (owner != NULL)
        fn(owner, &answer);
    return true;
}
