/* SPDX-License-Identifier: Apache-2.0 */
/* What is not any more as it was at the connect: memory of either end is unmapped, the kernel lets
 * nobody write to the peer's pages any more, its process has lost its first thread, or runs another
 * program. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"
#include "transport/side.h"
#include "unit.h"

enum { PAGE = 4096, BYTES = 3 * PAGE, NO_PROCESS = 0x7ffffffe };

static struct side a, b;
static unsigned n_refused;

static void refused(struct stepaf_upcalls *up, struct stepaf_post *post)
{
    (void)up;
    n_refused++;
    CU_ASSERT_EQUAL(post->state, STEPAF_POST_SENT);
}

static void end(void)
{
    side_close(&a);
    side_close(&b);
}

static void join_by(const char *cma)
{
    side_cma = cma;
    side_open(&a, 1);
    side_open(&b, 1);
    side_join(&a, &b);
    a.up.refused = refused;
    n_refused = 0;
}

static void join(void)
{
    join_by("auto");
}

/* Whether there is cross-memory attach here; if not, it is ended already. */
static bool begin(void)
{
    join();
    bool is_permitted = ((struct stepaf_shm_link *)a.links[0])->cma;
    if (!is_permitted) {
        puts("  (cross-memory attach is not permitted here)");
        end();
    }
    return is_permitted;
}

static uint8_t *map_pages(void)
{
    uint8_t *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    side_must(pages != MAP_FAILED, "pages");
    memset(pages, 0x5a, BYTES);
    return pages;
}

/* Write @a src to @a place of this very process, as if it were the peer's, with a tensor before
 * that is as it should be. */
static void write_pages(const uint8_t *src, uint8_t *place)
{
    static uint8_t sound[2][100];
    struct stepaf_shm_rmem first = {.base = {100, 100}, .address = (uintptr_t)sound[1]};
    struct stepaf_shm_rmem rmem = {.base = {101, BYTES}, .address = (uintptr_t)place};
    struct stepaf_xfer xfer[] = {{.src = sound[0], .dst = &first.base, .bytes = 100},
                                 {.src = src, .dst = &rmem.base, .bytes = BYTES}};
    struct stepaf_post post = {.link = a.links[0], .xfer = xfer, .n_xfer = 2}, *posts[] = {&post};

    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START};
    for (int i = 0; i < 100; i++) {
        (void)stepaf_shm_ops.post(posts, 1);
        if (post.state != STEPAF_POST_QUEUED)
            break;
        side_progress(&b);
    }
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    side_progress(&b);
}

/* All of the source, or its end. The peer has nothing to do with it. */
static void an_own_source_that_is_gone_is_refused(void)
{
    uint8_t *place = map_pages();

    for (size_t from = 0; from < BYTES && begin(); from += PAGE) {
        uint8_t *src = map_pages();
        CU_ASSERT_EQUAL(munmap(src + from, BYTES - from), 0);
        write_pages(src, place);
        CU_ASSERT_EQUAL(n_refused, 1);
        CU_ASSERT(a.n_lost == 0 && b.n_messages == 0 && a.links[0]->bytes_sent == 0);
        write_pages(place, place);
        CU_ASSERT(n_refused == 1 && a.n_lost == 0 && b.n_messages == 1);
        CU_ASSERT_EQUAL(a.links[0]->bytes_sent, 100 + BYTES);
        if (from)
            munmap(src, from);
        end();
    }
    munmap(place, BYTES);
}

/* Post the tensor alone, to where it goes. */
static void write_to(struct stepaf_rmem *rmem, const uint8_t *src)
{
    struct stepaf_xfer xfer = {.src = src, .dst = rmem, .bytes = BYTES};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};

    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START};
    for (int i = 0; i < 100 && (!i || post.state == STEPAF_POST_QUEUED); i++) {
        (void)stepaf_shm_ops.post(posts, 1);
        side_progress(&b);
    }
    CU_ASSERT_NOT_EQUAL(post.state, STEPAF_POST_QUEUED);
}

/* Whether the kernel does: where it may not be asked, the library copies, and a source that is gone
 * ends the process. */
static bool kernel_copies(void)
{
    uint8_t from = 1, to = 0;
    struct iovec local = {&to, 1}, own = {&from, 1};
    bool it_does = process_vm_readv(getpid(), &local, 1, &own, 1, 0) == 1;

    if (!it_does)
        puts("  (the kernel copies nothing here)");
    return it_does;
}

