/* SPDX-License-Identifier: Apache-2.0 */
/* TCP between hosts, tried from each to others as the library would: the same ports, the same
 * addresses in the same order. The answering host proves its identity with a number that only it
 * has announced. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/status.h>

#include "join.h"
#include "transport/tcp/address.h"

enum {
    ADDRESSES = 8, /* addresses tried per host */
    EACH_MS = 2000,
    PATIENCE_MS = 3000, /* with a stranger */
    TARGETS = 16        /* hosts that a host tries, where there are more */
};

struct doctor_connect {
    int fd; /* the listening socket; -1: none */
    uint64_t number;
    int is_over; /* atomic: the thread must end */
    int has_thread;
    pthread_t thread;
    char why[96]; /* why it cannot listen */
    struct stepaf_net_addresses own;
};

/* Another host, as it has announced itself. */
struct target {
    const struct doctor_connect *connect;
    int host;
    uint16_t port;
    uint64_t number;
    uint64_t network;
    struct stepaf_net_addresses addresses;
    int has_thread;
    pthread_t thread;
    char result[DOCTOR_TEXT]; /* "" if the first address works */
    char by[STEPAF_TCP_ADDRESS_TEXT];
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Send or receive all of 8 bytes before the deadline. */
static int move_number(int fd, uint64_t *number, int is_out, int64_t end_ms)
{
    char *bytes = (char *)number;
    size_t done = 0;

    while (done < sizeof *number) {
        struct pollfd poll_fd = {fd, is_out ? POLLOUT : POLLIN, 0};
        int64_t left = end_ms - now_ms();
        if (left <= 0 || poll(&poll_fd, 1, (int)left) <= 0)
            return 0;
        ssize_t n = is_out ? send(fd, bytes + done, sizeof *number - done, MSG_NOSIGNAL)
                           : recv(fd, bytes + done, sizeof *number - done, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return 0;
        done += n > 0 ? (size_t)n : 0;
    }
    return 1;
}

/* Serve connections one after the other: answer each with the number, whoever connects. */
static void *answer(void *arg)
{
    struct doctor_connect *connect = arg;

    while (!__atomic_load_n(&connect->is_over, __ATOMIC_ACQUIRE)) {
        struct pollfd poll_fd = {connect->fd, POLLIN, 0};
        uint64_t number = connect->number;
        if (poll(&poll_fd, 1, 50) <= 0)
            continue;
        int fd = accept4(connect->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            continue;
        move_number(fd, &number, 1, now_ms() + PATIENCE_MS);
        close(fd);
    }
    return NULL;
}

static int listen_at(struct doctor_connect *connect, int family, uint16_t port)
{
    struct sockaddr_storage storage;
    struct stepaf_net_address any = {.family = (uint8_t)family};
    socklen_t length = stepaf_tcp_address_socket(&any, port, &storage);
    int no = 0, yes = 1;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(fd, (struct sockaddr *)&storage, length) == 0 && listen(fd, 128) == 0) {
        connect->fd = fd;
        return 1;
    }
    close(fd);
    return 0;
}

static uint16_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } address = {.any = {0}};
    socklen_t length = sizeof address;

    if (getsockname(fd, &address.any, &length) != 0)
        return 0;
    return ntohs(address.any.sa_family == AF_INET ? address.in.sin_port : address.in6.sin6_port);
}

/* Listen where the settings say. Returns false with a sentence on failure. */
static int start_listening(struct doctor_connect *connect)
{
    struct stepaf_env env;
    uint16_t first = 0, last = 0;

    if (!doctor_load_settings(&env)) {
        snprintf(connect->why, sizeof connect->why, "a setting has a bad value");
        return 0;
    }
    (void)stepaf_env_ports(env.net_ports, &first, &last);
    stepaf_status_t status = stepaf_net_addresses_own(env.net_if, &connect->own);
    stepaf_env_free(&env);
    if (status != STEPAF_OK) {
        snprintf(connect->why, sizeof connect->why, "%.90s", stepaf_last_error()->text);
        return 0;
    }
    for (unsigned port = first; port <= last; port++)
        if (listen_at(connect, AF_INET6, (uint16_t)port) ||
            listen_at(connect, AF_INET, (uint16_t)port))
            return 1;
    snprintf(connect->why, sizeof connect->why, "cannot listen: %s", strerror(errno));
    return 0;
}

