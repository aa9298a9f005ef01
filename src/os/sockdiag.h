/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockdiag: the inode of one TCP connection, asked on a NETLINK_SOCK_DIAG socket of its network
 * namespace. A microsecond or three; nothing blocks.
 */
#ifndef SP_OS_SOCKDIAG_H
#define SP_OS_SOCKDIAG_H

#include <stdint.h>

/* Addresses in network order, ports in host order: as the process that has the socket sees them.
 * 0: there is no such connection, or the kernel does not tell. */
uint64_t sp_sockdiag_inode(int netlink, uint32_t local_address, uint16_t local_port,
                           uint32_t remote_address, uint16_t remote_port);

#endif
