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
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum { WORD_BITS = 64 };

/* The descriptors, a bit for each number. fork() takes the lock, so that a child finds all of
 * them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *bits;
static size_t n_words, n_descriptors;
static const char *unmapped; /* see stepaf_fork_unmap */

/* Those that a library may have closed by now, with what the number stood for. */
struct fork_file {
    int fd;
    dev_t device;
    ino_t inode;
};
static struct fork_file *files;
static size_t n_files;

static int cancel_state; /* of the thread that has the lock in fork(), where it is not canceled */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int trouble; /* errno; 0: fork() calls the handlers */

static void before_fork(void)
{
    int before;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&lock);
    cancel_state = before;
}

static void after_fork(void)
{
    int before = cancel_state;

    pthread_mutex_unlock(&lock);
    pthread_setcancelstate(before, &before);
}

/* Take a number off *@a text, which is on a line of /proc/self/maps. */
static uintptr_t take_hex(const char **text)
{
    uintptr_t value = 0;

    for (;; (*text)++) {
        char c = **text;
        if (c >= '0' && c <= '9')
            value = value * 16 + (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* "7f12-7f13 rw-s 00000000 00:05 123   /dev/infiniband/uverbs0" */
static void unmap_line(const char *line)
{
    const char *name = strchr(line, '/');
    uintptr_t from = take_hex(&line);

    if (*line != '-' || !name || strncmp(name, unmapped, strlen(unmapped)) != 0)
        return;
    line++;
    uintptr_t to = take_hex(&line);
    (void)munmap((void *)from, to - from); /* NOLINT(performance-no-int-to-ptr) */
}

/* By one look after another, since the list changes as it is read: lines that do not fit are no
 * files'. */
static void unmap_all(void)
{
    char text[1024];
    size_t used = 0;
    ssize_t n;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    while ((n = read(fd, text + used, sizeof(text) - 1 - used)) > 0) {
        char *line = text, *end;
        text[used + (size_t)n] = '\0';
        for (; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            unmap_line(line);
        }
        used = strlen(line);
        if (used >= sizeof(text) - 1)
            used = 0; /* a name that long is none of these */
        memmove(text, line, used);
    }
    close(fd);
}

/* Make a number one of nothing. */
static void give_up(int fd, int *nothing)
{
    if (*nothing < 0)
        *nothing = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (*nothing < 0 || dup3(*nothing, fd, O_CLOEXEC) < 0)
        close(fd);
}

static bool is_still_it(const struct fork_file *file)
{
    struct stat facts;

    return !fstat(file->fd, &facts) && facts.st_dev == file->device && facts.st_ino == file->inode;
}

/* Only what a signal handler may call. */
static void in_child(void)
{
    int nothing = -1;

    if (unmapped)
        unmap_all();

    for (size_t word = 0; word < n_words; word++) {
        for (uint64_t left = bits[word]; left; left &= left - 1)
            give_up((int)(word * WORD_BITS) + __builtin_ctzll(left), &nothing);
        bits[word] = 0; /* the numbers are the child's: its own children keep what it has there */
    }
    n_descriptors = 0;
    for (size_t i = 0; i < n_files; i++)
        if (is_still_it(&files[i]))
            give_up(files[i].fd, &nothing);
    n_files = 0;
    if (nothing >= 0)
        close(nothing);
    after_fork();
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

int stepaf_fork_add(int fd)
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
    n_descriptors += !(bits[word] & 1ull << fd % WORD_BITS);
    bits[word] |= 1ull << fd % WORD_BITS;
    return 0;
}

int stepaf_fork_end(int fd)
{
    bool is_ours = fd > STDERR_FILENO; /* or stepaf_fd_end will not have it */
    int error = fd < 0 ? errno : is_ours ? stepaf_fork_add(fd) : 0;

    if (fd >= 0 && error) {
        close(fd);
        fd = -1;
    }
    pthread_mutex_unlock(&lock);
    if (error)
        errno = error;
    return stepaf_fd_end(fd);
}

int stepaf_fork_add_file(int fd)
{
    struct stat facts;
    int error = 0;

    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    struct fork_file *more = realloc(files, (n_files + 1) * sizeof(*more));
    if (more)
        files = more;
    if (!more || trouble)
        error = more ? trouble : ENOMEM;
    else if (fstat(fd, &facts))
        error = errno;
    else
        files[n_files++] = (struct fork_file){fd, facts.st_dev, facts.st_ino};
    pthread_mutex_unlock(&lock);
    return error;
}

/* Forget the file with this number and inode; 0: all with the number. */
static void forget_file(int fd, uint64_t inode)
{
    size_t kept = 0;

    for (size_t i = 0; i < n_files; i++)
        if (files[i].fd != fd || (inode && files[i].inode != inode))
            files[kept++] = files[i];
    n_files = kept;
    if (!n_files) {
        free(files);
        files = NULL;
    }
}

/* The lock is held. */
static void forget_descriptor(int fd)
{
    size_t word = (size_t)fd / WORD_BITS;

    forget_file(fd, 0);
    if (word < n_words && bits[word] & 1ull << fd % WORD_BITS) {
        bits[word] &= ~(1ull << fd % WORD_BITS);
        n_descriptors--;
    }
    if (!n_descriptors) {
        free(bits);
        bits = NULL;
        n_words = 0;
    }
}

void stepaf_fork_forget(int fd)
{
    pthread_mutex_lock(&lock);
    forget_descriptor(fd);
    pthread_mutex_unlock(&lock);
}

void stepaf_fork_forget_file(int fd, uint64_t inode)
{
    pthread_mutex_lock(&lock);
    forget_file(fd, inode);
    pthread_mutex_unlock(&lock);
}

void stepaf_fork_unmap(const char *prefix)
{
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    unmapped = prefix;
    pthread_mutex_unlock(&lock);
}

void stepaf_fork_close(int fd)
{
    int before; /* a thread that is canceled in close() would keep the lock */

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&lock);
    close(fd);
    forget_descriptor(fd);
    pthread_mutex_unlock(&lock);
    pthread_setcancelstate(before, &before);
}
