/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory: who is connected to and who is not, whose files are mapped, who is gone. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"
#include "device/device.h"
#include "transport/side.h"
#include "unit.h"

static struct side a, b;

/* Files that this process has open; each attempt must leave as many as it found. */
static int open_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = 0;

    side_must(directory != NULL, "/proc/self/fd");
    while (readdir(directory))
        n++;
    closedir(directory);
    return n;
}

static struct stepaf_pack announcement(void)
{
    struct stepaf_pack pack = {0};

    stepaf_shm_ops.pack_address(b.transport, &pack);
    side_must(!pack.failed, "announcement");
    return pack;
}

static void begin(const char *cma)
{
    side_cma = cma;
    side_open(&a, 2);
    side_open(&b, 2);
}

static void end(void)
{
    side_close(&a);
    side_close(&b);
}

/* Without a descriptor left of who is parted from. */
static void part(void)
{
    stepaf_shm_ops.disconnect(a.links[0]);
    stepaf_shm_forget((struct stepaf_shm *)a.transport);
}

/* Not to be reached by this transport is no failure, but a reason. */
static void expect_refusal(uint32_t pid, const struct stepaf_pack *pack, const char *reason)
{
    int files = open_files();
    const char *said = side_connect(&a, 0, &b, 0, pid, pack);

    CU_ASSERT_PTR_NOT_NULL(said);
    UNIT_CONTAINS(said ? said : "", reason);
    CU_ASSERT_EQUAL(open_files(), files);
    CU_ASSERT_EQUAL(((struct stepaf_shm *)a.transport)->n_links, 0);
}

static void truncated_announcements_are_refused(void)
{
    begin("off");
    struct stepaf_pack pack = announcement();
    size_t bytes = pack.bytes;
    for (pack.bytes = 0; pack.bytes < bytes; pack.bytes++)
        expect_refusal((uint32_t)getpid(), &pack, "malformed");
    free(pack.data);
    end();
}

/* Each bit turned: refused, or connected to something that holds together. */
static void turned_announcements_do_no_harm(void)
{
    int connected = 0;

    begin("auto");
    struct stepaf_pack pack = announcement();
    int files = open_files();
    for (size_t bit = 0; bit < pack.bytes * 8; bit++) {
        pack.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (!side_connect(&a, 0, &b, 0, (uint32_t)getpid(), &pack)) {
            connected++;
            CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_SENT);
            part();
        }
        CU_ASSERT_EQUAL(open_files(), files);
        pack.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CU_ASSERT(connected < 128); /* the token's address only, or a smaller size that still does */
    free(pack.data);
    end();
}

static void another_node_is_not_reached(void)
{
    begin("off");
    a.topo.node_id = 2;
    expect_refusal((uint32_t)getpid(), NULL, "another node");
    end();
}

/* b's announcement with another number in the place of one in it. */
static struct stepaf_pack announcement_with(uint64_t number, uint64_t instead)
{
    struct stepaf_pack pack = announcement();
    int found = 0;

    for (size_t at = 0; at + sizeof number <= pack.bytes; at++)
        if (!memcmp(pack.data + at, &number, sizeof number)) {
            memcpy(pack.data + at, &instead, sizeof instead);
            found++;
            at += sizeof number - 1;
        }
    side_must(found == 1, "announcement");
    return pack;
}

static void a_control_segment_must_be_large_enough(void)
{
    static const uint64_t bytes[] = {0, 4096, UINT64_MAX};

    begin("off");
    for (int i = 0; i < 3; i++) {
        const struct stepaf_shm *shm = (const struct stepaf_shm *)b.transport;
        struct stepaf_pack pack = announcement_with(shm->control.bytes, bytes[i]);
        expect_refusal((uint32_t)getpid(), &pack, "");
        free(pack.data);
    }
    end();
}

