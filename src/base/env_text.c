/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env_text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

bool stepaf_env_ports(const char *text, uint16_t *first_p, uint16_t *last_p)
{
    unsigned long first = 0, last = 0;
    char *end;

    if (text[0]) {
        if (text[0] < '0' || text[0] > '9')
            return false;
        first = last = strtoul(text, &end, 10);
        if (*end == '-') {
            if (end[1] < '0' || end[1] > '9')
                return false;
            last = strtoul(end + 1, &end, 10);
        }
        if (*end || !first || first > last || last > UINT16_MAX)
            return false;
    }
    *first_p = (uint16_t)first;
    *last_p = (uint16_t)last;
    return true;
}

bool stepaf_env_subnet(const char *text, struct stepaf_env_subnet *subnet_p)
{
    struct stepaf_env_subnet subnet = {0};
    const char *slash = strchr(text, '/');
    char address[INET6_ADDRSTRLEN], *end;

    if (!slash || (size_t)(slash - text) >= sizeof(address) || slash[1] < '0' || slash[1] > '9')
        return false;
    memcpy(address, text, (size_t)(slash - text));
    address[slash - text] = '\0';
    subnet.family = strchr(address, ':') ? AF_INET6 : AF_INET;
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (*end || bits > (subnet.family == AF_INET ? 32 : 128) ||
        inet_pton(subnet.family, address, subnet.bytes) != 1)
        return false;
    subnet.prefix = (uint8_t)bits;
    *subnet_p = subnet;
    return true;
}

/* Return whether the text has only characters of @a allowed. */
static bool is_made_of(const char *text, const char *allowed)
{
    return text[strspn(text, allowed)] == '\0';
}

/* Return whether the list from @a from up to @a word has the same word already. */
static bool is_repeated(const char *from, const char *word, size_t bytes)
{
    for (from += strspn(from, ", "); from < word; from += strspn(from, ", ")) {
        size_t n = strcspn(from, ", ");
        if (n == bytes && memcmp(from, word, bytes) == 0)
            return true;
        from += n;
    }
    return false;
}

static const char *names_trouble(const char *text)
{
    const char *at = text;

    while (*text) {
        at += strspn(at, " ");
        size_t bytes = strcspn(at, ", ");
        if (bytes == 0)
            return "the list has an empty name";
        if (is_repeated(text, at, bytes))
            return "the list has a name twice";
        at += bytes;
        at += strspn(at, " ");
        if (!*at)
            break;
        at += *at == ',';
    }
    return NULL;
}

const char *stepaf_env_text_trouble(enum stepaf_env_form form, const char *text)
{
    static const char digits[] = "0123456789";
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-";
    struct stepaf_env_subnet subnet;
    uint16_t first, last;

    switch (form) {
    case STEPAF_ENV_FORM_PORTS:
        return stepaf_env_ports(text, &first, &last) ? NULL : "not a range of ports";
    case STEPAF_ENV_FORM_NETWORK:
        return !strchr(text, '/') || stepaf_env_subnet(text, &subnet) ? NULL : "not a subnet";
    case STEPAF_ENV_FORM_INDEX:
        return is_made_of(text, digits) ? NULL : "not a whole number";
    case STEPAF_ENV_FORM_NAME:
        if (strlen(text) > STEPAF_ENV_NAME_MAX)
            return "too long";
        return is_made_of(text, letters) ? NULL : "not a valid name";
    case STEPAF_ENV_FORM_NAMES:
        return names_trouble(text);
    case STEPAF_ENV_FORM_ANY_TEXT:
    case STEPAF_ENV_FORM_SECRET:
        break;
    }
    return NULL;
}
