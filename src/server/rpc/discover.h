/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discover: one root of capabilityRoots/discoverV1: its plugin and its skills.
 *
 * m_discover.c takes a root through its steps; discover_files.c finds and reads the files, one file
 * operation at a time, under the root's sandbox if it has one. What is wrong with a root goes into
 * its own warnings and error and stops no other root.
 */
#ifndef SP_SERVER_RPC_DISCOVER_H
#define SP_SERVER_RPC_DISCOVER_H

#include "base/arena.h"
#include "base/uri.h"
#include "sandbox/policy_json.h"
#include "server/rpc/conn.h"

#define SP_DISCOVER_ROOTS       128
#define SP_DISCOVER_AT_ONCE     8
#define SP_DISCOVER_DEPTH       6
#define SP_DISCOVER_DIRECTORIES 2000
#define SP_DISCOVER_ENTRIES     20000
#define SP_DISCOVER_FILE        (1U << 20)  /* bytes of one file */
#define SP_DISCOVER_BUNDLE      (16U << 20) /* bytes of the files of one root */
#define SP_DISCOVER_ANSWER      (48U << 20) /* bytes of a whole answer: no file is added beyond */

/* A file that the walk found. */
struct sp_found {
    const char *path;
    const char *key; /* sort key: a URI */
    uint32_t rank;   /* order among those with the same key */
};

struct sp_found_list {
    struct sp_found *items;
    uint32_t count, cap;
};

struct sp_root {
    struct sp_files_call call;
    struct sp_discovery *all;
    struct sp_buf id; /* as JSON */
    struct sp_uri uri;
    struct sp_policy policy;
    bool has_policy, is_restricted;

    /* State of the walk through the steps. */
    struct sp_arena arena;
    struct sp_found_list skills, manifests;
    void (*then)(struct sp_root *r); /* the step after the file under way; r->text has the result */
    char path[SP_FILE_MAX_PATH + 64]; /* the file under way */
    char dir[SP_FILE_MAX_PATH + 1];   /* where a manifest is looked for now */
    uint32_t next;                    /* index of the next manifest name, manifest or skill */
    size_t bundle;                    /* bytes of its files so far */
    bool is_walked;
    bool has_inline_servers;              /* the manifest has the MCP servers itself, ... */
    const char *servers_path, *apps_path; /* ... or names files; NULL: none. In the arena */
    const char *plugin_root; /* URI of the directory with the first manifest found; NULL: none */
    struct sp_buf text;      /* contents of the last file; data NULL: not there or unusable */

    /* JSON of the answer */
    struct sp_buf manifest, mcp, apps; /* empty: null */
    struct sp_buf skills_out, namespaces, warnings, error;
};

struct sp_discovery {
    struct sp_task task;
    struct sp_request *request;
    struct sp_root *roots;
    uint32_t count, begun, ended;
    bool is_beginning; /* roots that end at once do not begin the next ones */
    size_t bytes;      /* of the answer so far */
};

/* In m_discover.c: the root has ended, with or without an error. */
void sp_root_ended(struct sp_root *r);

/* ---- discover_files.c ---- */

/* Adds a warning, if there is room in the answer. */
void sp_root_say(struct sp_root *r, struct sp_str text);
/* Ends the root with the error "failed to WHAT capability root URI: why". The reason is in *a, or
 * in *e if there is no answer. */
void sp_root_fail(struct sp_root *r, const char *what, const struct sp_file_answer *a,
                  const struct sp_err *e);
/* Begins a file operation. If it is refused, the root has failed and ended. */
void sp_root_ask(struct sp_root *r, enum sp_file_op op, const char *path,
                 void (*done)(struct sp_files_call *call, const struct sp_file_answer *a,
                              const struct sp_err *e));
/* Reads r->path, if it is a regular file, into r->text; then calls `then`. */
void sp_root_read(struct sp_root *r, void (*then)(struct sp_root *r));
/* Appends {"path":...,"contents":...} of the file that was read. */
bool sp_root_add_file(struct sp_root *r, struct sp_buf *to);
/* Fills skills and manifests from the walk, sorted; errors of the walk become warnings. false: no
 * memory. */
bool sp_root_collect(struct sp_root *r, struct sp_str entries, bool is_cut);
/* Reads from the manifest in r->text, which is used up, which other files the plugin has. */
void sp_root_read_manifest(struct sp_root *r);

extern const char *const sp_manifest_names[3];

#endif
