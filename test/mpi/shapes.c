/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of exchange, on whatever shape of job it is started with.
 *
 * --expect RANKS: roles in rank order, one letter each: "aaf". --map ROLES: write these roles to a
 * map file and split by it. --roles ROLES: each rank asks for its role in its parameters, or with
 * '-' for none. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 3001, ROUNDS = 5, KINDS = 6 };

static const unsigned kinds[KINDS] = {
    FX_BOTH, FX_NO_PULL, FX_NO_PUSH, FX_SCATTER, FX_SCATTER | FX_NO_PULL, FX_BOTH};

/* The groups must agree with each other and with what was expected. */
static void check_groups(struct hs_job *job)
{
    const char *expect = hs_option_text(job, "--expect", NULL);
    int mine = 0;

    HS_INT(stepaf_size(job->ctx, STEPAF_GROUP_WORLD), ==, job->size);
    HS_INT(stepaf_rank(job->ctx, STEPAF_GROUP_WORLD), ==, job->rank);
    for (int role = STEPAF_ATTENTION; role <= STEPAF_FFN; role++) {
        stepaf_group_t group = role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;
        int n = stepaf_size(job->ctx, group), last = -1;
        for (int i = 0; i < n; i++) {
            int world = stepaf_world_rank(job->ctx, group, i);
            HS_INT(world, >, last);
            HS_INT(world, <, job->size);
            if (world == job->rank) {
                mine++;
                HS_INT(job->role, ==, role);
                HS_INT(stepaf_rank(job->ctx, group), ==, i);
            }
            if (expect != NULL && world >= 0 && world < (int)strlen(expect))
                HS_INT(expect[world], ==, role == STEPAF_FFN ? 'f' : 'a');
            last = world;
        }
        HS_INT(stepaf_world_rank(job->ctx, group, n), ==, -1);
        HS_INT(stepaf_world_rank(job->ctx, group, -1), ==, -1);
        if ((int)job->role != role)
            HS_INT(stepaf_rank(job->ctx, group), ==, -1);
    }
    HS_INT(mine, ==, 1);
    if (expect != NULL)
        HS_INT(strlen(expect), ==, job->size);
}

/* --lanes N: the peers are those of this rank's lane, in both directions. */
static void check_mesh(struct hs_job *job)
{
    int lanes = (int)hs_option_int(job, "--lanes", 1), n = 0;
    int others = job->role == STEPAF_FFN ? job->attn : job->ffn;

    for (int rank = 0; rank < others; rank++) {
        bool is_peer = rank % lanes == job->index % lanes;
        HS_INT(stepaf_peer_index(job->ctx, rank), ==, is_peer ? n : -1);
        HS_TRUE((stepaf_transport_name(job->ctx, rank) != NULL) == is_peer);
        if (is_peer)
            HS_INT(stepaf_peer_rank(job->ctx, n++), ==, rank);
    }
    HS_INT(stepaf_n_peers(job->ctx), ==, n);
    HS_INT(stepaf_peer_rank(job->ctx, n), ==, -1);
    HS_INT(stepaf_peer_rank(job->ctx, -1), ==, -1);
    HS_INT(stepaf_peer_index(job->ctx, others), ==, -1);
    HS_INT(stepaf_peer_index(job->ctx, others + job->index % lanes), ==, -1);
    HS_INT(stepaf_peer_index(job->ctx, -1), ==, -1);
}

static void check_barriers(struct hs_job *job)
{
    stepaf_group_t own = job->role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;

    for (int i = 0; i < 2; i++) {
        HS_OK(stepaf_barrier(job->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT));
        HS_OK(stepaf_barrier(job->ctx, own, STEPAF_TIMEOUT_DEFAULT));
    }
}

/* Each peer is reached the best way: shared memory within a host, if that is admitted; RDMA if it
 * is asked for. Where nothing is, a host without RDMA devices has TCP. */
static void check_transports(struct hs_job *job)
{
    stepaf_group_t group = job->role == STEPAF_FFN ? STEPAF_GROUP_ATTENTION : STEPAF_GROUP_FFN;
    const char *list = getenv("STEPAF_TRANSPORTS");
    bool any = list == NULL || list[0] == '\0';
    bool shm = any || strstr(list, "shm") != NULL;
    const char *far = "tcp";

    if (!any && strstr(list, "verbs") != NULL)
        far = "verbs";
    else if (!any && strstr(list, "tcp") == NULL && strstr(list, "ofi") != NULL)
        far = "ofi";
    else if (!any && strstr(list, "tcp") == NULL && strstr(list, "ucx") != NULL)
        far = "ucx";
    for (int p = 0; p < stepaf_n_peers(job->ctx); p++) {
        int rank = stepaf_peer_rank(job->ctx, p);
        bool near = hs_same_host(job, stepaf_world_rank(job->ctx, group, rank));
        const char *is = stepaf_transport_name(job->ctx, rank), *best = shm && near ? "shm" : far;
        bool may_be = any && !near && strncmp(is, "verbs", strlen("verbs")) == 0;
        if (strncmp(is, best, strlen(best)) != 0 && !may_be)
            HS_FAILED("rank %d is reached by %s, should be %s", rank, is, best);
    }
}

