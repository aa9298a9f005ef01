/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent: what an agent does, without a model: calls tools, answers questions, watches events.
 * One JSON object a line on stdin, one on stdout; tests/functional/agent.py is the other side.
 */
#ifndef SP_TEST_AGENT_H
#define SP_TEST_AGENT_H

#include "approve/approver_program.h"
#include "approve/rules/rules_watch.h"
#include "base/json.h"
#include "engine/manager.h"
#include "engine/run.h"
#include "engine/snapshot.h"
#include "mcp/tools.h"
#include "sandbox/profile.h"

#define MAX_ENVIRONMENTS 4
#define MAX_WORDS        32

struct place {
    const char *id;  /* as calls name it */
    const char *url; /* NULL: here, or a program */
    const char *const *program;
};

struct agent_options {
    struct place places[MAX_ENVIRONMENTS];
    uint32_t place_count;
    const char *program_words[MAX_WORDS];
    const char *cwd;       /* of the commands; NULL: ours */
    const char *snapshots; /* a directory; NULL: the feature is off */
    const char *sandbox;   /* a mode; NULL: none */
    const char *profile;   /* a file with a profile, instead; NULL: none */
    bool uses_cgroups;
    uint64_t resume_ms;

    struct sp_manager_options manager;
    struct sp_tools_options tools;

    struct sp_rules_maker *rules;  /* NULL: none */
    const char *rules_in;          /* NULL: only those */
    char *hooks[SP_HOOKS_MAX + 2]; /* paths; NULL at the end */
    size_t hook_count;
    const char *reviewer; /* program:PATH; NULL: none */

    /* what manager.environ and manager.policy point to */
    struct sp_env_request environ;
    struct sp_policy policy;
    char *policy_text;
    struct sp_json policy_json;
    struct sp_str *patterns;
    struct sp_env_var *set;
};

/* Ends the program if they are wrong. */
void agent_read_options(int argc, char **argv, struct agent_options *o);
void agent_options_done(struct agent_options *o);

/* ---- what it does ---- */

struct agent {
    struct agent_options o;
    struct sp_loop *loop;
    struct sp_backend *backends[MAX_ENVIRONMENTS];
    struct sp_snapshots *snapshots;
    struct sp_manager *manager;
    struct sp_hooks hooks;
    struct sp_rules_watch *rules; /* NULL: they do not change */
    char *rules_user_dir;
    struct sp_watch in;
    struct sp_buf text; /* what was read of stdin */
    struct sp_json json;
    struct asked *asked; /* calls and runs that have not been answered */
};

/* Something that will be answered: a call, a run, or an order. */
struct asked {
    struct agent *a;
    struct asked *next;
    uint64_t call;
    struct sp_run *run;
    struct sp_str id; /* owned */
};

void agent_obey(struct agent *a, char *line, size_t n);
/* Runs go before their backend, what nobody answered after it. */
void agent_drop_runs(struct agent *a);
void agent_drop_asked(struct agent *a);

/* ---- what is written to stdout ---- */

/* Puts `,"t_ns":...}` and a newline behind what was made and writes it out. */
void say(struct sp_buf *line);
void say_event(const struct sp_exec_event *e);
void say_question(const struct sp_approval_question *q);
void say_reply(struct sp_str id, const struct sp_tool_reply *r);
void say_done(struct sp_str tag, bool was_done);
void say_list(struct sp_str tag, struct sp_manager *m);
void say_stats(struct sp_str tag, const struct sp_manager *m);
void say_run(struct sp_str id, const struct sp_run_result *r);
void say_trouble(const char *what, const struct sp_err *e);

#endif
