/* SPDX-License-Identifier: Apache-2.0 */
/* A forked rank becomes one of another host: a network namespace with a host name of its own. Or it
 * takes one end of each RDMA link that test/vm has, as test/vm/ends.sh has ranks of mpirun do. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Word number @a index of a list with commas, which is gone through again and again. */
static void choose(const char *list, int index, char *name_p, size_t capacity)
{
    const char *word = list;

    for (; index > 0; index--) {
        word += strcspn(word, ",");
        word = *word == '\0' ? list : word + 1;
    }
    snprintf(name_p, capacity, "%.*s", (int)strcspn(word, ","), word);
}

bool hs_move_to_host(const char *hosts, int rank)
{
    char name[32], path[64];
    int fd;

    choose(hosts, rank, name, sizeof name);
    snprintf(path, sizeof path, "/run/netns/%s", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0 || unshare(CLONE_NEWUTS) != 0 ||
        sethostname(name, strlen(name)) != 0)
        return HS_FAILED("cannot become one of host %s: %s", name, strerror(errno));
    close(fd);
    return true;
}

/* libfabric and UCX choose devices by variables of their own: they are to take the first. */
static bool take_first(const char *devices)
{
    int bytes = (int)strcspn(devices, ",");
    char name[64];

    snprintf(name, sizeof name, "%.*s", bytes, devices);
    if (setenv("FI_VERBS_IFACE", name, 1) != 0)
        return false;
    snprintf(name, sizeof name, "%.*s:1", bytes, devices);
    return setenv("UCX_NET_DEVICES", name, 1) == 0;
}

bool hs_take_ends(const char *rails, int rank)
{
    const char *far = getenv("VM_FAR");
    bool is_far = far != NULL ? atoi(far) == rank : rank % 2 == 1;
    char devices[256] = "";
    size_t used = 0;

    while (*rails != '\0') {
        int bytes = (int)strcspn(rails, " "), more;
        more = snprintf(devices + used, sizeof devices - used, "%s%.*s%c", used > 0 ? "," : "",
                        bytes, rails, is_far ? 'b' : 'a');
        if (more < 0 || (size_t)more >= sizeof devices - used)
            return HS_FAILED("VM_RAILS is too long");
        used += (size_t)more;
        rails += bytes;
        rails += strspn(rails, " ");
    }
    return setenv("STEPAF_NET_DEVICES", devices, 1) == 0 && take_first(devices);
}
