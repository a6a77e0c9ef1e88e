/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks agree on their links: where a transport works one way only both ends take another one,
 * and whatever one rank finds wrong with its links all ranks learn, long before any deadline. */
#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stepaf/stepaf.h>

#include "base/time.h"
#include "ranks.h"
#include "unit.h"
#include "wireup/agree.h"

enum {
    RANKS = 4,
    HALF = RANKS / 2, /* attention ranks; the others are FFN ranks */
    BYTES = 3000,
    SOON_S = 10,
    NOBODY = 65534,
    ADVERTS = 2, /* exchange of the commit's adverts, behind init's */
    SUM_AT = 12  /* of a report, in bytes */
};

/* What goes wrong, and at which rank. */
struct trouble {
    const char *transports;
    int rank;
    void (*begin)(void);   /* before init */
    void (*connect)(void); /* once all know all addresses */
    uint64_t lie;          /* added to the sum that the rank reports */
    bool cut;              /* its report loses its last byte */
    stepaf_status_t status;
    const char *text; /* in the sentence of the rank itself */
};

static const struct trouble *trouble;
static stepaf_boot_t real;
static int n_exchanges;

static stepaf_status_t exchange(void *self, const void *mine, size_t bytes, void **all_p,
                                size_t *offsets_p, int64_t timeout_us)
{
    bool lies = ++n_exchanges > ADVERTS && real.rank == trouble->rank;
    uint8_t said[4096];
    uint64_t sum;

    if (lies && bytes <= sizeof(said) && (trouble->lie || trouble->cut)) {
        memcpy(said, mine, bytes);
        memcpy(&sum, said + SUM_AT, sizeof(sum));
        sum = htole64(le64toh(sum) + trouble->lie);
        memcpy(said + SUM_AT, &sum, sizeof(sum));
        mine = said;
        bytes -= trouble->cut;
    }
    stepaf_status_t status = real.allgather(self, mine, bytes, all_p, offsets_p, timeout_us);
    if (n_exchanges == ADVERTS && real.rank == trouble->rank && trouble->connect)
        trouble->connect();
    return status;
}

static int begin(const stepaf_boot_t *boot, stepaf_context_h *ctx_p)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = boot->rank < HALF ? STEPAF_ATTENTION : STEPAF_FFN};
    stepaf_boot_t mine = *boot;

    setenv("STEPAF_TRANSPORTS", trouble->transports, 1);
    setenv("STEPAF_NET_IF", "lo", 1);
    setenv("STEPAF_LOG_LEVEL", "error", 1);
    setenv("STEPAF_COMMIT_TIMEOUT_US", "20000000", 1);
    real = *boot;
    mine.allgather = exchange;
    mine.close = NULL;
    if (boot->rank == trouble->rank && trouble->begin)
        trouble->begin();
    RANK_CHECK(boot, !stepaf_init(&mine, &params, ctx_p));
    RANK_CHECK(boot, !stepaf_key_declare(*ctx_p, 1, STEPAF_PUSH, BYTES, NULL));
    return 0;
}

/* ---- one way only ---- */

/* All ranks must be of one user who may not look into a process that is not dumpable. */
static bool be_nobody(void)
{
    bool is_root = geteuid() == 0;

    return (!is_root ||
            (!setresgid(NOBODY, NOBODY, NOBODY) && !setresuid(NOBODY, NOBODY, NOBODY))) &&
           !prctl(PR_SET_DUMPABLE, 1);
}

static void close_up(void)
{
    (void)prctl(PR_SET_DUMPABLE, 0);
}

/* Every attention rank pushes to all FFN ranks. */
static int push(const stepaf_boot_t *boot, stepaf_context_h ctx, stepaf_plan_h plan)
{
    stepaf_tensor_info_t in = {.size = sizeof(in)};
    stepaf_request_h request;
    stepaf_batch_h batch;
    int n;

    if (boot->rank < HALF) {
        RANK_CHECK(boot, !stepaf_start(plan, &request));
        RANK_CHECK(boot, !stepaf_wait(request, SOON_S * 1000000ll));
        return 0;
    }
    for (int i = 0; i < HALF; i++) {
        RANK_CHECK(boot, !stepaf_recv(ctx, STEPAF_FROM_ANY, 0, SOON_S * 1000000ll, &batch, 1, &n));
        RANK_CHECK(boot, !stepaf_batch_tensor(batch, 0, &in));
        RANK_CHECK(boot, in.bytes == BYTES && ((uint8_t *)in.data)[BYTES - 1] == 0x5a);
        RANK_CHECK(boot, !stepaf_release(batch));
    }
    return 0;
}

