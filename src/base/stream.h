/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream: which output of a command a piece belongs to.
 */
#ifndef SP_BASE_STREAM_H
#define SP_BASE_STREAM_H

enum sp_stream {
    SP_STREAM_STDOUT,
    SP_STREAM_STDERR,
    SP_STREAM_PTY,
    SP_STREAM_MAX,
};

#endif
