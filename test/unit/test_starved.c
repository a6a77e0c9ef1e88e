/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever allocation fails, at whichever rank: the call says so, and can be made again, or all ranks
 * come to the same end soon. Nothing is left behind. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/stepaf.h>

#include "ranks.h"
#include "starve.h"
#include "unit.h"

enum { RANKS = 3, SERVERS = RANKS - 1, PUSHED = 1, PULLED = 2, LATER = 3 };
enum { BYTES = 5000, DEPTH = 2, ROUNDS = 3, LIMIT_S = 20, TRIALS = 400, WORKERS = 32 };

/* How it may end for all ranks alike. */
enum end { COMPLETE, NOT_BEGUN, BROKEN, LOST, N_ENDS };
static const char *const end_names[] = {"complete", "not begun", "broken", "lost"};

struct trial {
    const char *transports;
    int victim;
    bool lasting; /* nothing is to be had any more, until a call has said so */
    uint64_t nth;
    /* What came of it. */
    bool struck;
    int ends[RANKS];
    int statuses[RANKS];
};

struct own_rank {
    const stepaf_boot_t *boot;
    stepaf_context_h ctx;
    struct trial *trial;
    bool ffn;
    bool once; /* it has failed, and was tried again */
    stepaf_plan_h plan;
    uint8_t *memory;
    uint8_t *user; /* registered */
};

/* Try again what says that there is no memory, which can be once. */
static bool is_to_try_again(struct own_rank *rank, stepaf_status_t status)
{
    bool again = status == STEPAF_ERR_NO_MEMORY && starve_has_struck() && !rank->once;

    rank->once = rank->once || again;
    if (again)
        starve_feed();
    return again;
}

#define TRY(rank_, call_)                                     \
    do {                                                      \
        stepaf_status_t status_ = (call_);                    \
        if (is_to_try_again((rank_), status_))                \
            status_ = (call_);                                \
        if (status_)                                          \
            fprintf(stderr, "\n    status %d", (int)status_); \
        RANK_CHECK((rank_)->boot, status_ == STEPAF_OK);      \
    } while (0)

static int end_with(struct own_rank *rank, enum end end)
{
    rank->trial->ends[rank->boot->rank] = end;
    return 0;
}

static int declare(struct own_rank *rank, uint64_t id, stepaf_direction_t direction)
{
    stepaf_key_params_t key = {.field_mask =
                                   STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES | STEPAF_KEY_DEPTH,
                               .direction = direction,
                               .max_bytes = BYTES,
                               .depth = DEPTH};

    TRY(rank, stepaf_key_declare(rank->ctx, id, &key));
    return 0;
}

static void pulls_of(const struct own_rank *rank, uint64_t key, stepaf_tensor_t *pull_p)
{
    for (int f = 0; f < SERVERS; f++)
        pull_p[f] = (stepaf_tensor_t){key, rank->memory + (size_t)(1 + f) * DEPTH * BYTES, BYTES};
}

static int set_up(struct own_rank *rank)
{
    size_t bytes = (size_t)(1 + SERVERS) * DEPTH * BYTES;
    stepaf_tensor_t push, pull[SERVERS];

    if (declare(rank, PUSHED, STEPAF_PUSH) || declare(rank, PULLED, STEPAF_PULL))
        return 1;
    TRY(rank, stepaf_alloc(rank->ctx, bytes, STEPAF_MEM_HOST, (void **)&rank->memory));
    TRY(rank, stepaf_register(rank->ctx, rank->user, bytes));
    push = (stepaf_tensor_t){PUSHED, rank->memory, BYTES};
    pulls_of(rank, PULLED, pull);
    if (!rank->ffn)
        TRY(rank, stepaf_plan_create(rank->ctx, &push, 1, pull, SERVERS, 0, &rank->plan));
    else if (rank->boot->rank == 1) /* the other one's are the library's own */
        TRY(rank, stepaf_register_recv(rank->ctx, PUSHED, rank->user, DEPTH * BYTES, NULL, 0));
    return 0;
}

/* Commit; once more if that says that the last epoch is still in force. */
static int commit(struct own_rank *rank, bool *over_p)
{
    stepaf_status_t status = stepaf_commit(rank->ctx);

    *over_p = false;
    if (status == STEPAF_ERR_NO_MEMORY) {
        if (rank->boot->rank == rank->trial->victim)
            RANK_CHECK(rank->boot, is_to_try_again(rank, status));
        status = stepaf_commit(rank->ctx);
        if (status == STEPAF_ERR_STATE) {
            *over_p = true;
            return end_with(rank, BROKEN);
        }
    }
    if (status) {
        RANK_CHECK(rank->boot, stepaf_commit(rank->ctx) == STEPAF_ERR_STATE);
        *over_p = true;
        return end_with(rank, BROKEN);
    }
    return 0;
}

