/* SPDX-License-Identifier: Apache-2.0 */
/* What a child of fork() does not keep: descriptors that a library has made, and mappings of device
 * files, both of which would keep the device's state when the parent has ended. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"
#include "unit.h"

enum { BYTES = 8192 };

/* Run @a child in a child; return its exit code. */
static int in_a_child(int (*child)(void))
{
    pid_t pid = fork();
    int status = 0;

    CU_ASSERT_FATAL(pid >= 0);
    if (!pid)
        _exit(child());
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int pipe_ends[2];

static int writes(void)
{
    return write(pipe_ends[1], "x", 1) == 1;
}

static void a_librarys_descriptor_is_nothing_in_a_child(void)
{
    CU_ASSERT_EQUAL_FATAL(pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK), 0);
    CU_ASSERT_EQUAL(in_a_child(writes), 1);
    stepaf_fork_begin();
    CU_ASSERT_EQUAL(stepaf_fork_add(pipe_ends[1]), 0);
    CU_ASSERT_EQUAL(stepaf_fork_add(pipe_ends[1]), 0); /* twice is once */
    CU_ASSERT_EQUAL(stepaf_fork_end(-1), -1);
    CU_ASSERT_EQUAL(in_a_child(writes), 0);
    stepaf_fork_forget(pipe_ends[1]);
    stepaf_fork_forget(pipe_ends[1]);
    CU_ASSERT_EQUAL(in_a_child(writes), 1);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

/* A library may have closed it, and the number stand for something else. */
static void a_file_is_nothing_in_a_child_as_long_as_it_is_that_file(void)
{
    int others[2];

    CU_ASSERT_EQUAL_FATAL(pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK), 0);
    CU_ASSERT_EQUAL(stepaf_fork_add_file(pipe_ends[1]), 0);
    CU_ASSERT_EQUAL(in_a_child(writes), 0);
    CU_ASSERT_EQUAL(write(pipe_ends[1], "x", 1), 1);
    CU_ASSERT_EQUAL_FATAL(pipe2(others, O_CLOEXEC | O_NONBLOCK), 0);
    CU_ASSERT_EQUAL(dup3(others[1], pipe_ends[1], O_CLOEXEC), pipe_ends[1]);
    CU_ASSERT_EQUAL(in_a_child(writes), 1);
    stepaf_fork_forget(pipe_ends[1]);
    CU_ASSERT_EQUAL(stepaf_fork_add_file(pipe_ends[1]), 0);
    CU_ASSERT_EQUAL(in_a_child(writes), 0);
    stepaf_fork_forget(pipe_ends[1]);
    CU_ASSERT_EQUAL(in_a_child(writes), 1);
    CU_ASSERT_EQUAL(stepaf_fork_add_file(-1), EBADF);
    for (int i = 0; i < 2; i++) {
        close(pipe_ends[i]);
        close(others[i]);
    }
}

/* A thread that is canceled in one of these calls leaves nothing locked. */
static void *close_canceled(void *arg)
{
    pthread_cancel(pthread_self());
    stepaf_fork_close(*(int *)arg);
    return NULL;
}

static void *open_canceled(void *arg)
{
    (void)arg;
    pthread_cancel(pthread_self());
    stepaf_fork_begin();
    int fd = stepaf_fork_end(open("/dev/null", O_RDONLY | O_CLOEXEC));
    stepaf_fork_close(fd);
    return NULL;
}

static int is_there(void)
{
    return 1;
}

static void cancellation_leaves_nothing_locked(void)
{
    void *(*const ways[])(void *) = {close_canceled, open_canceled};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pthread_t thread;
        int fd = dup(STDERR_FILENO);
        alarm(30);
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, ways[i], &fd), 0);
        pthread_join(thread, NULL);
        CU_ASSERT_EQUAL(in_a_child(is_there), 1);
        stepaf_fork_forget(fd);
        alarm(0);
        if (ways[i] != close_canceled)
            close(fd);
    }
}

static void *device, *other;

static int has(void *map)
{
    return msync(map, BYTES, MS_ASYNC) == 0;
}

static int has_device(void)
{
    return has(device);
}

static int has_other(void)
{
    return has(other);
}

static void *map_file(char *path)
{
    int fd = mkstemp(path);

    CU_ASSERT_FATAL(fd >= 0 && !ftruncate(fd, BYTES));
    void *map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(map, MAP_FAILED);
    close(fd);
    (void)unlink(path);
    return map;
}

static void mappings_of_a_device_are_not_there_in_a_child(void)
{
    char device_path[] = "/tmp/stepaf_device_XXXXXX", other_path[] = "/tmp/stepaf_other_XXXXXX";

    device = map_file(device_path);
    other = map_file(other_path);
    CU_ASSERT_EQUAL(in_a_child(has_device), 1);
    stepaf_fork_unmap("/tmp/stepaf_device_");
    CU_ASSERT_EQUAL(in_a_child(has_device), 0);
    CU_ASSERT_EQUAL(in_a_child(has_other), 1);
    CU_ASSERT_TRUE(has(device));
    stepaf_fork_unmap(NULL);
    CU_ASSERT_EQUAL(in_a_child(has_device), 1);
    munmap(device, BYTES);
    munmap(other, BYTES);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a library's descriptor is nothing in a child",
         a_librarys_descriptor_is_nothing_in_a_child},
        {"cancellation leaves nothing locked", cancellation_leaves_nothing_locked},
        {"a file is nothing in a child as long as it is that file",
         a_file_is_nothing_in_a_child_as_long_as_it_is_that_file},
        {"mappings of a device are not there in a child",
         mappings_of_a_device_are_not_there_in_a_child},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
