/* SPDX-License-Identifier: Apache-2.0 */
/* A peer is killed in the middle of a write, over libfabric itself (tcp;ofi_rxm). If something of this
 * rank's was not read there, the system resets the connection: this rank can close all the same. */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ofi_fabric.h"
#include "unit.h"

enum { BYTES = 32 << 20, POLLS = 100000, SKIP = 77, LOST = 90 };

static struct side me;
static int to_other, from_other;
static const char *const settings[] = {"STEPAF_OFI_PROVIDER", "tcp;ofi_rxm", NULL};

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

static void tell(const struct stepaf_pack *pack)
{
    uint32_t n = (uint32_t)pack->bytes;

    if (write(to_other, &n, sizeof(n)) != sizeof(n) || write(to_other, pack->data, n) != (ssize_t)n)
        _exit(LOST);
}

static struct stepaf_pack hear(void)
{
    struct stepaf_pack pack = {0};
    uint32_t n;

    if (read(from_other, &n, sizeof(n)) != sizeof(n) || !(pack.data = malloc(n)))
        _exit(LOST);
    for (ssize_t got; pack.bytes < n; pack.bytes += (size_t)got)
        if ((got = read(from_other, pack.data + pack.bytes, n - pack.bytes)) <= 0)
            _exit(LOST);
    return pack;
}

/* Both ends call this: a link, and the other's memory. */
static struct stepaf_rmem *meet(uint32_t pid)
{
    struct stepaf_pack own = {0}, mem = {0};
    char reason[STEPAF_REASON_MAX];
    struct stepaf_rmem *rmem = NULL;
    stepaf_status_t status;
    uint32_t peer;

    fabric_open(&me, 1);
    me.topo.node_id = 2; /* else the process is watched */
    me.up.initiates = (uint32_t)getpid() < pid;
    side_ops->pack_address(me.transport, &own);
    tell(&own);
    struct stepaf_pack its = hear();
    side_must(!side_connect(&me, 0, &me, 0, pid, &its), "connect");
    (void)fabric_memory(&me, BYTES);
    side_ops->pack_mem(me.transport, &me.regions[0], &mem);
    tell(&mem);
    struct stepaf_pack there = hear();
    struct stepaf_unpack unpack = stepaf_unpack_from(there.data, there.bytes);
    side_must(!side_ops->import_mem(me.links[0], 100, BYTES, &unpack, &rmem), "import");
    do
        status = side_ops->prove_links(me.transport, true, &peer, reason);
    while (status > 0);
    side_must(status == STEPAF_OK, "prove");
    tell(&own);
    free(hear().data); /* it has come as far */
    side_ops->shrink(me.transport);
    free(own.data);
    free(its.data);
    free(mem.data);
    free(there.data);
    return rmem;
}

/* Writes as much as the system takes, and stands still. */
static _Noreturn void be_killed(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct stepaf_rmem *rmem = meet((uint32_t)getppid());
    struct stepaf_xfer xfer = {me.regions[0].base, &me.regions[0], rmem, 0, BYTES};
    struct stepaf_post post = {.link = me.links[0], .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};

    memset(me.regions[0].base, 0x77, BYTES);
    (void)side_ops->post(posts, 1);
    for (;;)
        pause();
}

static int outlive(bool is_reset)
{
    int up[2], down[2];

    side_must(!pipe(up) && !pipe(down), "pipe");
    side_ops = &stepaf_ofi_ops;
    side_settings = settings;
    pid_t child = fork();
    side_must(child >= 0, "fork");
    from_other = child ? up[0] : down[0];
    to_other = child ? down[1] : up[1];
    if (!child)
        be_killed();
    struct stepaf_rmem *rmem = meet((uint32_t)child);
    for (int i = 0; i < POLLS && !me.regions[0].base[0]; i++) {
        (void)side_progress(&me);
        if (i % 100 == 99)
            nap_ms(1);
    }
    if (is_reset) {
        side_must(side_say(&me, 0, 6) == STEPAF_POST_SENT, "say");
        for (int i = 0; i < 1000; i++)
            (void)side_progress(&me);
    }
    bool in_the_middle = me.regions[0].base[0] && !me.regions[0].base[BYTES - 1];
    kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    nap_ms(100);
    side_ops->release_mem(me.links[0], rmem);
    side_close(&me);
    return in_the_middle ? 0 : 1;
}

static void it_can_close(void)
{
    for (int is_reset = 0; is_reset < 2; is_reset++) {
        int status = -1;
        pid_t it = fork();
        side_must(it >= 0, "fork");
        if (!it)
            _exit(outlive(is_reset));
        side_must(waitpid(it, &status, 0) == it, "wait");
        CU_ASSERT_EQUAL(status, 0);
    }
}

int main(void)
{
    struct stepaf_env env = {.ofi_provider = (char *)"tcp;ofi_rxm", .ofi_domains = (char *)""};
    CU_TestInfo tests[] = {{"it can close", it_can_close}, CU_TEST_INFO_NULL};
    char reason[STEPAF_REASON_MAX] = "";

    if (!stepaf_ofi_ops.probe(&env, reason)) {
        printf("SKIP: %s\n", reason);
        return SKIP;
    }
    return unit_run(tests);
}
