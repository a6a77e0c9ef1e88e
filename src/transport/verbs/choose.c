/* SPDX-License-Identifier: Apache-2.0 */
/* Open the devices that the settings name, else the nearest; or explain why there are none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "transport/verbs/nearest.h"
#include "transport/verbs/rail.h"

/* Explain why no device is left. */
static void say_none(const struct stepaf_verbs_provider *provider, const struct stepaf_env *env,
                     struct ibv_device **list, int n,
                     const struct stepaf_verbs_candidates *candidates, char *reason)
{
    int error = candidates->error;

    if (!n)
        snprintf(
            reason, STEPAF_REASON_MAX,
            access("/dev/infiniband", F_OK)
                ? "no RDMA device: there is no /dev/infiniband (is ib_uverbs loaded, and is it "
                  "passed into the container?)"
                : "no RDMA device");
    else if (error)
        snprintf(reason, STEPAF_REASON_MAX, "%.40s cannot be opened: %.60s%s", candidates->refused,
                 strerror(error),
                 error == EACCES || error == EPERM
                     ? " (its file in /dev/infiniband needs read and write access)"
                     : "");
    else
        snprintf(reason, STEPAF_REASON_MAX, "no RDMA device has an active port");
    for (int i = 0; i < n && !error; i++) {
        const char *why = stepaf_verbs_unusable(provider, env, list[i]);
        if (!why) /* it was one of the candidates, and is down */
            continue;
        size_t used = strlen(reason);
        snprintf(reason + used, STEPAF_REASON_MAX - used, "; %.20s %s",
                 provider->device_name(list[i]), why);
        return;
    }
}

bool stepaf_verbs_probe(const struct stepaf_env *env, char *reason)
{
    const struct stepaf_verbs_provider *provider = stepaf_verbs_provider;
    struct stepaf_verbs_candidates candidates;
    struct stepaf_verbs_choice choice;
    int n = 0;
    struct ibv_device **list = provider->device_list(&n);
    bool good = list && n && env->net_devices[0]; /* named devices are checked when they are
                                                   * opened */

    n = list ? n : 0;
    if (good) {
        snprintf(reason, STEPAF_REASON_MAX, "by STEPAF_NET_DEVICES=%.100s", env->net_devices);
    } else {
        stepaf_verbs_candidates_find(provider, env, list, n, &candidates);
        good = stepaf_verbs_nearest(provider, NULL, &candidates, &choice);
        if (good)
            snprintf(reason, STEPAF_REASON_MAX, "over %.60s:%d%s%s",
                     provider->device_name(choice.device[0]), choice.port[0],
                     choice.why[0] ? ", " : "", choice.why);
        else
            say_none(provider, env, list, n, &candidates, reason);
    }
    if (list)
        provider->device_list_free(list);
    return good;
}

static struct ibv_device *device_by_name(const struct stepaf_verbs_provider *provider,
                                         struct ibv_device **list, int n, const char *name,
                                         size_t length)
{
    for (int i = 0; i < n; i++)
        if (strlen(provider->device_name(list[i])) == length &&
            !memcmp(provider->device_name(list[i]), name, length))
            return list[i];
    return NULL;
}

static stepaf_status_t unknown(const struct stepaf_verbs_provider *provider,
                               struct ibv_device **list, int n, const char *name, size_t length)
{
    char known[160] = "none";
    size_t used = 0;

    for (int i = 0; i < n && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                                 provider->device_name(list[i]));
    return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                            "STEPAF_NET_DEVICES: there is no RDMA device \"%.*s\"; there are: %s",
                            (int)(length < 60 ? length : 60), name, known);
}

/* Open the rail of one word, device[:port]. */
static stepaf_status_t open_named(struct stepaf_verbs *verbs, struct ibv_device **list, int n,
                                  const char *word, size_t length)
{
    size_t name = strcspn(word, ":, ");
    unsigned long port = 0;
    int error;

    if (verbs->n_rails == STEPAF_VERBS_RAILS_MAX)
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                                "STEPAF_NET_DEVICES names more than %d devices",
                                STEPAF_VERBS_RAILS_MAX);
    struct ibv_device *device = device_by_name(verbs->provider, list, n, word, name);
    if (!device)
        return unknown(verbs->provider, list, n, word, name);
    const char *unusable = stepaf_verbs_unusable(verbs->provider, verbs->base.up->env, device);
    if (unusable)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT,
                                "STEPAF_NET_DEVICES: %.*s %s", (int)name, word, unusable);
    if (name < length) {
        char *end;
        port = strtoul(word + name + 1, &end, 10);
        if (end != word + length || !port || port > UINT8_MAX)
            return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                                    "STEPAF_NET_DEVICES: \"%.*s\" is not device[:port]",
                                    (int)(length < 60 ? length : 60), word);
    } else {
        port = stepaf_verbs_active_port(verbs->provider, device, &error);
    }
    return stepaf_verbs_rail_open(verbs, device, port ? (uint8_t)port : 1);
}

