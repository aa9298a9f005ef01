/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream: the output streams of a command.
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
