/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suites: the attempts that need a policy, or a neighbour, of their own.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/socket.h>

#include "escape.h"
#include "tries.h"

/* clang-format off */

/* .git is a file that names a directory inside. */
static const struct row gitfile[] = {
    {"116", "write-gitdir", "EROFS", try_write, "w/real.git/HEAD", NULL, 0, 0},
    {"116", "create-in-gitdir", "EROFS", try_create, "w/real.git/hook", NULL, 0, 0},
    {"116", "rename-gitdir", "EBUSY", try_rename, "w/real.git", "w/away", 0, 0},
    {"116", "write-gitfile", "EROFS", try_write, "w/.git", NULL, 0, 0},
    {"116", "rename-gitfile", "EBUSY", try_rename, "w/.git", "w/git2", 0, 0},
    {"116", "unlink-gitfile", "EBUSY", try_unlink, "w/.git", NULL, 0, 0},
    {"116", "replace-gitfile", "EBUSY", try_rename, "w/x", "w/.git", 0, 0},
    {"116", "read-gitdir", "ok", try_read, "w/real.git/HEAD", NULL, 0, TWIN},
    {"116", "write-beside-gitdir", "ok", try_write, "w/x", NULL, 0, TWIN},
    {0},
};

/* w/secret (a file), w/private (a directory), o/secret, and what matches w/(any).env are denied;
 * w/program is a denied copy of this program. */
static const struct row deny[] = {
    {"121", "read-secret", "EACCES", try_read, "w/secret", NULL, 0, 0},
    {"121", "open-secret-for-writing", "EACCES/EROFS", try_open, "w/secret", NULL, O_WRONLY, 0},
    {"121", "reopen-secret", "EACCES", try_reopen, "w/secret", NULL, O_PATH, 0},
    {"121", "link-secret", "EXDEV", try_link, "w/secret", "w/hl", 0, 0},
    {"121", "sendfile-secret", "EACCES", try_sendfile, "w/secret", NULL, 0, 0},
    {"121", "mmap-secret", "EACCES", try_mmap, "w/secret", NULL, 0, 0},
    {"121", "execute-secret", "EACCES", try_exec, "w/program", NULL, 0, 0},
    {"121", "secret-is-covered", "ok", try_cover, "w/secret", NULL, 0, 0},
    {"121", "chmod-secret", "EROFS", try_chmod, "w/secret", NULL, 0644, 0},
    {"121", "rename-secret", "EBUSY", try_rename, "w/secret", "w/known", 0, 0},
    {"121", "unlink-secret", "EBUSY", try_unlink, "w/secret", NULL, 0, 0},
    {"121", "list-private", "EACCES", try_list, "w/private", NULL, 0, 0},
    {"121", "read-in-private", "EACCES", try_read, "w/private/f", NULL, 0, 0},
    {"121", "chmod-private", "EROFS", try_chmod, "w/private", NULL, 0755, 0},
    {"121", "rename-private", "EBUSY", try_rename, "w/private", "w/public", 0, 0},
    {"121", "umount-private", "EPERM", try_umount, "w/private", NULL, 2, 0},
    {"121", "read-secret-outside", "EACCES", try_read, "o/secret", NULL, 0, 0},
    {"121", "read-secret-by-root", "EACCES", try_read_by_root, "o/secret", NULL, 0, 0},
    {"121", "create-missing-denied", "EACCES/EEXIST/EROFS/EISDIR",
     try_create, "w/later", NULL, 0, 0},
    {"121", "read-beside-secret", "ok", try_read, "w/x", NULL, 0, TWIN},
    {"121", "execute-program", "ok", try_exec, "program", NULL, 0, TWIN},
    {"123", "read-glob-match", "EACCES", try_read, "w/d/a.env", NULL, 0, 0},
    {"123", "read-glob-match-at-top", "EACCES", try_read, "w/b.env", NULL, 0, 0},
    {"123", "read-target-of-glob-match", "EACCES", try_read, "o/target", NULL, 0, 0},
    {"123", "rename-glob-match", "EBUSY", try_rename, "w/b.env", "w/b.txt", 0, 0},
    {"123", "glob-matches-later", "ok", try_rename, "w/d/plain", "w/d/plain.env", 0, TWIN},
    {"123", "read-glob-no-match", "ok", try_read, "w/d/plain", NULL, 0, TWIN},
    {0},
};

