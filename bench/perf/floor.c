/* SPDX-License-Identifier: Apache-2.0 */
#include "floor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fail.h"

enum {
    LINE = 128, /* a cache line and the one that is fetched with it */
    PAGE = 4096,
    SPINS = 1000000,   /* polls before a waiting rank yields: about a millisecond */
    SPINS_CROWDED = 50 /* the same where the peer may be waiting for this core */
};

static size_t aligned(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Flags first: two for each (attention rank, FFN rank, place); then pushed tensors, then pulled
 * ones. Tensors of at least a page begin on a page. */
static void lay_out(struct perf_floor *floor)
{
    const struct perf_case *c = floor->c;
    size_t lanes = (size_t)c->attn * (size_t)c->ffn * c->window;
    size_t end = 0;

    for (int t = 0; t < c->n_push; t++) {
        size_t bytes = perf_case_largest(c, &c->push[t], NULL);

        floor->push_offset[t] = end;
        end += aligned(bytes, bytes >= PAGE ? PAGE : LINE);
    }
    floor->push_stride = end;
    if (c->n_pull > 0) {
        size_t bytes = perf_case_largest(c, &c->pull, NULL);

        floor->pull_stride = aligned(bytes, bytes >= PAGE ? PAGE : LINE);
    }
    floor->push_start = aligned(2 * lanes * LINE, PAGE);
    floor->pull_start = aligned(floor->push_start + lanes * floor->push_stride, PAGE);
    floor->map_bytes = aligned(floor->pull_start + lanes * floor->pull_stride, PAGE);
}

static size_t index_of(const struct perf_floor *floor, int a, int f, unsigned w)
{
    return ((size_t)a * (size_t)floor->c->ffn + (size_t)f) * floor->c->window + w;
}

static uint32_t *flag(const struct perf_floor *floor, size_t at, int to_attention)
{
    return (uint32_t *)(floor->map + (2 * at + (size_t)to_attention) * LINE);
}

static void make_attention_lane(const struct perf_floor *floor, int f, unsigned w,
                                struct perf_lane *lane)
{
    const struct perf_case *c = floor->c;
    size_t at = index_of(floor, floor->place->index, f, w);

    lane->out = flag(floor, at, 0);
    lane->in = flag(floor, at, 1);
    for (int t = 0; t < c->n_push; t++) {
        size_t offset;

        lane->copies[t].bytes = perf_case_slice(c, &c->push[t], f, &offset);
        lane->copies[t].from = perf_buffers_push(floor->buffers, w % c->microbatches, t) + offset;
        lane->copies[t].to =
            floor->map + floor->push_start + at * floor->push_stride + floor->push_offset[t];
    }
    lane->n_copies = c->n_push;
}

static void make_ffn_lane(const struct perf_floor *floor, int a, unsigned w, struct perf_lane *lane)
{
    const struct perf_case *c = floor->c;
    size_t at = index_of(floor, a, floor->place->index, w);

    lane->out = flag(floor, at, 1);
    lane->in = flag(floor, at, 0);
    if (c->n_pull == 0)
        return;
    lane->copies[0].bytes = perf_case_slice(c, &c->pull, floor->place->index, NULL);
    lane->copies[0].from = perf_buffers_answer(floor->buffers, a, w);
    lane->copies[0].to = floor->map + floor->pull_start + at * floor->pull_stride;
    lane->n_copies = 1;
}

/* Call after the memory is mapped. */
static int make_lanes(struct perf_floor *floor)
{
    const struct perf_case *c = floor->c;
    int attention = floor->place->role == STEPAF_ATTENTION;
    struct perf_lane *lane;

    if (!attention && perf_case_active(c, floor->place->index))
        floor->n_peers = c->attn;
    for (int f = 0; f < c->ffn && attention; f++)
        floor->n_peers += perf_case_active(c, f);
    floor->lanes = calloc((size_t)floor->n_peers * c->window + 1, sizeof(*floor->lanes));
    if (floor->lanes == NULL)
        return perf_fail("out of memory");
    lane = floor->lanes;
    for (unsigned w = 0; w < c->window; w++) {
        for (int a = 0; a < floor->n_peers && !attention; a++)
            make_ffn_lane(floor, a, w, lane++);
        for (int f = 0; f < c->ffn && attention; f++) {
            if (perf_case_active(c, f))
                make_attention_lane(floor, f, w, lane++);
        }
    }
    return 0;
}

/* Rank 0 makes an anonymous file; this is what the others need to open it. */
struct handle {
    int pid;
    int fd;
};

static int make_file(struct perf_job *job, size_t bytes, struct handle *handle_p)
{
    *handle_p = (struct handle){(int)getpid(), -1};
    if (job->channel.rank != 0)
        return 0;
    handle_p->fd = memfd_create("stepaf_perf-floor", MFD_CLOEXEC);
    if (handle_p->fd < 0 || ftruncate(handle_p->fd, (off_t)bytes) != 0)
        return perf_fail("no shared memory for the floor: %s", strerror(errno));
    return 0;
}

static int map_file(struct perf_floor *floor, const struct handle *handle, int rank)
{
    char path[64];
    int fd = handle->fd;
    void *map;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
    if (rank != 0)
        fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return perf_fail("no shared memory for the floor: %s: %s", path, strerror(errno));
    map = mmap(NULL, floor->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (rank != 0)
        close(fd);
    if (map == MAP_FAILED)
        return perf_fail("no shared memory for the floor: mmap: %s", strerror(errno));
    floor->map = map;
    return 0;
}

/* Each receiver touches its buffers first, so that they are in its NUMA node's memory. */
static void touch(struct perf_floor *floor)
{
    const struct perf_case *c = floor->c;
    int ffn = floor->place->role == STEPAF_FFN;
    size_t stride = ffn ? floor->push_stride : floor->pull_stride;
    char *start_of = floor->map + (ffn ? floor->push_start : floor->pull_start);

    for (int a = 0; a < c->attn; a++) {
        for (int f = 0; f < c->ffn; f++) {
            if ((ffn ? f : a) != floor->place->index)
                continue;
            for (unsigned w = 0; w < c->window; w++)
                memset(start_of + index_of(floor, a, f, w) * stride, 1, stride);
        }
    }
}

/* After all ranks have touched theirs: no timed operation may meet a page fault. */
static void fault_in(const struct perf_floor *floor)
{
    for (size_t at = 0; at < floor->map_bytes; at += PAGE)
        (void)*(volatile const char *)(floor->map + at);
}

int perf_floor_open(struct perf_job *job, const struct perf_options *options,
                    const struct perf_case *c, const struct perf_place *place,
                    const struct perf_buffers *buffers, struct perf_floor *floor_p)
{
    struct perf_floor floor = {.c = c,
                               .place = place,
                               .buffers = buffers,
                               .recv_each = options->recv_each,
                               .spins = place->crowded ? SPINS_CROWDED : SPINS};
    struct handle handle = {0, -1};
    size_t *offsets = NULL;
    void *all = NULL;
    int rc = 0;

    lay_out(&floor);
    if (!place->one_node)
        rc = perf_fail("the floor needs all ranks on one node");
    if (rc == 0)
        rc = make_file(job, floor.map_bytes, &handle);
    rc = perf_job_agree(job, rc);
    if (rc == 0)
        rc = perf_job_gather(job, &handle, sizeof(handle), &all, &offsets);
    if (rc == 0) {
        rc = map_file(&floor, all, place->rank);
        if (rc == 0)
            rc = make_lanes(&floor);
        if (rc == 0)
            touch(&floor);
        rc = perf_job_agree(job, rc);
    }
    free(all);
    free(offsets);
    if (handle.fd >= 0)
        close(handle.fd);
    if (rc != 0) {
        perf_floor_close(&floor);
        return -1;
    }
    fault_in(&floor);
    *floor_p = floor;
    return 0;
}

void perf_floor_close(struct perf_floor *floor)
{
    if (floor->map != NULL)
        munmap(floor->map, floor->map_bytes);
    free(floor->lanes);
    memset(floor, 0, sizeof(*floor));
}
