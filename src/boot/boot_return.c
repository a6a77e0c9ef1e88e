/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot_return.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "boot/control/place.h"

static stepaf_status_t refuse_exchange(void *self, const void *data, size_t bytes, void **all_p,
                                       size_t *offsets_p, int64_t timeout_us)
{
    (void)self;
    (void)data;
    (void)bytes;
    (void)all_p;
    (void)offsets_p;
    (void)timeout_us;
    return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_NONE,
                            "no exchange is possible: this process has taken a lost rank's place, "
                            "and the job's bootstrap does not know it");
}

static stepaf_status_t refuse_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                      int64_t timeout_us)
{
    (void)self;
    (void)group;
    (void)ranks;
    (void)n;
    (void)timeout_us;
    return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_BARRIER,
                            "no barrier is possible: this process has taken a lost rank's place, "
                            "and the job's bootstrap does not know it");
}

static void close_return(void *self)
{
    struct stepaf_boot_return *returns = self;

    stepaf_proof_forget(returns->key, sizeof returns->key);
    free(returns->join);
    free(returns);
}

stepaf_status_t stepaf_boot_return(const struct stepaf_env *env, stepaf_boot_t *boot_p)
{
    char host_name[STEPAF_PLACE_HOST_MAX + 1] = "";
    struct stepaf_place place;

    (void)gethostname(host_name, sizeof host_name - 1);
    stepaf_status_t status = stepaf_place_return(env, host_name, &place);
    if (status != STEPAF_OK)
        return status;
    struct stepaf_boot_return *returns = calloc(1, sizeof *returns);
    char *join = strdup(env->join);
    if (!returns || !join) {
        free(returns);
        free(join);
        return stepaf_error_no_memory(STEPAF_PHASE_INIT);
    }
    returns->join = join;
    memcpy(returns->key, place.key, sizeof returns->key);
    stepaf_proof_forget(place.key, sizeof place.key);
    *boot_p = (stepaf_boot_t){
        .name = "return",
        .self = returns,
        .rank = place.rank,
        .size = place.size,
        .app_number = -1,
        .allgather = refuse_exchange,
        .barrier = refuse_barrier,
        .close = close_return,
    };
    return STEPAF_OK;
}

stepaf_status_t stepaf_boot_return_key(const struct stepaf_env *env, bool *has_secret_p,
                                       uint8_t key_p[STEPAF_PROOF_KEY_BYTES])
{
    struct stepaf_place place = {0};
    stepaf_status_t status = STEPAF_OK;

    *has_secret_p = *env->secret || *env->secret_file;
    if (*has_secret_p)
        status = stepaf_place_find_secret(env, &place);
    memcpy(key_p, place.key, sizeof place.key);
    stepaf_proof_forget(place.key, sizeof place.key);
    return status;
}

const struct stepaf_boot_return *stepaf_boot_returns(const stepaf_boot_t *boot)
{
    return boot->barrier == refuse_barrier ? boot->self : NULL;
}