/* w is written, w/a denied, w/a/b written. */
static const struct row nesting[] = {
    {"124", "repo-read", "ok", try_read, "w/x", NULL, 0, TWIN},
    {"124", "repo-write", "ok", try_write, "w/x", NULL, 0, TWIN},
    {"124", "repo-create", "ok", try_create, "w/new", NULL, 0, TWIN},
    {"124", "denied-read", "EACCES/ENOENT", try_read, "w/a/x", NULL, 0, 0},
    {"124", "denied-write", "EACCES/ENOENT/EROFS", try_write, "w/a/x", NULL, 0, 0},
    {"124", "denied-create", "EACCES/EROFS", try_create, "w/a/new", NULL, 0, 0},
    {"124", "reopened-read", "ok", try_read, "w/a/b/x", NULL, 0, TWIN},
    {"124", "reopened-write", "ok", try_write, "w/a/b/x", NULL, 0, TWIN},
    {"124", "reopened-create", "ok", try_create, "w/a/b/new", NULL, 0, TWIN},
    {"124", "denied-list", "EACCES", try_list, "w/a", NULL, 0, 0},
    {"124", "denied-rename", "EBUSY", try_rename, "w/a", "w/c", 0, 0},
    {"124", "reopened-rename", "EBUSY/EROFS", try_rename, "w/a/b", "w/a/c", 0, 0},
    {"124", "reopened-rename-out", "EBUSY/EXDEV", try_rename, "w/a/b", "w/b", 0, 0},
    {0},
};

/* Nothing may be written. */
static const struct row readonly[] = {
    {"125", "read-only-write", "EROFS", try_write, "w/x", NULL, 0, 0},
    {"125", "read-only-create", "EROFS", try_create, "w/new", NULL, 0, 0},
    {"125", "read-only-mkdir", "EROFS", try_mkdir, "w/new", NULL, 0, 0},
    {"125", "read-only-unlink", "EROFS", try_unlink, "w/x", NULL, 0, 0},
    {"125", "read-only-rename", "EROFS", try_rename, "w/x", "w/y", 0, 0},
    {"125", "read-only-chmod", "EROFS", try_chmod, "w/x", NULL, 0600, 0},
    {"125", "read-only-times", "EROFS", try_times, "w/x", NULL, 0, 0},
    {"125", "read-only-xattr", "EROFS", try_xattr, "w/x", NULL, 0, 0},
    {"125", "read-only-truncate", "EROFS", try_truncate, "w/x", NULL, 0, 0},
    {"125", "read-only-tmp", "EROFS", try_create, "/tmp/sallyport-escape", NULL, 0, 0},
    {"125", "read-only-var-tmp", "EROFS", try_create, "/var/tmp/sallyport-escape", NULL, 0, 0},
    {"125", "read-only-tmpdir", "EROFS", try_create, "t/new", NULL, 0, 0},
    {"125", "read-only-git", "EROFS", try_create, "w/.git/new", NULL, 0, 0},
    {"125", "read-only-codex", "EROFS", try_mkdir, "w/.codex", NULL, 0, 0},
    {"125", "read-only-shm", "ok", try_create, "/dev/shm/escape-ro", NULL, 0, TWIN},
    {"125", "read-only-read", "ok", try_read, "w/x", NULL, 0, TWIN},
    {"125", "read-only-null", "ok", try_write_null, "/dev/null", NULL, 0, TWIN},
    {0},
};

/* Only the minimum, the workspace and this program may be read. */
static const struct row minimal[] = {
    {"125", "minimal-outside", "ENOENT", try_read, "o/f", NULL, 0, 0},
    {"125", "minimal-list-outside", "ENOENT", try_list, "o", NULL, 0, 0},
    {"125", "minimal-stat-outside", "ENOENT", try_stat, "o/f", NULL, 0, 0},
    {"125", "minimal-write-outside", "ENOENT/EROFS", try_create, "o/new", NULL, 0, 0},
    {"125", "minimal-create-at-slash", "EROFS/EACCES", try_create, "/escape", NULL, 0, 0},
    {"125", "minimal-home", "ENOENT/EACCES", try_list, "/root", NULL, 0, 0},
    {"125", "minimal-init", "EACCES", try_list, "/proc/1/root/", NULL, 0, 0},
    {"125", "minimal-write", "ok", try_create, "w/new", NULL, 0, TWIN},
    {"125", "minimal-git", "EROFS", try_write, "w/.git/HEAD", NULL, 0, 0},
    {"125", "minimal-mkdir-codex", "EEXIST/EROFS", try_mkdir, "w/.codex", NULL, 0, 0},
    {"125", "minimal-program", "ok", try_open, "/bin/sh", NULL, O_RDONLY, TWIN},
    {"125", "minimal-passwd", "ok", try_open, "/etc/passwd", NULL, O_RDONLY, TWIN},
    {0},
};

