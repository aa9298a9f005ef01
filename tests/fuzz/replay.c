/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay: runs every file of the directories in argv through a fuzzer, once, and tells it in TAP.
 * So plain builds, which have no fuzzing engine, keep every input that ever mattered.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The whole file in a block of its size, so that a sanitizer sees the first byte too many. */
static uint8_t *load(const char *path, size_t *ret_size)
{
    FILE *f = fopen(path, "rbe");
    uint8_t *data = NULL;
    long size = -1;

    if (f == NULL)
        return NULL;
    if (fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (size >= 0 && fseek(f, 0, SEEK_SET) == 0)
        data = malloc(size == 0 ? 1 : (size_t)size);
    if (data != NULL && fread(data, 1, (size_t)size, f) != (size_t)size) {
        free(data);
        data = NULL;
    }
    (void)fclose(f); /* only read from */
    *ret_size = (size_t)size;
    return data;
}

static int is_visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void run_file(const char *directory, const char *name, int *count, int *failed)
{
    auto_free char *path = NULL;
    auto_free uint8_t *data = NULL;
    size_t size = 0;

    if (asprintf(&path, "%s/%s", directory, name) < 0)
        path = NULL;
    if (path != NULL)
        data = load(path, &size);
    if (data != NULL)
        (void)LLVMFuzzerTestOneInput(data, size); /* what it has against an input ends us */
    else
        (*failed)++;
    printf("%s %d - %s\n", data != NULL ? "ok" : "not ok", ++*count, name);
    (void)fflush(stdout); /* the next one may abort, and this one was fine */
}

int main(int argc, char **argv)
{
    int count = 0;
    int failed = 0;

    for (int i = 1; i < argc; i++) {
        struct dirent **entry = NULL;
        const int n = scandir(argv[i], &entry, is_visible, alphasort);

        if (n <= 0) {
            printf("not ok %d - %s: %s\n", ++count, argv[i], n < 0 ? strerror(errno) : "no inputs");
            failed++;
        }
        for (int k = 0; k < n; k++) {
            run_file(argv[i], entry[k]->d_name, &count, &failed);
            free(entry[k]);
        }
        free(entry);
    }
    printf("1..%d\n", count);
    return failed != 0;
}
