/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "clock.h"

enum { QUIET_MS = 1000, EVERY_MS = 200 };

static int to_terminal;
static int shown;
static int64_t begun_ns, last_ns;

void perf_progress_begin(void)
{
    to_terminal = isatty(STDERR_FILENO);
    begun_ns = perf_now_ns();
}

void perf_progress(const struct perf_options *options, int row, uint64_t done, uint64_t of)
{
    int64_t now_ns;

    if (!to_terminal)
        return;
    now_ns = perf_now_ns();
    if (now_ns - begun_ns < QUIET_MS * 1000000LL || now_ns - last_ns < EVERY_MS * 1000000LL)
        return;
    last_ns = now_ns;
    shown = 1;
    fprintf(stderr, "\r\033[K%s: row %d of %d, %d %%", perf_test_name(options->test), row + 1,
            options->n_rows, (int)(100 * done / of));
    fflush(stderr);
}

void perf_progress_clear(void)
{
    if (!shown)
        return;
    fprintf(stderr, "\r\033[K");
    fflush(stderr);
    shown = 0;
}
