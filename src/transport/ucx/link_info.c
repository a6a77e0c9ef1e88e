/* SPDX-License-Identifier: Apache-2.0 */
/* The transports and devices that UCX can use, and those that it uses for a link. All versions of UCX
 * print them as text, and only newer versions have a query: a line "resource 1 : md 1 dev 1 flags --
 * tcp/lo" for each resource, and a line "lane[0]: 1:tcp/lo.0 md[1] -> ... am am_bw#0 wireup" for each
 * lane of a link. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "settings/settings.h"
#include "transport/ucx/ucx.h"

enum { LINE = 256 };

static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);

    while (*list) {
        size_t its = strcspn(list, ",;");
        if (its == length && !strncmp(list, word, length))
            return true;
        list += its + (list[its] != '\0');
    }
    return false;
}

/* Add a word to a list, unless the list has it. */
static void add_word(char *list, size_t room, const char *word, size_t length)
{
    char text[STEPAF_UCX_TEXT];
    size_t used = strlen(list);

    snprintf(text, sizeof(text), "%.*s", (int)length, word);
    if (!has_word(list, text) && used + strlen(text) + 2 < room)
        snprintf(list + used, room - used, "%s%s", used && list[used - 1] != ';' ? "," : "", text);
}

/* Find the next line that has @a word, and copy the line from that word on. Return the rest of the
 * text after this line; NULL: no line has the word. */
static const char *next_line(const char *text, const char *word, char *line)
{
    const char *begin = strstr(text, word);

    if (!begin)
        return NULL;
    size_t length = strcspn(begin, "\n");
    snprintf(line, LINE, "%.*s", (int)length, begin);
    return begin + length;
}

struct resources {
    char transports[STEPAF_REASON_MAX / 3], devices[STEPAF_REASON_MAX / 3];
    bool have_rdma;
};

/* Return whether a transport of UCX reads and writes a peer's memory by a NIC. Of the connectionless
 * transports, only Mellanox's dc does. */
static bool is_rdma(const char *name)
{
    return !strncmp(name, "rc_", 3) || !strncmp(name, "dc_", 3);
}

/* "self" is left out, since it is within this process, and so is the device "memory", which is not
 * one. */
static void look_at_resource(struct resources *all, const char *line)
{
    const char *name = strstr(line, "-- ");
    size_t kind = name ? strcspn(name += 3, "/ ") : 0;

    if (!kind || name[kind] != '/' || !strncmp(name, "self/", 5))
        return;
    all->have_rdma = all->have_rdma || is_rdma(name);
    add_word(all->transports, sizeof(all->transports), name, kind);
    name += kind + 1;
    if (strncmp(name, "memory", 6) != 0)
        add_word(all->devices, sizeof(all->devices), name, strcspn(name, " "));
}

static struct resources find_resources(const struct stepaf_ucx *ucx)
{
    struct resources all = {.transports = ""};
    char *words = NULL, line[LINE];
    size_t bytes = 0;
    FILE *stream = open_memstream(&words, &bytes);

    if (!stream)
        return all;
    ucx->calls->context_print_info(ucx->context, stream);
    if (!fclose(stream))
        for (const char *at = words; (at = next_line(at, "resource ", line));)
            look_at_resource(&all, line);
    free(words);
    return all;
}

bool stepaf_ucx_has_rdma(const struct stepaf_ucx *ucx)
{
    return find_resources(ucx).have_rdma;
}

void stepaf_ucx_resources_text(const struct stepaf_ucx *ucx, char *text, size_t room)
{
    const struct resources all = find_resources(ucx);

    text[0] = '\0';
    if (all.transports[0])
        snprintf(text, room, ", transports %s%s%s", all.transports,
                 all.devices[0] ? ", devices " : "", all.devices);
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
    link->by_card = link->by_card || is_rdma(name);
}

/* Warn if UCX has NICs that reach GPU memory, but uses none of them for this link. */
static void warn_of_gpu(const struct stepaf_ucx_link *link)
{
    const struct stepaf_ucx *ucx = stepaf_ucx_of(link);

    if (ucx->gpu.device && !link->by_card &&
        ucx->shared.base.up->env->ucx_gpu == STEPAF_ENV_UCX_GPU_auto)
        stepaf_log_warn("ucx: peer %u: UCX uses no NIC (%s) and copies GPU memory with "
                        "CUDA calls, which may wait for streams (STEPAF_UCX_GPU=staged)",
                        link->shared.base.peer, link->shared.base.name);
}

void stepaf_ucx_look_at(struct stepaf_fabric_link *shared)
{
    struct stepaf_ucx_link *link = (struct stepaf_ucx_link *)shared;
    char *text = NULL, line[LINE];
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);

    if (!stream)
        return;
    stepaf_ucx_of(link)->calls->ep_print_info(link->ep, stream);
    if (!fclose(stream)) {
        snprintf(shared->base.name, sizeof(shared->base.name), "ucx;");
        shared->base.address[0] = '\0';
        for (const char *at = text; (at = next_line(at, "lane[", line));)
            look_at_lane(link, line);
        warn_of_gpu(link);
    }
    free(text);
}
