/* SPDX-License-Identifier: Apache-2.0 */
/* On test/unit/cpu_device. */
#include "member_gpu.h"

#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"

static int stream; /* its address names one */

void member_gpu_begin(struct hs_job *job)
{
    (void)job;
    cpu_device_begin();
    cpu_device.runs = true;
    cpu_queue_begin();
}

void member_gpu_end(struct hs_job *job)
{
    cpu_queue_end();
    hs_close(job);
    HS_INT(cpu_device.n_held, ==, 0);
    HS_INT(cpu_device_count(), ==, 0);
    cpu_device_end();
}

void member_gpu_fill(void *at, size_t bytes, uint64_t seed)
{
    hs_fill(at, bytes, seed);
}

bool member_gpu_verify(const char *what, const void *at, size_t bytes, uint64_t seed)
{
    return hs_verify(what, at, bytes, seed);
}

uint32_t member_gpu_read(const uint32_t *at)
{
    return *at;
}

int member_gpu_pieces(void)
{
    return cpu_device_count();
}

void *member_gpu_stream(void)
{
    return &stream;
}

bool member_gpu_sync(unsigned timeout_ms)
{
    return HS_TRUE(cpu_queue_sync(timeout_ms));
}

void member_gpu_record(void)
{
    cpu_device.capturing = true;
    cpu_queue_record();
}

bool member_gpu_record_end(void)
{
    cpu_device.capturing = false;
    return true;
}

void member_gpu_replay(void)
{
    cpu_queue_replay(1, 0);
}
