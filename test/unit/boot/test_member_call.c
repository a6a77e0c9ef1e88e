/* SPDX-License-Identifier: Apache-2.0 */
/* How members call each other, without contexts: whoever is stopped while it calls, or lacks what it
 * takes, loses nobody by that, and whoever does not listen any more is lost. */
#include <poll.h>
#include <stdlib.h>

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/time.h"
#include "nets.h"
#include "topo/address.h"

enum { RANKS = 3, LIMIT_MS = 10000, SHORT_MS = 200 };

struct job {
    struct stepaf_env env;
    struct stepaf_member_net *nets[RANKS]; /* NULL: it has ended */
};

static void begin_job(struct job *job)
{
    memset(job, 0, sizeof *job);
    open_nets(&job->env, job->nets, RANKS);
    for (int r = 0; r < RANKS; r++)
        stepaf_member_net_next(job->nets[r]);
}

static void end_job(struct job *job)
{
    for (int r = 0; r < RANKS; r++)
        stepaf_member_net_close(job->nets[r]);
    stepaf_env_free(&job->env);
}

static void decide_at(const struct job *job, int rank)
{
    stepaf_member_net_decide(job->nets[rank], "word", 4);
}

static void pump_from(const struct job *job, int first)
{
    for (int r = first; r < RANKS; r++)
        if (job->nets[r])
            stepaf_member_net_pump(job->nets[r]);
    (void)poll(NULL, 0, 1);
}

static bool is_lost(const struct job *job, int at, int rank)
{
    return stepaf_consensus_has_lost(stepaf_member_net_consensus(job->nets[at]), rank);
}

#define PUMP_UNTIL(job_, first_, condition_)                             \
    do {                                                                 \
        int64_t until_ns = stepaf_monotonic_ns() + LIMIT_MS * 1000000LL; \
        while (!(condition_) && stepaf_monotonic_ns() < until_ns)        \
            pump_from(job_, first_);                                     \
        CU_ASSERT((condition_) ? 1 : 0);                                 \
    } while (0)

/* All come to the decision, and nobody is lost. */
static void check_all_decide(const struct job *job)
{
    for (int r = 0; r < RANKS; r++) {
        PUMP_UNTIL(job, 0,
                   stepaf_member_net_consensus(job->nets[r])->state == STEPAF_CONSENSUS_DONE);
        for (int other = 0; other < RANKS; other++)
            CU_ASSERT_FALSE(is_lost(job, r, other));
    }
}

/* The others wait for a stranger's words no longer. */
static void let_strangers_be_late(const struct job *job)
{
    for (int r = 1; r < RANKS; r++)
        for (struct stepaf_control_link *at = job->nets[r]->control.strangers; at; at = at->next)
            at->until_ns = 0;
    PUMP_UNTIL(job, 1, !job->nets[1]->control.n_strangers && !job->nets[2]->control.n_strangers);
}

static bool have_strangers(const struct job *job, enum stepaf_control_state state)
{
    for (int r = 1; r < RANKS; r++) {
        const struct stepaf_control_link *stranger = job->nets[r]->control.strangers;
        if (!stranger || stranger->state != state)
            return false;
    }
    return true;
}

/* The leader calls, and is stopped before its hello; or before its answer. */
static void stopped_while_it_calls(void)
{
    struct job job;

    for (int is_greeting = 0; is_greeting < 2; is_greeting++) {
        begin_job(&job);
        decide_at(&job, 0);
        stepaf_member_net_pump(job.nets[0]);
        if (is_greeting) {
            struct stepaf_control_link **links = job.nets[0]->control.links;
            PUMP_UNTIL(&job, 0,
                       links[1] && links[1]->state == STEPAF_CONTROL_GREETING && links[2] &&
                           links[2]->state == STEPAF_CONTROL_GREETING);
        }
        PUMP_UNTIL(&job, 1,
                   have_strangers(&job, is_greeting ? STEPAF_CONTROL_CHALLENGED
                                                    : STEPAF_CONTROL_STRANGER));
        let_strangers_be_late(&job);
        decide_at(&job, 1);
        decide_at(&job, 2);
        check_all_decide(&job);
        end_job(&job);
    }
}

