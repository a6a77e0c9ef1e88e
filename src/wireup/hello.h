/* SPDX-License-Identifier: Apache-2.0 */
/* Init's hellos: what each rank tells all others of itself, and the check of it. Pure: no I/O, and
 * no blob is trusted. Magic, wire version and library version come first in every version of the
 * hello, so that each version can name another. */
#ifndef STEPAF_WIREUP_HELLO_H
#define STEPAF_WIREUP_HELLO_H

#include <stdbool.h>

#include "base/pack.h"
#include "boot/member_net.h"
#include "settings/settings.h"
#include "topo/topo.h"

enum { STEPAF_WIRE_VERSION = 21, STEPAF_VERSION_MAX = 32 };

/* What one rank reports. */
struct stepaf_hello {
    uint32_t wire; /* wire version; of another version only wire and version are known */
    char version[STEPAF_VERSION_MAX];
    stepaf_status_t status; /* of the rank's own check before the exchange */
    char text[STEPAF_ERROR_TEXT_MAX];
    uint32_t said;       /* stepaf_role_t that the rank requests; meaningless after a failure */
    int32_t app_number;  /* -1: none */
    uint64_t map_digest; /* of the map file as read; 0: none */
    uint32_t pid;
    uint64_t node_id;
    bool is_vacant;  /* no such rank yet; node_id: where it is expected */
    bool proxies;    /* its stream plans' tensors always travel through the host */
    bool has_secret; /* one is set: processes that take places must know it */
    struct stepaf_member_contact contact;    /* where members can call the rank */
    char mute[STEPAF_MEMBER_NET_REASON_MAX]; /* why members cannot; "": they can */
    char host[STEPAF_TOPO_HOST_MAX];
    char binding[128];             /* list of cores that the rank may run on */
    uint64_t digest;               /* of the settings that must agree */
    struct stepaf_unpack settings; /* their values; points into the blob */
};

/* Write this rank's hello. @a hello provides everything except the versions, and except digest and
 * settings, which come from @a env. After a failure @a env is not read. */
void stepaf_hello_pack(const struct stepaf_hello *hello, const struct stepaf_env *env,
                       struct stepaf_pack *pack);

/* Read a hello. Return false if it is malformed. Of another wire version, only the versions are
 * read. */
bool stepaf_hello_read(const void *blob, size_t bytes, struct stepaf_hello *intro_p);

/* Return the hello of a vacant rank, which agrees with the first of @a n others. The rank is
 * expected on their node if they share one, otherwise on another node (0). */
struct stepaf_hello stepaf_hello_vacant(const struct stepaf_hello *others, int n);

/* Check all @a n hellos, with the same outcome at every rank. The text of @a own_rank's own failure
 * is as it was set. */
stepaf_status_t stepaf_hellos_check(const struct stepaf_hello *hellos, int n, int own_rank);

/* Count the ranks on @a own_rank's node, including itself, that may run on its cores. */
int stepaf_hellos_sharing(const struct stepaf_hello *hellos, int n, int own_rank);

#endif
