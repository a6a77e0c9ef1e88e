/* SPDX-License-Identifier: Apache-2.0 */
/* Open and close the transport, and its table of operations. */
#include "transport/verbs/failover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/log.h"
#include "base/time.h"
#include "transport/try_gpu.h"
#include "transport/verbs/cm.h"
#include "transport/verbs/rail.h"

enum { CLOSE_US = 1000000 };

static void verbs_close(struct stepaf_transport *transport)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;

    verbs->closing = true;
    stepaf_verbs_drain(verbs, CLOSE_US);
    for (uint32_t p = 0; p < verbs->n_peers; p++) {
        if (verbs->links[p])
            stepaf_verbs_disconnect(&verbs->links[p]->base);
        stepaf_verbs_qps_destroy(verbs, p);
    }
    while (!stepaf_list_empty(&verbs->memories)) {
        struct stepaf_verbs_memory *memory =
            stepaf_container_of(verbs->memories.next, struct stepaf_verbs_memory, node);
        stepaf_verbs_dereg_mem(transport, memory->mem);
    }
    stepaf_verbs_control_free(verbs);
    stepaf_verbs_cm_close(verbs);
    stepaf_verbs_rails_close(verbs);
    free(verbs->qps);
    free(verbs->links);
    free(verbs->scratch);
    free(verbs->aside.wc);
    free(verbs);
}

static stepaf_status_t verbs_open(struct stepaf_upcalls *up, unsigned n_peers,
                                  struct stepaf_transport **transport_p)
{
    struct stepaf_verbs *verbs = calloc(1, sizeof(*verbs));
    struct stepaf_clock clock;
    stepaf_status_t status;

    if (!verbs)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    verbs->base = (struct stepaf_transport){.ops = &stepaf_verbs_ops, .up = up};
    verbs->provider = stepaf_verbs_provider;
    verbs->n_qps = (unsigned)up->env->verbs_qps;
    verbs->qp.receives = (uint32_t)up->env->verbs_receives;
    verbs->qp.refill_from = verbs->qp.receives / 2;
    verbs->qp.depth = (uint32_t)up->env->verbs_send_depth;
    verbs->qp.max_write = STEPAF_VERBS_MAX_WRITE;
    stepaf_list_init(&verbs->memories);
    stepaf_verbs_receives_make(verbs);
    stepaf_clock_calibrate(&clock);
    verbs->ticks_per_us = clock.ticks_per_us > 1 ? (uint64_t)clock.ticks_per_us : 1;
    verbs->links = calloc(n_peers ? n_peers : 1, sizeof(verbs->links[0]));
    verbs->scratch = stepaf_verbs_template_make();
    if (!verbs->links || !verbs->scratch) {
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        goto err_verbs;
    }
    verbs->n_peers = n_peers;
    if (getrandom(&verbs->qp.psn, sizeof(verbs->qp.psn), 0) != (ssize_t)sizeof(verbs->qp.psn) ||
        getrandom(verbs->secret, sizeof(verbs->secret), 0) != (ssize_t)sizeof(verbs->secret)) {
        status = stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT,
                                  "verbs: cannot open: %s", strerror(errno));
        goto err_verbs;
    }
    int error = verbs->provider->fork_init();
    if (error)
        stepaf_log_warn("verbs: a rank that forks may see wrong bytes: ibv_fork_init: %s",
                        strerror(error));
    stepaf_verbs_timeout_choose(verbs);
    if ((status = stepaf_verbs_rails_open(verbs)) || (status = stepaf_verbs_qps_create(verbs)) ||
        (status = stepaf_verbs_control_make(verbs)) || (status = stepaf_verbs_cm_listen(verbs)))
        goto err_verbs;
    verbs->rails_end = verbs->rails + verbs->n_rails;
    verbs->qp.credits = verbs->qp.receives - stepaf_verbs_failover_reserve(verbs);
    *transport_p = &verbs->base;
    return STEPAF_OK;

err_verbs:
    verbs_close(&verbs->base);
    return status;
}