/* It has no descriptors left, or one. It says so itself, and tries again. */
static void without_descriptors(void)
{
    struct rlimit before, low;
    struct job job;

    for (unsigned n_spare = 0; n_spare < 2; n_spare++) {
        begin_job(&job);
        int top = dup(0);
        CU_ASSERT_FATAL(top >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
        close(top);
        low = before;
        low.rlim_cur = (rlim_t)top + n_spare;
        CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &low), 0);
        decide_at(&job, 0);
        int64_t until_ns = stepaf_monotonic_ns() + SHORT_MS * 1000000LL;
        while (stepaf_monotonic_ns() < until_ns)
            stepaf_member_net_pump(job.nets[0]);
        UNIT_CONTAINS(stepaf_member_net_hindrance(job.nets[0], 2), "ulimit -n");
        CU_ASSERT_STRING_EQUAL(stepaf_member_net_reason(job.nets[0], 2), "");
        CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &before), 0);
        decide_at(&job, 1);
        decide_at(&job, 2);
        check_all_decide(&job);
        CU_ASSERT_STRING_EQUAL(stepaf_member_net_hindrance(job.nets[0], 2), "");
        end_job(&job);
    }
}

static void nobody_listens(void)
{
    struct job job;

    begin_job(&job);
    stepaf_member_net_close(job.nets[2]);
    job.nets[2] = NULL;
    decide_at(&job, 0);
    decide_at(&job, 1);
    PUMP_UNTIL(&job, 0, is_lost(&job, 0, 2));
    UNIT_CONTAINS(stepaf_member_net_reason(job.nets[0], 2), "cannot connect: ");
    PUMP_UNTIL(&job, 0, stepaf_member_net_consensus(job.nets[0])->state == STEPAF_CONSENSUS_DONE);
    end_job(&job);
}

/* Where a rank listens. */
static struct sockaddr_storage listens_at(const struct stepaf_member_net *net)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;

    CU_ASSERT_EQUAL_FATAL(getsockname(net->control.listener, (struct sockaddr *)&at, &bytes), 0);
    return at;
}

/* The members agree, with STEPAF_NET_IF, and listen at this address alone. */
static void agree_at(const char *net_if, const struct stepaf_net_address *address)
{
    struct job job;

    setenv("STEPAF_NET_IF", net_if, 1);
    begin_job(&job);
    unsetenv("STEPAF_NET_IF");
    for (int r = 0; r < RANKS; r++) {
        struct sockaddr_storage at = listens_at(job.nets[r]);
        const struct stepaf_consensus_addresses *own = &job.nets[r]->own;
        CU_ASSERT_EQUAL(at.ss_family, address->family);
        if (address->family == AF_INET)
            CU_ASSERT_EQUAL(memcmp(&((struct sockaddr_in *)&at)->sin_addr, address->bytes, 4), 0);
        CU_ASSERT_EQUAL(own->n, !address->loopback);
        CU_ASSERT_EQUAL(own->network_id != 0, address->loopback);
        decide_at(&job, r);
    }
    check_all_decide(&job);
    end_job(&job);
}

/* Ranks listen, and are called, at the address that the setting selects, and at no other. */
static void listens_where_it_is_told(void)
{
    static const struct stepaf_net_address loopback = {
        .family = AF_INET, .loopback = true, .bytes = {127, 0, 0, 1}};
    struct stepaf_net_addresses all;
    char text[INET6_ADDRSTRLEN], subnet[INET6_ADDRSTRLEN + 8];
    unsigned i = 0;

    agree_at("lo", &loopback);
    agree_at("127.0.0.0/8", &loopback);
    agree_at("no-such-one", &loopback);
    CU_ASSERT_EQUAL_FATAL(stepaf_net_addresses_own("", &all), STEPAF_OK);
    while (i < all.n && (all.list[i].loopback || all.list[i].family != AF_INET))
        i++;
    if (i == all.n)
        return; /* this machine has no other address */
    CU_ASSERT_PTR_NOT_NULL(inet_ntop(AF_INET, all.list[i].bytes, text, sizeof text));
    snprintf(subnet, sizeof subnet, "%s/32", text);
    agree_at(subnet, &all.list[i]);
}

static int listen_again(uint16_t port)
{
    struct sockaddr_in place = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

    CU_ASSERT_EQUAL(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&place, sizeof place), 0);
    CU_ASSERT_EQUAL_FATAL(listen(fd, 8), 0);
    return fd;
}

/* Another program has its port, which takes each connection and ends it: in two seconds the rank is
 * lost. */
