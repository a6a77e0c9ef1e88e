/* SPDX-License-Identifier: Apache-2.0 */
/* A job that runs for as long as it is told, whose ranks but the first die in turn and return, for
 * metrics_prometheus.sh: metrics_job ATTENTION FFN SECONDS PERIOD_S. In the first half of each
 * period a rank is missing. Each death and each return is a line, in seconds since 1970. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/boot.h>
#include <stepaf/stepaf.h>

enum { RANKS_MAX = 16, PUSH = 1, PULL = 2, BYTES = 65536, BATCHES = 8, STEP_US = 5000 };

/* Of all processes. */
static struct shared {
    char address[256];        /* where the first rank can be called */
    _Atomic uint32_t commits; /* that are due */
    _Atomic int n_paused;     /* attention ranks that start nothing before the next one */
    _Atomic int n_attention;  /* that live */
    _Atomic bool asks, over;
} * shared;

static int n_attention, n_ffn;
static stepaf_boot_local_t *local;

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "metrics_job: %s: %s\n", what, stepaf_last_error()->text);
    _exit(1);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void commit(stepaf_context_h ctx)
{
    stepaf_commit_params_t params = {.field_mask = STEPAF_COMMIT_LOST | STEPAF_COMMIT_RETURN,
                                     .lost = STEPAF_COMMIT_LEAVE_LOST,
                                     .returning = STEPAF_COMMIT_ADMIT};

    must(!stepaf_commit_with(ctx, &params), "commit");
}

/* ---- a rank ---- */

static stepaf_plan_h make_plan(stepaf_context_h ctx, uint8_t *memory)
{
    stepaf_tensor_t push = {PUSH, memory, BYTES}, pull[RANKS_MAX];
    stepaf_plan_h plan;

    for (int p = 0; p < n_ffn; p++)
        pull[p] = (stepaf_tensor_t){PULL, memory + (size_t)(1 + p) * BYTES, BYTES};
    must(!stepaf_plan_create(ctx, &push, 1, pull, n_ffn, 0, &plan), "plan");
    return plan;
}

/* One operation; who dies meanwhile is missing in it. */
static void operate(stepaf_plan_h plan)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_SKIP_LOST | STEPAF_START_WAIT};
    stepaf_request_h request;

    must(!stepaf_start_with(plan, &params, &request), "start");
    stepaf_status_t status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    must(!status || status == STEPAF_ERR_PEER_LOST, "wait");
    if (status)
        (void)stepaf_wait_rest(request, STEPAF_TIMEOUT_DEFAULT);
    (void)usleep(STEP_US);
}

static void serve(stepaf_context_h ctx, uint8_t *memory)
{
    stepaf_tensor_t tensor = {PULL, memory, BYTES};
    stepaf_batch_h batches[BATCHES];
    int n = 0;

    (void)stepaf_recv(ctx, STEPAF_FROM_ANY, 0, 2 * STEP_US, batches, BATCHES, &n);
    for (int i = 0; i < n; i++)
        if (stepaf_respond(batches[i], &tensor, 1, STEPAF_RESPOND_RELEASE, NULL))
            (void)stepaf_release(batches[i]); /* it is lost */
}

static void tell_who_asks(stepaf_context_h ctx)
{
    stepaf_members_t members = {.size = sizeof(members)};

    must(!stepaf_members_query(ctx, &members, NULL, 0), "members");
    atomic_store(&shared->asks, members.n_asking > 0);
}

static void run_rank(stepaf_context_h ctx, bool is_first)
{
    bool attends = stepaf_role(ctx) == STEPAF_ATTENTION;
    stepaf_plan_h plan = NULL;
    void *memory;

    must(!stepaf_alloc(ctx, (size_t)(1 + n_ffn) * BYTES, STEPAF_MEM_HOST, &memory), "memory");
    must(!stepaf_key_declare(ctx, PUSH, STEPAF_PUSH, BYTES, NULL), "key");
    must(!stepaf_key_declare(ctx, PULL, STEPAF_PULL, BYTES, NULL), "key");
    if (attends)
        plan = make_plan(ctx, memory);
    commit(ctx);
    uint32_t done = atomic_load(&shared->commits);
    if (is_first)
        must(!stepaf_members_address(ctx, shared->address, sizeof(shared->address)), "address");
    while (!atomic_load(&shared->over)) {
        if (is_first)
            tell_who_asks(ctx);
        uint32_t due = atomic_load(&shared->commits);
        if (attends && done == due)
            operate(plan);
        else if (attends)
            atomic_fetch_add(&shared->n_paused, 1);
        else
            serve(ctx, memory);
        /* FFN ranks answer what is still to be answered. */
        if (done != due &&
            (attends || atomic_load(&shared->n_paused) == atomic_load(&shared->n_attention))) {
            commit(ctx);
            done = due;
        }
    }
    stepaf_finalize(ctx);
}

