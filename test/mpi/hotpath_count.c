/* SPDX-License-Identifier: Apache-2.0 */
/* Stands before the C library's allocator and mutex, and counts. The library under test reaches
 * these definitions since the program comes first in the order of symbol look-up. */
#include "hotpath.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic long allocations, locks;
static _Atomic int counting;

bool hot_interposed(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
    return false;
#else
    return true;
#endif
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)

/* The C library's own entries: looking them up by name would allocate. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *ptr);

static inline void count(_Atomic long *counter)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

void *malloc(size_t bytes)
{
    count(&allocations);
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count(&allocations);
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    count(&allocations);
    return __libc_realloc(old, bytes);
}

void free(void *ptr)
{
    count(&allocations);
    __libc_free(ptr);
}

void *memalign(size_t alignment, size_t bytes)
{
    count(&allocations);
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    count(&allocations);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **ptr_p, size_t alignment, size_t bytes)
{
    count(&allocations);
    void *ptr = __libc_memalign(alignment, bytes);
    if (ptr == NULL)
        return ENOMEM;
    *ptr_p = ptr;
    return 0;
}

static int (*real_lock)(pthread_mutex_t *mutex);
static int (*real_trylock)(pthread_mutex_t *mutex);

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    count(&locks);
    if (real_lock == NULL)
        real_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    return real_lock(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    count(&locks);
    if (real_trylock == NULL)
        real_trylock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    return real_trylock(mutex);
}

#endif

/* The counters can be trusted only if they count: try each once. */
static void prove(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    void *_Atomic ptr;
    long before = atomic_load(&allocations);

    atomic_store(&counting, 1);
    atomic_store(&ptr, malloc(10));
    free(atomic_load(&ptr));
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    atomic_store(&counting, 0);
    HS_INT(atomic_load(&allocations) - before, ==, 2);
    HS_INT(atomic_load(&locks), ==, 1);
}

void hot_count_begin(void)
{
    prove();
    atomic_store(&allocations, 0);
    atomic_store(&locks, 0);
    syscall(HOT_MARK_CALL, HOT_MARK, 1);
    atomic_store(&counting, 1);
}

void hot_count_end(struct hot_counts *counts)
{
    atomic_store(&counting, 0);
    syscall(HOT_MARK_CALL, HOT_MARK, 0);
    counts->allocations = atomic_load(&allocations);
    counts->locks = atomic_load(&locks);
}
