/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/copiers.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "base/time.h"

enum {
    LINE_BYTES = 64,
    IDLE_US = 100, /* for which a thread polls for copies before it sleeps */
    READS = 4,     /* of one copy: the caller may have finished its own */
    SPINS = 1000,  /* for a copy that a thread has begun: about 10 to 40 us */
    YIELDS = 100,  /* after the spins; then sleeps, for a thread of a lower class */
    SLEEP_NS = 20000
};

/* The word: flag bits, and the number of offers above them. */
#define ASLEEP ((uint32_t)1) /* some thread sleeps until the word changes */
#define STOP ((uint32_t)2)
#define OFFER ((uint32_t)4)

enum slot_state { FREE, OFFERED, TAKEN, DONE };

struct slot {
    _Alignas(LINE_BYTES) _Atomic uint8_t state; /* slot_state */
    struct stepaf_tcp_copy copy;
};

struct stepaf_tcp_copiers {
    struct slot slots[STEPAF_TCP_COPIES];
    _Alignas(LINE_BYTES) _Atomic uint32_t word;
    /* Used only by the caller. */
    _Alignas(LINE_BYTES) unsigned n_offered; /* since the last join: in the first slots */
    uint32_t n_offers;                       /* ever, times OFFER */
    uint64_t idle_ticks;
    pid_t process;
    unsigned n_threads;
    pthread_t threads[STEPAF_TCP_COPIERS_MAX];
};

static void run_send(struct stepaf_tcp_copy *copy)
{
    const struct msghdr message = {.msg_iov = copy->iov, .msg_iovlen = copy->n_iov};
    ssize_t sent = sendmsg(copy->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent < 0)
        copy->error = errno;
    else
        copy->bytes = (size_t)sent;
}

/* Read until the first read that returns less than there is space for. */
static void run_reads(struct stepaf_tcp_copy *copy)
{
    uint8_t *place = copy->iov->iov_base;
    size_t left = copy->iov->iov_len;

    for (unsigned i = 0; i < READS && left; i++) {
        size_t bytes = left < STEPAF_TCP_READ_BYTES ? left : STEPAF_TCP_READ_BYTES;
        struct iovec iov = {place, bytes};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t got = recvmsg(copy->fd, &message, MSG_DONTWAIT);
        if (got <= 0) {
            copy->error = got ? errno : 0;
            copy->over = !got;
            return;
        }
        copy->bytes += (size_t)got;
        place += got;
        left -= (size_t)got;
        if ((size_t)got < bytes)
            return;
    }
}

void stepaf_tcp_copy_run(struct stepaf_tcp_copy *copy)
{
    copy->bytes = 0;
    copy->error = 0;
    copy->over = false;
    if (copy->receives)
        run_reads(copy);
    else
        run_send(copy);
}

