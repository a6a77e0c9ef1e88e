/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that meet while some are slow, end, come twice, or take what is another's. */
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "boot/boot_advance.h"
#include "boot/control/socket.h"
#include "callers.h"

static const char secret[] = "known to all";

static void prepare_all(struct meet *meets, int n, int64_t timeout_us)
{
    meet_prepare(meets, n, timeout_us);
    for (int i = 0; i < n; i++)
        meets[i].secret = secret;
}

/* Others do not listen there, though their range of ports begins with it and they come first. */
static void the_port_of_rank_0_is_free(void)
{
    struct meet meets[3];

    prepare_all(meets, 3, MEET_LONG_US);
    meets[0].delay_us = 100000;
    for (int i = 0; i < 3; i++)
        snprintf(meets[i].ports, sizeof meets[i].ports, "%u-%u", meet_port, meet_port + 9);
    meet_run(meets, 3);
    for (int i = 0; i < 3; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

/* A process that would have waited a moment only has ended; the one in its place waits longer. */
static void the_dead_set_no_deadline(void)
{
    struct meet meets[3];

    prepare_all(meets, 3, MEET_LONG_US);
    meets[2].delay_us = 600000;
    meet_start(meets, 1);
    close(caller_arrive(secret, 1, 3, 300));
    meet_start(meets + 1, 2);
    meet_finish(meets, 3);
    for (int i = 0; i < 3; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

/* A rank that comes after all is over hears why, though a process too many came before it. */
static void late_comers_are_told(void)
{
    struct meet meets[3];

    prepare_all(meets, 3, MEET_LONG_US);
    meet_start(meets, 1);
    int first = caller_arrive(secret, 1, 3, 10000), second = caller_arrive(secret, 1, 3, 10000);
    meets[2].delay_us = 300000;
    meet_start(meets + 2, 1);
    meet_finish(meets + 2, 1);
    meet_finish(meets, 1);
    meet_expect(&meets[0], STEPAF_ERR_BOOT, "two processes are rank 1");
    meet_expect(&meets[2], STEPAF_ERR_BOOT, "two processes are rank 1");
    close(first);
    close(second);
}

/* Whoever says without a proof that it is a rank which is here is not blamed for one that is not. */
static void nobody_is_blamed_for_another(void)
{
    struct stepaf_control_opening wrong = caller_opening("guess", 1, STEPAF_CONTROL_VERSION);
    struct meet meets[4];

    prepare_all(meets, 4, MEET_SOME_US);
    meet_start(meets, 1);
    int here = caller_arrive(secret, 1, 4, 10000), stranger = caller_connect(meet_port);
    caller_send(stranger, &wrong, sizeof wrong);
    CU_ASSERT(caller_is_shown_out(stranger));
    close(caller_arrive(secret, 2, 4, 10000));
    meet_finish(meets, 1);
    meet_expect(&meets[0], STEPAF_ERR_TIMEOUT, "rank 2 was here and has ended");
    CU_ASSERT_PTR_NULL(strstr(meets[0].error.text, "secret"));
    close(here);
    close(stranger);
}

static _Thread_local struct {
    struct stepaf_control *control;
    int rank;
    enum stepaf_control_state state;
    int64_t us;
    bool is_over;
} stop;

/* Stand still once, as a process that is stopped, when a connection has come that far. */
static int64_t stand_still(void *arg)
{
    const struct stepaf_control_link *link = stop.control->links[stop.rank];

    (void)arg;
    if (!stop.is_over && link && link->state == stop.state) {
        stop.is_over = true;
        usleep((useconds_t)stop.us);
    }
    return 1000;
}

/* One has, in the middle of a greeting; it may be over before anybody can look. */
static _Atomic bool has_stopped;

/* The listener has closed the connection meanwhile: only the call has come to nothing. */
static stepaf_status_t exchange_slowly(struct meet *meet)
{
    int lost[3];

    if (meet->rank == 2) {
        stop.control = meet->boot.self;
        stop.rank = 1;
        stop.state = STEPAF_CONTROL_GREETING;
        stop.us = 2500000;
        stop.is_over = false;
        stepaf_boot_set_advance(stand_still, NULL);
    }
    stepaf_status_t status = meet_gather(meet, 0);
    stepaf_boot_set_advance(NULL, NULL);
    has_stopped = has_stopped || (meet->rank == 2 && stop.is_over);
    CU_ASSERT_EQUAL(meet->boot.lost(meet->boot.self, lost, 3), 0);
    return status;
}

static void *run_slowly(void *arg)
{
    struct meet *meet = arg;
    struct stepaf_env env = meet_env(meet);

    meet->status = stepaf_boot_tcp(&env, &meet->boot);
    if (meet->status == STEPAF_OK)
        meet->status = exchange_slowly(meet);
    meet->error = *stepaf_last_error();
    meet->boot.close(meet->boot.self);
    return NULL;
}

static void slow_is_not_lost(void)
{
    enum { TRIES = 50 };
    struct meet meets[3];

    for (int tries = 0; tries < TRIES && !has_stopped; tries++) {
        prepare_all(meets, 3, MEET_LONG_US);
        for (int i = 0; i < 3; i++)
            CU_ASSERT_EQUAL_FATAL(pthread_create(&meets[i].thread, NULL, run_slowly, &meets[i]), 0);
        meet_finish(meets, 3);
        for (int i = 0; i < 3; i++)
            meet_expect(&meets[i], STEPAF_OK, "");
    }
    CU_ASSERT(has_stopped);
}

/* Rank 0 meets all, and ends. */
static void *meet_and_die(void *arg)
{
    struct meet *meet = arg;
    struct stepaf_env env = meet_env(meet);

    meet->status = stepaf_boot_tcp(&env, &meet->boot);
    struct stepaf_control *control = meet->boot.self;
    pthread_mutex_lock(&control->lock);
    meet->status = stepaf_control_meet_host(control, stepaf_monotonic_ns() + MEET_LONG_US * 1000LL);
    for (int rank = 0; rank < meet->size; rank++)
        if (control->links[rank])
            stepaf_control_link_close(control->links[rank], NULL, 0);
    pthread_mutex_unlock(&control->lock);
    meet->boot.close(meet->boot.self);
    return NULL;
}

/* Rank 1, which finds the table and the end at once. */
static void *find_both(void *arg)
{
    struct meet *meet = arg;
    struct stepaf_env env = meet_env(meet);

    meet->status = stepaf_boot_tcp(&env, &meet->boot);
    stop.control = meet->boot.self;
    stop.rank = 0;
    stop.state = STEPAF_CONTROL_UP;
    stop.us = 500000;
    stepaf_boot_set_advance(stand_still, NULL);
    meet->status = meet_gather(meet, 0);
    stepaf_boot_set_advance(NULL, NULL);
    meet->error = *stepaf_last_error();
    meet->boot.close(meet->boot.self);
    return NULL;
}

static void an_end_right_behind_the_table(void)
{
    struct meet meets[3];
    int64_t begun_ns = stepaf_monotonic_ns();

    prepare_all(meets, 3, MEET_LONG_US);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&meets[0].thread, NULL, meet_and_die, &meets[0]), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&meets[1].thread, NULL, find_both, &meets[1]), 0);
    nanosleep(&(struct timespec){0, 200000000}, NULL);
    meet_start(meets + 2, 1);
    meet_finish(meets, 3);
    for (int i = 1; i < 3; i++) {
        meet_expect(&meets[i], STEPAF_ERR_PEER_LOST, "world rank 0 has ended");
        CU_ASSERT_EQUAL(meets[i].error.peer_world_rank, 0);
    }
    CU_ASSERT(stepaf_monotonic_ns() - begun_ns < MEET_LONG_US * 500LL);
}

static int64_t give_up(void *arg)
{
    (void)arg;
    return -1;
}

/* A wait that was given up says nothing of the next, and blames nobody. */
static stepaf_status_t wait_twice(struct meet *meet)
{
    stepaf_status_t status = meet_gather(meet, 0); /* the other has come out of its barriers */

    if (status != STEPAF_OK)
        return status;
    if (meet->rank == 0) {
        stepaf_boot_set_advance(give_up, NULL);
        CU_ASSERT_EQUAL(meet_barrier(meet, STEPAF_GROUP_FFN, 0, 1), STEPAF_ERR_TIMEOUT);
        UNIT_CONTAINS(stepaf_last_error()->text, "world rank 0 has given up");
        CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, 0);
        stepaf_boot_set_advance(NULL, NULL);
    } else {
        nanosleep(&(struct timespec){0, 300000000}, NULL);
    }
    return meet_gather(meet, 0);
}

