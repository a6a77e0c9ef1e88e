/* SPDX-License-Identifier: Apache-2.0 */
/* What each transport over a fabric is asked in the same way. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric_side.h"
#include "unit.h"

enum { LOW = 3 };

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
    UNIT_STRING(side->lost_reason, "it takes in nothing");
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
