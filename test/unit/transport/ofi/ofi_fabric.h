/* SPDX-License-Identifier: Apache-2.0 */
/* A provider of libfabric's that is made of this process's memory. It takes the freedom that EFA's
 * SRD has: writes land in parts and in any order, completions at both ends come in any order and a
 * few at a time, and nothing happens but when a completion queue is read. Keys, bounds and
 * descriptors are checked as a device does. */
#ifndef STEPAF_TEST_OFI_FABRIC_H
#define STEPAF_TEST_OFI_FABRIC_H

#include "transport/fabric/fabric_side.h"
#include "transport/ofi/ofi.h"

/* What it does, and what was done with it. ofi_fabric_reset sets all to the defaults. */
struct ofi_fabric {
    const char *const *names; /* of providers, ended by NULL; "efa" */
    /* Of each provider's domains, ended by NULL; and of the network cards they are of, or NULL. */
    const char *const *domains, *const *nics;
    const char *topology; /* where these cards are: a file; and which core a rank is at */
    int core;
    uint64_t mr_mode;
    size_t cq_data_size;
    uint32_t addr_format;
    uint32_t prov_version; /* of all providers */
    size_t key_bytes;
    size_t max_msg;
    uint64_t mode;
    unsigned refuse_one_in; /* writes are refused by EAGAIN, one in so many; 0: none is */
    unsigned depth;         /* and those beyond so many under way at an endpoint; 0: none is */
    size_t queue_max;       /* entries of a completion queue; 0: as many as are asked for */
    int refuse_write;       /* all are, by this */
    int refuse_call; /* the n-th call from now that opens something fails, by ENOMEM; 0: none does */
    bool same_keys;  /* what is registered again has the key that it has */
    int taken_keys;  /* so many registrations find their key in use */
    int fail_after;  /* the n-th write from now ends by an error; 0: none does */
    unsigned dead;   /* endpoints that writes to end by an error, a bit each */
    unsigned mute;   /* endpoints from which nothing goes, and nothing is said of it */
    unsigned stuck_to;   /* endpoints to which nothing goes, and nothing is said of it */
    bool holds;          /* nothing moves */
    bool broken;         /* completion queues cannot be read */
    bool cuts_data;      /* 32 bits go with a write, whatever cq_data_size says */
    bool only_writedata; /* fi_writemsg takes no data */
    bool in_order;       /* one write after the other */
    bool prompt;         /* what has been rung for is done at once, in order, and all of it told */
    /* counts */
    size_t queue;    /* entries of the last completion queue */
    int n_open;      /* objects that are not closed */
    int n_addresses; /* in address vectors */
    unsigned n_writes;
    unsigned n_rung; /* of them, those that were no FI_MORE */
    unsigned n_refused;
    unsigned n_overtaken; /* completions at the target behind which an earlier write still goes */
    unsigned n_foreign;   /* writes from memory that is not registered, or to such */
    unsigned more_run;    /* the longest row of FI_MORE */
};

extern struct ofi_fabric ofi_fabric;
extern const struct stepaf_ofi_library ofi_fabric_library;
/* What an operation calls: another function may be put in between. */
extern struct fi_ops_rma ofi_fabric_rma;
extern struct fi_ops_cq ofi_fabric_cq;

/* Take the library's place, with the defaults and this seed. */
void ofi_fabric_reset(uint32_t seed);
uint32_t ofi_fabric_random(uint32_t below);
/* The number of a side's endpoint, for bits above: the first, or that of a rail. */
unsigned ofi_fabric_number(const struct side *side);
unsigned ofi_fabric_number_of(const struct side *side, unsigned rail);
/* A completion of a write of nobody's at @a side, with this data, hidden as who knows its token
 * does; or as it is. */
void ofi_fabric_say(const struct side *side, uint64_t data);
void ofi_fabric_guess(const struct side *side, uint64_t data);
/* An error of nobody's. */
void ofi_fabric_say_error(const struct side *side, void *context, int error);
/* One that belongs to no operation, as efa's internal ones. */
void ofi_fabric_say_event(const struct side *side, int error);

struct stepaf_ofi *ofi_of(const struct side *side);
struct stepaf_ofi_link *ofi_link(const struct side *side, uint32_t peer);

#endif
