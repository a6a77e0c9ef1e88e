/* SPDX-License-Identifier: Apache-2.0 */
/* Receive active messages. UCX calls stepaf_ucx_take() within its progress, where a link must not be
 * closed and nothing may wait: so what has arrived is counted there, and delivered after UCX's
 * progress. */
#include <string.h>

#include "base/time.h"
#include "base/writable.h"
#include "transport/ucx/ucx.h"

enum { ASIDE_ROUNDS = 64 };

/* An active message in UCX's memory, which has no alignment. */
struct arrival {
    struct stepaf_ucx_head head;
    const uint8_t *places;
    const uint8_t *msg; /* the stepaf_msg of a MESSAGE that is not short */
    size_t msg_bytes;
    const uint8_t *more; /* bytes for the places, if they are in the header */
    size_t more_bytes;
};

/* Where a part of the data is to be stored. */
struct part {
    uint8_t *to;
    uint32_t bytes;
    bool lent; /* the caller's memory, which may be unmapped or read-only by now */
};

/* Find the stepaf_msg at @a at, in at most @a bytes bytes. Returns false if there is none. */
static bool parse_msg(const uint8_t *at, size_t bytes, struct arrival *it)
{
    uint32_t n_words;

    if (bytes < offsetof(struct stepaf_msg, word))
        return false;
    memcpy(&n_words, at + offsetof(struct stepaf_msg, n_words), sizeof(n_words));
    it->msg = at;
    it->msg_bytes = offsetof(struct stepaf_msg, word) + n_words * sizeof(uint32_t);
    return n_words <= STEPAF_MSG_WORDS && it->msg_bytes <= bytes;
}

/* Returns false if the header is malformed. */
static bool parse(const void *header, size_t bytes, struct arrival *it)
{
    const uint8_t *at = header;

    if (bytes < sizeof(it->head) || bytes > STEPAF_UCX_HEAD_MAX)
        return false;
    memcpy(&it->head, at, sizeof(it->head));
    at += sizeof(it->head);
    bytes -= sizeof(it->head);
    size_t places = it->head.n_places * sizeof(struct stepaf_ucx_place);
    if (it->head.kind > STEPAF_FABRIC_HELLO || it->head.n_places > STEPAF_UCX_PLACES ||
        bytes < places)
        return false;
    it->places = at;
    at += places;
    bytes -= places;
    it->more_bytes = 0;
    it->msg_bytes = 0;
    if (it->head.kind != STEPAF_FABRIC_MESSAGE)
        return !bytes;
    if (it->head.is_short ? it->head.imm >> STEPAF_IMM_CODE_SHIFT == STEPAF_IMM_OTHER
                          : !parse_msg(at, bytes, it))
        return false;
    it->more = at + it->msg_bytes;
    it->more_bytes = bytes - it->msg_bytes;
    return true;
}

/* Find where each part is to be stored. Returns false if a place does not exist, or the places have
 * more or fewer than @a bytes bytes. */
static bool find_places(struct stepaf_upcalls *up, const struct arrival *it, size_t bytes,
                        struct part *parts)
{
    for (unsigned i = 0; i < it->head.n_places; i++) {
        struct stepaf_ucx_place place;
        memcpy(&place, it->places + i * sizeof(place), sizeof(place));
        if (place.bytes > bytes)
            return false;
        bytes -= place.bytes;
        struct stepaf_target named = up->resolve(up, place.id, place.offset, place.bytes);
        if (!named.at)
            return false;
        parts[i] = (struct part){named.at, place.bytes, named.mem->lent};
    }
    return !bytes;
}

/* If a place of the message is in registered GPU memory, return the registration and set the place;
 * NULL: none is. */
static __attribute__((noinline, cold)) const struct stepaf_ucx_registration *find_gpu(
    const struct stepaf_ucx_link *link, const uint8_t *places, unsigned n, struct part *first_p)
{
    struct stepaf_upcalls *up = stepaf_ucx_of(link)->shared.base.up;
    const struct stepaf_ucx_registration *own = NULL;

    for (unsigned i = 0; i < n && !own; i++) {
        struct stepaf_ucx_place place;
        memcpy(&place, places + i * sizeof(place), sizeof(place));
        struct stepaf_target named = up->resolve(up, place.id, place.offset, place.bytes);
        own = stepaf_ucx_gpu_named(link, &named);
        if (own)
            *first_p = (struct part){named.mem->base + place.offset, place.bytes, false};
    }
    return own;
}

static void fetched(void *request, ucs_status_t status, size_t bytes, void *user_data)
{
    const struct stepaf_ucx_in *in = user_data;

    (void)bytes;
    in->link->n_fetches--;
    stepaf_ucx_of(in->link)->calls->request_free(request);
    stepaf_ucx_has_come(in->link, in->place, status);
}

