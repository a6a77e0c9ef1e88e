/* SPDX-License-Identifier: Apache-2.0 */
/* The hot path makes no system call, takes no memory from the heap and locks no mutex.
 *
 * One attention and one FFN rank run operations of all kinds; the parent traces both and counts
 * the system calls between two markers, the ranks count calls of the allocator and of
 * pthread_mutex_lock in between by functions that stand before the C library's. Spinning is asked
 * for, since giving up the core is a system call by nature. A rank that waits in vain for long,
 * because the other one was put off its core, may look whether that one still lives, and any rank
 * does so every tenth of a second: such calls are shown apart. */
#include "hotpath.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/ptrace.h>
#endif

enum { RANKS = 2, SKIPPED = 77, HOT_LOOK_NS = 90000000 };

struct hot_page *hot_page;

struct traced {
    pid_t pid;
    bool counting, ended;
    bool may_poll, may_ask; /* of this look: see is_look */
    int code;
    long calls, stalled, looks, first[4];
    int64_t looked_ns;
};

static struct traced ranks[RANKS];

static void stop_all(void)
{
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].pid > 0 && !ranks[i].ended)
            kill(ranks[i].pid, SIGKILL);
}

static void too_long(int signal_number)
{
    (void)signal_number;
    stop_all();
}

/* Whether a call asks whether the other rank still runs the program that has announced the link:
 * for one of its descriptors, by name. */
static bool asks_for_program(const struct traced *one, const struct ptrace_syscall_info *info)
{
    char path[64] = "", word[sizeof(long)];
    const struct traced *other = &ranks[one == ranks];
    int pid, fd, end = 0;
    uint64_t at = info->entry.args[1];
    bool fits = info->entry.nr == SYS_newfstatat && (int)info->entry.args[0] == AT_FDCWD;

#ifdef SYS_stat
    if (info->entry.nr == SYS_stat) {
        at = info->entry.args[0];
        fits = true;
    }
#endif
    for (size_t i = 0; fits && i < sizeof path - sizeof word; i += sizeof word) {
        errno = 0;
        long peeked = ptrace(PTRACE_PEEKDATA, one->pid, at + i, NULL);
        memcpy(word, &peeked, sizeof word);
        memcpy(path + i, word, sizeof word);
        if (errno || memchr(word, 0, sizeof word))
            break;
    }
    return sscanf(path, "/proc/%d/fd/%d%n", &pid, &fd, &end) == 2 && !path[end] &&
           pid == other->pid;
}

/* Whether a call belongs to the look for dead peers, which may be so often: it begins with a vain
 * wait, the bootstrap's or the members', and goes on with the other one and with one question for
 * the only peer. */
static bool is_look(struct traced *one, const struct ptrace_syscall_info *info)
{
    int64_t now_ns = hs_now_ns();
    bool waits = info->entry.nr == SYS_epoll_pwait;

#ifdef SYS_epoll_wait
    waits = waits || info->entry.nr == SYS_epoll_wait;
#endif
    if (one->may_ask && asks_for_program(one, info)) {
        one->may_ask = false;
        return true;
    }
    waits = waits && (int)info->entry.args[3] == 0;
    if (waits && one->may_poll && now_ns - one->looked_ns < HOT_LOOK_NS) {
        one->may_poll = false;
        return true;
    }
    if (!waits || now_ns - one->looked_ns < HOT_LOOK_NS)
        return false;
    one->looked_ns = now_ns;
    one->may_poll = true;
    one->may_ask = true;
    return true;
}

