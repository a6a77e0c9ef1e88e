/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank was when it crashed, on standard error: what MPI says of that ends where the call of a function that
 * is not there began. Sanitizers say it themselves. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#include "harness.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

enum { WORDS = 512, CALLERS = 24 };

static void print_address(const char *what, uintptr_t address)
{
    Dl_info info = {0};

    if (!dladdr((void *)address, &info)) /* NOLINT(performance-no-int-to-ptr) */
        info.dli_fname = "?";
    dprintf(STDERR_FILENO, "  %s %#lx %s+%#lx %s\n", what, (unsigned long)address,
            info.dli_fname ? info.dli_fname : "?",
            (unsigned long)(address - (uintptr_t)info.dli_fbase),
            info.dli_sname ? info.dli_sname : "");
}

/* What on the stack may be a caller: an address of code. */
static void print_stack(uintptr_t top)
{
    const uintptr_t *words = (const uintptr_t *)top; /* NOLINT(performance-no-int-to-ptr) */
    int found = 0;

    for (int i = 0; i < WORDS && found < CALLERS; i++) {
        Dl_info info = {0};
        if (!dladdr((void *)words[i], &info)) /* NOLINT(performance-no-int-to-ptr) */
            continue;
        print_address("stack", words[i]);
        found++;
    }
}

static void print_crash(int number, siginfo_t *info, void *context)
{
    const ucontext_t *at = context;
    char name[16] = "";

    (void)prctl(PR_GET_NAME, name);
    dprintf(STDERR_FILENO, "crash: signal %d at %p, thread %s, pid %d\n", number, info->si_addr,
            name, (int)getpid());
    print_address("at", (uintptr_t)at->uc_mcontext.gregs[REG_RIP]);
    print_stack((uintptr_t)at->uc_mcontext.gregs[REG_RSP]);
    (void)signal(number, SIG_DFL);
}

/* Before MPI, which leaves a handler that is there. */
void hs_catch_crashes(void)
{
    struct sigaction action = {.sa_sigaction = print_crash, .sa_flags = SA_SIGINFO};

    (void)sigaction(SIGSEGV, &action, NULL);
    (void)sigaction(SIGBUS, &action, NULL);
}

#else

void hs_catch_crashes(void)
{
}

#endif
