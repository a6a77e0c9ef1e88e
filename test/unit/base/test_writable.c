/* SPDX-License-Identifier: Apache-2.0 */
/* Whether memory can be written to, and read, byte for byte where pages meet. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/writable.h"
#include "unit.h"

enum { PAGE = 4096, PAGES = 4, LEAST = 9 };

static uint8_t *map_pages(void)
{
    uint8_t *pages =
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CU_ASSERT_FATAL(pages != MAP_FAILED);
    memset(pages, 7, PAGES * PAGE);
    return pages;
}

/* Nothing beside the range is touched, however short it is. */
static void its_neighbours_stay(void)
{
    uint8_t *pages = map_pages();
    size_t wrong = 0;

    for (size_t at = PAGE - LEAST; at <= PAGE; at++)
        for (size_t bytes = 0; bytes <= PAGE + LEAST; bytes += bytes < LEAST ? 1 : PAGE / 2 + 1) {
            memset(pages, 7, PAGES * PAGE);
            wrong += !stepaf_is_writable(pages + at, bytes);
            memset(pages + at, 7, bytes);
            for (size_t i = 0; i < PAGES * PAGE; i++)
                wrong += pages[i] != 7;
        }
    CU_ASSERT_EQUAL(wrong, 0);
    munmap(pages, PAGES * PAGE);
}

/* The third page is the bad one. */
static void expect_refused(uint8_t *pages)
{
    uint8_t *bad = pages + 2 * PAGE;
    size_t wrong = 0;

    for (size_t bytes = 1; bytes <= LEAST; bytes++) {
        wrong += stepaf_is_writable(bad, bytes);
        wrong += stepaf_is_writable(bad + PAGE - bytes, bytes);
        wrong += !stepaf_is_writable(bad - bytes, bytes);
        wrong += !stepaf_is_writable(bad + PAGE, bytes);
        wrong += stepaf_is_writable(bad - bytes, bytes + 1); /* its first byte */
        wrong += stepaf_is_writable(bad + PAGE - 1, 1 + bytes);
    }
    wrong += stepaf_is_writable(pages, PAGES * PAGE);
    wrong += stepaf_is_writable(pages + 5, 2 * PAGE - 4);
    wrong += !stepaf_is_writable(pages + 5, 2 * PAGE - 5);
    CU_ASSERT_EQUAL(wrong, 0);
}

/* A kernel that forbids the calls is believed that all is well. */
static bool the_kernel_says(void)
{
    uint8_t *pages = map_pages();

    munmap(pages, PAGES * PAGE);
    bool it_does = !stepaf_is_writable(pages, PAGE) && !stepaf_is_writable(pages, 1);
    if (!it_does)
        puts("  (the kernel forbids getcpu or getrandom here)");
    return it_does;
}

static void what_is_gone_or_read_only_is_refused(void)
{
    uint8_t *pages;

    if (!the_kernel_says())
        return;
    pages = map_pages();

    CU_ASSERT_EQUAL(mprotect(pages + 2 * PAGE, PAGE, PROT_READ), 0);
    expect_refused(pages);
    CU_ASSERT_EQUAL(mprotect(pages + 2 * PAGE, PAGE, PROT_NONE), 0);
    expect_refused(pages);
    CU_ASSERT_EQUAL(munmap(pages + 2 * PAGE, PAGE), 0);
    expect_refused(pages);
    munmap(pages, 2 * PAGE);
    munmap(pages + 3 * PAGE, PAGE);
}

/* The third page is as bad for reading, or not. */
static void expect_readable(const uint8_t *pages, bool is_bad)
{
    const uint8_t *bad = pages + 2 * PAGE;
    size_t wrong = 0;

    for (size_t bytes = 1; bytes <= 2 * LEAST; bytes++) {
        wrong += stepaf_is_readable(bad, bytes) == is_bad;
        wrong += stepaf_is_readable(bad + PAGE - bytes, bytes) == is_bad;
        wrong += !stepaf_is_readable(bad - bytes, bytes);
        wrong += !stepaf_is_readable(bad + PAGE, bytes);
        wrong += stepaf_is_readable(bad - bytes, bytes + 1) == is_bad; /* its first byte */
        wrong += stepaf_is_readable(bad + PAGE - 1, 1 + bytes) == is_bad;
    }
    wrong += !stepaf_is_readable(bad + 3, 0);
    wrong += stepaf_is_readable(pages, PAGES * PAGE) == is_bad;
    CU_ASSERT_EQUAL(wrong, 0);
}

static void what_is_gone_cannot_be_read(void)
{
    uint8_t *pages = map_pages();
    sigset_t before, after;

    CU_ASSERT_EQUAL(sigprocmask(SIG_BLOCK, NULL, &before), 0);
    expect_readable(pages, false);
    CU_ASSERT_EQUAL(mprotect(pages + 2 * PAGE, PAGE, PROT_READ), 0);
    expect_readable(pages, false);
    CU_ASSERT_EQUAL(sigprocmask(SIG_BLOCK, NULL, &after), 0);
    for (int signal = 1; signal < NSIG; signal++)
        CU_ASSERT_EQUAL(sigismember(&before, signal), sigismember(&after, signal));
    CU_ASSERT_EQUAL(munmap(pages + 2 * PAGE, PAGE), 0);
    if (stepaf_is_readable(pages + 2 * PAGE, 1))
        puts("  (the kernel forbids rt_sigprocmask here)");
    else
        expect_readable(pages, true);
    munmap(pages, 2 * PAGE);
    munmap(pages + 3 * PAGE, PAGE);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"its neighbours stay", its_neighbours_stay},
        {"what is gone or read-only is refused", what_is_gone_or_read_only_is_refused},
        {"what is gone cannot be read", what_is_gone_cannot_be_read},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
