/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"
#include "stats.h"
#include "tcp_meet.h"

enum {
    SPINS = 100000,    /* polls before a rank yields: tens of milliseconds */
    SPINS_CROWDED = 8, /* the same where the peer may be waiting for this core */
    TRIALS = 5,        /* of each way of waiting; one where a window takes LONG_US */
    LONG_US = 100000,
    TRIAL_US = 5000,     /* about, for each */
    TRIAL_WINDOWS = 500, /* in each, at most */
    NEAR_US = 1000       /* a round trip of an unshared line */
};

const char *perf_tcp_way_name(enum perf_tcp_way way)
{
    static const char *const names[] = {"spin", "block", "spin-reno", "block-reno"};

    return names[way];
}

/* Switch to that way: with the system's congestion control, or with Reno. */
static void take_way(struct perf_tcp *tcp, enum perf_tcp_way way)
{
    const char *name = perf_tcp_is_reno(way) ? "reno" : tcp->congestion;

    tcp->way = way;
    for (int i = 0; i < tcp->n_conns; i++)
        (void)setsockopt(tcp->conns[i].fd, IPPROTO_TCP, TCP_CONGESTION, name,
                         (socklen_t)strlen(name));
}

/* Plan all messages of the connection with member @a peer of the other group. */
static void make_messages(const struct perf_tcp *tcp, int peer, struct perf_tcp_conn *conn,
                          struct perf_parts *parts)
{
    const struct perf_case *c = tcp->c;
    int attention = tcp->place->role == STEPAF_ATTENTION;
    int a = attention ? tcp->place->index : peer;
    int f = attention ? peer : tcp->place->index;
    struct perf_tcp_flow *push = attention ? &conn->out : &conn->in;
    struct perf_tcp_flow *pull = attention ? &conn->in : &conn->out;

    push->parts = parts;
    pull->parts = parts + c->window;
    for (unsigned w = 0; w < c->window; w++) {
        perf_parts_push(c, tcp->place, tcp->buffers, a, f, w, &parts[w]);
        perf_parts_pull(c, tcp->place, tcp->buffers, a, f, w, &parts[c->window + w]);
    }
    for (int s = 0; s < c->n_stages; s++) {
        push->with_parts[s] = c->stages[s].n_push > 0 && push->parts[0].bytes > 0;
        pull->with_parts[s] = c->stages[s].n_pull > 0 && pull->parts[0].bytes > 0;
    }
}

/* FFN ranks without a slice stay connected, after the others. */
static int make_conns(struct perf_tcp *tcp, const int *fds)
{
    const struct perf_case *c = tcp->c;
    int attention = tcp->place->role == STEPAF_ATTENTION;
    int last = tcp->n_conns;

    tcp->parts = calloc((size_t)tcp->n_conns * c->window * 2, sizeof(*tcp->parts));
    tcp->polls = calloc((size_t)tcp->n_conns, sizeof(*tcp->polls));
    if (tcp->parts == NULL || tcp->polls == NULL)
        return perf_fail("out of memory");
    for (int peer = 0; peer < tcp->n_conns; peer++) {
        int active = perf_case_active(c, attention ? peer : tcp->place->index);
        struct perf_tcp_conn *conn = &tcp->conns[active ? tcp->n_used++ : --last];

        conn->fd = fds[peer];
        make_messages(tcp, peer, conn, tcp->parts + (size_t)peer * c->window * 2);
        if (getsockopt(conn->fd, IPPROTO_TCP, TCP_CONGESTION, tcp->congestion,
                       &(socklen_t){sizeof(tcp->congestion) - 1}) != 0)
            return perf_fail("plain TCP: congestion control: %s", strerror(errno));
    }
    return 0;
}

/* One block of @a ops operations. */
static int try_block(struct perf_job *job, struct perf_tcp *tcp, uint64_t ops, double *samples)
{
    struct perf_block block = {.timed_ops = ops, .samples = samples};

    return perf_job_end_block(job, NULL, perf_tcp_run(tcp, &block));
}

/* Return the shortest round trip so far, which the kernel reports since 4.6 beyond what C
 * libraries define. */
static double round_trip_us(int fd)
{
    enum { MIN_RTT_AT = 148 };
    char info[MIN_RTT_AT + sizeof(uint32_t)];
    socklen_t length = sizeof(info);
    uint32_t us;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length) != 0 || length < sizeof(info))
        return 0;
    memcpy(&us, info + MIN_RTT_AT, sizeof(us));
    return us;
}

/* Return how many ways are worth a trial: over a long line only those with the system's
 * congestion control, whose window would have to grow again after the others. */
static int count_ways(struct perf_job *job, const struct perf_tcp *tcp, int *ways_p)
{
    double longest = 0;

    for (int i = 0; i < tcp->n_conns; i++) {
        double us = round_trip_us(tcp->conns[i].fd);

        longest = us > longest ? us : longest;
    }
    if (perf_job_max(job, longest, &longest) != 0)
        return -1;
    *ways_p = longest <= NEAR_US ? PERF_TCP_WAYS : PERF_TCP_SPIN_RENO;
    return 0;
}

