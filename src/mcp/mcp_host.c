/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/mcp_host.h"

/* Of clientInfo.name, from the hosts' own releases; case does not matter. These hosts show models
 * the text, or both forms; Claude Code and Codex, which show the structured form alone, are like
 * any host that is not known. */
static const struct sp_str reads_text[] = {
    SP_STR("gemini-cli"), SP_STR("qwen-"),   SP_STR("opencode"), SP_STR("continue-"),
    SP_STR("cline"),      SP_STR("@cline/"), SP_STR("copilot"),  SP_STR("github-copilot"),
};

bool sp_mcp_host_repeats_output(enum sp_mcp_structured_output when, struct sp_str name)
{
    if (when != SP_MCP_OUTPUT_AUTO)
        return when == SP_MCP_OUTPUT_ALWAYS;
    for (size_t i = 0; i < sizeof reads_text / sizeof reads_text[0]; i++)
        if (name.n >= reads_text[i].n &&
            sp_str_eq_nocase((struct sp_str){name.p, reads_text[i].n}, reads_text[i]))
            return false;
    return true;
}