static stepaf_status_t open_list(struct stepaf_verbs *verbs, struct ibv_device **list, int n,
                                 const char *words)
{
    stepaf_status_t status = STEPAF_OK;

    verbs->choice.how = "STEPAF_NET_DEVICES";
    for (words += strspn(words, ", "); *words && !status; words += strspn(words, ", ")) {
        size_t length = strcspn(words, ", ");
        status = open_named(verbs, list, n, words, length);
        words += length;
    }
    return status;
}

/* All rails must be of one kind, since the peer's rails must be of the same kind. */
static bool is_like_first(const struct stepaf_verbs *verbs)
{
    const struct stepaf_verbs_rail *last = &verbs->rails[verbs->n_rails - 1];

    return last->port.link_layer == verbs->rails[0].port.link_layer &&
           last->iwarp == verbs->rails[0].iwarp;
}

/* Open the chosen devices that can be used; the others are no longer candidates. *first_p: the
 * first reason. */
static stepaf_status_t open_choice(struct stepaf_verbs *verbs,
                                   const struct stepaf_verbs_choice *choice,
                                   struct stepaf_verbs_candidates *candidates,
                                   stepaf_error_t *first_p)
{
    for (unsigned i = 0; i < choice->n; i++) {
        stepaf_status_t status = stepaf_verbs_rail_open(verbs, choice->device[i], choice->port[i]);
        if (status && status != STEPAF_ERR_NO_TRANSPORT)
            return status;
        if (status) {
            stepaf_log_info("%s", stepaf_last_error()->text);
            if (!first_p->status)
                *first_p = *stepaf_last_error();
            stepaf_verbs_candidates_drop(candidates, choice->device[i]);
        } else if (!is_like_first(verbs)) {
            stepaf_verbs_rail_close(verbs, &verbs->rails[--verbs->n_rails]);
        }
    }
    memcpy(verbs->choice.why, choice->why, sizeof(verbs->choice.why));
    verbs->choice.how = choice->how;
    return STEPAF_OK;
}

static stepaf_status_t open_nearest(struct stepaf_verbs *verbs, struct ibv_device **list, int n)
{
    struct stepaf_verbs_candidates candidates;
    struct stepaf_verbs_choice choice;
    stepaf_status_t status = STEPAF_OK;
    char reason[STEPAF_REASON_MAX];
    stepaf_error_t first = {.status = STEPAF_OK};

    stepaf_verbs_candidates_find(verbs->provider, verbs->base.up->env, list, n, &candidates);
    while (!verbs->n_rails && !status) {
        if (stepaf_verbs_nearest(verbs->provider, verbs->base.up->gpu, &candidates, &choice)) {
            status = open_choice(verbs, &choice, &candidates, &first);
            continue;
        }
        if (first.status)
            return stepaf_error_raise(&first);
        say_none(verbs->provider, verbs->base.up->env, list, n, &candidates, reason);
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, "verbs: %s", reason);
    }
    return status;
}

stepaf_status_t stepaf_verbs_rails_open(struct stepaf_verbs *verbs)
{
    int n = 0;
    struct ibv_device **list = verbs->provider->device_list(&n);
    const char *words = verbs->base.up->env->net_devices;
    stepaf_status_t status = words[strspn(words, ", ")]
                                 ? open_list(verbs, list, list ? n : 0, words)
                                 : open_nearest(verbs, list, list ? n : 0);

    if (list)
        verbs->provider->device_list_free(list);
    verbs->n_paths = verbs->n_rails * verbs->n_qps;
    return status;
}

void stepaf_verbs_rails_close(struct stepaf_verbs *verbs)
{
    while (verbs->n_rails)
        stepaf_verbs_rail_close(verbs, &verbs->rails[--verbs->n_rails]);
}

void stepaf_verbs_describe(const struct stepaf_transport *transport, char *text)
{
    const struct stepaf_verbs *verbs = (const struct stepaf_verbs *)transport;
    size_t used = 0;

    text[0] = '\0';
    for (unsigned r = 0; r < verbs->n_rails && used < STEPAF_REASON_MAX; r++)
        used += (size_t)snprintf(text + used, STEPAF_REASON_MAX - used, "%s%s", r ? "," : "",
                                 verbs->rails[r].name);
    if (used < STEPAF_REASON_MAX && verbs->choice.how[0])
        snprintf(text + used, STEPAF_REASON_MAX - used, " (%s)", verbs->choice.how);
}
