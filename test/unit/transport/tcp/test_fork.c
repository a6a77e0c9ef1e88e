/* SPDX-License-Identifier: Apache-2.0 */
/* TCP: a child of fork() keeps nothing of its parent's, and can do it no harm. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"
#include "tcp_side.h"
#include "unit.h"

static struct side a, b;

static void begin(void)
{
    tcp_set_defaults();
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    tcp_join(&a, 0, &b, 0);
}

static void end(void)
{
    side_close(&a);
    side_close(&b);
}

/* A child that does what @a does says, and lives on. It is there when this returns. */
static pid_t child_that(void (*does)(void))
{
    int ready[2];
    char byte = 'x';

    side_must(!pipe(ready), "pipe");
    pid_t child = fork();
    side_must(child >= 0, "fork");
    if (!child) {
        if (does)
            does();
        (void)!write(ready[1], &byte, 1);
        for (;;)
            pause();
    }
    side_must(read(ready[0], &byte, 1) == 1, "the child");
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void let_go(pid_t child)
{
    kill(child, SIGKILL);
    side_must(waitpid(child, NULL, 0) == child, "wait");
}

/* What its end does to a process's descriptors, the kernel's closing, while its child lives. */
static void a_death_is_noticed_though_a_child_lives(void)
{
    begin();
    pid_t child = child_that(NULL);
    close(tcp_link(&a, 0)->connections[0].fd);
    CU_ASSERT_TRUE(tcp_until_lost(&b));
    UNIT_CONTAINS(b.lost_reason, "closed");
    let_go(child);
    int fd = open("/dev/null", O_RDONLY); /* a closes that number once more */
    side_must(fd >= 0, "open");
    end();
}

static void a_port_is_free_though_a_child_lives(void)
{
    char port[16];

    tcp_set_defaults();
    tcp_open(&b, false, 1);
    snprintf(port, sizeof port, "%u", tcp_of(&b)->listener.port);
    pid_t child = child_that(NULL);
    side_close(&b);
    tcp_set("STEPAF_NET_PORTS", port);
    side_initiates = false;
    CU_ASSERT_EQUAL(side_try_open(&b, 1), STEPAF_OK);
    side_close(&b);
    let_go(child);
}

static void meddle(void)
{
    int fd = tcp_link(&a, 0)->connections[0].fd;

    /* The number is taken, so that no file of the child's own gets it, and it is no socket. */
    side_must(fcntl(fd, F_GETFD) == FD_CLOEXEC, "the number is not taken");
    side_must(shutdown(fd, SHUT_RDWR) && errno == ENOTSOCK, "it is a socket");
    side_must(fcntl(tcp_of(&a)->epoll_fd, F_GETFD) == FD_CLOEXEC, "the number is not taken");
    end();
}

static void a_child_does_its_parent_no_harm(void)
{
    begin();
    pid_t child = child_that(meddle);
    CU_ASSERT_EQUAL(side_say(&a, 0, 5), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(tcp_until_messages(&a, &b, 1));
    CU_ASSERT_EQUAL(side_say(&b, 0, 6), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(tcp_until_messages(&b, &a, 1));
    CU_ASSERT(!a.n_lost && !b.n_lost);
    let_go(child);
    end();
}

/* Nor has it the threads that help, and can close all the same. */
static void a_child_has_no_threads(void)
{
    tcp_set_defaults();
    tcp_set("STEPAF_TCP_CONNECTIONS", "2");
    tcp_set("STEPAF_TCP_THREADS", "2");
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    tcp_join(&a, 0, &b, 0);
    CU_ASSERT(tcp_of(&a)->copiers.it && tcp_of(&b)->copiers.it);
    let_go(child_that(end));
    CU_ASSERT_EQUAL(side_say(&a, 0, 5), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(tcp_until_messages(&a, &b, 1));
    end();
}

/* What is closed is nothing to later children, whatever has its number now. */
static void later_files_are_kept(void)
{
    begin();
    int fd = tcp_link(&a, 0)->connections[0].fd, ends[2];
    end();
    side_must(!pipe(ends) && (fcntl(fd, F_GETFD) >= 0 || dup2(ends[1], fd) == fd), "pipe");
    begin();
    pid_t child = fork();
    if (!child)
        _exit(write(ends[1], "!", 1) == 1 && fcntl(fd, F_GETFD) == 0 ? 0 : 1);
    int status;
    CU_ASSERT(waitpid(child, &status, 0) == child && status == 0);
    close(fd);
    if (ends[0] != fd)
        close(ends[0]);
    if (ends[1] != fd)
        close(ends[1]);
    end();
}

/* A child that has closed what it got may use the numbers for itself: its own children keep
 * that. */
static void a_childs_files_are_its_own(void)
{
    int ends[2], status;

    begin();
    int fd = tcp_link(&a, 0)->connections[0].fd;
    pid_t child = fork();
    if (!child) {
        if (pipe(ends) || dup2(ends[1], fd) != fd)
            _exit(1);
        pid_t grandchild = fork();
        if (!grandchild)
            _exit(write(fd, "!", 1) == 1 ? 0 : 1);
        close(ends[1]);
        close(fd);
        char word;
        bool has_come = read(ends[0], &word, 1) == 1;
        _exit(waitpid(grandchild, &status, 0) == grandchild && status == 0 && has_come ? 0 : 1);
    }
    CU_ASSERT(waitpid(child, &status, 0) == child && status == 0);
    CU_ASSERT_EQUAL(side_say(&a, 0, 5), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(tcp_until_messages(&a, &b, 1));
    end();
}

static void any_number_of_them_is_given_up(void)
{
    enum { N = 200 };
    int fds[N];

    for (int i = 0; i < N; i++) {
        stepaf_fork_begin();
        fds[i] = stepaf_fork_end(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        side_must(fds[i] >= 0, "socket");
    }
    pid_t child = fork();
    if (!child) {
        int left = 0;
        for (int i = 0; i < N; i++)
            left += !shutdown(fds[i], SHUT_RD) || errno != ENOTSOCK;
        _exit(left ? 1 : 0);
    }
    int status;
    CU_ASSERT(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < N; i++)
        stepaf_fork_close(fds[i]);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a death is noticed though a child lives", a_death_is_noticed_though_a_child_lives},
        {"a port is free though a child lives", a_port_is_free_though_a_child_lives},
        {"a child does its parent no harm", a_child_does_its_parent_no_harm},
        {"a child has no threads", a_child_has_no_threads},
        {"later files are kept", later_files_are_kept},
        {"a child's files are its own", a_childs_files_are_its_own},
        {"any number of them is given up", any_number_of_them_is_given_up},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
