/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1 /* dup3 */

#include "base/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"

enum { WORD_BITS = 64 };

/* The descriptors, a bit for each number. fork() takes the lock, so that a child finds all of them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *bits;
static size_t n_words, n_descriptors;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int trouble; /* errno; 0: fork() calls the handlers */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* Only what a signal handler may call. */
static void in_child(void)
{
    int nothing = -1;

    for (size_t word = 0; word < n_words; word++) {
        for (uint64_t left = bits[word]; left; left &= left - 1) {
            int fd = (int)(word * WORD_BITS) + __builtin_ctzll(left);
            if (nothing < 0)
                nothing = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
            if (nothing < 0 || dup3(nothing, fd, O_CLOEXEC) < 0)
                close(fd);
        }
        bits[word] = 0; /* the numbers are the child's: its own children keep what it has there */
    }
    n_descriptors = 0;
    if (nothing >= 0)
        close(nothing);
    pthread_mutex_unlock(&lock);
}

static void set_up(void)
{
    trouble = pthread_atfork(before_fork, after_fork, in_child);
}

void stepaf_fork_begin(void)
{
    stepaf_fd_begin();
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
}

/* 0, or an errno. */
static int add_descriptor(int fd)
{
    size_t word = (size_t)fd / WORD_BITS;

    if (trouble)
        return trouble;
    if (word >= n_words) {
        uint64_t *more = realloc(bits, (word + 1) * sizeof(*more));
        if (!more)
            return ENOMEM;
        memset(more + n_words, 0, (word + 1 - n_words) * sizeof(*more));
        bits = more;
        n_words = word + 1;
    }
    bits[word] |= 1ull << fd % WORD_BITS;
    n_descriptors++;
    return 0;
}

int stepaf_fork_end(int fd)
{
    bool is_ours = fd > STDERR_FILENO; /* or stepaf_fd_end will not have it */
    int error = fd < 0 ? errno : is_ours ? add_descriptor(fd) : 0;

    if (fd >= 0 && error) {
        close(fd);
        fd = -1;
    }
    pthread_mutex_unlock(&lock);
    if (error)
        errno = error;
    return stepaf_fd_end(fd);
}

void stepaf_fork_close(int fd)
{
    size_t word = (size_t)fd / WORD_BITS;

    pthread_mutex_lock(&lock);
    if (word < n_words && bits[word] & 1ull << fd % WORD_BITS) {
        bits[word] &= ~(1ull << fd % WORD_BITS);
        n_descriptors--;
    }
    close(fd);
    if (!n_descriptors) {
        free(bits);
        bits = NULL;
        n_words = 0;
    }
    pthread_mutex_unlock(&lock);
}
