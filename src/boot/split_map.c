/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/why.h"
#include "boot/split.h"

enum {
    MAP_FILE_MAX = 16 << 20, /* bytes; no map of a job is that long */
    SHOWN_MAX = 64           /* of a bad word in the sentence about it */
};

static stepaf_status_t refuse_map(const char *format, ...) __attribute__((format(printf, 1, 2)));

static stepaf_status_t refuse_map(const char *format, ...)
{
    char reason[192];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                            "map file: %s; each line must be \"attention\" or \"ffn\"", reason);
}

/* Return the word of one line without comment and surrounding blanks. */
static const char *trim(const char *line, size_t *bytes)
{
    static const char blanks[] = " \t\r\v\f";
    const char *comment = memchr(line, '#', *bytes);
    size_t n = comment ? (size_t)(comment - line) : *bytes;
    while (n > 0 && line[0] && strchr(blanks, line[0])) {
        line++;
        n--;
    }
    while (n > 0 && line[n - 1] && strchr(blanks, line[n - 1]))
        n--;
    *bytes = n;
    return line;
}

/* Walk over the text. With @a roles_p, fill it in; without, only check and count both roles. */
static stepaf_status_t walk_map(const char *text, size_t bytes, int size, uint8_t *roles_p)
{
    int counts[2] = {0, 0};
    int ranks = 0;
    int line_number = 0;

    for (size_t start = 0; start < bytes;) {
        const char *line = text + start;
        const char *newline = memchr(line, '\n', bytes - start);
        size_t line_bytes = newline ? (size_t)(newline - line) : bytes - start;
        start += line_bytes + 1;
        line_number++;

        const char *word = trim(line, &line_bytes);
        if (line_bytes == 0)
            continue;
        int role = STEPAF_FFN;
        if (stepaf_split_word_is(word, line_bytes, "attention") ||
            stepaf_split_word_is(word, line_bytes, "attn"))
            role = STEPAF_ATTENTION;
        else if (!stepaf_split_word_is(word, line_bytes, "ffn"))
            return refuse_map("line %d is \"%.*s\"", line_number,
                              (int)(line_bytes < SHOWN_MAX ? line_bytes : SHOWN_MAX), word);
        if (ranks == size)
            return refuse_map("line %d is beyond the job's %d ranks", line_number, size);
        if (roles_p)
            roles_p[ranks] = (uint8_t)role;
        counts[role]++;
        ranks++;
    }
    if (ranks != size)
        return refuse_map("the file has %d ranks, and the job has %d", ranks, size);
    if (!counts[STEPAF_ATTENTION] || !counts[STEPAF_FFN])
        return refuse_map("the file has no %s rank", counts[STEPAF_FFN] ? "attention" : "FFN");
    return STEPAF_OK;
}

stepaf_status_t stepaf_split_parse_map(const char *text, size_t bytes, int size, uint8_t *roles_p)
{
    stepaf_status_t status = walk_map(text, bytes, size, NULL);
    return status == STEPAF_OK ? walk_map(text, bytes, size, roles_p) : status;
}

/* Read all of an open file. Returns the number of bytes, or -1 with errno. */
static ssize_t read_all(int fd, char *text, size_t capacity)
{
    size_t used = 0;
    while (used < capacity) {
        ssize_t n = read(fd, text + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

stepaf_status_t stepaf_split_parse_map_file(const char *path, int size, uint8_t *roles_p)
{
    stepaf_status_t status;
    char *text = NULL;
    struct stat info;

    /* Without O_NONBLOCK, opening a FIFO would block for ever. */
    int fd = stepaf_fd_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        status = refuse_map("cannot open %s: %s", path, stepaf_why(errno));
        goto out;
    }
    if (!S_ISREG(info.st_mode) || info.st_size > MAP_FILE_MAX) {
        status = refuse_map("%s is not a regular file of at most %d bytes", path, MAP_FILE_MAX);
        goto out;
    }
    text = malloc((size_t)info.st_size + 1);
    if (!text) {
        status =
            stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT, "no memory for %s", path);
        goto out;
    }
    ssize_t bytes = read_all(fd, text, (size_t)info.st_size);
    status = bytes < 0 ? refuse_map("cannot read %s: %s", path, stepaf_why(errno))
                       : stepaf_split_parse_map(text, (size_t)bytes, size, roles_p);
out:
    free(text);
    if (fd >= 0)
        close(fd);
    return status;
}
