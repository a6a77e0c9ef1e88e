/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: who gets them, what they look like, and that they never mix. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "log_lines.h"
#include "unit.h"

struct seen {
    int count;
    int inside; /* of the callback, now */
    int overlaps;
    stepaf_log_level_t level;
    int line;
    char file[64];
    char message[2048];
};

static void record(stepaf_log_level_t level, const char *file, int line, const char *message,
                   void *arg)
{
    struct seen *seen = arg;
    if (__atomic_add_fetch(&seen->inside, 1, __ATOMIC_SEQ_CST) != 1)
        seen->overlaps++;
    seen->count++;
    seen->level = level;
    seen->line = line;
    snprintf(seen->file, sizeof seen->file, "%s", file);
    snprintf(seen->message, sizeof seen->message, "%s", message);
    __atomic_sub_fetch(&seen->inside, 1, __ATOMIC_SEQ_CST);
}

static void callback_gets_the_message(void)
{
    struct seen seen = {0};
    stepaf_log_set_callback(record, &seen);
    int line = __LINE__ + 1;
    stepaf_log_warn("%s is %d", "one", 1);
    CU_ASSERT_EQUAL(seen.count, 1);
    CU_ASSERT_EQUAL(seen.level, STEPAF_LOG_WARN);
    CU_ASSERT_EQUAL(seen.line, line);
    UNIT_STRING(seen.file, "test_log.c");
    UNIT_STRING(seen.message, "one is 1");

    stepaf_log_error("a\nb\r\n");
    UNIT_STRING(seen.message, "a b  ");
    stepaf_log_set_callback(NULL, NULL);
}

static void level_decides(void)
{
    for (int level = STEPAF_LOG_NONE; level <= STEPAF_LOG_TRACE; level++) {
        struct seen seen = {0};
        stepaf_log_set_callback(record, &seen);
        stepaf_log_configure((stepaf_log_level_t)level, "");
        stepaf_log_error("e");
        stepaf_log_warn("w");
        stepaf_log_info("i");
        stepaf_log_debug("d");
        stepaf_log_trace("t");
        CU_ASSERT_EQUAL(seen.count, level);
        stepaf_log_set_callback(NULL, NULL);
    }
    stepaf_log_configure(STEPAF_LOG_WARN, NULL);
}

/* Read all of @a path into @a text, remove it, and return the number of lines. */
static int take_file(const char *path, char *text, size_t capacity)
{
    int lines = 0;
    FILE *file = fopen(path, "r");
    text[0] = '\0';
    if (!file)
        return -1;
    size_t bytes = fread(text, 1, capacity - 1, file);
    text[bytes] = '\0';
    fclose(file);
    unlink(path);
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    return lines;
}

/* A name with %p, and the same with the process id in its place. */
static void make_names(char *name, char *path, size_t capacity)
{
    const char *directory = getenv("TMPDIR");
    snprintf(name, capacity, "%s/stepaf-log.%%p.txt", directory ? directory : "/tmp");
    snprintf(path, capacity, "%s/stepaf-log.%ld.txt", directory ? directory : "/tmp",
             (long)getpid());
}

static void file_gets_lines(void)
{
    char name[256];
    char path[256];
    char text[8192];
    make_names(name, path, sizeof name);
    unlink(path);

    stepaf_log_configure(STEPAF_LOG_INFO, name);
    stepaf_log_info("before");
    stepaf_log_set_rank(7);
    stepaf_log_error("after\nthat");
    stepaf_log_debug("not this");
    stepaf_log_set_rank(-1);
    stepaf_log_configure(STEPAF_LOG_WARN, "");

    CU_ASSERT_EQUAL(take_file(path, text, sizeof text), 2);
    CU_ASSERT(matches(text, "^" TIME "\\[[^:]+:[0-9]+ -\\] test_log\\.c:[0-9]+ INFO before\n"));
    CU_ASSERT(
        matches(text, "\n" TIME "\\[[^:]+:[0-9]+ 7\\] test_log\\.c:[0-9]+ ERROR after that\n$"));
}

