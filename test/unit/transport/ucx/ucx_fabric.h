/* SPDX-License-Identifier: Apache-2.0 */
/* A UCX that is made of this process's memory. It takes every freedom that UCX has: active messages
 * overtake each other, some are only told and are to be fetched, what is fetched lands in parts and
 * in any order, calls are done at once or later, and nothing happens but in a worker's progress.
 * Bounds, and who calls what from where, are checked. */
#ifndef STEPAF_TEST_UCX_FABRIC_H
#define STEPAF_TEST_UCX_FABRIC_H

#include "transport/fabric/fabric_side.h"
#include "transport/ucx/ucx.h"

/* What it does, and what was done with it. ucx_fabric_reset sets all to the defaults. */
struct ucx_fabric {
    unsigned minor;        /* of version 1.minor.0 */
    const char *resources; /* what it says of a context */
    const char *lanes;     /* and of an endpoint */
    unsigned at_once_in;   /* one in so many calls is done at once; 0: none is */
    unsigned
        told_in; /* one in so many active messages above 1000 bytes is to be fetched; 0: none is */
    unsigned
        twice_in; /* one in so many messages of posts comes twice, quick or not; 0: none does */
    bool
        prompt; /* what can be done in a worker's progress is done, in order; messages without data are sent at
                  * once, and no flush waits for a peer to take them */
    size_t header_max;    /* of an active message */
    size_t address_bytes; /* what a worker says of its address; 0: as it is */
    bool no_peer_errors;  /* endpoints that tell of errors cannot be made */
    ucs_status_t refuse;  /* all that is sent is refused by this, at once */
    int refuse_call;      /* the n-th call from now that opens something fails; 0: none does */
    int fail_after;       /* the n-th send from now ends by an error; 0: none does */
    unsigned dead;        /* workers that sends to end by an error, a bit each */
    unsigned mute;        /* workers from which nothing goes */
    /* counts */
    int n_open; /* objects that are not closed */
    unsigned n_messages;
    unsigned n_told;
    unsigned n_twice[STEPAF_UCX_QUICK + 1]; /* active messages of each number that came twice */
    unsigned
        n_overtaken;    /* active messages that came before an earlier send of the same endpoint */
    unsigned n_foreign; /* of memory that is not registered */
    unsigned n_misused; /* calls that UCX forbids */
};

extern struct ucx_fabric ucx_fabric;
extern const struct stepaf_ucx_library ucx_fabric_library;

/* Take the library's place, with the defaults and this seed. */
void ucx_fabric_reset(uint32_t seed);
/* The number of a side's worker, for bits above. */
unsigned ucx_fabric_number(const struct side *side);
/* An active message of nobody's for @a side. */
void ucx_fabric_say(const struct side *side, const void *header, size_t header_bytes,
                    const void *data, size_t bytes);
/* A quick one, with so many bytes of data beside it. */
void ucx_fabric_say_quick(const struct side *side, const void *header, size_t header_bytes,
                          size_t bytes);
/* A message as above, of which UCX only tells that there are 0 bytes more to be fetched. */
void ucx_fabric_tell(const struct side *side, const void *header, size_t header_bytes);
/* All that sides which are closed have left. */
void ucx_fabric_forget(void);
/* Tell @a side that its endpoint to peer @a peer has failed. */
void ucx_fabric_break(const struct side *side, uint32_t peer, ucs_status_t status);

struct stepaf_ucx *ucx_of(const struct side *side);
struct stepaf_ucx_link *ucx_link(const struct side *side, uint32_t peer);

#endif
