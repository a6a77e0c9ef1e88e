/* SPDX-License-Identifier: Apache-2.0 */
/* Who has not come to an exchange. */
#ifndef STEPAF_ROLL_CALL_H
#define STEPAF_ROLL_CALL_H

#include <stdbool.h>

#include "boot_common.h"
#include "boot_mpi.h"

struct stepaf_roll_call {
    const struct stepaf_mpi *mpi; /* NULL: nobody is called, or answered */
    int64_t at_ns;                /* when all others are called */
    bool has_called;
    unsigned char *has_come; /* by rank; NULL: nobody is known to have */
};

/* This rank begins to wait in an exchange. */
struct stepaf_roll_call stepaf_roll_call_begin(const struct stepaf_mpi *mpi, int64_t deadline_ns);
/* It waits on: answer those that call, call them when it is time, and hear who answers. */
void stepaf_roll_call_step(struct stepaf_roll_call *call, int64_t now_ns);
/* Write the ranks that have not said that they wait, too, with words before; nothing, if all have,
 * or nobody was called. */
void stepaf_roll_call_list(const struct stepaf_roll_call *call, char *list, size_t room);
void stepaf_roll_call_end(struct stepaf_roll_call *call);

#endif
