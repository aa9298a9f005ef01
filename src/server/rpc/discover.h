/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discover: one capability root: what plugin is there, what skills (exec-server-protocol.md 4.5).
 *
 * A root is looked at in steps, each one file operation, under the root's sandbox if it has one.
 * Whatever is wrong with it is said in its own warnings and error and stops no other.
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
    const char *key; /* what it is sorted by: a URI */
    uint32_t rank;   /* among those with the same key */
};

struct sp_found_list {
    struct sp_found *items;
    uint32_t count, cap;
};

struct sp_root {
    struct sp_files_call call;
    struct sp_discovery *all;
    struct sp_str id; /* as JSON */
    struct sp_uri uri;
    struct sp_policy policy;
    bool has_policy, is_restricted;

    /* on the way */
    struct sp_arena arena;
    struct sp_found_list skills, manifests;
    void (*then)(struct sp_root *r);  /* after a file was asked for; r->text says whether it came */
    char path[SP_FILE_MAX_PATH + 64]; /* the file that is asked for */
    char dir[SP_FILE_MAX_PATH + 1];   /* where manifests are looked for */
    uint32_t next;                    /* manifest name, manifest or skill that is next */
    size_t bundle;                    /* bytes of its files so far */
    bool is_walked;
    bool has_inline_servers;              /* in the plugin's manifest, ... */
    const char *servers_path, *apps_path; /* ... or files that it names; NULL: none */
    const char
        *plugin_root;   /* URI of what the first of the namespace manifests is about, or NULL */
    struct sp_buf text; /* the file's contents; data NULL: there is none */

    /* JSON of what was found */
    struct sp_buf manifest, mcp, apps; /* empty: null */
    struct sp_buf skills_out, namespaces, warnings, error;
};

struct sp_discovery {
    struct sp_task task;
    struct sp_request *request;
    struct sp_root *roots;
    uint32_t count, begun, ended;
    bool is_beginning; /* roots that end at once are not to begin the next ones */
    size_t bytes;      /* of the answer so far */
};

/* Begins; sp_root_ended is called from within or later. */
void sp_root_begin(struct sp_root *r);
void sp_root_rest(struct sp_root *r); /* it has ended: keeps nothing but what is answered */
void sp_root_done(struct sp_root *r); /* frees it, whatever it is doing */
/* In m_discover.c. */
void sp_root_ended(struct sp_root *r);

/* The object of the answer. false: no room. */
bool sp_root_add(struct sp_buf *b, const struct sp_root *r);

/* ---- between the files of a root ---- */

/* Counts bytes of the answer. false: there is no more room. */
bool sp_root_charge(struct sp_root *r, size_t bytes);
/* A warning, if there is room. */
void sp_root_say(struct sp_root *r, struct sp_str text);
/* The same: `before` URI `after`. */
void sp_root_warn(struct sp_root *r, const char *before, const char *path, const char *after);
/* "failed to WHAT capability root URI: why": its end. */
void sp_root_fail(struct sp_root *r, const char *what, const struct sp_file_answer *a,
                  const struct sp_err *e);
/* Asks; if that is refused the root has failed, and ended. */
void sp_root_ask(struct sp_root *r, enum sp_file_op op, const char *path,
                 void (*done)(struct sp_files_call *call, const struct sp_file_answer *a,
                              const struct sp_err *e));
/* r->path, if it is a file: its text into r->text; then r->then. */
void sp_root_read(struct sp_root *r, void (*then)(struct sp_root *r));
/* {"path":...,"contents":...} of the file that was read. */
bool sp_root_add_file(struct sp_root *r, struct sp_buf *to);
/* What the walk found, in order; its errors become warnings. false: no memory. */
bool sp_root_collect(struct sp_root *r, struct sp_str entries, bool is_cut);

/* What a plugin's manifest says about its other files; paths are of the root's arena, NULL: none.
 */
struct sp_declared {
    bool has_inline_servers;
    const char *servers, *apps;
};
/* The manifest is r->text, which is used up. */
struct sp_declared sp_root_declared(struct sp_root *r);

extern const char *const sp_manifest_names[3];

#endif