/* The workspace is below /tmp, which may be written too: what is between them is pinned. */
static const struct row inner[] = {
    {"35", "inner-write-git", "EROFS", try_write, "w/.git/HEAD", NULL, 0, 0},
    {"35", "inner-rename-git", "EBUSY", try_rename, "w/.git", "w/git2", 0, 0},
    {"35", "inner-mkdir-codex", "EEXIST/EROFS", try_mkdir, "w/.codex", NULL, 0, 0},
    {"35", "inner-write-carve-out", "EROFS", try_write, "w/sub/ro/f", NULL, 0, 0},
    {"35", "inner-rename-root", "EBUSY", try_rename, "w", "w2", 0, 0},
    {"35", "inner-rename-parent", "EBUSY", try_rename, "base", "base2", 0, 0},
    {"35", "inner-exchange-parent", "EBUSY", try_rename, "base", "tmp", RENAME_EXCHANGE, 0},
    {"35", "inner-write-beside", "ok", try_write, "o/f", NULL, 0, TWIN},
    {"35", "inner-write", "ok", try_write, "w/x", NULL, 0, TWIN},
    {"35", "inner-rename-other", "ok", try_rename, "o", "o2", 0, TWIN},
    {0},
};

/* An entry gives .git back. */
static const struct row reopened[] = {
    {"25", "reopened-write-git", "ok", try_write, "w/.git/HEAD", NULL, 0, TWIN},
    {"25", "reopened-create-hook", "ok", try_create, "w/.git/hooks/mine", NULL, 0, TWIN},
    {"25", "reopened-mkdir-codex", "EEXIST/EROFS", try_mkdir, "w/.codex", NULL, 0, 0},
    {"25", "reopened-open-outside", "EROFS", try_open, "o/f", NULL, O_WRONLY, 0},
    {0},
};

/* The whole disk is open: the rest of the sandbox is not. */
static const struct row open_disk[] = {
    {"1", "disk-write-outside", "ok", try_write, "o/f", NULL, 0, TWIN},
    {"25", "disk-write-git", "ok", try_write, "w/.git/HEAD", NULL, 0, TWIN},
    {"31", "disk-mkdir-codex", "ok", try_mkdir, "w/.codex", NULL, 0, TWIN},
    {"37", "disk-mount-tmpfs", "EPERM", try_mount_tmpfs, "w/mnt", NULL, 0, 0},
    {"46", "disk-unshare-user", "EPERM", try_unshare, NULL, NULL, CLONE_NEWUSER, 0},
    {"51", "disk-ptrace", "EPERM", try_ptrace_child, NULL, NULL, PTRACE_ATTACH, 0},
    {"55", "disk-signal-host", "ESRCH", try_kill, "host", NULL, 0, 0},
    {"79", "disk-connect-to-host", "ECONNREFUSED", try_connect_host, "127.0.0.1", NULL, 0, 0},
    {"86", "disk-unix-stream", "EPERM", try_unix, "stream", NULL, SOCK_STREAM, 0},
    {"102", "disk-core-pattern", "EROFS/EACCES", try_open, "/proc/sys/kernel/core_pattern", NULL,
     O_WRONLY, 0},
    {"104", "disk-write-sys", "EROFS/EACCES", try_write_sys, "/sys/module", NULL, 0, 0},
    {"108", "disk-root-of-init", "EACCES", try_list, "/proc/1/root/", NULL, 0, 0},
    {"111", "disk-no-capabilities", "ok", try_capabilities, NULL, NULL, 0, 0},
    {"115", "disk-control-socket-covered", "ok", try_no_socket, "socket", NULL, 0, 0},
    {"115", "disk-runtime-directory", "ENOENT/EACCES", try_open, "runtime/secret", NULL,
     O_RDONLY, 0},
    {0},
};

/* Landlock alone, no writable root: what it does not cover the filter has to. */
static const struct row thin[] = {
    {"126", "thin-chmod", "EPERM", try_chmod, "o/f", NULL, 0600, 0},
    {"126", "thin-fchmod", "EPERM", try_fchmod, "o/f", NULL, 0, 0},
    {"126", "thin-times", "EPERM", try_times, "o/f", NULL, 0, 0},
    {"126", "thin-xattr", "EPERM", try_xattr, "o/f", NULL, 0, 0},
    {"126", "thin-flags", "EPERM", try_flags, "o/f", NULL, 0, 0},
    {"126", "thin-read", "ok", try_read, "o/f", NULL, 0, TWIN},
    {0},
};

