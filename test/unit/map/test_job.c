/* SPDX-License-Identifier: Apache-2.0 */
/* The map of running jobs: what the setting prints and costs, and what all ranks say when one
 * rank's transport lies. */
#include <stdlib.h>
#include <string.h>

#include "api/handles.h"
#include "ranks.h"
#include "unit.h"

enum { PUSHED = 1, BYTES = 5000, N = 4, HALF = N / 2, TEXT_MAX = 8192 };

/* A job to come: its settings, and what is to be seen. */
struct job {
    const char *transports;
    const char *print_map;
    const char *seen;    /* in what world rank 0 prints at commit */
    const char *checked; /* and in the map after traffic */
    int exchanges;       /* over TCP: at least, since ranks may meet before all are connected */
    int liar;            /* world rank; -1: none */
};

/* The local bootstrap, counted. */
static stepaf_boot_t real;
static int n_exchanges;
static char printed[TEXT_MAX];

static stepaf_status_t counted(void *self, const void *data, size_t bytes, void **all_p,
                               size_t *offsets_p, int64_t timeout_us)
{
    n_exchanges++;
    return real.allgather(self, data, bytes, all_p, offsets_p, timeout_us);
}

static void take_line(stepaf_log_level_t level, const char *file, int line, const char *message,
                      void *arg)
{
    size_t used = strlen(printed);

    (void)file, (void)line, (void)arg;
    if (level == STEPAF_LOG_INFO)
        snprintf(printed + used, sizeof printed - used, "%s\n", message);
}

static stepaf_status_t join(const stepaf_boot_t *boot, const struct job *job, stepaf_context_h *ctx)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = boot->rank < HALF ? STEPAF_ATTENTION : STEPAF_FFN};
    stepaf_boot_t mine = *boot;

    setenv("STEPAF_TRANSPORTS", job->transports, 1);
    setenv("STEPAF_NET_IF", "lo", 1);
    setenv("STEPAF_PRINT_MAP", job->print_map, 1);
    stepaf_log_set_callback(take_line, NULL);
    real = *boot;
    mine.allgather = counted;
    mine.close = NULL;
    return stepaf_init(&mine, &params, ctx);
}

static int attend(const stepaf_boot_t *boot, stepaf_context_h ctx)
{
    stepaf_tensor_t push = {PUSHED, NULL, BYTES};
    stepaf_request_h request;
    stepaf_plan_h plan;

    RANK_CHECK(boot, !stepaf_alloc(ctx, BYTES, STEPAF_MEM_HOST, &push.data));
    RANK_CHECK(boot, !stepaf_plan_create(ctx, &push, 1, NULL, 0, 0, &plan));
    RANK_CHECK(boot, !stepaf_commit(ctx));
    RANK_CHECK(boot, !stepaf_start(plan, &request));
    RANK_CHECK(boot, !stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    return 0;
}

static int serve(const stepaf_boot_t *boot, stepaf_context_h ctx)
{
    stepaf_batch_h batch;
    int n;

    RANK_CHECK(boot, !stepaf_commit(ctx));
    for (int i = 0; i < HALF; i++) {
        RANK_CHECK(boot, !stepaf_recv(ctx, STEPAF_FROM_ANY, 0, -1, &batch, 1, &n));
        RANK_CHECK(boot, !stepaf_release(batch));
    }
    return 0;
}

/* All ranks come to the same verdict; the first has the map, whatever it is. */
static int check(const stepaf_boot_t *boot, stepaf_context_h ctx, const struct job *job)
{
    struct stepaf_ctx *inside = stepaf_contexts[stepaf_handle_context(ctx)].ctx;
    char *text = NULL;

    if (boot->rank == job->liar)
        inside->peers[1].link->bytes_sent -= 1;
    stepaf_status_t status = stepaf_map_check(ctx, STEPAF_TIMEOUT_DEFAULT, &text);
    RANK_CHECK(boot, status == (job->liar < 0 ? STEPAF_OK : STEPAF_ERR_TRANSPORT));
    if (status)
        RANK_CHECK(boot, strstr(stepaf_last_error()->text,
                                "attention rank 1 to FFN rank 1 (world rank 3): shm;"));
    if (status)
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, " has written 4999 of 5000 bytes"));
    RANK_CHECK(boot, !text == (boot->rank != 0));
    if (text)
        RANK_CHECK(boot, strstr(text, job->checked));
    free(text);
    RANK_CHECK(boot, stepaf_map_check(ctx, STEPAF_TIMEOUT_DEFAULT, NULL) == status);
    return 0;
}

static int live(const stepaf_boot_t *boot, void *arg)
{
    const struct job *job = arg;
    stepaf_context_h ctx;
    stepaf_link_info_t info = {.size = sizeof(info)};
    char *text = NULL;

    RANK_CHECK(boot, !join(boot, job, &ctx));
    RANK_CHECK(boot, !stepaf_key_declare(ctx, PUSHED, STEPAF_PUSH, BYTES, NULL));
    RANK_CHECK(boot, stepaf_map_check(ctx, 0, &text) == STEPAF_ERR_STATE && !text);
    RANK_CHECK(boot, !stepaf_link_query(ctx, 0, &info) && !strcmp(info.transport, "-"));
    if (boot->rank < HALF ? attend(boot, ctx) : serve(boot, ctx))
        return 1;
    RANK_CHECK(boot, n_exchanges == job->exchanges ||
                         (n_exchanges > job->exchanges && !strcmp(job->transports, "tcp")));
    if (boot->rank || !job->seen)
        RANK_CHECK(boot, !strstr(printed, "stepaf map"));
    else
        RANK_CHECK(boot, strstr(printed, job->seen));
    RANK_CHECK(boot, !stepaf_link_query(ctx, 1, &info));
    RANK_CHECK(boot, boot->rank >= HALF ? info.bytes_received == BYTES && !info.bytes_sent
                                        : info.bytes_sent == BYTES && !info.bytes_received);
    RANK_CHECK(boot, info.messages_sent > 0 && !info.is_lost);
    if (check(boot, ctx, job))
        return 1;
    RANK_CHECK(boot, !stepaf_barrier(ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT));
    stepaf_finalize(ctx);
    return 0;
}

static void nothing_is_printed_unasked(void)
{
    struct job job = {"", "0", NULL, "shm;", 3, -1};

    ranks_expect_processes(N, live, &job);
}

static void shared_memory_is_shown(void)
{
    struct job job = {"shm", "1", "\nID 1          shm;", "shm;", 4, -1};

    ranks_expect_processes(N, live, &job);
}

static void tcp_is_shown_with_what_was_refused(void)
{
    struct job job = {"tcp",
                      "1",
                      "tcp;lo on 4 links (attention 0 - FFN 0 first) instead of shm: "
                      "STEPAF_TRANSPORTS does not list it",
                      "\ntcp;lo: 4 links, 19.5K bytes pushed, 0 pulled\n",
                      5,
                      -1};

    ranks_expect_processes(N, live, &job);
}

static void a_lie_is_known_to_all(void)
{
    struct job job = {"shm", "0", NULL, "4.9K/0", 3, 1};

    ranks_expect_processes(N, live, &job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing is printed unasked", nothing_is_printed_unasked},
        {"shared memory is shown", shared_memory_is_shown},
        {"tcp is shown with what was refused", tcp_is_shown_with_what_was_refused},
        {"a lie is known to all", a_lie_is_known_to_all},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
