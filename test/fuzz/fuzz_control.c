/* SPDX-License-Identifier: Apache-2.0 */
/* What comes over control connections. The first byte says to whom: a listener that awaits a hello,
 * a caller that awaits a challenge, or, with what follows made into sealed frames, a rank. Whoever
 * says nonsense is nobody; a rank that does changes nothing but what all can bear. */
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "boot/control/control.h"
#include "boot/control/socket.h"
#include "fuzz.h"

enum { RANKS = 3, FRAME_AT = 4, FRAMES_MAX = 100 };

struct side {
    struct stepaf_control control;
    struct stepaf_control_link *links[RANKS];
    uint8_t fates[RANKS];
    int fds[2];
};

static void open_side(struct side *side)
{
    struct stepaf_control *control = &side->control;

    *side = (struct side){.control = {.place = {.rank = 1, .size = RANKS, .has_secret = true},
                                      .listener = -1,
                                      .refused_rank = -1,
                                      .has_met = true}};
    control->links = side->links;
    control->fates = side->fates;
    pthread_mutex_init(&control->lock, NULL);
    FUZZ_CHECK(stepaf_proof_ready());
    stepaf_proof_key("secret", 6, control->place.key);
    control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    FUZZ_CHECK(control->epoll_fd >= 0);
    FUZZ_CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, side->fds));
}

static void close_side(struct side *side)
{
    pthread_mutex_destroy(&side->control.lock);
    close(side->control.epoll_fd);
    close(side->fds[1]);
}

static void put_in(struct stepaf_control_link *link, const uint8_t *data, size_t bytes)
{
    uint8_t *in = realloc(link->in, link->have + bytes + 1);

    FUZZ_CHECK(in);
    memcpy(in + link->have, data, bytes);
    link->in = in;
    link->have += bytes;
    link->room = link->have + 1;
}

/* Nobody without the secret gets anywhere. */
static void greet_nonsense(struct side *side, enum stepaf_control_state state, const uint8_t *data,
                           size_t bytes)
{
    struct stepaf_control_link *link = stepaf_control_link_new(&side->control, side->fds[0], state);

    FUZZ_CHECK(link);
    put_in(link, data, bytes);
    stepaf_control_greeted(link);
    FUZZ_CHECK(link->state != STEPAF_CONTROL_UP && link->state != STEPAF_CONTROL_CHALLENGED &&
               link->state != STEPAF_CONTROL_ANSWERED);
    stepaf_control_link_free(link);
}

/* Four bytes say type, number, detail and how many times four follow; 255 of type: the rest as it
 * is. */
static void hear_frames(struct side *side, const uint8_t *data, size_t bytes)
{
    struct stepaf_control_link *link =
        stepaf_control_link_new(&side->control, side->fds[0], STEPAF_CONTROL_UP);
    uint8_t text[1024], mark[STEPAF_PROOF_MARK_BYTES];

    FUZZ_CHECK(link);
    link->rank = 0;
    side->links[0] = link;
    for (unsigned n = 0; bytes >= FRAME_AT && data[0] != 255 && n < FRAMES_MAX; n++) {
        size_t most = bytes - FRAME_AT, length = data[3] * 4u < most ? data[3] * 4u : most;
        struct stepaf_control_frame frame = {.type = data[0],
                                             .number = (uint32_t)(int8_t)data[1],
                                             .detail = (uint32_t)(int8_t)data[2],
                                             .bytes = length};
        memcpy(text, data + FRAME_AT, length);
        stepaf_proof_seal(link->seal_in.key, n, &frame, sizeof frame, text, length, mark);
        put_in(link, (const uint8_t *)&frame, sizeof frame);
        put_in(link, text, length);
        put_in(link, mark, sizeof mark);
        data += FRAME_AT + length;
        bytes -= FRAME_AT + length;
    }
    if (bytes && data[0] == 255)
        put_in(link, data + 1, bytes - 1);
    stepaf_control_parse(link);
    FUZZ_CHECK(link->parcels.n <= STEPAF_CONTROL_PARCELS_MAX);
    FUZZ_CHECK(!side->fates[1]);
    for (int channel = 0; channel < STEPAF_CONTROL_CHANNELS; channel++) {
        const struct stepaf_control_failure *failure = &side->control.failures[channel];
        FUZZ_CHECK(memchr(failure->text, '\0', sizeof failure->text));
        FUZZ_CHECK(stepaf_control_raise(&side->control, channel) == failure->status);
        FUZZ_CHECK(failure->rank >= -1 && failure->rank < RANKS);
        FUZZ_CHECK(!failure->status || !strpbrk(stepaf_last_error()->text, "\n\r"));
    }
    side->links[0] = NULL;
    stepaf_control_link_free(link);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct side side;

    if (!bytes)
        return 0;
    open_side(&side);
    switch (data[0] % 3) {
    case 0:
        greet_nonsense(&side, STEPAF_CONTROL_STRANGER, data + 1, bytes - 1);
        break;
    case 1:
        greet_nonsense(&side, STEPAF_CONTROL_GREETING, data + 1, bytes - 1);
        break;
    default:
        hear_frames(&side, data + 1, bytes - 1);
    }
    close_side(&side);
    return 0;
}
