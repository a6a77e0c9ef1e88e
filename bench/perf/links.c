/* SPDX-License-Identifier: Apache-2.0 */
#include "links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/link.h>

#include "fail.h"

static const char variable[] = "STEPAF_TRANSPORTS";

const char *perf_links_setting(void)
{
    const char *value = getenv(variable);

    return value != NULL ? value : "";
}

int perf_links_ask(struct perf_options *options)
{
    const char *before = perf_links_setting();

    if (options->job.transport == NULL)
        return 0;
    if (before[0] != '\0' && strcmp(before, options->job.transport) != 0) {
        options->job.transport_before = strdup(before);
        if (options->job.transport_before == NULL)
            return perf_fail("out of memory");
    }
    return setenv(variable, options->job.transport, 1) == 0
               ? 0
               : perf_fail("%s: %s", variable, strerror(errno));
}

/* Separators of a setting and of the text that perf_links_learn makes. */
int perf_links_have(const char *text, const char *transport)
{
    size_t length = strlen(transport);

    for (const char *at = text; *at != '\0'; at += strcspn(at, ", +")) {
        at += strspn(at, ", +");
        if (strncmp(at, transport, length) == 0 && strchr(";, +", at[length]) != NULL)
            return 1;
    }
    return 0;
}

/* Add @a name to the list, unless it is there. */
static void add(char *text, const char *name)
{
    size_t length = strlen(name);
    size_t end = strlen(text);

    for (const char *at = text; (at = strstr(at, name)) != NULL; at += length) {
        if ((at == text || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' '))
            return;
    }
    snprintf(text + end, PERF_LINKS_MAX - end, "%s%s", end > 0 ? " + " : "", name);
}

int perf_links_learn(struct perf_job *job, stepaf_context_h ctx, char text_p[PERF_LINKS_MAX])
{
    int peers = stepaf_size(ctx, stepaf_role(ctx) == STEPAF_ATTENTION ? STEPAF_GROUP_FFN
                                                                      : STEPAF_GROUP_ATTENTION);
    char mine[PERF_LINKS_MAX] = "";
    size_t *offsets;
    void *all;

    for (int i = 0; i < peers; i++) {
        const char *name = stepaf_transport_name(ctx, i);

        if (name != NULL && strcmp(name, "-") != 0)
            add(mine, name);
    }
    if (perf_job_gather(job, mine, sizeof(mine), &all, &offsets) != 0)
        return -1;
    text_p[0] = '\0';
    for (int i = 0; i < job->channel.size; i++) {
        char *names = (char *)all + (size_t)i * PERF_LINKS_MAX;
        char *rest = NULL;

        for (char *name = strtok_r(names, " +", &rest); name != NULL;
             name = strtok_r(NULL, " +", &rest))
            add(text_p, name);
    }
    free(all);
    free(offsets);
    return 0;
}
