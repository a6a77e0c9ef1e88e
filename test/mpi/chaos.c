/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that work while anything may happen to them, all at once: they are killed, also in the
 * middle of a commit or of their return, stopped, started again, and the network between two hosts
 * is cut and slow; commits go on as fast as they can; new ranks join. Every byte is compared with a
 * model; who lives may be lost to nobody; all commits come to one list; and in the end the job is
 * whole again.
 *
 * --seconds N: how long (2). --seed N: the schedule of faults, the same for the same number;
 * whether one of them can be done depends on what the others have led to. --cable PATH: where the
 * cable of test/hosts/delay.c is told what to do, which joins the two hosts that ranks are on in
 * turn. --mean-ms N: between two faults (60). --least-faults N: fewer are a failure (0). --pause-us
 * N: an attention rank sleeps so long between operations (0). --room N: new ranks that may join,
 * half of them attention ranks (2). --report 1: the whole report. CHAOS_VERBOSE=1 in the
 * environment: why processes that returned were not admitted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chaos.h"

static struct chaos_page *page;

/* Fork; the child does not outlive its parent. */
static pid_t fork_child_of(void)
{
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(CHAOS_FAILED);
    return 0;
}

static void await_restart(struct chaos_rank_page *me)
{
    while (hs_now_ns() < atomic_load(&me->restart_ns) && !atomic_load(&page->failed))
        hs_sleep_us(2000);
}

/* A new rank waits until it may come. Its first life is no other than that of one that returns. */
static bool await_begin(struct chaos_rank_page *me)
{
    while (!atomic_load(&me->has_begun) && !atomic_load(&page->failed) &&
           atomic_load(&page->over) < 2)
        hs_sleep_us(2000);
    return atomic_load(&me->has_begun);
}

/* How a life has ended; -1: it has been killed. */
static int wait_for_life(pid_t pid)
{
    int status = 0;

    if (waitpid(pid, &status, 0) != pid)
        return CHAOS_FAILED;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return -1;
    HS_FAILED("its process has ended with status %x", status);
    return CHAOS_FAILED;
}

/* One life after the other. */
static void supervise(struct hs_job *job)
{
    struct chaos_rank_page *me = &page->ranks[job->rank];

    (void)gethostname(me->host, sizeof(me->host) - 1);
    if (!await_begin(me))
        return;
    for (int life = job->rank >= job->size; !atomic_load(&page->failed); life++) {
        atomic_store(&me->done, -1);
        atomic_store(&me->quiet, -1);
        atomic_store(&me->beat_ns, hs_now_ns());
        atomic_store(&me->life, life);
        atomic_store(&me->place, CHAOS_COMING);
        atomic_fetch_add(&page->lives, 1);
        pid_t pid = fork_child_of();
        if (pid == 0) {
            int code = chaos_live(job, page, life);
            if (hs_failed())
                atomic_store(&page->failed, 1);
            fflush(NULL);
            exit(hs_failed() ? CHAOS_FAILED : code);
        }
        if (!HS_INT(pid, >, 0))
            break;
        atomic_store(&me->pid, pid);
        int code = wait_for_life(pid);
        atomic_store(&me->pid, 0);
        atomic_store(&me->place, CHAOS_DOWN);
        if (code == CHAOS_DONE)
            return;
        if (code == CHAOS_FAILED) {
            HS_FAILED("life %d has failed", life);
            break;
        }
        if (code == CHAOS_GIVEN_UP) {
            atomic_fetch_add(&page->given_up, 1);
            atomic_store(&me->restart_ns, hs_now_ns() + 20000000);
        }
        if (code == CHAOS_AGAIN)
            atomic_store(&me->restart_ns, hs_now_ns() + 10000000);
        await_restart(me);
    }
    atomic_store(&page->failed, 1);
}

/* Every rank writes the same. */
static void lay_out_places(const struct hs_job *job)
{
    page->size = job->size;
    page->attn = job->split ? atoi(job->split + strcspn(job->split, "=") + 1) : job->size / 2;
    page->room = (int)hs_option_int(job, "--room", 2);
    for (int r = 0; r < job->size; r++)
        atomic_store(&page->ranks[r].has_begun, 1);
}

static void body(struct hs_job *job)
{
    pid_t director = -1, newcomer = -1;
    char text[16];
    int status = 0;

    lay_out_places(job);
    if (!HS_INT(page->room % 2, ==, 0) || !HS_INT(page->room, <=, job->size))
        return;
    if (job->rank == 0)
        director = fork_child_of();
    if (director == 0) {
        chaos_direct(job, page);
        fflush(NULL);
        exit(hs_failed() ? CHAOS_FAILED : CHAOS_DONE);
    }
    snprintf(text, sizeof(text), "%d", page->room / 2);
    setenv("STEPAF_ROOM_ATTENTION", text, 1);
    setenv("STEPAF_ROOM_FFN", text, 1);
    setenv("STEPAF_SECRET", "of this test alone", 1);
    if (job->rank < page->room)
        newcomer = fork_child_of();
    if (newcomer == 0) {
        job->rank += job->size;
        supervise(job);
        fflush(NULL);
        exit(hs_failed() ? CHAOS_FAILED : CHAOS_DONE);
    }
    supervise(job);
    if (newcomer > 0 && (waitpid(newcomer, &status, 0) != newcomer || status != 0))
        HS_FAILED("new rank %d has ended with status %x", job->rank + job->size, status);
    if (director > 0 && (waitpid(director, &status, 0) != director || status != 0))
        HS_FAILED("the director has ended with status %x", status);
}

int main(int argc, char **argv)
{
    static struct hs_test test = {.name = "chaos",
                                  .options = "--seconds --seed --cable --mean-ms --room --report "
                                             "--pause-us --least-faults",
                                  .n_boots = 1,
                                  .body = body};
    const struct hs_job options = {.argc = argc, .argv = argv};

    /* To begin, to be whole again, and to end; what it is told is taken as often as the build is
     * slow. */
    test.limit_s =
        (3 * (int)chaos_patience_s() + (int)hs_option_int(&options, "--seconds", 2)) / hs_slow() +
        1;
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 1;
    return hs_main(argc, argv, &test);
}
