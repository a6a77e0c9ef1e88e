/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines at a terminal: nobody waits long for its reader, and lines never mix. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/log.h"
#include "log_lines.h"
#include "unit.h"

enum { LIMIT_S = 30 };

static int open_terminal(int is_raw, int *own_p)
{
    struct termios modes;
    int master = posix_openpt(O_RDWR | O_NOCTTY);

    CU_ASSERT_FATAL(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    *own_p = open(ptsname(master), O_RDWR | O_NOCTTY);
    CU_ASSERT_FATAL(*own_p >= 0 && tcgetattr(*own_p, &modes) == 0);
    if (is_raw)
        modes.c_oflag &= (tcflag_t)~OPOST;
    CU_ASSERT_EQUAL(tcsetattr(*own_p, TCSANOW, &modes), 0);
    return master;
}

/* Log more than a terminal takes, the second time where it cannot be opened again. */
static void fill_terminal(int own, int is_short)
{
    dup2(own, STDERR_FILENO);
    if (is_short)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){STDERR_FILENO + 1, STDERR_FILENO + 1});
    alarm(LIMIT_S);
    for (int i = 0; i < 1000; i++)
        stepaf_log_warn("line %d %*s", i, i, "");
}

enum { WRITERS = 4, LINES = 150 };

static void log_to_terminal(int own)
{
    dup2(own, STDERR_FILENO);
    for (int i = 0; i < LINES; i++)
        stepaf_log_warn("begin %0200d end", i);
    _exit(0);
}

/* Return how many lines are whole among @a text, which begins with a line. */
static int count_whole(char *text)
{
    int n = 0;

    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        const char *begin = strstr(line, "begin ");
        size_t bytes = strlen(line);
        n += begin && !strstr(begin + 1, "begin ") && bytes > 4 &&
             strcmp(line + bytes - 4, " end") == 0 && !strncmp(line, "20", 2);
    }
    return n;
}

/* A terminal that is read slowly accepts a part of a line: those of other processes wait. */
static void lines_stay_whole_at_a_terminal(void)
{
    static char text[WRITERS * LINES * 512];
    pid_t pids[WRITERS];
    size_t used = 0;
    ssize_t got;
    int own;

    int master = open_terminal(1, &own);
    for (int i = 0; i < WRITERS; i++)
        if ((pids[i] = fork()) == 0)
            log_to_terminal(own);
    close(own);
    while (used < sizeof text - 1 &&
           (got = read(master, text + used,
                       sizeof text - 1 - used < 4096 ? sizeof text - 1 - used : 4096)) > 0) {
        used += (size_t)got;
        usleep(500);
    }
    text[used] = '\0';
    for (int i = 0; i < WRITERS; i++)
        waitpid(pids[i], NULL, 0);
    close(master);
    CU_ASSERT_EQUAL(count_whole(text), WRITERS * LINES);
}

/* A terminal that is not read has room for less than a line, and is ready all the same. */
static void a_reader_that_stops_costs_lines_there(void)
{
    for (int way = 0; way < 4; way++) {
        int own, status = -1, flags;
        int master = open_terminal(way % 2, &own);
        pid_t child = fork();
        if (!child) {
            fill_terminal(own, way / 2);
            _exit(0);
        }
        CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
        CU_ASSERT_EQUAL(status, 0);
        flags = fcntl(own, F_GETFL);
        CU_ASSERT(flags >= 0 && !(flags & O_NONBLOCK));
        close(own);
        close(master);
    }
}

/* The beginning of a line that could not be written whole has a line of its own. */
static void a_cut_line_ends(void)
{
    static char text[1 << 16];
    size_t bytes = 0;
    ssize_t got;
    int own;
    int master = open_terminal(0, &own);
    int kept = dup(STDERR_FILENO);

    dup2(own, STDERR_FILENO);
    close(own);
    alarm(LIMIT_S);
    for (int i = 0; i < 200; i++)
        stepaf_log_warn("line %d %*s", i, i, "");
    fcntl(master, F_SETFL, O_NONBLOCK);
    while ((got = read(master, text + bytes, sizeof text - 1 - bytes)) > 0)
        bytes += (size_t)got;
    stepaf_log_warn("it reads again");
    fcntl(master, F_SETFL, 0);
    for (size_t more = 0; !strstr(text + bytes, "again\r\n"); more += (size_t)got)
        if ((got = read(master, text + bytes + more, sizeof text - 1 - bytes - more)) <= 0)
            break;
    alarm(0);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(master);
    CU_ASSERT_FATAL(bytes > 4096 && got > 0);
    CU_ASSERT(matches(text, "\n" TIME "[^ ]+ [^ ]+ [^ ]+ WARN it reads again\r\n$"));
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && *line;)
        CU_ASSERT_EQUAL(strncmp(line, "20", 2), 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a reader that stops costs lines there", a_reader_that_stops_costs_lines_there},
        {"lines stay whole at a terminal", lines_stay_whole_at_a_terminal},
        {"a cut line ends", a_cut_line_ends},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
