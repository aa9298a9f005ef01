/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_url: parses the URL of a request as browsers do: white space around it and line breaks in it
 * are ignored, `\` counts as `/`, characters that are not allowed in a path are percent-encoded.
 */
#ifndef SP_CORE_HTTP_URL_H
#define SP_CORE_HTTP_URL_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct sp_web_url {       /* zero before use; sp_web_url_done after */
    struct sp_buf text;   /* absolute, ASCII but for the host, no fragment, no user; ends with 0 */
    struct sp_buf scheme; /* lower case */
    struct sp_buf userinfo; /* "user:password", decoded; empty: none was given */
    bool has_userinfo;
    bool is_http; /* http or https */
};

/* SP_E_INVALID: "relative URL without a base", "empty host", "invalid port number", ... A URL that
 * is not is_http has its scheme filled and nothing else. */
int sp_web_url_read(struct sp_str text, struct sp_web_url *u, struct sp_err *e);
static inline void sp_web_url_done(struct sp_web_url *u)
{
    sp_buf_done(&u->text);
    sp_buf_done(&u->scheme);
    sp_buf_done(&u->userinfo);
}
#define auto_web_url __attribute__((cleanup(sp_web_url_done)))

#endif