static int work_one_way(const stepaf_boot_t *boot, void *arg)
{
    stepaf_tensor_t tensor = {1, NULL, BYTES};
    stepaf_plan_h plan = NULL;
    stepaf_context_h ctx;

    trouble = arg;
    RANK_CHECK(boot, be_nobody());
    if (begin(boot, &ctx))
        return 1;
    RANK_CHECK(boot, !stepaf_alloc(ctx, BYTES, STEPAF_MEM_HOST, &tensor.data));
    memset(tensor.data, 0x5a, BYTES);
    if (boot->rank < HALF)
        RANK_CHECK(boot, !stepaf_plan_create(ctx, &tensor, 1, NULL, 0, 0, &plan));
    int64_t began_ns = stepaf_monotonic_ns();
    RANK_CHECK(boot, !stepaf_commit(ctx));
    RANK_CHECK(boot, stepaf_monotonic_ns() - began_ns < SOON_S * 1000000000ll);
    for (int p = 0; p < HALF; p++) {
        stepaf_link_info_t link = {.size = sizeof(link)};
        bool is_apart =
            boot->rank == trouble->rank || p + (boot->rank < HALF ? HALF : 0) == trouble->rank;
        RANK_CHECK(boot, !stepaf_link_query(ctx, p, &link));
        RANK_CHECK(boot, !strncmp(link.transport, is_apart ? "tcp" : "shm", 3));
        if (is_apart && boot->rank == trouble->rank)
            RANK_CHECK(boot, strstr(link.refused, "shm: the other end cannot use it"));
        else if (is_apart)
            RANK_CHECK(boot, strstr(link.refused, "Permission denied"));
    }
    if (push(boot, ctx, plan))
        return 1;
    RANK_CHECK(boot, !stepaf_barrier(ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT));
    stepaf_finalize(ctx);
    return 0;
}

/* The others cannot look into the rank, which can look into all: where it is attention, and where
 * FFN. */
static void both_ends_take_what_works_both_ways(void)
{
    for (int rank = 0; rank < RANKS; rank += HALF) {
        struct trouble one_way = {.transports = "", .rank = rank, .begin = close_up};
        ranks_expect_processes(RANKS, work_one_way, &one_way);
    }
}

/* There is nothing else to take. */
static int find_no_way(const stepaf_boot_t *boot, void *arg)
{
    stepaf_context_h ctx;

    trouble = arg;
    RANK_CHECK(boot, be_nobody());
    if (begin(boot, &ctx))
        return 1;
    int64_t began_ns = stepaf_monotonic_ns();
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_ERR_NO_TRANSPORT);
    RANK_CHECK(boot, stepaf_monotonic_ns() - began_ns < SOON_S * 1000000000ll);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "Permission denied"));
    stepaf_finalize(ctx);
    return 0;
}

static void all_learn_that_there_is_no_other_way(void)
{
    struct trouble one_way = {.transports = "shm", .rank = 1, .begin = close_up};

    ranks_expect_processes(RANKS, find_no_way, &one_way);
}

/* ---- not at all ---- */

/* Nothing that is opened from now on has a number that is allowed. */
static void open_no_more(void)
{
    int next = dup(0);
    struct rlimit limit = {(rlim_t)next, (rlim_t)next};

    (void)close(next);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void stop_listening(void)
{
    for (int fd = 3; fd < 256; fd++) {
        int listens = 0;
        socklen_t bytes = sizeof(listens);
        if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) && listens)
            (void)shutdown(fd, SHUT_RDWR);
    }
}

static int fail(const stepaf_boot_t *boot, void *arg)
{
    stepaf_context_h ctx;
    char whose[32];

    trouble = arg;
    snprintf(whose, sizeof(whose), "world rank %d", trouble->rank);
    if (begin(boot, &ctx))
        return 1;
    int64_t began_ns = stepaf_monotonic_ns();
    RANK_CHECK(boot, stepaf_commit(ctx) == trouble->status);
    RANK_CHECK(boot, stepaf_monotonic_ns() - began_ns < SOON_S * 1000000000ll);
    RANK_CHECK(boot, stepaf_last_error()->phase == STEPAF_PHASE_COMMIT);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, trouble->text));
    if (boot->rank != trouble->rank && !trouble->lie)
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, whose));
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_ERR_STATE);
    stepaf_finalize(ctx);
    return 0;
}

