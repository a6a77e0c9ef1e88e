/* SPDX-License-Identifier: Apache-2.0 */
#include "agree.h"

#include <stdlib.h>
#include <string.h>

/* A rank's verdict. */
struct verdict {
    uint64_t digest;
    struct reason reason; /* code CODE_OK: all is well */
};

int agree_gather(struct launch *launch, const void *bytes, size_t length, int64_t timeout_us,
                 void **all_p, size_t **offsets_p, struct reason *reason)
{
    size_t *offsets = calloc((size_t)launch->channel.size + 1, sizeof(*offsets));
    if (!offsets)
        return reason_no_memory(reason);
    stepaf_status_t status =
        launch->channel.allgather(launch->channel.self, bytes, length, all_p, offsets, timeout_us);
    if (status != STEPAF_OK) {
        const stepaf_error_t *error = stepaf_last_error();
        free(offsets);
        launch->broken = 1;
        if (error->status == status)
            launch->missing = error->peer_world_rank;
        return reason_failed(reason, "gathering from all ranks: %s",
                             error->status == status ? error->text : stepaf_status_text(status));
    }
    *offsets_p = offsets;
    return 0;
}

/* Find the first bad verdict, or the first that contradicts the first rank's. */
static int judge(const char *all, const size_t *offsets, int n, struct reason *reason)
{
    struct verdict first, verdict;
    for (int i = 0; i < n; i++) {
        if (offsets[i + 1] - offsets[i] != sizeof(verdict))
            return reason_failed(reason, "rank %d's verdict is malformed", i);
        memcpy(&verdict, all + offsets[i], sizeof(verdict));
        if (verdict.reason.code != CODE_OK) {
            *reason = verdict.reason;
            reason->text[REASON_TEXT_MAX - 1] = '\0';
            return -1;
        }
    }
    memcpy(&first, all + offsets[0], sizeof(first));
    for (int i = 1; i < n; i++) {
        memcpy(&verdict, all + offsets[i], sizeof(verdict));
        if (verdict.digest != first.digest)
            return reason_bad_input(reason,
                                    "rank %d has other options or another model than "
                                    "rank 0",
                                    i);
    }
    return 0;
}

int agree(struct launch *launch, int result, uint64_t digest, int64_t timeout_us,
          struct reason *reason)
{
    if (launch->returns)
        return result; /* the library compares what must agree */
    struct verdict mine;
    void *all;
    size_t *offsets;
    memset(&mine, 0, sizeof(mine));
    mine.digest = digest;
    if (result)
        mine.reason = *reason;
    if (agree_gather(launch, &mine, sizeof(mine), timeout_us, &all, &offsets, reason))
        return -1;
    result = judge(all, offsets, launch->channel.size, reason);
    free(all);
    free(offsets);
    return result;
}