static pid_t start_rank(int rank, bool is_new)
{
    stepaf_context_h ctx;
    stepaf_boot_t boot;
    char text[16];
    pid_t parent = getpid(), pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (is_new) {
        setenv("STEPAF_JOIN", shared->address, 1);
        snprintf(text, sizeof(text), "%d", rank);
        setenv("STEPAF_RANK", text, 1);
        snprintf(text, sizeof(text), "%d", n_attention + n_ffn);
        setenv("STEPAF_SIZE", text, 1);
        must(!stepaf_init(NULL, NULL, &ctx), "init of a rank that returns");
    } else {
        must(!stepaf_boot_local_attach(local, rank, -1, &boot), "bootstrap");
        must(!stepaf_init(&boot, NULL, &ctx), "init");
    }
    run_rank(ctx, rank == 0);
    _exit(0);
}

/* ---- the job ---- */

static void sleep_until(double at_s)
{
    while (now_s() < at_s)
        (void)usleep(20000);
}

static void have_all_commit(void)
{
    atomic_store(&shared->n_paused, 0);
    atomic_fetch_add(&shared->commits, 1);
}

/* A rank dies, the others go on without it; it returns after @a gone_s. */
static void lose_and_return(pid_t *pids, int victim, double gone_s)
{
    double began = now_s();

    kill(pids[victim], SIGKILL);
    must(waitpid(pids[victim], NULL, 0) == pids[victim], "waitpid");
    if (victim < n_attention)
        atomic_fetch_sub(&shared->n_attention, 1);
    printf("%.3f gone %d\n", began, victim);
    sleep_until(began + 1);
    have_all_commit();
    sleep_until(began + gone_s);
    pids[victim] = start_rank(victim, true);
    must(pids[victim] > 0, "fork");
    printf("%.3f back %d\n", now_s(), victim);
    for (int i = 0; !atomic_load(&shared->asks) && i < 500; i++)
        (void)usleep(20000);
    must(atomic_load(&shared->asks), "nobody asks for the lost rank's place");
    have_all_commit();
    if (victim < n_attention) /* the members' commit has begun with those that were there */
        sleep_until(now_s() + 2);
    atomic_fetch_add(&shared->n_attention, victim < n_attention);
}

int main(int argc, char **argv)
{
    pid_t pids[RANKS_MAX];
    char split[64];
    int failed = 0;

    n_attention = argc == 5 ? atoi(argv[1]) : 0;
    n_ffn = argc == 5 ? atoi(argv[2]) : 0;
    int n = n_attention + n_ffn;
    double seconds = argc == 5 ? atof(argv[3]) : 0, period_s = argc == 5 ? atof(argv[4]) : 0;
    if (n_attention < 2 || n_ffn < 1 || n > RANKS_MAX || period_s < 8) {
        fprintf(stderr, "usage: metrics_job ATTENTION FFN SECONDS PERIOD_S\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(split, sizeof(split), "attn=%d,ffn=%d", n_attention, n_ffn);
    setenv("STEPAF_SPLIT", split, 1);
    setenv("STEPAF_SECRET", "of this test alone", 1);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED && !stepaf_boot_local_create(n, &local), "set-up");
    atomic_store(&shared->n_attention, n_attention);
    for (int r = 0; r < n; r++)
        must((pids[r] = start_rank(r, false)) > 0, "fork");
    double began = now_s();
    printf("%.3f started\n", began);
    sleep_until(began + period_s / 2);
    for (int i = 0; now_s() + period_s < began + seconds; i++) {
        double at = now_s();
        /* Attention and FFN ranks in turn, but not the first: it is whom they ask. */
        lose_and_return(pids, i % 2 ? 1 + i / 2 % (n_attention - 1) : n_attention + i / 2 % n_ffn,
                        period_s / 2);
        sleep_until(at + period_s);
    }
    sleep_until(began + seconds);
    printf("%.3f over\n", now_s());
    atomic_store(&shared->over, true);
    for (int r = 0; r < n; r++) {
        int status = 1;
        (void)waitpid(pids[r], &status, 0);
        failed |= status != 0;
    }
    return failed;
}