static void all_learn_that_an_attention_rank_cannot_connect(void)
{
    struct trouble trouble_of[] = {
        {.transports = "tcp", .rank = 1, .connect = open_no_more},
        {.transports = "", .rank = 1, .connect = open_no_more},
    };

    for (int i = 0; i < 2; i++) {
        trouble_of[i].status = STEPAF_ERR_PEER_LOST;
        trouble_of[i].text = "this rank cannot connect: Too many open files: this process may have";
        ranks_expect_processes(RANKS, fail, &trouble_of[i]);
    }
}

static void all_learn_that_an_ffn_rank_does_not_listen(void)
{
    struct trouble deaf = {.transports = "tcp",
                           .rank = RANKS - 1,
                           .connect = stop_listening,
                           .status = STEPAF_ERR_PEER_LOST,
                           .text = "FFN rank 1 (world rank 3) is lost"};

    ranks_expect_processes(RANKS, fail, &deaf);
}

static void all_learn_that_an_ffn_rank_cannot_accept(void)
{
    struct trouble full = {.transports = "tcp",
                           .rank = RANKS - 1,
                           .connect = open_no_more,
                           .status = STEPAF_ERR_TRANSPORT,
                           .text = "cannot accept its connection: Too many open files"};

    ranks_expect_processes(RANKS, fail, &full);
}

/* ---- what is reported ---- */

static void reports_are_not_trusted(void)
{
    struct trouble of[] = {
        {.transports = "shm", .rank = 1, .lie = 1},
        {.transports = "tcp", .rank = 2, .lie = UINT64_MAX},
        {.transports = "shm", .rank = 0, .cut = true},
    };

    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        of[i].status = STEPAF_ERR_PROTOCOL;
        of[i].text =
            of[i].cut ? "its report on its links is malformed" : "cannot agree on the transports";
        ranks_expect_processes(RANKS, fail, &of[i]);
    }
}

static void reports_are_read_as_they_were_written(void)
{
    static const uint8_t taken[] = {0, 2, 1};
    struct stepaf_agree_report report = {.pending = true,
                                         .sum = 0x123456789abcdef0,
                                         .left_ms = 70000,
                                         .n_taken = sizeof(taken),
                                         .taken = taken};
    struct stepaf_agree_report read, cut;
    struct stepaf_pack pack = {0};

    stepaf_agree_pack(&report, &pack);
    CU_ASSERT_FATAL(!pack.failed && stepaf_agree_read(pack.data, pack.bytes, &read));
    CU_ASSERT(!read.status && read.pending && read.sum == report.sum && read.left_ms == 70000);
    CU_ASSERT(read.n_taken == sizeof(taken) && !memcmp(read.taken, taken, sizeof(taken)));
    for (size_t bytes = 0; bytes < pack.bytes; bytes++)
        CU_ASSERT(!stepaf_agree_read(pack.data, bytes, &cut));
    stepaf_pack_u32(&pack, 0); /* too much is as bad */
    CU_ASSERT(!stepaf_agree_read(pack.data, pack.bytes, &cut));
    free(pack.data);
}

/* Whatever link has another transport at one end, the sum of all is not 0. */
static void one_link_that_differs_shows_in_the_sum(void)
{
    static const char *const names[] = {"shm", "verbs", "tcp"};
    uint64_t sum = 0;

    for (int a = 0; a < 32; a++)
        for (int f = 32; f < 64; f++) {
            uint64_t link = stepaf_agree_link(a, f, names[(a + f) % 3]);
            sum += link;
            sum -= stepaf_agree_link(a, f, names[(a + f) % 3]);
            CU_ASSERT(link != stepaf_agree_link(a, f, names[(a + f + 1) % 3]));
            CU_ASSERT(link != stepaf_agree_link(f, a, names[(a + f) % 3]));
            CU_ASSERT(link != stepaf_agree_link(a, f + 1, names[(a + f) % 3]));
        }
    CU_ASSERT_EQUAL(sum, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"both ends take what works both ways", both_ends_take_what_works_both_ways},
        {"all learn that there is no other way", all_learn_that_there_is_no_other_way},
        {"all learn that an attention rank cannot connect",
         all_learn_that_an_attention_rank_cannot_connect},
        {"all learn that an FFN rank does not listen", all_learn_that_an_ffn_rank_does_not_listen},
        {"all learn that an FFN rank cannot accept", all_learn_that_an_ffn_rank_cannot_accept},
        {"reports are not trusted", reports_are_not_trusted},
        {"reports are read as they were written", reports_are_read_as_they_were_written},
        {"one link that differs shows in the sum", one_link_that_differs_shows_in_the_sum},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