/* A number that another process has got since is not taken for the peer. */
static void another_process_is_not_the_peer(void)
{
    int ends[2];
    char byte;

    begin("off");
    side_must(pipe(ends) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        struct side other;
        close(ends[1]);
        side_open(&other, 2);
        /* At the number under which the peer has its segment, this one has another. */
        dup2(((struct stepaf_shm *)other.transport)->control.fd,
             ((struct stepaf_shm *)b.transport)->control.fd);
        _exit(read(ends[0], &byte, 1) != 0);
    }
    close(ends[0]);
    const struct stepaf_shm_link *link;
    int64_t deadline_ns = stepaf_monotonic_ns() + 10000000000;
    /* Until the child has got so far, its file is still the announced one, a copy of b's. */
    while (!side_connect(&a, 0, &b, 0, (uint32_t)child, NULL) &&
           stepaf_monotonic_ns() < deadline_ns) {
        link = (const struct stepaf_shm_link *)a.links[0];
        CU_ASSERT_EQUAL(link->pid, child);
        stepaf_shm_ops.disconnect(a.links[0]);
        sched_yield();
    }
    expect_refusal((uint32_t)child, NULL, "not the announced one");
    close(ends[1]);
    waitpid(child, NULL, 0);
    expect_refusal((uint32_t)child, NULL, "");
    end();
}

static void attaching_can_be_required(void)
{
    /* Where no memory is, and where some other is. */
    const uint64_t elsewhere[] = {4096, (uintptr_t)&side_cma};

    begin("on");
    const struct stepaf_shm *shm = (const struct stepaf_shm *)b.transport;
    for (int i = 0; i < 2; i++) {
        struct stepaf_pack pack = announcement_with((uintptr_t)shm->token, elsewhere[i]);
        a.env.shm_cma = STEPAF_ENV_SHM_CMA_on;
        expect_refusal((uint32_t)getpid(), &pack, "STEPAF_SHM_CMA is on");
        a.env.shm_cma = STEPAF_ENV_SHM_CMA_auto;
        CU_ASSERT_PTR_NULL_FATAL(side_connect(&a, 0, &b, 0, (uint32_t)getpid(), &pack));
        UNIT_STRING(a.links[0]->name, "shm;ring");
        part();
        free(pack.data);
    }
    end();
}

