/* SPDX-License-Identifier: Apache-2.0 */
#include "fake.h"
#include "core/key_recv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/handles.h"
#include "boot/member_net.h"
#include "gpu/stream.h"
#include "wireup/advert.h"
#include "wireup/agree.h"
#include "wireup/hello.h"

void fake_must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "the fixture fails: %s: %s\n", what, stepaf_last_error()->text);
    exit(99);
}

struct fake_boot {
    struct fake_job *job;
    stepaf_role_t role;
    int n_attention;
    int n_ffn;
};

static stepaf_role_t role_of(const struct fake_boot *boot, int rank)
{
    return rank < boot->n_attention ? STEPAF_ATTENTION : STEPAF_FFN;
}

/* Init: the other ranks say what this rank says, except for the role. */
static void others_introduction(const struct fake_boot *boot, int rank, const void *own,
                                size_t own_bytes, struct stepaf_pack *pack)
{
    struct stepaf_hello hello;
    struct stepaf_env env;

    fake_must(stepaf_hello_read(own, own_bytes, &hello), "introduction");
    fake_must(stepaf_env_load(&env) == STEPAF_OK, "environment");
    hello.said = role_of(boot, rank);
    stepaf_hello_pack(&hello, &env, pack);
    stepaf_env_free(&env);
}

/* Commit: the other ranks of this role declare the same, those of the other role what the
 * counterpart does. */
static void others_declaration(const struct fake_boot *boot, int rank, const void *own,
                               size_t own_bytes, struct stepaf_pack *pack)
{
    struct fake_job *job = boot->job;
    struct stepaf_ctx *counterpart = job->counterpart ? job->counterpart->ctx : NULL;
    stepaf_status_t status = job->others_status;

    if (role_of(boot, rank) == boot->role || !counterpart) {
        stepaf_pack_bytes(pack, own, own_bytes);
        return;
    }
    uint32_t epoch = counterpart->epoch;
    bool changed = counterpart->commit.changed;
    counterpart->epoch = job->ctx->epoch;
    counterpart->commit.changed = job->ctx->commit.changed;
    if (status)
        stepaf_error_set(status, STEPAF_PHASE_COMMIT, "so says the fake");
    stepaf_advert_pack(counterpart, status, pack);
    counterpart->epoch = epoch;
    counterpart->commit.changed = changed;
}

/* After the connects: the first of the other ranks has received this rank's data, all others
 * nothing. */
static void others_report(const struct stepaf_agree_report *own, bool is_first,
                          struct stepaf_pack *pack)
{
    struct stepaf_agree_report report = {.sum = is_first ? -own->sum : 0};

    stepaf_agree_pack(&report, pack);
}

static bool is_reach(const void *data, size_t bytes)
{
    uint32_t magic = STEPAF_REACH_MAGIC;

    return bytes >= sizeof(magic) && !memcmp(data, &magic, sizeof(magic));
}

static stepaf_status_t boot_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                      size_t *offsets_p, int64_t timeout_us)
{
    const struct fake_boot *boot = self;
    int own = boot->role == STEPAF_ATTENTION ? 0 : boot->n_attention;
    struct stepaf_pack pack = {0};
    struct stepaf_agree_report report;
    bool is_report = boot->job->ctx && stepaf_agree_read(data, bytes, &report);

    (void)timeout_us;
    for (int r = 0; r < boot->n_attention + boot->n_ffn; r++) {
        offsets_p[r] = pack.bytes;
        if (r == own)
            stepaf_pack_bytes(&pack, data, bytes);
        else if (is_reach(data, bytes))
            stepaf_pack_bytes(&pack, data, sizeof(uint32_t)); /* nothing that they cannot reach */
        else if (!boot->job->ctx)
            others_introduction(boot, r, data, bytes, &pack);
        else if (is_report)
            others_report(&report, r == !own, &pack);
        else
            others_declaration(boot, r, data, bytes, &pack);
    }
    fake_must(!pack.failed, "allgather");
    offsets_p[boot->n_attention + boot->n_ffn] = pack.bytes;
    *all_p = pack.data;
    return STEPAF_OK;
}

static stepaf_status_t boot_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                    int64_t timeout_us)
{
    struct fake_job *job = ((struct fake_boot *)self)->job;

    (void)group, (void)ranks, (void)n;
    job->barrier_us = timeout_us;
    return job->barrier_status ? stepaf_boot_set_error(job->barrier_status, "fake: barrier")
                               : STEPAF_OK;
}

