/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing in set-up grows faster than n log n: eight times as much of anything takes at most three
 * times eight times the processor time, where the least of a few tries counts. It would be 64 times
 * if each looked through all others. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/key.h"
#include "core/region.h"
#include "fake.h"
#include "unit.h"
#include "wireup/advert.h"

enum { SMALL = 2048, TIMES = 8, TRIES = 3, FEW_PEERS = 64, PAGE = 64 };

static int64_t processor_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void check_growth(const char *what, int64_t (*measure)(int n), int n)
{
    int64_t least[2] = {INT64_MAX, INT64_MAX};

    for (int t = 0; t < TRIES; t++)
        for (int i = 0; i < 2; i++) {
            int64_t ns = measure(i ? n * TIMES : n);
            least[i] = ns < least[i] ? ns : least[i];
        }
    printf("\n    %s: %d in %.2f ms, %d in %.2f ms: %.1f times", what, n, (double)least[0] / 1e6,
           n * TIMES, (double)least[1] / 1e6, (double)least[1] / (double)least[0]);
    CU_ASSERT(least[1] < 3 * TIMES * least[0]);
}

static void must(stepaf_status_t status)
{
    fake_must(status == STEPAF_OK, stepaf_last_error()->text);
}

/* Declared from the last to the first; withdrawn in between; by a commit the peers forget them. */
static int64_t keys_at_an_ffn_rank(int n)
{
    struct fake_job *ffn = fake_open(STEPAF_FFN, 2, 1),
                    *attention = fake_open(STEPAF_ATTENTION, 2, 1);

    must(stepaf_key_declare(attention->handle, 0, STEPAF_PUSH, 64, NULL));
    int64_t began = processor_ns();
    for (int i = n; i-- > 0;)
        must(stepaf_key_declare(ffn->handle, (uint64_t)i, STEPAF_PUSH, 64, NULL));
    must(fake_commit(ffn, attention));
    for (int i = 1; i < n; i++)
        must(stepaf_key_withdraw(ffn->handle, (uint64_t)i));
    for (int i = n; i < 2 * n; i++)
        must(stepaf_key_declare(ffn->handle, (uint64_t)i, STEPAF_PULL, 64, NULL));
    must(fake_commit(ffn, attention));
    int64_t ns = processor_ns() - began;
    fake_close(ffn);
    fake_close(attention);
    return ns;
}

/* Memory, and plans that name a piece each. */
static int64_t plans_at_an_attention_rank(int n)
{
    struct fake_job *ffn = fake_open(STEPAF_FFN, 1, 1),
                    *attention = fake_open(STEPAF_ATTENTION, 1, 1);
    uint8_t *memory = malloc((size_t)n * PAGE);
    stepaf_plan_h *plans = calloc((size_t)n, sizeof(stepaf_plan_h));

    fake_must(memory && plans, "memory");
    for (int i = 0; i < n; i++)
        fake_key(attention, ffn, (uint64_t)i, STEPAF_PUSH, PAGE, 1);
    int64_t began = processor_ns();
    for (int i = n; i-- > 0;) {
        stepaf_tensor_t push = {(uint64_t)i, memory + (size_t)i * PAGE, PAGE};
        must(stepaf_register(attention->handle, push.data, PAGE));
        must(stepaf_plan_create(attention->handle, &push, 1, NULL, 0, 0, &plans[i]));
    }
    must(fake_commit(attention, ffn));
    for (int i = 0; i < n; i++) {
        must(stepaf_plan_destroy(plans[i]));
        must(stepaf_deregister(attention->handle, memory + (size_t)i * PAGE));
        must(stepaf_key_withdraw(attention->handle, (uint64_t)i));
    }
    int64_t ns = processor_ns() - began;
    fake_close(ffn);
    fake_close(attention);
    free(plans);
    free(memory);
    return ns;
}

/* A receive buffer for each peer by itself, for a few keys. */
static int64_t buffers_of_peers(int n)
{
    enum { KEYS = 4 };
    struct fake_job *ffn = fake_open(STEPAF_FFN, n, 1);
    uint8_t *memory = malloc((size_t)n * KEYS * PAGE);

    fake_must(memory != NULL, "memory");
    must(stepaf_register(ffn->handle, memory, (size_t)n * KEYS * PAGE));
    int64_t began = processor_ns();
    for (int k = 0; k < KEYS; k++) {
        must(stepaf_key_declare(ffn->handle, (uint64_t)k, STEPAF_PUSH, PAGE, NULL));
        for (int r = 0; r < n; r++)
            must(stepaf_key_set_recv(ffn->handle, (uint64_t)k, memory + (size_t)(k * n + r) * PAGE,
                                     PAGE, &r, 1));
    }
    int64_t ns = processor_ns() - began;
    fake_close(ffn);
    free(memory);
    return ns;
}

/* What @a n ranks declare, each a few keys that no other has. */
static int64_t verdict_on_ranks(int n)
{
    enum { KEYS = 4 };
    struct fake_job *job = fake_open(STEPAF_FFN, 1, 1);
    struct stepaf_advert *adverts = calloc((size_t)n, sizeof(*adverts));
    struct stepaf_advert_key_row *rows = calloc((size_t)n * KEYS, sizeof(*rows));
    struct stepaf_pack no_streams = {0};

    stepaf_pack_u32(&no_streams, 0);
    fake_must(adverts && rows && !no_streams.failed, "memory");
    for (int r = 0; r < n; r++) {
        adverts[r] = (struct stepaf_advert){
            .role = r % 2 ? STEPAF_FFN : STEPAF_ATTENTION,
            .world_rank = r,
            .keys = &rows[r * KEYS],
            .n_keys = KEYS,
            .streams = stepaf_unpack_from(no_streams.data, no_streams.bytes)};
        for (int k = 0; k < KEYS; k++)
            adverts[r].keys[k] = (struct stepaf_advert_key_row){
                .id = (uint64_t)((n - r) * KEYS + k), .direction = STEPAF_PULL, .max_bytes = 64};
    }
    int64_t began = processor_ns();
    must(stepaf_adverts_check(adverts, n, 0, job->ctx->feature));
    int64_t ns = processor_ns() - began;
    fake_close(job);
    free(no_streams.data);
    free(rows);
    free(adverts);
    return ns;
}

static void keys(void)
{
    check_growth("keys, withdrawn", keys_at_an_ffn_rank, SMALL);
}

static void plans_and_regions(void)
{
    check_growth("plans and regions", plans_at_an_attention_rank, SMALL / 2);
}

static void receive_buffers(void)
{
    check_growth("receive buffers of peers", buffers_of_peers, FEW_PEERS * 2);
}

static void adverts_of_ranks(void)
{
    check_growth("adverts of ranks", verdict_on_ranks, SMALL / 4);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"keys", keys},
        {"plans and regions", plans_and_regions},
        {"receive buffers", receive_buffers},
        {"adverts of ranks", adverts_of_ranks},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