/* Choose the windows in a trial from the first window of each way; the same on all ranks. */
static int windows_of_trial(struct perf_job *job, struct perf_tcp *tcp, int ways, double *samples,
                            uint64_t *windows_p, int *trials_p)
{
    int64_t begin_ns = perf_now_ns();
    double us;

    for (int way = 0; way < ways; way++) {
        take_way(tcp, (enum perf_tcp_way)way);
        if (try_block(job, tcp, tcp->c->window, samples) != 0)
            return -1;
    }
    if (perf_job_max(job, (double)(perf_now_ns() - begin_ns) / 1e3 / ways, &us) != 0)
        return -1;
    *windows_p = us * TRIAL_WINDOWS < TRIAL_US ? TRIAL_WINDOWS : (uint64_t)(TRIAL_US / us);
    *windows_p += *windows_p == 0;
    *trials_p = us < LONG_US ? TRIALS : 1;
    return 0;
}

/* Try the ways in turn; pick the one with the smallest median. All ranks see the same numbers. */
static int compare_ways(struct perf_job *job, struct perf_tcp *tcp, double *samples[])
{
    double p50[PERF_TCP_WAYS];
    struct perf_stats stats;
    uint64_t ops;
    int ways, trials;

    if (count_ways(job, tcp, &ways) != 0 ||
        windows_of_trial(job, tcp, ways, samples[0], &ops, &trials) != 0)
        return -1;
    ops *= tcp->c->window;
    for (int trial = 0; trial < trials; trial++) {
        for (int way = 0; way < ways; way++) {
            take_way(tcp, (enum perf_tcp_way)way);
            if (try_block(job, tcp, ops, samples[way] + (uint64_t)trial * ops) != 0)
                return -1;
        }
    }
    for (int way = 0; way < ways; way++) {
        /* An FFN rank has no samples: its 0 is no maximum. */
        perf_stats_of(samples[way], tcp->place->role == STEPAF_ATTENTION ? (size_t)trials * ops : 0,
                      &stats);
        if (perf_job_max(job, stats.p50, &p50[way]) != 0)
            return -1;
    }
    int best = 0;
    for (int way = 1; way < ways; way++)
        best = p50[way] < p50[best] ? way : best;
    take_way(tcp, (enum perf_tcp_way)best);
    return 0;
}

static int choose_way(struct perf_job *job, struct perf_tcp *tcp)
{
    size_t most = (size_t)TRIALS * TRIAL_WINDOWS * tcp->c->window;
    double *memory = calloc(PERF_TCP_WAYS * most, sizeof(*memory));
    double *samples[PERF_TCP_WAYS];
    int rc = perf_job_agree(job, memory == NULL ? perf_fail("out of memory") : 0);

    for (int way = 0; way < PERF_TCP_WAYS && rc == 0; way++)
        samples[way] = memory + (size_t)way * most;
    if (rc == 0)
        rc = compare_ways(job, tcp, samples);
    free(memory);
    return rc;
}

int perf_tcp_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  const struct perf_buffers *buffers, struct perf_tcp *tcp_p)
{
    struct perf_tcp tcp = {.c = c,
                           .place = place,
                           .buffers = buffers,
                           .recv_each = options->recv_each,
                           .spins = place->crowded ? SPINS_CROWDED : SPINS,
                           .n_conns = place->role == STEPAF_ATTENTION ? place->ffn : place->attn};
    int *fds = calloc((size_t)tcp.n_conns, sizeof(*fds));
    int rc;

    tcp.conns = calloc((size_t)tcp.n_conns, sizeof(*tcp.conns));
    rc = fds == NULL || tcp.conns == NULL ? perf_fail("out of memory") : 0;
    rc = perf_job_agree(job, rc);
    if (rc == 0) {
        rc = perf_tcp_meet(job, place, fds);
        for (int i = 0; i < tcp.n_conns; i++)
            tcp.conns[i].fd = fds[i];
    }
    if (rc == 0)
        rc = perf_job_agree(job, make_conns(&tcp, fds));
    if (rc == 0)
        rc = choose_way(job, &tcp);
    free(fds);
    if (rc != 0) {
        perf_tcp_close(&tcp);
        return -1;
    }
    *tcp_p = tcp;
    return 0;
}

void perf_tcp_close(struct perf_tcp *tcp)
{
    for (int i = 0; i < tcp->n_conns && tcp->conns != NULL; i++) {
        if (tcp->conns[i].fd > 0)
            close(tcp->conns[i].fd);
    }
    free(tcp->conns);
    free(tcp->parts);
    free(tcp->polls);
    memset(tcp, 0, sizeof(*tcp));
}