static void boot_close(void *self)
{
    free(self);
}

struct fake_job *fake_open(stepaf_role_t role, int n_attention, int n_ffn)
{
    struct fake_job *job = calloc(1, sizeof *job);
    struct fake_boot *boot = calloc(1, sizeof *boot);
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE, .role = role};

    fake_must(job && boot, "memory");
    *boot = (struct fake_boot){job, role, n_attention, n_ffn};
    stepaf_boot_t table = {
        .name = "fake",
        .self = boot,
        .rank = role == STEPAF_ATTENTION ? 0 : n_attention,
        .size = n_attention + n_ffn,
        .app_number = -1,
        .allgather = boot_allgather,
        .barrier = boot_barrier,
        .close = boot_close,
    };
    fake_must(stepaf_init(&table, &params, &job->handle) == STEPAF_OK, "init");
    job->ctx = stepaf_contexts[stepaf_handle_context(job->handle)].ctx;
    fake_must(job->ctx != NULL, "handle");
    job->ctx->clock.told_from = UINT64_MAX; /* answers are short, however long a test takes */
    stepaf_member_net_close(
        job->ctx->job.members.net); /* the other ranks are emulated: they answer nobody */
    job->ctx->job.members.net = NULL;
    fake_transport_install(job);
    return job;
}

void fake_close(struct fake_job *job)
{
    if (!job)
        return;
    stepaf_finalize(job->handle);
    free(job);
}

void fake_pair(struct fake_job *job, struct fake_job *counterpart)
{
    job->counterpart = counterpart;
    if (counterpart->ctx->role == STEPAF_FFN)
        fake_must(stepaf_key_allocate(counterpart->ctx) == STEPAF_OK, "receive buffers");
}

stepaf_status_t fake_commit(struct fake_job *job, struct fake_job *counterpart)
{
    fake_pair(job, counterpart);
    for (uint32_t p = 0; p < job->ctx->n_peers; p++) {
        struct stepaf_msg quiesced = {.type = STEPAF_MSG_QUIESCED, .seq = job->ctx->commit.n + 1};
        struct stepaf_msg ready = {.type = STEPAF_MSG_READY, .seq = job->ctx->epoch + 1};
        if (job->ctx->peers[p].link)
            fake_say(job, p, &quiesced); /* after its earlier messages */
        fake_tell(job, p, &ready);
    }
    return stepaf_commit(job->handle);
}

void fake_key(struct fake_job *job, struct fake_job *counterpart, uint64_t id,
              stepaf_direction_t direction, uint32_t bytes, uint32_t depth)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH, .depth = depth};
    fake_must(stepaf_key_declare(job->handle, id, direction, bytes, &params) == STEPAF_OK, "key");
    fake_must(stepaf_key_declare(counterpart->handle, id, direction, bytes, &params) == STEPAF_OK,
              "key");
}

void fake_tell(struct fake_job *job, uint32_t peer, const struct stepaf_msg *msg)
{
    struct fake_link *link = fake_link(job, peer);

    job->ctx->up.deliver(&job->ctx->up, &link->base, msg);
}

void fake_say(struct fake_job *job, uint32_t peer, const struct stepaf_msg *msg)
{
    fake_must(job->n_sayings < FAKE_SAYINGS, "too many sayings");
    job->sayings[job->n_sayings++] = (struct fake_saying){peer, *msg};
}

struct stepaf_msg fake_msg(const struct fake_job *job, enum stepaf_msg_type type, uint32_t plan,
                           uint32_t slot, uint32_t seq)
{
    return (struct stepaf_msg){
        .type = (uint8_t)type,
        .epoch = (uint16_t)job->ctx->epoch,
        .plan = (uint16_t)plan,
        .slot = (uint8_t)slot,
        .seq = seq,
        .n_words = STEPAF_MSG_WORDS,
    };
}

void fake_forget(struct fake_job *job)
{
    job->n_records = 0;
}

unsigned fake_count(const struct fake_job *job, enum stepaf_msg_type type)
{
    unsigned n = 0;

    for (unsigned i = 0; i < job->n_records && i < FAKE_RECORDS; i++)
        n += job->records[i].msg.type == type;
    return n;
}

const struct fake_record *fake_last(const struct fake_job *job)
{
    fake_must(job->n_records && job->n_records <= FAKE_RECORDS, "no last record");
    return &job->records[job->n_records - 1];
}
