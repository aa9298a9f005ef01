/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refuse: runs a program on a host that lacks something. Chosen system calls fail with a chosen
 * errno, for the program and all it starts.
 *
 *   refuse userns=EPERM,landlock=ENOSYS -- PROGRAM [ARGUMENT ...]
 *
 * The words are in the table below. A filter cannot look into the memory of clone3, which asks for
 * namespaces too: words about those take it away altogether, as old kernels do.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "the name of this architecture is not known here"
#endif
#ifndef __NR_mount_setattr
#define __NR_mount_setattr 442
#endif

#define MAX_CODE 256
#define ANY      (-1) /* whatever the argument is */

/* Refused if the argument (its low half) has one of the bits, or without bits is the value. */
struct rule {
    const char *word;
    int call;
    int argument; /* its number, or ANY */
    uint32_t bits, value;
    int always; /* this errno, whatever was asked for; 0: the one asked for */
};

static const struct rule rules[] = {
    {"userns", SYS_unshare, 0, CLONE_NEWUSER, 0, 0},
    {"userns", SYS_clone, 0, CLONE_NEWUSER, 0, 0},
    {"userns", SYS_clone3, ANY, 0, 0, ENOSYS},
    {"netns", SYS_unshare, 0, CLONE_NEWNET, 0, 0},
    {"netns", SYS_clone, 0, CLONE_NEWNET, 0, 0},
    {"netns", SYS_clone3, ANY, 0, 0, ENOSYS},
    {"pidns", SYS_unshare, 0, CLONE_NEWPID, 0, 0},
    {"pidns", SYS_clone, 0, CLONE_NEWPID, 0, 0},
    {"pidns", SYS_clone3, ANY, 0, 0, ENOSYS},
    {"landlock", SYS_landlock_create_ruleset, ANY, 0, 0, 0},
    {"landlock", SYS_landlock_add_rule, ANY, 0, 0, 0},
    {"landlock", SYS_landlock_restrict_self, ANY, 0, 0, 0},
    {"seccomp", SYS_seccomp, ANY, 0, 0, 0},
    {"seccomp", SYS_prctl, 0, 0, PR_SET_SECCOMP, 0},
    {"notify", SYS_seccomp, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 0},
    {"mount", SYS_mount, ANY, 0, 0, 0},
    {"mount", SYS_fsmount, ANY, 0, 0, 0},
    {"mount", SYS_open_tree, ANY, 0, 0, 0},
    {"mount", SYS_move_mount, ANY, 0, 0, 0},
    {"mount", __NR_mount_setattr, ANY, 0, 0, 0},
    {"fsopen", SYS_fsopen, ANY, 0, 0, 0},
    {"openat2", SYS_openat2, ANY, 0, 0, 0},
    {"pivot", SYS_pivot_root, ANY, 0, 0, 0},
    {"capset", SYS_capset, ANY, 0, 0, 0},
    {"pipesize", SYS_fcntl, 1, 0, F_SETPIPE_SZ, 0},
};

static const struct {
    const char *name;
    int value;
} errnos[] = {
    {"EPERM", EPERM},   {"EACCES", EACCES}, {"EBUSY", EBUSY},   {"EINVAL", EINVAL},
    {"ENOMEM", ENOMEM}, {"ENOSPC", ENOSPC}, {"ENOSYS", ENOSYS}, {"EOPNOTSUPP", EOPNOTSUPP},
};

static struct sock_filter code[MAX_CODE];
static unsigned short count;

static void add(uint16_t what, uint32_t k, uint8_t if_true, uint8_t if_false)
{
    if (count == MAX_CODE) {
        (void)fprintf(stderr, "refuse: too many words\n");
        exit(2);
    }
    code[count++] = (struct sock_filter)BPF_JUMP(what, k, if_true, if_false);
}

static void load(size_t offset)
{
    add(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void add_rule(const struct rule *r, int error)
{
    const uint32_t answer = SECCOMP_RET_ERRNO | (uint32_t)(r->always != 0 ? r->always : error);

    load(offsetof(struct seccomp_data, nr));
    if (r->argument == ANY) {
        add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)r->call, 0, 1);
    } else {
        /* The low half comes first here: both architectures are little endian. */
        add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)r->call, 0, 3);
        load(offsetof(struct seccomp_data, args) + 8 * (size_t)r->argument);
        add(BPF_JMP | (r->bits != 0 ? BPF_JSET : BPF_JEQ) | BPF_K,
            r->bits != 0 ? r->bits : r->value, 0, 1);
    }
    add(BPF_RET | BPF_K, answer, 0, 0);
}

static int errno_named(const char *name)
{
    for (size_t i = 0; i < sizeof errnos / sizeof errnos[0]; i++)
        if (strcmp(errnos[i].name, name) == 0)
            return errnos[i].value;
    (void)fprintf(stderr, "refuse: no errno is called %s here\n", name);
    exit(2);
}

static void add_word(const char *word, int error)
{
    int found = 0;

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(rules[i].word, word) == 0) {
            add_rule(&rules[i], error);
            found++;
        }
    if (found == 0) {
        (void)fprintf(stderr, "refuse: what is %s?\n", word);
        exit(2);
    }
}

static void read_words(char *list)
{
    char *rest = NULL;

    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        char *is = strchr(word, '=');

        if (is == NULL) {
            (void)fprintf(stderr, "refuse: %s has no errno\n", word);
            exit(2);
        }
        *is = 0;
        add_word(word, errno_named(is + 1));
    }
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

int main(int argc, char **argv)
{
    if (argc < 4 || strcmp(argv[2], "--") != 0) {
        (void)fprintf(stderr, "usage: refuse WORD=ERRNO[,...] -- PROGRAM [ARGUMENT ...]\n");
        return 2;
    }
    read_words(argv[1]);
    const struct sock_fprog program = {count, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) {
        perror("refuse");
        return 2;
    }
    (void)execvp(argv[3], argv + 3);
    perror(argv[3]);
    return 127;
}
