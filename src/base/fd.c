/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/quiet.h"

enum { FIRST_OWN = STDERR_FILENO + 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned n_users;
static bool is_held[FIRST_OWN]; /* closed by the program, occupied by the library */

/* Between begin and end a thread is not canceled: what has begun would never end. */
static _Thread_local unsigned depth;
static _Thread_local int cancel_state;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void close_stand_ins(void)
{
    for (int fd = 0; fd < FIRST_OWN; fd++) {
        if (is_held[fd])
            close(fd);
        is_held[fd] = false;
    }
}

static void lock_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* The threads that held the lock do not exist in the child. */
static void unlock_in_child(void)
{
    close_stand_ins();
    n_users = 0;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(lock_before_fork, unlock_after_fork, unlock_in_child);
}

void stepaf_fd_begin(void)
{
    int fd, error = errno;

    if (!depth++)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    n_users++;
    while ((fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0 && fd < FIRST_OWN)
        is_held[fd] = true;
    if (fd >= 0)
        close(fd);
    pthread_mutex_unlock(&lock);
    errno = error;
}

int stepaf_fd_end(int fd)
{
    int error = errno;

    pthread_mutex_lock(&lock);
    if (n_users && !--n_users)
        close_stand_ins();
    pthread_mutex_unlock(&lock);
    if (fd >= 0 && fd < FIRST_OWN) {
        close(fd);
        fd = -1;
        error = EMFILE;
    }
    if (!--depth)
        pthread_setcancelstate(cancel_state, &cancel_state);
    errno = error;
    return fd;
}

int stepaf_fd_open(const char *path, int flags)
{
    stepaf_fd_begin();
    return stepaf_fd_end(open(path, flags | O_CLOEXEC, 0644));
}

int stepaf_fd_resize(int fd, size_t bytes)
{
    struct stepaf_quiet quiet;

    stepaf_quiet_begin(&quiet);
    int failed = ftruncate(fd, (off_t)bytes);
    stepaf_quiet_end(&quiet);
    return failed;
}
