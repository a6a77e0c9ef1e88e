/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's side: how a process that wants a lost rank's place finds members and becomes one of
 * them. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/control/socket.h"
#include "boot/member_net_inside.h"

enum {
    AGAIN_NS = 20000000, /* between rounds of calls */
    PLACES_MAX = 1024,
    PLACE_MAX = STEPAF_PLACE_MEET_MAX
};

bool stepaf_member_net_be_guest(struct stepaf_member_net *net, const uint8_t *key)
{
    struct member_return *returns = calloc(1, sizeof *returns);
    uint32_t *asked = calloc((size_t)net->consensus.size, sizeof *asked);

    if (!returns || !asked || !stepaf_proof_draw(&returns->id, sizeof returns->id)) {
        free(returns);
        free(asked);
        return false;
    }
    returns->asked = asked;
    returns->home = returns->refused_for = -1;
    returns->refused = STEPAF_ERR_BOOT;
    net->returns = returns;
    net->control.guests.is_one = true;
    stepaf_member_net_let_ask(net, key); /* takes effect once it is a member */
    return true;
}

enum stepaf_member_admission stepaf_member_net_admission(const struct stepaf_member_net *net)
{
    return net->returns->admission;
}

const char *stepaf_member_net_answer(const struct stepaf_member_net *net)
{
    return net->returns->text;
}

stepaf_status_t stepaf_member_net_refusal(const struct stepaf_member_net *net, int *peer_p)
{
    *peer_p = net->returns->refused_for;
    return net->returns->refused;
}

void stepaf_member_net_counts(const struct stepaf_member_net *net, uint32_t *epoch_p,
                              uint32_t *n_commits_p)
{
    *epoch_p = net->epoch;
    *n_commits_p = net->n_commits;
}

const char *stepaf_member_net_members_over(const struct stepaf_member_net *net)
{
    const char *why = NULL;

    for (int r = 0; r < net->consensus.size; r++) {
        if (r == net->consensus.rank || !net->consensus.is_member[r])
            continue;
        if (!net->others[r].is_over)
            return NULL;
        why = net->others[r].trouble;
    }
    return why;
}

/* ---- frames of members ---- */

/* One rank, as described by a member. */
struct told_rank {
    uint32_t life, gone;
    bool is_member, has_left;
    struct stepaf_consensus_blob card;
};

static struct told_rank read_rank(struct stepaf_unpack *unpack)
{
    struct told_rank told = {.life = stepaf_unpack_u32(unpack), .gone = stepaf_unpack_u32(unpack)};

    uint32_t fate = stepaf_unpack_u32(unpack); /* as tell_state writes it */
    told.is_member = fate == 1;
    told.has_left = fate == 2;
    told.card.bytes = stepaf_unpack_u64(unpack);
    told.card.data =
        told.card.bytes ? (uint8_t *)(uintptr_t)stepaf_unpack_bytes(unpack, told.card.bytes) : NULL;
    unpack->failed = unpack->failed || !told.life;
    return told;
}

/* Make this process a member: from now on it can be called as one, and calls others as one. */
static bool become_member(struct stepaf_member_net *net, uint32_t number, const uint8_t *key,
                          const struct stepaf_unpack *value)
{
    struct stepaf_consensus *consensus = &net->consensus;

    if (stepaf_consensus_has_lost(consensus, consensus->rank) ||
        !stepaf_consensus_return(consensus, number, value->at, (size_t)(value->end - value->at)))
        return false;
    net->control.guests.is_one = false;
    stepaf_member_net_set_key(net, key);
    return stepaf_control_open_door(&net->control);
}

/* Close connections from an earlier life, except the one that is being read. Their end may not have
 * arrived here yet; once this process is a member, that end would be taken for the end of the
 * process that has the place now. */
static void part_with_earlier(struct stepaf_member_net *net, const struct stepaf_control_link *read)
{
    struct stepaf_control_link **links = net->control.links;

    for (int r = 0; r < net->consensus.size; r++)
        if (links[r] && links[r] != read && net->others[r].called < net->consensus.lives[r]) {
            stepaf_control_link_free(links[r]);
            links[r] = NULL;
        }
}

