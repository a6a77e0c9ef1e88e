/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "base/time.h"
#include "cpu_device.h"

#define ALL_PEERS UINT64_MAX

static uint64_t *words_of(uint8_t *head)
{
    return (uint64_t *)(void *)(head + STEPAF_HEAD_TELLS);
}

/* What says that a group of pieces is there. The rest is the tensor's bytes as they are: the two
 * ends agree, which is enough. */
static uint64_t *flag_of(uint8_t *group)
{
    return (uint64_t *)(void *)(group + STEPAF_GROUP_DATA);
}

static uint64_t stamp_of(const struct stepaf_kernel_args *args, uint32_t n)
{
    return stepaf_stamp(args->epoch, n);
}

bool cpu_kernel_has_failed(const struct stepaf_kernel_args *args)
{
    return __atomic_load_n(args->failed, __ATOMIC_ACQUIRE) != 0;
}

static void write_head(const struct stepaf_kernel_tensor *tensor, uint64_t stamp)
{
    uint64_t *words = words_of(tensor->head);

    if (tensor->proto == STEPAF_PROTO_INLINE)
        memcpy(tensor->head, tensor->data, tensor->bytes);
    words[0] = tensor->bytes;
    __atomic_store_n(&words[1], stamp, __ATOMIC_RELEASE);
}

static void write_source(const struct stepaf_kernel_tensor *tensor, uint64_t stamp)
{
    uint64_t *words = (uint64_t *)(void *)(tensor->head + STEPAF_HEAD_SOURCE);
    uint64_t source = (uintptr_t)tensor->data | (uint64_t)tensor->guarded << 63;

    __atomic_store_n(&words[0], source, __ATOMIC_RELAXED);
    __atomic_store_n(&words[1], stamp, __ATOMIC_RELEASE);
}

static void send_pieces(const struct stepaf_kernel_tensor *tensor, uint64_t stamp)
{
    uint32_t at = 0;

    write_head(tensor, stamp);
    for (uint8_t *group = tensor->body; at < tensor->bytes; group += STEPAF_GROUP_BYTES) {
        uint32_t left = tensor->bytes - at;
        memcpy(group, tensor->data + at, left < STEPAF_GROUP_DATA ? left : STEPAF_GROUP_DATA);
        __atomic_store_n(flag_of(group), 1, __ATOMIC_RELEASE);
        at += STEPAF_GROUP_DATA;
    }
}

/* @a tells: from flag to flag, of parts. */
static uint64_t *flag_of_chunk(const struct stepaf_kernel_tensor *tensor, uint32_t i,
                               uint32_t tells)
{
    uint8_t *at = tensor->body + (size_t)i * (tensor->chunk + STEPAF_CHUNK_TELLS) + tensor->chunk;

    if (tensor->proto == STEPAF_PROTO_PARTS)
        at = tensor->head + STEPAF_HEAD_BYTES + (size_t)i * tells;
    return (uint64_t *)(void *)at + 1;
}

static uint8_t *body_of_chunk(const struct stepaf_kernel_tensor *tensor, uint32_t i)
{
    uint32_t between = tensor->proto == STEPAF_PROTO_PARTS ? 0 : STEPAF_CHUNK_TELLS;

    return tensor->body + (size_t)i * (tensor->chunk + between);
}

static bool goes_by_chunks(const struct stepaf_kernel_tensor *tensor)
{
    return tensor->proto == STEPAF_PROTO_CHUNKS || tensor->proto == STEPAF_PROTO_PARTS;
}

static uint32_t bytes_of_chunk(const struct stepaf_kernel_tensor *tensor, uint32_t bytes,
                               uint32_t i)
{
    uint32_t left = bytes - i * tensor->chunk;

    return left < tensor->chunk ? left : tensor->chunk;
}

/* Whether @a peers, a bit each, have the tensor's; there may be more peers than bits where none is
 * in them. */
static bool is_among(uint64_t peers, const struct stepaf_kernel_tensor *tensor)
{
    return peers && peers >> tensor->peer & 1;
}

static void send_chunks(const struct stepaf_kernel_tensor *tensor, uint64_t stamp)
{
    for (uint32_t i = 0; i * (uint64_t)tensor->chunk < tensor->bytes; i++) {
        uint64_t *flag = flag_of_chunk(tensor, i, STEPAF_PART_TOLD);
        if (cpu_device.at_part)
            cpu_device.at_part(i);
        memcpy(body_of_chunk(tensor, i), tensor->data + (size_t)i * tensor->chunk,
               bytes_of_chunk(tensor, tensor->bytes, i));
        __atomic_store_n(flag, stamp, __ATOMIC_RELEASE);
    }
}

