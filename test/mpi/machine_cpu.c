/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU that is made of memory: test/unit/cpu_device. */
#include <string.h>

#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "mpi/machine.h"

enum { LIMIT_MS = 30000 };

static int stream; /* its address names it */

bool machine_begin(struct hs_job *job)
{
    (void)job;
    cpu_device_begin();
    cpu_device.runs = true;
    cpu_queue_begin();
    return true;
}

void machine_end(struct hs_job *job)
{
    cpu_queue_end();
    hs_close(job);
    HS_INT(cpu_device.n_held, ==, 0);
    HS_INT(cpu_device_count(), ==, 0);
    cpu_device_end();
}

stepaf_stream_t machine_stream(void)
{
    return &stream;
}

bool machine_pass(void)
{
    return HS_TRUE(cpu_queue_sync((unsigned)(LIMIT_MS * hs_slow())));
}

bool machine_is_busy(void)
{
    return cpu_queue_left() > 0;
}

bool machine_write(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return true;
}

bool machine_read(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return true;
}

int machine_pieces(void)
{
    return cpu_device_count();
}

static void wipe(void *at, uint64_t bytes)
{
    memset(at, HS_POISON, bytes);
}

bool machine_wipe(void *at, size_t bytes)
{
    cpu_queue_call(&stream, wipe, at, bytes);
    return true;
}

bool machine_capture(bool begins)
{
    cpu_device.capturing = begins;
    if (begins)
        cpu_queue_record();
    else
        cpu_queue_replay(0, 0);
    return true;
}

bool machine_replay(void)
{
    cpu_queue_replay(1, 0);
    return true;
}