static void another_listens(void)
{
    struct job job;

    begin_job(&job);
    uint16_t port = job.nets[2]->control.port;
    stepaf_member_net_close(job.nets[2]);
    job.nets[2] = NULL;
    int fd = listen_again(port), n = 0;
    decide_at(&job, 0);
    decide_at(&job, 1);
    int64_t begin_ns = stepaf_monotonic_ns();
    while (!is_lost(&job, 0, 2) && stepaf_monotonic_ns() < begin_ns + LIMIT_MS * 1000000LL) {
        int taken = accept(fd, NULL, NULL);
        n += taken >= 0;
        if (taken >= 0)
            close(taken);
        pump_from(&job, 0);
    }
    CU_ASSERT(is_lost(&job, 0, 2));
    CU_ASSERT(stepaf_monotonic_ns() - begin_ns > MEMBER_CONNECT_NS / 2);
    CU_ASSERT(n > 2);
    close(fd);
    end_job(&job);
}

/* What is to be told to one that does not answer yet does not pile up, and is told when it does. */
static void losses_do_not_pile_up(void)
{
    struct job job;
    int n = 0;

    begin_job(&job);
    stepaf_member_net_lose(job.nets[1], 2, "it hangs");
    for (int i = 0; i < 1000; i++) {
        stepaf_consensus_report(&job.nets[1]->consensus, 0);
        if (i % 10 == 0)
            stepaf_member_net_pump(job.nets[1]);
    }
    for (struct member_queued *at = job.nets[1]->others[0].queue; at; at = at->next)
        n++;
    CU_ASSERT(n <= 1);
    PUMP_UNTIL(&job, 0, is_lost(&job, 0, 2));
    end_job(&job);
}

/* In the order in which it was said. */
static void what_waits_is_said_in_order(void)
{
    struct job job;
    uint32_t n = 0;

    begin_job(&job);
    for (uint32_t i = 0; i < 5; i++)
        stepaf_member_net_say(job.nets[0], 1, STEPAF_CONTROL_LEAVES, (const uint8_t *)&i, sizeof i);
    for (struct member_queued *at = job.nets[0]->others[1].queue; at; at = at->next, n++)
        CU_ASSERT(!memcmp(at->data, &n, sizeof n));
    CU_ASSERT_EQUAL(n, 5);
    stepaf_member_net_drop(job.nets[0], 1);
    CU_ASSERT_PTR_NULL(job.nets[0]->others[1].last);
    end_job(&job);
}

/* A host with more addresses than members get: NICs come first, but one that is none's is left. */
static void many_addresses(void)
{
    enum { MOST = STEPAF_CONSENSUS_ADDRESSES };
    static const struct {
        unsigned n, other, last; /* addresses, which of them is no NIC's, which is announced last */
    } cases[] = {{MOST, MOST - 1, MOST - 1},
                 {MOST + 3, MOST + 1, MOST + 1},
                 {MOST + 3, 2, MOST - 1},
                 {MOST + 3, MOST + 9, MOST - 1},
                 {3, 1, 2}};

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct stepaf_net_addresses all = {.n = cases[c].n + 1};
        struct stepaf_consensus_addresses own = {.n = 0};
        unsigned most = cases[c].n < MOST ? cases[c].n : MOST;
        all.list[0] = (struct stepaf_net_address){.family = AF_INET, .loopback = true};
        for (unsigned i = 0; i < cases[c].n; i++)
            all.list[i + 1] = (struct stepaf_net_address){.family = AF_INET,
                                                          .is_spare = i == cases[c].other,
                                                          .bytes = {10, 0, 0, (uint8_t)i}};
        stepaf_consensus_addresses_pick(&all, &own);
        CU_ASSERT_EQUAL_FATAL(own.n, most);
        for (unsigned i = 0; i < most; i++)
            CU_ASSERT_EQUAL(own.bytes[i][15], i == most - 1 ? cases[c].last : i);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"stopped while it calls", stopped_while_it_calls},
        {"without descriptors", without_descriptors},
        {"nobody listens", nobody_listens},
        {"listens where it is told", listens_where_it_is_told},
        {"another program listens", another_listens},
        {"losses do not pile up", losses_do_not_pile_up},
        {"many addresses", many_addresses},
        {"what waits is said in order", what_waits_is_said_in_order},
        CU_TEST_INFO_NULL,
    };
    setenv("STEPAF_NET_IF", "lo", 1);
    return unit_run(tests);
}
