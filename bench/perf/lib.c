/* SPDX-License-Identifier: Apache-2.0 */
/* Creation and destruction of the library's part of a row. */
#include "lib.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"

static int declare_key(struct perf_lib *lib, uint64_t key, stepaf_direction_t direction,
                       const struct perf_tensor *tensor)
{
    stepaf_key_params_t params = {.field_mask =
                                      STEPAF_KEY_DTYPE | STEPAF_KEY_SHAPE | STEPAF_KEY_DEPTH,
                                  .dtype = tensor->dtype,
                                  .ndim = tensor->ndim,
                                  .depth = lib->c->depth};
    stepaf_status_t status;

    memcpy(params.shape, tensor->shape, sizeof(params.shape));
    status = stepaf_key_declare(lib->ctx, key, direction,
                                perf_case_largest(lib->c, tensor, &params.shape[0]), &params);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_key_declare");
}

static int declare_keys(struct perf_lib *lib)
{
    const struct perf_case *c = lib->c;

    for (unsigned m = 0; m < c->microbatches; m++) {
        for (int t = 0; t < c->n_push; t++) {
            if (declare_key(lib, perf_lib_key(m, STEPAF_PUSH, t), STEPAF_PUSH, &c->push[t]) != 0)
                return -1;
        }
        if (c->n_pull > 0 &&
            declare_key(lib, perf_lib_key(m, STEPAF_PULL, 0), STEPAF_PULL, &c->pull) != 0)
            return -1;
    }
    return 0;
}

/* With scatter, the rows of the sources for each FFN rank, passed at each start. */
static void list_slices(struct perf_lib *lib)
{
    const struct perf_case *c = lib->c;
    stepaf_tensor_t *slice = lib->slices;

    for (unsigned m = 0; m < c->microbatches; m++) {
        for (int f = 0; f < c->ffn; f++) {
            for (int t = 0; t < c->n_push; t++, slice++) {
                size_t offset;

                slice->key = perf_lib_key(m, STEPAF_PUSH, t);
                slice->bytes = perf_case_slice(c, &c->push[t], f, &offset);
                slice->data = perf_buffers_push(&lib->buffers, m, t) + offset;
            }
        }
    }
}

static int create_plan(struct perf_lib *lib, int stage, unsigned m, stepaf_tensor_t *pull)
{
    const struct perf_case *c = lib->c;
    const struct perf_stage *s = &c->stages[stage];
    stepaf_tensor_t push[PERF_MAX_PUSH];
    stepaf_status_t status;

    for (int t = 0; t < s->n_push; t++) {
        push[t].key = perf_lib_key(m, STEPAF_PUSH, t);
        push[t].data = perf_buffers_push(&lib->buffers, m, t);
        push[t].bytes = perf_case_largest(c, &c->push[t], NULL);
    }
    for (int f = 0; f < c->ffn && s->n_pull > 0; f++) {
        pull[f].key = perf_lib_key(m, STEPAF_PULL, 0);
        pull[f].data = perf_buffers_pull(&lib->buffers, m, f);
        pull[f].bytes = perf_case_active(c, f) ? perf_case_slice(c, &c->pull, f, NULL) : 0;
    }
    status = stepaf_plan_create(lib->ctx, push, s->n_push, pull, s->n_pull * c->ffn,
                                c->scatter ? STEPAF_PLAN_SCATTER : 0, &lib->plans[stage][m]);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_plan_create");
}

static int prepare_attention(struct perf_lib *lib)
{
    const struct perf_case *c = lib->c;
    size_t n_slices = c->scatter ? (size_t)c->microbatches * (size_t)(c->ffn * c->n_push) : 1;
    stepaf_tensor_t *pull = calloc((size_t)c->ffn, sizeof(*pull));
    int rc = 0;

    lib->requests = calloc(c->window, sizeof(*lib->requests));
    lib->slices = calloc(n_slices, sizeof(*lib->slices));
    lib->turns = calloc(c->window, sizeof(*lib->turns));
    lib->digests = calloc((size_t)c->window * (size_t)c->ffn, sizeof(*lib->digests));
    for (int s = 0; s < c->n_stages; s++) {
        lib->plans[s] = calloc(c->window, sizeof(*lib->plans[s]));
        if (lib->plans[s] == NULL)
            rc = -1;
    }
    if (rc != 0 || pull == NULL || lib->requests == NULL || lib->slices == NULL ||
        lib->turns == NULL || lib->digests == NULL)
        rc = perf_fail("out of memory");
    for (int s = 0; s < c->n_stages && rc == 0; s++) {
        for (unsigned m = 0; m < c->microbatches && rc == 0; m++)
            rc = create_plan(lib, s, m, pull);
        for (unsigned w = c->microbatches; w < c->window && rc == 0; w++)
            lib->plans[s][w] = lib->plans[s][w - c->microbatches];
    }
    if (rc == 0 && c->scatter)
        list_slices(lib);
    free(pull);
    return rc;
}