static int make_file(unsigned seals, off_t bytes)
{
    int fd = memfd_create("stepaf-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    side_must(fd >= 0 && ftruncate(fd, bytes) == 0, "memfd_create");
    side_must(!seals || fcntl(fd, F_ADD_SEALS, seals) == 0, "seals");
    return fd;
}

static void expect_unmapped(int fd, size_t bytes)
{
    char reason[STEPAF_REASON_MAX] = "";
    int files = open_files();

    CU_ASSERT_PTR_NULL(stepaf_device_map_peer(getpid(), fd, bytes, reason));
    CU_ASSERT_NOT_EQUAL(reason[0], '\0');
    CU_ASSERT_EQUAL(open_files(), files);
}

/* A terminal that another process names is not opened: it would be this session's then. */
static void terminals_are_not_opened(void)
{
    char reason[STEPAF_REASON_MAX] = "";
    int status = -1, master = posix_openpt(O_RDWR | O_NOCTTY);
    side_must(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0, "a terminal");
    int own = open(ptsname(master), O_RDWR | O_NOCTTY);
    side_must(own >= 0, "a terminal");
    pid_t child = fork();
    if (!child) {
        int is_mapped = setsid() < 0 || stepaf_device_map_peer(getpid(), own, 4096, reason);
        _exit(is_mapped || open("/dev/tty", O_RDWR) >= 0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
    close(own), close(master);
}

/* A file that could shrink under a mapping would end this process at its next write. */
static void only_sealed_files_are_mapped(void)
{
    char reason[STEPAF_REASON_MAX];
    int good = make_file(F_SEAL_SHRINK, 8192);
    int open_end = make_file(0, 8192), grows = make_file(F_SEAL_GROW | F_SEAL_SEAL, 8192);
    int constant = make_file(F_SEAL_SHRINK | F_SEAL_WRITE, 8192);
    int plain = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), ends[2];

    side_must(pipe(ends) == 0 && plain >= 0, "files");
    expect_unmapped(open_end, 8192);
    expect_unmapped(grows, 8192);
    expect_unmapped(constant, 8192);
    expect_unmapped(plain, 4096);
    expect_unmapped(ends[0], 4096);
    expect_unmapped(-1, 4096);
    expect_unmapped(INT32_MAX, 4096);
    expect_unmapped(good, 8193);
    expect_unmapped(good, SIZE_MAX);
    expect_unmapped(good, 0);
    uint8_t *map = stepaf_device_map_peer(getpid(), good, 8192, reason);
    CU_ASSERT_PTR_NOT_NULL_FATAL(map);
    map[8191] = 1;
    munmap(map, 8192);
    close(good);
    expect_unmapped(good, 8192);
    close(open_end), close(grows), close(constant), close(plain), close(ends[0]), close(ends[1]);
}

static void bad_regions_are_not_imported(void)
{
    struct stepaf_pack pack = {0};
    struct stepaf_rmem *rmem = NULL;

    begin("off");
    side_join(&a, &b);
    int open_end = make_file(0, 8192);
    stepaf_pack_u32(&pack, (uint32_t)open_end);
    stepaf_pack_u64(&pack, 0);
    for (size_t bytes = 0; bytes <= pack.bytes; bytes++) {
        struct stepaf_unpack unpack = stepaf_unpack_from(pack.data, bytes);
        CU_ASSERT_EQUAL(stepaf_shm_ops.import_mem(a.links[0], 1, 8192, &unpack, &rmem),
                        bytes < pack.bytes ? STEPAF_ERR_PROTOCOL : STEPAF_ERR_TRANSPORT);
        CU_ASSERT_PTR_NULL(rmem);
    }
    close(open_end);
    free(pack.data);
    end();
}

/* A process with all that this one has; it ends when it is told. */
struct child {
    pid_t pid;
    int word; /* closed: it is told */
};

static struct child child_start(bool speaks)
{
    struct child child;
    int ends[2];
    char byte;

    side_must(pipe(ends) == 0, "pipe");
    child.pid = fork();
    side_must(child.pid >= 0, "fork");
    if (child.pid == 0) {
        close(ends[1]);
        int failed = read(ends[0], &byte, 1) != 0;
        for (uint32_t seq = 0; speaks && seq < 3; seq++)
            side_say(&b, 0, seq);
        _exit(failed);
    }
    close(ends[0]);
    child.word = ends[1];
    return child;
}

static void child_end(const struct child *child)
{
    close(child->word);
}

/* For ten seconds at most. */
static void idle_until_lost(void)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + 10000000000;

    while (!a.n_lost && stepaf_monotonic_ns() < deadline_ns) {
        stepaf_shm_ops.check_peers(a.transport);
        sched_yield();
    }
}

/* A process that ends is noticed once, after all that it has said. */
static void a_dead_peer_is_lost_once(void)
{
    begin("off");
    CU_ASSERT_PTR_NULL(side_connect(&b, 0, &a, 0, (uint32_t)getpid(), NULL));
    struct child child = child_start(true); /* it is b from now on */
    CU_ASSERT_PTR_NULL(side_connect(&a, 0, &b, 0, (uint32_t)child.pid, NULL));
    for (int i = 0; i < 10; i++)
        stepaf_shm_ops.check_peers(a.transport);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    child_end(&child);
    idle_until_lost();
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "ended");
    CU_ASSERT_EQUAL(a.n_messages, 3);
    for (int i = 0; i < 10; i++)
        stepaf_shm_ops.check_peers(a.transport);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    waitpid(child.pid, NULL, 0);
    stepaf_shm_ops.check_peers(a.transport);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    end();
}