/* To all peers but those that are @a gone. */
static void run_send(const struct stepaf_kernel_args *args, uint32_t blocks, bool chunks,
                     uint64_t gone)
{
    uint32_t n = args->counts[1] + 1;

    if (cpu_kernel_has_failed(args))
        return;
    for (uint32_t i = 0; i < args->n_tensors; i++) /* as all blocks begin at once */
        if (chunks && goes_by_chunks(&args->tensors[i]) && !is_among(gone, &args->tensors[i]))
            write_head(&args->tensors[i], stamp_of(args, n));
    for (uint32_t i = 0; i < args->n_tensors; i++) {
        const struct stepaf_kernel_tensor *tensor = &args->tensors[i];
        if (!tensor->n || is_among(gone, tensor)) /* no block works for it */
            continue;
        if (tensor->proto == STEPAF_PROTO_LL) {
            send_pieces(tensor, stamp_of(args, n));
            continue;
        }
        if (!chunks && (goes_by_chunks(tensor) || tensor->proto == STEPAF_PROTO_RDMA))
            continue; /* that kernel knows nothing of them */
        if (goes_by_chunks(tensor)) {
            send_chunks(tensor, stamp_of(args, n));
            continue;
        }
        if (tensor->proto == STEPAF_PROTO_RDMA)
            write_source(tensor, stamp_of(args, n));
        else if (tensor->proto != STEPAF_PROTO_INLINE && tensor->bytes)
            memcpy(tensor->body, tensor->data, tensor->bytes);
        write_head(tensor, stamp_of(args, n));
    }
    for (uint32_t b = 0; b < blocks; b++)
        args->counts[1 + b] = n;
}

void cpu_kernel_note_fault(const struct stepaf_kernel_args *args, uint32_t fault, uint32_t peer)
{
    args->watch->peer = peer;
    args->watch->slot = args->slot;
    __atomic_store_n(&args->watch->fault, fault, __ATOMIC_RELEASE);
    __atomic_store_n(args->failed, 1, __ATOMIC_RELEASE);
}

static uint64_t word_of(const uint8_t *head)
{
    return __atomic_load_n(&words_of((uint8_t *)head)[1], __ATOMIC_ACQUIRE);
}

/* By its own head, or by that where TOLD_ALL comes to. */
bool cpu_kernel_is_told(const struct stepaf_kernel_args *args, const void *at, uint64_t stamp)
{
    const struct stepaf_kernel_tensor *tensor = at;
    uint64_t its = word_of(tensor->head);

    return its == stamp || (uint32_t)its >= STEPAF_TOLD_ALL ||
           (tensor->copied &&
            (uint32_t)word_of(args->tensors[tensor->copied - 1].head) == STEPAF_TOLD_ALL);
}

static bool is_there(const struct stepaf_kernel_args *args, const void *group, uint64_t stamp)
{
    (void)args;
    (void)stamp;
    return __atomic_load_n(flag_of((uint8_t *)group), __ATOMIC_ACQUIRE) != 0;
}

/* Wait until a head or a group has come. False: given up. */
static bool await(const struct stepaf_kernel_args *args,
                  bool (*has_come)(const struct stepaf_kernel_args *, const void *, uint64_t),
                  const void *at, uint64_t stamp, uint32_t peer)
{
    int64_t began = stepaf_monotonic_ns();

    while (!has_come(args, at, stamp)) {
        if (cpu_kernel_has_failed(args))
            return false;
        if (__atomic_load_n(&args->watch->abort, __ATOMIC_ACQUIRE)) {
            cpu_kernel_note_fault(args, STEPAF_FAULT_ABORTED, peer);
            return false;
        }
        if (args->timeout_ns && stepaf_monotonic_ns() - began > (int64_t)args->timeout_ns) {
            cpu_kernel_note_fault(args, STEPAF_FAULT_TIMEOUT, peer);
            return false;
        }
        sched_yield();
    }
    return true;
}

static bool take_pieces(const struct stepaf_kernel_args *args,
                        const struct stepaf_kernel_tensor *tensor, uint32_t bytes)
{
    uint8_t *group = tensor->body;

    for (uint32_t at = 0; at < bytes; at += STEPAF_GROUP_DATA, group += STEPAF_GROUP_BYTES) {
        uint32_t left = bytes - at;
        if (!await(args, is_there, group, 0, tensor->peer))
            return false;
        memcpy(tensor->data + at, group, left < STEPAF_GROUP_DATA ? left : STEPAF_GROUP_DATA);
        *flag_of(group) = 0;
    }
    return true;
}

static bool is_flagged(const struct stepaf_kernel_args *args, const void *flag, uint64_t stamp)
{
    (void)args;
    return __atomic_load_n((const uint64_t *)flag, __ATOMIC_ACQUIRE) == stamp;
}

static bool take_chunks(const struct stepaf_kernel_args *args,
                        const struct stepaf_kernel_tensor *tensor, uint32_t bytes, uint64_t stamp)
{
    for (uint32_t i = 0; i * (uint64_t)tensor->chunk < bytes; i++) {
        const uint64_t *flag = flag_of_chunk(tensor, i, STEPAF_PART_TELLS);
        if (!await(args, is_flagged, flag, stamp, tensor->peer))
            return false;
        memcpy(tensor->data + (size_t)i * tensor->chunk, body_of_chunk(tensor, i),
               bytes_of_chunk(tensor, bytes, i));
    }
    return true;
}

