/* SPDX-License-Identifier: Apache-2.0 */
/* Yama, a security module that Ubuntu enables, allows only ancestors to access a process's pages
 * (ptrace_scope 1), unless the process itself names another process. */
#include "transport/shm/attach.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fd.h"

enum { SCOPE_RESTRICTED = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned n_allowed;

int stepaf_shm_ptrace_scope(const char *path)
{
    char digit = '0';
    int fd = stepaf_fd_open(path, O_RDONLY);

    if (fd < 0)
        return 0;
    if (read(fd, &digit, 1) != 1 || digit < '0' || digit > '9')
        digit = '0';
    close(fd);
    return digit - '0';
}

bool stepaf_shm_attach_allow(int scope)
{
    bool allowed = scope == SCOPE_RESTRICTED;

    if (!allowed)
        return false;
    pthread_mutex_lock(&lock);
    allowed = n_allowed || !prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    n_allowed += allowed;
    pthread_mutex_unlock(&lock);
    return allowed;
}

void stepaf_shm_attach_disallow(void)
{
    pthread_mutex_lock(&lock);
    if (!--n_allowed)
        (void)prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    pthread_mutex_unlock(&lock);
}
