/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seatbelt_text: the parts of a seatbelt profile that are the same for every policy.
 */
#ifndef SP_SANDBOX_SEATBELT_TEXT_H
#define SP_SANDBOX_SEATBELT_TEXT_H

#define SP_SEATBELT_BASE                                                                     \
    "(version 1)\n"                                                                          \
    "(deny default)\n"                                                                       \
    "(allow process-exec)\n"                                                                 \
    "(allow process-fork)\n"                                                                 \
    "(allow signal (target same-sandbox))\n"                                                 \
    "(allow process-info* (target same-sandbox))\n"                                          \
    "(allow file-write-data\n"                                                               \
    "  (require-all (path \"/dev/null\") (vnode-type CHARACTER-DEVICE)))\n"                  \
    "(allow sysctl-read\n"                                                                   \
    "  (sysctl-name \"hw.activecpu\")\n"                                                     \
    "  (sysctl-name \"hw.busfrequency_compat\")\n"                                           \
    "  (sysctl-name \"hw.byteorder\")\n"                                                     \
    "  (sysctl-name \"hw.cacheconfig\")\n"                                                   \
    "  (sysctl-name \"hw.cachelinesize_compat\")\n"                                          \
    "  (sysctl-name \"hw.cpufamily\")\n"                                                     \
    "  (sysctl-name \"hw.cpufrequency_compat\")\n"                                           \
    "  (sysctl-name \"hw.cputype\")\n"                                                       \
    "  (sysctl-name \"hw.l1dcachesize_compat\")\n"                                           \
    "  (sysctl-name \"hw.l1icachesize_compat\")\n"                                           \
    "  (sysctl-name \"hw.l2cachesize_compat\")\n"                                            \
    "  (sysctl-name \"hw.l3cachesize_compat\")\n"                                            \
    "  (sysctl-name \"hw.logicalcpu\")\n"                                                    \
    "  (sysctl-name \"hw.logicalcpu_max\")\n"                                                \
    "  (sysctl-name \"hw.machine\")\n"                                                       \
    "  (sysctl-name \"hw.memsize\")\n"                                                       \
    "  (sysctl-name \"hw.model\")\n"                                                         \
    "  (sysctl-name \"hw.ncpu\")\n"                                                          \
    "  (sysctl-name \"hw.nperflevels\")\n"                                                   \
    "  (sysctl-name-prefix \"hw.optional.arm.\")\n"                                          \
    "  (sysctl-name-prefix \"hw.optional.armv8_\")\n"                                        \
    "  (sysctl-name \"hw.packages\")\n"                                                      \
    "  (sysctl-name \"hw.pagesize\")\n"                                                      \
    "  (sysctl-name \"hw.pagesize_compat\")\n"                                               \
    "  (sysctl-name-prefix \"hw.perflevel\")\n"                                              \
    "  (sysctl-name \"hw.physicalcpu\")\n"                                                   \
    "  (sysctl-name \"hw.physicalcpu_max\")\n"                                               \
    "  (sysctl-name \"hw.tbfrequency_compat\")\n"                                            \
    "  (sysctl-name \"hw.vectorunit\")\n"                                                    \
    "  (sysctl-name \"kern.argmax\")\n"                                                      \
    "  (sysctl-name \"kern.hostname\")\n"                                                    \
    "  (sysctl-name \"kern.maxfilesperproc\")\n"                                             \
    "  (sysctl-name \"kern.maxproc\")\n"                                                     \
    "  (sysctl-name \"kern.osproductversion\")\n"                                            \
    "  (sysctl-name \"kern.osrelease\")\n"                                                   \
    "  (sysctl-name \"kern.ostype\")\n"                                                      \
    "  (sysctl-name \"kern.osvariant_status\")\n"                                            \
    "  (sysctl-name \"kern.osversion\")\n"                                                   \
    "  (sysctl-name-prefix \"kern.proc.pgrp.\")\n"                                           \
    "  (sysctl-name-prefix \"kern.proc.pid.\")\n"                                            \
    "  (sysctl-name \"kern.secure_kernel\")\n"                                               \
    "  (sysctl-name \"kern.sysv.semmns\")\n"                                                 \
    "  (sysctl-name \"kern.usrstack64\")\n"                                                  \
    "  (sysctl-name \"kern.version\")\n"                                                     \
    "  (sysctl-name \"machdep.cpu.brand_string\")\n"                                         \
    "  (sysctl-name-prefix \"net.routetable.\")\n"                                           \
    "  (sysctl-name \"sysctl.proc_cputype\")\n"                                              \
    "  (sysctl-name \"vm.loadavg\"))\n"                                                      \
    "(allow sysctl-write (sysctl-name \"kern.grade_cputype\"))\n"                            \
    "(allow iokit-open (iokit-registry-entry-class \"RootDomainUserClient\"))\n"             \
    "(allow mach-lookup\n"                                                                   \
    "  (global-name \"com.apple.system.opendirectoryd.libinfo\")\n"                          \
    "  (global-name \"com.apple.PowerManagement.control\"))\n"                               \
    "(allow ipc-posix-sem)\n"                                                                \
    "(allow ipc-posix-shm-read-data ipc-posix-shm-write-create ipc-posix-shm-write-unlink\n" \
    "  (ipc-posix-name-regex #\"^/__KMP_REGISTERED_LIB_[0-9]+$\"))\n"                        \
    "(allow pseudo-tty)\n"                                                                   \
    "(allow file-read* file-write* file-ioctl (literal \"/dev/ptmx\"))\n"                    \
    "(allow file-read* file-write*\n"                                                        \
    "  (require-all (regex #\"^/dev/ttys[0-9]+\") (extension \"com.apple.sandbox.pty\")))\n" \
    "(allow file-ioctl (regex #\"^/dev/ttys[0-9]+\"))\n"

