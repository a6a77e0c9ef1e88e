/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/member_net_gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "boot/member_net_inside.h"

static void drop_words(struct stepaf_consensus_blob *blob)
{
    free(blob->data);
    *blob = (struct stepaf_consensus_blob){0};
}

/* Words may be none: then there is a byte that is not counted, since no data means that nobody has
 * said it. */
static bool keep_words(struct stepaf_consensus_blob *blob, const void *words, size_t bytes)
{
    uint8_t *copy = malloc(bytes + 1);

    if (!copy)
        return false;
    if (bytes)
        memcpy(copy, words, bytes);
    free(blob->data);
    *blob = (struct stepaf_consensus_blob){copy, bytes};
    return true;
}

void stepaf_member_gather_free(struct stepaf_member_net *net)
{
    for (int c = 0; c < STEPAF_MEMBER_GATHERINGS; c++) {
        struct member_gathering *gathering = &net->gatherings[c];
        for (int r = 0; gathering->words && r < net->consensus.size; r++)
            free(gathering->words[r].data);
        free(gathering->words);
        free(gathering->came);
        free(gathering->value.data);
    }
}

/* ---- what one says to the first ---- */

static bool keep_came(struct stepaf_member_net *net, struct member_gathering *gathering, int rank,
                      uint64_t stamp, const void *words, size_t bytes)
{
    size_t size = (size_t)net->consensus.size;

    if (!gathering->came)
        gathering->came = calloc(size, sizeof *gathering->came);
    if (!gathering->words)
        gathering->words = calloc(size, sizeof *gathering->words);
    if (!gathering->came || !gathering->words || !keep_words(&gathering->words[rank], words, bytes))
        return false;
    gathering->came[rank] = stamp;
    return true;
}

static bool say_words(struct stepaf_member_net *net, const struct stepaf_member_group *group,
                      uint64_t stamp, const void *words, size_t bytes)
{
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, (uint32_t)group->channel);
    stepaf_pack_u64(&pack, stamp);
    stepaf_pack_bytes(&pack, words, bytes);
    if (!pack.failed)
        stepaf_member_net_say(net, group->ranks[0], STEPAF_CONTROL_WORDS, pack.data, pack.bytes);
    free(pack.data);
    return !pack.failed;
}

bool stepaf_member_gather_begin(struct stepaf_member_net *net,
                                const struct stepaf_member_group *group, uint32_t epoch,
                                const void *words, size_t bytes)
{
    struct member_gathering *gathering = &net->gatherings[group->channel];
    bool is_same_epoch = gathering->stamp >> 32 == epoch;

    if (!is_same_epoch || gathering->is_over) {
        gathering->stamp = is_same_epoch ? gathering->stamp + 1 : (uint64_t)epoch << 32 | 1;
        gathering->is_over = false;
        gathering->awaits = -1;
    }
    if (group->ranks[0] != net->consensus.rank)
        return say_words(net, group, gathering->stamp, words, bytes);
    return keep_came(net, gathering, net->consensus.rank, gathering->stamp, words, bytes);
}

/* ---- what the first says to all ---- */

/* STEPAF_ERR_TIMEOUT: it waits for that rank, which is told to those who wait with it. */
static void say_all_words(struct stepaf_member_net *net, const struct stepaf_member_group *group,
                          stepaf_status_t status, int rank,
                          const struct stepaf_consensus_blob *value)
{
    const struct member_gathering *gathering = &net->gatherings[group->channel];
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, (uint32_t)group->channel);
    stepaf_pack_u64(&pack, gathering->stamp);
    stepaf_pack_u32(&pack, (uint32_t)status);
    stepaf_pack_u32(&pack, (uint32_t)rank);
    stepaf_pack_bytes(&pack, value->data, value->bytes);
    for (int i = 1; i < group->n && !pack.failed; i++)
        if (!stepaf_consensus_has_lost(&net->consensus, group->ranks[i]) &&
            (status != STEPAF_ERR_TIMEOUT || gathering->came[group->ranks[i]] >= gathering->stamp))
            stepaf_member_net_say(net, group->ranks[i], STEPAF_CONTROL_ALL_WORDS, pack.data,
                                  pack.bytes);
    free(pack.data);
}

/* All have come: put together what they have said. */
static bool make_value(struct stepaf_member_net *net, const struct stepaf_member_group *group,
                       struct stepaf_consensus_blob *value_p)
{
    struct member_gathering *gathering = &net->gatherings[group->channel];
    size_t size = (size_t)net->consensus.size, bytes = 0;
    struct stepaf_consensus_blob *blobs = calloc(size, sizeof *blobs);

    drop_words(value_p);
    for (int i = 0; blobs && i < group->n; i++) {
        blobs[group->ranks[i]] = gathering->words[group->ranks[i]];
        bytes += blobs[group->ranks[i]].bytes;
    }
    if (blobs && bytes)
        value_p->data = stepaf_consensus_value_make(blobs, (int)size, &value_p->bytes);
    bool is_made = blobs && (!bytes || value_p->data);
    free(blobs);
    return is_made;
}

