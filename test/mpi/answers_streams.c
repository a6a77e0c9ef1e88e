/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on streams that are complete before all FFN ranks have answered. Every answer has
 * other bytes each time; those that the mask tells of are looked at, and of others nothing may have
 * come. The GPU is one that is made of memory or a real one (machine.h).
 *
 * --case: late, stop (a rank is stopped, and given up), kill. The last FFN rank is who is late. */
#include <stdlib.h>
#include <string.h>

#include "mpi/machine.h"

enum {
    DEPTH = 2,
    N_PULL = 2,
    PUSH = 3000,
    LARGE = 30000, /* an answer by a kernel of its own */
    SMALL = 60,    /* in the head of its mailbox */
    ROOM = LARGE + SMALL + 4,
    OPS = 30,
    REPLAYS = 40,
    PATIENCE_US = 30000000
};

enum { KEY_PUSH = 21, KEY_LARGE, KEY_SMALL };

enum { STAMP_KILLED, STAMP_FREE }; /* of harness; up to which operation the late rank may answer */

static const size_t pull_bytes[N_PULL] = {LARGE, SMALL};

static struct {
    struct hs_job *job;
    stepaf_plan_h plan;
    unsigned char *push, *answers; /* answers: peer by peer, tensor by tensor, DEPTH of them */
    uint64_t n;                    /* operations so far, since the commit */
    int need;
} it;

static bool is_late_one(void)
{
    return it.job->role == STEPAF_FFN && it.job->index == it.job->ffn - 1;
}

static uint64_t bit_of_late_one(void)
{
    return (uint64_t)1 << (it.job->ffn - 1);
}

static uint64_t all_bits(void)
{
    return 2 * bit_of_late_one() - 1;
}

static unsigned char *answer_at(int p, int i, uint64_t n)
{
    unsigned char *at = it.answers + (size_t)p * DEPTH * ROOM;

    return i ? at + (size_t)DEPTH * LARGE + n % DEPTH * SMALL : at + n % DEPTH * LARGE;
}

static uint64_t seed(int ffn, int i, uint64_t n)
{
    return hs_mix((uint64_t)ffn * 1000003 + n) + (uint64_t)i * 7919;
}

/* Put an answer's bytes where it goes from. */
static bool make_answer(int i, uint64_t n)
{
    unsigned char bytes[LARGE];

    hs_fill(bytes, pull_bytes[i], seed(it.job->index, i, n));
    return machine_write(answer_at(0, i, n), bytes, pull_bytes[i]);
}

/* ---- an FFN rank ---- */

/* Answer the next batch. The late one waits until it may. */
static bool serve(void)
{
    if (!HS_OK(stepaf_recv_on_stream(it.plan, machine_stream())) || !machine_pass() ||
        !HS_OK(stepaf_plan_status(it.plan)))
        return false;
    while (is_late_one() && atomic_load(&it.job->shared->stamp[STAMP_FREE]) <= (int64_t)it.n &&
           !hs_hopeless(it.job))
        hs_yield();
    for (int i = 0; i < N_PULL; i++)
        if (!make_answer(i, it.n))
            return false;
    it.n++;
    return HS_OK(stepaf_respond_on_stream(it.plan, NULL, machine_stream())) && machine_pass();
}

static bool serve_many(uint64_t n)
{
    bool is_right = true;

    for (uint64_t k = 0; k < n && is_right; k++) {
        if (is_late_one() && k % 5 == 1)
            hs_sleep_us(1500);
        is_right = serve();
    }
    return is_right;
}

/* ---- the attention rank ---- */

static void free_late_one(uint64_t up_to)
{
    atomic_store(&it.job->shared->stamp[STAMP_FREE], (int64_t)up_to);
}

static bool start(stepaf_request_h *request_p)
{
    return HS_OK(stepaf_start_on_stream(it.plan, NULL, machine_stream(), request_p));
}

