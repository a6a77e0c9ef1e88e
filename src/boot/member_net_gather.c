/* SPDX-License-Identifier: Apache-2.0 */
/* How members gather. Only the first of the group gives the result of a gathering, once and for
 * all, and only to ranks that have sent their words in it:
 *
 * - All have come: OK, with what all have said; NO_MEMORY if the first has no memory for that.
 * - A rank is lost and has not come: PEER_LOST. All gatherings that follow in the epoch end
 *   likewise, since no words of a lost rank are taken: the lost rank is sent OUT, which ends its
 *   own gatherings.
 * - Otherwise the rank that the first waits for, which is not an answer.
 *
 * Stamps grow, and each is used once. Of a rank's words the latest stamp counts. A rank takes the
 * answer to its own stamp, from the first of that gathering; all other answers are late or early,
 * and are ignored. A rank needs no other answers: the first keeps the answer to the last stamp to
 * which all have come, and a rank whose words are already answered, because they are late or
 * repeated, gets that answer. No rank is left that can need an earlier one. A rank sends its words
 * once, and again if it had no memory for the answer: then its call has failed, and the next call
 * goes on with the same stamp.
 *
 * So the memory is bounded, also for a rank that reads nothing: on each channel the words of each
 * rank, and one answer. */
#include "boot/member_net_gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "boot/consensus/common.h"
#include "boot/member_net_inside.h"

enum { ANSWER_HEAD_BYTES = 20 }; /* channel, stamp, status, rank; what all have said follows */

static bool is_first(const struct stepaf_member_net *net, const struct member_gathering *gathering)
{
    return gathering->first == net->consensus.rank;
}

static bool are_of_one_epoch(uint64_t stamp, uint64_t other)
{
    return stamp >> 32 == other >> 32;
}

/* Keep an answer, from malloc, in place of the previous one; NULL: no rank had words. */
static void set_answer(struct member_gathering *gathering, uint8_t *data, size_t bytes)
{
    free(gathering->answer.data);
    gathering->answer = (struct stepaf_consensus_blob){data, bytes};
    gathering->value = (struct stepaf_consensus_blob){0};
    if (data)
        gathering->value =
            (struct stepaf_consensus_blob){data + ANSWER_HEAD_BYTES, bytes - ANSWER_HEAD_BYTES};
}

void stepaf_member_gather_free(struct stepaf_member_net *net)
{
    for (int c = 0; c < STEPAF_MEMBER_GATHERINGS; c++) {
        set_answer(&net->gatherings[c], NULL, 0);
        for (int r = 0; net->others && r < net->control.place.size; r++)
            free(net->others[r].said[c].words.data);
    }
}

/* ---- answers: sent by the first ---- */

static void pack_answer_head(struct stepaf_pack *pack, int channel, uint64_t stamp,
                             stepaf_status_t status, int rank)
{
    stepaf_pack_u32(pack, (uint32_t)channel);
    stepaf_pack_u64(pack, stamp);
    stepaf_pack_u32(pack, (uint32_t)status);
    stepaf_pack_u32(pack, (uint32_t)rank);
}

/* A lost rank may be there nevertheless, and wait; it is answered if connected, but not called.
 * Returns false if there is no memory. */
static bool say_answer(struct stepaf_member_net *net, int to, const void *answer, size_t bytes)
{
    bool is_called =
        !stepaf_consensus_has_lost(&net->consensus, to) || stepaf_member_net_way(net, to);

    return !is_called || stepaf_member_net_say(net, to, STEPAF_CONTROL_ALL_WORDS, answer, bytes);
}

static bool say_status(struct stepaf_member_net *net, int to, int channel, stepaf_status_t status,
                       int rank)
{
    uint8_t head[ANSWER_HEAD_BYTES];
    struct stepaf_pack pack = {.data = head, .capacity = sizeof head};

    pack_answer_head(&pack, channel, net->others[to].said[channel].stamp, status, rank);
    return say_answer(net, to, head, sizeof head);
}

