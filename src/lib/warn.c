/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings about the engine as a whole. While it is made nobody can be told: they wait. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "lib/engine_priv.h"

static void tell(struct sp_engine *engine, const char *text)
{
    const struct sp_exec_event e = {.type = SP_EVENT_WARNING, .message = sp_str_of(text)};

    sp_lib_tell_event(engine, &e);
}

static void tell_all(struct sp_deferred *d)
{
    struct sp_engine *engine = SP_CONTAINER(d, struct sp_engine, warn_later);
    struct sp_lib_warnings all = engine->warnings;

    engine->warnings = (struct sp_lib_warnings){0};
    for (uint32_t i = 0; i < all.count; i++) {
        tell(engine, all.texts[i]);
        free(all.texts[i]);
    }
}

void sp_lib_warn(void *user, const char *text)
{
    struct sp_engine *engine = user;
    struct sp_lib_warnings *w = &engine->warnings;

    if (sp_loop_is_inside(engine->loop)) {
        tell(engine, text);
        return;
    }
    char *copy = w->count == SP_LIB_WARNINGS_MAX ? NULL : strdup(text);
    if (copy == NULL)
        return;
    w->texts[w->count++] = copy;
    sp_loop_poke(engine->loop);
    sp_loop_again(engine->loop, &engine->warn_later, tell_all);
}

void sp_lib_warnings_free(struct sp_engine *engine)
{
    struct sp_lib_warnings *w = &engine->warnings;

    if (engine->loop != NULL)
        sp_loop_undefer(engine->loop, &engine->warn_later);
    while (w->count > 0)
        free(w->texts[--w->count]);
}