/* The process that all commands of the cell are children of. */
static const struct row cell[] = {
    {"129", "stop-init", "ok/EPERM", try_kill, "init", NULL, SIGSTOP, 0},
    {"129", "kill-init", "ok/EPERM", try_kill, "init", NULL, SIGKILL, 0},
    {"129", "terminate-init", "ok/EPERM", try_kill, "init", NULL, SIGTERM, 0},
    {"135", "read-cell-program", "EACCES", try_proc_file, "init", "exe", O_RDONLY, 0},
    {"135", "write-cell-program", "EACCES/EROFS", try_proc_file, "init", "exe", O_WRONLY, 0},
    {"135", "read-cell-memory", "EACCES", try_proc_file, "init", "mem", O_RDONLY, 0},
    {"135", "write-cell-memory", "EACCES/EROFS", try_proc_file, "init", "mem", O_RDWR, 0},
    {"135", "cell-environment", "EACCES", try_proc_file, "init", "environ", O_RDONLY, 0},
    {"135", "cell-maps", "EACCES", try_proc_file, "init", "maps", O_RDONLY, 0},
    {"135", "cell-memory-map", "EACCES/ENOENT", try_proc_list, "init", "map_files", 0, 0},
    {"135", "cell-stdin", "EACCES", try_proc_file, "init", "fd/0", O_RDONLY, 0},
    {"135", "cell-descriptors", "EACCES/ENOENT", try_foreign_fds, NULL, NULL, 0, 0},
    {"135", "trace-cell", "EPERM", try_ptrace, "init", NULL, PTRACE_SEIZE, 0},
    {"135", "vm-read-cell", "EPERM", try_vm_read_of, "init", NULL, 0, 0},
    {"135", "read-limits-of-cell", "EPERM", try_limit_of, "init", NULL, 0, 0},
    {"135", "set-limits-of-cell", "EPERM", try_set_limit_of, "init", NULL, 0, 0},
    {"135", "sigio-to-cell", "EPERM", try_sigio, "init", NULL, 0, 0},
    {0},
};

/* Another command of the same cell. */
static const struct row neighbour[] = {
    {"130", "kill-neighbour", "EPERM", try_kill, "victim", NULL, SIGKILL, 0},
    {"130", "stop-neighbour", "EPERM", try_kill, "victim", NULL, SIGSTOP, 0},
    {"130", "trace-neighbour", "EPERM", try_ptrace, "victim", NULL, PTRACE_ATTACH, 0},
    {"130", "vm-read-neighbour", "EPERM", try_vm_read_of, "victim", NULL, 0, 0},
    {"130", "memory-of-neighbour", "EACCES/EPERM", try_proc_file, "victim", "mem", O_RDONLY, 0},
    {"130", "environment-of-neighbour", "EACCES/EPERM",
     try_proc_file, "victim", "environ", O_RDONLY, 0},
    {"130", "stdin-of-neighbour", "EACCES/EPERM", try_proc_file, "victim", "fd/0", O_RDONLY, 0},
    {"130", "stdout-of-neighbour", "EACCES/EPERM", try_proc_file, "victim", "fd/1", O_WRONLY, 0},
    {"130", "root-of-neighbour", "EACCES/EPERM", try_proc_list, "victim", "root/", 0, 0},
    {"130", "set-limits-of-neighbour", "EPERM", try_set_limit_of, "victim", NULL, 0, 0},
    {"130", "sigio-to-neighbour", "EPERM", try_sigio, "victim", NULL, 0, 0},
    {"130", "see-neighbour", "ok", try_proc_file, "victim", "status", O_RDONLY, TWIN},
    {0},
};

/* As many Landlock domains as there can be. */
static const struct row nested[] = {
    {"132", "one-domain-too-many", "E2BIG", try_nest, NULL, NULL, 0, 0},
    {"132", "nested-open-outside", "EROFS", try_nested_again, "open-outside", NULL, 0, 0},
    {"132", "nested-mount-tmpfs", "EPERM", try_nested_again, "mount-tmpfs", NULL, 0, 0},
    {"132", "nested-unshare-user", "EPERM", try_nested_again, "unshare-user", NULL, 0, 0},
    {"132", "nested-write-inside", "ok", try_nested_again, "write-inside", NULL, 0, TWIN},
    {0},
};

/* While w/sub is now a directory and now a symlink to o. */
static const struct row race[] = {
    {"119", "race-write-outside", "EROFS", try_write, "o/f", NULL, 0, 0},
    {"119", "race-create-outside", "EROFS", try_create, "o/race", NULL, 0, 0},
    {"119", "race-write-carve-out", "EROFS", try_write, "o/ro/f", NULL, 0, 0},
    {"119", "race-chmod-outside", "EROFS", try_chmod, "o/f", NULL, 0600, 0},
    {"119", "race-write-by-name", "EROFS/ENOENT/ENOTDIR/ok", try_write, "w/sub/ro/f", NULL, 0, 0},
    {"119", "race-write-inside", "ok", try_write, "w/x", NULL, 0, TWIN},
    {0},
};

/* clang-format on */

const struct suite suites[] = {
    {"workspace", workspace_rows},
    {"gitfile", gitfile},
    {"deny", deny},
    {"nesting", nesting},
    {"readonly", readonly},
    {"minimal", minimal},
    {"inner", inner},
    {"reopened", reopened},
    {"open", open_disk},
    {"thin", thin},
    {"cell", cell},
    {"neighbour", neighbour},
    {"nested", nested},
    {"race", race},
};
const size_t suite_count = sizeof suites / sizeof suites[0];
