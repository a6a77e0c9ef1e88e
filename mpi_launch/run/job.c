/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "options.h"

static void put_word(FILE *stream, const char *word)
{
    fwrite(word, strlen(word) + 1, 1, stream);
}

char *run_job_format(const struct run_host_job *job, size_t *bytes_p)
{
    char *words = NULL, *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&words, &bytes);

    if (stream) {
        fprintf(stream, "%d%c%d%c%d%c%d%c", job->first, 0, job->ranks, 0, job->size, 0, job->env.n,
                0);
        put_word(stream, job->directory);
        for (int i = 0; i < job->env.n; i++)
            put_word(stream, job->env.word[i]);
        for (int i = 0; i < job->words.n; i++)
            put_word(stream, job->words.word[i]);
        fclose(stream);
    }
    if (!words || bytes > RUN_JOB_BYTES_MAX) {
        run_fail_set("the command line and the environment of the ranks are too long");
        free(words);
        return NULL;
    }
    stream = open_memstream(&text, bytes_p);
    if (stream) {
        fprintf(stream, "%zu\n", bytes);
        fwrite(words, bytes, 1, stream);
        fclose(stream);
    }
    free(words);
    return text;
}

/* Read a line with a number, byte by byte, since nothing beyond the job may be read. Returns -1
 * if it is not a number. */
static long read_line_number(int fd)
{
    long number = -1;
    char c = 0;

    while (read(fd, &c, 1) == 1 && c >= '0' && c <= '9') {
        number = (number < 0 ? 0 : number) * 10 + (c - '0');
        if (number > RUN_JOB_BYTES_MAX)
            return -1;
    }
    return c == '\n' ? number : -1;
}

int run_job_read(int fd, struct run_host_job *job_p)
{
    long bytes = read_line_number(fd);
    char *text = bytes > 0 ? malloc((size_t)bytes) : NULL;
    long have = 0;
    int rc = -1;

    while (text && have < bytes) {
        ssize_t got = read(fd, text + have, (size_t)(bytes - have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        have += got;
    }
    if (!text || have < bytes)
        run_fail_set("--serve: this is for stepaf-run's own use");
    else
        rc = run_job_parse(text, (size_t)bytes, job_p);
    free(text);
    return rc;
}

/* Return the next word; NULL at the end. */
static const char *next_word(const char **at, const char *end)
{
    const char *word = *at;
    const char *zero = word < end ? memchr(word, 0, (size_t)(end - word)) : NULL;

    if (!zero)
        return NULL;
    *at = zero + 1;
    return word;
}

/* Return the next word's number, from @a least on; -1 if it is not one. */
static int next_number(const char **at, const char *end, int least)
{
    const char *word = next_word(at, end);
    char *rest = NULL;
    long number = word && *word >= '0' && *word <= '9' ? strtol(word, &rest, 10) : -1;

    return !rest || *rest || number < least || number > RUN_RANKS_MAX ? -1 : (int)number;
}

int run_job_parse(const char *text, size_t bytes, struct run_host_job *job_p)
{
    struct run_host_job job = {0};
    const char *at = text, *end = text + bytes, *word;

    job.first = next_number(&at, end, 0);
    job.ranks = next_number(&at, end, 1);
    job.size = next_number(&at, end, 1);
    int n_env = next_number(&at, end, 0);
    const char *directory = next_word(&at, end);
    if (job.first < 0 || job.ranks < 0 || job.size < 0 || n_env < 0 || !directory ||
        job.ranks > job.size - job.first || end[-1] != '\0')
        return run_fail("--serve: this is for stepaf-run's own use");
    while (n_env > 0 && (word = next_word(&at, end))) {
        if (!run_is_name(word, strcspn(word, "=")) || !strchr(word, '='))
            break;
        run_words_add(&job.env, word);
        n_env--;
    }
    while (n_env == 0 && (word = next_word(&at, end)))
        run_words_add(&job.words, word);
    if (n_env || !job.words.n) {
        run_job_free(&job);
        return run_fail("--serve: this is for stepaf-run's own use");
    }
    job.directory = strdup(directory);
    *job_p = job;
    return 0;
}

void run_job_free(struct run_host_job *job)
{
    run_words_free(&job->env);
    run_words_free(&job->words);
    free(job->directory);
    job->directory = NULL;
}