static bool hear_state(struct stepaf_member_net *net, const struct stepaf_control_link *link,
                       const void *data, size_t bytes)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(data, bytes), ranks;
    struct stepaf_consensus *consensus = &net->consensus;
    uint32_t number = stepaf_unpack_u32(&unpack);
    uint32_t epoch = stepaf_unpack_u32(&unpack), n_commits = stepaf_unpack_u32(&unpack);
    const uint8_t *key = stepaf_unpack_bytes(&unpack, sizeof net->control.place.key);

    if (stepaf_member_guest_has_state(net, data, bytes)) {
        net->returns->is_answered = net->returns->is_answered || link->rank == net->returns->home;
        return true;
    }
    ranks = unpack;
    for (int r = 0; r < consensus->size; r++)
        (void)read_rank(&unpack);
    if (unpack.failed || (!number && unpack.at != unpack.end))
        return false;
    if (number && (!net->returns->asks || link->rank < 0)) /* it has not asked to be admitted */
        return false;
    for (int r = 0; r < consensus->size; r++) {
        struct told_rank told = read_rank(&ranks);
        consensus->lives[r] = told.life;
        consensus->gone[r] = told.gone;
        consensus->is_member[r] = told.is_member;
        net->others[r].has_left = told.has_left;
        if (told.card.data && (r != consensus->rank || !net->returns->asks) &&
            !stepaf_member_net_set_card(net, r, told.card.data, told.card.bytes))
            return false;
    }
    part_with_earlier(net, link);
    stepaf_member_net_set_counts(net, epoch, n_commits);
    net->returns->has_state = true;
    net->returns->seen = number ? 0 : stepaf_member_digest(data, bytes);
    net->returns->is_answered = net->returns->is_answered || link->rank == net->returns->home;
    if (!number)
        return true;
    bool is_lost = stepaf_consensus_has_lost(consensus, consensus->rank);
    net->returns->admission = become_member(net, number, key, &unpack) ? STEPAF_MEMBER_ADMITTED
                                                                       : STEPAF_MEMBER_TURNED_AWAY;
    snprintf(net->returns->text, sizeof net->returns->text, "it was admitted, but %s",
             is_lost ? "the members have lost it since"
                     : "cannot take part: out of memory or descriptors");
    return true;
}

static bool hear_refusal(struct member_return *returns, int size,
                         const struct stepaf_control_frame *frame, const char *text)
{
    if (frame->bytes != sizeof returns->text)
        return false;
    memcpy(returns->text, text, sizeof returns->text);
    returns->text[sizeof returns->text - 1] = '\0';
    for (char *at = returns->text; *at; at++)
        if (*at < ' ' || *at > '~') /* the text becomes part of sentences */
            *at = '?';
    if (!frame->number)
        return true;
    returns->admission = STEPAF_MEMBER_TURNED_AWAY;
    returns->refused = stepaf_status_from(frame->number);
    returns->refused_for = frame->detail < (uint32_t)size ? (int)frame->detail : -1;
    return true;
}

/* Take frames until this process is a member. Later frames go to the consensus machine. So do,
 * without effect, frames of a member that has admitted this process and does not know that no other
 * member has told this process yet. */
bool stepaf_member_guest_take(struct stepaf_member_net *net, const struct stepaf_control_link *link,
                              const struct stepaf_control_frame *frame, const void *data)
{
    switch (frame->type) {
    case STEPAF_CONTROL_STATE:
        return hear_state(net, link, data, frame->bytes);
    case STEPAF_CONTROL_REFUSE:
        return hear_refusal(net->returns, net->consensus.size, frame, data);
    default:
        return frame->type == STEPAF_CONTROL_CONSENSUS || frame->type == STEPAF_CONTROL_BYE;
    }
}

/* ---- the first look ---- */

static void send_ask(struct stepaf_member_net *net, struct stepaf_control_link *link)
{
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_ASK};
    struct stepaf_pack pack = {0};

    stepaf_pack_u32(&pack, 0);
    stepaf_pack_u64(&pack, net->returns->id);
    frame.bytes = pack.bytes;
    if (!pack.failed)
        stepaf_control_send(link, &frame, pack.data);
    free(pack.data);
}

