/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile_fixture: a policy about a tree of the test's own, surveyed and made into a plan. Whatever
 * a plan says, it says in an order that can be carried out, about the inodes that are there.
 */
#ifndef SP_COMPILE_FIXTURE_H
#define SP_COMPILE_FIXTURE_H

#include "plan_fixture.h"
#include "sandbox/compile.h"
#include "survey_fixture.h"

#define ALL_POWERS                                                                               \
    {                                                                                            \
        .has_full_tier = true, .has_own_network = true, .has_filter = true, .has_notices = true, \
        .landlock = 6                                                                            \
    }

static struct sp_host_features host_features = ALL_POWERS;
static struct sp_buf flat;
static const struct sp_plan *plan; /* in flat */

static inline void compile_reset(void)
{
    static const struct sp_host_features all = ALL_POWERS;

    survey_reset();
    sp_buf_done(&flat);
    plan = NULL;
    host_features = all;
}

static inline int compile_end(void **state)
{
    compile_reset();
    return survey_end(state);
}

#define compile_test(name) cmocka_unit_test_setup_teardown(name, tree_begin, compile_end)

/* ---- what it says ---- */

static inline const char *path_of(const struct sp_place_op *o)
{
    return sp_plan_string(plan, o->path);
}

static inline bool is_below(const char *path, const char *dir)
{
    const size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static inline const struct sp_place_op *op_at(const char *path)
{
    for (uint32_t i = 0; i < plan->op_count; i++)
        if (strcmp(path_of(&plan->ops[i]), path) == 0)
            return &plan->ops[i];
    return NULL;
}

/* The innermost place that the path is in; NULL: the ground. */
static inline const struct sp_place_op *op_over(const char *path)
{
    const struct sp_place_op *found = NULL;

    for (uint32_t i = 0; i < plan->op_count; i++) {
        const char *p = path_of(&plan->ops[i]);

        if (plan->ops[i].op != SP_OP_ALIAS && (strcmp(p, path) == 0 || is_below(path, p)) &&
            (found == NULL || strlen(p) > strlen(path_of(found))))
            found = &plan->ops[i];
    }
    return found;
}

static inline enum sp_access plan_access(const char *path)
{
    static const enum sp_access ground[] = {[SP_VIEW_READ] = SP_ACCESS_READ,
                                            [SP_VIEW_OPEN] = SP_ACCESS_WRITE,
                                            [SP_VIEW_NEW] = SP_ACCESS_DENY};
    const struct sp_place_op *o = op_over(path);

    if (o == NULL)
        return ground[plan->view];
    return o->op == SP_OP_EMPTY  ? SP_ACCESS_DENY
           : o->op == SP_OP_READ ? SP_ACCESS_READ
                                 : SP_ACCESS_WRITE;
}

static inline void plan_print(void)
{
    auto_buf struct sp_buf words = {0};

    if (sp_plan_print(plan, &words))
        print_message("%.*s", (int)words.len, words.data);
}

/* ---- what holds for all ---- */

static inline void plan_parent(const char *path, char *ret)
{
    (void)snprintf(ret, PATH_MAX, "%s", path);
    *(strrchr(ret, '/') == ret ? strrchr(ret, '/') + 1 : strrchr(ret, '/')) = 0;
}

static inline void check_inode(const struct sp_place_op *o)
{
    struct stat st;
    char parent[PATH_MAX];

    if (o->op == SP_OP_EMPTY && o->ino == 0) { /* a placeholder that is to be made */
        assert_int_equal(lstat(path_of(o), &st), -1);
        plan_parent(path_of(o), parent);
        assert_int_equal(lstat(parent, &st), 0);
        assert_true(S_ISDIR(st.st_mode));
        assert_true(o->is_dir);
        assert_int_equal(o->dev, 0);
        return;
    }
    check_there(path_of(o), (dev_t)o->dev, (ino_t)o->ino, &st);
    assert_int_equal(S_ISDIR(st.st_mode) != 0, o->is_dir);
}

static inline void check_alias(const struct sp_place_op *o)
{
    char target[PATH_MAX] = "";

    assert_int_equal(plan->view, SP_VIEW_NEW);
    assert_true(readlink(path_of(o), target, sizeof target - 1) > 0);
    assert_string_equal(sp_plan_string(plan, o->target), target);
}

static inline bool has_op_below(const char *path)
{
    for (uint32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].op != SP_OP_ALIAS && is_below(path_of(&plan->ops[i]), path))
            return true;
    return false;
}

/* The access around a place: of the directory that it is in. */
static inline enum sp_access access_around(const struct sp_place_op *o)
{
    char parent[PATH_MAX];

    plan_parent(path_of(o), parent);
    if (op_over(parent) == NULL && (strcmp(parent, "/dev") == 0 || is_below(parent, "/dev")))
        return SP_ACCESS_DENY; /* the cell's own */
    return plan_access(parent);
}

