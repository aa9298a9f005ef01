/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_fixture: a home of its own with a configuration in it, and what comes of it.
 */
#ifndef SP_CONFIG_FIXTURE_H
#define SP_CONFIG_FIXTURE_H

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "test.h"

#define auto_config __attribute__((cleanup(sp_config_done)))

static char test_home[64];         /* a new directory, $HOME and $SALLYPORT_HOME */
static char test_file[96];         /* sallyport.conf in it */
static char test_variables[2][96]; /* both as NAME=VALUE */

static inline void write_file(const char *path, const char *text, mode_t mode)
{
    (void)unlink(path); /* the one before may be read-only */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(close(fd), 0);
}

static inline int make_home(void **state)
{
    (void)state;
    (void)snprintf(test_home, sizeof test_home, "/tmp/sallyport-config-XXXXXX");
    if (mkdtemp(test_home) == NULL)
        return -1;
    (void)snprintf(test_file, sizeof test_file, "%s/sallyport.conf", test_home);
    (void)snprintf(test_variables[0], sizeof test_variables[0], "HOME=%s", test_home);
    (void)snprintf(test_variables[1], sizeof test_variables[1], "SALLYPORT_HOME=%s", test_home);
    return 0;
}

static inline int drop_home(void **state)
{
    (void)state;
    (void)unlink(test_file); /* not every test writes one */
    return rmdir(test_home);
}

/* The environment has the home and, if it is not NULL, one variable more. */
static inline int load_with(const char *variable, const char *const *sets, struct sp_config *ret,
                            struct sp_err *e)
{
    char copy[512] = "";
    char *environment[] = {test_variables[0], test_variables[1], variable == NULL ? NULL : copy,
                           NULL};
    const struct sp_config_request ask = {.sets = sets, .env = environment};

    if (variable != NULL)
        (void)snprintf(copy, sizeof copy, "%s", variable);
    return sp_config_load(&ask, ret, e);
}

static inline struct sp_config load(const char *text)
{
    struct sp_config c = {0};
    struct sp_err e = {0};

    write_file(test_file, text, 0600);
    if (load_with(NULL, NULL, &c, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    return c;
}

/* why: what follows the file's name */
static inline void refused(const char *text, const char *why)
{
    struct sp_config c = {0};
    struct sp_err e = {0};

    write_file(test_file, text, 0600);
    assert_int_equal(load_with(NULL, NULL, &c, &e), -SP_E_INVALID);
    if (strncmp(e.msg, test_file, strlen(test_file)) != 0 ||
        strncmp(e.msg + strlen(test_file), why, strlen(why)) != 0)
        fail_msg("%s\nsaid: %s\nwant: FILE%s", text, e.msg, why);
    assert_null(c.impl);
}

#endif
