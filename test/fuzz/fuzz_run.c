/* SPDX-License-Identifier: Apache-2.0 */
/* What stepaf-run parses. The first byte says what the rest is: l, a list of hosts; f, a file of
 * them; s, what stepaf-run says to itself on a rank; t, srun's tasks on each node; m, srun's list
 * of plugins. */
#include <string.h>

#include "fail.h"
#include "fuzz.h"
#include "hosts.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    char *text = malloc(bytes);
    FUZZ_CHECK(text);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    switch (data[0] % 5) {
    case 'l' % 5:
    case 'f' % 5:
        try_hosts(text, bytes - 1, data[0] % 5 == 'f' % 5);
        break;
    case 's' % 5:
        try_spec(text);
        break;
    case 't' % 5:
        for (int i = 0; i < 4; i++)
            FUZZ_CHECK(run_rank_tasks(text, i) >= 0);
        break;
    default:
        try_plugins(text);
    }
    free(text);
    return 0;
}