static inline void check_op(const struct sp_place_op *o)
{
    const enum sp_access around = access_around(o);
    char parent[PATH_MAX];

    check_inode(o);
    plan_parent(path_of(o), parent);
    if (is_below(path_of(o), "/proc") || strcmp(path_of(o), "/proc") == 0)
        fail_msg("%s is the cell's own", path_of(o));
    assert_int_equal(o->op == SP_OP_PIN,
                     o->op != SP_OP_READ && o->op != SP_OP_EMPTY && around == SP_ACCESS_WRITE);
    if (o->op == SP_OP_READ)
        assert_int_not_equal(around, SP_ACCESS_READ);
    /* Only where nothing of the host's is, something may be made to mount over. */
    assert_int_equal(o->is_made,
                     (o->op == SP_OP_READ || o->op == SP_OP_WRITE) && around == SP_ACCESS_DENY);
    if (o->op == SP_OP_EMPTY) {
        assert_int_not_equal(around, SP_ACCESS_DENY);
        assert_int_equal(o->is_reopened, has_op_below(path_of(o)));
    } else {
        assert_int_equal(o->is_reopened, 0);
        assert_int_equal(o->mode, 0);
    }
    /* What may not be written has no directory above it that could be moved out of the way. */
    if ((o->op == SP_OP_READ || o->op == SP_OP_EMPTY) && around == SP_ACCESS_WRITE &&
        strcmp(parent, "/") != 0 && op_at(parent) == NULL)
        fail_msg("%s can be renamed, and %s with it", parent, path_of(o));
}

static inline void check_plan(void)
{
    bool has_links = false;

    assert_non_null(plan);
    assert_null(plan_flaw(flat.data, flat.len));
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const struct sp_place_op *o = &plan->ops[i];

        if (o->op == SP_OP_ALIAS) {
            has_links = true;
            check_alias(o);
            continue;
        }
        assert_false(has_links); /* links come last */
        if (i != 0 && !comes_before(path_of(&plan->ops[i - 1]), path_of(o)))
            fail_msg("%s is not before %s", path_of(&plan->ops[i - 1]), path_of(o));
        check_op(o);
    }
}

/* ---- making it ---- */

static inline int compile_try(bool has_network)
{
    sp_buf_done(&flat);
    plan = NULL;
    error = (struct sp_err){0};
    const int r = sp_plan_compile(&survey, &(struct sp_profile){.has_network = has_network},
                                  &host_features, &flat, &error);
    if (r == 0)
        plan = sp_plan_check(flat.data, flat.len);
    return r;
}

static inline void compile_with(bool has_network)
{
    auto_buf struct sp_buf again = {0};

    survey_now();
    if (compile_try(has_network) < 0)
        fail_msg("%s", error.msg);
    check_plan();
    assert_int_equal(sp_plan_compile(&survey, &(struct sp_profile){.has_network = has_network},
                                     &host_features, &again, &error),
                     0);
    assert_int_equal(again.len, flat.len);
    assert_memory_equal(again.data, flat.data, flat.len);
}
#define compile_now() compile_with(false)

static inline void compile_refused(bool has_network, const char *text)
{
    survey_now();
    const int r = compile_try(has_network);
    if (r == 0)
        fail_msg("not refused: %s", text);
    if (strcmp(error.msg, text) != 0)
        fail_msg("\"%s\"\n is not \"%s\"", error.msg, text);
    assert_int_equal(r, -(int)SP_E_INVALID);
}

/* ---- asserting ---- */

static inline const struct sp_place_op *sure_op(const char *path, enum sp_op op)
{
    const struct sp_place_op *o = op_at(path);

    if (o == NULL || o->op != op) {
        plan_print();
        print_error("%s: op %d, not %d\n", path, o == NULL ? 0 : o->op, (int)op);
        fail();
        abort();
    }
    return o;
}
#define writes(below) sure_op(at(below), SP_OP_WRITE)
#define reads(below)  sure_op(at(below), SP_OP_READ)
#define pins(below)   sure_op(at(below), SP_OP_PIN)

static inline void has_no_op(const char *below)
{
    if (op_at(at(below)) != NULL) {
        plan_print();
        fail_msg("%s has an op", below);
    }
}

static inline const struct sp_place_op *hides(const char *below, uint32_t mode, bool is_reopened)
{
    const struct sp_place_op *o = sure_op(at(below), SP_OP_EMPTY);

    assert_int_equal(o->mode, mode);
    assert_int_equal(o->is_reopened, is_reopened);
    return o;
}
#define denies(below) assert_int_not_equal(hides(below, 0, false)->ino, 0)

static inline void holds_place(const char *below)
{
    assert_int_equal(hides(below, 0555, false)->ino, 0);
}

/* Of those that are in the tree. */
static inline uint32_t ops_in_tree(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->op_count; i++)
        n += is_below(path_of(&plan->ops[i]), tree);
    return n;
}

#endif