/* Append why these devices were chosen. */
static void add_choice(const struct stepaf_transport *transport, char *text)
{
    const char *why = ((const struct stepaf_verbs *)transport)->choice.why;
    size_t used = strlen(text);

    if (why[0])
        snprintf(text + used, STEPAF_REASON_MAX - used, ", %s", why);
}

static void verbs_probe_gpu(const struct stepaf_env *env, struct stepaf_gpu *gpu, char *text)
{
    stepaf_transport_try_gpu(&stepaf_verbs_ops, env, gpu, add_choice, text);
}

static void verbs_query_memory(struct stepaf_transport *transport, size_t *per_link_p,
                               size_t *bounce_p)
{
    const struct stepaf_verbs *verbs = (const struct stepaf_verbs *)transport;

    *per_link_p = sizeof(struct stepaf_verbs_link) + sizeof(struct stepaf_verbs_link *) +
                  verbs->n_paths * (sizeof(struct stepaf_verbs_path) + sizeof(struct ibv_qp *) +
                                    STEPAF_VERBS_HELD_POSTS * sizeof(uint32_t)) +
                  verbs->qp.receives * sizeof(uint32_t) + verbs->control.layout.stride +
                  (verbs->n_rails > 1 ? stepaf_verbs_failover_bytes(verbs) : 0);
    if (verbs->cm.channel)
        *per_link_p += verbs->n_paths * sizeof(struct stepaf_verbs_call);
    *bounce_p = 0;
}

_Static_assert((int)STEPAF_VERBS_RAILS_MAX <= (int)STEPAF_LINK_RAILS, "each is counted");

static unsigned verbs_count_rails(const struct stepaf_link *base, struct stepaf_rail_count *rails_p)
{
    const struct stepaf_verbs_link *link = (const struct stepaf_verbs_link *)base;
    unsigned n = 0;

    for (unsigned i = 0; i < link->n_paths; i++) {
        const struct stepaf_verbs_path *path = &link->paths[i];
        if (path->rail_index == n)
            rails_p[n++] =
                (struct stepaf_rail_count){.name = path->rail->name, .is_up = !path->closed};
        rails_p[n - 1].bytes_sent += path->bytes_sent;
    }
    if (link->n_paths == 1) /* posts with a template are counted only there */
        rails_p[0].bytes_sent = base->bytes_sent;
    return n;
}

const struct stepaf_transport_ops stepaf_verbs_ops = {
    .name = "verbs",
    .caps = STEPAF_TRANSPORT_GPU | STEPAF_TRANSPORT_RETURNS,
    .probe = stepaf_verbs_probe,
    .open = verbs_open,
    .close = verbs_close,
    .describe = stepaf_verbs_describe,
    .reg_mem = stepaf_verbs_reg_mem,
    .dereg_mem = stepaf_verbs_dereg_mem,
    .is_quiet = stepaf_verbs_is_quiet,
    .flush_gpu = stepaf_verbs_flush_gpu,
    .describe_gpu = stepaf_verbs_describe_gpu,
    .probe_gpu = verbs_probe_gpu,
    .pack_address = stepaf_verbs_pack_address,
    .pack_mem = stepaf_verbs_pack_mem,
    .connect = stepaf_verbs_connect,
    .disconnect = stepaf_verbs_disconnect,
    .fence = stepaf_verbs_fence,
    .finish_connects = stepaf_verbs_finish_connects,
    .prove_links = stepaf_verbs_prove_links,
    .reopen = stepaf_verbs_reopen,
    .shrink = stepaf_verbs_shrink,
    .import_mem = stepaf_verbs_import_mem,
    .release_mem = stepaf_verbs_release_mem,
    .make_template = stepaf_verbs_make_template,
    .post = stepaf_verbs_post,
    .retire = stepaf_verbs_retire,
    .progress = stepaf_verbs_progress,
    .arm = stepaf_verbs_arm,
    .check_peers = stepaf_verbs_check_peers,
    .count_rails = verbs_count_rails,
    .query_memory = verbs_query_memory,
};
