/* SPDX-License-Identifier: Apache-2.0 */
/* UCX: peers that take in nothing hold what all peers share. Credits go all the same, and when they are
 * lost it comes back. */
#include "base/time.h"
#include "ucx_fabric_inside.h"
#include "unit.h"

enum { ROOM = 65536, POSTS = STEPAF_FABRIC_RING, SILENT = 5, BYTES = 600, MS = 1000000 };

static struct side a, peers[SILENT + 1];
static struct side *const live = &peers[SILENT];
static unsigned silent; /* workers, a bit each */

/* What goes to a silent peer ends only when it is ended by force. */
static ucs_status_ptr_t am_send(ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes,
                                const void *buffer, size_t count, const ucp_request_param_t *param)
{
    const struct endpoint *endpoint = (struct endpoint *)ep;
    ucs_status_ptr_t answer =
        ucx_fabric_library.am_send_nbx(ep, id, header, header_bytes, buffer, count, param);

    if (silent & 1u << (endpoint->to - ucx_made.workers) && UCS_PTR_IS_PTR(answer))
        ((struct request *)answer)->fetched_by = answer;
    return answer;
}

static void go_on(int64_t ms)
{
    for (int64_t end = stepaf_monotonic_ns() + ms * MS; stepaf_monotonic_ns() < end;) {
        (void)side_progress(&a);
        side_ops->check_peers(a.transport);
        (void)side_progress(live);
        side_ops->check_peers(live->transport);
    }
}

static struct stepaf_xfer xfers[STEPAF_MAX_TENSORS];
static struct stepaf_rmem *rmems[SILENT + 1];

static enum stepaf_post_state send_to(uint32_t peer, struct stepaf_post *post, uint8_t n_xfer)
{
    for (unsigned i = 0; i < n_xfer; i++)
        xfers[i] =
            (struct stepaf_xfer){a.regions[0].base, &a.regions[0], rmems[peer], i * BYTES, BYTES};
    *post = (struct stepaf_post){
        .link = a.links[peer], .xfer = xfers, .n_xfer = n_xfer, .msg = {.type = STEPAF_MSG_START}};
    (void)side_ops->post(&post, 1);
    return post->state;
}

static void open_all(struct stepaf_ucx_library *library)
{
    struct side *all[SILENT + 2] = {&a};

    ucx_fabric_reset(21);
    ucx_fabric.at_once_in = 0;
    ucx_fabric.told_in = 0;
    *library = ucx_fabric_library;
    library->am_send_nbx = am_send;
    stepaf_ucx_library_fake = library;
    silent = 0;
    fabric_open(&a, SILENT + 1);
    for (uint32_t s = 0; s <= SILENT; s++) {
        all[s + 1] = &peers[s];
        fabric_open(&peers[s], 1);
        fabric_join(&a, s, &peers[s], 0);
    }
    fabric_prove(all, SILENT + 2);
    (void)fabric_memory(&a, ROOM);
    for (uint32_t s = 0; s <= SILENT; s++)
        rmems[s] = side_import(&a, s, &peers[s], fabric_memory(&peers[s], ROOM));
}

static void others_can_be_written_to(void)
{
    static struct stepaf_post posts[SILENT][POSTS], to_live;
    static struct stepaf_ucx_library library;

    open_all(&library);
    a.env.ucx_peer_timeout_us = live->env.ucx_peer_timeout_us = 400000;
    for (unsigned s = 0; s < SILENT; s++)
        silent |= 1u << ucx_fabric_number(&peers[s]);
    for (uint32_t s = 0; s < SILENT; s++)
        for (int i = 0; i < POSTS; i++)
            if (send_to(s, &posts[s][i], STEPAF_MAX_TENSORS) == STEPAF_POST_QUEUED)
                break;
    CU_ASSERT_EQUAL(send_to(SILENT, &to_live, 2), STEPAF_POST_QUEUED); /* there is no room */
    CU_ASSERT_TRUE(
        ucx_of(&a)->shared.calls->control(fabric_link(&a, SILENT), STEPAF_FABRIC_CREDIT));
    for (int i = 0; i < 200 && a.n_lost < SILENT; i++)
        go_on(100);
    CU_ASSERT_EQUAL(a.n_lost, SILENT);
    CU_ASSERT_EQUAL(live->n_lost, 0);
    struct stepaf_post *again = &to_live;
    for (int i = 0; i < 200 && side_ops->post(&again, 1); i++)
        go_on(10);
    CU_ASSERT_NOT_EQUAL(to_live.state, STEPAF_POST_QUEUED);
    for (int i = 0; i < 200 && !live->n_messages; i++)
        go_on(10);
    CU_ASSERT_EQUAL(live->n_messages, 1);
    for (uint32_t s = 0; s <= SILENT; s++)
        side_ops->release_mem(a.links[s], rmems[s]);
    side_close(&a);
    for (int s = 0; s <= SILENT; s++)
        side_close(&peers[s]);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"others can be written to", others_can_be_written_to},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
