/* SPDX-License-Identifier: Apache-2.0 */
/* The local bootstrap for ranks that nobody has forked: started one by one on one machine, each told
 * its number and how many there are. */
#ifndef STEPAF_BOOT_BOOT_JOIN_H
#define STEPAF_BOOT_BOOT_JOIN_H

#include <sys/socket.h>
#include <sys/un.h>

#include <stepaf/boot.h>

#include "base/env_text.h"
#include "boot/boot_local.h"
#include "settings/settings.h"

/* Fill *boot_p as STEPAF_LOCAL_RANK, STEPAF_LOCAL_SIZE and STEPAF_LOCAL_JOB say. Does not block: the
 * ranks find each other in their first exchange. STEPAF_ERR_SETTING if the settings do not make a
 * place in a job, STEPAF_ERR_NO_MEMORY; *boot_p is unchanged then. */
stepaf_status_t stepaf_boot_join(const struct stepaf_env *env, stepaf_boot_t *boot_p);

/* How they find each other: rank 0 listens at a Unix socket of the job's name, the others say there
 * who they are; when all have come, each is sent the files that they share. The name is an abstract
 * one: it goes with rank 0, whatever ends that, and nothing can be left behind. Everybody of the
 * machine can connect to such a name, or take it first; so both sides ask the kernel whose process
 * the other is. */
struct stepaf_join {
    char job[STEPAF_ENV_NAME_MAX + 1];
    int rank;
    int size;
};

/* LAYOUT changes with struct shared, so that no rank maps another version's. */
enum { STEPAF_JOIN_MAGIC = 0x53544a31, STEPAF_JOIN_LAYOUT = 1, STEPAF_JOIN_REASON_MAX = 240 };

struct stepaf_join_hello {
    uint32_t magic;
    uint32_t layout;
    int32_t rank;
    int32_t size;
};

/* With the files, if the status is STEPAF_OK. */
struct stepaf_join_answer {
    uint32_t magic;
    int32_t status;
    char reason[STEPAF_JOIN_REASON_MAX];
};

/* Rank 0's part, and the others' (boot_join_host.c, boot_join_guest.c): get what all share.
 * STEPAF_ERR_TIMEOUT after @a deadline_ns, naming a rank that is missing; STEPAF_ERR_BOOT;
 * STEPAF_ERR_MISMATCH; STEPAF_ERR_NO_MEMORY. */
stepaf_status_t stepaf_join_as_host(const struct stepaf_join *join, int64_t deadline_ns,
                                    stepaf_boot_local_t **local_p);
stepaf_status_t stepaf_join_as_guest(const struct stepaf_join *join, int64_t deadline_ns,
                                     stepaf_boot_local_t **local_p);

/* ---- boot_join_socket.c: what both do ---- */

/* The job's name for sentences. */
const char *stepaf_join_name(const struct stepaf_join *join);

/* STEPAF_ERR_BOOT: @a what has failed with errno @a why. */
stepaf_status_t stepaf_join_error(const struct stepaf_join *join, const char *what, int why);

/* The job's address; returns its length. */
socklen_t stepaf_join_address(const struct stepaf_join *join, struct sockaddr_un *address_p);

/* Whether the process at the other end is this user's. */
int stepaf_join_is_own_user(int fd);

/* Wait until @a fd can be read: 1, or 0 after the deadline. */
int stepaf_join_readable(int fd, int64_t deadline_ns);

#endif