/* Answer a rank's last words, if there is an answer to them that it has not got. */
static void answer_words(struct stepaf_member_net *net, int channel, int to)
{
    const struct member_gathering *gathering = &net->gatherings[channel];
    struct member_said *said = &net->others[to].said[channel];
    bool is_complete = said->stamp && said->stamp == gathering->complete;
    bool fails = gathering->fails && said->stamp > gathering->complete &&
                 are_of_one_epoch(said->stamp, gathering->stamp);

    if (!is_first(net, gathering) || said->is_answered || (!is_complete && !fails))
        return;
    if (fails)
        said->is_answered = say_status(net, to, channel, STEPAF_ERR_PEER_LOST, gathering->lost);
    else if (gathering->value.data)
        said->is_answered = say_answer(net, to, gathering->answer.data, gathering->answer.bytes);
    else
        said->is_answered = say_status(net, to, channel, gathering->completed, to);
}

/* Collect what all have said. Returns false if there is no memory, now or when the words
 * arrived. */
static bool collect_words(struct stepaf_member_net *net, const struct stepaf_member_group *group,
                          struct stepaf_consensus_blob *blobs, size_t *bytes_p)
{
    static uint8_t nothing;

    *bytes_p = 0;
    for (int i = 0; i < group->n; i++) {
        const struct member_said *said = &net->others[group->ranks[i]].said[group->channel];
        if (said->is_short)
            return false;
        blobs[group->ranks[i]] = (struct stepaf_consensus_blob){
            said->words.data ? said->words.data : &nothing, said->words.bytes};
        *bytes_p += said->words.bytes;
    }
    return true;
}

static bool make_answer(struct stepaf_member_net *net, const struct stepaf_member_group *group)
{
    struct member_gathering *gathering = &net->gatherings[group->channel];
    int size = net->consensus.size;
    struct stepaf_consensus_blob *blobs = calloc((size_t)size, sizeof *blobs);
    struct stepaf_pack pack = {0};
    uint8_t *value = NULL;
    size_t bytes = 0;
    bool is_made = blobs && collect_words(net, group, blobs, &bytes);

    set_answer(gathering, NULL, 0);
    if (is_made && bytes) {
        value = stepaf_consensus_value_make(blobs, size, &bytes);
        pack_answer_head(&pack, group->channel, gathering->stamp, STEPAF_OK, 0);
        stepaf_pack_bytes(&pack, value, value ? bytes : 0);
        is_made = value && !pack.failed;
    }
    if (is_made)
        set_answer(gathering, pack.data, pack.bytes);
    else
        free(pack.data);
    free(value);
    free(blobs);
    return is_made;
}

/* Return the first missing rank that is lost, otherwise the first missing rank; -1: none. */
static int find_missing(const struct stepaf_member_net *net,
                        const struct stepaf_member_group *group, bool *is_lost_p)
{
    int awaited = -1;

    for (int i = group->n - 1; i > 0; i--) {
        int r = group->ranks[i];
        if (net->others[r].said[group->channel].stamp == net->gatherings[group->channel].stamp)
            continue;
        bool is_lost = stepaf_consensus_has_lost(&net->consensus, r);
        if (is_lost || !*is_lost_p)
            awaited = r;
        *is_lost_p = *is_lost_p || is_lost;
    }
    return awaited;
}

/* At the first: find the result of the gathering. */
static void judge_gathering(struct stepaf_member_net *net, const struct stepaf_member_group *group)
{
    struct member_gathering *gathering = &net->gatherings[group->channel];
    bool is_lost = net->consensus.is_out;
    int missing = is_lost ? net->consensus.rank : find_missing(net, group, &is_lost);

    gathering->rank = missing;
    if (is_lost) {
        gathering->fails = true;
        gathering->lost = missing;
        gathering->status = STEPAF_ERR_PEER_LOST;
    } else if (missing >= 0) {
        return;
    } else {
        gathering->complete = gathering->stamp;
        gathering->completed = make_answer(net, group) ? STEPAF_OK : STEPAF_ERR_NO_MEMORY;
        gathering->status = gathering->completed;
    }
    for (int i = 1; i < group->n; i++)
        answer_words(net, group->channel, group->ranks[i]);
}

/* ---- words: sent by each ---- */

