/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is taken as the `sandbox` of a request, as a profile of a file, as a mode of old and as
 * a grant. What is read keeps the bounds, and written out and read again it is the same; what is
 * refused says why and leaves nothing behind.
 */
#include "base/auto.h"
#include "base/json.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "sandbox/policy_json.h"

#define auto_json    __attribute__((cleanup(sp_json_done)))
#define auto_profile __attribute__((cleanup(sp_profile_done)))
#define auto_legacy  __attribute__((cleanup(sp_legacy_done)))
#define auto_grant   __attribute__((cleanup(sp_grant_done)))
#define auto_policy  __attribute__((cleanup(sp_policy_done)))

static void check_refusal(int r, const struct sp_err *e)
{
    CHECK(r == -SP_E_INVALID && e->msg[0] != 0 && sp_utf8_is_valid(sp_str_of(e->msg)));
}

static void check_path(const char *path)
{
    CHECK(path != NULL && path[0] == '/' && strlen(path) <= SP_POLICY_MAX_PATH);
}

static void check_entries(const struct sp_profile *p)
{
    CHECK(p->count == 0 || (p->kind == SP_PROFILE_MANAGED && !p->is_unrestricted));
    for (size_t i = 0; i < p->count; i++) {
        const struct sp_entry *entry = &p->entries[i];

        if (entry->place == SP_PLACE_PATH)
            check_path(entry->text);
        CHECK(entry->place != SP_PLACE_GLOB || entry->access == SP_ACCESS_DENY);
        CHECK(entry->text == NULL || strlen(entry->text) <= SP_POLICY_MAX_PATH);
    }
}

/* What we wrote is JSON. */
static void parse(struct sp_json *j, struct sp_buf *out)
{
    struct sp_err e = {0};

    CHECK(sp_json_parse(j, out->data, out->len, &e) == 0);
}

static bool has_native_spelling(const struct sp_profile *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->entries[i].text != NULL && !sp_utf8_is_valid(sp_str_of(p->entries[i].text)))
            return false;
    return true;
}

static void check_native_round_trip(const struct sp_profile *p)
{
    auto_buf struct sp_buf out = {0};
    auto_json struct sp_json j = {0};
    auto_profile struct sp_profile again = {0};
    struct sp_err e = {0};

    if (sp_profile_write(&out, p, SP_PATH_NATIVE, &e) < 0) {
        CHECK(e.code == SP_E_INVALID && !has_native_spelling(p) && out.len == 0);
        return;
    }
    parse(&j, &out);
    CHECK(sp_profile_read(&j, 0, &again, &e) == 0);
    CHECK(sp_profile_equal(p, &again));
}

static void check_wire_round_trip(const struct sp_profile *p)
{
    static const struct sp_str before = SP_STR("{\"permissions\":");
    static const struct sp_str after = SP_STR(",\"windowsSandboxLevel\":\"disabled\"}");
    auto_buf struct sp_buf out = {0};
    auto_json struct sp_json j = {0};
    auto_policy struct sp_policy again = {0};
    struct sp_err e = {0};

    CHECK(sp_buf_add_str(&out, before));
    CHECK(sp_profile_write(&out, p, SP_PATH_URI, &e) == 0);
    CHECK(sp_buf_add_str(&out, after));
    parse(&j, &out);
    CHECK(sp_policy_read(&j, 0, "/", NULL, &again, &e) == 0);
    CHECK(sp_profile_equal(p, &again.profile));
}

static void check_profile(const struct sp_profile *p)
{
    check_entries(p);
    if (p->count > SP_POLICY_MAX_ENTRIES)
        return; /* a mode of old becomes more entries than it has roots */
    check_native_round_trip(p);
    check_wire_round_trip(p);
}

static void read_policy(struct sp_json *j)
{
    auto_policy struct sp_policy p = {0};
    struct sp_err e = {0};
    const int r = sp_policy_read(j, 0, NULL, "/tmp", &p, &e);

    if (r < 0) {
        check_refusal(r, &e);
        CHECK(p.cwd == NULL && p.roots == NULL && p.home == NULL && p.profile.entries == NULL);
        return;
    }
    CHECK(!p.cwd_is_root && p.root_count <= SP_POLICY_MAX_ROOTS);
    CHECK(p.profile.count <= SP_POLICY_MAX_ENTRIES);
    if (p.cwd != NULL)
        check_path(p.cwd);
    if (p.home != NULL)
        check_path(p.home);
    for (size_t i = 0; i < p.root_count; i++)
        check_path(p.roots[i]);
    check_profile(&p.profile);
}

static void read_profile(struct sp_json *j)
{
    auto_profile struct sp_profile p = {0};
    struct sp_err e = {0};
    const int r = sp_profile_read(j, 0, &p, &e);

    if (r < 0) {
        check_refusal(r, &e);
        CHECK(p.entries == NULL && p.count == 0);
        return;
    }
    check_profile(&p);
}

static void read_legacy(struct sp_json *j)
{
    auto_legacy struct sp_legacy l = {0};
    struct sp_err e = {0};
    const int r = sp_legacy_read(j, 0, &l, &e);

    if (r < 0) {
        check_refusal(r, &e);
        CHECK(l.roots == NULL && l.root_count == 0);
        return;
    }
    for (size_t i = 0; i < l.root_count; i++)
        check_path(l.roots[i]);
}

static void read_grant(struct sp_json *j)
{
    auto_grant struct sp_grant g = {0};
    auto_grant struct sp_grant again = {0};
    auto_buf struct sp_buf out = {0};
    auto_json struct sp_json k = {0};
    struct sp_err e = {0};
    const int r = sp_grant_read(j, 0, &g, &e);

    if (r < 0) {
        check_refusal(r, &e);
        CHECK(g.extra.entries == NULL && g.extra.count == 0);
        return;
    }
    CHECK(g.extra.count <= SP_POLICY_MAX_ENTRIES);
    check_entries(&g.extra);
    CHECK(sp_grant_write(&out, &g, &e) == 0);
    parse(&k, &out);
    CHECK(sp_grant_read(&k, 0, &again, &e) == 0);
    CHECK(sp_profile_equal(&g.extra, &again.extra));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    auto_json struct sp_json j = {0};
    struct sp_err e = {0};

    if (sp_json_parse(&j, text, size, &e) < 0)
        return 0;
    read_policy(&j);
    read_profile(&j);
    read_legacy(&j);
    read_grant(&j);
    return 0;
}
