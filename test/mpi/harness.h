/* SPDX-License-Identifier: Apache-2.0 */
/* The harness of every program in this directory: how the program is launched, how its ranks
 * agree on a verdict, and checks that record a failure and continue.
 *
 * A program runs in two ways. Under a launcher each process is one rank and the context is made
 * on MPI, by stepaf_init_mpi, or, where the program is linked with harness_pmix.c instead of
 * harness_mpi.c, on PMIx alone. With "--procs N" the program forks N ranks and makes the context
 * with stepaf_boot_local, so that it runs without a launcher, under sanitizers and debuggers.
 * With TEST_BOOT_JOIN in the environment these ranks find each other as if each had been started
 * separately; with TEST_BOOT_TCP they meet over TCP: "torchrun" by its variables, else by
 * STEPAF_MEET. With TEST_HOSTS=h1,h2, forked rank r moves to network namespace number r mod 2 of
 * these and uses the namespace's name as host name: see test/hosts.
 *
 * The exit code is 0 (passed), 77 (skipped, with a reason) or 1 (failed), the same for the job. */
#ifndef STEPAF_TEST_HARNESS_H
#define STEPAF_TEST_HARNESS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <stepaf/stepaf.h>

enum { HS_MAX_RANKS = 64, HS_MAX_BOOTS = 72, HS_STAMPS = 64 };

/* Verdicts; the worst of all ranks counts. */
enum hs_verdict { HS_PASS = 0, HS_SKIP = 1, HS_FAIL = 2 };

/* A page that all ranks of the job see, so that tests can order events without the library. */
struct hs_shared {
    _Atomic int arrived[HS_MAX_RANKS]; /* hs_sync calls of each rank */
    _Atomic int verdict[HS_MAX_RANKS]; /* enum hs_verdict + 1 once a rank has finished */
    _Atomic int doomed[HS_MAX_RANKS];  /* not waited for: it leaves early, or will die */
    _Atomic int killed[HS_MAX_RANKS];  /* hs_signal has killed it */
    _Atomic int died[HS_MAX_RANKS];    /* by such a signal, at least once; it may have returned */
    _Atomic int pid[HS_MAX_RANKS];
    _Atomic uint64_t host[HS_MAX_RANKS]; /* follows from its name */
    _Atomic int64_t stamp[HS_STAMPS];    /* for tests */
};

/* A rank's place in the job. */
struct hs_job {
    int rank, size; /* in the world */
    int starter;    /* the process that forked the ranks; 0: a launcher has started them */
    bool launched;
    bool abandoned; /* a commit or init was abandoned: the launcher's collectives are out of step */
    bool noisy;     /* another library opens files and starts threads: do not count them */
    const char *split; /* --split, or NULL */
    const char *apps;  /* --apps A,F: forked ranks report application numbers 0 and 1 */
    int argc;
    char **argv;
    struct hs_shared *shared;

    /* Set by hs_open. */
    stepaf_context_h ctx;
    stepaf_role_t role;
    int index;     /* within the role's group */
    int attn, ffn; /* ranks in each group */
    int peers;     /* number of peers: ranks of the other role that this one communicates with */
    int fds;       /* open before hs_open */

    /* Forked launch only. */
    stepaf_boot_local_t *locals[HS_MAX_BOOTS];
    stepaf_boot_t boots[HS_MAX_BOOTS];
    unsigned char boot_state[HS_MAX_BOOTS];
};

/* One test program. */
struct hs_test {
    const char *name;
    const char *options; /* the program's own options, each followed by a value: "--ops --seed" */
    int limit_s;         /* time limit of the whole run, before the factor of slow builds */
    int n_boots;         /* number of contexts, at least 1 */
    void (*body)(struct hs_job *job);
};

int hs_main(int argc, char **argv, const struct hs_test *test);

/* Report the position on a crash. */
void hs_catch_crashes(void);

/* Values of the program's own options. */
long long hs_option_int(const struct hs_job *job, const char *name, long long fallback);
const char *hs_option_text(const struct hs_job *job, const char *name, const char *fallback);

/* Make context number @a boot; in the forked launch each number can succeed once. */
stepaf_status_t hs_init(struct hs_job *job, int boot, const stepaf_params_t *params,
                        stepaf_context_h *ctx_p);

/* Fill in the places of an existing context. */
void hs_take_place(struct hs_job *job);
/* Make job->ctx as the command line says and fill in the places. Returns false, with a recorded
 * failure, if that does not work. hs_open_with uses the caller's parameters too. */
bool hs_open(struct hs_job *job);
bool hs_open_with(struct hs_job *job, stepaf_params_t params);

/* Finalize job->ctx, and check that it left no file descriptor, shared mapping or thread. */
void hs_close(struct hs_job *job);

/* Wait until all ranks that are not doomed have arrived. hs_sync drives job->ctx meanwhile,
 * hs_pause does not touch the library. Returns false, with a failure, after 30 s. */
bool hs_sync(struct hs_job *job);
bool hs_pause(struct hs_job *job);

/* Whether a rank has ended with a failure: waiting is then pointless. */
bool hs_hopeless(const struct hs_job *job);