/* UCX has only announced the data: fetch them into their place. Returns the status to return to
 * UCX. */
static ucs_status_t fetch(struct stepaf_ucx_link *link, uint32_t place, void *data,
                          const struct part *part)
{
    const struct stepaf_ucx *ucx = stepaf_ucx_of(link);
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.recv_am = fetched,
                                       .user_data = &link->in[place]};
    link->n_fetches++; /* before the call, which may report the completion */
    ucs_status_ptr_t request =
        ucx->calls->am_recv_data_nbx(ucx->worker, data, part->to, part->bytes, &param);
    if (UCS_PTR_IS_PTR(request))
        return UCS_INPROGRESS;
    link->n_fetches--;
    stepaf_ucx_has_come(link, place, UCS_PTR_STATUS(request));
    return UCS_INPROGRESS;
}

/* Count a message. @a n_told is 1 if its own data are to be fetched, which counts as one more piece;
 * else 0. */
static void keep_message(struct stepaf_ucx_link *link, const struct arrival *it, uint32_t n_told)
{
    const struct stepaf_ucx_head *head = &it->head;
    uint32_t pieces = head->pieces + n_told;

    if (head->is_short) {
        stepaf_fabric_take_credit(&link->shared, head->taken);
        stepaf_fabric_count_imm(&link->shared, head->number, pieces, head->imm);
        return;
    }
    struct stepaf_fabric_slot slot = {head->token, head->number, head->taken, pieces, 0, {0}};
    memcpy(&slot.msg, it->msg, it->msg_bytes);
    memcpy(link->slots[head->number % STEPAF_FABRIC_RING], &slot, sizeof(slot));
    stepaf_fabric_count(&link->shared, STEPAF_FABRIC_MESSAGE, head->number);
}

/* Take the data of a piece or a message. @a is_told_only: UCX has only announced the data;
 * @a beside_gpu: this rank has GPU memory; @a own: the registration of the GPU memory that the data
 * are for. Returns UCS_INPROGRESS if @a data stays valid until it is fetched. */
static ucs_status_t take_data(struct stepaf_ucx_link *link, const struct arrival *it,
                              const struct part *parts, void *data, bool is_told_only,
                              bool beside_gpu, const struct stepaf_ucx_registration *own)
{
    uint32_t number = it->head.number, place = number % STEPAF_FABRIC_RING;
    const uint8_t *from = it->more_bytes ? it->more : data;

    for (unsigned i = 0; i < it->head.n_places && !is_told_only; i++) {
        if (parts[i].lent && !stepaf_is_writable(parts[i].to, parts[i].bytes)) {
            stepaf_ucx_cannot_write(link);
            return UCS_OK; /* not counted, so nothing is delivered */
        }
        if (parts[i].bytes)
            memcpy(parts[i].to, from, parts[i].bytes);
        from += parts[i].bytes;
    }
    if (it->head.kind == STEPAF_FABRIC_MESSAGE)
        keep_message(link, it, is_told_only);
    if (is_told_only && beside_gpu)
        return stepaf_ucx_fetch_inside(link, place, data, own, parts[0].to, parts[0].bytes);
    if (is_told_only)
        return fetch(link, place, data, &parts[0]);
    if (it->head.kind == STEPAF_FABRIC_PIECE)
        stepaf_fabric_count(&link->shared, STEPAF_FABRIC_PIECE, number);
    stepaf_ucx_note(link);
    return UCS_OK;
}

static ucs_status_t drop(struct stepaf_ucx *ucx)
{
    ucx->shared.base.up->dropped_malformed++;
    return UCS_OK;
}

/* Take an active message that is not quick. @a beside_gpu, a constant for the compiler: this rank has
 * GPU memory that UCX moves. */
