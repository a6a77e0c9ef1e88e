/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_TRACE_SIGNAL: the signal handler, and reacting to counted signals. */
#include "core/trace_signal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "boot/boot_return.h"
#include "core/trace_file.h"
#include "core/trace_save.h"

_Atomic uint32_t stepaf_trace_n_signals;
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a handler may count");

static pthread_mutex_t signal_lock = PTHREAD_MUTEX_INITIALIZER;
/* Under signal_lock: number of contexts that react to our signal, and the previous handler. */
static int n_heeding, our_signal;
static struct sigaction before_us;

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add_explicit(&stepaf_trace_n_signals, 1, memory_order_relaxed);
}

static int signal_of(const struct stepaf_ctx *ctx)
{
    switch (ctx->env.trace_signal) {
    case STEPAF_ENV_TRACE_SIGNAL_hup:
        return SIGHUP;
    case STEPAF_ENV_TRACE_SIGNAL_usr1:
        return SIGUSR1;
    case STEPAF_ENV_TRACE_SIGNAL_usr2:
        return SIGUSR2;
    default:
        return 0;
    }
}

/* Install the handler. Return NULL on success, or the reason. */
static const char *take_signal(int number)
{
    struct sigaction ours = {.sa_handler = count_signal, .sa_flags = SA_RESTART};

    if (n_heeding > 0)
        return number == our_signal ? NULL : "another context uses a different signal";
    if (sigaction(number, NULL, &before_us))
        return strerror(errno);
    if ((before_us.sa_flags & SA_SIGINFO) ||
        (before_us.sa_handler != SIG_DFL && before_us.sa_handler != SIG_IGN))
        return "the program has a handler of its own";
    if (sigaction(number, &ours, NULL))
        return strerror(errno);
    our_signal = number;
    return NULL;
}

void stepaf_trace_signal_begin(struct stepaf_ctx *ctx)
{
    const char *why = NULL;
    int number = signal_of(ctx);

    if (!number)
        return;
    ctx->trace.n_heeded = atomic_load(&stepaf_trace_n_signals);
    /* A returning rank continues at the number of the others. */
    ctx->trace.n_signals_before =
        stepaf_boot_returns(&ctx->job.boot) && stepaf_trace_file_is_on(ctx)
            ? stepaf_trace_file_n_signals(ctx)
            : 0;
    pthread_mutex_lock(&signal_lock);
    why = stepaf_trace_file_is_on(ctx) ? take_signal(number)
                                       : "STEPAF_TRACE_FILE is not set, or STEPAF_TRACE is off";
    n_heeding += !why;
    pthread_mutex_unlock(&signal_lock);
    ctx->trace.heeds = !why;
    if (why)
        stepaf_log_warn("STEPAF_TRACE_SIGNAL does nothing: %s", why);
}

void stepaf_trace_signal_end(struct stepaf_ctx *ctx)
{
    struct sigaction now;

    if (!ctx->trace.heeds)
        return;
    ctx->trace.heeds = false;
    stepaf_trace_save_end(ctx->trace.saver, ctx->env.timeout_us);
    ctx->trace.saver = NULL;
    pthread_mutex_lock(&signal_lock);
    if (--n_heeding == 0 && !sigaction(our_signal, NULL, &now) && now.sa_handler == count_signal) {
        /* A signal to a job must not end a rank that has finished before others. */
        before_us.sa_handler = SIG_IGN;
        (void)sigaction(our_signal, &before_us, NULL);
    }
    pthread_mutex_unlock(&signal_lock);
}

void stepaf_trace_signal_heed(struct stepaf_ctx *ctx)
{
    if (ctx->trace.saver && !stepaf_trace_save_is_over(ctx->trace.saver))
        return; /* this signal is handled later */
    ctx->trace.saver = NULL;
    ctx->trace.n_heeded++; /* one file per signal, as at ranks that check more often */
    stepaf_trace_file_add_now(ctx, ctx->trace.n_signals_before + ctx->trace.n_heeded);
}