void cpu_kernel_take_head(const struct stepaf_kernel_args *args, uint32_t i, uint64_t stamp)
{
    const struct stepaf_kernel_tensor *tensor = &args->tensors[i];
    uint64_t its = word_of(tensor->head), bytes = tensor->planned;

    if (its == stamp)
        bytes = words_of(tensor->head)[0];
    else if ((uint32_t)its >= STEPAF_TOLD_ALL)
        bytes = its >> 32;
    if (bytes > tensor->bytes)
        bytes = tensor->bytes;
    args->landed[i] = (uint32_t)bytes;
    if (tensor->proto == STEPAF_PROTO_INLINE)
        memcpy(tensor->data, tensor->head, bytes);
}

void cpu_kernel_clear_mark(const struct stepaf_kernel_args *args, uint32_t i)
{
    if ((uint32_t)word_of(args->tensors[i].head) >= STEPAF_TOLD_ALL)
        words_of(args->tensors[i].head)[1] = 0;
}

static void run_gate(const struct stepaf_kernel_args *args)
{
    uint32_t n = args->counts[0] + 1;

    if (cpu_kernel_has_failed(args))
        return;
    for (uint32_t i = 0; i < args->n_tensors; i++) {
        const struct stepaf_kernel_tensor *tensor = &args->tensors[i];
        uint64_t stamp = stamp_of(args, n);
        if (!await(args, cpu_kernel_is_told, tensor, stamp, tensor->peer))
            return;
        cpu_kernel_take_head(args, i, stamp);
        if (tensor->proto == STEPAF_PROTO_LL && args->gate_takes &&
            !take_pieces(args, tensor, args->landed[i]))
            return;
    }
    for (uint32_t i = 0; i < args->n_tensors; i++)
        cpu_kernel_clear_mark(args, i);
    args->counts[0] = n;
}

/* The tensors of those that are in @a peers. False: given up. */
static bool unpack_tensors(const struct stepaf_kernel_args *args, uint64_t stamp, bool chunks,
                           uint64_t peers)
{
    for (uint32_t i = 0; i < args->n_tensors; i++) {
        const struct stepaf_kernel_tensor *tensor = &args->tensors[i];
        uint32_t bytes = args->landed[i];
        if (peers != ALL_PEERS && !is_among(peers, tensor))
            continue;
        if (tensor->proto == STEPAF_PROTO_BCOPY && bytes)
            memcpy(tensor->data, tensor->body, bytes);
        if (tensor->proto == STEPAF_PROTO_LL && !args->gate_takes &&
            !take_pieces(args, tensor, bytes))
            return false;
        if (chunks && goes_by_chunks(tensor) && !take_chunks(args, tensor, bytes, stamp))
            return false;
    }
    return true;
}

/* Only where there are chunks do blocks count. */
static void run_unpack(const struct stepaf_kernel_args *args, uint32_t blocks, bool chunks)
{
    uint32_t n = chunks ? args->counts[1] + 1 : 0;

    if (cpu_kernel_has_failed(args) || !unpack_tensors(args, stamp_of(args, n), chunks, ALL_PEERS))
        return;
    for (uint32_t b = 0; chunks && b < blocks; b++)
        args->counts[1 + b] = n;
}

/* Nobody counts but the gate. */
static void run_unpack_some(const struct stepaf_kernel_args *args, bool chunks)
{
    if (!cpu_kernel_has_failed(args))
        (void)unpack_tensors(args, stamp_of(args, args->counts[0]), chunks,
                             args->awaited->slots[args->slot].now);
}

void cpu_kernel_run(enum stepaf_kernel kernel, const struct stepaf_kernel_args *args,
                    uint32_t blocks)
{
    switch (kernel) {
    case STEPAF_KERNEL_SEND:
    case STEPAF_KERNEL_SEND_CHUNKS:
        run_send(args, blocks, kernel == STEPAF_KERNEL_SEND_CHUNKS, 0);
        break;
    case STEPAF_KERNEL_GATE:
        run_gate(args);
        break;
    case STEPAF_KERNEL_SEND_SOME:
    case STEPAF_KERNEL_SEND_SOME_CHUNKS:
        run_send(args, blocks, kernel == STEPAF_KERNEL_SEND_SOME_CHUNKS, args->asked->gone);
        break;
    case STEPAF_KERNEL_GATE_SOME:
        cpu_kernel_gate_some(args);
        break;
    case STEPAF_KERNEL_UNPACK_SOME:
    case STEPAF_KERNEL_UNPACK_SOME_CHUNKS:
        run_unpack_some(args, kernel == STEPAF_KERNEL_UNPACK_SOME_CHUNKS);
        break;
    case STEPAF_KERNEL_SETTLE:
        cpu_kernel_settle(args);
        break;
    default:
        run_unpack(args, blocks, kernel == STEPAF_KERNEL_UNPACK_CHUNKS);
    }
}