/* Standard output in a file, which is the log's too: neither writes over the other. */
static void standard_output_is_shared(void)
{
    char name[256];
    char path[256];
    char text[8192];
    make_names(name, path, sizeof name);
    unlink(path);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CU_ASSERT_FATAL(kept >= 0 && file >= 0);
    dup2(file, STDOUT_FILENO);
    close(file);

    int wrote = dprintf(STDOUT_FILENO, "one\n");
    stepaf_log_configure(STEPAF_LOG_INFO, "/dev/stdout");
    stepaf_log_info("a line of the log");
    wrote += dprintf(STDOUT_FILENO, "two\n");
    stepaf_log_info("another");
    stepaf_log_configure(STEPAF_LOG_WARN, "");

    dup2(kept, STDOUT_FILENO);
    close(kept);
    CU_ASSERT_EQUAL(wrote, 8);
    CU_ASSERT_EQUAL(take_file(path, text, sizeof text), 4);
    CU_ASSERT(matches(text, "^one\n" TIME "\\[.* INFO a line of the log\ntwo\n" TIME
                            "\\[.* INFO another\n$"));
}

static void long_messages_are_cut(void)
{
    char name[256];
    char path[256];
    char text[8192];
    char longer[4096];
    make_names(name, path, sizeof name);
    memset(longer, 'y', sizeof longer);
    longer[sizeof longer - 1] = '\0';

    stepaf_log_configure(STEPAF_LOG_WARN, name);
    stepaf_log_error("%s", longer);
    stepaf_log_configure(STEPAF_LOG_WARN, NULL);
    CU_ASSERT_EQUAL(take_file(path, text, sizeof text), 1);
    CU_ASSERT(strlen(text) > 512 && strlen(text) <= 1024);
}

/* The numbers that the next two files get: the same as long as no file is left open. */
static void next_descriptors(int numbers_p[2])
{
    for (int i = 0; i < 2; i++)
        numbers_p[i] = dup(STDERR_FILENO);
    for (int i = 0; i < 2; i++)
        close(numbers_p[i]);
}

static void files_are_closed(void)
{
    char name[256];
    char path[256];
    int before[2];
    int now[2];
    make_names(name, path, sizeof name);
    next_descriptors(before);
    for (int i = 0; i < 5; i++)
        stepaf_log_configure(STEPAF_LOG_WARN, name);
    next_descriptors(now);
    CU_ASSERT(now[0] == before[0] || now[0] == before[1]);
    stepaf_log_configure(STEPAF_LOG_WARN, NULL);
    next_descriptors(now);
    CU_ASSERT_EQUAL(now[0], before[0]);
    CU_ASSERT_EQUAL(now[1], before[1]);
    unlink(path);
}

static void unusable_file_is_reported(void)
{
    static const char *const bad[] = {"/nonexistent/directory/file", "/"};
    char longer[8192];
    struct seen seen = {0};
    memset(longer, 'z', sizeof longer);
    longer[sizeof longer - 1] = '\0';

    stepaf_log_set_callback(record, &seen);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        stepaf_log_configure(STEPAF_LOG_WARN, bad[i]);
        CU_ASSERT_EQUAL(seen.count, (int)i + 1);
        CU_ASSERT_EQUAL(seen.level, STEPAF_LOG_ERROR);
        UNIT_CONTAINS(seen.message, bad[i]);
    }
    stepaf_log_configure(STEPAF_LOG_WARN, longer);
    CU_ASSERT_EQUAL(seen.count, 3);
    stepaf_log_set_callback(NULL, NULL);
}

/* ---- files that wait: the alarm would end who waits with them ---- */

enum { LIMIT_S = 30 };

static void make_fifo(char *path, size_t capacity)
{
    char name[256];
    make_names(name, path, capacity);
    unlink(path);
    CU_ASSERT_EQUAL_FATAL(mkfifo(path, 0600), 0);
}

static void a_fifo_without_a_reader_is_refused(void)
{
    struct seen seen = {0};
    char path[256];
    make_fifo(path, sizeof path);
    stepaf_log_set_callback(record, &seen);
    alarm(LIMIT_S);
    stepaf_log_configure(STEPAF_LOG_WARN, path);
    alarm(0);
    CU_ASSERT_EQUAL(seen.count, 1);
    UNIT_CONTAINS(seen.message, "no process reads from it");
    stepaf_log_set_callback(NULL, NULL);
    stepaf_log_configure(STEPAF_LOG_WARN, NULL);
    unlink(path);
}

