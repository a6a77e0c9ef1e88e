/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric itself, by tcp;ofi_rxm, with both ends in one process: nothing that it opens has a
 * number that the program may have closed, and a child of fork() has none of its connections. */
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ofi_fabric.h"
#include "unit.h"

enum {
    FILES = 1024,
    BYTES = 100000,
    LARGE = 4 << 20,
    POSTS = 4,
    SKIP = 77,
    OTHER_HOST = 0x7f000009
};

static struct side a, b;
static const char *const settings[] = {"STEPAF_OFI_PROVIDER", "tcp;ofi_rxm", NULL};

static void join(void)
{
    side_ops = &stepaf_ofi_ops;
    side_settings = settings;
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
}

static void prove(void)
{
    fabric_prove((struct side *[]){&a, &b}, 2);
}

static void begin(void)
{
    join();
    prove();
}

static void end(void)
{
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    side_close(&a);
    side_close(&b);
}

static bool exchange(uint32_t seq)
{
    return fabric_exchange(&a, &b, seq);
}

static void messages_and_tensors_come(void)
{
    begin();
    struct stepaf_mem *source = fabric_memory(&a, BYTES), *target = fabric_memory(&b, BYTES);
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, target);
    struct stepaf_xfer xfer = {source->base, source, rmem, 0, BYTES};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 9};
    memset(source->base, 0x3c, BYTES);
    for (uint32_t seq = 0; seq < 200; seq++)
        CU_ASSERT_TRUE(exchange(seq));
    unsigned n = b.n_messages;
    while (side_ops->post(posts, 1))
        (void)side_progress(&a);
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, n + 1));
    CU_ASSERT_EQUAL(memcmp(source->base, target->base, BYTES), 0);
    CU_ASSERT_EQUAL(a.up.dropped_malformed + b.up.dropped_malformed, 0);
    side_ops->release_mem(a.links[0], rmem);
    end();
}

/* In a child that has closed the low numbers. */
static int live_closed(void)
{
    side_ops = &stepaf_ofi_ops;
    side_settings = settings;
    fabric_open(&a, 1);
    if (!fabric_low_are_free())
        return 1;
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
    fabric_prove((struct side *[]){&a, &b}, 2);
    if (!fabric_low_are_free())
        return 2;
    for (uint32_t seq = 0; seq < 20; seq++)
        if (!exchange(seq))
            return 3;
    side_close(&a);
    side_close(&b);
    return fabric_low_are_free() ? 0 : 4;
}

static void nothing_has_a_low_number(void)
{
    fabric_ask_low_numbers(live_closed);
}

/* The connections of a process that was replaced are known until the end. */
static void replaced_sockets_are_known(void)
{
    begin();
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)a.transport;
    unsigned n = ofi->n_sockets;
    CU_ASSERT(n >= 2); /* the listener, and the connection */
    a.up.lost(&a.up, a.links[0], "given up");
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    side_ops->disconnect(a.links[0]);
    stepaf_ofi_sockets_find(ofi);
    CU_ASSERT_EQUAL(ofi->n_sockets, n);
    a.n_lost = 0;
    end();
}

/* Those of the network; libfabric has pairs of its own as well, which nobody else holds. */
static int count_sockets(void)
{
    socklen_t bytes = sizeof(int);
    int n = 0, domain;

    for (int fd = 0; fd < FILES; fd++)
        n += !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) && domain != AF_UNIX;
    return n;
}

static int count_in_a_child(void)
{
    int status = -1;
    pid_t child = fork();

    side_must(child >= 0, "fork");
    if (!child)
        _exit(count_sockets());
    side_must(waitpid(child, &status, 0) == child && WIFEXITED(status), "the child");
    return WEXITSTATUS(status);
}

static void a_child_has_no_connection(void)
{
    enum { OWN = 20 };
    int fds[OWN];

    CU_ASSERT_EQUAL(count_sockets(), 0);
    begin();
    int n = count_sockets();
    CU_ASSERT(n >= 4 && n <= OWN); /* listeners, and both ends of a connection */
    CU_ASSERT_EQUAL(count_in_a_child(), 0);
    CU_ASSERT_TRUE(exchange(5)); /* it has done no harm */
    end();
    CU_ASSERT_EQUAL(count_sockets(), 0);
    /* What has these numbers now is the program's own. */
    for (int i = 0; i < OWN; i++)
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL(count_in_a_child(), OWN);
    for (int i = 0; i < OWN; i++)
        close(fds[i]);
}

/* A socket of the program's that has the port of a's endpoint, and its address or another one. */
static int open_at_its_port(int type, bool at_its_host)
{
    struct sockaddr_in at;
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    memcpy(&at, ofi_of(&a)->rails[0].address, sizeof(at));
    side_must(fd >= 0 && at.sin_family == AF_INET, "an endpoint with a port");
    if (!at_its_host)
        at.sin_addr.s_addr = htonl(OTHER_HOST);
    (void)bind(fd, (struct sockaddr *)&at, sizeof(at)); /* another program may be there */
    return fd;
}

/* Connect to a listener; *accepted_p: the other end, whose address is the listener's. */
static int connect_to(int listener, int *accepted_p)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at;
    socklen_t bytes = sizeof(at);

    side_must(!listen(listener, 1) && !getsockname(listener, (struct sockaddr *)&at, &bytes) &&
                  !connect(fd, (struct sockaddr *)&at, sizeof(at)),
              "connect");
    *accepted_p = accept(listener, NULL, NULL);
    side_must(*accepted_p >= 0, "accept");
    return fd;
}

