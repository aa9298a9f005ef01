/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_content: a large file as an answer. Its base64 is never in memory as a whole: it is made while
 * it is sent, from the memory that the file came in.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/auto.h"
#include "base/base64.h"
#include "server/rpc/fs.h"
#include "server/rpc/text.h"

static const char head_begin[] = "{\"id\":";
static const char head_end[] = ",\"result\":{\"dataBase64\":\"";
static const char tail[] = "\"}}";

struct content {
    struct sp_link_source source;
    char *bytes; /* a mapping */
    size_t len, at;
    size_t head_len; /* 0: sent */
    char head[];
};

/* Whole triples, so that padding comes at the end alone. */
static size_t write_some(struct sp_link_source *s, char *out, size_t max)
{
    struct content *c = SP_CONTAINER(s, struct content, source);
    char *o = sp_put(out, c->head, c->head_len);
    size_t n = (max - c->head_len) / 4 * 3;

    if (n > c->len - c->at)
        n = c->len - c->at;
    o = sp_base64_encode(o, c->bytes + c->at, n);
    c->at += n;
    c->head_len = 0;
    if (c->at == c->len && max - (size_t)(o - out) >= sizeof tail - 1)
        o = sp_put_literal(o, tail);
    return (size_t)(o - out);
}

static void end(struct sp_link_source *s)
{
    struct content *c = SP_CONTAINER(s, struct content, source);

    (void)munmap(c->bytes, c->len);
    free(c);
}

bool sp_fs_send_content(struct sp_request *r, const struct sp_file_answer *a)
{
    const size_t head = sizeof head_begin - 1 + r->id.n + sizeof head_end - 1;

    if (a->is_kept == NULL || head > SP_LINK_FRAGMENT / 2) /* an id is as long as a client likes */
        return false;
    struct content *c = malloc(sizeof *c + head);
    if (c == NULL)
        return false;
    *c = (struct content){
        .source = {.write = write_some,
                   .done = end,
                   .left = head + SP_BASE64_LEN((size_t)a->data_len) + sizeof tail - 1},
        .bytes = a->window,
        .len = (size_t)a->data_len,
        .head_len = head,
    };
    char *o = sp_put_str(sp_put_literal(c->head, head_begin), r->id);
    (void)sp_put_literal(o, head_end);
    *a->is_kept = true;
    sp_link_send(r->conn->link, &c->source);
    return true;
}
