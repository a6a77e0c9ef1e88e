/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1 /* tdestroy */

#include "starve.h"

#include <search.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of which few are taken at a time. Each trial is a process that touches most of them: so they are
 * few pages. */
enum { PLACES = 1 << 12 };

static struct {
    void *at;        /* NULL: free; what was freed stays, with number 0, until it is taken again */
    uint64_t number; /* of the allocation */
} places[PLACES];

static struct {
    atomic_flag lock;
    bool counts;
    bool lasting;
    bool struck;
    uint64_t n;
    uint64_t nth;
    uint64_t n_calls;
    uint64_t nth_call;
    int64_t n_nodes;   /* of trees, which the C library allocates */
    uint32_t n_places; /* taken */
} state = {.lock = ATOMIC_FLAG_INIT};

/* What the linker makes of malloc and the others: calls come to _wrap_, and what was meant is
 * _real_. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
void *__real_tsearch(const void *key, void **root, __compar_fn_t compare);
void *__real_tdelete(const void *key, void **root, __compar_fn_t compare);
void __real_tdestroy(void *root, __free_fn_t free_key);
void *__wrap_tsearch(const void *key, void **root, __compar_fn_t compare);
void *__wrap_tdelete(const void *key, void **root, __compar_fn_t compare);
void __wrap_tdestroy(void *root, __free_fn_t free_key);

static void enter(void)
{
    while (atomic_flag_test_and_set_explicit(&state.lock, memory_order_acquire)) {
    }
}

static void leave(void)
{
    atomic_flag_clear_explicit(&state.lock, memory_order_release);
}

/* The number of the next allocation; 0: not counted. */
static uint64_t next(bool *fails_p)
{
    enter();
    uint64_t number = state.counts ? ++state.n : 0;
    *fails_p =
        number && state.nth && (number == state.nth || (state.lasting && number > state.nth));
    state.struck = state.struck || *fails_p;
    leave();
    return number;
}

static uint32_t place_of(const void *memory)
{
    return (uint32_t)((uintptr_t)memory >> 4) * 2654435761u % PLACES;
}

static void *note(void *memory, uint64_t number)
{
    uint32_t i = place_of(memory);

    if (!memory || !number)
        return memory;
    enter();
    if (++state.n_places == PLACES)
        abort();
    while (places[i].number)
        i = (i + 1) % PLACES;
    places[i].at = memory;
    places[i].number = number;
    leave();
    return memory;
}

static void forget(const void *memory)
{
    enter();
    uint32_t i = place_of(memory);
    for (uint32_t n = 0; memory && n < PLACES && places[i].at; n++, i = (i + 1) % PLACES)
        if (places[i].at == memory && places[i].number) {
            places[i].number = 0;
            state.n_places--;
        }
    leave();
}

void *__wrap_malloc(size_t bytes)
{
    bool fails;
    uint64_t number = next(&fails);

    return fails ? NULL : note(__real_malloc(bytes), number);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    bool fails;
    uint64_t number = next(&fails);

    return fails ? NULL : note(__real_calloc(n, bytes), number);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    bool fails;
    uint64_t number = next(&fails);

    return fails ? NULL : note(__real_aligned_alloc(alignment, bytes), number);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    bool fails;
    uint64_t number = next(&fails);

    if (fails)
        return NULL;
    forget(old);
    return note(__real_realloc(old, bytes), number);
}

char *__wrap_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = __wrap_malloc(bytes);

    return copy ? memcpy(copy, text, bytes) : NULL;
}

void __wrap_free(void *memory)
{
    forget(memory);
    __real_free(memory);
}

static void add_nodes(int64_t n)
{
    enter();
    if (state.counts)
        state.n_nodes += n;
    leave();
}

/* A node of a tree is an allocation, though the C library's own. */
void *__wrap_tsearch(const void *key, void **root, __compar_fn_t compare)
{
    bool is_new = !tfind(key, root, compare), fails = false;

    if (is_new)
        (void)next(&fails);
    void *node = fails ? NULL : __real_tsearch(key, root, compare);
    if (is_new && node)
        add_nodes(1);
    return node;
}

void *__wrap_tdelete(const void *key, void **root, __compar_fn_t compare)
{
    if (tfind(key, root, compare))
        add_nodes(-1);
    return __real_tdelete(key, root, compare);
}

static void count_node(const void *node, VISIT when, int depth)
{
    (void)node;
    (void)depth;
    if (when == postorder || when == leaf)
        add_nodes(-1);
}

void __wrap_tdestroy(void *root, __free_fn_t free_key)
{
    twalk(root, count_node);
    __real_tdestroy(root, free_key);
}

bool starve_denies(void)
{
    enter();
    bool denies = state.counts && ++state.n_calls == state.nth_call;
    state.struck = state.struck || denies;
    leave();
    return denies;
}

void starve_begin_calls(uint64_t nth)
{
    starve_begin(0, false);
    enter();
    state.nth_call = nth;
    leave();
}

void starve_begin(uint64_t nth, bool lasting)
{
    enter();
    state.n_calls = 0;
    state.nth_call = 0;
    state.lasting = lasting;
    state.counts = true;
    state.struck = false;
    if (state.n)
        memset(places, 0, sizeof(places));
    state.n = 0;
    state.n_places = 0;
    state.n_nodes = 0;
    state.nth = nth;
    leave();
}

void starve_feed(void)
{
    enter();
    state.nth = 0;
    leave();
}

bool starve_has_struck(void)
{
    enter();
    bool struck = state.struck;
    leave();
    return struck;
}

void starve_end(void)
{
    enter();
    state.counts = false;
    leave();
}

bool starve_is_owed(void)
{
    enter();
    bool owed = state.n_places || state.n_nodes;
    leave();
    return owed;
}

unsigned starve_leaks(void)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < PLACES && state.n_places; i++)
        if (places[i].number) {
            n++;
            fprintf(stderr, "    not freed: allocation %llu\n",
                    (unsigned long long)places[i].number);
        }
    if (state.n_nodes)
        fprintf(stderr, "    not freed: %lld nodes of trees\n", (long long)state.n_nodes);
    return n + (state.n_nodes != 0);
}
