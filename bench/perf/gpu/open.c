/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a GPU. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/fail.h"
#include "perf/gpu/device.h"
#include "perf/gpu/nccl.h"

#define TIMEOUT_US ((int64_t)20 * 1000000)

int perf_gpu_ask(const struct perf_options *options)
{
    if (options->baseline_nccl != PERF_NCCL_NONE && perf_gpu_nccl_version() == NULL)
        return perf_fail("--baseline nccl requires NCCL, which this build lacks");
    /* A kernel that is loaded at its first launch waits for the whole GPU, perhaps for a kernel
     * that waits for this very launch. */
    if (setenv("CUDA_MODULE_LOADING", "EAGER", 0) != 0)
        return perf_fail("CUDA_MODULE_LOADING: %s", strerror(errno));
    /* Each stream that may wait for a peer needs a connection of its own to the GPU. */
    if (options->microbatches > 4 && setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) != 0)
        return perf_fail("CUDA_DEVICE_MAX_CONNECTIONS: %s", strerror(errno));
    return 0;
}

/* Return this rank's number among those of its node. */
static int number_on_node(const struct perf_place *place)
{
    int number = 0;

    for (int i = 0; i < place->rank; i++)
        number += place->ranks[i].node_id == place->ranks[place->rank].node_id;
    return number;
}

static int choose_device(struct perf_gpu *gpu, struct perf_gpu_rank *rank_p)
{
    struct cudaDeviceProp facts;

    if (perf_gpu_try(cudaGetDeviceCount(&rank_p->visible)) != 0)
        return -1;
    if (rank_p->visible == 0)
        return perf_fail("this rank sees no GPU");
    gpu->ordinal = number_on_node(gpu->place) % rank_p->visible;
    if (perf_gpu_try(cudaSetDevice(gpu->ordinal)) != 0 ||
        perf_gpu_try(cudaGetDeviceProperties(&facts, gpu->ordinal)) != 0 ||
        perf_gpu_try(cudaDriverGetVersion(&rank_p->driver)) != 0 ||
        perf_gpu_try(cudaDeviceGetPCIBusId(rank_p->bus, sizeof(rank_p->bus), gpu->ordinal)) != 0)
        return -1;
    snprintf(rank_p->name, sizeof(rank_p->name), "%.63s", facts.name);
    gpu->n_load_sms = facts.multiProcessorCount;
    return 0;
}

static int make_streams(struct perf_gpu *gpu)
{
    int lowest, highest;
    void *words;

    if (perf_gpu_try(cudaDeviceGetStreamPriorityRange(&lowest, &highest)) != 0 ||
        perf_gpu_try(cudaEventCreateWithFlags(&gpu->held, cudaEventDisableTiming)) != 0 ||
        perf_gpu_try(cudaHostAlloc(&words, sizeof(*gpu->words), cudaHostAllocDefault)) != 0)
        return -1;
    gpu->words = words;
    memset(words, 0, sizeof(*gpu->words));
    if (gpu->options->cuda.spare_sms > 0 &&
        perf_gpu_share(gpu, (unsigned)gpu->options->cuda.spare_sms) != 0)
        return -1;
    for (int i = gpu->n_streams; i < (int)gpu->options->microbatches; i++, gpu->n_streams++) {
        if (perf_gpu_try(cudaStreamCreateWithPriority(&gpu->streams[i], cudaStreamNonBlocking,
                                                      highest)) != 0)
            return -1;
    }
    return gpu->options->cuda.load ? perf_gpu_load_open(gpu) : 0;
}

/* Every kernel must be on the GPU before a first stream waits for a peer. */
static int warm_up(struct perf_gpu *gpu)
{
    int lasted;

    if (perf_gpu_hold(gpu) != 0)
        return -1;
    perf_gpu_release(gpu);
    for (int i = 0; i < gpu->n_streams; i++) {
        if (perf_gpu_drain(gpu, gpu->streams[i], NULL, "the first kernel") != 0)
            return -1;
    }
    if (!gpu->options->cuda.load)
        return 0;
    return perf_gpu_load_begin(gpu, 0.0) != 0 ? -1 : perf_gpu_load_end(gpu, &lasted);
}

