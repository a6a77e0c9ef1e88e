/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a process that wants a lost rank's place: it asks members until one admits it. */
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
#include "boot/member_net_inside.h"

enum {
    ROUND_NS = 20000000,      /* between checks for members that have not been asked */
    ASK_AGAIN_NS = 1000000000 /* ask members again for what has happened since */
};

bool stepaf_member_net_ask(struct stepaf_member_net *net, const void *words, size_t bytes)
{
    struct member_return *returns = net->returns;
    uint8_t *copy = malloc(bytes + 1);

    if (!copy)
        return false;
    memcpy(copy, words, bytes);
    free(returns->words.data);
    returns->words = (struct stepaf_consensus_blob){copy, bytes};
    returns->asks = true;
    return true;
}

void stepaf_member_net_withdraw(struct stepaf_member_net *net)
{
    struct member_return *returns = net->returns;

    returns->asks = false;
    returns->home = -1;
    memset(returns->asked, 0, (size_t)net->consensus.size * sizeof *returns->asked);
    for (int r = 0; r < net->consensus.size; r++) {
        stepaf_member_net_drop(net, r);
        stepaf_control_link_free(net->control.links[r]);
        net->control.links[r] = NULL;
    }
}

/* The home keeps the words that it has if a request that is sent @a again has none. */
static void ask_member(struct stepaf_member_net *net, int rank, bool again)
{
    struct member_return *returns = net->returns;
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, STEPAF_ASK_ADMISSION | STEPAF_ASK_HAS_SEEN);
    stepaf_pack_u64(&pack, returns->id);
    stepaf_pack_u64(&pack, returns->seen);
    if (rank == returns->home) {
        returns->asked_ns = stepaf_monotonic_ns();
        returns->is_answered = false;
        if (!again)
            stepaf_pack_bytes(&pack, returns->words.data, returns->words.bytes);
    }
    if (!pack.failed) {
        returns->asked[rank] = net->consensus.lives[rank];
        stepaf_member_net_say(net, rank, STEPAF_CONTROL_ASK, pack.data, pack.bytes);
    }
    free(pack.data);
}

static bool can_hear(const struct stepaf_member_net *net, int rank)
{
    return net->others[rank].queue || stepaf_member_net_way(net, rank);
}

/* Return the next member that is not lost, after rank @a behind; -1: none. */
static int next_member(const struct stepaf_member_net *net, int behind)
{
    const struct stepaf_consensus *consensus = &net->consensus;

    for (int i = 1; i <= consensus->size; i++) {
        int r = (behind + i) % consensus->size;
        if (r != consensus->rank && consensus->is_member[r] &&
            !stepaf_consensus_has_lost(consensus, r))
            return r;
    }
    return -1;
}

/* A home that is lost, or is no member, may still have its connection. */
static bool has_home(const struct stepaf_member_net *net)
{
    const struct stepaf_consensus *consensus = &net->consensus;
    int home = net->returns->home;

    return home >= 0 && can_hear(net, home) && consensus->is_member[home] &&
           !stepaf_consensus_has_lost(consensus, home);
}

/* The home knows the members that have arrived since. A home that does not answer may be stopped
 * while its connection is still there; another member may know that it is lost. */
static void ask_again(struct stepaf_member_net *net, int64_t now_ns)
{
    struct member_return *returns = net->returns;
    int other;

    if (now_ns - returns->asked_ns <= ASK_AGAIN_NS)
        return;
    if (returns->is_answered) {
        if (stepaf_member_net_way(net, returns->home))
            ask_member(net, returns->home, true);
        return;
    }
    other = next_member(net, returns->other);
    returns->other = other;
    returns->asked_ns = now_ns;
    if (other >= 0 && other != returns->home && stepaf_member_net_way(net, other))
        ask_member(net, other, true);
}

void stepaf_member_guest_pump(struct stepaf_member_net *net)
{
    struct member_return *returns = net->returns;
    const struct stepaf_consensus *consensus = &net->consensus;
    int64_t now_ns = stepaf_monotonic_ns();

    if (!returns->asks || returns->admission != STEPAF_MEMBER_WAITS || now_ns < returns->again_ns)
        return;
    returns->again_ns = now_ns + ROUND_NS;
    if (!has_home(net)) {
        /* The request may have been lost with the last home. */
        returns->home = next_member(net, returns->home);
        if (returns->home >= 0)
            returns->asked[returns->home] = 0;
    } else {
        ask_again(net, now_ns);
    }
    for (int r = 0; r < consensus->size; r++)
        if (r != consensus->rank && consensus->is_member[r] &&
            !stepaf_consensus_has_lost(consensus, r) &&
            (returns->asked[r] != consensus->lives[r] || !can_hear(net, r))) {
            stepaf_member_net_call_anew(net, r);
            ask_member(net, r, false);
        }
}