/* Whether world rank @a rank is on this rank's host, by name. */
bool hs_same_host(const struct hs_job *job, int rank);

/* Mark world rank @a victim as one that may die or leave, and must not be waited for. */
void hs_doom(struct hs_job *job, int victim);

/* Whether the launcher's own collectives and its orderly end are still available: no rank has
 * been killed, and this one has abandoned nothing. */
bool hs_launcher_whole(const struct hs_job *job);

/* Send @a signal_number to world rank @a victim; the time goes to stamp[0]. */
void hs_signal(struct hs_job *job, int victim, int signal_number);

/* Record the rank's position, for the message at the time limit. A literal. */
void hs_step(const char *step);

/* End the test in this rank as skipped; the reason is printed once. Return after it. */
void hs_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Factor for time limits: 1, more in sanitizer builds, or the environment's TEST_SLOW. */
int hs_slow(void);

int64_t hs_now_ns(void);
void hs_sleep_us(int64_t us);
/* Yield between two polls of a condition that others fulfil. A loop that does nothing but yield
 * can keep ranks of other sessions off all cores for as long as it lasts (Linux 6.18). */
void hs_yield(void);
int hs_count_fds(void);
/* Count lines of /proc/<pid>/maps and links of /proc/<pid>/fd that contain @a text. */
int hs_count_mappings(pid_t pid, const char *text);
int hs_count_links(pid_t pid, const char *text);
int hs_count_threads(void);
/* Return the resident memory that belongs to no file; 0 if the kernel does not report it. */
size_t hs_resident_bytes(void);

/* ---- checks: each returns whether it held, and never stops the rank ---- */

bool hs_report(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool hs_check_status(const char *file, int line, const char *call, stepaf_status_t is,
                     stepaf_status_t want);
bool hs_check_refused(const char *file, int line, const char *call, stepaf_status_t is,
                      stepaf_status_t want);
bool hs_failed(void);
int hs_verdict(void);
void hs_set_rank(int rank);

/* Record a failure with a message. */
#define HS_FAILED(...) hs_report(__FILE__, __LINE__, __VA_ARGS__)

/* Check that an expression is true. */
#define HS_TRUE(is_) ((is_) ? true : hs_report(__FILE__, __LINE__, "not true: %s", #is_))

/* Check a comparison of integers: HS_INT(a, ==, b). */
#define HS_INT(a_, op_, b_)                                               \
    __extension__({                                                       \
        long long hs_a = (long long)(a_), hs_b = (long long)(b_);         \
        hs_a op_ hs_b ? true                                              \
                      : hs_report(__FILE__, __LINE__,                     \
                                  "%s is %lld, should be " #op_ " %lld (" \
                                  "%s)",                                  \
                                  #a_, hs_a, hs_b, #b_);                  \
    })

/* Check the result of a call. HS_REFUSED also checks the thread's last error: the same status,
 * and one sentence. */
#define HS_STATUS(call_, want_) hs_check_status(__FILE__, __LINE__, #call_, (call_), (want_))
#define HS_OK(call_) HS_STATUS(call_, STEPAF_OK)
#define HS_REFUSED(call_, want_) hs_check_refused(__FILE__, __LINE__, #call_, (call_), (want_))

/* ---- bytes that follow from a number: harness_bytes.c ---- */

enum { HS_POISON = 0xA5 };
uint64_t hs_mix(uint64_t x);
uint64_t hs_mix_text(const char *text);
void hs_fill(void *data, size_t bytes, uint64_t stream);
bool hs_verify(const char *what, const void *data, size_t bytes, uint64_t stream);
bool hs_verify_poison(const char *what, const unsigned char *data, size_t bytes);

/* ---- forked ranks on several hosts, or on the ends of RDMA links: harness_hosts.c ---- */

bool hs_move_to_host(const char *hosts, int rank);
/* @a rails: test/vm's $VM_RAILS, such as "r0 r1"; sets STEPAF_NET_DEVICES. */
bool hs_take_ends(const char *rails, int rank);

/* ---- under a launcher: harness_mpi.c, harness_pmix.c ---- */

bool hs_launch_found(void);
void hs_launch_start(struct hs_job *job, int *argc_p, char ***argv_p);
stepaf_status_t hs_launch_init(const stepaf_params_t *params, stepaf_context_h *ctx_p);
_Noreturn void hs_launch_end(struct hs_job *job, const char *name);
/* With MPI: give all ranks of MPI_COMM_WORLD job->shared, or end them as skipped. */
void hs_mpi_share_page(struct hs_job *job);

/* The page for these: rank 0 makes it and sends its location to the others. */
void hs_page_create(int where_p[2]);
bool hs_page_open(struct hs_job *job, const int where[2]);
/* Wait for the verdicts of all ranks that are not doomed. The first of them prints the worst
 * verdict; if some ranks never died, the first of those does: a launcher may no longer pass on
 * the output of processes that replace others. */
int hs_page_verdict(const struct hs_job *job, const char *name);
int hs_exit_code(int verdict);

#endif