static void fill(uint8_t *data, unsigned seed)
{
    for (unsigned i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(seed * 31 + i * 7 + i / 251);
}

static bool is_filled(const uint8_t *data, unsigned seed)
{
    uint8_t expected[BYTES];

    fill(expected, seed);
    return !memcmp(data, expected, BYTES);
}

static int serve(struct own_rank *rank, unsigned seed, bool *over_p)
{
    stepaf_tensor_t answer = {PULLED, rank->memory, BYTES};
    stepaf_tensor_info_t info;
    stepaf_batch_h batch;
    int n;

    stepaf_status_t status = stepaf_recv(rank->ctx, STEPAF_FROM_ANY, -1, &batch, 1, &n);
    if (status) {
        *over_p = true;
        return end_with(rank, LOST);
    }
    RANK_CHECK(rank->boot, n == 1 && !stepaf_batch_tensor(batch, 0, &info));
    RANK_CHECK(rank->boot, is_filled(info.data, seed));
    fill(rank->memory, seed + (unsigned)rank->boot->rank);
    stepaf_request_h request;
    status = stepaf_respond(batch, &answer, 1, 0, &request);
    if (!status)
        status = stepaf_wait(request, -1);
    RANK_CHECK(rank->boot, !stepaf_release(batch));
    *over_p = status == STEPAF_ERR_PEER_LOST; /* since another FFN rank has given it up */
    RANK_CHECK(rank->boot, !status || *over_p);
    return *over_p ? end_with(rank, LOST) : 0;
}

/* As soon as the slot's last batch is released. */
static stepaf_status_t push_pull(struct own_rank *rank, const stepaf_tensor_t *push,
                                 const stepaf_tensor_t *pull, stepaf_request_h *request_p)
{
    time_t began = time(NULL);
    stepaf_status_t status;

    do
        status = stepaf_push_pull(rank->ctx, push, 1, pull, SERVERS, request_p);
    while (status == STEPAF_ERR_WOULD_BLOCK && time(NULL) - began < LIMIT_S);
    return status;
}

/* One operation of the plan, or, if @a one_shot, of push_pull. */
static int ask(struct own_rank *rank, unsigned seed, bool one_shot, bool *over_p)
{
    stepaf_tensor_t push = {PUSHED, rank->user, BYTES}, pull[SERVERS];
    stepaf_start_params_t params = {.flags = STEPAF_START_WAIT, .push = &push, .n_push = 1};
    stepaf_request_h request;

    fill(rank->user, seed);
    pulls_of(rank, PULLED, pull);
    if (one_shot)
        TRY(rank, push_pull(rank, &push, pull, &request));
    else
        TRY(rank, stepaf_start_with(rank->plan, &params, &request));
    if (stepaf_wait(request, -1)) {
        *over_p = true;
        return end_with(rank, LOST);
    }
    size_t slot = (size_t)stepaf_request_slot(request) * BYTES;
    for (unsigned f = 0; f < SERVERS; f++)
        RANK_CHECK(rank->boot, is_filled((uint8_t *)pull[f].data + slot, seed + 1 + f));
    return 0;
}

static int exchange(struct own_rank *rank, unsigned seed, bool one_shot, bool *over_p)
{
    *over_p = false;
    return rank->ffn ? serve(rank, seed, over_p) : ask(rank, seed, one_shot, over_p);
}

/* As soon as all batches are released. */
static stepaf_status_t take_back(struct own_rank *rank)
{
    time_t began = time(NULL);
    stepaf_status_t status;

    do {
        status = rank->plan ? stepaf_plan_destroy(rank->plan) : STEPAF_OK;
        if (!status) {
            rank->plan = NULL;
            status = stepaf_key_withdraw(rank->ctx, PULLED);
        }
    } while (status == STEPAF_ERR_STATE && time(NULL) - began < LIMIT_S);
    return status;
}

static int play(struct own_rank *rank)
{
    bool over;

    if (set_up(rank))
        return 1;
    if (commit(rank, &over) || over)
        return !over;
    for (unsigned i = 0; i < 2 * ROUNDS; i++)
        if (exchange(rank, i, i % 2, &over) || over)
            return !over;
    TRY(rank, take_back(rank));
    if (declare(rank, PULLED, STEPAF_PULL) || declare(rank, LATER, STEPAF_PUSH))
        return 1;
    if (commit(rank, &over) || over)
        return !over;
    if (exchange(rank, 99, true, &over) || over)
        return !over;
    return end_with(rank, stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, -1) ? LOST : COMPLETE);
}