/* An answer has come, or, to @a is_valid false, nothing. */
static bool look_at_answer(int p, int i, uint64_t n, bool is_valid)
{
    unsigned char bytes[LARGE];

    if (!machine_read(bytes, answer_at(p, i, n), pull_bytes[i]))
        return false;
    if (!is_valid)
        return hs_verify_poison("where nothing has come", bytes, pull_bytes[i]);
    return hs_verify("an answer", bytes, pull_bytes[i],
                     seed(stepaf_peer_rank(it.job->ctx, p), i, n));
}

static bool read_answers(unsigned slot, stepaf_answers_t *answers_p)
{
    const stepaf_answers_t *answers = stepaf_plan_answers(it.plan, slot);

    return HS_TRUE(answers != NULL) && machine_read(answers_p, answers, sizeof(*answers_p));
}

/* What has come of operation @a n: of those in the mask all, of others nothing. */
static bool look_at(uint64_t n, uint64_t *mask_p)
{
    const uint32_t *at_landed = stepaf_plan_bytes(it.plan, n % DEPTH);
    uint32_t landed[HS_MAX_RANKS * N_PULL];
    stepaf_answers_t answers;
    bool is_right =
        HS_TRUE(at_landed != NULL) && read_answers(n % DEPTH, &answers) &&
        machine_read(landed, at_landed, (size_t)it.job->ffn * N_PULL * sizeof(landed[0]));

    if (!is_right)
        return false;
    *mask_p = answers.mask;
    HS_INT(answers.mask & ~all_bits(), ==, 0);
    HS_INT(answers.mask & answers.given_up, ==, 0);
    for (int at = 0; at < it.job->ffn * N_PULL && is_right; at++) {
        bool is_valid = answers.mask >> (at / N_PULL) & 1;
        is_right = HS_INT(landed[at], ==, is_valid ? pull_bytes[at % N_PULL] : 0) &&
                   look_at_answer(at / N_PULL, at % N_PULL, n, is_valid);
    }
    return is_right;
}

/* A start, and a wait. In between places are made as if nothing had come: what is late comes with
 * the start. */
static bool enqueue(uint64_t n)
{
    bool is_right = start(NULL);

    for (int at = 0; at < it.job->ffn * N_PULL && is_right; at++)
        is_right = machine_wipe(answer_at(at / N_PULL, at % N_PULL, n), pull_bytes[at % N_PULL]);
    return is_right && HS_OK(stepaf_wait_on_stream(it.plan, machine_stream()));
}

static bool ask(uint64_t *mask_p)
{
    return enqueue(it.n) && machine_pass() && HS_OK(stepaf_plan_status(it.plan)) &&
           look_at(it.n++, mask_p);
}

static bool ask_for(uint64_t want)
{
    uint64_t mask = 0;

    return ask(&mask) && HS_INT(mask, ==, want);
}

/* ---- both ---- */

static bool declare(uint64_t key, stepaf_direction_t direction, size_t bytes)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .depth = DEPTH,
                                  .mem_kind = STEPAF_MEM_CUDA};

    return HS_OK(stepaf_key_declare(it.job->ctx, key, direction, bytes, &params));
}

static bool make(void)
{
    const uint64_t push_key = KEY_PUSH, pull_keys[N_PULL] = {KEY_LARGE, KEY_SMALL};
    stepaf_tensor_t push = {KEY_PUSH, NULL, PUSH}, pull[HS_MAX_RANKS];
    int n_pull = it.job->peers * N_PULL;
    void *place = NULL;

    if (!declare(KEY_PUSH, STEPAF_PUSH, PUSH) || !declare(KEY_LARGE, STEPAF_PULL, LARGE) ||
        !declare(KEY_SMALL, STEPAF_PULL, SMALL) ||
        !HS_OK(stepaf_alloc(it.job->ctx, PUSH + 8 + (size_t)it.job->peers * DEPTH * ROOM,
                            STEPAF_MEM_CUDA, &place)))
        return false;
    it.push = place;
    it.answers = it.push + PUSH + 8; /* a multiple of 16 */
    push.data = it.push;
    for (int at = 0; at < n_pull; at++)
        pull[at] = (stepaf_tensor_t){pull_keys[at % N_PULL], answer_at(at / N_PULL, at % N_PULL, 0),
                                     pull_bytes[at % N_PULL]};
    if (it.job->role == STEPAF_ATTENTION)
        return HS_OK(
            stepaf_plan_create(it.job->ctx, &push, 1, pull, n_pull, STEPAF_PLAN_STREAM, &it.plan));
    return HS_OK(stepaf_plan_create_ffn(it.job->ctx, &push_key, 1, pull, n_pull, STEPAF_PLAN_STREAM,
                                        &it.plan));
}