/* Of a rank's words the latest stamp counts. */
static void keep_words(struct stepaf_member_net *net, int channel, int rank, uint64_t stamp,
                       const void *words, size_t bytes)
{
    struct member_said *said = &net->others[rank].said[channel];

    if (stamp <= said->stamp)
        return;
    free(said->words.data);
    *said = (struct member_said){.stamp = stamp, .hinted = -1};
    if (bytes)
        said->words = (struct stepaf_consensus_blob){malloc(bytes), bytes};
    said->is_short = bytes && !said->words.data;
    if (said->words.data)
        memcpy(said->words.data, words, bytes);
}

static bool say_words(struct stepaf_member_net *net, const struct stepaf_member_group *group,
                      uint64_t stamp, const void *words, size_t bytes)
{
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, (uint32_t)group->channel);
    stepaf_pack_u64(&pack, stamp);
    stepaf_pack_bytes(&pack, words, bytes);
    bool is_said = !pack.failed && stepaf_member_net_say(net, group->ranks[0], STEPAF_CONTROL_WORDS,
                                                         pack.data, pack.bytes);
    free(pack.data);
    return is_said;
}

static void begin_next(struct member_gathering *gathering, uint32_t epoch, int first)
{
    uint64_t before = (uint64_t)epoch << 32;

    if (are_of_one_epoch(gathering->stamp, before)) {
        before = gathering->stamp;
    } else {
        gathering->fails = false;
        gathering->n_told = 0;
    }
    gathering->stamp = before + 1;
    gathering->first = gathering->rank = first;
    gathering->status = STEPAF_INPROGRESS;
    gathering->is_said = gathering->is_over = false;
}

bool stepaf_member_gather_begin(struct stepaf_member_net *net,
                                const struct stepaf_member_group *group, uint32_t epoch,
                                const void *words, size_t bytes)
{
    struct member_gathering *gathering = &net->gatherings[group->channel];

    if (gathering->is_over || !are_of_one_epoch(gathering->stamp, (uint64_t)epoch << 32))
        begin_next(gathering, epoch, group->ranks[0]);
    if (is_first(net, gathering)) {
        keep_words(net, group->channel, net->consensus.rank, gathering->stamp, words, bytes);
        gathering->is_said = true;
    } else if (net->consensus.is_out ||
               stepaf_consensus_has_lost(&net->consensus, gathering->first)) {
        gathering->is_said = true; /* as good as: nobody receives them */
    } else if (!gathering->is_said) {
        gathering->is_said = say_words(net, group, gathering->stamp, words, bytes);
    }
    return gathering->is_said;
}

/* ---- the result ---- */

/* Send OUT to a lost rank: it may live, and wait for this rank. */
static void tell_out(struct stepaf_member_net *net, int lost)
{
    struct stepaf_consensus_message out =
        stepaf_consensus_begin(&net->consensus, STEPAF_CONSENSUS_OUT, 0);

    if (stepaf_member_net_way(net, lost))
        net->consensus.send(net->consensus.arg, lost, &out);
}

/* Tell the first of the group the losses that this rank knows; the first tells all. */
static void tell_losses(struct stepaf_member_net *net, const struct stepaf_member_group *group)
{
    struct member_gathering *gathering = &net->gatherings[group->channel];

    if (gathering->n_told == net->consensus.n_lost)
        return;
    gathering->n_told = net->consensus.n_lost;
    for (int i = 0; i < (is_first(net, gathering) ? group->n : 1); i++)
        if (stepaf_consensus_has_lost(&net->consensus, group->ranks[i]))
            tell_out(net, group->ranks[i]);
        else
            stepaf_consensus_report(&net->consensus, group->ranks[i]);
}

/* At the other ranks, as long as there is no answer: check whether the first is lost. */
static void look_for_first(const struct stepaf_member_net *net, struct member_gathering *gathering)
{
    bool is_out = net->consensus.is_out;

    if (!is_out && !stepaf_consensus_has_lost(&net->consensus, gathering->first))
        return;
    gathering->status = STEPAF_ERR_PEER_LOST;
    gathering->rank = is_out ? net->consensus.rank : gathering->first;
}