static bool takes(const struct side *side, int fd)
{
    bool does = false;

    for (unsigned i = 0; i < ofi_of(side)->n_sockets; i++)
        does |= ofi_of(side)->sockets[i].fd == fd;
    return does;
}

static void others_at_its_port_are_the_programs(void)
{
    enum { OWN = 4 };
    int fds[OWN];
    char byte = 1;

    join();
    fds[0] = open_at_its_port(SOCK_DGRAM, true);
    fds[1] = open_at_its_port(SOCK_STREAM, false);
    fds[2] = connect_to(fds[1], &fds[3]);
    prove();
    CU_ASSERT(ofi_of(&a)->n_sockets >= 2);
    for (int i = 0; i < OWN; i++)
        CU_ASSERT(!takes(&a, fds[i]) && !takes(&b, fds[i]));
    end();
    CU_ASSERT_EQUAL(send(fds[3], &byte, 1, MSG_NOSIGNAL), 1);
    CU_ASSERT_EQUAL(recv(fds[2], &byte, 1, 0), 1);
    for (int i = 0; i < OWN; i++)
        close(fds[i]);
}

/* Its ports are of RDMA-CM, even if sockets have the same. */
static void verbs_has_no_sockets(void)
{
    join();
    ofi_of(&b)->shared.name = "verbs;ofi_rxm";
    prove();
    CU_ASSERT(ofi_of(&a)->n_sockets > 0);
    CU_ASSERT_EQUAL(ofi_of(&b)->n_sockets, 0);
    end();
}

/* One end closes while the other is in the middle of large writes, of which some have landed in
 * part. */
static void an_end_may_close_in_the_middle(void)
{
    struct stepaf_post post[POSTS], *posts[POSTS];
    unsigned n_in_the_middle = 0;

    for (int polls = 0; polls < 6; polls++) {
        begin();
        struct stepaf_mem *source = fabric_memory(&a, LARGE), *target = fabric_memory(&b, LARGE);
        struct stepaf_rmem *rmem = side_import(&a, 0, &b, target);
        struct stepaf_xfer xfer = {source->base, source, rmem, 0, LARGE};
        memset(source->base, 0x3c, LARGE);
        for (int i = 0; i < POSTS; i++) {
            post[i] = (struct stepaf_post){.link = a.links[0], .xfer = &xfer, .n_xfer = 1};
            posts[i] = &post[i];
        }
        CU_ASSERT_EQUAL(side_ops->post(posts, POSTS), 0);
        for (int i = 0; i < polls; i++) {
            (void)side_progress(&a);
            (void)side_progress(&b);
        }
        n_in_the_middle += b.n_messages < POSTS && target->base[0] && !target->base[LARGE - 1];
        side_close(&b);
        for (int i = 0; i < 1000; i++)
            (void)side_progress(&a);
        side_ops->release_mem(a.links[0], rmem);
        side_close(&a);
    }
    CU_ASSERT(n_in_the_middle > 0);
}

/* The other end closes, and is watched by nothing but the fabric. */
static void an_end_without_a_word_is_noticed(void)
{
    begin();
    CU_ASSERT_TRUE(exchange(1));
    side_close(&b);
    for (int i = 0; i < 1000 && !a.n_lost; i++) {
        (void)side_say(&a, 0, 2);
        (void)side_progress(&a);
    }
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "tcp;ofi_rxm: ");
    side_close(&a);
}

enum { SIGNALS = 32 };
static struct sigaction before[SIGNALS];

/* What libfabric brings with it may have its own. */
static void handlers_are_the_programs(void)
{
    for (int i = 1; i < SIGNALS; i++) {
        struct sigaction now;
        if (!sigaction(i, NULL, &now))
            CU_ASSERT_PTR_EQUAL(now.sa_sigaction, before[i].sa_sigaction);
    }
}

int main(void)
{
    for (int i = 1; i < SIGNALS; i++)
        (void)sigaction(i, NULL, &before[i]);
    char refused[STEPAF_REASON_MAX], reason[STEPAF_REASON_MAX] = "";
    const struct stepaf_ofi_library *library = stepaf_ofi_library(reason);
    struct stepaf_env env = {.ofi_provider = (char *)"tcp;ofi_rxm", .ofi_domains = (char *)""};
    struct fi_info *infos[STEPAF_OFI_RAILS];
    unsigned n =
        library ? stepaf_ofi_choose(library, &env, NULL, false, infos, refused, reason) : 0;
    CU_TestInfo tests[] = {
        {"handlers are the program's", handlers_are_the_programs},
        {"messages and tensors come", messages_and_tensors_come},
        {"nothing has a low number", nothing_has_a_low_number},
        {"a child has no connection", a_child_has_no_connection},
        {"replaced sockets are known", replaced_sockets_are_known},
        {"others at its port are the program's", others_at_its_port_are_the_programs},
        {"verbs has no sockets", verbs_has_no_sockets},
        {"an end may close in the middle", an_end_may_close_in_the_middle},
        {"an end without a word is noticed", an_end_without_a_word_is_noticed},
        CU_TEST_INFO_NULL,
    };

    if (!n) {
        printf("SKIP: %s\n", reason);
        return SKIP;
    }
    while (n)
        library->freeinfo(infos[--n]);
    return unit_run(tests);
}