static bool commit(const stepaf_commit_params_t *params, int64_t patience_us)
{
    if (it.job->role == STEPAF_ATTENTION &&
        !HS_OK(stepaf_plan_set_answers(it.plan, it.need, patience_us)))
        return false;
    it.n = 0;
    if (it.job->role == STEPAF_ATTENTION)
        free_late_one(UINT32_MAX);
    return HS_OK(params ? stepaf_commit_with(it.job->ctx, params) : stepaf_commit(it.job->ctx)) &&
           hs_sync(it.job);
}

static bool is_attention(void)
{
    return it.job->role == STEPAF_ATTENTION;
}

/* ---- late ---- */

/* All are waited for as long as there is patience. */
static bool be_patient(void)
{
    bool is_right = commit(NULL, PATIENCE_US);

    for (int k = 0; k < DEPTH + 1 && is_right; k++)
        is_right = is_attention() ? ask_for(all_bits()) : serve();
    return is_right && hs_sync(it.job);
}

/* It has landed where it always would. */
static bool look_at_late(int p)
{
    unsigned char bytes[LARGE];

    return machine_read(bytes, answer_at(p, 0, it.n), LARGE) &&
           hs_verify("a late answer", bytes, LARGE, seed(p, 0, it.n - DEPTH));
}

/* The late one holds its answers back: the others do. The start that uses the slot again waits for
 * it. */
static bool hold_back(void)
{
    stepaf_request_h request = NULL;
    uint64_t mask = 0, others = all_bits() & ~bit_of_late_one();
    int last = it.job->ffn - 1;
    stepaf_answers_t answers;

    if (!commit(NULL, 0))
        return false;
    if (is_attention())
        free_late_one(0);
    if (!hs_sync(it.job))
        return false;
    if (!is_attention())
        return serve_many(DEPTH + 1) && hs_sync(it.job);
    if (!ask_for(others) || !start(&request) ||
        !HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)) ||
        !HS_OK(stepaf_request_answers(request, &mask, 1)))
        return false;
    it.n++;
    HS_INT(mask, ==, others);
    HS_OK(stepaf_request_peer(request, 0));
    HS_REFUSED(stepaf_request_peer(request, last), STEPAF_ERR_WOULD_BLOCK);
    if (!start(NULL))
        return false;
    hs_sleep_us(20000);
    HS_TRUE(machine_is_busy()); /* for as long as it is late */
    free_late_one(UINT32_MAX);
    if (!machine_pass() || !look_at_late(last))
        return false;
    if (!HS_OK(stepaf_wait_on_stream(it.plan, machine_stream())) || !machine_pass() ||
        !read_answers(it.n % DEPTH, &answers))
        return false;
    HS_INT(answers.late, ==, 1);
    it.n++;
    return hs_sync(it.job);
}

/* Now and then one is late; at least so many are in the mask. */
static bool exchange(void)
{
    uint64_t mask = 0;
    bool is_right = commit(NULL, 0);

    if (!is_attention())
        return is_right && serve_many(OPS) && hs_sync(it.job);
    for (int k = 0; k < OPS && is_right; k++)
        is_right = ask(&mask) && HS_INT(__builtin_popcountll(mask), >=, it.need);
    HS_OK(stepaf_plan_status(it.plan));
    return is_right && hs_sync(it.job);
}

