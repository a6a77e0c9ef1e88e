/* SPDX-License-Identifier: Apache-2.0 */
#include "pmix_session.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What means that a process will not be heard of again. */
static pmix_status_t losses[] = {
    PMIX_ERR_PROC_REQUESTED_ABORT,
    PMIX_ERR_PROC_TERM_WO_SYNC,
    PMIX_ERR_PROC_KILLED_BY_CMD,
    PMIX_ERR_PROC_ABORTED_BY_SIG,
    PMIX_ERR_PROC_SENSOR_BOUND_EXCEEDED,
    PMIX_ERR_EXIT_NONZERO_TERM,
    PMIX_ERR_LOST_CONNECTION,
    PMIX_EVENT_NODE_DOWN,
    PMIX_EVENT_NODE_OFFLINE,
    -7, /* PMIX_ERR_PROC_ABORTED, which PMIx 4 keeps in a header of its own */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t client; /* the process that is one; a child of it by fork is not */
/* Its memory stays, once there is any: PMIx may tell of a loss any time. */
static struct stepaf_pmix_session session;

stepaf_status_t stepaf_pmix_error(pmix_status_t code, const char *what)
{
    stepaf_status_t status = STEPAF_ERR_BOOT;
    if (code == PMIX_ERR_TIMEOUT)
        status = STEPAF_ERR_TIMEOUT;
    else if (code == PMIX_ERR_NOMEM || code == PMIX_ERR_OUT_OF_RESOURCE)
        status = STEPAF_ERR_NO_MEMORY;
    for (unsigned i = 0; i < sizeof losses / sizeof *losses; i++)
        if (code == losses[i])
            status = STEPAF_ERR_PEER_LOST;
    return stepaf_boot_fail(status, "PMIx bootstrap: %s: %s", what, PMIx_Error_string(code));
}

static void mark_lost(const pmix_proc_t *proc)
{
    if (!PMIX_CHECK_NSPACE(proc->nspace, session.self.nspace) ||
        proc->rank >= (unsigned)session.size || proc->rank == session.self.rank ||
        atomic_exchange(&session.is_lost[proc->rank], 1))
        return;
    int n = atomic_load_explicit(&session.n_lost, memory_order_relaxed);
    session.lost[n] = (int)proc->rank;
    atomic_store_explicit(&session.n_lost, n + 1, memory_order_release);
}

/* Called by PMIx's thread. Who is affected is said in @a info; else it is the one that the event
 * comes from, unless that is a server. */
static void on_loss(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[],
                    size_t n_info, pmix_info_t results[], size_t n_results,
                    pmix_event_notification_cbfunc_fn_t done, void *done_arg)
{
    int is_said = 0;
    (void)id, (void)status, (void)results, (void)n_results;
    for (size_t i = 0; i < n_info; i++) {
        const pmix_value_t *value = &info[i].value;
        if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROC) && value->type == PMIX_PROC &&
            value->data.proc) {
            mark_lost(value->data.proc);
            is_said = 1;
        } else if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROCS) &&
                   value->type == PMIX_DATA_ARRAY && value->data.darray &&
                   value->data.darray->type == PMIX_PROC && value->data.darray->array) {
            const pmix_proc_t *procs = value->data.darray->array;
            for (size_t p = 0; p < value->data.darray->size; p++)
                mark_lost(&procs[p]);
            is_said = 1;
        }
    }
    if (!is_said && source)
        mark_lost(source);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, done_arg);
}

/* A number that the server has told of @a rank at start. -1: it has not. Slurm's are int where
 * Open MPI's are unsigned. */
static long told_number(pmix_rank_t rank, const char *key)
{
    long number = -1;
    pmix_proc_t proc;
    pmix_info_t only_local;
    pmix_value_t *value = NULL;
    PMIX_LOAD_PROCID(&proc, session.self.nspace, rank);
    PMIX_INFO_LOAD(&only_local, PMIX_OPTIONAL, NULL, PMIX_BOOL);
    if (PMIx_Get(&proc, key, &only_local, 1, &value) == PMIX_SUCCESS && value) {
        if (value->type == PMIX_UINT32)
            number = value->data.uint32;
        else if (value->type == PMIX_INT)
            number = value->data.integer;
        else if (value->type == PMIX_INT32)
            number = value->data.int32;
        PMIX_VALUE_RELEASE(value);
    }
    PMIX_INFO_DESTRUCT(&only_local);
    return number;
}