/* By STEPAF_SHM_COPY=kernel, into memory that both map as well, and through the ring. */
static void a_source_that_the_kernel_copies_may_be_gone(void)
{
    static const char *const settings[] = {"STEPAF_SHM_COPY", "kernel", NULL};
    static const char *const ways[] = {"auto", "off"};

    side_settings = settings;
    for (unsigned w = 0; w < 2 && kernel_copies(); w++) {
        for (size_t from = 0; from < BYTES; from += PAGE) {
            uint8_t *src = map_pages();
            join_by(ways[w]);
            struct stepaf_mem *region = side_memory(&b, BYTES, true);
            struct stepaf_rmem *rmem = side_import(&a, 0, &b, region);
            write_to(rmem, src);
            CU_ASSERT(n_refused == 0 && b.n_messages == 1 && a.links[0]->bytes_sent == BYTES);
            CU_ASSERT_EQUAL(memcmp(region->base, src, BYTES), 0);
            CU_ASSERT_EQUAL(munmap(src + from, BYTES - from), 0);
            write_to(rmem, src);
            CU_ASSERT(n_refused == 1 && b.n_messages == 1 && a.links[0]->bytes_sent == BYTES);
            CU_ASSERT(a.n_lost == 0 && b.n_lost == 0);
            stepaf_shm_ops.release_mem(a.links[0], rmem);
            if (from)
                munmap(src, from);
            end();
        }
    }
    side_settings = NULL;
}

/* Both ends learn why. */
static void a_place_that_is_gone_loses_the_peer(void)
{
    for (int is_read_only = 0; is_read_only < 2 && begin(); is_read_only++) {
        uint8_t *src = map_pages(), *place = map_pages();
        int failed =
            is_read_only ? mprotect(place + PAGE, PAGE, PROT_READ) : munmap(place + PAGE, PAGE);
        CU_ASSERT_FALSE(failed);
        write_pages(src, place);
        CU_ASSERT(n_refused == 0 && a.n_lost == 1 && b.n_messages == 0);
        UNIT_CONTAINS(a.lost_reason, "its registered memory cannot be written");
        stepaf_shm_ops.check_peers(b.transport);
        CU_ASSERT_EQUAL(b.n_lost, 1);
        UNIT_CONTAINS(b.lost_reason, "it could not write to registered memory of this rank");
        munmap(src, BYTES);
        munmap(place, BYTES);
        end();
    }
}

/* The same by the ring with STEPAF_SHM_COPY=kernel, where its own rank copies. */
static void also_by_the_ring(void)
{
    static const char *const settings[] = {"STEPAF_SHM_COPY", "kernel", NULL};

    side_settings = settings;
    for (int is_read_only = 0; is_read_only < 2; is_read_only++) {
        uint8_t *src = map_pages();
        join_by("off");
        struct stepaf_mem *region = side_memory(&b, BYTES, false);
        struct stepaf_rmem *rmem = side_import(&a, 0, &b, region);
        free(region->base);
        region->base = map_pages();
        int failed = is_read_only ? mprotect(region->base + PAGE, PAGE, PROT_READ)
                                  : munmap(region->base + PAGE, PAGE);
        CU_ASSERT_FALSE(failed);
        write_to(rmem, src);
        CU_ASSERT(b.n_lost == 1 && b.n_messages == 0);
        UNIT_CONTAINS(b.lost_reason, "registered memory of this rank cannot be written");
        stepaf_shm_ops.check_peers(a.transport);
        CU_ASSERT(a.n_lost == 1 && n_refused == 0);
        UNIT_CONTAINS(a.lost_reason, "its registered memory cannot be written");
        stepaf_shm_ops.release_mem(a.links[0], rmem);
        munmap(src, BYTES);
        munmap(region->base, BYTES);
        region->base = NULL;
        end();
    }
    side_settings = NULL;
}

/* As after a change of user: then tensors go through the ring, from the one on that is being
 * written. */
