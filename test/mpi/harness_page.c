/* SPDX-License-Identifier: Apache-2.0 */
/* The page that ranks under a launcher share: one makes it, the others open it through the process
 * file system. So nothing has to have a name, and ranks in other name spaces find it as well. */
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POLLS_MAX = 300000, POLL_US = 100 };

void hs_page_create(int where_p[2])
{
    int fd = memfd_create("test-page", MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, (off_t)sizeof(struct hs_shared)) != 0) {
        close(fd);
        fd = -1;
    }
    where_p[0] = getpid();
    where_p[1] = fd;
}

bool hs_page_open(struct hs_job *job, const int where[2])
{
    char path[64];
    void *page = MAP_FAILED;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", where[0], where[1]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        page = mmap(NULL, sizeof *job->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    if (page == MAP_FAILED)
        return false;
    job->shared = page;
    return true;
}

int hs_exit_code(int verdict)
{
    return verdict == HS_PASS ? 0 : verdict == HS_SKIP ? 77 : 1;
}

int hs_page_verdict(const struct hs_job *job, const char *name)
{
    static const char *words[] = {"PASS", "SKIP", "FAIL"};
    int verdict = hs_verdict(), first = -1, first_alive = -1;

    for (int rank = 0, turns = 0; rank < job->size; turns++) {
        int other = atomic_load(&job->shared->verdict[rank]);
        if (other == 0 && !atomic_load(&job->shared->doomed[rank]) && turns < POLLS_MAX) {
            hs_sleep_us(POLL_US);
            continue;
        }
        if (other == 0 && !atomic_load(&job->shared->doomed[rank]))
            verdict = HS_FAIL;
        if (other - 1 > verdict)
            verdict = other - 1;
        if (other != 0 && first < 0)
            first = rank;
        if (other != 0 && first_alive < 0 && !atomic_load(&job->shared->died[rank]))
            first_alive = rank;
        rank++;
    }
    if (job->rank == (first_alive >= 0 ? first_alive : first)) {
        printf("%s %s\n", words[verdict], name);
        fflush(stdout);
    }
    return verdict;
}