/* One-shot calls: the same plan each time, with other sizes. */
static void one_shots(struct hs_job *job, struct fx_plan *plan)
{
    stepaf_tensor_t push, pull[HS_MAX_RANKS];
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_request_h request;
    int id = plan->id;

    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = round == 0 ? 1 : plan->bytes - (size_t)round;
        memset(plan->source, 'a' + round, bytes);
        memset(plan->target, 0, plan->bytes * plan->depth * (unsigned)job->peers);
        push = (stepaf_tensor_t){(uint64_t)(FX_PUSH_KEY + id), plan->source, bytes};
        for (int f = 0; f < job->peers; f++)
            pull[f] = (stepaf_tensor_t){(uint64_t)(FX_PULL_KEY + id),
                                        plan->target + (size_t)f * plan->depth * plan->bytes,
                                        plan->bytes};
        if (!HS_OK(stepaf_push_pull(job->ctx, &push, 1, pull, job->peers, &request)) ||
            !HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
            return;
        for (int f = 0; f < job->peers; f++) {
            if (!HS_OK(stepaf_request_tensor(request, f, &info)) || !HS_INT(info.bytes, ==, bytes))
                return;
            unsigned char *data = info.data;
            HS_INT(data[0], ==, 'A' + round);
            HS_INT(data[bytes - 1], ==, 'A' + round);
            HS_INT(data[bytes], ==, 0);
        }
    }
}

/* Answer with the same bytes in capitals. */
static void serve_one_shots(struct hs_job *job, int n)
{
    static unsigned char *answer[HS_MAX_RANKS];
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_request_h request;
    stepaf_batch_h batch;

    for (int got; n > 0; n--) {
        if (!HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1,
                               &got)) ||
            !HS_OK(stepaf_batch_query(batch, &info)) ||
            !HS_OK(stepaf_batch_tensor(batch, 0, &tensor)) || !HS_INT(tensor.bytes, <=, BYTES))
            return;
        unsigned char **mine = &answer[info.attention_rank];
        if (*mine == NULL && !HS_OK(stepaf_alloc(job->ctx, BYTES, STEPAF_MEM_HOST, (void **)mine)))
            return;
        for (size_t i = 0; i < tensor.bytes; i++)
            (*mine)[i] = (unsigned char)(((unsigned char *)tensor.data)[i] - 'a' + 'A');
        stepaf_tensor_t out = {tensor.key - FX_PUSH_KEY + FX_PULL_KEY, *mine, tensor.bytes};
        HS_OK(stepaf_respond(batch, &out, 1, 0, &request));
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        memset(*mine, HS_POISON, BYTES);
        HS_OK(stepaf_release(batch));
    }
}

static void exchange(struct hs_job *job)
{
    struct fx_plan plans[KINDS];

    for (int id = 0; id < KINDS; id++)
        if (!fx_declare(job, id, BYTES, 1 + (unsigned)id % 3))
            return;
    if (job->role == STEPAF_FFN && !fx_serve_open(job, BYTES))
        return;
    for (int id = 0; id < KINDS && job->role == STEPAF_ATTENTION; id++)
        if (!fx_plan_make(job, id, BYTES, 1 + (unsigned)id % 3, kinds[id], &plans[id]))
            return;
    int peer = stepaf_peer_rank(job->ctx, 0);
    HS_TRUE(strcmp(stepaf_transport_name(job->ctx, peer), "-") == 0);
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    check_transports(job);
    check_barriers(job);
    if (job->role == STEPAF_FFN) {
        fx_serve(job, job->peers * ROUNDS * (KINDS - 1));
        hs_sync(job);
        serve_one_shots(job, job->peers * ROUNDS);
    } else {
        for (int round = 0; round < ROUNDS; round++)
            for (int id = 0; id < KINDS - 1; id++)
                if (!fx_exchange(&plans[id]))
                    return;
        hs_sync(job);
        one_shots(job, &plans[KINDS - 1]);
    }
    hs_sync(job);
}

/* Write a map file for roles such as "aff". */
static bool write_map(struct hs_job *job, const char *roles, char *split, size_t capacity)
{
    const char *folder = getenv("TMPDIR");
    bool good = true;

    snprintf(split, capacity, "map=%s/stepaf-test-map-%d", folder != NULL ? folder : "/tmp",
             (int)atomic_load(&job->shared->pid[0]));
    if (job->rank == 0) {
        FILE *file = fopen(split + 4, "w");
        if (file == NULL)
            return HS_FAILED("cannot write %s", split + 4);
        fputs("# roles, rank by rank\n", file);
        for (; *roles != '\0'; roles++)
            fputs(*roles == 'f' ? "ffn\n" : "attention\n", file);
        good = fclose(file) == 0;
    }
    return hs_pause(job) && good;
}

static void body(struct hs_job *job)
{
    const char *map = hs_option_text(job, "--map", NULL);
    const char *roles = hs_option_text(job, "--roles", NULL);
    stepaf_params_t params = {0};
    char split[300];
    bool open;

    if (map != NULL) {
        if (!write_map(job, map, split, sizeof split))
            return;
        params.field_mask |= STEPAF_PARAM_SPLIT;
        params.split = split;
    }
    if (roles != NULL && (int)strlen(roles) == job->size && roles[job->rank] != '-') {
        params.field_mask |= STEPAF_PARAM_ROLE;
        params.role = roles[job->rank] == 'f' ? STEPAF_FFN : STEPAF_ATTENTION;
    }
    open = hs_open_with(job, params);
    if (map != NULL && job->rank == 0)
        unlink(split + 4);
    if (!open)
        return;
    check_groups(job);
    check_mesh(job);
    exchange(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "shapes",
                                        .options = "--expect --map --roles --lanes",
                                        .limit_s = 60,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
