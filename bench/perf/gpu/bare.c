/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/gpu/bare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "perf/fail.h"

enum { COPIES = 9, PAGE = 4096 };

/* What a rank sends to its peers about its boxes. */
struct told {
    pid_t pid;
    int fd;
    size_t bytes;
    cudaIpcMemHandle_t handle;
};

static int attends(const struct perf_gpu_bare *bare)
{
    return bare->gpu->place->role == STEPAF_ATTENTION;
}

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Boxes of one direction from one peer: of all microbatches and slots. */
static size_t share_of(const struct perf_gpu_bare *bare, uint64_t bytes)
{
    return (size_t)bare->c->window * perf_gpu_leg_box(bytes);
}

static int make_host(struct perf_gpu_bare *bare)
{
    void *memory;

    bare->fd = memfd_create("stepaf_perf", MFD_CLOEXEC);
    if (bare->fd < 0 || ftruncate(bare->fd, (off_t)bare->own_bytes) != 0)
        return perf_fail("host memory for the floor: %s", strerror(errno));
    memory = mmap(NULL, bare->own_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bare->fd, (off_t)0);
    if (memory == MAP_FAILED)
        return perf_fail("host memory for the floor: %s", strerror(errno));
    bare->own = memory;
    return perf_gpu_try(cudaHostRegister(bare->own, bare->own_bytes, cudaHostRegisterMapped));
}

static int make_device(struct perf_gpu_bare *bare, struct told *told)
{
    void *memory;

    if (perf_gpu_try(cudaMalloc(&memory, bare->own_bytes)) != 0)
        return -1;
    bare->own = memory;
    if (perf_gpu_try(cudaMemset(memory, 0, bare->own_bytes)) != 0)
        return -1;
    return perf_gpu_try(cudaIpcGetMemHandle(&told->handle, memory));
}

static int make(struct perf_gpu_bare *bare, struct told *told)
{
    /* Sending and receiving, for each peer, microbatch and slot. */
    size_t counts = 2 * (size_t)bare->n_peers * bare->c->window * PERF_GPU_LEG_BLOCKS;
    void *data, *counters, *late;

    if (!bare->gpu->place->one_node)
        return perf_fail("the floor needs all ranks on one node");
    bare->own_bytes = round_up((size_t)bare->n_peers * share_of(bare, bare->in));
    bare->peers = calloc((size_t)bare->n_peers, sizeof(*bare->peers));
    bare->peer_bytes = calloc((size_t)bare->n_peers, sizeof(*bare->peer_bytes));
    if (bare->peers == NULL || bare->peer_bytes == NULL)
        return perf_fail("out of memory");
    if (perf_gpu_try(cudaMalloc(&data, round_up(bare->out) + round_up(bare->in))) != 0)
        return -1;
    bare->data = data;
    if (perf_gpu_try(cudaMalloc(&counters, counts * sizeof(uint64_t))) != 0)
        return -1;
    bare->counts = counters;
    if (perf_gpu_try(cudaMemset(counters, 0, counts * sizeof(uint64_t))) != 0 ||
        perf_gpu_try(cudaHostAlloc(&late, sizeof(uint32_t), cudaHostAllocDefault)) != 0)
        return -1;
    bare->late = late;
    *bare->late = 0;
    if ((bare->pinned ? make_host(bare) : make_device(bare, told)) != 0)
        return -1;
    told->fd = bare->fd;
    told->bytes = bare->own_bytes;
    return perf_gpu_try(cudaDeviceSynchronize());
}

static int map_one(struct perf_gpu_bare *bare, const struct told *told, int i)
{
    char path[64];
    void *memory;
    int fd;

    if (!bare->pinned) {
        if (perf_gpu_try(
                cudaIpcOpenMemHandle(&memory, told->handle, cudaIpcMemLazyEnablePeerAccess)) != 0)
            return -1;
        bare->peers[i] = memory;
        return 0;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)told->pid, told->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    memory = fd < 0 ? MAP_FAILED
                    : mmap(NULL, told->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)0);
    if (fd >= 0)
        close(fd);
    if (memory == MAP_FAILED)
        return perf_fail("a peer's host memory for the floor: %s", strerror(errno));
    bare->peers[i] = memory;
    bare->peer_bytes[i] = told->bytes;
    return perf_gpu_try(cudaHostRegister(memory, told->bytes, cudaHostRegisterMapped));
}

