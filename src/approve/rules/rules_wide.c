/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes that would allow anything at all (5.7): never offered, a longer one may be. */
#include "approve/rules/rules.h"

/* The programs of a line are too wide alone, and each with one of these words behind it. */
static const struct {
    const char *programs, *words; /* with blanks between them */
    bool is_fine_alone;
} wide[] = {
    {"/bin/bash /bin/sh /bin/zsh bash sh zsh", "-c -lc", false},
    {"dash fish ksh", "-c", false},
    {"cmd cmd.exe", "/c /k", false},
    {"powershell powershell.exe pwsh", "-Command -EncodedCommand -File -c", false},
    {"pwsh", "-e -ec -f", false},
    {"python python3", "- -c", false},
    {"py", "-3", false},
    {"pythonw pyw pypy pypy3", "", false},
    {"node nodejs perl ruby lua julia", "-e", false},
    {"php", "-r", false},
    {"deno", "eval", false},
    {"bun", "-e run", false},
    {"npm pnpm yarn", "run", true},
    {"Rscript osascript env git rm sudo", "", false},
};

static bool is_among(struct sp_str word, const char *list)
{
    while (*list != 0) {
        const size_t n = strcspn(list, " ");

        if (sp_str_eq(word, (struct sp_str){list, n}))
            return true;
        list += n + (list[n] == ' ');
    }
    return false;
}

bool sp_rules_is_too_wide(struct sp_words prefix)
{
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (prefix.count == 0 || !is_among(prefix.items[0], wide[i].programs))
            continue;
        if (prefix.count == 1 && !wide[i].is_fine_alone)
            return true;
        if (prefix.count == 2 && is_among(prefix.items[1], wide[i].words))
            return true;
    }
    return false;
}
