/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is taken as a URI and as a path. What is read has a canonical text that reads the same,
 * a path that is absolute and free of NUL, and comes back from the path's own URI; what is refused
 * says why and leaves nothing behind.
 */
#include "base/auto.h"
#include "base/uri.h"
#include "fuzz.h"

/* Such a path has no URI of its own: reading resolves the dots. */
static bool has_dots(const char *path)
{
    for (const char *p = path; (p = strchr(p, '/')) != NULL;) {
        const size_t n = strcspn(++p, "/");

        if ((n == 1 || n == 2) && strncmp(p, "..", n) == 0)
            return true;
    }
    return false;
}

static void check_path(const char *path)
{
    auto_buf struct sp_buf out = {0};
    auto_uri struct sp_uri u = {0};
    struct sp_err e = {0};

    CHECK(sp_uri_add(&out, sp_str_of(path)));
    CHECK(sp_uri_read((struct sp_str){out.data, out.len}, &u, &e) == 0);
    if (has_dots(path))
        return;
    CHECK(!u.is_foreign && u.path != NULL);
    CHECK(strcmp(u.path, path) == 0);
    CHECK(strlen(u.text) == out.len && memcmp(u.text, out.data, out.len) == 0);
}

static void check_text(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    auto_uri struct sp_uri u = {0};
    auto_uri struct sp_uri again = {0};
    struct sp_err e = {0};

    const int r = sp_uri_read((struct sp_str){text, size}, &u, &e);
    if (r < 0) {
        CHECK(r == -SP_E_INVALID && e.msg[0] != 0 && u.text == NULL && u.path == NULL);
        return;
    }
    CHECK(u.is_foreign == (u.path == NULL));
    CHECK(strncmp(u.text, "file://", 7) == 0);
    const char *path = strchr(u.text + 7, '/');
    CHECK(path != NULL && (u.is_foreign || path == u.text + 7));
    for (const char *p = u.text + 7; *p != 0; p++) /* a host may have more of them than a path */
        CHECK(*p > ' ' && *p < 0x7F && strchr(p < path ? "#/<>?\\" : "\"#<>?\\`{}", *p) == NULL);
    CHECK(sp_uri_read(sp_str_of(u.text), &again, &e) == 0);
    CHECK(strcmp(u.text, again.text) == 0 && u.is_foreign == again.is_foreign);
    if (u.path == NULL)
        return;
    CHECK(u.path[0] == '/' && strcmp(u.path, again.path) == 0);
    check_path(u.path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_text(data, size);

    auto_free char *path = malloc(size + 2);
    CHECK(path != NULL);
    path[0] = '/';
    for (size_t i = 0; i < size; i++)
        path[i + 1] = (char)(data[i] == 0 ? '/' : data[i]);
    path[size + 1] = 0;
    check_path(path);
    return 0;
}