/* The application that this rank belongs to; -1 unless there are several. */
static int find_app_number(void)
{
    long n_apps = told_number(PMIX_RANK_WILDCARD, PMIX_JOB_NUM_APPS);
    long number = told_number(session.self.rank, PMIX_APPNUM);
    if (number < 0 || number > INT_MAX || (n_apps <= 1 && number == 0))
        return -1;
    return (int)number;
}

/* Ranks of this node, from the server's list: "0,1,5". */
static void find_near(void)
{
    pmix_proc_t all;
    pmix_info_t only_local;
    pmix_value_t *value = NULL;
    PMIX_LOAD_PROCID(&all, session.self.nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&only_local, PMIX_OPTIONAL, NULL, PMIX_BOOL);
    pmix_status_t code = PMIx_Get(&all, PMIX_LOCAL_PEERS, &only_local, 1, &value);
    PMIX_INFO_DESTRUCT(&only_local);
    if (code != PMIX_SUCCESS || !value)
        return;
    if (value->type == PMIX_STRING && value->data.string)
        session.is_near = calloc((size_t)session.size, sizeof *session.is_near);
    for (const char *at = session.is_near ? value->data.string : ""; *at;) {
        char *end;
        unsigned long rank = strtoul(at, &end, 10);
        if (end != at && rank < (unsigned long)session.size)
            session.is_near[rank] = 1;
        at = end + strspn(end, ",");
        if (end == at && *at)
            break; /* what is not a list */
    }
    PMIX_VALUE_RELEASE(value);
}

static stepaf_status_t learn_job(void)
{
    long size = told_number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    if (size < 1 || size > INT_MAX || session.self.rank >= (unsigned long)size)
        return stepaf_boot_fail(STEPAF_ERR_BOOT,
                                "PMIx bootstrap: the server does not report the size of the job");
    session.size = (int)size;
    session.app_number = find_app_number();
    session.lost = calloc((size_t)size, sizeof *session.lost);
    session.is_lost = calloc((size_t)size, sizeof *session.is_lost);
    find_near();
    if (session.lost && session.is_lost)
        return STEPAF_OK;
    free(session.lost);
    free((void *)session.is_lost);
    free(session.is_near);
    session.lost = NULL;
    session.is_lost = NULL;
    session.is_near = NULL;
    return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "PMIx bootstrap: no memory for %ld ranks", size);
}

/* A process that ends without this counts as failed. */
static void at_exit(void)
{
    if (client == getpid())
        PMIx_Finalize(NULL, 0);
}

static stepaf_status_t begin(void)
{
    pmix_status_t code = PMIx_Init(&session.self, NULL, 0);
    if (code != PMIX_SUCCESS) {
        stepaf_status_t status = stepaf_boot_check_alone("PMIx");
        if (status != STEPAF_OK)
            return status;
        return stepaf_boot_fail(STEPAF_ERR_BOOT,
                                "PMIx_Init: %s: no PMIx server has started this process: start it "
                                "with mpirun -n N or srun --mpi=pmix -n N",
                                PMIx_Error_string(code));
    }
    stepaf_status_t status = learn_job();
    if (status == STEPAF_OK && session.size == 1)
        status = stepaf_boot_check_alone("PMIx");
    if (status != STEPAF_OK) {
        PMIx_Finalize(NULL, 0);
        return status;
    }
    /* Where the launcher does not report losses, the transports find them. */
    (void)PMIx_Register_event_handler(losses, sizeof losses / sizeof *losses, NULL, 0, on_loss,
                                      NULL, NULL);
    client = getpid();
    atexit(at_exit);
    return STEPAF_OK;
}

stepaf_status_t stepaf_pmix_session_open(const struct stepaf_pmix_session **session_p)
{
    stepaf_status_t status = STEPAF_OK;
    pthread_mutex_lock(&lock);
    if (!client)
        status = begin();
    else if (client != getpid())
        status = stepaf_boot_fail(
            STEPAF_ERR_BOOT,
            "PMIx bootstrap: this process was forked from the process that the launcher started");
    pthread_mutex_unlock(&lock);
    if (status == STEPAF_OK)
        *session_p = &session;
    return status;
}
