/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks, forked, for tests of the C++ headers: without CUnit, which is C, and without exceptions. */
#ifndef TEST_CXX_PAIR_HPP
#define TEST_CXX_PAIR_HPP

#include <cstdio>
#include <cstdlib>

#include <sys/wait.h>
#include <unistd.h>

#include <stepaf/stepaf.h>

/** End the process unless it holds. */
#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
                         stepaf_last_error()->text);                                \
            std::_Exit(1);                                                          \
        }                                                                           \
    } while (0)

/** Fork an attention rank and an FFN rank; each runs its function.
 *  @return the exit code for main(). */
inline int run_pair(void (*attention)(stepaf_boot_t *), void (*ffn)(stepaf_boot_t *))
{
    stepaf_boot_local_t *local;
    pid_t child[2];
    int failed = 0;

    CHECK(stepaf_boot_local_create(2, &local) == STEPAF_OK);
    for (int rank = 0; rank < 2; rank++) {
        child[rank] = fork();
        if (child[rank] == 0) {
            stepaf_boot_t boot;
            CHECK(stepaf_boot_local_attach(local, rank, rank, &boot) == STEPAF_OK);
            (rank == 0 ? attention : ffn)(&boot);
            std::_Exit(0);
        }
    }
    stepaf_boot_local_destroy(local);
    for (pid_t pid : child) {
        int status;
        failed |= waitpid(pid, &status, 0) != pid || status != 0;
    }
    std::puts(failed ? "FAILED" : "passed");
    return failed;
}

#endif