stepaf_status_t stepaf_member_gather_look(struct stepaf_member_net *net,
                                          const struct stepaf_member_group *group, int *rank_p)
{
    struct member_gathering *gathering = &net->gatherings[group->channel];

    tell_losses(net, group);
    if (gathering->status == STEPAF_INPROGRESS && is_first(net, gathering))
        judge_gathering(net, group);
    else if (gathering->status == STEPAF_INPROGRESS)
        look_for_first(net, gathering);
    gathering->is_over = gathering->status != STEPAF_INPROGRESS;
    *rank_p = gathering->rank;
    return gathering->is_over || gathering->is_said ? gathering->status : STEPAF_ERR_NO_MEMORY;
}

void stepaf_member_gather_hint(struct stepaf_member_net *net,
                               const struct stepaf_member_group *group, int rank)
{
    const struct member_gathering *gathering = &net->gatherings[group->channel];

    for (int i = 1; i < group->n && is_first(net, gathering); i++) {
        struct member_said *said = &net->others[group->ranks[i]].said[group->channel];
        if (said->stamp != gathering->stamp || said->is_answered || said->hinted == rank)
            continue;
        if (say_status(net, group->ranks[i], group->channel, STEPAF_ERR_TIMEOUT, rank))
            said->hinted = rank;
    }
}

const struct stepaf_consensus_blob *stepaf_member_gather_value(const struct stepaf_member_net *net,
                                                               int channel)
{
    return &net->gatherings[channel].value;
}

/* ---- incoming frames ---- */

static bool hear_gathering(struct stepaf_member_net *net, int from,
                           struct member_gathering *gathering, const void *answer,
                           struct stepaf_unpack *unpack)
{
    uint64_t stamp = stepaf_unpack_u64(unpack);
    stepaf_status_t status = stepaf_status_from(stepaf_unpack_u32(unpack));
    uint32_t rank = stepaf_unpack_u32(unpack);

    if (unpack->failed || rank >= (uint32_t)net->consensus.size ||
        (status != STEPAF_OK && status != STEPAF_ERR_TIMEOUT && status != STEPAF_ERR_PEER_LOST &&
         status != STEPAF_ERR_NO_MEMORY))
        return false;
    if (from != gathering->first || stamp != gathering->stamp ||
        gathering->status != STEPAF_INPROGRESS)
        return true;
    bool has_words = status == STEPAF_OK && unpack->at < unpack->end;
    size_t bytes = (size_t)(unpack->end - (const uint8_t *)answer);
    uint8_t *copy = has_words ? malloc(bytes) : NULL;
    if (has_words && !copy) {
        gathering->is_said = false; /* to ask for the answer again */
        return true;
    }
    if (copy)
        memcpy(copy, answer, bytes);
    if (status == STEPAF_OK)
        set_answer(gathering, copy, copy ? bytes : 0);
    gathering->rank = (int)rank;
    if (status != STEPAF_ERR_TIMEOUT)
        gathering->status = status;
    return true;
}

static bool hear_words(struct stepaf_member_net *net, int from, uint32_t channel,
                       struct stepaf_unpack *unpack)
{
    uint64_t stamp = stepaf_unpack_u64(unpack);
    struct member_said *said = &net->others[from].said[channel];

    if (unpack->failed || !stamp)
        return false;
    if (stamp == said->stamp)
        said->is_answered = false; /* the rank asks again */
    keep_words(net, (int)channel, from, stamp, unpack->at, (size_t)(unpack->end - unpack->at));
    answer_words(net, (int)channel, from);
    return true;
}

bool stepaf_member_gather_take(struct stepaf_member_net *net, int from,
                               const struct stepaf_control_frame *frame, const void *data)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(data, frame->bytes);
    uint32_t channel = stepaf_unpack_u32(&unpack);
    bool is_lost = stepaf_consensus_has_lost(&net->consensus, from);

    if (unpack.failed || channel >= STEPAF_MEMBER_GATHERINGS)
        return false;
    if (is_lost)
        tell_out(net, from);
    if (frame->type == STEPAF_CONTROL_ALL_WORDS)
        return hear_gathering(net, from, &net->gatherings[channel], data, &unpack);
    return is_lost || hear_words(net, from, channel, &unpack);
}