/* The same on a kernel without process file descriptors. */
static void a_dead_peer_is_found_in_proc(void)
{
    begin("off");
    struct child child = child_start(false);
    CU_ASSERT_PTR_NULL(side_connect(&a, 0, &b, 0, (uint32_t)child.pid, NULL));
    struct stepaf_shm_link *link = (struct stepaf_shm_link *)a.links[0];
    if (link->pidfd >= 0) {
        close(link->pidfd); /* the epoll set forgets it by that */
        link->pidfd = -1;
        ((struct stepaf_shm *)a.transport)->n_unwatched++;
    }
    for (int i = 0; i < 10; i++)
        stepaf_shm_ops.check_peers(a.transport);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    child_end(&child);
    idle_until_lost();
    CU_ASSERT_EQUAL(a.n_lost, 1);
    waitpid(child.pid, NULL, 0);
    stepaf_shm_ops.check_peers(a.transport);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    end();
}

/* What a process has said that had the place before, and was parted from while it lived, is not for
 * the next one. */
static void who_comes_next_finds_an_empty_inbox(void)
{
    static struct side next;

    begin("auto");
    side_open(&next, 1);
    side_join(&a, &b);
    CU_ASSERT_EQUAL(side_say(&b, 0, 1), STEPAF_POST_SENT);
    stepaf_shm_ops.disconnect(a.links[0]);
    CU_ASSERT_EQUAL(side_say(&b, 0, 2), STEPAF_POST_SENT);
    side_join(&a, &next);
    CU_ASSERT_EQUAL(side_progress(&a), 0);
    for (uint32_t seq = 11; seq < 14; seq++)
        CU_ASSERT_EQUAL(side_say(&next, 0, seq), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(side_progress(&a), 3);
    CU_ASSERT(a.n_messages == 3 && a.messages[0].seq == 11 && a.messages[2].seq == 13);
    side_close(&next);
    end();
}

/* It would write among what the next one writes: that one is not reached this way until the other
 * has ended. */
static void who_lives_keeps_its_place(void)
{
    for (int in_proc = 0; in_proc < 2; in_proc++) {
        begin("auto");
        struct child child = child_start(false);
        CU_ASSERT_PTR_NULL(side_connect(&a, 0, &b, 0, (uint32_t)child.pid, NULL));
        struct stepaf_shm_link *link = (struct stepaf_shm_link *)a.links[0];
        if (in_proc && link->pidfd >= 0) {
            close(link->pidfd);
            link->pidfd = -1;
            ((struct stepaf_shm *)a.transport)->n_unwatched++;
        }
        stepaf_shm_ops.disconnect(a.links[0]);
        const char *reason = side_connect(&a, 0, &b, 0, (uint32_t)getpid(), NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(reason);
        UNIT_CONTAINS(reason, "which had the rank's place, is still alive");
        child_end(&child);
        waitpid(child.pid, NULL, 0);
        CU_ASSERT_PTR_NULL(side_connect(&a, 0, &b, 0, (uint32_t)getpid(), NULL));
        end();
    }
}

static void nothing_is_left_open(void)
{
    int files = open_files();

    begin("auto");
    side_join(&a, &b);
    struct stepaf_mem *region = side_memory(&b, 8192, true);
    stepaf_shm_ops.release_mem(a.links[0], side_import(&a, 0, &b, region));
    stepaf_shm_ops.disconnect(a.links[0]); /* of a process that lives */
    end();
    CU_ASSERT_EQUAL(open_files(), files);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"truncated announcements are refused", truncated_announcements_are_refused},
        {"turned announcements do no harm", turned_announcements_do_no_harm},
        {"another node is not reached", another_node_is_not_reached},
        {"a control segment must be large enough", a_control_segment_must_be_large_enough},
        {"another process is not the peer", another_process_is_not_the_peer},
        {"attaching can be required", attaching_can_be_required},
        {"only sealed files are mapped", only_sealed_files_are_mapped},
        {"terminals are not opened", terminals_are_not_opened},
        {"bad regions are not imported", bad_regions_are_not_imported},
        {"a dead peer is lost once", a_dead_peer_is_lost_once},
        {"a dead peer is found in /proc", a_dead_peer_is_found_in_proc},
        {"who comes next finds an empty inbox", who_comes_next_finds_an_empty_inbox},
        {"who lives keeps its place", who_lives_keeps_its_place},
        {"nothing is left open", nothing_is_left_open},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