/* The same in a graph, of as many operations as there are slots. */
static bool replay(void)
{
    uint64_t mask = 0;
    bool is_right = commit(NULL, 0);

    if (!is_attention())
        return is_right && serve_many((uint64_t)REPLAYS * DEPTH) && hs_sync(it.job);
    is_right = is_right && machine_capture(true);
    for (uint64_t n = 0; n < DEPTH && is_right; n++)
        is_right = enqueue(n);
    is_right = is_right && machine_capture(false);
    for (int k = 0; k < REPLAYS && is_right; k++) {
        is_right = machine_replay() && machine_pass() && HS_OK(stepaf_plan_status(it.plan));
        for (int i = 0; i < DEPTH && is_right; i++)
            is_right = look_at(it.n++, &mask) && HS_INT(__builtin_popcountll(mask), >=, it.need);
    }
    return is_right && hs_sync(it.job);
}

/* The graph of before does nothing after a commit; then what is wrong is refused. */
static bool refuse(void)
{
    stepaf_start_params_t some = {.field_mask = STEPAF_START_PARAM_ANSWERS, .n_answers = 1};
    int n = it.job->ffn;

    if (!is_attention()) {
        HS_REFUSED(stepaf_plan_set_answers(it.plan, 1, 0), STEPAF_ERR_ROLE);
        HS_TRUE(stepaf_plan_answers(it.plan, 0) == NULL);
        return hs_sync(it.job) && commit(NULL, 0) && serve() && hs_sync(it.job);
    }
    HS_REFUSED(stepaf_plan_set_answers(it.plan, -1, 0), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_set_answers(it.plan, n + 1, 0), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_set_answers(it.plan, 1, -1), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_start_on_stream(it.plan, &some, machine_stream(), NULL),
               STEPAF_ERR_UNSUPPORTED);
    HS_TRUE(stepaf_plan_answers(it.plan, DEPTH) == NULL);
    HS_TRUE(stepaf_plan_answers(NULL, 0) == NULL);
    /* All are waited for again from the next commit on, and not before. */
    it.need = 0;
    HS_OK(stepaf_plan_set_answers(it.plan, 0, 0));
    HS_TRUE(stepaf_plan_answers(it.plan, 0) != NULL);
    if (!hs_sync(it.job) || !commit(NULL, 0))
        return false;
    HS_TRUE(stepaf_plan_answers(it.plan, 0) == NULL);
    return machine_replay() && machine_pass() && start(NULL) &&
           HS_OK(stepaf_wait_on_stream(it.plan, machine_stream())) && machine_pass() &&
           HS_OK(stepaf_plan_status(it.plan)) && hs_sync(it.job);
}

/* ---- stop ---- */

/* The late one is stopped: the others do for as many operations as there are slots; then it is
 * given up. */
static bool stop(void)
{
    int victim = stepaf_world_rank(it.job->ctx, STEPAF_GROUP_FFN, it.job->ffn - 1);
    uint64_t others = all_bits() & ~bit_of_late_one();
    stepaf_answers_t answers;

    if (!commit(NULL, PATIENCE_US) || !(is_attention() ? ask_for(all_bits()) : serve()) ||
        !commit(NULL, 0))
        return false;
    if (is_late_one()) {
        /* Stopped in the first pass: a GPU goes on with what its stopped process has enqueued, so
         * no answer may be. */
        while (!hs_hopeless(it.job)) {
            (void)stepaf_recv_on_stream(it.plan, machine_stream());
            (void)machine_pass();
            if (stepaf_plan_status(it.plan) != STEPAF_OK)
                break;
            (void)stepaf_respond_on_stream(it.plan, NULL, machine_stream());
        }
        HS_REFUSED(stepaf_plan_status(it.plan), STEPAF_ERR_TIMEOUT);
        HS_INT(stepaf_last_error()->peer_role, ==, STEPAF_ATTENTION);
    } else if (is_attention()) {
        hs_signal(it.job, victim, SIGSTOP);
        hs_sleep_us(2000);
        for (int k = 0; k < 4 * DEPTH; k++) {
            if (!ask_for(others))
                break;
            if (!read_answers((it.n - 1) % DEPTH, &answers))
                break;
            HS_INT(answers.given_up, ==, k < DEPTH ? 0 : bit_of_late_one());
        }
        hs_signal(it.job, victim, SIGCONT);
    } else {
        for (int k = 0; k < 4 * DEPTH; k++)
            if (!serve())
                break;
    }
    if (!hs_sync(it.job) || !commit(NULL, PATIENCE_US))
        return false;
    return (is_attention() ? ask_for(all_bits()) : serve()) && hs_sync(it.job);
}

