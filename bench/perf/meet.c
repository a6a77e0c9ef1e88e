/* SPDX-License-Identifier: Apache-2.0 */
#include "meet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

enum { PORT = 18516 };

int perf_meets(void)
{
    static const char *const signs[] = {"STEPAF_MEET", "STEPAF_LOCAL_SIZE", "TORCHELASTIC_RUN_ID"};
    const char *boot = getenv("STEPAF_BOOT");

    if (boot != NULL && (strcmp(boot, "tcp") == 0 || strcmp(boot, "local") == 0))
        return 1; /* with what is lacking said by the library */

    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        const char *value = getenv(signs[i]);

        if (value != NULL && value[0] != '\0')
            return 1;
    }
    return 0;
}

static int put(const char *name, const char *value)
{
    return setenv(name, value, 1) == 0 ? 0 : perf_fail("%s: %s", name, strerror(errno));
}

/* Whether @a host is followed by a port: "host:1", "[address]:1". */
static int has_port(const char *host)
{
    const char *colon = strrchr(host, ':');
    const char *bracket = strrchr(host, ']');

    return colon != NULL && colon > host &&
           (bracket != NULL ? colon == bracket + 1 : strchr(host, ':') == colon);
}

int perf_meet_ask(const struct perf_options *options)
{
    const char *host = options->job.connect;
    char meet[300];
    int length;

    if (host == NULL && options->job.listen == 0)
        return perf_meets();
    if (host == NULL)
        length = snprintf(meet, sizeof(meet), "0.0.0.0:%u", (unsigned)options->job.listen);
    else if (has_port(host))
        length = snprintf(meet, sizeof(meet), "%s", host);
    else
        length =
            snprintf(meet, sizeof(meet),
                     strchr(host, ':') != NULL && host[0] != '[' ? "[%s]:%d" : "%s:%d", host, PORT);
    if (length < 0 || (size_t)length >= sizeof(meet))
        return perf_fail("--connect '%.40s...' is too long", host);
    if (put("STEPAF_MEET", meet) != 0 || put("STEPAF_SIZE", "2") != 0 ||
        put("STEPAF_RANK", host == NULL ? "0" : "1") != 0)
        return -1;
    return 1;
}
