/* SPDX-License-Identifier: Apache-2.0 */
/* Code that all transports share: names in settings, and defaults for omitted operations. */
#include "transport/transport.h"

#include <string.h>

static stepaf_status_t reg_nothing(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    (void)transport;
    (void)mem;
    return STEPAF_OK;
}

static void dereg_nothing(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    (void)transport;
    (void)mem;
}

static bool always_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p)
{
    (void)transport;
    (void)begin;
    (void)peer_p;
    return true;
}

static stepaf_status_t flush_nothing(struct stepaf_link *link)
{
    (void)link;
    return STEPAF_OK;
}

static void describe_nothing(const struct stepaf_transport *transport, char *text)
{
    (void)transport;
    text[0] = '\0';
}

static void describe_none(const struct stepaf_transport *transport, char *text)
{
    snprintf(text, STEPAF_REASON_MAX, "staged: %s carries host memory", transport->ops->name);
}

static void probe_none(const struct stepaf_env *env, struct stepaf_gpu *gpu, char *text)
{
    (void)env;
    (void)gpu;
    text[0] = '\0';
}

static void fence_nothing(struct stepaf_link *link)
{
    (void)link;
}

static stepaf_status_t connected_already(struct stepaf_transport *transport, int64_t deadline_ns,
                                         int wait_ms, uint32_t *peer_p, char *reason)
{
    (void)transport;
    (void)deadline_ns;
    (void)wait_ms;
    (void)peer_p;
    (void)reason;
    return STEPAF_OK;
}

static stepaf_status_t proven_already(struct stepaf_transport *transport, bool begin,
                                      uint32_t *peer_p, char *reason)
{
    (void)transport;
    (void)begin;
    (void)peer_p;
    (void)reason;
    return STEPAF_OK;
}

static stepaf_status_t reopen_nothing(struct stepaf_transport *transport)
{
    (void)transport;
    return STEPAF_OK;
}

static bool over_already(struct stepaf_link *link)
{
    (void)link;
    return true;
}

static void shrink_nothing(struct stepaf_transport *transport)
{
    (void)transport;
}

static void *no_template(const struct stepaf_post *post, size_t *bytes_p)
{
    (void)post;
    *bytes_p = 0;
    return NULL;
}

static void retire_nothing(struct stepaf_post *post)
{
    (void)post;
}

static unsigned arm_nothing(struct stepaf_transport *transport, int *fds_p, unsigned capacity)
{
    (void)transport;
    (void)fds_p;
    (void)capacity;
    return 0;
}

static unsigned count_no_rails(const struct stepaf_link *link, struct stepaf_rail_count *rails_p)
{
    (void)link;
    (void)rails_p;
    return 0;
}

struct stepaf_transport_ops stepaf_transport_complete(const struct stepaf_transport_ops *ops)
{
    struct stepaf_transport_ops all = *ops;

    all.reg_mem = all.reg_mem ? all.reg_mem : reg_nothing;
    all.dereg_mem = all.dereg_mem ? all.dereg_mem : dereg_nothing;
    all.is_quiet = all.is_quiet ? all.is_quiet : always_quiet;
    all.flush_gpu = all.flush_gpu ? all.flush_gpu : flush_nothing;
    all.describe = all.describe ? all.describe : describe_nothing;
    all.describe_gpu = all.describe_gpu ? all.describe_gpu : describe_none;
    all.probe_gpu = all.probe_gpu ? all.probe_gpu : probe_none;
    all.fence = all.fence ? all.fence : fence_nothing;
    all.finish_connects = all.finish_connects ? all.finish_connects : connected_already;
    all.prove_links = all.prove_links ? all.prove_links : proven_already;
    all.reopen = all.reopen ? all.reopen : reopen_nothing;
    all.is_over = all.is_over ? all.is_over : over_already;
    all.shrink = all.shrink ? all.shrink : shrink_nothing;
    all.make_template = all.make_template ? all.make_template : no_template;
    all.retire = all.retire ? all.retire : retire_nothing;
    all.arm = all.arm ? all.arm : arm_nothing;
    all.count_rails = all.count_rails ? all.count_rails : count_no_rails;
    return all;
}

const char *stepaf_transport_lacks(const struct stepaf_transport_ops *ops)
{
    const struct {
        const char *name;
        bool is_there;
    } required[] = {
        {"name", ops->name},
        {"probe", ops->probe},
        {"open", ops->open},
        {"close", ops->close},
        {"pack_address", ops->pack_address},
        {"pack_mem", ops->pack_mem},
        {"connect", ops->connect},
        {"disconnect", ops->disconnect},
        {"import_mem", ops->import_mem},
        {"release_mem", ops->release_mem},
        {"post", ops->post},
        {"progress", ops->progress},
        {"check_peers", ops->check_peers},
        {"query_memory", ops->query_memory},
        /* Each operation of a pair requires the other. */
        {"dereg_mem", !ops->reg_mem || ops->dereg_mem},
        {"reg_mem", !(ops->caps & STEPAF_TRANSPORT_GPU) || ops->reg_mem},
        {"describe_gpu", !(ops->caps & STEPAF_TRANSPORT_GPU) || ops->describe_gpu},
    };

    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
        if (!required[i].is_there)
            return required[i].name;
    return NULL;
}

/* Return the next name of a comma list and move *list_p behind it; NULL at the end. */
static const char *next_name(const char **list_p, size_t *length_p)
{
    const char *name = *list_p + strspn(*list_p, ", ");

    if (!*name)
        return NULL;
    *length_p = strcspn(name, ", ");
    *list_p = name + *length_p;
    return name;
}

static bool same_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && !memcmp(name, text, length);
}

bool stepaf_transport_admitted(const struct stepaf_env *env, const struct stepaf_transport_ops *ops)
{
    const char *list = env->transports;
    const char *word;
    size_t length;

    if (!list[0])
        return !(ops->caps & STEPAF_TRANSPORT_ASKED);
    while ((word = next_name(&list, &length)))
        if (same_name(ops->name, word, length))
            return true;
    return false;
}

stepaf_status_t stepaf_transport_check_names(const struct stepaf_env *env)
{
    const char *list = env->transports;
    const char *word;
    size_t length;

    while ((word = next_name(&list, &length))) {
        bool known = false;
        for (int i = 0; stepaf_transports[i]; i++)
            known = known || same_name(stepaf_transports[i]->name, word, length);
        if (!known)
            return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                    "STEPAF_TRANSPORTS: \"%.*s\" is not a transport of this build",
                                    (int)length, word);
    }
    return STEPAF_OK;
}