/* The result of a call, or of the calls to all addresses of a place. */
enum look_end {
    LOOK_NOBODY,  /* no process listens there */
    LOOK_SILENT,  /* a member may answer there later */
    LOOK_REFUSED, /* by another job: its secret, or its number of ranks, is another */
    LOOK_TOLD     /* a member has answered */
};

/* The result of the calls to all places. A place may belong to another job by now: its refusal
 * counts only where no place has answered, or may answer, as a member of this job. */
struct look_round {
    bool is_told, is_refused, is_silent; /* some place */
    uint32_t other_size; /* not 0: the number of ranks of the job at refused_by, which is not the
                          * number that this process says */
    char refused_by[PLACE_MAX + 1];
    char refusal[STEPAF_ERROR_TEXT_MAX];
};

/* Judge a place by how the call there has ended. */
static enum look_end judge_end(const struct stepaf_control_link *link, uint32_t *other_size_p)
{
    uint32_t size_there = link->control->guests.size_there;

    if (link->state != STEPAF_CONTROL_CLOSED)
        return LOOK_SILENT;
    if (link->error == ERANGE && size_there) {
        *other_size_p = size_there;
        return LOOK_REFUSED;
    }
    if (link->trouble && link->error == EACCES)
        return LOOK_REFUSED;
    return !link->hello.magic && link->error == ECONNREFUSED ? LOOK_NOBODY : LOOK_SILENT;
}

/* Make one call, to its end. */
static enum look_end call_once(struct stepaf_member_net *net,
                               const struct stepaf_control_address *address, uint16_t port,
                               int64_t deadline_ns, uint32_t *other_size_p)
{
    struct stepaf_control *control = &net->control;
    struct member_return *returns = net->returns;
    int64_t until_ns = stepaf_monotonic_ns() + MEMBER_CONNECT_NS;
    int fd = stepaf_control_connect(address, port);
    struct stepaf_control_link *link =
        fd >= 0 ? stepaf_control_link_new(control, fd, STEPAF_CONTROL_CALLING) : NULL;
    bool has_asked = false;

    returns->is_told = false;
    if (!link) {
        bool is_nobody = fd < 0 && errno == ECONNREFUSED;
        snprintf(returns->text, sizeof returns->text, "%s", stepaf_why(errno));
        if (fd >= 0)
            stepaf_control_socket_close(fd);
        return is_nobody ? LOOK_NOBODY : LOOK_SILENT;
    }
    link->hello.to = stepaf_control_anybody;
    control->guests.look = link;
    until_ns = until_ns < deadline_ns ? until_ns : deadline_ns;
    returns->text[0] = '\0';
    while (!returns->has_state && !returns->text[0] && link->state != STEPAF_CONTROL_CLOSED &&
           stepaf_monotonic_ns() < until_ns && !stepaf_interrupted()) {
        struct pollfd one = {.fd = control->epoll_fd, .events = POLLIN};
        (void)poll(&one, 1, 1);
        (void)stepaf_control_pump(control);
        if (link->state == STEPAF_CONTROL_UP && !has_asked)
            send_ask(net, link);
        has_asked = has_asked || link->state == STEPAF_CONTROL_UP;
    }
    enum look_end end = judge_end(link, other_size_p);
    returns->is_told = !returns->has_state && returns->text[0];
    if (!returns->has_state && !returns->is_told)
        snprintf(returns->text, sizeof returns->text, "%s",
                 link->state != STEPAF_CONTROL_CLOSED ? "no answer"
                 : link->trouble                      ? link->trouble
                                                      : stepaf_why(link->error));
    control->guests.look = NULL;
    stepaf_control_link_free(link);
    return returns->has_state || returns->is_told ? LOOK_TOLD : end;
}

static void note_other_job(const struct stepaf_member_net *net, const char *place,
                           uint32_t other_size, struct look_round *round)
{
    if (round->other_size && !other_size) /* a size says more than another secret */
        return;
    round->is_refused = true;
    round->other_size = other_size;
    snprintf(round->refused_by, sizeof round->refused_by, "%s", place);
    memcpy(round->refusal, net->returns->text, sizeof round->refusal);
}

