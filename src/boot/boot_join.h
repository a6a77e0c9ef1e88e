/* SPDX-License-Identifier: Apache-2.0 */
/* The local bootstrap for ranks that are not forked by one process: they are started one by one on
 * one machine, and each gets its rank and the number of ranks. */
#ifndef STEPAF_BOOT_BOOT_JOIN_H
#define STEPAF_BOOT_BOOT_JOIN_H

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <stepaf/boot.h>

#include "base/env_text.h"
#include "boot/boot_local.h"
#include "settings/settings.h"

/* Fill *boot_p according to STEPAF_LOCAL_RANK, STEPAF_LOCAL_SIZE and STEPAF_LOCAL_JOB. Does not
 * block: the ranks find each other in their first exchange. Returns STEPAF_ERR_SETTING if the
 * settings do not give a place in a job, or STEPAF_ERR_NO_MEMORY; *boot_p is then unchanged. */
stepaf_status_t stepaf_boot_join(const struct stepaf_env *env, stepaf_boot_t *boot_p);

/* How the ranks find each other. Rank 0 listens at a Unix socket with the job's name. The other
 * ranks say there who they are, receive the files that all ranks share, and confirm that they have
 * taken the files. Once all have confirmed, each rank is told to go on. Until then, the end of a
 * connection means that the process has ended or has stopped waiting, and all ranks are notified.
 * From then on, locks on the file show who lives (boot_local_watch.c). The name is an abstract one:
 * it disappears with rank 0, whatever ends that process, so nothing can be left behind. Every user
 * of the machine can connect to such a name, or take it first; therefore both sides ask the kernel
 * which user owns the process at the other end. */
struct stepaf_join {
    char job[STEPAF_ENV_NAME_MAX + 1]; /* if not set, derived from session and PID namespace */
    bool is_named;                     /* STEPAF_LOCAL_JOB is set */
    int rank;
    int size;
};

/* LAYOUT changes with struct shared, so that no rank maps the struct of another version, and with
 * the messages. An answer keeps its size, so that a process of another version can read it. */
enum { STEPAF_JOIN_MAGIC = 0x53544a31, STEPAF_JOIN_LAYOUT = 3, STEPAF_JOIN_REASON_MAX = 236 };

struct stepaf_join_hello {
    uint32_t magic;
    uint32_t layout;
    int32_t rank;
    int32_t size;
};

/* From rank 0: STEPAF_OK with the files, then STEPAF_OK without files when all ranks are there; or,
 * at any time, why there will be no job. From the other ranks: STEPAF_OK once they have the files,
 * or why they do not have them. */
struct stepaf_join_answer {
    uint32_t magic;
    int32_t status;
    char reason[STEPAF_JOIN_REASON_MAX]; /* zero-terminated once received */
    int32_t peer;                        /* 1 + the rank whose failure it is; 0: none */
};

/* Get what all ranks share, as rank 0 (boot_join_host.c) or as another rank (boot_join_guest.c).
 * Returns STEPAF_ERR_TIMEOUT after @a deadline_ns, naming a missing rank; STEPAF_ERR_PEER_LOST,
 * naming a rank that was there and has ended; STEPAF_ERR_BOOT; STEPAF_ERR_MISMATCH;
 * STEPAF_ERR_NO_MEMORY. */
stepaf_status_t stepaf_join_as_host(const struct stepaf_join *join, int64_t deadline_ns,
                                    stepaf_boot_local_t **local_p);
stepaf_status_t stepaf_join_as_guest(const struct stepaf_join *join, int64_t deadline_ns,
                                     stepaf_boot_local_t **local_p);

/* ---- boot_join_socket.c: shared by both ---- */

/* Return the text that follows the message that a rank has not arrived: what ranks need to meet. */
const char *stepaf_join_who_meets(const struct stepaf_join *join);

/* Set and return STEPAF_ERR_BOOT: @a what has failed with errno @a why. */
stepaf_status_t stepaf_join_error(const struct stepaf_join *join, const char *what, int why);

/* Write the job's address; return its length. */
socklen_t stepaf_join_address(const struct stepaf_join *join, struct sockaddr_un *address_p);

/* Return whether the process at the other end belongs to this user. */
int stepaf_join_is_own_user(int fd);

/* Wait until one of @a n file descriptors can be read. Returns 1, or 0 after the deadline, or -1 if
 * polling fails, with errno. */
int stepaf_join_poll(struct pollfd *polled, int n, int64_t deadline_ns);
/* Wait until a file descriptor can be read. Returns 1, otherwise 0. */
int stepaf_join_readable(int fd, int64_t deadline_ns);

/* Send @a why there will be no job, or STEPAF_OK if @a why is NULL, with the files @a fds if there
 * are any. Does not wait. Returns 0, or an errno if the answer cannot be sent. The text is cut to
 * what fits. A rank that has ended meanwhile is found missing later, by its number. */
int stepaf_join_say(int fd, const stepaf_error_t *why, const int *fds);

/* Receive the other end's answer; return its status. Returns STEPAF_ERR_PEER_LOST if the connection
 * has ended, as that of a process that has ended; STEPAF_INPROGRESS if no answer has arrived
 * yet. */
stepaf_status_t stepaf_join_hear(int fd, struct stepaf_join_answer *answer_p);

#endif
