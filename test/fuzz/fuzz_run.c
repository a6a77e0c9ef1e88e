/* SPDX-License-Identifier: Apache-2.0 */
/* What stepaf-run parses. The first byte says what the rest is: l, a list of hosts; f, a file of
 * them; s, what stepaf-run says to itself on a rank; t, srun's tasks on each node; m, srun's list
 * of plugins; j, what a host is told by ssh. Any other byte is one of these. */
#include <string.h>

#include "fail.h"
#include "fuzz.h"
#include "hosts.h"
#include "job.h"
#include "launcher.h"
#include "rank.h"
#include "spec.h"

enum { RANKS = 100 };

static void check_failure(void)
{
    FUZZ_CHECK(*run_fail_text());
    FUZZ_CHECK(!strpbrk(run_fail_text(), "\n\r"));
}

/* Names that can stand in a command line; and ranks that are dealt are all dealt. */
static void check_hosts(struct run_hosts *hosts)
{
    int left = RANKS;

    FUZZ_CHECK(hosts->n > 0);
    for (int i = 0; i < hosts->n; i++) {
        FUZZ_CHECK(*hosts->host[i].name && *hosts->host[i].name != '-');
        FUZZ_CHECK(!strpbrk(hosts->host[i].name, " \t\n:,;'\"$*/"));
        FUZZ_CHECK(!hosts->host[i].room == !hosts->host[0].room);
    }
    if (run_hosts_deal(hosts, RANKS, 0) == 0) {
        for (int i = 0; i < hosts->n; i++) {
            FUZZ_CHECK(hosts->host[i].ranks > 0);
            left -= hosts->host[i].ranks;
        }
        FUZZ_CHECK(left == 0);
    }
}

static void try_hosts(char *text, size_t bytes, int is_file)
{
    struct run_hosts hosts;
    int rc;

    if (is_file) {
        FILE *stream = fmemopen(text, bytes, "r");
        if (!stream)
            return;
        rc = run_hosts_read_stream(stream, "file", &hosts);
        fclose(stream);
    } else {
        rc = run_hosts_parse(text, &hosts);
    }
    if (rc == 0)
        check_hosts(&hosts);
    else
        check_failure();
    run_hosts_free(&hosts);
}

/* What has been understood is written and read as the same. */
static void try_spec(const char *text)
{
    struct run_spec spec;
    struct run_spec again;
    char once[RUN_SPEC_MAX];
    char twice[RUN_SPEC_MAX];

    if (run_spec_parse(text, &spec) != 0) {
        check_failure();
        return;
    }
    run_spec_format(&spec, once, sizeof(once));
    FUZZ_CHECK(run_spec_parse(once, &again) == 0);
    run_spec_format(&again, twice, sizeof(twice));
    FUZZ_CHECK(strcmp(once, twice) == 0);
}

static void try_plugins(const char *text)
{
    char mpi[64] = "";

    if (run_launcher_pick_mpi(text, mpi) == 0)
        FUZZ_CHECK(strncmp(mpi, "pmi", 3) == 0 && strstr(text, mpi));
    else
        FUZZ_CHECK(!*mpi);
}

/* What is taken is what would be sent again. */
static void try_job(const char *text, size_t bytes)
{
    struct run_host_job job, again;
    size_t length = 0;

    if (run_job_parse(text, bytes, &job) != 0) {
        check_failure();
        return;
    }
    FUZZ_CHECK(job.first >= 0 && job.ranks > 0 && job.first + job.ranks <= job.size);
    FUZZ_CHECK(job.words.n > 0 && job.directory);
    char *formatted = run_job_format(&job, &length);
    FUZZ_CHECK(formatted);
    const char *words = strchr(formatted, '\n') + 1;
    FUZZ_CHECK(run_job_parse(words, length - (size_t)(words - formatted), &again) == 0);
    FUZZ_CHECK(again.ranks == job.ranks && again.env.n == job.env.n);
    FUZZ_CHECK(again.words.n == job.words.n);
    free(formatted);
    run_job_free(&job);
    run_job_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char kinds[] = "lfstmj";

    if (bytes < 2)
        return 0;
    char kind = data[0] && strchr(kinds, data[0]) ? (char)data[0] : kinds[data[0] % 6];
    char *text = malloc(bytes);
    FUZZ_CHECK(text);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    switch (kind) {
    case 'l':
    case 'f':
        try_hosts(text, bytes - 1, kind == 'f');
        break;
    case 's':
        try_spec(text);
        break;
    case 't':
        for (int i = 0; i < 4; i++)
            FUZZ_CHECK(run_rank_tasks(text, i) >= 0);
        break;
    case 'j':
        try_job(text, bytes - 1);
        break;
    default:
        try_plugins(text);
    }
    free(text);
    return 0;
}
