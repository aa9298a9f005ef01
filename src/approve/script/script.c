/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/script/script.h"

#include <errno.h>

#include "approve/script/script_priv.h"

/* ---- lists that grow ---- */

void sp_segment_list_add_word(struct sp_segment_list *l, struct sp_word_list *words,
                              struct sp_str text)
{
    struct sp_word_node *node = l->has_no_memory ? NULL : sp_arena_new(&l->arena, sizeof *node);

    if (node == NULL || words->count == UINT32_MAX) {
        l->has_no_memory = true;
        return;
    }
    node->text = text;
    if (words->first == NULL)
        words->first = node;
    else
        words->last->next = node;
    words->last = node;
    words->count++;
}

static bool copy_words(struct sp_arena *a, const struct sp_word_list *words, struct sp_words *ret)
{
    struct sp_str *items = sp_arena_new(a, words->count * sizeof *items);
    uint32_t i = 0;

    if (items == NULL)
        return false;
    for (const struct sp_word_node *w = words->first; w != NULL; w = w->next)
        items[i++] = w->text;
    *ret = (struct sp_words){items, i};
    return true;
}

void sp_segment_list_add(struct sp_segment_list *l, const struct sp_word_list *words)
{
    struct sp_segment_node *node = l->has_no_memory ? NULL : sp_arena_new(&l->arena, sizeof *node);

    if (node == NULL || l->count == UINT32_MAX || !copy_words(&l->arena, words, &node->words)) {
        l->has_no_memory = true;
        return;
    }
    if (l->first == NULL)
        l->first = node;
    else
        l->last->next = node;
    l->last = node;
    l->count++;
}

int sp_segment_list_finish(struct sp_segment_list *l, struct sp_segments *ret, struct sp_err *e)
{
    struct sp_words *items =
        l->has_no_memory ? NULL : sp_arena_new(&l->arena, l->count * sizeof *items);
    uint32_t i = 0;

    if (items == NULL) {
        sp_arena_done(&l->arena);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to read a command");
    }
    for (const struct sp_segment_node *s = l->first; s != NULL; s = s->next)
        items[i++] = s->words;
    ret->items = items;
    ret->count = i;
    ret->impl = l->arena.newest;
    return 0;
}

void sp_segments_done(struct sp_segments *s)
{
    struct sp_arena arena = {s->impl};

    sp_arena_done(&arena);
    *s = (struct sp_segments){0};
}

/* ---- what a command is ---- */

struct sp_str sp_base_name(struct sp_str path)
{
    const char *slash = path.n == 0 ? NULL : memrchr(path.p, '/', path.n);

    if (slash == NULL)
        return path;
    return (struct sp_str){slash + 1, path.n - (size_t)(slash + 1 - path.p)};
}

bool sp_script_is_wrapper(struct sp_words argv, struct sp_str *ret_script)
{
    if (argv.count != 3)
        return false;
    const struct sp_str name = sp_base_name(argv.items[0]);
    if (!sp_str_eq(name, SP_STR("bash")) && !sp_str_eq(name, SP_STR("zsh")) &&
        !sp_str_eq(name, SP_STR("sh")))
        return false;
    if (!sp_str_eq(argv.items[1], SP_STR("-lc")) && !sp_str_eq(argv.items[1], SP_STR("-c")))
        return false;
    *ret_script = argv.items[2];
    return true;
}

static bool is_in(struct sp_str path, struct sp_str dir)
{
    return path.n > dir.n && memcmp(path.p, dir.p, dir.n) == 0 &&
           memchr(path.p + dir.n, '/', path.n - dir.n) == NULL;
}

bool sp_script_is_trusted_shell(struct sp_str argv0, const char *configured_shell)
{
    if (configured_shell != NULL && sp_str_eq(argv0, sp_str_of(configured_shell)))
        return true;
    return is_in(argv0, SP_STR("/bin/")) || is_in(argv0, SP_STR("/usr/bin/"));
}

/* The one segment of a command that is not to be taken apart. */
static void add_whole(struct sp_segment_list *l, struct sp_words argv)
{
    struct sp_word_list words = {0};

    for (uint32_t i = 0; i < argv.count; i++)
        sp_segment_list_add_word(l, &words, argv.items[i]);
    sp_segment_list_add(l, &words);
}

int sp_segments_read(struct sp_segments *ret, struct sp_words argv, struct sp_err *e)
{
    struct sp_segment_list list = {0};
    struct sp_str script = {0};

    *ret = (struct sp_segments){.is_wrapper = sp_script_is_wrapper(argv, &script)};
    if (ret->is_wrapper && sp_script_read_plain(&list, script))
        return sp_segment_list_finish(&list, ret, e);
    /* What was read before the script turned out to be more is of no use. */
    const bool has_no_memory = list.has_no_memory;
    sp_arena_done(&list.arena);
    list = (struct sp_segment_list){.has_no_memory = has_no_memory};
    ret->is_opaque = ret->is_wrapper;
    add_whole(&list, argv);
    return sp_segment_list_finish(&list, ret, e);
}

bool sp_words_equal(struct sp_words a, struct sp_words b)
{
    if (a.count != b.count)
        return false;
    for (uint32_t i = 0; i < a.count; i++)
        if (!sp_str_eq(a.items[i], b.items[i]))
            return false;
    return true;
}