static ucs_status_t take_arrival(struct stepaf_ucx *ucx, const void *header, size_t header_bytes,
                                 void *data, size_t bytes, bool is_told_only, bool beside_gpu)
{
    const struct stepaf_ucx_registration *own = NULL;
    struct part parts[STEPAF_UCX_PLACES];
    struct arrival it;
    bool good;

    if (!parse(header, header_bytes, &it) || it.head.token != ucx->shared.token ||
        it.head.peer >= ucx->shared.n_peers)
        return drop(ucx);
    struct stepaf_ucx_link *link = &ucx->links[it.head.peer];
    if (link->shared.base.dead)
        return UCS_OK;
    if (it.head.kind == STEPAF_FABRIC_CREDIT || it.head.kind == STEPAF_FABRIC_HELLO) {
        link->shared.heard++;
        if (it.head.kind == STEPAF_FABRIC_HELLO)
            link->shared.proof.here = true;
        else
            stepaf_fabric_take_credit(&link->shared, it.head.taken);
        return UCS_OK;
    }
    if (!stepaf_fabric_is_due(&link->shared, it.head.kind, it.head.number))
        return drop(ucx);
    link->shared.heard++;
    /* A message for GPU memory has one place, and its bytes are still at the peer. */
    if (beside_gpu && (own = find_gpu(link, it.places, it.head.n_places, &parts[0])))
        good = is_told_only && !it.more_bytes && it.head.n_places == 1 && parts[0].bytes == bytes;
    else
        good = !(it.more_bytes && (bytes || is_told_only)) &&
               find_places(ucx->shared.base.up, &it, bytes + it.more_bytes, parts) &&
               !(is_told_only && it.head.n_places != 1);
    if (!good) {
        stepaf_ucx_has_no_place(link);
        return drop(ucx);
    }
    return take_data(link, &it, parts, data, is_told_only, beside_gpu, own);
}

static __attribute__((noinline)) ucs_status_t take_beside_gpu(struct stepaf_ucx *ucx,
                                                              const void *header,
                                                              size_t header_bytes, void *data,
                                                              size_t bytes, uint64_t attr)
{
    return take_arrival(ucx, header, header_bytes, data, bytes, attr & UCP_AM_RECV_ATTR_FLAG_RNDV,
                        true);
}

/* A function of its own, so that the code for GPUs costs ranks without GPU memory nothing. */
static __attribute__((noinline, flatten)) ucs_status_t take_plain(struct stepaf_ucx *ucx,
                                                                  const void *header,
                                                                  size_t header_bytes, void *data,
                                                                  size_t bytes, uint64_t attr)
{
    return take_arrival(ucx, header, header_bytes, data, bytes, attr & UCP_AM_RECV_ATTR_FLAG_RNDV,
                        false);
}

ucs_status_t stepaf_ucx_take(void *arg, const void *header, size_t header_bytes, void *data,
                             size_t bytes, const ucp_am_recv_param_t *param)
{
    struct stepaf_ucx *ucx = arg;

    if (__builtin_expect(ucx->gpu.device != NULL, 0))
        return take_beside_gpu(ucx, header, header_bytes, data, bytes, param->recv_attr);
    return take_plain(ucx, header, header_bytes, data, bytes, param->recv_attr);
}

static bool has_failed(const struct stepaf_ucx_link *link)
{
    return link->failed != UCS_OK || link->fault;
}

static __attribute__((noinline, cold)) void settle_failure(struct stepaf_ucx_link *link)
{
    struct stepaf_upcalls *up = stepaf_ucx_of(link)->shared.base.up;

    if (link->failed != UCS_OK) {
        ucs_status_t status = link->failed;
        link->failed = UCS_OK;
        stepaf_fabric_lose(&link->shared, status);
    }
    if (link->fault && link->shared.used && !link->shared.base.dead)
        up->lost(up, &link->shared.base, link->fault);
    link->fault = NULL;
}

/* Handle what was noted of links within UCX's progress. */
static void settle_links(struct stepaf_ucx *ucx)
{
    while (ucx->news) {
        struct stepaf_ucx_link *link = ucx->news;
        ucx->news = link->next_news;
        link->has_news = false;
        ucx->counted++;
        stepaf_fabric_deliver(&link->shared);
        if (__builtin_expect(has_failed(link), 0))
            settle_failure(link);
    }
}

/* Links keep their news for the next progress, except links that have failed. */
void stepaf_ucx_set_aside(struct stepaf_fabric *fabric)
{
    struct stepaf_ucx *ucx = (struct stepaf_ucx *)fabric;
    unsigned left = ASIDE_ROUNDS;

    while (stepaf_ucx_turn(ucx) && --left)
        ;
    for (struct stepaf_ucx_link *link = ucx->news; link; link = link->next_news) {
        if (!has_failed(link))
            continue;
        stepaf_fabric_deliver(&link->shared);
        settle_failure(link);
    }
}

static unsigned ucx_take_in(struct stepaf_ucx *ucx)
{
    unsigned before = ucx->counted;

    (void)stepaf_ucx_turn(ucx);
    if (ucx->news)
        settle_links(ucx);
    return ucx->counted - before;
}

unsigned stepaf_ucx_progress(struct stepaf_transport *transport, unsigned polls)
{
    struct stepaf_ucx *ucx = (struct stepaf_ucx *)transport;
    unsigned n;

    while (!(n = ucx_take_in(ucx)) && --polls) {
        stepaf_cpu_relax(); /* a loop that runs ahead speculatively is slow to leave */
        transport->up->polled = stepaf_ticks();
    }
    return n;
}
