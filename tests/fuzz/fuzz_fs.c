/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is taken as the params of every file method, on a connection that has not been greeted:
 * what can be decoded is refused for that, and nothing else is done. Paths and sandboxes that are
 * taken keep their promises.
 */
#include "base/auto.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "server/rpc/fs.h"

#define auto_json __attribute__((cleanup(sp_json_done)))
#define auto_uri  __attribute__((cleanup(sp_uri_done)))

static void check_refusal(int r, const struct sp_err *e)
{
    CHECK(r == -(int)SP_E_INVALID || r == -(int)SP_E_STATE);
    CHECK((int)e->code == -r && e->msg[0] != 0 && sp_utf8_is_valid(sp_str_of(e->msg)));
}

static void call(struct sp_conn *conn, const struct sp_method *m, const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size); /* a method may change it */
    auto_json struct sp_json j = {0};
    struct sp_err e = {0};

    if (sp_json_parse(&j, text, size, &e) < 0)
        return;
    struct sp_rpc_call c = {.conn = conn, .json = &j, .method = m, .id = SP_STR("1")};
    check_refusal(m->fn(&c, &e), &e);
    CHECK(sp_list_is_empty(&conn->requests) && conn->fs == NULL && conn->parked_bytes == 0);
}

static void read_path(struct sp_json *j, const char *key)
{
    auto_uri struct sp_uri uri = {0};
    struct sp_err e = {0};
    const struct sp_params p = {j, 0, &e};

    sp_fs_read_path(&p, key, &uri);
    if (!sp_params_ok(&p)) {
        check_refusal(sp_params_result(&p), &e);
        return;
    }
    CHECK(uri.text != NULL && (uri.path != NULL) != uri.is_foreign);
    if (uri.path != NULL)
        CHECK(uri.path[0] == '/' && (uri.path[1] == 0 || uri.path[strlen(uri.path) - 1] != '/'));
}

static void read_sandbox(struct sp_json *j)
{
    struct sp_policy policy = {0};
    bool has_policy = false;
    bool restricts = false;
    struct sp_err e = {0};
    const struct sp_params p = {j, 0, &e};

    sp_fs_read_policy(&p, &policy, &has_policy, &restricts);
    if (!sp_params_ok(&p))
        check_refusal(sp_params_result(&p), &e);
    else
        CHECK(!restricts || has_policy);
    CHECK(!has_policy || !policy.profile.has_network);
    if (has_policy)
        sp_policy_done(&policy);
}

static void read_parts(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    auto_json struct sp_json j = {0};
    struct sp_err e = {0};

    if (sp_json_parse(&j, text, size, &e) < 0 || sp_json_type(&j, 0) != SP_JSON_OBJECT)
        return;
    read_path(&j, "path");
    read_path(&j, "sourcePath");
    read_path(&j, "destinationPath");
    read_sandbox(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_rpc rpc = {0};
    struct sp_conn conn = {.rpc = &rpc, .state = SP_CONN_NEW};

    for (const struct sp_method *m = sp_fs_family.methods; m->name != NULL; m++)
        call(&conn, m, data, size);
    call(&conn, sp_watch_family.methods, data, size);
    read_parts(data, size);
    return 0;
}
