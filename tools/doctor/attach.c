/* SPDX-License-Identifier: Apache-2.0 */
/* Whether ranks of a node can reach each other by process id and read each other's memory. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "doctor.h"
#include "transport/shm/attach.h"

enum { CAPABILITY_SYS_PTRACE = 19, BYTES = 4096 };

void doctor_look_ptrace(struct doctor *doctor)
{
    static const char path[] = "/proc/sys/kernel/yama/ptrace_scope";
    long long scope;
    int may = doctor_has_capability(doctor, CAPABILITY_SYS_PTRACE);

    if (!doctor_exists(doctor, "%s", path) && doctor_exists(doctor, "/proc/sys/kernel/osrelease"))
        doctor_say(doctor, DOCTOR_PASSED,
                   "this kernel has no Yama: a user's processes may read each other's memory");
    else if (!doctor_read_number(doctor, &scope, "%s", path) || scope < 0 || scope > 3)
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s cannot be read", path);
    else if (scope == 0)
        doctor_say(doctor, DOCTOR_PASSED, "ptrace_scope is 0");
    else if (scope == 1)
        doctor_say(doctor, DOCTOR_PASSED, "ptrace_scope is 1: the library allows it to its peers");
    else if (scope == 2 && may > 0)
        doctor_say(doctor, DOCTOR_PASSED, "ptrace_scope is 2, and this process has CAP_SYS_PTRACE");
    else
        doctor_say(doctor, DOCTOR_WARNED, "ptrace_scope is %lld: %s", scope,
                   scope == 2 ? "only processes with CAP_SYS_PTRACE may" : "no process may");
}

/* The other rank: report where its bytes are, allow what the library allows, and wait to be
 * read. */
static void be_read(int to, int from)
{
    unsigned char bytes[BYTES];
    uintptr_t address = (uintptr_t)bytes;
    char end;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + 3);
    stepaf_shm_attach_allow(stepaf_shm_ptrace_scope("/proc/sys/kernel/yama/ptrace_scope"));
    if (write(to, &address, sizeof address) == (ssize_t)sizeof address)
        (void)!read(from, &end, 1);
    _exit(0);
}

/* Read the bytes of @a pid. Returns 0, an errno, or -1 if the bytes are wrong. */
static int read_from(pid_t pid, uintptr_t address)
{
    unsigned char bytes[BYTES] = {0};
    struct iovec local = {bytes, sizeof bytes};
    struct iovec remote = {(void *)address, sizeof bytes};

    ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (n < 0)
        return errno;
    for (size_t i = 0; i < sizeof bytes; i++)
        if (n != (ssize_t)sizeof bytes || bytes[i] != (unsigned char)(i * 7 + 3))
            return -1;
    return 0;
}

/* As with ranks, neither process is the other's parent: a forked process reads from another one. */
static int try_attach(pid_t pid, uintptr_t address)
{
    int status;
    pid_t reader = fork();

    if (reader == 0) {
        int result = read_from(pid, address);
        _exit(result < 0 || result > 254 ? 255 : result);
    }
    if (reader < 0)
        return errno;
    if (waitpid(reader, &status, 0) != reader || !WIFEXITED(status))
        return ECHILD;
    return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

/* Returns -2 if it could not be tried. */
static int try_both(void)
{
    int up[2], down[2];
    uintptr_t address;
    int result = -2;

    if (pipe(up) != 0)
        return -2;
    if (pipe(down) != 0)
        goto out_up;
    pid_t pid = fork();
    if (pid == 0) {
        close(up[0]);
        close(down[1]);
        be_read(up[1], down[0]);
    }
    close(up[1]);
    up[1] = -1;
    if (pid > 0) {
        if (read(up[0], &address, sizeof address) == (ssize_t)sizeof address)
            result = try_attach(pid, address);
        close(down[1]);
        down[1] = -1;
        waitpid(pid, NULL, 0);
    }
    close(down[0]);
    if (down[1] >= 0)
        close(down[1]);
out_up:
    close(up[0]);
    if (up[1] >= 0)
        close(up[1]);
    return result;
}

void doctor_look_attach(struct doctor *doctor)
{
    char text[64];
    long long number;
    int result = -2;

    if (!doctor_is_test(doctor))
        result = try_both();
    else if (doctor_read_tried(doctor, text, sizeof text, "attach") && doctor_parse(text, &number))
        result = (int)number;
    if (result == 0)
        doctor_say(doctor, DOCTOR_PASSED, "a forked process has read the memory of another");
    else if (result == -1)
        doctor_say(doctor, DOCTOR_FAILED, "process_vm_readv has returned wrong bytes");
    else if (result < 0)
        doctor_say(doctor, DOCTOR_UNKNOWN, "it was not tried");
    else
        doctor_say(doctor, DOCTOR_WARNED, "process_vm_readv between two forked processes: %s",
                   strerror(result));
    if (result == ENOSYS)
        doctor_mend(doctor, "a kernel with CONFIG_CROSS_MEMORY_ATTACH");
    if (result == -1)
        doctor_mend(doctor, "export STEPAF_SHM_CMA=off");
}

void doctor_look_namespace(struct doctor *doctor)
{
    char text[DOCTOR_NAME];
    int has_docker = doctor_exists(doctor, "/.dockerenv") ||
                     doctor_exists(doctor, "/run/.containerenv") ||
                     doctor_exists(doctor, "/var/run/secrets/kubernetes.io");
    const char *sign = has_docker ? "; there are signs of a container" : "";

    if (!doctor_read_link(doctor, text, sizeof text, "/proc/self/ns/pid"))
        doctor_say(doctor, DOCTOR_UNKNOWN, "/proc/self/ns/pid cannot be read%s", sign);
    else if (strcmp(text, "pid:[4026531836]") == 0) /* from the kernel's include/linux/proc_ns.h */
        doctor_say(doctor, DOCTOR_PASSED, "the machine's own%s", sign);
    else
        doctor_say(doctor, DOCTOR_WARNED, "one of its own, %s%s", text, sign);
}
