/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <string.h>

static void set_stats(json_t *object, const struct perf_stats *stats)
{
    json_object_set_new(object, "min_us", json_real(stats->min));
    json_object_set_new(object, "p50_us", json_real(stats->p50));
    json_object_set_new(object, "p99_us", json_real(stats->p99));
    json_object_set_new(object, "p999_us", json_real(stats->p999));
    json_object_set_new(object, "max_us", json_real(stats->max));
    json_object_set_new(object, "avg_us", json_real(stats->avg));
    json_object_set_new(object, "stddev_pct", json_real(stats->stddev_pct));
}

static json_t *other(const char *name, const struct perf_result *r, enum perf_who who)
{
    json_t *object = json_object();
    double p50 = r->stats[who].p50;
    double gb_per_s = perf_result_gb_per_s(r, who);

    json_object_set_new(object, "name", json_string(name));
    set_stats(object, &r->stats[who]);
    json_object_set_new(object, "us_per_op", json_real(r->us_per_op[who]));
    json_object_set_new(object, "gb_per_s", json_real(gb_per_s));
    json_object_set_new(object, "posts_per_s",
                        json_real(perf_result_ops_per_s(r, who) * r->posts_per_op));
    if (p50 > 0.0)
        json_object_set_new(object, "ratio", json_real(r->stats[perf_result_main(r)].p50 / p50));
    if (gb_per_s > 0.0)
        json_object_set_new(object, "gb_ratio", json_real(r->gb_per_s / gb_per_s));
    return object;
}

/* What only rows of tensors in GPU memory have. */
static void set_gpu(json_t *object, const struct perf_options *options, const struct perf_result *r)
{
    const char *name = options->baseline_nccl == PERF_NCCL_FUSED ? "nccl-fused" : "nccl";

    json_object_set_new(object, "mem", json_string("cuda"));
    json_object_set_new(object, "mode",
                        json_string(options->cuda.graph_ops > 0 ? "graph" : "stream"));
    json_object_set_new(object, "sample_ops", json_integer((json_int_t)r->unit_ops));
    json_object_set_new(object, "load", json_boolean(r->loaded));
    json_object_set_new(object, "gpu", json_string(r->gpu));
    json_object_set_new(object, "host_us", json_real(r->host_us[PERF_OURS]));
    if (r->wire_us > 0.0)
        json_object_set_new(object, "wire_us", json_real(r->wire_us));
    if (r->copies_us > 0.0)
        json_object_set_new(object, "copies_us", json_real(r->copies_us));
    if (r->has[PERF_NCCL]) {
        json_t *nccl = other(name, r, PERF_NCCL);

        json_object_set_new(nccl, "host_us", json_real(r->host_us[PERF_NCCL]));
        json_object_set_new(object, "baseline", nccl);
    }
}

static json_t *shape_of(const struct perf_tensor *tensor)
{
    json_t *array = json_array();

    for (int i = 0; i < tensor->ndim; i++)
        json_array_append_new(array, json_integer(tensor->shape[i]));
    return array;
}

static void set_pattern(json_t *object, const struct perf_options *options,
                        const struct perf_result *r)
{
    json_object_set_new(object, "test", json_string(perf_test_name(options->test)));
    json_object_set_new(object, "transport", json_string(r->transport));
    json_object_set_new(object, "attn", json_integer(r->c.attn));
    json_object_set_new(object, "ffn", json_integer(r->c.ffn));
    json_object_set_new(object, "push_bytes", json_integer((json_int_t)r->c.push_bytes));
    json_object_set_new(object, "pull_bytes", json_integer((json_int_t)r->c.pull_bytes));
    json_object_set_new(object, "microbatches", json_integer(r->c.microbatches));
    json_object_set_new(object, "depth", json_integer(r->c.depth));
    json_object_set_new(object, "scatter", json_boolean(r->c.scatter));
    json_object_set_new(object, "memory", json_string(options->user_memory ? "user" : "lib"));
    json_object_set_new(object, "recv", json_string(options->recv_each ? "each" : "any"));
    json_object_set_new(object, "release", json_string(options->release_apart ? "apart" : "with"));
    if (options->rows[r->index].shape.ndim == 0)
        return;
    json_object_set_new(object, "shape", shape_of(&r->c.pull));
    json_object_set_new(object, "push_dtype", json_string(stepaf_dtype_name(options->push_dtype)));
    json_object_set_new(object, "pull_dtype", json_string(stepaf_dtype_name(options->pull_dtype)));
    json_object_set_new(object, "route_topk", json_integer((json_int_t)options->route_topk));
}

json_t *perf_json_row(const struct perf_options *options, const struct perf_result *r)
{
    enum perf_who who = perf_result_main(r);
    json_t *object = json_object();

    if (object == NULL)
        return NULL;
    set_pattern(object, options, r);
    json_object_set_new(object, "iters", json_integer((json_int_t)r->iters));
    set_stats(object, &r->stats[who]);
    json_object_set_new(object, "us_per_op", json_real(r->us_per_op[who]));
    json_object_set_new(object, "ops_per_s", json_real(r->ops_per_s));
    json_object_set_new(object, "gb_per_s", json_real(r->gb_per_s));
    json_object_set_new(object, "posts_per_s", json_real(r->ops_per_s * r->posts_per_op));
    /* Without --check nothing is known of the bytes: null, not 0. */
    json_object_set_new(object, "wrong_bytes",
                        r->checked ? json_integer((json_int_t)r->wrong_bytes) : json_null());
    json_object_set_new(object, "checked_ops", json_integer((json_int_t)r->checked_ops));
    if (r->has[PERF_MPI])
        json_object_set_new(object, "baseline", other("mpi", r, PERF_MPI));
    if (options->cuda.mem)
        set_gpu(object, options, r);
    if (r->has[PERF_FLOOR_LOOP] && who != PERF_FLOOR_LOOP)
        json_object_set_new(object, "floor", other(r->floor_name, r, PERF_FLOOR_LOOP));
    if (r->has[PERF_FLOOR_LOOP] && r->floor_wait[0] != '\0')
        json_object_set_new(who == PERF_FLOOR_LOOP ? object : json_object_get(object, "floor"),
                            "wait", json_string(r->floor_wait));
    return object;
}
