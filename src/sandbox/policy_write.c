/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes policies as JSON, in the canonical form.
 *
 * JSON has no form for text that is not UTF-8. Other writers replace such bytes; here that is an
 * error, because the policy would name another path.
 */
#include <errno.h>

#include "base/uri.h"
#include "base/utf8.h"
#include "sandbox/policy_words.h"

/* After a failure the put functions have no effect. */
struct writer {
    struct sp_buf *out;
    enum sp_path_form form;
    bool has_no_room, has_no_spelling;
};

static void put(struct writer *w, const char *text)
{
    w->has_no_room = w->has_no_room || !sp_buf_add_str(w->out, sp_str_of(text));
}

static void put_string(struct writer *w, const char *text)
{
    const struct sp_str s = sp_str_of(text);

    w->has_no_spelling = w->has_no_spelling || !sp_utf8_is_valid(s);
    w->has_no_room = w->has_no_room || !sp_json_add_str(w->out, s);
}

static void put_path(struct writer *w, const char *path)
{
    if (w->form != SP_PATH_URI) {
        put_string(w, path);
        return;
    }
    put(w, "\""); /* URIs are ASCII without characters that JSON escapes */
    w->has_no_room = w->has_no_room || !sp_uri_add(w->out, sp_str_of(path));
    put(w, "\"");
}

static void put_word(struct writer *w, const char *before, const struct sp_word *list, int value)
{
    put(w, before);
    put_string(w, sp_word_name(list, value));
}

/* After a failure truncates the output to `mark`. */
static int finish(const struct writer *w, size_t mark, struct sp_err *e)
{
    if (!w->has_no_room && !w->has_no_spelling)
        return 0;
    w->out->len = mark;
    if (w->has_no_spelling)
        return sp_fail(e, SP_E_INVALID, 0, "a path that is not UTF-8 cannot be written as JSON");
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "write a sandbox policy");
}

/* ---- entries ---- */

static void put_special(struct writer *w, const struct sp_entry *entry)
{
    const bool is_unknown = entry->place == SP_PLACE_UNKNOWN;
    const char *subpath = is_unknown ? entry->subpath : entry->text;

    put_word(w, "{\"type\":\"special\",\"value\":{\"kind\":", sp_words_special, (int)entry->place);
    if (is_unknown) {
        put(w, ",\"path\":");
        put_string(w, entry->text != NULL ? entry->text : "");
    }
    if (subpath != NULL) {
        put(w, ",\"subpath\":");
        put_string(w, subpath);
    }
    put(w, "}}");
}

static void put_target(struct writer *w, const struct sp_entry *entry)
{
    if (entry->place == SP_PLACE_PATH) {
        put(w, "{\"type\":\"path\",\"path\":");
        put_path(w, entry->text);
        put(w, "}");
    } else if (entry->place == SP_PLACE_GLOB) {
        put(w, "{\"type\":\"glob_pattern\",\"pattern\":");
        put_string(w, entry->text);
        put(w, "}");
    } else {
        put_special(w, entry);
    }
}

static void put_entry(struct writer *w, const struct sp_entry *entry)
{
    put(w, "{\"path\":");
    put_target(w, entry);
    put_word(w, ",\"access\":", sp_words_access, (int)entry->access);
    if (entry->skips_missing)
        put_word(w, ",\"missing_path_behavior\":", sp_words_missing, true);
    put(w, "}");
}

static void put_entries(struct writer *w, const struct sp_profile *p)
{
    put(w, "\"entries\":[");
    for (size_t i = 0; i < p->count; i++) {
        put(w, i != 0 ? "," : "");
        put_entry(w, &p->entries[i]);
    }
    put(w, "]");
    if (p->glob_depth != 0)
        w->has_no_room =
            w->has_no_room || !sp_buf_printf(w->out, ",\"glob_scan_max_depth\":%u", p->glob_depth);
}

/* ---- profiles ---- */

int sp_profile_write(struct sp_buf *out, const struct sp_profile *p, enum sp_path_form form,
                     struct sp_err *e)
{
    struct writer w = {.out = out, .form = form};
    const size_t mark = out->len;

    put_word(&w, "{\"type\":", sp_words_kind, (int)p->kind);
    if (p->kind == SP_PROFILE_MANAGED) {
        put_word(&w, ",\"file_system\":{\"type\":", sp_words_file_system, p->is_unrestricted);
        if (!p->is_unrestricted) {
            put(&w, ",");
            put_entries(&w, p);
        }
        put(&w, "}");
    }
    if (p->kind != SP_PROFILE_DISABLED)
        put_word(&w, ",\"network\":", sp_words_network, p->has_network);
    put(&w, "}");
    return finish(&w, mark, e);
}

/* ---- grants ---- */

/* Whether a list of paths to read and one to write express all entries, in this order. */
static bool is_plain(const struct sp_profile *p)
{
    enum sp_access last = SP_ACCESS_READ;

    if (p->glob_depth != 0)
        return false;
    for (size_t i = 0; i < p->count; i++) {
        const struct sp_entry *entry = &p->entries[i];

        if (entry->place != SP_PLACE_PATH || entry->access < last || entry->skips_missing)
            return false;
        last = entry->access;
    }
    return true;
}

/* Omits an empty list. Returns whether this or an earlier list was written. */
static bool put_list(struct writer *w, const struct sp_profile *p, enum sp_access access,
                     const char *name, bool is_second)
{
    bool is_begun = false;

    for (size_t i = 0; i < p->count; i++) {
        if (p->entries[i].access != access)
            continue;
        if (!is_begun) {
            put(w, is_second ? "," : "");
            put_string(w, name);
        }
        put(w, is_begun ? "," : ":[");
        put_path(w, p->entries[i].text);
        is_begun = true;
    }
    put(w, is_begun ? "]" : "");
    return is_begun || is_second;
}

static void put_grant_file_system(struct writer *w, const struct sp_profile *p)
{
    put(w, "\"file_system\":{");
    if (is_plain(p)) {
        const bool has_reads = put_list(w, p, SP_ACCESS_READ, "read", false);

        (void)put_list(w, p, SP_ACCESS_WRITE, "write", has_reads);
    } else {
        put_entries(w, p);
    }
    put(w, "}");
}

int sp_grant_write(struct sp_buf *out, const struct sp_grant *g, struct sp_err *e)
{
    struct writer w = {.out = out, .form = SP_PATH_NATIVE};
    const struct sp_profile *p = &g->extra;
    const bool has_file_system = p->count != 0 || p->glob_depth != 0;
    const size_t mark = out->len;

    put(&w, "{");
    if (p->has_network)
        put(&w, "\"network\":{\"enabled\":true}");
    if (p->has_network && has_file_system)
        put(&w, ",");
    if (has_file_system)
        put_grant_file_system(&w, p);
    put(&w, "}");
    return finish(&w, mark, e);
}
