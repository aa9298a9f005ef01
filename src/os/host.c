/* SPDX-License-Identifier: Apache-2.0 */
#include "os/host.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/sha.h"

static void copy(char *out, size_t size, const char *text)
{
    const size_t n = strnlen(text, size - 1);

    memcpy(out, text, n);
    out[n] = 0;
}

/* Home and login shell. Reads /etc/passwd directly: getpwuid may load NSS modules. */
static void find_account(struct sp_host *h)
{
    const uid_t uid = getuid();
    FILE *f = fopen("/etc/passwd", "re");
    char line[1024];
    bool found = false;

    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        char *field[7];
        char *rest = line;
        int n = 0;

        line[strcspn(line, "\n")] = 0;
        while (n < 7 && rest != NULL)
            field[n++] = strsep(&rest, ":");
        if (n == 7 && strtoul(field[2], NULL, 10) == uid && field[2][0] != 0) {
            copy(h->home, sizeof h->home, field[5]);
            copy(h->login_shell, sizeof h->login_shell, field[6]);
            found = true;
        }
    }
    if (f != NULL)
        (void)fclose(f);
    const struct passwd *p = found ? NULL : getpwuid(uid);
    if (p != NULL) {
        copy(h->home, sizeof h->home, p->pw_dir);
        copy(h->login_shell, sizeof h->login_shell, p->pw_shell);
    }
    if (h->login_shell[0] == 0)
        copy(h->login_shell, sizeof h->login_shell, "/bin/sh");
    const char *home = getenv("HOME");
    if (home != NULL && home[0] != 0)
        copy(h->home, sizeof h->home, home);
}

static bool is_program(const char *path)
{
    return path[0] == '/' && access(path, X_OK) == 0;
}

/* kind: the name clients know; preferred: tried before PATH and the usual places. */
static bool locate(const char *kind, const char *program, const char *preferred, struct sp_host *h)
{
    static const char *const usual[] = {"/bin/zsh", "/bin/bash", "/usr/bin/bash", "/bin/sh"};
    const char *dirs = getenv("PATH");
    char path[256];
    bool found = preferred != NULL && is_program(preferred);

    if (found)
        copy(path, sizeof path, preferred);
    while (!found && dirs != NULL && *dirs != 0) {
        const size_t n = strcspn(dirs, ":");

        found = n != 0 &&
                snprintf(path, sizeof path, "%.*s/%s", (int)n, dirs, program) < (int)sizeof path &&
                is_program(path);
        dirs += n;
        dirs += *dirs == ':';
    }
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && !found; i++) {
        found = strcmp(strrchr(usual[i], '/') + 1, program) == 0 && is_program(usual[i]);
        copy(path, sizeof path, usual[i]);
    }
    if (!found)
        return false;
    copy(h->shell_name, sizeof h->shell_name, kind);
    copy(h->shell_path, sizeof h->shell_path, path);
    return true;
}

/* The shell of the account if clients know its kind, else bash, zsh, sh in this order. */
void sp_host_choose_shell(struct sp_host *h)
{
    static const char *const known[][2] = {{"zsh", "zsh"},
                                           {"bash", "bash"},
                                           {"sh", "sh"},
                                           {"pwsh", "powershell"},
                                           {"powershell", "powershell"}};
    const char *slash = strrchr(h->login_shell, '/');
    char base[64];

    copy(base, sizeof base, slash != NULL ? slash + 1 : h->login_shell);
    char *dot = strrchr(base, '.');
    if (dot != NULL && dot != base)
        *dot = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(base, known[i][0]) == 0 && locate(known[i][1], known[i][0], h->login_shell, h))
            return;
    if (locate("bash", "bash", NULL, h) || locate("zsh", "zsh", NULL, h))
        return;
    copy(h->shell_name, sizeof h->shell_name, "sh");
    copy(h->shell_path, sizeof h->shell_path, "/bin/sh");
}

/* A hash of machine-id, host name and uid: the id tells nothing about them. */
static void identify(struct sp_host *h)
{
    char text[256];
    char machine[64] = "";
    struct utsname name = {0};
    uint8_t sum[32];

    FILE *f = fopen("/etc/machine-id", "re");
    if (f != NULL) {
        if (fgets(machine, sizeof machine, f) == NULL)
            machine[0] = 0;
        machine[strcspn(machine, "\n")] = 0;
        (void)fclose(f);
    }
    (void)uname(&name);
    const int n = snprintf(text, sizeof text, "sallyport executor\n%s\n%.64s\n%u", machine,
                           name.nodename, (unsigned)getuid());
    sp_sha256((struct sp_str){text, (size_t)n}, sum);
    copy(h->provider_id, sizeof h->provider_id, "sha256:");
    sp_hex(sum, sizeof sum, h->provider_id + 7);
}

void sp_host_detect(struct sp_host *ret)
{
    memset(ret, 0, sizeof *ret);
    find_account(ret);
    sp_host_choose_shell(ret);
    identify(ret);
}
