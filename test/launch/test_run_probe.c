/* SPDX-License-Identifier: Apache-2.0 */
/* Asking programs that answer, do not answer, or do not stop answering. */
#include <errno.h>

#include "probe.h"
#include "unit.h"

enum { LONG_MS = 60000, SHORT_MS = 100 };

static int ask(const char *script, int timeout_ms, char *text_p, size_t capacity)
{
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    return run_probe(argv, timeout_ms, text_p, capacity);
}

static void answers(void)
{
    char text[16];
    CU_ASSERT_EQUAL(ask("echo out; echo err >&2", LONG_MS, text, sizeof(text)), 0);
    UNIT_STRING(text, "out\nerr\n");
    CU_ASSERT_EQUAL(ask("exit 7", LONG_MS, text, sizeof(text)), 7);
    UNIT_STRING(text, "");
    CU_ASSERT_EQUAL(ask("kill -TERM $$", LONG_MS, text, sizeof(text)), 128 + 15);
    /* It has nothing to read, and its output is not bounded by what there is room for. */
    CU_ASSERT_EQUAL(ask("cat; exec >&- 2>&-; exit 3", LONG_MS, text, sizeof(text)), 3);
    CU_ASSERT_EQUAL(ask("i=0; while [ $i -lt 9999 ]; do echo 123456789; i=$((i+1)); done", LONG_MS,
                        text, sizeof(text)),
                    0);
    UNIT_STRING(text, "123456789\n12345");
}

static void absent(void)
{
    char *const argv[] = {(char *)"stepaf-no-such-program", NULL};
    char text[16] = "before";
    errno = 0;
    CU_ASSERT_EQUAL(run_probe(argv, LONG_MS, text, sizeof(text)), -1);
    CU_ASSERT_EQUAL(errno, ENOENT);
    UNIT_STRING(text, "");
}

/* The program itself, one that has closed its output, and one that it has left behind. */
static void hangs(void)
{
    static const char *const scripts[] = {"echo a; exec sleep 1000",
                                          "echo a; exec >&- 2>&-; exec sleep 1000",
                                          "echo a; sleep 1000 & exit 0"};
    char text[16];
    for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
        errno = 0;
        CU_ASSERT_EQUAL(ask(scripts[i], SHORT_MS, text, sizeof(text)), -1);
        CU_ASSERT_EQUAL(errno, ETIMEDOUT);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"answers", answers}, {"absent", absent}, {"hangs", hangs}, CU_TEST_INFO_NULL};
    return unit_run(tests);
}
