/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1 /* struct ucred */

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/boot_join.h"

const char *stepaf_join_name(const struct stepaf_join *join)
{
    return *join->job ? join->job : "without a name (STEPAF_LOCAL_JOB)";
}

stepaf_status_t stepaf_join_error(const struct stepaf_join *join, const char *what, int why)
{
    return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT, "local bootstrap: job %s: %s: %s",
                            stepaf_join_name(join), what, stepaf_why(why));
}

socklen_t stepaf_join_address(const struct stepaf_join *join, struct sockaddr_un *address_p)
{
    *address_p = (struct sockaddr_un){.sun_family = AF_UNIX};
    int bytes = snprintf(address_p->sun_path + 1, sizeof address_p->sun_path - 1, "stepaf-%lu-%s",
                         (unsigned long)geteuid(), join->job);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
}

int stepaf_join_is_own_user(int fd)
{
    struct ucred other;
    socklen_t bytes = sizeof other;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.uid == geteuid();
}

int stepaf_join_readable(int fd, int64_t deadline_ns)
{
    for (;;) {
        int64_t left_ms = (deadline_ns - stepaf_monotonic_ns() + 999999) / 1000000;
        struct pollfd one = {.fd = fd, .events = POLLIN};
        int n = poll(&one, 1, left_ms <= 0 ? 0 : left_ms > 1000 ? 1000 : (int)left_ms);
        if (n > 0 || (n < 0 && errno != EINTR))
            return 1; /* what is wrong with it, reading will tell */
        if (left_ms <= 0)
            return 0;
    }
}
