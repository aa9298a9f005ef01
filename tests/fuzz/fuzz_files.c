/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the front and a process for file operations say to each other: paths lie inside of what came
 * and are as long as it says, an answer that is believed keeps every bound, and the entries of a
 * list end where it ends. Nothing is carried out.
 */
#include "cell/cell_files.h"
#include "fuzz.h"

static void check_ask(const uint8_t *data, size_t size)
{
    struct sp_file_wire_request m;
    const char *path;
    const char *other;

    if (size < sizeof m || size - sizeof m > SP_FILES_PATHS)
        return;
    memcpy(&m, data, sizeof m);
    const size_t len = size - sizeof m;
    char *paths = malloc(SP_FILES_PATHS);
    CHECK(paths != NULL);
    memcpy(paths, data + sizeof m, len);
    if (sp_files_cut_paths(&m, paths, len, &path, &other)) {
        CHECK((path == NULL) == (m.path_len == 0) && (other == NULL) == (m.other_len == 0));
        CHECK(path == NULL || (strlen(path) <= m.path_len && path[m.path_len] == 0));
        CHECK(other == NULL || (strlen(other) <= m.other_len && other[m.other_len] == 0));
        CHECK(path == NULL || memcmp(path, data + sizeof m, m.path_len) == 0);
        CHECK(other == NULL || memcmp(other, data + sizeof m + m.path_len, m.other_len) == 0);
    }
    free(paths);
}

static void check_answer(const uint8_t *data, size_t size)
{
    struct sp_file_wire_answer m;

    if (size < sizeof m + 6)
        return;
    memcpy(&m, data, sizeof m);
    const enum sp_file_op op = (enum sp_file_op)(1 + data[sizeof m] % (SP_FILE_OP_MAX - 1));
    const bool has_fd = (data[sizeof m + 1] & 1) != 0;
    uint32_t length;
    memcpy(&length, data + sizeof m + 2, sizeof length);
    if (!sp_files_is_answer(op, length, &m, has_fd))
        return;
    const bool is_apart = (m.flags & SP_FILES_APART) != 0;
    const bool has_failed = m.err != 0 || m.refusal != 0;
    CHECK(m.err >= 0 && m.err < SP_FILES_ERRNO_MAX && m.refusal < SP_FILE_REFUSAL_MAX);
    CHECK(!has_failed || (!has_fd && m.data_len == 0));
    CHECK(m.data_len <= SP_FILE_MAX_READ && (is_apart || m.data_len <= SP_FILES_WINDOW));
    CHECK(op != SP_FILE_READ_BLOCK || m.data_len <= length);
    CHECK(op != SP_FILE_READ || length == 0 || m.data_len <= length);
    CHECK(op != SP_FILE_OPEN || has_failed || has_fd);
    CHECK(!has_fd || is_apart || op == SP_FILE_OPEN);
}

static void check_entries(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct sp_str left = {copy, size};
    struct sp_file_entry e;
    struct sp_str name;
    const char *at = copy;

    while (sp_file_next_entry(&left, &e, &name) > 0) {
        CHECK(name.p == at + sizeof e && name.n == e.name_len);
        CHECK(e.kind >= SP_FILE_ENTRY_FILE && e.kind <= SP_FILE_ENTRY_ERROR && e.err >= 0);
        at = name.p + name.n;
        CHECK(left.p == at && left.n == (size_t)(copy + size - at));
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 3 == 0)
        check_ask(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        check_answer(data + 1, size - 1);
    else
        check_entries(data + 1, size - 1);
    return 0;
}
