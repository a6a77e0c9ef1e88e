/* SPDX-License-Identifier: Apache-2.0 */
/* What UCX carries a link by. It tells that only in words (newer ones by a query as well), a line
 * for each lane: "lane[0]: 1:tcp/lo.0 md[1] -> ... am rma#0 wireup". */
#include <stdlib.h>
#include <string.h>

#include "transport/ucx/ucx.h"

/* Add a word to a list, once. */
static void add_word(char *list, size_t room, const char *word, size_t length)
{
    char text[STEPAF_UCX_TEXT];
    size_t used = strlen(list);

    snprintf(text, sizeof(text), "%.*s", (int)length, word);
    if (!strstr(list, text) && used + strlen(text) + 2 < room)
        snprintf(list + used, room - used, "%s%s", used && list[used - 1] != ';' ? "," : "", text);
}

static void look_at_lane(struct stepaf_ucx_link *link, const char *line)
{
    const char *colon = strchr(line, ':');
    const char *name = colon ? strchr(colon + 1, ':') : NULL;

    if (!name++)
        return;
    size_t kind = strcspn(name, "/ \n"), whole = strcspn(name, ". \n");
    add_word(link->shared.base.name, sizeof(link->shared.base.name), name, kind);
    add_word(link->shared.base.address, sizeof(link->shared.base.address), name, whole);
    if (strstr(name, " rma#"))
        link->has_puts = true;
}

void stepaf_ucx_look_at(struct stepaf_fabric_link *shared)
{
    struct stepaf_ucx_link *link = (struct stepaf_ucx_link *)shared;
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);

    if (!stream)
        return;
    stepaf_ucx_of(link)->calls->ep_print_info(link->ep, stream);
    if (!fclose(stream)) {
        snprintf(shared->base.name, sizeof(shared->base.name), "ucx;");
        shared->base.address[0] = '\0';
        for (const char *line = strstr(text, "lane["); line; line = strstr(line + 1, "lane[")) {
            char one[256];
            snprintf(one, sizeof(one), "%.*s", (int)strcspn(line, "\n"), line);
            look_at_lane(link, one);
        }
    }
    free(text);
}