/* Call the processes that listen at one of the places. */
static stepaf_status_t call_place(struct stepaf_member_net *net, const char *place,
                                  int64_t deadline_ns, struct look_round *round)
{
    struct stepaf_control_address addresses[STEPAF_CONTROL_ADDRESSES];
    char host[STEPAF_PLACE_HOST_MAX + 1];
    uint16_t port;
    int error = 0;

    if (!stepaf_place_split(place, host, &port))
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                "STEPAF_JOIN: \"%.64s\" is not host:port or [address]:port", place);
    int64_t limit_ns = stepaf_monotonic_ns() + MEMBER_CONNECT_NS;
    limit_ns = limit_ns < deadline_ns ? limit_ns : deadline_ns;
    int n = stepaf_control_resolve(host, addresses, limit_ns, &error);
    net->returns->is_told = false;
    if (!n)
        snprintf(net->returns->text, sizeof net->returns->text, "%s",
                 error == STEPAF_CONTROL_NO_ANSWER ? "the name service has not answered"
                                                   : "the name has no address");
    enum look_end end = n ? LOOK_NOBODY : LOOK_SILENT;
    for (int i = 0; i < n && end != LOOK_TOLD; i++) {
        uint32_t other_size = 0;
        enum look_end one = call_once(net, &addresses[i], port, deadline_ns, &other_size);
        if (one == LOOK_REFUSED)
            note_other_job(net, place, other_size, round);
        end = one > end ? one : end;
    }
    round->is_silent = round->is_silent || end == LOOK_SILENT;
    return STEPAF_OK;
}

static stepaf_status_t refuse_look(const struct stepaf_member_net *net, stepaf_status_t status,
                                   const struct look_round *round)
{
    if (round->other_size)
        return stepaf_error_set(
            status, STEPAF_PHASE_INIT,
            "rank %d cannot return by STEPAF_JOIN: %.64s: the job there has %u ranks, but this "
            "process has %d (STEPAF_SIZE, STEPAF_ROOM_ATTENTION, STEPAF_ROOM_FFN)",
            net->consensus.rank, round->refused_by, round->other_size, net->consensus.size);
    return stepaf_error_set(
        status, STEPAF_PHASE_INIT,
        "rank %d cannot return by STEPAF_JOIN: %.64s: %.140s (STEPAF_SECRET, STEPAF_SECRET_FILE)",
        net->consensus.rank, round->refused_by, round->refusal);
}

stepaf_status_t stepaf_member_net_look(struct stepaf_member_net *net, const char *join,
                                       int64_t deadline_ns)
{
    struct member_return *returns = net->returns;
    char place[PLACE_MAX + 1] = "", told_by[PLACE_MAX + 1] = "", told[sizeof returns->text];
    struct look_round round;

    do {
        const char *at = join;
        round = (struct look_round){0};
        while (*at && !returns->has_state) {
            size_t bytes = strcspn(at, ",");
            snprintf(place, sizeof place, "%.*s", (int)(bytes < PLACE_MAX ? bytes : PLACE_MAX), at);
            at += bytes + (at[bytes] == ',');
            stepaf_status_t status = call_place(net, place, deadline_ns, &round);
            if (status)
                return status;
            if (returns->is_told) {
                round.is_told = true;
                memcpy(told_by, place, sizeof told_by);
                memcpy(told, returns->text, sizeof told);
            }
        }
        if (returns->has_state)
            return STEPAF_OK;
        if (round.is_refused && !round.is_told && !round.is_silent)
            return refuse_look(net, STEPAF_ERR_BOOT, &round);
        (void)poll(NULL, 0, AGAIN_NS / 1000000);
    } while (stepaf_monotonic_ns() < deadline_ns && !stepaf_interrupted());
    /* A member's answer says more than another job's, and that more than the last call. */
    if (!told_by[0] && round.is_refused)
        return refuse_look(net, STEPAF_ERR_TIMEOUT, &round);
    return stepaf_error_set(STEPAF_ERR_TIMEOUT, STEPAF_PHASE_INIT,
                            "rank %d cannot return by STEPAF_JOIN: %.64s: %.140s",
                            net->consensus.rank, told_by[0] ? told_by : place,
                            told_by[0] ? told : returns->text);
}