/* A stop at a system call: a marker, or one to count. */
static void look_at_call(struct traced *one)
{
    struct ptrace_syscall_info info;

    memset(&info, 0, sizeof info);
    if (ptrace(PTRACE_GET_SYSCALL_INFO, one->pid, sizeof info, &info) < 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return;
    if (info.entry.nr == HOT_MARK_CALL && info.entry.args[0] == HOT_MARK) {
        one->counting = info.entry.args[1] == 1;
        return;
    }
    if (!one->counting)
        return;
    if (hs_now_ns() - atomic_load(&hot_page->began[one - ranks]) > HOT_STALL_US * 1000) {
        one->stalled++;
        return;
    }
    if (is_look(one, &info)) {
        one->looks++;
        return;
    }
    if (one->calls < (long)(sizeof one->first / sizeof one->first[0]))
        one->first[one->calls] = (long)info.entry.nr;
    one->calls++;
}

static void handle(struct traced *one, int status)
{
    long pass_on = 0;

    if (WIFEXITED(status) || WIFSIGNALED(status)) {
        one->ended = true;
        one->code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        return;
    }
    if (WSTOPSIG(status) == (SIGTRAP | 0x80))
        look_at_call(one);
    else if (status >> 16 == 0 && WSTOPSIG(status) != SIGSTOP)
        pass_on = WSTOPSIG(status);
    ptrace(PTRACE_SYSCALL, one->pid, NULL, pass_on);
}

static void trace(void)
{
    for (int left = RANKS; left > 0;) {
        int status;
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            return;
        for (int i = 0; i < RANKS; i++)
            if (ranks[i].pid == pid) {
                handle(&ranks[i], status);
                left -= ranks[i].ended;
            }
    }
}

/* Stop until the tracer is there. */
static void run_rank(stepaf_boot_local_t *local, int rank)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(SKIPPED);
    raise(SIGSTOP);
    hs_set_rank(rank);
    hot_rank(local, rank);
    stepaf_boot_local_destroy(local);
    _exit(hs_failed() ? 1 : 0);
}

static bool start_rank(stepaf_boot_local_t *local, int rank)
{
    int status;
    struct traced *one = &ranks[rank];

    one->pid = fork();
    if (one->pid == 0)
        run_rank(local, rank);
    if (one->pid < 0 || waitpid(one->pid, &status, 0) != one->pid)
        return false;
    if (!WIFSTOPPED(status)) {
        one->ended = true;
        one->code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        return false;
    }
    return ptrace(PTRACE_SETOPTIONS, one->pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) ==
           0;
}

static int skip(const char *why)
{
    printf("SKIP hotpath: %s\n", why);
    return SKIPPED;
}

static int report(void)
{
    static const char *names[] = {"attention", "FFN"};
    bool good = true;

    for (int i = 0; i < RANKS; i++) {
        struct hot_counts *counts = &hot_page->counts[i];
        printf("%s rank: %ld operations, %ld system calls (%ld more in long waits, %ld looks), "
               "%ld allocator calls, %ld mutex locks\n",
               names[i], counts->operations, ranks[i].calls, ranks[i].stalled, ranks[i].looks,
               counts->allocations, counts->locks);
        if (ranks[i].calls > 0)
            printf("  first system calls by number: %ld %ld %ld\n", ranks[i].first[0],
                   ranks[i].first[1], ranks[i].first[2]);
        good &= ranks[i].code == 0 && ranks[i].calls == 0 && counts->allocations == 0 &&
                counts->locks == 0;
    }
    if (good && hot_page->counts[0].operations < HOT_OPERATIONS)
        return skip("too busy a machine for so many operations");
    printf("%s hotpath\n", good ? "PASS" : "FAIL");
    return good ? 0 : 1;
}

int main(void)
{
    stepaf_boot_local_t *local = NULL;

    if (!hot_interposed())
        return skip("the allocator is the sanitizer's in this build");
    if (sysconf(_SC_NPROCESSORS_ONLN) < RANKS)
        return skip("two ranks that spin need two cores");
    hot_page =
        mmap(NULL, sizeof *hot_page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (hot_page == MAP_FAILED)
        return skip("no memory");
    setenv("STEPAF_BACKOFF", "spin", 1);
    setenv("STEPAF_SPLIT", "attn=1,ffn=1", 1);
    if (stepaf_boot_local_create(RANKS, &local) != STEPAF_OK)
        return 1;
    signal(SIGALRM, too_long);
    alarm(HOT_LIMIT_S + 30);
    for (int rank = 0; rank < RANKS; rank++)
        if (!start_rank(local, rank)) {
            stop_all();
            return ranks[rank].code == SKIPPED ? skip("tracing is not permitted") : 1;
        }
    for (int rank = 0; rank < RANKS; rank++)
        ptrace(PTRACE_SYSCALL, ranks[rank].pid, NULL, 0L);
    trace();
    stepaf_boot_local_destroy(local);
    return report();
}