/* What the first makes of it. */
static stepaf_status_t judge_words(struct stepaf_member_net *net,
                                   const struct stepaf_member_group *group, int *rank_p)
{
    struct member_gathering *gathering = &net->gatherings[group->channel];
    static const struct stepaf_consensus_blob nothing;
    int awaited = -1, lost = -1;

    for (int i = group->n - 1; i > 0; i--) {
        int r = group->ranks[i];
        bool has_come = gathering->came[r] >= gathering->stamp;
        if (!has_come)
            awaited = r;
        if (!has_come && stepaf_consensus_has_lost(&net->consensus, r))
            lost = r;
    }
    *rank_p = lost >= 0 ? lost : awaited;
    if (lost >= 0) {
        stepaf_member_gather_report(net, group);
        say_all_words(net, group, STEPAF_ERR_PEER_LOST, lost, &nothing);
        return STEPAF_ERR_PEER_LOST;
    }
    if (awaited >= 0)
        return STEPAF_INPROGRESS;
    if (!make_value(net, group, &gathering->value))
        return STEPAF_ERR_NO_MEMORY; /* and the others wait: this rank can try again */
    say_all_words(net, group, STEPAF_OK, 0, &gathering->value);
    return STEPAF_OK;
}

/* What the others have heard of it. */
static stepaf_status_t hear_first(const struct stepaf_member_net *net,
                                  const struct stepaf_member_group *group, int *rank_p)
{
    const struct member_gathering *gathering = &net->gatherings[group->channel];

    *rank_p = gathering->awaits >= 0 ? gathering->awaits : group->ranks[0];
    if (gathering->answered >= gathering->stamp && gathering->answered_by == group->ranks[0]) {
        *rank_p = gathering->rank;
        return gathering->status;
    }
    if (!stepaf_consensus_has_lost(&net->consensus, group->ranks[0]))
        return STEPAF_INPROGRESS;
    *rank_p = group->ranks[0];
    return STEPAF_ERR_PEER_LOST;
}

stepaf_status_t stepaf_member_gather_look(struct stepaf_member_net *net,
                                          const struct stepaf_member_group *group, int *rank_p)
{
    struct member_gathering *gathering = &net->gatherings[group->channel];
    stepaf_status_t status = group->ranks[0] == net->consensus.rank
                                 ? judge_words(net, group, rank_p)
                                 : hear_first(net, group, rank_p);

    gathering->is_over = status == STEPAF_OK || status == STEPAF_ERR_PEER_LOST;
    return status;
}

void stepaf_member_gather_hint(struct stepaf_member_net *net,
                               const struct stepaf_member_group *group, int rank)
{
    static const struct stepaf_consensus_blob nothing;

    if (group->ranks[0] == net->consensus.rank)
        say_all_words(net, group, STEPAF_ERR_TIMEOUT, rank, &nothing);
}

const struct stepaf_consensus_blob *stepaf_member_gather_value(const struct stepaf_member_net *net,
                                                               int channel)
{
    return &net->gatherings[channel].value;
}

void stepaf_member_gather_report(struct stepaf_member_net *net,
                                 const struct stepaf_member_group *group)
{
    bool is_first = group->ranks[0] == net->consensus.rank;

    for (int i = 0; i < (is_first ? group->n : 1); i++)
        stepaf_consensus_report(&net->consensus, group->ranks[i]);
}

/* ---- what comes ---- */

static bool hear_all_words(struct stepaf_member_net *net, int from,
                           struct member_gathering *gathering, struct stepaf_unpack *unpack)
{
    uint64_t stamp = stepaf_unpack_u64(unpack);
    stepaf_status_t status = stepaf_status_from(stepaf_unpack_u32(unpack));
    uint32_t rank = stepaf_unpack_u32(unpack);

    if (unpack->failed || rank >= (uint32_t)net->consensus.size ||
        (status != STEPAF_OK && status != STEPAF_ERR_TIMEOUT && status != STEPAF_ERR_PEER_LOST))
        return false;
    if (status == STEPAF_ERR_TIMEOUT) {
        if (stamp == gathering->stamp)
            gathering->awaits = (int)rank;
        return true;
    }
    if (from == gathering->answered_by && stamp <= gathering->answered)
        return true;
    if (!keep_words(&gathering->value, unpack->at, (size_t)(unpack->end - unpack->at)))
        return false;
    gathering->answered = stamp;
    gathering->answered_by = from;
    gathering->status = status;
    gathering->rank = (int)rank;
    return true;
}

bool stepaf_member_gather_take(struct stepaf_member_net *net, int from,
                               const struct stepaf_control_frame *frame, const void *data)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(data, frame->bytes);

    uint32_t channel = stepaf_unpack_u32(&unpack);

    if (unpack.failed || channel >= STEPAF_MEMBER_GATHERINGS)
        return false;
    struct member_gathering *gathering = &net->gatherings[channel];
    if (frame->type == STEPAF_CONTROL_ALL_WORDS)
        return hear_all_words(net, from, gathering, &unpack);
    uint64_t stamp = stepaf_unpack_u64(&unpack);
    return !unpack.failed &&
           keep_came(net, gathering, from, stamp, unpack.at, (size_t)(unpack.end - unpack.at));
}