static int map_all(struct perf_gpu_bare *bare, const struct told *all)
{
    const struct perf_place *place = bare->gpu->place;
    const int *world = attends(bare) ? place->ffn_world : place->attn_world;

    for (int i = 0; i < bare->n_peers; i++) {
        if (map_one(bare, &all[world[i]], i) != 0)
            return -1;
    }
    return 0;
}

int perf_gpu_bare_open(struct perf_gpu *gpu, const struct perf_case *c, int pinned,
                       struct perf_gpu_bare *bare_p)
{
    struct told told = {.pid = getpid()};
    size_t *offsets;
    void *all;
    int rc;

    *bare_p = (struct perf_gpu_bare){.gpu = gpu, .c = c, .pinned = pinned, .fd = -1};
    bare_p->n_peers = attends(bare_p) ? gpu->place->ffn : gpu->place->attn;
    bare_p->out = attends(bare_p) ? c->push_bytes : c->pull_bytes;
    bare_p->in = attends(bare_p) ? c->pull_bytes : c->push_bytes;
    if (perf_job_agree(gpu->job, make(bare_p, &told)) != 0 ||
        perf_job_gather(gpu->job, &told, sizeof(told), &all, &offsets) != 0)
        return -1;
    rc = map_all(bare_p, all);
    free(all);
    free(offsets);
    return perf_job_agree(gpu->job, rc);
}

void perf_gpu_bare_close(struct perf_gpu_bare *bare)
{
    if (bare->gpu == NULL)
        return;
    for (int i = 0; bare->peers != NULL && i < bare->n_peers; i++) {
        if (bare->peers[i] == NULL)
            continue;
        if (bare->pinned) {
            (void)cudaHostUnregister(bare->peers[i]);
            munmap(bare->peers[i], bare->peer_bytes[i]);
        } else {
            (void)cudaIpcCloseMemHandle(bare->peers[i]);
        }
    }
    (void)perf_job_agree(bare->gpu->job, 0);
    if (bare->pinned && bare->own != NULL) {
        (void)cudaHostUnregister(bare->own);
        munmap(bare->own, bare->own_bytes);
    } else {
        cudaFree(bare->own);
    }
    if (bare->fd >= 0)
        close(bare->fd);
    cudaFree(bare->data);
    cudaFree(bare->counts);
    cudaFreeHost(bare->late);
    free(bare->peers);
    free(bare->peer_bytes);
    memset(bare, 0, sizeof(*bare));
}

/* Return the bytes to or from peer @a i of an operation in place @a place of the window. */
static int enqueue_leg(const struct perf_gpu_bare *bare, int i, unsigned place, int out,
                       cudaStream_t stream)
{
    uint64_t bytes = out ? bare->out : bare->in;
    unsigned leg = 2 * ((unsigned)i * bare->c->window + place) + (unsigned)out;
    struct perf_gpu_leg args = {
        .data = bare->data + (out ? 0 : round_up(bare->out)),
        .counts = bare->counts + (size_t)leg * PERF_GPU_LEG_BLOCKS,
        .bytes = bytes,
        .limit_ns = (uint64_t)bare->gpu->timeout_us * 1000,
        .late = bare->late,
    };

    /* Find this rank's boxes among a peer's, by this rank's index among the peer's peers. */
    args.box = out ? bare->peers[i] + (size_t)bare->gpu->place->index * share_of(bare, bytes)
                   : bare->own + (size_t)i * share_of(bare, bytes);
    args.box += place * perf_gpu_leg_box(bytes);
    return perf_gpu_try(out ? perf_gpu_launch_store(&args, stream)
                            : perf_gpu_launch_take(&args, stream));
}

