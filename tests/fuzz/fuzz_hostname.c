/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that is read has one spelling, which reads as itself; a name is a name of DNS; what the
 * resolver takes for an address is one, and one of this machine is local.
 */
#include <arpa/inet.h>

#include "base/auto.h"
#include "base/hostname.h"
#include "fuzz.h"

static void check_name(const char *text)
{
    size_t label = 0;

    for (const char *p = text; *p != 0; p++) {
        CHECK(*p == '.' || *p == '-' || *p == '_' || (*p >= '0' && *p <= '9') ||
              (*p >= 'a' && *p <= 'z'));
        CHECK(*p != '.' || label != 0);
        label = *p == '.' ? 0 : label + 1;
        CHECK(label <= 63);
    }
    CHECK(label != 0);
}

static void check_address(const struct sp_hostname *h)
{
    char text[sizeof h->text];
    struct in6_addr v6;
    struct in_addr v4;

    memcpy(text, h->text, sizeof text);
    text[strcspn(text, "%")] = 0;
    if (inet_pton(AF_INET, text, &v4) == 1)
        CHECK(h->is_local || (ntohl(v4.s_addr) >> 24 != 127 && v4.s_addr != 0));
    else
        CHECK(inet_pton(AF_INET6, text, &v6) == 1 &&
              (h->is_local || !(IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6) ||
                                IN6_IS_ADDR_V4MAPPED(&v6) || IN6_IS_ADDR_LINKLOCAL(&v6))));
}

static void check_host(const struct sp_hostname *h)
{
    const size_t n = strlen(h->text);
    struct sp_hostname again;
    struct in_addr v4;

    CHECK(n > 0 && n <= SP_HOSTNAME_MAX);
    CHECK(sp_hostname_read((struct sp_str){h->text, n}, &again) == NULL);
    CHECK(strcmp(h->text, again.text) == 0 && h->is_address == again.is_address &&
          h->is_local == again.is_local);
    CHECK(h->is_address || inet_aton(h->text, &v4) == 0);
    if (h->is_address)
        check_address(h);
    else
        check_name(h->text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    struct sp_hostname h = {.text = "untouched"};
    const char *wrong = sp_hostname_read((struct sp_str){text, size}, &h);

    if (wrong == NULL)
        check_host(&h);
    else
        CHECK(*wrong != 0 && strcmp(h.text, "untouched") == 0);
    return 0;
}
