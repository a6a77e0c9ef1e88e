/* SPDX-License-Identifier: Apache-2.0 */
/* What each transport over a fabric is asked in the same way. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"
#include "fabric_side.h"
#include "unit.h"

enum { LOW = 3, UNREAD = 12, LOOK_S = 60 };

void fabric_ask_used_if_listed(const struct stepaf_transport_ops *ops)
{
    struct stepaf_env env = {.transports = (char *)(uintptr_t) ""};
    char listed[32];

    CU_ASSERT(!stepaf_transport_admitted(&env, ops));
    env.transports = (char *)(uintptr_t) "shm,tcp";
    CU_ASSERT(!stepaf_transport_admitted(&env, ops));
    snprintf(listed, sizeof(listed), "shm,%s", ops->name);
    env.transports = listed;
    CU_ASSERT(stepaf_transport_admitted(&env, ops));
}

void fabric_ask_process_ends(struct side *one, struct side *other)
{
    one->topo.node_id = 1; /* the same node, as side_connect says */
    pid_t child = fork();
    side_must(child >= 0, "fork");
    if (!child)
        for (;;)
            pause();
    side_must(!side_connect(one, 0, other, 0, (uint32_t)child, NULL), "connect");
    side_ops->check_peers(one->transport);
    CU_ASSERT_EQUAL(one->n_lost, 0);
    kill(child, SIGKILL);
    side_must(waitpid(child, NULL, 0) == child, "wait");
    fabric_of(one)->looked_ns = 0;
    side_ops->check_peers(one->transport);
    CU_ASSERT_EQUAL(one->n_lost, 1);
    UNIT_STRING(one->lost_reason, "its process has ended");
    side_close(one);
    side_close(other);
}

void fabric_ask_silence_ends(struct side *side, unsigned n)
{
    for (int i = 0; i < 100000000 && side->n_lost < n; i++) {
        (void)side_progress(side);
        side_ops->check_peers(side->transport);
    }
    CU_ASSERT_EQUAL(side->n_lost, n);
    UNIT_STRING(side->lost_reason, "it accepts no data");
}

/* Let @a other go on and @a one only look, for some time-outs of it, and until it has heard more of
 * it than that. */
static void look_long(struct side *one, struct side *other, uint32_t heard)
{
    const struct stepaf_fabric_link *link = fabric_link(one, 0);
    int64_t from_ns = stepaf_monotonic_ns(), long_ns = 4000 * *fabric_of(one)->timeout_us;

    for (int64_t ns = 0;
         (ns < long_ns || link->heard <= heard) && ns < LOOK_S * 1000000000LL && !one->n_lost;
         ns = stepaf_monotonic_ns() - from_ns) {
        (void)side_progress(other);
        side_ops->check_peers(one->transport);
    }
}

void fabric_ask_unread_lives(struct side *one, struct side *other)
{
    unsigned before = one->n_messages;
    uint32_t heard = fabric_link(one, 0)->heard;

    for (uint32_t i = 0; i < UNREAD; i++)
        CU_ASSERT_EQUAL(side_say(other, 0, i), STEPAF_POST_SENT);
    look_long(one, other, heard + UNREAD); /* and the end of what has asked */
    CU_ASSERT_EQUAL(one->n_lost, 0);
    CU_ASSERT(fabric_link(one, 0)->heard > heard + UNREAD);
    CU_ASSERT_EQUAL(one->n_messages, before);
    CU_ASSERT_TRUE(fabric_until_messages(one, other, before + UNREAD));
    for (uint32_t i = 0; i < UNREAD && before + i < one->n_messages; i++)
        CU_ASSERT_EQUAL(one->messages[before + i].seq, i);
    fabric_check_link(one, 0, other);
    CU_ASSERT_EQUAL(other->n_lost, 0);
}

void fabric_ask_unseen_lives(struct side *side)
{
    struct stepaf_fabric *fabric = fabric_of(side);
    int64_t long_ns = 2000 * *fabric->timeout_us;

    for (uint32_t p = 0; p < fabric->n_peers; p++)
        stepaf_fabric_link(fabric, p)->heard_ns -= long_ns;
    fabric->looked_ns = stepaf_monotonic_ns() - long_ns;
    side_ops->check_peers(side->transport);
    CU_ASSERT_EQUAL(side->n_lost, 0);
}

void fabric_ask_last_words(struct side *one, struct side *dying, struct side *other)
{
    unsigned before = one->n_messages;
    int ends[2];

    side_must(!pipe(ends) && fabric_link(one, 0)->pidfd < 0, "pipe");
    CU_ASSERT_EQUAL(side_say(dying, 0, 1), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(side_say(other, 0, 2), STEPAF_POST_SENT);
    for (int i = 0; i < 300; i++) { /* until all has landed */
        (void)side_progress(dying);
        (void)side_progress(other);
        fabric_of(one)->looked_ns = 0;
        side_ops->check_peers(one->transport);
    }
    CU_ASSERT(one->n_messages == before && !one->n_lost);
    fabric_link(one, 0)->pidfd =
        ends[0]; /* which becomes readable, as that of a process that ends */
    side_must(write(ends[1], "", 1) == 1, "write");
    fabric_of(one)->looked_ns = 0;
    side_ops->check_peers(one->transport);
    CU_ASSERT_EQUAL(one->n_lost, 1);
    CU_ASSERT_EQUAL(one->n_messages, before + 1);
    CU_ASSERT_EQUAL(one->messages[before].seq, 1);
    CU_ASSERT_TRUE(fabric_until_messages(one, other, before + 2));
    CU_ASSERT_EQUAL(one->messages[before + 1].seq, 2);
    close(ends[1]);
}

void fabric_ask_words_before_refusal(struct side *one, struct side *closing, void (*refuse)(void))
{
    unsigned before = one->n_messages;

    CU_ASSERT_EQUAL(side_say(closing, 0, 1), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(fabric_until_messages(one, closing, before + 1));
    fabric_link(one, 0)->told = fabric_link(one, 0)->taken;
    CU_ASSERT_EQUAL(side_say(closing, 0, 2), STEPAF_POST_SENT);
    for (int i = 0; i < 300; i++) { /* until all has landed */
        (void)side_progress(closing);
        fabric_of(one)->looked_ns = 0;
        side_ops->check_peers(one->transport);
    }
    CU_ASSERT(one->n_messages == before + 1 && !one->n_lost);
    refuse();
    fabric_link(one, 0)->told--; /* it is to be told of the first */
    fabric_of(one)->looked_ns = 0;
    side_ops->check_peers(one->transport);
    CU_ASSERT_EQUAL(one->n_lost, 1);
    CU_ASSERT_EQUAL(one->n_messages, before + 2);
}

const char *fabric_connect_spoilt(struct side *one, struct side *other,
                                  void (*spoil)(struct stepaf_pack *pack))
{
    struct stepaf_pack pack = {0};

    side_ops->pack_address(other->transport, &pack);
    spoil(&pack);
    const char *reason = side_connect(one, 0, other, 0, (uint32_t)getpid(), &pack);
    free(pack.data);
    return reason ? reason : "";
}

bool fabric_low_are_free(void)
{
    for (int fd = 0; fd < LOW; fd++)
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            return false;
    return true;
}

void fabric_ask_low_numbers(int (*live)(void))
{
    int status = -1;
    pid_t child = fork();

    side_must(child >= 0, "fork");
    if (!child) { /* which may close what it likes */
        for (int fd = 0; fd < LOW; fd++)
            close(fd);
        _exit(live());
    }
    CU_ASSERT(waitpid(child, &status, 0) == child);
    CU_ASSERT_EQUAL(status, 0);
}