#define SP_SEATBELT_NETWORK                                                \
    "(allow network-outbound)\n"                                           \
    "(allow network-inbound)\n"                                            \
    "(allow system-socket\n"                                               \
    "  (require-all (socket-domain AF_SYSTEM) (socket-protocol 2)))\n"     \
    "(allow mach-lookup\n"                                                 \
    "  (global-name \"com.apple.bsd.dirhelper\")\n"                        \
    "  (global-name \"com.apple.system.opendirectoryd.membership\")\n"     \
    "  (global-name \"com.apple.SecurityServer\")\n"                       \
    "  (global-name \"com.apple.networkd\")\n"                             \
    "  (global-name \"com.apple.ocspd\")\n"                                \
    "  (global-name \"com.apple.trustd.agent\")\n"                         \
    "  (global-name \"com.apple.SystemConfiguration.DNSConfiguration\")\n" \
    "  (global-name \"com.apple.SystemConfiguration.configd\"))\n"

#define SP_SEATBELT_PREFERENCES                                                \
    "(allow ipc-posix-shm-read* (ipc-posix-name-prefix \"apple.cfprefs.\"))\n" \
    "(allow mach-lookup\n"                                                     \
    "  (global-name \"com.apple.cfprefsd.daemon\")\n"                          \
    "  (global-name \"com.apple.cfprefsd.agent\")\n"                           \
    "  (local-name \"com.apple.cfprefsd.agent\"))\n"                           \
    "(allow user-preference-read)\n"

/* What programs need to start: the word `minimal` of a profile. Nothing of it may be written but
 * the devices of every process. */
#define SP_SEATBELT_MINIMAL                                                                 \
    "(allow file-read*\n"                                                                   \
    "  (literal \"/\")\n"                                                                   \
    "  (subpath \"/Applications\")\n"                                                       \
    "  (subpath \"/Library/Apple\")\n"                                                      \
    "  (subpath \"/Library/Frameworks\")\n"                                                 \
    "  (subpath \"/System\")\n"                                                             \
    "  (subpath \"/bin\")\n"                                                                \
    "  (subpath \"/opt/homebrew/lib\")\n"                                                   \
    "  (subpath \"/private/etc\")\n"                                                        \
    "  (subpath \"/private/tmp\")\n"                                                        \
    "  (subpath \"/private/var/db/timezone\")\n"                                            \
    "  (subpath \"/private/var/tmp\")\n"                                                    \
    "  (subpath \"/sbin\")\n"                                                               \
    "  (subpath \"/usr/bin\")\n"                                                            \
    "  (subpath \"/usr/lib\")\n"                                                            \
    "  (subpath \"/usr/libexec\")\n"                                                        \
    "  (subpath \"/usr/sbin\")\n"                                                           \
    "  (subpath \"/usr/share\"))\n"                                                         \
    "(allow file-read-metadata (literal \"/etc\") (literal \"/tmp\") (literal \"/var\"))\n" \
    "(allow file-map-executable\n"                                                          \
    "  (subpath \"/System/Library\")\n"                                                     \
    "  (subpath \"/usr/lib\"))\n"                                                           \
    "(allow file-read* file-write-data file-ioctl\n"                                        \
    "  (literal \"/dev/dtracehelper\")\n"                                                   \
    "  (literal \"/dev/null\")\n"                                                           \
    "  (literal \"/dev/random\")\n"                                                         \
    "  (literal \"/dev/tty\")\n"                                                            \
    "  (literal \"/dev/urandom\")\n"                                                        \
    "  (literal \"/dev/zero\"))\n"

#endif
