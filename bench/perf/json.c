/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/version.h>

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

static json_t *rounds_of(const double *values, uint64_t n)
{
    json_t *array = json_array();

    for (uint64_t i = 0; i < n; i++)
        json_array_append_new(array, json_real(values[i]));
    return array;
}

/* Bins that are not empty, as pairs: where one begins, and how many samples are in it. */
static void set_spread(json_t *object, const struct perf_spread *spread)
{
    json_t *bins = json_array();

    if (spread == NULL) {
        json_decref(bins);
        return;
    }
    for (int bin = 0; bin < PERF_SPREAD_BINS; bin++) {
        if (spread->bins[bin] > 0)
            json_array_append_new(
                bins, json_pack("[f, I]", perf_spread_from(bin), (json_int_t)spread->bins[bin]));
    }
    json_object_set_new(object, "rounds_p50_us", rounds_of(spread->p50, spread->n_rounds));
    json_object_set_new(object, "rounds_p99_us", rounds_of(spread->p99, spread->n_rounds));
    json_object_set_new(object, "bins_per_octave", json_integer(PERF_SPREAD_STEPS));
    json_object_set_new(object, "histogram", bins);
}

static json_t *other(const char *name, const struct perf_result *r, enum perf_who who)
{
    json_t *object = json_object();
    double p50 = r->stats[who].p50;
    double gb_per_s = perf_result_gb_per_s(r, who);

    json_object_set_new(object, "name", json_string(name));
    set_stats(object, &r->stats[who]);
    set_spread(object, r->spread[who]);
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
    json_object_set_new(object, "host_us", json_real(r->cpu.host_us[PERF_OURS]));
    if (r->cpu.thread_us > 0.0)
        json_object_set_new(object, "thread_us", json_real(r->cpu.thread_us));
    if (r->wire_us > 0.0)
        json_object_set_new(object, "wire_us", json_real(r->wire_us));
    if (r->copies_us > 0.0)
        json_object_set_new(object, "copies_us", json_real(r->copies_us));
    if (r->has[PERF_NCCL]) {
        json_t *nccl = other(name, r, PERF_NCCL);

        json_object_set_new(nccl, "host_us", json_real(r->cpu.host_us[PERF_NCCL]));
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

/* Where the time goes between each attention and FFN rank. */
static void set_peers(json_t *object, const struct perf_result *r)
{
    json_t *array = json_array();

    for (int i = 0; i < r->c.attn * r->c.ffn; i++) {
        const struct perf_peer *peer = &r->peers[i];
        json_t *item;

        if (peer->ops == 0)
            continue;
        item = json_pack("{s:i, s:i, s:s, s:I, s:f, s:f}", "attn", i / r->c.ffn, "ffn",
                         i % r->c.ffn, "link", peer->link, "ops", (json_int_t)peer->ops, "total_us",
                         peer->total_us, "start_us", peer->start_us);
        if (item != NULL && peer->way_us >= 0.0) {
            json_object_set_new(item, "queue_us", json_real(peer->queue_us));
            json_object_set_new(item, "work_us", json_real(peer->work_us));
            json_object_set_new(item, "way_us", json_real(peer->way_us));
        }
        json_array_append_new(array, item);
    }
    json_object_set_new(object, "peers", array);
}

json_t *perf_json_head(const struct perf_job *job, const struct perf_options *options,
                       const struct perf_place *place)
{
    struct utsname kernel = {0};
    char processor[128];
    char date[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    json_t *ranks = json_array();

    perf_report_processor(processor, sizeof(processor));
    uname(&kernel);
    if (gmtime_r(&now, &utc) != NULL)
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    for (int i = 0; i < place->size; i++) {
        const struct perf_rank *rank = &place->ranks[i];

        json_array_append_new(ranks, json_pack("{s:s, s:s, s:i, s:s}", "host", rank->host, "role",
                                               rank->role == STEPAF_ATTENTION ? "attention" : "ffn",
                                               "rank", rank->index, "cores", rank->cores));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:b, s:o}", "version", stepaf_version(),
                     "date", date, "processor", processor, "cores",
                     (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "kernel", kernel.release, "started",
                     options->job.procs > 0 ? "forked" : job->launcher, "crowded", place->crowded,
                     "ranks", ranks);
}

json_t *perf_json_row(const struct perf_options *options, const struct perf_result *r, json_t *head)
{
    enum perf_who who = perf_result_main(r);
    json_t *object = json_object();

    if (object == NULL)
        return NULL;
    set_pattern(object, options, r);
    json_object_set_new(object, "iters", json_integer((json_int_t)r->iters));
    set_stats(object, &r->stats[who]);
    set_spread(object, r->spread[who]);
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
    if (r->peers != NULL)
        set_peers(object, r);
    if (head != NULL)
        json_object_set(object, "run", head);
    return object;
}
