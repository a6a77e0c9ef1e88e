/* SPDX-License-Identifier: Apache-2.0 */
/* Init's blobs: what each rank says of itself to all, and the check of it. Pure: no I/O, and no
 * blob is trusted. Magic, wire version and library version come first in every version of it, so
 * that each can name another. */
#ifndef STEPAF_WIREUP_HELLO_H
#define STEPAF_WIREUP_HELLO_H

#include <stdbool.h>

#include "base/pack.h"
#include "boot/member_net.h"
#include "settings/settings.h"
#include "topo/topo.h"

enum { STEPAF_WIRE_VERSION = 16, STEPAF_VERSION_MAX = 32 };

/* What one rank says. */
struct stepaf_hello {
    uint32_t wire; /* version; of another one than ours nothing but these two is known */
    char version[STEPAF_VERSION_MAX];
    stepaf_status_t status; /* of its own check before the exchange */
    char text[STEPAF_ERROR_TEXT_MAX];
    uint32_t said;       /* stepaf_role_t that it says of itself; means nothing after a failure */
    int32_t app_number;  /* -1: none */
    uint64_t map_digest; /* of the map file as it has read it; 0: none */
    uint32_t pid;
    uint64_t node_id;
    bool is_vacant; /* there is no such rank yet; node_id: where it is expected */
    bool proxies;   /* its stream plans' tensors go by way of the host in any case */
    struct stepaf_member_contact contact;    /* where members can call it */
    char mute[STEPAF_MEMBER_NET_REASON_MAX]; /* why they cannot; "": they can */
    char host[STEPAF_TOPO_HOST_MAX];
    char binding[128];             /* cores that it may run on, as a list */
    uint64_t digest;               /* of the settings that must agree */
    struct stepaf_unpack settings; /* their values; points into the blob */
};

/* Write what this rank says: @a intro but for the versions, and for digest and settings, which come
 * from @a env. After a failure @a env is not looked at. */
void stepaf_hello_pack(const struct stepaf_hello *hello, const struct stepaf_env *env,
                       struct stepaf_pack *pack);

/* Read one. False: it is malformed. Of another wire version, only the versions are read. */
bool stepaf_hello_read(const void *blob, size_t bytes, struct stepaf_hello *intro_p);

/* The hello of a rank that nobody is yet, which agrees with the first of @a n others. It is
 * expected on the node that they are all on; where they are on several, on another one (0). */
struct stepaf_hello stepaf_hello_vacant(const struct stepaf_hello *others, int n);

/* Check all @a n: the same outcome on every rank. The sentence of @a own_rank's own failure is as
 * it said it. */
stepaf_status_t stepaf_hellos_check(const struct stepaf_hello *hellos, int n, int own_rank);

/* Count the ranks on @a own_rank's node, itself among them, that may run on its cores. */
int stepaf_hellos_sharing(const struct stepaf_hello *hellos, int n, int own_rank);

#endif