struct doctor_connect *doctor_connect_begin(char *text, size_t capacity)
{
    struct doctor_connect *connect = calloc(1, sizeof *connect);
    size_t used;

    *text = '\0';
    if (!connect)
        return NULL;
    connect->fd = -1;
    if (getrandom(&connect->number, sizeof connect->number, 0) != (ssize_t)sizeof connect->number)
        connect->number = (uint64_t)now_ms();
    if (!start_listening(connect)) {
        snprintf(text, capacity, "0 0 0 %s", connect->why);
        return connect;
    }
    connect->has_thread = pthread_create(&connect->thread, NULL, answer, connect) == 0;
    used = (size_t)snprintf(text, capacity, "%u %" PRIx64 " %" PRIx64, port_of(connect->fd),
                            connect->number, stepaf_net_network_id());
    for (unsigned i = 0; i < connect->own.n && i < ADDRESSES; i++) {
        char address[INET6_ADDRSTRLEN];
        if (inet_ntop(connect->own.list[i].family, connect->own.list[i].bytes, address,
                      sizeof address) &&
            used + strlen(address) + 2 < capacity)
            used += (size_t)snprintf(text + used, capacity - used, " %s", address);
    }
    return connect;
}

/* Read another host's announcement; returns false if it does not listen. */
static int read_target(const char *text, struct target *target)
{
    char copy[1024];
    unsigned port;
    int n = 0;

    if (strlen(text) >= sizeof copy ||
        sscanf(text, "%5u %16" SCNx64 " %16" SCNx64 "%n", &port, &target->number, &target->network,
               &n) != 3 ||
        port == 0 || port > 65535)
        return 0;
    target->port = (uint16_t)port;
    strcpy(copy, text + n);
    for (char *word, *rest = copy; (word = strsep(&rest, " "));) {
        struct stepaf_net_address *address = &target->addresses.list[target->addresses.n];
        if (target->addresses.n == ADDRESSES)
            break;
        *address = (struct stepaf_net_address){.family = AF_INET};
        if (inet_pton(AF_INET, word, address->bytes) == 1) {
            address->loopback = address->bytes[0] == 127;
            target->addresses.n++;
            continue;
        }
        address->family = AF_INET6;
        if (inet_pton(AF_INET6, word, address->bytes) == 1) {
            address->loopback = memcmp(address->bytes, &in6addr_loopback, 16) == 0;
            target->addresses.n++;
        }
    }
    return 1;
}

/* Connect, and check the number of the intended host. Returns NULL, or the reason of the
 * failure. */
static const char *try_address(const struct target *target, const struct stepaf_net_address *at)
{
    struct sockaddr_storage storage;
    socklen_t length = stepaf_tcp_address_socket(at, target->port, &storage);
    int64_t end_ms = now_ms() + EACH_MS;
    uint64_t number = 0;
    int error = 0;
    socklen_t error_bytes = sizeof error;
    const char *why = NULL;
    int fd = socket(at->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return "no socket of this family";
    if (connect(fd, (struct sockaddr *)&storage, length) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        struct pollfd poll_fd = {fd, POLLOUT, 0};
        if (poll(&poll_fd, 1, EACH_MS) <= 0)
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0)
            error = errno;
    }
    if (error == ETIMEDOUT)
        why = "no answer, as where a firewall drops packets";
    else if (error == ECONNREFUSED)
        why = "refused, as by a firewall that rejects connections";
    else if (error == EHOSTUNREACH || error == ENETUNREACH)
        why = "no route to it, or a firewall reports so";
    else if (error == EACCES || error == EPERM)
        why = "this host's own firewall forbids it";
    else if (error)
        why = "it fails";
    else if (!move_number(fd, &number, 0, end_ms))
        why = "connected, but no data arrives";
    else if (number != target->number)
        why = "another program answers there";
    close(fd);
    return why;
}

static void *try_target(void *arg)
{
    struct target *target = arg;
    size_t used = 0;

    stepaf_tcp_addresses_order(
        &target->connect->own,
        stepaf_tcp_network_of(stepaf_net_network_id(), target->network, false), &target->addresses);
    for (unsigned i = 0; i < target->addresses.n; i++) {
        char text[STEPAF_TCP_ADDRESS_TEXT];
        stepaf_tcp_address_text(&target->addresses.list[i], target->port, text);
        const char *why = try_address(target, &target->addresses.list[i]);
        if (!why) {
            snprintf(target->by, sizeof target->by, "%s", text);
            break;
        }
        if (used < sizeof target->result)
            used += (size_t)snprintf(target->result + used, sizeof target->result - used,
                                     "%s%s: %s", used ? "; " : "", text, why);
    }
    if (!target->addresses.n)
        snprintf(target->result, sizeof target->result, "it has no usable address");
    return NULL;
}