static void giving_up_is_for_once(void)
{
    struct meet meets[2];

    prepare_all(meets, 2, MEET_LONG_US);
    for (int i = 0; i < 2; i++)
        meets[i].then = wait_twice;
    meet_run(meets, 2);
    for (int i = 0; i < 2; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

static _Atomic bool watches;

static void *look_for_lost(void *arg)
{
    const stepaf_boot_t *boot = arg;
    int lost[2];

    while (watches) {
        (void)boot->lost(boot->self, lost, 2);
        sched_yield();
    }
    return NULL;
}

/* A thread that looks for lost ranks, as the progress thread does, takes nothing from one that waits:
 * that one would sleep for 100 ms more. */
static stepaf_status_t wait_beside(struct meet *meet)
{
    enum { TIMES = 200, PAUSE_NS = 2000000, WAKES_NS = 60000000, FEW = 2 };
    stepaf_status_t status = STEPAF_OK;
    pthread_t watcher;
    int n_late = 0;

    if (meet->rank == 0) {
        watches = true;
        CU_ASSERT_EQUAL_FATAL(pthread_create(&watcher, NULL, look_for_lost, &meet->boot), 0);
    }
    for (int i = 0; i < TIMES && status == STEPAF_OK; i++) {
        int64_t began_ns = stepaf_monotonic_ns();
        if (meet->rank == 1)
            nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
        status = meet_barrier(meet, STEPAF_GROUP_WORLD, 0, 1);
        n_late += stepaf_monotonic_ns() - began_ns > WAKES_NS;
    }
    CU_ASSERT_TRUE(n_late <= FEW); /* as for other work of the machine */
    if (meet->rank == 0) {
        watches = false;
        pthread_join(watcher, NULL);
    }
    return status;
}

static void who_waits_is_woken(void)
{
    struct meet meets[2];

    prepare_all(meets, 2, MEET_LONG_US);
    for (int i = 0; i < 2; i++)
        meets[i].then = wait_beside;
    meet_run(meets, 2);
    for (int i = 0; i < 2; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

/* What no rank can mean. */
static stepaf_status_t ask_too_much(struct meet *meet)
{
    static const int far[][2] = {{0, 2}, {0, 100000000}, {0, -1}};
    size_t offsets[3];
    void *all = NULL;

    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        CU_ASSERT_EQUAL(
            meet->boot.barrier(meet->boot.self, STEPAF_GROUP_WORLD, far[i], 2, meet->timeout_us),
            STEPAF_ERR_INVALID);
    if (meet->rank == 0)
        CU_ASSERT_EQUAL(
            meet->boot.allgather(meet->boot.self, "", SIZE_MAX - 3, &all, offsets, MEET_LONG_US),
            STEPAF_ERR_LIMIT);
    return STEPAF_OK;
}

static void too_much_is_refused(void)
{
    struct meet meets[2];

    prepare_all(meets, 2, MEET_LONG_US);
    for (int i = 0; i < 2; i++)
        meets[i].then = ask_too_much;
    meet_run(meets, 2);
    for (int i = 0; i < 2; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

/* As long as a child that was just forked has a copy of a socket, epoll could go on to tell of it. */
static void what_is_closed_is_not_told_of(void)
{
    struct stepaf_control control = {.listener = -1};
    int fds[2], copy;
    struct epoll_event event;

    control.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    copy = dup(fds[0]);
    struct stepaf_control_link *link =
        stepaf_control_link_new(&control, fds[0], STEPAF_CONTROL_STRANGER);
    CU_ASSERT_PTR_NOT_NULL_FATAL(link);
    stepaf_control_link_free(link);
    CU_ASSERT_EQUAL(send(fds[1], "x", 1, MSG_NOSIGNAL), 1);
    CU_ASSERT_EQUAL(epoll_wait(control.epoll_fd, &event, 1, 0), 0);
    close(copy);
    close(fds[1]);
    close(control.epoll_fd);
}

/* It has answered, and leaves before it is welcome: that it leaves is all that it may say. */
static void who_leaves_says_so(void)
{
    struct stepaf_control_frame token = {.type = STEPAF_CONTROL_TOKEN},
                                bye = {.type = STEPAF_CONTROL_BYE}, heard = {0};
    struct stepaf_control control = {.listener = -1};
    int fds[2];

    control.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct stepaf_control_link *link =
        stepaf_control_link_new(&control, fds[0], STEPAF_CONTROL_ANSWERED);
    CU_ASSERT_PTR_NOT_NULL_FATAL(link);
    stepaf_control_send(link, &token, NULL);
    CU_ASSERT_EQUAL(recv(fds[1], &heard, sizeof heard, MSG_DONTWAIT), -1);
    stepaf_control_send(link, &bye, NULL);
    CU_ASSERT_EQUAL(recv(fds[1], &heard, sizeof heard, MSG_DONTWAIT), sizeof heard);
    CU_ASSERT_EQUAL(heard.type, STEPAF_CONTROL_BYE);
    stepaf_control_link_free(link);
    close(fds[1]);
    close(control.epoll_fd);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the port of rank 0 is free", the_port_of_rank_0_is_free},
        {"the dead set no deadline", the_dead_set_no_deadline},
        {"late comers are told", late_comers_are_told},
        {"nobody is blamed for another", nobody_is_blamed_for_another},
        {"slow is not lost", slow_is_not_lost},
        {"an end right behind the table", an_end_right_behind_the_table},
        {"giving up is for once", giving_up_is_for_once},
        {"who waits is woken", who_waits_is_woken},
        {"too much is refused", too_much_is_refused},
        {"what is closed is not told of", what_is_closed_is_not_told_of},
        {"who leaves says so", who_leaves_says_so},
        CU_TEST_INFO_NULL,
    };

    meet_forget_launchers();
    return unit_run(tests);
}