static int prepare(struct perf_gpu *gpu, struct perf_gpu_rank *rank_p)
{
    if (choose_device(gpu, rank_p) != 0 || make_streams(gpu) != 0)
        return -1;
    return warm_up(gpu);
}

int perf_gpu_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_place *place, struct perf_gpu **gpu_p)
{
    struct perf_gpu *gpu = calloc(1, sizeof(*gpu));
    struct perf_gpu_rank self = {.visible = 0};
    size_t *offsets;
    void *all;

    if (perf_job_agree(job, gpu != NULL ? 0 : perf_fail("out of memory")) != 0) {
        free(gpu);
        return -1;
    }
    gpu->job = job;
    gpu->options = options;
    gpu->place = place;
    gpu->timeout_us = options->run.timeout_us > 0 ? options->run.timeout_us : TIMEOUT_US;
    if (perf_job_agree(job, prepare(gpu, &self)) != 0 ||
        perf_job_gather(job, &self, sizeof(self), &all, &offsets) != 0)
        goto err_close;
    gpu->ranks = all;
    free(offsets);
    *gpu_p = gpu;
    return 0;

err_close:
    perf_gpu_close(gpu);
    return -1;
}

void perf_gpu_close(struct perf_gpu *gpu)
{
    if (gpu == NULL)
        return;
    perf_gpu_guard(gpu, "the end of the GPU's work");
    if (gpu->load_stream != NULL)
        perf_gpu_load_close(gpu);
    for (int i = 0; i < gpu->n_streams; i++)
        cudaStreamDestroy(gpu->streams[i]);
    if (gpu->held != NULL)
        cudaEventDestroy(gpu->held);
    cudaFreeHost(gpu->words);
    perf_gpu_unguard();
    free(gpu->ranks);
    free(gpu);
}

const char *perf_gpu_name(const struct perf_gpu *gpu)
{
    return gpu->ranks[0].name;
}

/* Ranks of a node on one GPU wait for each other's time slices. */
static int shares_one(const struct perf_gpu *gpu, const struct perf_place *place, int rank)
{
    for (int i = 0; i < place->size; i++) {
        if (i != rank && place->ranks[i].node_id == place->ranks[rank].node_id &&
            strcmp(gpu->ranks[i].bus, gpu->ranks[rank].bus) == 0)
            return 1;
    }
    return 0;
}

/* Environment variables that change the numbers: print each setting. */
static void print_settings(void)
{
    static const char *const prefixes[] = {"STEPAF_CUDA_", "STEPAF_STREAM_", "NCCL_",
                                           "CUDA_DEVICE_", "CUDA_MODULE_",   "CUDA_VISIBLE_"};

    for (char **setting = environ; *setting != NULL; setting++) {
        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
            if (strncmp(*setting, prefixes[i], strlen(prefixes[i])) == 0)
                printf("# setting        %.100s\n", *setting);
        }
    }
}

void perf_gpu_print(const struct perf_gpu *gpu, const struct perf_options *options,
                    const struct perf_place *place)
{
    const char *each = options->microbatches > 1 ? ", on a stream for each microbatch" : "";
    int driver = gpu->ranks[0].driver;
    int runtime = 0;

    (void)cudaRuntimeGetVersion(&runtime);
    printf("# CUDA           runtime %d.%d, driver for %d.%d", runtime / 1000, runtime / 10 % 100,
           driver / 1000, driver / 10 % 100);
    if (options->baseline_nccl != PERF_NCCL_NONE)
        printf(", NCCL %s", perf_gpu_nccl_version());
    printf("\n");
    if (options->cuda.graph_ops > 0)
        printf("# a sample       a replay of a captured graph of %llu, its time by that number%s\n",
               (unsigned long long)options->cuda.graph_ops, each);
    else
        printf("# a sample       %llu enqueued one by one, their time by that number%s\n",
               (unsigned long long)options->cuda.stream_ops, each);
    print_settings();
    if (options->cuda.load)
        printf("# load           a second row beside a kernel that fills %d SMs of each GPU%s\n",
               gpu->n_load_sms, options->cuda.spare_sms > 0 ? "; the exchange has the others" : "");
    for (int i = 0; i < place->size; i++)
        printf("# GPU of rank %-2d %s, %s%s\n", i, gpu->ranks[i].name, gpu->ranks[i].bus,
               shares_one(gpu, place, i) ? ", shared with another rank" : "");
}
