/* SPDX-License-Identifier: Apache-2.0 */
/* Filling a caller's structure up to the size that the caller knows. */
#include "api/fill.h"

#include <string.h>

_Static_assert(sizeof(stepaf_tensor_info_t) >= STEPAF_FIRST_TENSOR_INFO &&
                   sizeof(stepaf_batch_info_t) >= STEPAF_FIRST_BATCH_INFO &&
                   sizeof(stepaf_link_info_t) >= STEPAF_FIRST_LINK_INFO &&
                   sizeof(stepaf_timeline_t) >= STEPAF_FIRST_TIMELINE &&
                   sizeof(stepaf_counters_t) >= STEPAF_FIRST_COUNTERS &&
                   sizeof(stepaf_memory_use_t) >= STEPAF_FIRST_MEMORY_USE &&
                   sizeof(stepaf_members_t) >= STEPAF_FIRST_MEMBERS,
               "structures grow, and never shrink");

stepaf_status_t stepaf_fill(void *out_p, const char *type, size_t first_bytes, const void *facts,
                            size_t bytes)
{
    size_t room;

    memcpy(&room, out_p, sizeof(room));
    if (room < first_bytes)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "the size of the %s is %zu, which is less than %zu: set it to "
                                "sizeof(%s) before the call",
                                type, room, first_bytes, type);
    if (room > bytes)
        room = bytes;
    memcpy((char *)out_p + sizeof(room), (const char *)facts + sizeof(room), room - sizeof(room));
    return STEPAF_OK;
}

stepaf_status_t stepaf_fill_tensor_of_size(const struct stepaf_key *key, uint64_t id, void *data,
                                           uint32_t bytes, uint32_t max_bytes,
                                           stepaf_tensor_info_t *info_p)
{
    stepaf_tensor_info_t info;

    memset(&info, 0, sizeof(info));
    stepaf_key_describe(key, id, data, bytes, max_bytes, &info);
    return stepaf_fill(info_p, "stepaf_tensor_info_t", STEPAF_FIRST_TENSOR_INFO, &info,
                       sizeof(info));
}