/* Whether @a host tries the other host: all, or among many those at distances of powers of two,
 * which try each other. */
static int is_share(int host, int other, int n_hosts)
{
    int distance = (other - host + n_hosts) % n_hosts, back = n_hosts - distance;

    return other != host &&
           (n_hosts <= TARGETS + 1 || (distance & (distance - 1)) == 0 || (back & (back - 1)) == 0);
}

/* Write a line for each host: "HOST BY RESULT", with "-" where it was not reached. */
static char *tell_results(const struct target *targets, int n)
{
    size_t capacity = (size_t)n * (sizeof targets->result + sizeof targets->by + 24) + 128;
    char *text = malloc(capacity);
    size_t used = 0;

    if (!text)
        return NULL;
    *text = '\0';
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%d %s %s\n", targets[i].host,
                                 *targets[i].by ? targets[i].by : "-", targets[i].result);
    return text;
}

char *doctor_connect_run(struct doctor_connect *connect, int host, int n_hosts,
                         const char *const *texts)
{
    struct target *targets = calloc((size_t)n_hosts, sizeof *targets);
    int n = 0;
    char *text;

    if (!targets)
        return NULL;
    for (int i = 0; i < n_hosts; i++) {
        struct target *target = &targets[n];
        if (!is_share(host, i, n_hosts))
            continue;
        n++;
        target->connect = connect;
        target->host = i;
        if (!read_target(texts[i], target))
            snprintf(target->result, sizeof target->result, "it does not listen: %.200s",
                     strncmp(texts[i], "0 0 0 ", 6) == 0 ? texts[i] + 6 : "no report from it");
        else
            target->has_thread = pthread_create(&target->thread, NULL, try_target, target) == 0;
    }
    for (int i = 0; i < n; i++)
        if (targets[i].has_thread)
            pthread_join(targets[i].thread, NULL);
    text = tell_results(targets, n);
    free(targets);
    return text;
}

void doctor_connect_end(struct doctor_connect *connect)
{
    if (!connect)
        return;
    __atomic_store_n(&connect->is_over, 1, __ATOMIC_RELEASE);
    if (connect->has_thread)
        pthread_join(connect->thread, NULL);
    if (connect->fd >= 0)
        close(connect->fd);
    free(connect);
}

/* Report one line of a result. Returns whether the host was reached at the first address. */
static int say_result(struct doctor *doctor, const char *line, const char *from, int n_hosts,
                      const char *const *hosts)
{
    char by[STEPAF_TCP_ADDRESS_TEXT];
    int host, n = 0;

    _Static_assert(STEPAF_TCP_ADDRESS_TEXT >= 64, "the scan below");
    if (sscanf(line, "%5d %63s %n", &host, by, &n) != 2 || host < 0 || host >= n_hosts || n == 0)
        return 0;
    const char *result = line + n;
    if (strcmp(by, "-") == 0) {
        doctor_say(doctor, DOCTOR_FAILED, "%s does not reach %s: %s", from, hosts[host], result);
        return 0;
    }
    if (!*result)
        return 1;
    doctor_say(doctor, DOCTOR_WARNED, "%s reaches %s by %s, but before: %s", from, hosts[host], by,
               result);
    doctor_mend(
        doctor,
        "export STEPAF_NET_IF=INTERFACE   # an interface by which all hosts reach each other");
    return 0;
}

void doctor_connect_say(struct doctor *doctor, const char *const *results, int n_hosts,
                        const char *const *hosts)
{
    size_t before = doctor->n;
    int good = 0, tried = 0;

    for (int i = 0; i < n_hosts; i++) {
        char *copy = strdup(results[i]);
        for (char *line, *rest = copy; copy && (line = strsep(&rest, "\n")) && *line;) {
            tried++;
            good += say_result(doctor, line, hosts[i], n_hosts, hosts);
        }
        free(copy);
    }
    if (good && good == tried)
        doctor_say(doctor, DOCTOR_PASSED,
                   "%d of %d connections have reached the host meant, both ways", good, tried);
    else if (doctor->n == before)
        doctor_say(doctor, DOCTOR_UNKNOWN, "it was not tried");
}