static void a_peer_that_may_not_be_written_to_is_reached_by_the_ring(void)
{
    if (begin()) {
        struct stepaf_shm_link *link = (struct stepaf_shm_link *)a.links[0];
        struct stepaf_mem *region = side_memory(&b, BYTES, false);
        struct stepaf_rmem *rmem = side_import(&a, 0, &b, region);
        struct stepaf_xfer xfer = {.src = map_pages(), .dst = rmem, .bytes = BYTES};
        struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1};
        struct stepaf_post *posts[] = {&post};
        pid_t pid = link->pid;
        link->pid = NO_PROCESS; /* the process that is watched lives */
        for (int i = 0; i < 100 && post.state != STEPAF_POST_SENT; i++) {
            (void)stepaf_shm_ops.post(posts, 1);
            side_progress(&b);
        }
        CU_ASSERT(post.state == STEPAF_POST_SENT && a.n_lost == 0 && b.n_messages == 1);
        CU_ASSERT_EQUAL(memcmp(region->base, xfer.src, BYTES), 0);
        CU_ASSERT_EQUAL(link->base.bytes_sent, BYTES);
        UNIT_STRING(link->base.name, "shm;ring");
        link->pid = pid;
        munmap((void *)(uintptr_t)xfer.src, BYTES);
        stepaf_shm_ops.release_mem(a.links[0], rmem);
        end();
    }
}

static void *outlive(void *arg)
{
    (void)arg;
    pause();
    return NULL;
}

/* A process that has these descriptors, and whose first thread has ended. */
static pid_t start_headless(void)
{
    pid_t pid = fork();
    pthread_t thread;

    if (pid)
        return pid;
    if (pthread_create(&thread, NULL, outlive, NULL))
        _exit(1);
    pthread_exit(NULL);
}

static char state_of(pid_t pid)
{
    char path[64], line[256] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file) {
        (void)!fgets(line, sizeof line, file);
        fclose(file);
    }
    return strrchr(line, ')') ? strrchr(line, ')')[2] : '?';
}

static void look(bool until_lost)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + 10000000000ll;

    do {
        ((struct stepaf_shm *)a.transport)->same_program_ns = 0; /* it is time */
        stepaf_shm_ops.check_peers(a.transport);
    } while (until_lost && !a.n_lost && stepaf_monotonic_ns() < deadline_ns);
}

/* It lives as long as one of its threads does, with process file descriptors and without. */
static void a_process_without_its_first_thread_lives(void)
{
    for (int in_proc = 0; in_proc < 2; in_proc++) {
        side_open(&a, 1);
        side_open(&b, 1);
        pid_t pid = start_headless();
        /* Before its first thread has ended, or it is too late: its descriptors are not to be
         * had. */
        const char *reason = side_connect(&a, 0, &b, 0, (uint32_t)pid, NULL);
        struct stepaf_shm_link *link = (struct stepaf_shm_link *)a.links[0];
        if (link && in_proc && link->pidfd >= 0) {
            close(link->pidfd);
            link->pidfd = -1;
            ((struct stepaf_shm *)a.transport)->n_unwatched++;
        }
        while (pid > 0 && state_of(pid) != 'Z')
            usleep(1000);
        look(false);
        CU_ASSERT_EQUAL(a.n_lost, 0);
        kill(pid, SIGKILL);
        if (!reason) {
            look(true);
            CU_ASSERT_EQUAL(a.n_lost, 1);
            UNIT_STRING(a.lost_reason, "its process has ended");
        }
        waitpid(pid, NULL, 0);
        end();
    }
}

/* What an exec closes is what its memory was announced by. */
static void a_peer_that_runs_another_program_is_lost(void)
{
    for (int other_file = 0; other_file < 2; other_file++) {
        join();
        struct stepaf_shm_link *link = (struct stepaf_shm_link *)a.links[0];
        look(false);
        CU_ASSERT(a.n_lost == 0 && link->control_inode != 0);
        if (other_file)
            link->control_inode++; /* another file has its number */
        else
            link->control_fd = 1 << 20; /* nothing has */
        look(false);
        if (!other_file) {
            CU_ASSERT_EQUAL(a.n_lost, 0); /* it might be about to end */
            look(false);
        }
        CU_ASSERT_EQUAL(a.n_lost, 1);
        UNIT_STRING(a.lost_reason, "its process runs another program now");
        end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"an own source that is gone is refused", an_own_source_that_is_gone_is_refused},
        {"a source that the kernel copies may be gone",
         a_source_that_the_kernel_copies_may_be_gone},
        {"a place that is gone loses the peer", a_place_that_is_gone_loses_the_peer},
        {"also by the ring", also_by_the_ring},
        {"a peer that may not be written to is reached by the ring",
         a_peer_that_may_not_be_written_to_is_reached_by_the_ring},
        {"a process without its first thread lives", a_process_without_its_first_thread_lives},
        {"a peer that runs another program is lost", a_peer_that_runs_another_program_is_lost},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
