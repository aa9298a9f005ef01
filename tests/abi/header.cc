/* SPDX-License-Identifier: Apache-2.0 */
/* The header in a C++ program: what it declares can be used there. */
#include <sallyport.h>

namespace
{

void on_answer(void *user, const sp_answer *answer)
{
    *static_cast<int *>(user) = answer->outcome == SP_OUTCOME_EXITED ? answer->exit_code : -1;
}

} // namespace

int run_true(int *code)
{
    const char *const argv[] = {"true", nullptr};
    sp_engine_options options = sp_engine_options();
    sp_run_options run = sp_run_options();
    sp_engine *engine = nullptr;
    sp_error error = sp_error();

    options.size = sizeof options;
    run.size = sizeof run;
    run.argv = argv;
    run.timeout_ms = SP_FOREVER;
    if (sp_engine_new(&options, &engine, &error) < 0)
        return -error.code;
    int r = sp_engine_run(engine, &run, on_answer, code, nullptr, &error);
    while (r == 0 && *code == -2)
        r = sp_engine_dispatch(engine, -1, &error);
    sp_engine_free(engine);
    return r;
}
