/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot_tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/boot_local.h"
#include "boot/control/control.h"

enum { FAREWELL_NS = 200000000 }; /* for what is still to be sent */

static stepaf_status_t meet_all(struct stepaf_control *control, int64_t deadline_ns)
{
    if (control->has_met || control->place.size == 1)
        return STEPAF_OK;
    return control->place.rank == 0 ? stepaf_control_meet_host(control, deadline_ns)
                                    : stepaf_control_meet_guest(control, deadline_ns);
}

static stepaf_status_t tcp_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                     size_t *offsets_p, int64_t timeout_us)
{
    int64_t deadline_ns = stepaf_deadline_ns(timeout_us);
    struct stepaf_control *control = self;

    pthread_mutex_lock(&control->lock);
    control->gives_up = false;
    stepaf_status_t status = stepaf_control_raise(control, STEPAF_CONTROL_EXCHANGE);
    if (status == STEPAF_OK)
        status = meet_all(control, stepaf_boot_local_meeting(deadline_ns));
    if (status == STEPAF_OK)
        status = stepaf_control_allgather(control, data, bytes, all_p, offsets_p, deadline_ns);
    pthread_mutex_unlock(&control->lock);
    return status;
}

static stepaf_status_t tcp_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                   int64_t timeout_us)
{
    int64_t deadline_ns = stepaf_deadline_ns(timeout_us);
    int channel = STEPAF_CONTROL_EXCHANGE + 1 + (int)group;
    struct stepaf_control *control = self;

    if ((unsigned)group > STEPAF_GROUP_FFN ||
        !stepaf_boot_local_are_ranks(ranks, n, control->place.size))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_BARRIER,
                                "tcp bootstrap: no group %d of %d ranks", (int)group, n);
    pthread_mutex_lock(&control->lock);
    control->gives_up = false;
    if (!control->has_met && control->place.size > 1) {
        pthread_mutex_unlock(&control->lock);
        return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_BARRIER,
                                "tcp bootstrap: no barrier is possible before the first exchange");
    }
    stepaf_status_t status = stepaf_control_raise(control, channel);
    if (status == STEPAF_OK)
        status = stepaf_control_barrier(control, channel, ranks, n, deadline_ns);
    pthread_mutex_unlock(&control->lock);
    return status;
}

/* If another thread holds the lock, that thread notices as much. If a thread sleeps until something
 * arrives, leave the pumping to it: what is taken here would not wake it. */
static int tcp_lost(void *self, int *ranks_p, int capacity)
{
    struct stepaf_control *control = self;
    int n = 0;

    if (pthread_mutex_trylock(&control->lock) != 0)
        return 0;
    if (control->has_met && !atomic_load(&control->waiters.n_asleep))
        (void)stepaf_control_pump(control);
    for (int rank = 0; rank < control->place.size && n < capacity; rank++) {
        if (control->fates[rank] != STEPAF_CONTROL_IS_LOST)
            continue;
        control->fates[rank] |= STEPAF_CONTROL_IS_REPORTED;
        ranks_p[n++] = rank;
    }
    pthread_mutex_unlock(&control->lock);
    return n;
}

/* Send a goodbye, and make sure that it can be delivered: if a socket is closed with unread data,
 * the system discards what is in flight to the other end. */
static void take_leave(struct stepaf_control_link *link, int64_t limit_ns)
{
    struct stepaf_control_frame bye = {.type = STEPAF_CONTROL_BYE};
    uint8_t sink[4096];

    stepaf_control_send(link, &bye, NULL);
    while (link->fd >= 0 && stepaf_control_has_unsent(link) && stepaf_monotonic_ns() < limit_ns) {
        struct pollfd one = {.fd = link->fd, .events = POLLOUT};
        (void)poll(&one, 1, 1);
        stepaf_control_flush(link);
    }
    if (!stepaf_control_is_proven(link) || shutdown(link->fd, SHUT_WR) != 0)
        return;
    while (recv(link->fd, sink, sizeof sink, MSG_DONTWAIT) == (ssize_t)sizeof sink &&
           stepaf_monotonic_ns() < limit_ns)
        continue;
}

static void tcp_close(void *self)
{
    struct stepaf_control *control = self;
    int64_t limit_ns = stepaf_monotonic_ns() + FAREWELL_NS;

    stepaf_control_shut_door(control);
    for (int rank = 0; rank < control->place.size; rank++)
        if (control->links[rank])
            take_leave(control->links[rank], limit_ns);
    for (int rank = 0; rank < control->place.size; rank++)
        stepaf_control_link_free(control->links[rank]);
    while (control->arrivals) {
        struct stepaf_control_link *link = control->arrivals;
        control->arrivals = link->next;
        stepaf_control_link_free(link);
    }
    if (control->epoll_fd >= 0)
        stepaf_fork_close(control->epoll_fd);
    pthread_mutex_destroy(&control->lock);
    stepaf_proof_forget(control->place.key, sizeof control->place.key);
    free(control->entries);
    free(control->links);
    free(control->fates);
    free(control);
}

static struct stepaf_control *new_control(const struct stepaf_place *place)
{
    struct stepaf_control *control = calloc(1, sizeof *control);

    if (!control)
        return NULL;
    control->place = *place;
    control->listener = -1;
    control->refused_rank = -1;
    control->links = calloc((size_t)place->size, sizeof(struct stepaf_control_link *));
    control->fates = calloc((size_t)place->size, 1);
    if (control->links && control->fates)
        return control;
    free(control->links);
    free(control->fates);
    free(control);
    return NULL;
}

stepaf_status_t stepaf_boot_tcp(const struct stepaf_env *env, stepaf_boot_t *boot_p)
{
    char host_name[STEPAF_PLACE_HOST_MAX + 1] = "";
    struct stepaf_place place;

    (void)gethostname(host_name, sizeof host_name - 1);
    stepaf_status_t status = stepaf_place_find(env, host_name, &place);
    if (status != STEPAF_OK)
        return status;
    struct stepaf_control *control = new_control(&place);
    stepaf_proof_forget(place.key, sizeof place.key);
    if (!control)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT,
                                "tcp bootstrap: no memory for %d ranks", place.size);
    pthread_mutex_init(&control->lock, NULL);
    stepaf_fork_begin();
    control->epoll_fd = stepaf_fork_end(epoll_create1(EPOLL_CLOEXEC));
    if (control->epoll_fd < 0) {
        status = stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT, "tcp bootstrap: %s",
                                  stepaf_why(errno));
        tcp_close(control);
        return status;
    }
    *boot_p = (stepaf_boot_t){
        .name = "tcp",
        .self = control,
        .rank = place.rank,
        .size = place.size,
        .app_number = -1,
        .allgather = tcp_allgather,
        .barrier = tcp_barrier,
        .close = tcp_close,
        .lost = tcp_lost,
    };
    return STEPAF_OK;
}