static int register_receives(struct perf_lib *lib)
{
    const struct perf_case *c = lib->c;

    for (unsigned m = 0; m < c->microbatches; m++) {
        for (int t = 0; t < c->n_push; t++) {
            stepaf_status_t status = stepaf_key_set_recv(
                lib->ctx, perf_lib_key(m, STEPAF_PUSH, t), perf_buffers_recv(&lib->buffers, m, t),
                (size_t)c->attn * lib->buffers.push_stride[t], NULL, 0);

            if (status != STEPAF_OK)
                return perf_fail_status(status, "stepaf_key_set_recv");
        }
    }
    return 0;
}

static int prepare_ffn(struct perf_lib *lib)
{
    const struct perf_case *c = lib->c;
    size_t n_plans = (size_t)c->attn * perf_lib_plans(c);

    lib->n_batches = lib->options->recv_each || c->attn > 64 ? c->attn : 64;
    lib->batches = calloc((size_t)lib->n_batches, sizeof(*lib->batches));
    lib->answers = calloc((size_t)c->attn * c->window, sizeof(*lib->answers));
    lib->is_plain = c->attn == 1 && c->window == 1 && c->n_stages == 1 && c->n_pull > 0 &&
                    !lib->options->release_apart;
    lib->microbatch_of = malloc(n_plans * sizeof(*lib->microbatch_of));
    if (lib->batches == NULL || lib->answers == NULL || lib->microbatch_of == NULL)
        return perf_fail("out of memory");
    for (size_t i = 0; i < n_plans; i++)
        lib->microbatch_of[i] = -1;
    for (int a = 0; a < c->attn && c->n_pull > 0; a++) {
        for (unsigned w = 0; w < c->window; w++) {
            stepaf_tensor_t *answer = &lib->answers[(size_t)a * c->window + w];

            answer->key = perf_lib_key(w % c->microbatches, STEPAF_PULL, 0);
            answer->data = perf_buffers_answer(&lib->buffers, a, w);
            answer->bytes = perf_case_slice(c, &c->pull, lib->place->index, NULL);
        }
    }
    return register_receives(lib);
}

static int prepare(struct perf_lib *lib)
{
    if (perf_buffers_open(lib->c, lib->place, lib->ctx, lib->options->user_memory, &lib->buffers) !=
            0 ||
        declare_keys(lib) != 0)
        return -1;
    return lib->place->role == STEPAF_ATTENTION ? prepare_attention(lib) : prepare_ffn(lib);
}

int perf_lib_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place, struct perf_lib *lib_p)
{
    stepaf_params_t params;
    stepaf_status_t status;

    *lib_p = (struct perf_lib){.options = options, .c = c, .place = place};
    perf_place_params(options, &params);
    status = job->join(job, &params, &lib_p->ctx);
    if (perf_job_agree(job, status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_init")) != 0)
        goto err_close;
    if (perf_job_agree(job, prepare(lib_p)) != 0)
        goto err_close;
    status = stepaf_commit(lib_p->ctx);
    if (perf_job_agree(job, status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_commit")) !=
        0)
        goto err_close;
    return 0;

err_close:
    perf_lib_close(lib_p);
    return -1;
}

void perf_lib_close(struct perf_lib *lib)
{
    stepaf_finalize(lib->ctx);
    perf_buffers_close(&lib->buffers);
    for (int s = 0; s < PERF_MAX_STAGES; s++)
        free(lib->plans[s]);
    free(lib->requests);
    free(lib->slices);
    free(lib->turns);
    free(lib->digests);
    free(lib->answers);
    free(lib->batches);
    free(lib->microbatch_of);
    memset(lib, 0, sizeof(*lib));
}