static int take_part(const stepaf_boot_t *boot, void *arg)
{
    struct trial *trial = arg;
    struct own_rank rank = {.boot = boot, .trial = trial, .ffn = boot->rank > 0};
    bool is_victim = boot->rank == trial->victim;
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = rank.ffn ? STEPAF_FFN : STEPAF_ATTENTION};
    stepaf_boot_t own = *boot;
    time_t began = time(NULL);
    int failed = 0;

    own.close = NULL;
    setenv("STEPAF_TRANSPORTS", trial->transports, 1);
    setenv("STEPAF_TIMEOUT_US", "2000000", 1);
    setenv("STEPAF_INIT_TIMEOUT_US", "2000000", 1);
    setenv("STEPAF_COMMIT_TIMEOUT_US", "2000000", 1);
    rank.user = calloc(1 + SERVERS, (size_t)DEPTH * BYTES);
    starve_begin(is_victim ? trial->nth : 0, trial->lasting);
    stepaf_status_t status = stepaf_init(&own, &params, &rank.ctx);
    if (status) {
        failed = end_with(&rank, NOT_BEGUN);
        RANK_CHECK(boot, !is_victim || status == STEPAF_ERR_NO_MEMORY);
    } else {
        failed = play(&rank);
        stepaf_finalize(rank.ctx);
    }
    starve_end();
    if (is_victim)
        trial->struck = starve_has_struck();
    RANK_CHECK(boot, !starve_leaks());
    RANK_CHECK(boot, time(NULL) - began < LIMIT_S);
    free(rank.user);
    return failed;
}

/* One worker's share of the trials. */
static void work(struct trial *trials, unsigned first)
{
    for (unsigned i = first; i < TRIALS; i += WORKERS) {
        ranks_run(RANKS, take_part, &trials[i], trials[i].statuses);
        if (!trials[i].struck)
            return;
    }
}

static bool is_fine(const struct trial *trial)
{
    bool fine = true;

    for (int r = 0; r < RANKS; r++)
        fine = fine && !trial->statuses[r] &&
               (trial->ends[r] == COMPLETE) == (trial->ends[0] == COMPLETE);
    return fine;
}

static void summarize(const struct trial *trials)
{
    unsigned n[N_ENDS] = {0}, i;

    for (i = 0; i < TRIALS && trials[i].struck; i++) {
        const struct trial *trial = &trials[i];
        if (is_fine(trial))
            n[trial->ends[trial->victim]]++;
        CU_ASSERT(is_fine(trial));
        if (!is_fine(trial))
            fprintf(stderr, "    allocation %u:", i + 1);
        for (int r = 0; r < RANKS && !is_fine(trial); r++)
            fprintf(stderr, " rank %d: %s (%x)%s", r,
                    trial->ends[r] < 0 ? "wrong" : end_names[trial->ends[r]],
                    (unsigned)trial->statuses[r], r == RANKS - 1 ? "\n" : "");
    }
    fprintf(stderr, "    %s, rank %d, %s: %u allocations:", trials->transports, trials->victim,
            trials->lasting ? "for long" : "once", i);
    for (int e = 0; e < N_ENDS; e++)
        fprintf(stderr, " %u %s%s", n[e], end_names[e], e == N_ENDS - 1 ? "\n" : ",");
    CU_ASSERT(i > 50 && i < TRIALS);
    CU_ASSERT(is_fine(&trials[i]) && trials[i].ends[0] == COMPLETE);
    CU_ASSERT(n[COMPLETE] > 15);
}

/* Have each allocation of a rank fail in turn, until there is none left. Trials that wait for a deadline
 * do so side by side. */
static void starve(const char *transports, int victim, bool lasting)
{
    size_t bytes = TRIALS * sizeof(struct trial);
    struct trial *trials =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t workers[WORKERS];

    CU_ASSERT_FATAL(trials != MAP_FAILED);
    for (unsigned i = 0; i < TRIALS; i++)
        trials[i] = (struct trial){transports, victim, lasting, i + 1, .ends = {-1, -1, -1}};
    for (unsigned w = 0; w < WORKERS; w++) {
        workers[w] = fork();
        CU_ASSERT_FATAL(workers[w] >= 0);
        if (!workers[w]) {
            work(trials, w);
            _exit(0);
        }
    }
    for (unsigned w = 0; w < WORKERS; w++)
        waitpid(workers[w], NULL, 0);
    summarize(trials);
    munmap(trials, bytes);
}

static void at_an_attention_rank(void)
{
    starve("shm", 0, false);
    starve("shm", 0, true);
    starve("tcp", 0, false);
}

static void at_an_ffn_rank(void)
{
    starve("shm", 1, false);
    starve("shm", 1, true);
    starve("tcp", 1, false);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"at an attention rank", at_an_attention_rank},
        {"at an FFN rank", at_an_ffn_rank},
        CU_TEST_INFO_NULL,
    };
    return unit_run("starved", tests);
}