/* ---- kill ---- */

static void wait_for_end(stepaf_status_t want)
{
    int64_t until_ns = hs_now_ns() + PATIENCE_US * INT64_C(1000) * hs_slow();
    stepaf_status_t status;

    while ((status = stepaf_plan_status(it.plan)) == STEPAF_OK && hs_now_ns() < until_ns)
        hs_sleep_us(200);
    HS_REFUSED(status, want);
}

/* The late one dies while it is waited for; then another, so that too few are left; then the commit
 * goes on. */
static bool kill_some(void)
{
    static const stepaf_commit_params_t go_on = {.field_mask = STEPAF_COMMIT_LOST,
                                                 .lost = STEPAF_COMMIT_LEAVE_LOST};
    int victim = stepaf_world_rank(it.job->ctx, STEPAF_GROUP_FFN, it.job->ffn - 1);
    int other = stepaf_world_rank(it.job->ctx, STEPAF_GROUP_FFN, it.job->ffn - 2);
    uint64_t others = all_bits() & ~bit_of_late_one();
    stepaf_request_h request = NULL;
    stepaf_answers_t answers;

    if (!commit(NULL, PATIENCE_US))
        return false;
    hs_doom(it.job, victim);
    hs_doom(it.job, other);
    if (!(is_attention() ? ask_for(all_bits()) : serve()) || !hs_pause(it.job))
        return false;
    if (!is_attention()) {
        for (int k = 0; !is_late_one() && k < DEPTH + 2; k++)
            if (!serve())
                return false;
        while (it.job->rank == victim || it.job->rank == other)
            hs_sleep_us(1000);
        return hs_sync(it.job) && commit(&go_on, 0) && serve() && hs_sync(it.job);
    }
    if (!start(&request) || !HS_OK(stepaf_wait_on_stream(it.plan, machine_stream())))
        return false;
    hs_sleep_us(5000);
    hs_signal(it.job, victim, SIGKILL);
    if (!HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)) || !machine_pass())
        return false;
    HS_REFUSED(stepaf_request_peer(request, it.job->ffn - 1), STEPAF_ERR_PEER_LOST);
    if (!read_answers(it.n % DEPTH, &answers))
        return false;
    HS_INT(answers.given_up, ==, bit_of_late_one());
    it.n++;
    for (int k = 0; k < DEPTH + 1; k++)
        if (!ask_for(others))
            return false;
    if (!start(NULL) || !HS_OK(stepaf_wait_on_stream(it.plan, machine_stream())))
        return false;
    hs_signal(it.job, other, SIGKILL);
    wait_for_end(STEPAF_ERR_PEER_LOST);
    HS_INT(stepaf_last_error()->peer_world_rank, ==, other);
    if (!machine_pass() || !hs_sync(it.job) || !commit(&go_on, 0))
        return false;
    return ask_for(1) && hs_sync(it.job);
}

static void body(struct hs_job *job)
{
    const char *name = hs_option_text(job, "--case", "late");
    bool is_right;

    it.job = job;
    if (!machine_begin(job) || !hs_open(job))
        return;
    it.need = job->ffn - 1;
    hs_step(name);
    is_right = make();
    if (strcmp(name, "late") == 0)
        is_right = is_right && be_patient() && hold_back() && exchange() && replay() && refuse();
    else
        is_right = is_right && (strcmp(name, "stop") == 0 ? stop() : kill_some());
    (void)is_right;
    hs_step("end");
    machine_end(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "answers_streams",
                                        .options = "--case --gpus",
                                        .limit_s = 120,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