/* Do the copy offered in a slot, unless another thread does it. */
static bool run_slot(struct slot *slot)
{
    uint8_t offered = OFFERED;

    if (atomic_load_explicit(&slot->state, memory_order_relaxed) != OFFERED ||
        !atomic_compare_exchange_strong_explicit(&slot->state, &offered, TAKEN,
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    stepaf_tcp_copy_run(&slot->copy);
    atomic_store_explicit(&slot->state, DONE, memory_order_release);
    return true;
}

/* Sleep until the word is no longer @a word, or a little longer. */
static void sleep_until_offer(struct stepaf_tcp_copiers *copiers, uint32_t word)
{
    uint32_t asleep = word | ASLEEP;

    if (word == asleep || atomic_compare_exchange_strong(&copiers->word, &word, asleep))
        (void)syscall(SYS_futex, &copiers->word, FUTEX_WAIT_PRIVATE, asleep, NULL, NULL, 0);
}

static void *copier_main(void *arg)
{
    struct stepaf_tcp_copiers *copiers = arg;
    uint64_t since = stepaf_ticks(),
             idle_ticks = copiers->idle_ticks; /* copied: the caller writes to the same line */
    uint32_t seen = 0, word;

    /* An offer after the word was read changes the word. */
    while (!((word = atomic_load_explicit(&copiers->word, memory_order_acquire)) & STOP)) {
        if ((word & ~ASLEEP) != seen) {
            for (unsigned i = 0; i < STEPAF_TCP_COPIES; i++)
                (void)run_slot(&copiers->slots[i]);
            seen = word & ~ASLEEP;
            since = stepaf_ticks();
        } else if (stepaf_ticks() - since < idle_ticks) {
            stepaf_cpu_relax();
        } else {
            sleep_until_offer(copiers, word);
            since = stepaf_ticks();
        }
    }
    return NULL;
}

/* Change the word, and wake sleeping threads. */
static void change_word(struct stepaf_tcp_copiers *copiers, uint32_t word)
{
    if (__builtin_expect(atomic_exchange(&copiers->word, word) & ASLEEP, 0))
        (void)syscall(SYS_futex, &copiers->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Start @a n threads; return an errno if there are fewer. */
static int start_copiers(struct stepaf_tcp_copiers *copiers, unsigned n)
{
    int error = 0;

    while (copiers->n_threads < n && !error) {
        error = stepaf_thread_start(&copiers->threads[copiers->n_threads], copier_main, copiers);
        copiers->n_threads += !error;
    }
    return error;
}

/* The threads run on the cores that the calling thread may use. */
static void warn_of_one_core(unsigned n)
{
    cpu_set_t cpus;

    if (!sched_getaffinity(0, sizeof(cpus), &cpus) && CPU_COUNT(&cpus) == 1)
        stepaf_log_warn("STEPAF_TCP_THREADS=%u: this rank is bound to one core, which these "
                        "threads share: the rank is faster without them",
                        n);
}

struct stepaf_tcp_copiers *stepaf_tcp_copiers_start(unsigned n, uint64_t ticks_per_us)
{
    struct stepaf_tcp_copiers *copiers = aligned_alloc(LINE_BYTES, sizeof(*copiers));
    int error = ENOMEM;

    if (copiers) {
        memset(copiers, 0, sizeof(*copiers));
        copiers->idle_ticks = IDLE_US * ticks_per_us;
        copiers->process = getpid();
        warn_of_one_core(n);
        error = start_copiers(copiers, n);
    }
    if (error)
        stepaf_log_warn("STEPAF_TCP_THREADS=%u: only %u can be created: %s", n,
                        copiers ? copiers->n_threads : 0, strerror(error));
    if (copiers && copiers->n_threads)
        return copiers;
    free(copiers);
    return NULL;
}

void stepaf_tcp_copiers_end(struct stepaf_tcp_copiers *copiers)
{
    if (!copiers)
        return;
    if (copiers->process == getpid()) {
        change_word(copiers, STOP);
        for (unsigned i = 0; i < copiers->n_threads; i++)
            pthread_join(copiers->threads[i], NULL);
    }
    free(copiers);
}

const struct stepaf_tcp_copy *stepaf_tcp_copiers_offer(struct stepaf_tcp_copiers *copiers,
                                                       const struct stepaf_tcp_copy *copy)
{
    struct slot *slot = &copiers->slots[copiers->n_offered++];

    slot->copy = *copy;
    atomic_store_explicit(&slot->state, OFFERED, memory_order_release);
    copiers->n_offers += OFFER;
    change_word(copiers, copiers->n_offers);
    return &slot->copy;
}

/* Wait for a copy that a thread has begun. Its calls do not block, so the wait takes no longer than
 * they do, and needs no deadline; but the thread may have lost its core. */
static void await_slot(const struct slot *slot)
{
    const struct timespec sleep = {.tv_nsec = SLEEP_NS};

    for (unsigned tries = 0; atomic_load_explicit(&slot->state, memory_order_acquire) != DONE;
         tries++) {
        if (tries < SPINS)
            stepaf_cpu_relax();
        else if (tries < SPINS + YIELDS)
            sched_yield();
        else
            nanosleep(&sleep, NULL);
    }
}

void stepaf_tcp_copiers_join(struct stepaf_tcp_copiers *copiers)
{
    /* Threads begin with the first slot: the last one is most likely to be left. */
    for (unsigned i = copiers->n_offered; i--;)
        (void)run_slot(&copiers->slots[i]);
    for (unsigned i = 0; i < copiers->n_offered; i++) {
        await_slot(&copiers->slots[i]);
        atomic_store_explicit(&copiers->slots[i].state, FREE, memory_order_relaxed);
    }
    copiers->n_offered = 0;
}
