/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: options, the forked ranks and their verdict, the time limit. */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct hs_job job;
static const char *_Atomic step = "start";
static volatile sig_atomic_t overdue;

void hs_step(const char *text)
{
    atomic_store(&step, text);
}

/* The limit of a rank: says where it was, in ways that are safe in a signal handler. */
static void rank_overdue(int signal_number)
{
    char line[160] = "[rank   ] time limit, in: ";
    const char *text = atomic_load(&step);
    size_t bytes = strlen(line), more = strlen(text);

    (void)signal_number;
    line[6] = (char)('0' + job.rank / 10 % 10);
    line[7] = (char)('0' + job.rank % 10);
    if (more > sizeof line - bytes - 1)
        more = sizeof line - bytes - 1;
    memcpy(line + bytes, text, more);
    line[bytes + more] = '\n';
    if (write(STDERR_FILENO, line, bytes + more + 1) < 0)
        _exit(1);
    _exit(1);
}

static void parent_overdue(int signal_number)
{
    (void)signal_number;
    overdue = 1;
}

static void arm(void (*handler)(int), int seconds)
{
    struct sigaction action = {.sa_handler = handler};

    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)seconds);
}

static int usage(const struct hs_test *test, const char *why, const char *what)
{
    fprintf(stderr,
            "%s: %s %s\nusage: %s [--procs N] [--split SPLIT] [--apps A,F]%s%s\n"
            "without --procs: under a launcher\n",
            test->name, why, what, test->name, test->options[0] ? " " : "", test->options);
    return 1;
}

/* Take the common options; each option of the test's own has a value too. */
static int parse(int argc, char **argv, const struct hs_test *test, int *procs_p)
{
    for (int i = 1; i < argc; i += 2) {
        const char *found = strstr(test->options, argv[i]);
        size_t bytes = strlen(argv[i]);

        if (i + 1 >= argc)
            return usage(test, "no value after", argv[i]);
        if (strcmp(argv[i], "--procs") == 0)
            *procs_p = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--split") == 0)
            job.split = argv[i + 1];
        else if (strcmp(argv[i], "--apps") == 0)
            job.apps = argv[i + 1];
        else if (found == NULL || bytes < 3 || (found[bytes] != ' ' && found[bytes] != '\0'))
            return usage(test, "unknown option", argv[i]);
    }
    if (*procs_p < 0 || *procs_p > HS_MAX_RANKS)
        return usage(test, "out of range:", "--procs");
    return 0;
}

/* Run the test as one rank; the caller exits. */
static void run_rank(const struct hs_test *test)
{
    char host[256] = "";

    gethostname(host, sizeof host - 1);
    hs_set_rank(job.rank);
    atomic_store(&job.shared->host[job.rank], hs_mix_text(host));
    atomic_store(&job.shared->pid[job.rank], getpid());
    arm(rank_overdue, test->limit_s * hs_slow());
    if (hs_pause(&job))
        test->body(&job);
    hs_close(&job);
    atomic_store(&job.shared->verdict[job.rank], hs_verdict() + 1);
}

static _Noreturn void child(const struct hs_test *test, int rank, pid_t parent)
{
    const char *hosts = getenv("TEST_HOSTS"), *rails = getenv("VM_RAILS");

    job.rank = rank;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || (hosts != NULL && !hs_move_to_host(hosts, rank)) ||
        (rails != NULL && !hs_take_ends(rails, rank)))
        _exit(1);
    run_rank(test);
    for (int i = 0; i < test->n_boots; i++) {
        if (job.boot_state[i] == 1 && job.boots[i].close != NULL)
            job.boots[i].close(job.boots[i].self);
        stepaf_boot_local_destroy(job.locals[i]);
    }
    exit(hs_exit_code(hs_verdict()));
}

/* Verdict of one child that has ended. */
static int judge(int rank, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    if (code == 0)
        return HS_PASS;
    if (code == 77)
        return HS_SKIP;
    if (WIFSIGNALED(status) && atomic_load(&job.shared->doomed[rank]))
        return HS_PASS;
    if (WIFSIGNALED(status))
        fprintf(stderr, "rank %d was killed by signal %d%s\n", rank, WTERMSIG(status),
                overdue ? " (time limit of the job)" : "");
    return HS_FAIL;
}

static int collect(const struct hs_test *test, pid_t *pids)
{
    int verdict = HS_PASS, left = job.size;

    arm(parent_overdue, test->limit_s * hs_slow() + 5);
    while (left > 0) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);

        if (pid < 0 && errno == EINTR && overdue) {
            verdict = HS_FAIL;
            for (int rank = 0; rank < job.size; rank++)
                if (pids[rank] > 0)
                    kill(pids[rank], SIGKILL);
        }
        for (int rank = 0; pid > 0 && rank < job.size; rank++) {
            if (pids[rank] != pid)
                continue;
            int one = judge(rank, status);
            if (one == HS_FAIL)
                atomic_store(&job.shared->verdict[rank], HS_FAIL + 1);
            verdict = one > verdict ? one : verdict;
            pids[rank] = 0;
            left--;
        }
        if (pid < 0 && errno == ECHILD)
            break;
    }
    return verdict;
}

static int run_forked(const struct hs_test *test, int procs)
{
    static const char *words[] = {"PASS", "SKIP", "FAIL"};
    pid_t pids[HS_MAX_RANKS] = {0}, parent = getpid();
    int verdict, n_boots = 0;

    job.size = procs;
    job.starter = getpid();
    job.shared =
        mmap(NULL, sizeof *job.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job.shared == MAP_FAILED)
        return usage(test, "mmap:", strerror(errno));
    for (; n_boots < test->n_boots; n_boots++)
        if (stepaf_boot_local_create(procs, &job.locals[n_boots]) != STEPAF_OK)
            return usage(test, "stepaf_boot_local_create:", stepaf_last_error()->text);
    fflush(NULL);
    for (int rank = 0; rank < procs; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            child(test, rank, parent);
        if (pids[rank] < 0) {
            for (int other = 0; other < rank; other++)
                kill(pids[other], SIGKILL);
            return usage(test, "fork:", strerror(errno));
        }
    }
    verdict = collect(test, pids);
    for (int i = 0; i < n_boots; i++)
        stepaf_boot_local_destroy(job.locals[i]);
    printf("%s %s\n", words[verdict], test->name);
    return hs_exit_code(verdict);
}

int hs_main(int argc, char **argv, const struct hs_test *test)
{
    int procs = 0, bad;

    hs_catch_crashes();
    job.argc = argc;
    job.argv = argv;
    bad = parse(argc, argv, test, &procs);
    if (bad)
        return bad;
    if (procs > 0)
        return run_forked(test, procs);
    if (!hs_launch_found())
        return usage(test, "neither --procs nor", "a launcher");
    hs_launch_start(&job, &argc, &argv);
    run_rank(test);
    hs_launch_end(&job, test->name);
}
