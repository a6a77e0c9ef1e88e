/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ranks that have not arrived at an exchange. */
#ifndef STEPAF_ROLL_CALL_H
#define STEPAF_ROLL_CALL_H

#include <stdbool.h>

#include "boot_common.h"
#include "boot_mpi.h"

struct stepaf_roll_call {
    const struct stepaf_mpi *mpi; /* NULL: no rank is called, or answered */
    int64_t at_ns;                /* when to call all others */
    bool has_called;
    unsigned char *has_come; /* by rank; NULL: no rank is known to have arrived */
};

/* Begin: this rank starts to wait in an exchange. */
struct stepaf_roll_call stepaf_roll_call_begin(const struct stepaf_mpi *mpi, int64_t deadline_ns);
/* Continue while waiting: answer the ranks that call, call the others when it is time, and
 * receive answers. */
void stepaf_roll_call_step(struct stepaf_roll_call *call, int64_t now_ns);
/* Write the ranks that have not reported that they wait too, with an introduction; nothing if
 * all have reported, or none was called. */
void stepaf_roll_call_list(const struct stepaf_roll_call *call, char *list, size_t room);
void stepaf_roll_call_end(struct stepaf_roll_call *call);

#endif
