/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input to stepaf_init: ranks whose views of the job contradict each other. Every rank is told
 * which rank and what. */
#include "bad_init.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void bad_try_saying(struct hs_job *job, const stepaf_params_t *params, stepaf_status_t want,
                    const char *words)
{
    if (bad_try(job, params, want, words) && strstr(stepaf_last_error()->text, words) == NULL)
        HS_FAILED("\"%s\" is not in: %s", words, stepaf_last_error()->text);
}

/* Settings that have to be the same everywhere: each other at the last rank alone. */
void bad_agreement(struct hs_job *job)
{
    static const char *const settings[][3] = {
        {"STEPAF_DEPTH", "2", "3"},
        {"STEPAF_SHM_RING_SLOTS", "16", "32"},
        {"STEPAF_SHM_FRAGMENT_BYTES", "4096", "8192"},
        {"STEPAF_TRANSPORTS", "", "shm"},
        {"STEPAF_CLOCK", "auto", "ping"},
    };
    stepaf_params_t params = bad_good_params();
    bool culprit = job->rank == job->size - 1;
    char words[128];

    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        snprintf(words, sizeof words, "%s differs: \"%s\" at rank 0, \"%s\" at rank %d",
                 settings[i][0], settings[i][1], settings[i][2], job->size - 1);
        setenv(settings[i][0], settings[i][culprit ? 2 : 1], 1);
        bad_try_saying(job, &params, STEPAF_ERR_MISMATCH, words);
        unsetenv(settings[i][0]);
    }
    /* The split, by whichever way each rank was given it. */
    snprintf(words, sizeof words, "differs: \"%s\" at rank 0, \"ffn=1\" at rank %d", bad_split,
             job->size - 1);
    if (culprit)
        params.split = "ffn=1";
    bad_try_saying(job, &params, STEPAF_ERR_MISMATCH, words);
    setenv("STEPAF_SPLIT", culprit ? "ffn=1" : bad_split, 1);
    bad_try_saying(job, NULL, STEPAF_ERR_MISMATCH, words);
    params = bad_good_params();
    bad_try_saying(job, culprit ? NULL : &params, STEPAF_ERR_MISMATCH, words);
    unsetenv("STEPAF_SPLIT");
}

static bool write_map(const char *path, int n_ffn, int size)
{
    FILE *file = fopen(path, "w");

    if (file == NULL)
        return HS_FAILED("cannot write %s: %s", path, strerror(errno));
    for (int rank = 0; rank < size; rank++)
        fputs(rank < n_ffn ? "ffn\n" : "attn\n", file);
    return HS_INT(fclose(file), ==, 0);
}

/* The same name, but each rank has a folder of its own, as on hosts that share no disk. */
void bad_maps(struct hs_job *job)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = "map=map.txt"};
    const char *base = getenv("TMPDIR");
    bool culprit = job->rank == job->size - 1;
    char before[512], folder[300], words[64];

    snprintf(folder, sizeof folder, "%s/stepaf-maps-XXXXXX", base != NULL ? base : "/tmp");
    if (!HS_TRUE(getcwd(before, sizeof before) != NULL) || !HS_TRUE(mkdtemp(folder) != NULL) ||
        !HS_INT(chdir(folder), ==, 0))
        return;
    if (!culprit)
        write_map("map.txt", 1, job->size);
    hs_pause(job);
    bad_try_saying(job, &params, STEPAF_ERR_SPLIT, "map file: cannot open map.txt");
    if (culprit)
        write_map("map.txt", job->size - 1, job->size);
    snprintf(words, sizeof words, "differs between rank %d and rank 0", job->size - 1);
    if (job->size > 2) /* else the two files are alike */
        bad_try_saying(job, &params, STEPAF_ERR_MISMATCH, words);
    unlink("map.txt");
    HS_INT(chdir(before), ==, 0);
    rmdir(folder);
}

enum { OTHER_VERSION = 250 };

static stepaf_boot_t carrier;

/* What the last rank says of itself, as if it were of another wire version. */
static stepaf_status_t other_version(void *self, const void *data, size_t bytes, void **all_p,
                                     size_t *offsets_p, int64_t timeout_us)
{
    stepaf_status_t status = carrier.allgather(self, data, bytes, all_p, offsets_p, timeout_us);

    if (status == STEPAF_OK)
        ((unsigned char *)*all_p)[offsets_p[carrier.size - 1] + 4] = OTHER_VERSION;
    return status;
}

void bad_versions(struct hs_job *job)
{
    stepaf_params_t params = bad_good_params();
    stepaf_context_h ctx = NULL;
    stepaf_boot_t boot;
    char words[128];

    if (job->launched || !bad_borrow(job, &boot))
        return; /* libstepaf_mpi makes its own */
    carrier = boot;
    boot.allgather = other_version;
    snprintf(words, sizeof words, "%s (wire version %d) at rank %d", STEPAF_VERSION_STRING,
             OTHER_VERSION, job->size - 1);
    HS_REFUSED(stepaf_init(&boot, &params, &ctx), STEPAF_ERR_MISMATCH);
    HS_TRUE(ctx == NULL);
    if (strstr(stepaf_last_error()->text, words) == NULL)
        HS_FAILED("\"%s\" is not in: %s", words, stepaf_last_error()->text);
}

/* Roles that some ranks say of themselves, against the split's counts. */
void bad_contradictions(struct hs_job *job)
{
    stepaf_params_t params = bad_good_params();
    stepaf_context_h ctx = NULL;
    char words[64];

    if (job->rank == 0) /* the only attention rank of the split */
        setenv("STEPAF_ROLE", "ffn", 1);
    snprintf(words, sizeof words, "there are 0 and %d", job->size);
    bad_try_saying(job, &params, STEPAF_ERR_SPLIT, words);
    unsetenv("STEPAF_ROLE");
    /* Swapped with another rank, it is no contradiction. */
    if (job->size < 3)
        return;
    if (job->rank < 2)
        setenv("STEPAF_ROLE", job->rank == 0 ? "ffn" : "attention", 1);
    if (HS_OK(hs_init(job, 2, &params, &ctx)))
        HS_INT(stepaf_role(ctx), ==, job->rank == 1 ? STEPAF_ATTENTION : STEPAF_FFN);
    stepaf_finalize(ctx);
    unsetenv("STEPAF_ROLE");
}

/* Counts of each node: the last rank is on another one than the others. */
void bad_nodes(struct hs_job *job)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT};
    bool last = job->rank == job->size - 1;

    if (job->launched)
        return; /* MPI knows its hosts already */
    if (last && unshare(CLONE_NEWUTS) == 0 && sethostname("elsewhere", 9) == 0)
        atomic_store(&job->shared->stamp[1], 1);
    if (!hs_pause(job) || !atomic_load(&job->shared->stamp[1]))
        return; /* not permitted: test_split has what can be had without */
    params.split = "attn=per-node:1,ffn=per-node:1";
    bad_try_saying(job, &params, STEPAF_ERR_SPLIT,
                   job->size == 3 ? "node elsewhere has 1 ranks of the job and needs 2" : "node ");
    params.split = "ffn=per-node:1";
    bad_try_saying(job, &params, STEPAF_ERR_SPLIT,
                   "1 ranks of the job, and none remain for attention");
}
