/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

enum { MAX_BYTES = 1 << 20, MAX_TESTS = 1000, MAX_WORDS = 64 };

static int read_text(const char *path, char **text_p)
{
    FILE *file = fopen(path, "re");
    char *text = calloc(1, MAX_BYTES + 1);
    size_t bytes;
    int rc = 0;

    if (file == NULL || text == NULL) {
        rc = perf_fail("%s: %s", path, strerror(errno));
        goto out;
    }
    bytes = fread(text, 1, MAX_BYTES + 1, file);
    if (ferror(file))
        rc = perf_fail("%s: %s", path, strerror(errno));
    else if (bytes > MAX_BYTES)
        rc = perf_fail("%s: has more than %d bytes", path, MAX_BYTES);
    else if (memchr(text, '\0', bytes) != NULL)
        rc = perf_fail("%s: is not a text", path);
out:
    if (file != NULL)
        fclose(file);
    if (rc == 0)
        *text_p = text;
    else
        free(text);
    return rc;
}

/* Split @a line into its words, in place; -1: too many. */
static int split(char *line, char *words[MAX_WORDS])
{
    char *rest = NULL;
    int n = 0;

    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, " \t\r", &rest); word != NULL;
         word = strtok_r(NULL, " \t\r", &rest)) {
        if (n == MAX_WORDS)
            return -1;
        words[n++] = word;
    }
    return n;
}

static int fail_line(const char *path, int line)
{
    char why[PERF_FAIL_MAX];

    snprintf(why, sizeof(why), "%s", perf_fail_text());
    return perf_fail("%.200s:%d: %.200s", path, line, why);
}

static int read_lines(const char *path, int argc, char **argv, struct perf_batch *batch)
{
    char *text = batch->text;

    for (int number = 1; text != NULL; number++) {
        char *line = strsep(&text, "\n");
        char *words[MAX_WORDS];
        int n = split(line, words);

        if (n == 0)
            continue;
        if (n < 0)
            return perf_fail("%.200s:%d: has more than %d words", path, number, MAX_WORDS);
        if (batch->n == MAX_TESTS)
            return perf_fail("%.200s:%d: more than %d tests", path, number, MAX_TESTS);
        if (perf_options_parse_line(argc, argv, n, words, &batch->tests[batch->n]) != 0)
            return fail_line(path, number);
        batch->n++;
    }
    return batch->n > 0 ? 0 : perf_fail("%s: has no test", path);
}

int perf_batch_read(const char *path, int argc, char **argv, struct perf_batch *batch_p)
{
    struct perf_batch batch = {0};

    if (read_text(path, &batch.text) != 0)
        return -1;
    batch.tests = calloc(MAX_TESTS, sizeof(*batch.tests));
    if (batch.tests == NULL) {
        perf_fail_set("out of memory");
        goto err;
    }
    if (read_lines(path, argc, argv, &batch) != 0)
        goto err;
    *batch_p = batch;
    return 0;

err:
    perf_batch_close(&batch);
    return -1;
}

void perf_batch_close(struct perf_batch *batch)
{
    free(batch->tests);
    free(batch->text);
    memset(batch, 0, sizeof(*batch));
}
