/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that ends when a job has begun and has not come to its first commit, by each bootstrap of
 * the library: the others are told at once. What they are told to wait is more than this test is
 * given. */
#include <signal.h>
#include <sys/wait.h>

#include "boot/boot_advance.h"
#include "meets.h"

enum { RANKS = 3, ENDLESS_US = 600000000 };

enum way { KILLED, FINALIZES, RETURNS, WAYS };

static const char *const bootstraps[] = {"local", "tcp", "torchrun"};

static void set_number(const char *name, int number)
{
    char text[16];

    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* What each bootstrap is told its place by. */
static void set_place(const char *bootstrap, int rank)
{
    char text[64];

    if (strcmp(bootstrap, "local") == 0) {
        snprintf(text, sizeof text, "early-%d", (int)getppid());
        setenv("STEPAF_LOCAL_JOB", text, 1);
        set_number("STEPAF_LOCAL_SIZE", RANKS);
        set_number("STEPAF_LOCAL_RANK", rank);
    } else if (strcmp(bootstrap, "tcp") == 0) {
        snprintf(text, sizeof text, "127.0.0.1:%u", meet_port);
        setenv("STEPAF_MEET", text, 1);
        set_number("STEPAF_SIZE", RANKS);
        set_number("STEPAF_RANK", rank);
    } else {
        setenv("TORCHELASTIC_RUN_ID", "early", 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        set_number("MASTER_PORT", meet_port - 1000); /* ranks meet 1000 above */
        set_number("WORLD_SIZE", RANKS);
        set_number("RANK", rank);
    }
    setenv("STEPAF_SPLIT", "attn=1,ffn=2", 1);
    set_number("STEPAF_INIT_TIMEOUT_US", ENDLESS_US);
    set_number("STEPAF_COMMIT_TIMEOUT_US", ENDLESS_US);
}

static int be_the_victim(stepaf_context_h ctx, enum way way)
{
    if (way == KILLED)
        kill(getpid(), SIGKILL);
    if (way == FINALIZES)
        stepaf_finalize(ctx);
    return 0; /* without a word, as a program that has seen another failure */
}

static int be_a_rank(const char *bootstrap, int rank, int victim, enum way way)
{
    stepaf_context_h ctx = NULL;

    set_place(bootstrap, rank);
    stepaf_status_t status = stepaf_init(NULL, NULL, &ctx);
    if (status == STEPAF_OK && rank == victim)
        return be_the_victim(ctx, way);
    if (status == STEPAF_OK) /* or it has heard of the end already */
        status = stepaf_commit(ctx);
    const stepaf_error_t *error = stepaf_last_error();
    int wrong = status != STEPAF_ERR_PEER_LOST || error->peer_world_rank != victim;
    if (wrong)
        fprintf(stderr, "\n    %s: rank %d of whom rank %d has ended: %s: %s\n", bootstrap, rank,
                victim, stepaf_status_name(status), error->text);
    stepaf_finalize(ctx);
    return wrong;
}

static void expect_news(const char *bootstrap, int victim, enum way way)
{
    pid_t pids[RANKS];
    int status;

    for (int rank = 0; rank < RANKS; rank++)
        if ((pids[rank] = fork()) == 0)
            _exit(be_a_rank(bootstrap, rank, victim, way));
    for (int rank = 0; rank < RANKS; rank++) {
        CU_ASSERT_EQUAL(waitpid(pids[rank], &status, 0), pids[rank]);
        CU_ASSERT(rank == victim && way == KILLED ? WIFSIGNALED(status) : status == 0);
    }
}

static void who_ends_before_the_first_commit(void)
{
    for (size_t b = 0; b < sizeof bootstraps / sizeof *bootstraps; b++)
        for (int victim = 0; victim < RANKS; victim++)
            for (int way = 0; way < WAYS; way++)
                expect_news(bootstraps[b], victim, (enum way)way);
}

/* ---- in the middle of the meeting, over TCP ---- */

static int64_t end_when_let_in(void *arg)
{
    const struct stepaf_control *control = ((struct meet *)arg)->boot.self;

    if (control->links[0] && control->links[0]->state == STEPAF_CONTROL_UP)
        kill(getpid(), SIGKILL);
    return 1000;
}

/* Rank 0 is there, and rank 2 has been let in and has ended. */
static void lose_one_in_the_meeting(struct meet *meets)
{
    int status;

    meet_prepare(meets, RANKS, ENDLESS_US);
    meet_start(meets, 1);
    pid_t pid = fork();
    if (pid == 0) {
        stepaf_boot_set_advance(end_when_let_in, &meets[2]);
        meet_run_rank(&meets[2]);
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    CU_ASSERT(WIFSIGNALED(status));
}

static void who_ends_in_the_meeting(void)
{
    struct meet meets[RANKS];

    lose_one_in_the_meeting(meets);
    meet_run(meets + 1, 1);
    meet_finish(meets, 1);
    for (int i = 0; i < RANKS - 1; i++)
        meet_expect(&meets[i], STEPAF_ERR_PEER_LOST, "rank 2 was here and has ended");
}

/* Another process comes in the place of the one that has ended. */
static void who_comes_again_is_welcome(void)
{
    struct meet meets[RANKS];

    lose_one_in_the_meeting(meets);
    meet_run(meets + 1, 2);
    meet_finish(meets, 1);
    for (int i = 0; i < RANKS; i++)
        meet_expect(&meets[i], STEPAF_OK, "");
}

/* A rank that cannot listen. */
static void who_cannot_take_part_says_so(void)
{
    struct meet meets[RANKS];
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6};
    socklen_t bytes = sizeof address;

    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&address, bytes), 0);
    CU_ASSERT_EQUAL_FATAL(listen(fd, 1), 0);
    CU_ASSERT_EQUAL_FATAL(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    meet_prepare(meets, RANKS, ENDLESS_US);
    snprintf(meets[2].ports, sizeof meets[2].ports, "%u", ntohs(address.sin6_port));
    meet_run(meets, RANKS);
    for (int i = 0; i < RANKS; i++)
        meet_expect(&meets[i], STEPAF_ERR_BOOT, "rank 2: no free port in STEPAF_NET_PORTS");
    close(fd);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who ends before the first commit", who_ends_before_the_first_commit},
        {"who ends in the meeting", who_ends_in_the_meeting},
        {"who comes again is welcome", who_comes_again_is_welcome},
        {"who cannot take part says so", who_cannot_take_part_says_so},
        CU_TEST_INFO_NULL,
    };
    meet_forget_launchers();
    return unit_run(tests);
}
