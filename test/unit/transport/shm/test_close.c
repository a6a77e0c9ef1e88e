/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory: pages of a rank that nobody may write to any more, both ends in one process. */
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/side.h"
#include "unit.h"

static struct side a, b;

static void begin(void)
{
    side_cma = "auto";
    side_open(&a, 1);
    side_open(&b, 1);
    side_join(&a, &b);
}

static void end(void)
{
    side_close(&a);
    side_close(&b);
}

/* Write one byte, with a message; nobody takes it in yet. */
static void put(const struct stepaf_rmem *rmem, const char *byte)
{
    struct stepaf_xfer xfer = {.src = byte, .dst = rmem, .bytes = 1};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};

    stepaf_shm_ops.post(posts, 1);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
}

/* Who has been given up may not know it: its writes go nowhere; what it was told before counts, and
 * then it learns why. */
static void closed_pages_are_not_written(void)
{
    uint32_t peer = 9;

    begin();
    struct stepaf_mem *region = side_memory(&b, 4096, false);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, region);
    if (((struct stepaf_shm_link *)a.links[0])->cma) {
        put(rmem, "y");
        CU_ASSERT_TRUE(stepaf_shm_ops.is_quiet(b.transport, true, &peer));
        put(rmem, "z");
        CU_ASSERT_EQUAL(side_progress(&b), 2);
        CU_ASSERT_EQUAL(side_say(&b, 0, 1), STEPAF_POST_SENT);
        b.links[0]->dead = true;
        CU_ASSERT_TRUE(stepaf_shm_ops.is_quiet(b.transport, true, &peer));
        put(rmem, "x");
        CU_ASSERT(region->base[0] == 'z' && peer == 9);
        CU_ASSERT_EQUAL(side_progress(&b), 0);
        CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_SENT); /* for nobody */
        CU_ASSERT_EQUAL(a.n_lost, 0);
        stepaf_shm_ops.check_peers(a.transport);
        CU_ASSERT_EQUAL(a.n_messages, 1);
        CU_ASSERT_EQUAL(a.n_lost, 1);
        UNIT_CONTAINS(a.lost_reason, "given this rank up");
    }
    stepaf_shm_ops.release_mem(a.links[0], rmem);
    end();
}

static bool still_writes(struct side *side)
{
    uint32_t peer = 9;
    bool any = !stepaf_shm_ops.is_quiet(side->transport, true, &peer);

    CU_ASSERT_EQUAL(peer, any ? 0 : 9);
    return any;
}

/* A process that has ended writes nothing, whatever it has said; known by its descriptor, or
 * without. */
static void check_ended(struct side *side)
{
    struct stepaf_shm_link *link = (struct stepaf_shm_link *)side->links[0];
    struct stepaf_shm_link kept = *link;

    link->pid = fork();
    if (!link->pid)
        _exit(0);
    side_must(link->pid > 0, "fork");
    link->pidfd = (int)syscall(SYS_pidfd_open, link->pid, 0);
    (void)waitid(P_PID, (id_t)link->pid, NULL, WEXITED | WNOWAIT);
    CU_ASSERT_FALSE(still_writes(side));
    if (link->pidfd >= 0)
        close(link->pidfd);
    link->pidfd = -1;
    CU_ASSERT_FALSE(still_writes(side));
    (void)waitpid(link->pid, NULL, 0);
    CU_ASSERT_FALSE(still_writes(side));
    link->pid = kept.pid;
    CU_ASSERT_TRUE(still_writes(side));
    link->pidfd = kept.pidfd;
}

static void lost_peers_that_write_are_known(void)
{
    begin();
    struct stepaf_shm_link *link = (struct stepaf_shm_link *)a.links[0];
    atomic_store(&link->tx_words->writing, 1);
    CU_ASSERT_FALSE(still_writes(&b)); /* it is not lost: it may */
    CU_ASSERT_EQUAL(atomic_load(&link->tx_words->closed), 0);
    b.links[0]->dead = true;
    CU_ASSERT_TRUE(still_writes(&b));
    check_ended(&b);
    atomic_store(&link->tx_words->writing, 0);
    CU_ASSERT_FALSE(still_writes(&b));
    end();
}

static void *end_a_write(void *words)
{
    usleep(50000);
    atomic_store(&((struct stepaf_shm_words *)words)->writing, 0);
    return NULL;
}

static void closing_waits_for_who_writes(void)
{
    pthread_t writer;

    begin();
    struct stepaf_shm_words *words = ((struct stepaf_shm_link *)a.links[0])->tx_words;
    atomic_store(&words->writing, 1);
    side_must(!pthread_create(&writer, NULL, end_a_write, words), "pthread_create");
    side_close(&b);
    CU_ASSERT_EQUAL(atomic_load(&words->writing), 0);
    CU_ASSERT_EQUAL(stepaf_shm_closed_for(words, getpid()), STEPAF_SHM_GIVEN_UP);
    (void)pthread_join(writer, NULL);
    side_close(&a);
}

/* A process in the place of one that was given up may look before the peer has cleared the inbox
 * for it. */
static void what_was_closed_to_another_process_is_open(void)
{
    begin();
    struct stepaf_shm_link *link = (struct stepaf_shm_link *)a.links[0];
    atomic_store(&link->tx_words->closed, stepaf_shm_closed_to(getpid() + 1, STEPAF_SHM_GIVEN_UP));
    stepaf_shm_ops.check_peers(a.transport);
    CU_ASSERT_FALSE(a.links[0]->dead);
    atomic_store(&link->tx_words->closed, stepaf_shm_closed_to(getpid(), STEPAF_SHM_GIVEN_UP));
    stepaf_shm_ops.check_peers(a.transport);
    CU_ASSERT_TRUE(a.links[0]->dead);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"closed pages are not written", closed_pages_are_not_written},
        {"lost peers that write are known", lost_peers_that_write_are_known},
        {"closing waits for who writes", closing_waits_for_who_writes},
        {"what was closed to another process is open", what_was_closed_to_another_process_is_open},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
