/* SPDX-License-Identifier: Apache-2.0 */
/* The local bootstrap for ranks that nobody has forked: started one by one on one machine, each
 * told its number and how many there are. */
#ifndef STEPAF_BOOT_BOOT_JOIN_H
#define STEPAF_BOOT_BOOT_JOIN_H

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <stepaf/boot.h>

#include "base/env_text.h"
#include "boot/boot_local.h"
#include "settings/settings.h"

/* Fill *boot_p as STEPAF_LOCAL_RANK, STEPAF_LOCAL_SIZE and STEPAF_LOCAL_JOB say. Does not block:
 * the ranks find each other in their first exchange. STEPAF_ERR_SETTING if the settings do not make
 * a place in a job, STEPAF_ERR_NO_MEMORY; *boot_p is unchanged then. */
stepaf_status_t stepaf_boot_join(const struct stepaf_env *env, stepaf_boot_t *boot_p);

/* How they find each other: rank 0 listens at a Unix socket of the job's name, the others say there
 * who they are, are sent the files that all share, and say that they have taken them; when all
 * have, each is told to go on. Until then an end of a connection is the end of a process, or of its
 * patience, and all are told; from then on locks on the file tell (boot_local_watch.c). The name is
 * an abstract one: it goes with rank 0, whatever ends that, and nothing can be left behind.
 * Everybody of the machine can connect to such a name, or take it first; so both sides ask the
 * kernel whose process the other is. */
struct stepaf_join {
    char job[STEPAF_ENV_NAME_MAX + 1]; /* without a name: by the session of the processes */
    bool is_named;                     /* STEPAF_LOCAL_JOB is set */
    int rank;
    int size;
};

/* LAYOUT changes with struct shared, so that no rank maps another version's, and with what is said.
 * An answer keeps its size, so that who has another version hears that. */
enum { STEPAF_JOIN_MAGIC = 0x53544a31, STEPAF_JOIN_LAYOUT = 3, STEPAF_JOIN_REASON_MAX = 236 };

struct stepaf_join_hello {
    uint32_t magic;
    uint32_t layout;
    int32_t rank;
    int32_t size;
};

/* From rank 0: STEPAF_OK with the files, then without when all are there; or at any time why there
 * will be no job. From the others: STEPAF_OK once they have the files, or why not. */
struct stepaf_join_answer {
    uint32_t magic;
    int32_t status;
    char reason[STEPAF_JOIN_REASON_MAX]; /* ends with 0 once it is heard */
    int32_t peer;                        /* 1 + the rank whose failure it is; 0: none */
};

/* Rank 0's part, and the others' (boot_join_host.c, boot_join_guest.c): get what all share.
 * STEPAF_ERR_TIMEOUT after @a deadline_ns, naming a rank that is missing; STEPAF_ERR_PEER_LOST,
 * naming one that was there and has ended; STEPAF_ERR_BOOT; STEPAF_ERR_MISMATCH;
 * STEPAF_ERR_NO_MEMORY. */
stepaf_status_t stepaf_join_as_host(const struct stepaf_join *join, int64_t deadline_ns,
                                    stepaf_boot_local_t **local_p);
stepaf_status_t stepaf_join_as_guest(const struct stepaf_join *join, int64_t deadline_ns,
                                     stepaf_boot_local_t **local_p);

/* ---- boot_join_socket.c: what both do ---- */

/* Words behind that a rank has not come: what ranks need to meet. */
const char *stepaf_join_who_meets(const struct stepaf_join *join);

/* STEPAF_ERR_BOOT: @a what has failed with errno @a why. */
stepaf_status_t stepaf_join_error(const struct stepaf_join *join, const char *what, int why);

/* The job's address; returns its length. */
socklen_t stepaf_join_address(const struct stepaf_join *join, struct sockaddr_un *address_p);

/* Whether the process at the other end is this user's. */
int stepaf_join_is_own_user(int fd);

/* Wait until one of @a n descriptors can be read: 1, or 0 after the deadline; -1: errno says why
 * that cannot be waited for. */
int stepaf_join_poll(struct pollfd *polled, int n, int64_t deadline_ns);
/* Wait until a descriptor can be read: 1, or else 0. */
int stepaf_join_readable(int fd, int64_t deadline_ns);

/* Say @a why there will be no job, or STEPAF_OK if that is NULL, with the files @a fds if there are
 * any. Without waiting: 0, or an errno if it cannot be said. The text is cut to what fits. Who has
 * gone meanwhile is missed later, by name. */
int stepaf_join_say(int fd, const stepaf_error_t *why, const int *fds);

/* Take what the other end says: its status; STEPAF_ERR_PEER_LOST if that is nothing, as of a
 * process that has ended; STEPAF_INPROGRESS if it has said nothing yet. */
stepaf_status_t stepaf_join_hear(int fd, struct stepaf_join_answer *answer_p);

#endif
