/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error: the error type.
 *
 * A function that can fail returns 0 or minus a code, and fills *e. The struct is on the caller's
 * stack: it needs no allocation, so that it works without memory too.
 */
#ifndef SP_BASE_ERROR_H
#define SP_BASE_ERROR_H

#define SP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SP_NORETURN          __attribute__((noreturn))

/* name, number on the JSON-RPC wire, what it is for */
#define SP_CODES(X)                                                             \
    X(NONE, 0, "no error")                                                      \
    X(MALFORMED, -32600, "bytes that are not a message of this protocol")       \
    X(STATE, -32600, "the request does not fit the present state")              \
    X(NO_METHOD, -32601, "unknown method")                                      \
    X(INVALID, -32602, "a parameter is missing, of the wrong type or unusable") \
    X(NOT_FOUND, -32004, "a file or handle that is not there")                  \
    X(ATTACHED, -32010, "the session belongs to another connection")            \
    X(LIMIT, -32603, "a bound of ours was reached")                             \
    X(SYSTEM, -32603, "the kernel said no")                                     \
    X(FAILED, -32603, "the work failed")                                        \
    X(ROLE, -32011, "the role of the console does not allow it")

enum sp_code {
#define X(name, wire, text) SP_E_##name,
    SP_CODES(X)
#undef X
        SP_E_MAX
};

struct sp_err {
    enum sp_code code;
    int sys;       /* errno of the failed system call, else 0 */
    char msg[400]; /* valid UTF-8 if its parts were; truncated between characters */
};

/* Fills *e (which may be NULL) and returns -code: `return sp_fail(...)`. */
SP_PRINTF(4, 5) int sp_fail(struct sp_err *e, enum sp_code code, int sys, const char *fmt, ...);

/* Puts "context: " in front of the message of *e and returns its -code. */
SP_PRINTF(2, 3) int sp_wrap(struct sp_err *e, const char *fmt, ...);

/* The JSON-RPC error number of the code. */
int sp_code_wire(enum sp_code code);

/* The C library's text in English, whatever the locale; "Unknown error" for a number without one.
 */
const char *sp_errno_text(int err);

/* "msg: strerror" for users; buf is always terminated. Returns buf. */
const char *sp_error_text(const struct sp_err *e, char *buf, unsigned long size);

#endif
