/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include <errno.h>
#include <string.h>

#include "fail.h"

static FILE *samples_file; /* of rank 0, on request */
static const char *samples_name;

static int fail_to_write(void)
{
    return perf_fail("--samples: %s: %s", samples_name, strerror(errno));
}

int perf_samples_open(const char *name, FILE **file_p)
{
    samples_name = name;
    samples_file = fopen(name, "we");
    if (samples_file == NULL)
        return fail_to_write();
    fprintf(samples_file, "row,push_bytes,pull_bytes,contender,rank,sample,usec\n");
    *file_p = samples_file;
    return 0;
}

int perf_samples_write(int row, const struct perf_case *c, enum perf_who who, int n_ranks,
                       const double *samples, const size_t *offsets)
{
    static const char *const names[PERF_WHO_LAST] = {"ours", "mpi", "nccl", "floor"};

    for (int rank = 0; rank < n_ranks; rank++) {
        size_t from = offsets[rank] / sizeof(double);

        for (size_t i = from; i < offsets[rank + 1] / sizeof(double); i++)
            fprintf(samples_file, "%d,%zu,%zu,%s,%d,%zu,%.6f\n", row, c->push_bytes, c->pull_bytes,
                    names[who], rank, i - from, samples[i]);
    }
    return fflush(samples_file) != 0 || ferror(samples_file) ? fail_to_write() : 0;
}

int perf_samples_close(void)
{
    FILE *file = samples_file;

    samples_file = NULL;
    return file != NULL && fclose(file) != 0 ? fail_to_write() : 0;
}