static int enqueue_legs(const struct perf_gpu_bare *bare, unsigned m, uint64_t op, int out,
                        cudaStream_t stream)
{
    unsigned place = m + (unsigned)(op % bare->c->depth) * bare->c->microbatches;

    for (int i = 0; i < bare->n_peers; i++) {
        if (enqueue_leg(bare, i, place, out, stream) != 0)
            return -1;
    }
    return 0;
}

int perf_gpu_bare_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream)
{
    const struct perf_gpu_bare *bare = self;
    uint64_t ahead = attends(bare) ? bare->c->depth : 0;

    for (uint64_t op = 0; op < ops + ahead; op++) {
        if (op >= ahead && enqueue_legs(bare, m, op - ahead, 0, stream) != 0)
            return -1;
        if (op < ops && enqueue_legs(bare, m, op, 1, stream) != 0)
            return -1;
    }
    return 0;
}

int perf_gpu_bare_status(void *self)
{
    const struct perf_gpu_bare *bare = self;

    return *(volatile uint32_t *)bare->late ? perf_fail("the floor's kernels have waited in vain")
                                            : 0;
}

/* To the host and back, there and back. */
static int enqueue_copies(struct perf_gpu_bare *bare, uint8_t *host, cudaStream_t stream)
{
    uint64_t bytes[] = {bare->c->push_bytes, bare->c->pull_bytes};

    for (int way = 0; way < 2; way++) {
        if (perf_gpu_try(cudaMemcpyAsync(host, bare->data, bytes[way], cudaMemcpyDeviceToHost,
                                         stream)) != 0 ||
            perf_gpu_try(
                cudaMemcpyAsync(bare->data, host, bytes[way], cudaMemcpyHostToDevice, stream)) != 0)
            return -1;
    }
    return 0;
}

/* Time the first stream, around all others. */
static int time_copies(struct perf_gpu_bare *bare, uint8_t *host, size_t each, cudaEvent_t *marks,
                       double *us_p)
{
    struct perf_gpu *gpu = bare->gpu;
    float ms;

    if (perf_gpu_try(cudaEventRecord(marks[0], gpu->streams[0])) != 0)
        return -1;
    for (int s = 0; s < gpu->n_streams; s++) {
        if (perf_gpu_try(cudaStreamWaitEvent(gpu->streams[s], marks[0], 0)) != 0 ||
            enqueue_copies(bare, host + (size_t)s * each, gpu->streams[s]) != 0 ||
            perf_gpu_try(cudaEventRecord(marks[1], gpu->streams[s])) != 0 ||
            perf_gpu_try(cudaStreamWaitEvent(gpu->streams[0], marks[1], 0)) != 0)
            return -1;
    }
    if (perf_gpu_try(cudaEventRecord(marks[2], gpu->streams[0])) != 0 ||
        perf_gpu_try(cudaEventSynchronize(marks[2])) != 0 ||
        perf_gpu_try(cudaEventElapsedTime(&ms, marks[0], marks[2])) != 0)
        return -1;
    *us_p = (double)ms * 1e3;
    return 0;
}

int perf_gpu_bare_copies(struct perf_gpu_bare *bare, double *us_p)
{
    size_t each = round_up(bare->out > bare->in ? bare->out : bare->in);
    cudaEvent_t marks[3] = {NULL};
    void *host = NULL;
    double us;
    int rc = perf_gpu_try(
        cudaHostAlloc(&host, each * (size_t)bare->gpu->n_streams, cudaHostAllocDefault));

    *us_p = 0.0;
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = perf_gpu_try(cudaEventCreate(&marks[i]));
    for (int i = 0; i < COPIES && rc == 0; i++) {
        rc = time_copies(bare, host, each, marks, &us);
        if (rc == 0 && (*us_p == 0.0 || us < *us_p))
            *us_p = us;
    }
    for (int i = 0; i < 3; i++) {
        if (marks[i] != NULL)
            cudaEventDestroy(marks[i]);
    }
    cudaFreeHost(host);
    return rc;
}