static void a_reader_that_stops_costs_lines_only(void)
{
    static char text[1 << 20];
    char path[256];
    make_fifo(path, sizeof path);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    CU_ASSERT_FATAL(reader >= 0);
    stepaf_log_configure(STEPAF_LOG_WARN, path);
    alarm(LIMIT_S);
    for (int i = 0; i < 2000; i++) /* more than a pipe holds, of which one is waited with */
        stepaf_log_warn("line %d %100s", i, "");
    ssize_t bytes = read(reader, text, sizeof text);
    CU_ASSERT(bytes > 4096 && bytes < 2000 * 100);
    CU_ASSERT(bytes > 0 && text[bytes - 1] == '\n');
    stepaf_log_warn("it reads again");
    memset(text, 0, sizeof text);
    bytes = read(reader, text, sizeof text - 1);
    UNIT_CONTAINS(text, "it reads again");
    close(reader);
    stepaf_log_warn("nobody reads this"); /* which is no end of the process */
    alarm(0);
    stepaf_log_configure(STEPAF_LOG_WARN, NULL);
    unlink(path);
}

/* Standard error may be a pipe as well, whose other end is closed, or stands still. */
static void so_it_is_with_standard_error(void)
{
    int ends[2];
    int kept = dup(STDERR_FILENO);
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    alarm(LIMIT_S);
    for (int i = 0; i < 2000; i++)
        stepaf_log_warn("line %d %100s", i, "");
    close(ends[0]);
    stepaf_log_warn("nobody reads this");
    alarm(0);
    dup2(kept, STDERR_FILENO);
    close(kept);
}

static void *log_canceled(void *arg)
{
    pthread_cancel(pthread_self());
    stepaf_log_warn("a line that is waited with");
    return arg;
}

/* A thread that is canceled while it waits for room does not keep others from the log. */
static void cancellation_leaves_the_log(void)
{
    struct seen seen = {0};
    pthread_t thread;

    alarm(LIMIT_S);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, log_canceled, NULL), 0);
    pthread_join(thread, NULL);
    stepaf_log_set_callback(record, &seen);
    stepaf_log_warn("another thread's");
    stepaf_log_set_callback(NULL, NULL);
    alarm(0);
    CU_ASSERT_EQUAL(seen.count, 1);
}

static void a_full_file_is_no_end(void)
{
    char name[256];
    char path[256];
    char text[8192];
    int status = -1;
    make_names(name, path, sizeof name);
    unlink(path);
    pid_t child = fork();
    if (!child) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){100, 100});
        stepaf_log_configure(STEPAF_LOG_WARN, path);
        stepaf_log_warn("a line that reaches beyond the limit %100s", "");
        stepaf_log_warn("another one");
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
    CU_ASSERT_EQUAL(take_file(path, text, sizeof text), 0);
    CU_ASSERT_EQUAL(strlen(text), 100);
}

enum { THREADS = 4, MESSAGES = 200 };

static void *log_a_lot(void *arg)
{
    for (int i = 0; i < MESSAGES; i++)
        stepaf_log_warn("thread %d message %d", *(int *)arg, i);
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, log_a_lot, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void threads_do_not_mix(void)
{
    static char text[THREADS * MESSAGES * 256];
    char name[256];
    char path[256];
    struct seen seen = {0};
    make_names(name, path, sizeof name);

    stepaf_log_set_callback(record, &seen);
    run_threads();
    CU_ASSERT_EQUAL(seen.count, THREADS * MESSAGES);
    CU_ASSERT_EQUAL(seen.overlaps, 0);
    stepaf_log_set_callback(NULL, NULL);

    stepaf_log_configure(STEPAF_LOG_WARN, name);
    run_threads();
    stepaf_log_configure(STEPAF_LOG_WARN, NULL);
    CU_ASSERT_EQUAL(take_file(path, text, sizeof text), THREADS * MESSAGES);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && *line;)
        CU_ASSERT(matches(line, "^" TIME
                                "\\[[^]]+\\] test_log.c:[0-9]+ WARN thread [0-9] message [0-9]+$"));
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"callback gets the message", callback_gets_the_message},
        {"level decides", level_decides},
        {"file gets lines", file_gets_lines},
        {"standard output is shared", standard_output_is_shared},
        {"long messages are cut", long_messages_are_cut},
        {"files are closed", files_are_closed},
        {"unusable file is reported", unusable_file_is_reported},
        {"a FIFO without a reader is refused", a_fifo_without_a_reader_is_refused},
        {"a reader that stops costs lines only", a_reader_that_stops_costs_lines_only},
        {"so it is with standard error", so_it_is_with_standard_error},
        {"cancellation leaves the log", cancellation_leaves_the_log},
        {"a full file is no end", a_full_file_is_no_end},
        {"threads do not mix", threads_do_not_mix},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
