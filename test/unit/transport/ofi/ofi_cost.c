/* SPDX-License-Identifier: Apache-2.0 */
/* What libfabric costs a rank in instructions, over a fabric that is made up and does at once what
 * it is asked for, where a write carries 64 bits; "narrow": 32, as EFA's. Without callgrind the
 * program checks what it can count itself: a start writes each tensor once, in one go for each FFN
 * rank, and with 32 bits one message more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ofi_fabric.h"
#include "transport/cost_job.h"

enum { NARROW = 4, WIDE = 8 };

/* Messages that tell what has been taken are written alone: one in seven, of those to a peer. */
enum { TELLS_ONE_IN = STEPAF_FABRIC_RING / 2 - 1 };

static ssize_t (*made_up_write)(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags);
static ssize_t (*made_up_read)(struct fid_cq *cq, void *entries, size_t n);
static unsigned writes_of_starts, rung_of_starts, n_starts;

static __attribute__((noinline)) ssize_t counted_write(struct fid_ep *ep,
                                                       const struct fi_msg_rma *msg, uint64_t flags)
{
    return made_up_write(ep, msg, flags);
}

static __attribute__((noinline)) ssize_t counted_read(struct fid_cq *cq, void *entries, size_t n)
{
    return made_up_read(cq, entries, n);
}

static ssize_t read_and_give_way(struct fid_cq *cq, void *entries, size_t n)
{
    ssize_t got = made_up_read(cq, entries, n);

    cost_give_way();
    return got;
}

static void count_fabric(bool on)
{
    ofi_fabric_rma.writemsg = on ? counted_write : made_up_write;
    ofi_fabric_cq.read = on ? counted_read : read_and_give_way;
}

static void begin_step(enum cost_step step)
{
    (void)step;
    ofi_fabric.n_writes = ofi_fabric.n_rung = 0;
}

static void end_step(enum cost_step step)
{
    if (step != COST_START)
        return;
    writes_of_starts += ofi_fabric.n_writes;
    rung_of_starts += ofi_fabric.n_rung;
    n_starts++;
}

/* Of all starts of a job. */
static void judge_starts(void)
{
    unsigned messages = n_starts * (unsigned)cost_n_ffn;
    unsigned tensors = messages * (unsigned)cost_n_tensors;
    unsigned alone = ofi_fabric.cq_data_size < WIDE ? messages : messages / TELLS_ONE_IN;

    if (writes_of_starts > tensors + alone || writes_of_starts < tensors + alone / 2 ||
        rung_of_starts != messages) {
        fprintf(stderr,
                "ofi_cost: %u starts of %d tensors at %d FFN ranks: %u writes, rung for %u times\n",
                n_starts, cost_n_tensors, cost_n_ffn, writes_of_starts, rung_of_starts);
        exit(1);
    }
    n_starts = writes_of_starts = rung_of_starts = 0;
}

int main(int argc, char **argv)
{
    static const struct cost_carrier fabric = {
        .count = count_fabric, .begin = begin_step, .end = end_step, .judge = judge_starts};
    bool is_narrow = argc > 1 && !strcmp(argv[1], "narrow");

    setenv("STEPAF_TRANSPORTS", "ofi", 1);
    made_up_write = ofi_fabric_rma.writemsg;
    made_up_read = ofi_fabric_cq.read;
    ofi_fabric_reset(1);
    ofi_fabric.prompt = true;
    ofi_fabric.cq_data_size = is_narrow ? NARROW : WIDE;
    cost_carrier = &fabric;
    cost_measure_some();
    return 0;
}
