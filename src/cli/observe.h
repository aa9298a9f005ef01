/* SPDX-License-Identifier: Apache-2.0 */
/*
 * observe: what `ps`, `logs`, `attach` and `kill` have in common: their flags, finding the server,
 * talking to it, and the processes that run there.
 */
#ifndef SP_CLI_OBSERVE_H
#define SP_CLI_OBSERVE_H

#include <getopt.h>

#include "cli/cli.h"
#include "engine/remote/client.h"

#define SP_OBSERVE_MAX_SETS 64

/* ---- flags: observe_args.c ---- */

struct sp_observe_flags {
    const char *server, *token_file, *config;
    const char *sets[SP_OBSERVE_MAX_SETS + 1];
    unsigned set_count;
};

enum {
    SP_OBSERVE_SERVER = 512,
    SP_OBSERVE_TOKEN_FILE,
    SP_OBSERVE_CONFIG,
    SP_OBSERVE_SET,
    SP_OBSERVE_HELP,
};

/* For the table of a verb's flags, before its own. */
#define SP_OBSERVE_OPTIONS                                              \
    {"server", required_argument, NULL, SP_OBSERVE_SERVER},             \
        {"token-file", required_argument, NULL, SP_OBSERVE_TOKEN_FILE}, \
        {"config", required_argument, NULL, SP_OBSERVE_CONFIG},         \
        {"set", required_argument, NULL, SP_OBSERVE_SET},               \
    {                                                                   \
        "help", no_argument, NULL, SP_OBSERVE_HELP                      \
    }

/* For its help. */
#define SP_OBSERVE_HELP_TEXT                                                                 \
    "Which server:\n"                                                                        \
    "  --server NAME|URL   an environment of the configuration, ws://HOST:PORT or\n"         \
    "                      unix:///PATH (default: `server` of the configuration, else the\n" \
    "                      only server of this user that runs here, else\n"                  \
    "                      ws://127.0.0.1:8765)\n"                                           \
    "  --token-file FILE   the token that it asks for\n"                                     \
    "  --config FILE       this configuration file, and no other\n"                          \
    "  --set KEY=TOML      lay this over it (repeatable)\n"                                  \
    "  --help              show this text\n"

struct sp_verb {
    const char *name, *help;
    const struct option *options;
    bool (*take)(void *user, int opt); /* one flag of its own; false: bad, and that was said */
    int least_words, most_words;       /* after the flags */
};

/* SP_EXIT_OK, with the words after the flags (NULL at the end; to be freed, they are argv's). -1:
 * help was asked for and given. Else the exit status. */
int sp_observe_args(const struct sp_verb *v, int argc, char **argv, void *user,
                    struct sp_observe_flags *f, char ***ret_words);

/* ---- which server: observe_server.c ---- */

struct sp_observe_server {
    char *url, *token; /* token NULL: none */
    char *shown;       /* the URL without its query */
    uint64_t connect_timeout_ms;
};
int sp_observe_find(const struct sp_observe_flags *f, struct sp_observe_server *ret,
                    struct sp_err *e);
void sp_observe_server_done(struct sp_observe_server *s);

/* ---- talking: observe.c ---- */

struct sp_observe;

struct sp_observe_ops {
    void (*notified)(void *user, struct sp_str method, struct sp_json *j, uint32_t params);
    void (*interrupted)(void *user, const char *why); /* the connection is lost for now */
    void (*back)(void *user);                         /* ... and is there again */
    void (*dead)(void *user);                         /* it will not come again; the loop stops */
};

/* Connects, and looks that the server can be observed. Returns the exit status; what was wrong has
 * been said. */
int sp_observe_open(const struct sp_observe_flags *f, struct sp_observe **ret);
void sp_observe_free(struct sp_observe *o); /* NULL is fine */

struct sp_loop *sp_observe_loop(struct sp_observe *o);
struct sp_client *sp_observe_client(struct sp_observe *o);
const char *sp_observe_url(const struct sp_observe *o); /* for people: without its query */
void sp_observe_set_ops(struct sp_observe *o, const struct sp_observe_ops *ops, void *user);
/* Why there is no connection any more; NULL: there is one. */
const struct sp_err *sp_observe_death(const struct sp_observe *o);

/* Asks and waits for the answer; not from within a callback. fn hears a result; a refusal is -code,
 * SP_E_ATTACHED for its number, else SP_E_FAILED. */
int sp_observe_ask(struct sp_observe *o, const char *method, struct sp_str params,
                   void (*fn)(void *user, struct sp_json *j, uint32_t result), void *user,
                   struct sp_err *e);
/* Says the error. SP_EXIT_UNREACHABLE if the connection is gone, else SP_EXIT_FAILED. */
int sp_observe_complain(const struct sp_observe *o, const struct sp_err *e);

/* ---- processes: observe_list.c ---- */

struct sp_listed {
    char *session, *id; /* the id may hold anything: id_len */
    size_t id_len;
    char *state, *cwd, *command;
    int64_t pid, exit_code, started_ms;
    uint64_t next_seq;
    bool is_tty, has_exited;
};

struct sp_process_list {
    struct sp_listed *items;
    size_t count;
    uint64_t omitted; /* that the server has, and left out */
};

int sp_observe_list(struct sp_observe *o, struct sp_process_list *ret, struct sp_err *e);
void sp_list_done(struct sp_process_list *l);

/* PROC: a process id or SESSION/PROCESS; the beginning will do if only one begins so. */
int sp_list_find(const struct sp_process_list *l, const char *proc, const struct sp_listed **ret,
                 struct sp_err *e);

/* "sessionId":"...","processId":"..." */
bool sp_listed_add_place(struct sp_buf *b, const struct sp_listed *p);

#endif
