/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp_side.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/time.h"

enum { SETTINGS = 16 };

static const char *settings[2 * SETTINGS + 1];

void tcp_set(const char *name, const char *value)
{
    int i = 0;

    while (settings[i] && strcmp(settings[i], name) != 0)
        i += 2;
    side_must(i < 2 * SETTINGS, "too many settings");
    settings[i] = name;
    settings[i + 1] = value;
    side_settings = settings;
}

void tcp_set_defaults(void)
{
    side_ops = &stepaf_tcp_ops;
    memset(settings, 0, sizeof settings);
    tcp_set("STEPAF_NET_IF", "lo");
    tcp_set("STEPAF_TCP_STRIPE_BYTES", "65536");
    tcp_set("STEPAF_TCP_ZEROCOPY", "off");
}

void tcp_open(struct side *side, bool initiates, unsigned n_peers)
{
    side_initiates = initiates;
    side_open(side, n_peers);
}

bool tcp_until(struct side *const *sides, unsigned n, bool (*done)(void *arg), void *arg)
{
    int64_t deadline_ns = stepaf_monotonic_ns() + TCP_WAIT_MS * 1000000LL;

    while (!done(arg)) {
        unsigned happened = 0;
        if (stepaf_monotonic_ns() > deadline_ns)
            return false;
        for (unsigned i = 0; i < n; i++) {
            happened += side_progress(sides[i]);
            sides[i]->transport->ops->check_peers(sides[i]->transport);
        }
        if (!happened)
            (void)poll(NULL, 0, 1);
    }
    return true;
}

static bool are_up(void *arg)
{
    struct stepaf_tcp_link *const *links = arg;

    return links[0]->up && links[1]->up;
}

void tcp_join(struct side *attention, uint32_t peer, struct side *ffn, uint32_t slot)
{
    struct side *sides[] = {attention, ffn};

    side_must(!side_connect(ffn, slot, attention, peer, 0, NULL), "join");
    side_must(!side_connect(attention, peer, ffn, slot, 0, NULL), "join");
    struct stepaf_tcp_link *links[] = {tcp_link(attention, peer), tcp_link(ffn, slot)};
    side_must(tcp_until(sides, 2, are_up, links), "the link does not come up");
}

struct expected {
    const struct side *side;
    unsigned n_messages;
};

static bool has_messages(void *arg)
{
    const struct expected *expected = arg;

    return expected->side->n_messages >= expected->n_messages || expected->side->n_lost;
}

bool tcp_until_messages(struct side *sender, struct side *receiver, unsigned n)
{
    struct side *sides[] = {receiver, sender};

    return tcp_until(sides, sender ? 2 : 1, has_messages, &(struct expected){receiver, n}) &&
           receiver->n_messages >= n;
}

static bool is_lost(void *arg)
{
    return ((const struct side *)arg)->n_lost > 0;
}

bool tcp_until_lost(struct side *side)
{
    return tcp_until(&side, 1, is_lost, side);
}

uint8_t *tcp_map(size_t bytes)
{
    uint8_t *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    side_must(pages != MAP_FAILED, "pages");
    memset(pages, 7, bytes);
    return pages;
}

void tcp_squeeze(const struct side *one, const struct side *other)
{
    const struct side *sides[] = {one, other};
    int least = 1;      /* the kernel makes it its own least */
    int little = 65536; /* a segment on loopback: less would wait for timers */

    for (int s = 0; s < 2; s++)
        for (unsigned i = 0; i < tcp_of(sides[s])->n_connections; i++) {
            int fd = tcp_link(sides[s], 0)->connections[i].fd;
            side_must(!setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) &&
                          !setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little),
                      "squeeze");
        }
}

/* What a bare peer's secret is. */
static void secret_of(uint32_t peer, uint64_t *secret_p)
{
    secret_p[0] = peer;
    secret_p[1] = ~(uint64_t)peer;
}

void tcp_expect_bare(struct side *ffn, uint32_t peer)
{
    struct stepaf_net_addresses none = {.n = 0};
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS];
    struct stepaf_pack pack = {0};

    secret_of(peer, secret);
    stepaf_pack_bytes(&pack, secret, sizeof secret);
    stepaf_pack_u64(&pack, stepaf_net_kernel_id());
    stepaf_pack_u64(&pack, stepaf_net_network_id());
    stepaf_pack_u32(&pack, 0);
    stepaf_tcp_addresses_pack(&none, &pack);
    side_must(!side_connect(ffn, peer, NULL, 0, 0, &pack), "a bare peer");
    free(pack.data);
}

int tcp_bare_dial(const struct side *ffn)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(tcp_of(ffn)->listener.port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    side_must(fd >= 0 && !setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) &&
                  !connect(fd, (struct sockaddr *)&address, sizeof address),
              "dial");
    return fd;
}

void tcp_bare_send(int fd, const void *data, size_t bytes)
{
    side_must(send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes, "send");
}

static void prove(const struct side *ffn, const struct stepaf_claim *claim, uint8_t *proof_p)
{
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS];

    secret_of(claim->slot, secret);
    stepaf_claim_prove(secret, tcp_of(ffn)->secret, claim, proof_p);
}

struct stepaf_tcp_hello tcp_hello(const struct side *ffn, uint32_t peer, uint32_t connection)
{
    struct stepaf_tcp_hello hello = {.magic = stepaf_tcp_hello_magic,
                                     .slot = peer,
                                     .connection = connection,
                                     .nonce = {17 + peer, 4 + connection}};
    struct stepaf_claim claim = {.kind = hello.magic, .slot = peer, .part = connection};

    memcpy(claim.opener, hello.nonce, sizeof hello.nonce);
    prove(ffn, &claim, hello.proof);
    return hello;
}

struct stepaf_tcp_answer tcp_answer(const struct side *ffn, const struct stepaf_tcp_hello *hello,
                                    const struct stepaf_tcp_challenge *challenge)
{
    struct stepaf_tcp_answer answer = {.magic = stepaf_tcp_answer_magic};
    struct stepaf_claim claim = {
        .kind = answer.magic, .slot = hello->slot, .part = hello->connection};

    memcpy(claim.opener, hello->nonce, sizeof hello->nonce);
    memcpy(claim.listener, challenge->nonce, sizeof challenge->nonce);
    prove(ffn, &claim, answer.proof);
    return answer;
}

struct reading {
    int fd;
    size_t bytes;
};

static bool is_here(void *arg)
{
    const struct reading *reading = arg;
    uint8_t sink[256];

    return recv(reading->fd, sink, sizeof sink, MSG_DONTWAIT | MSG_PEEK) >= (ssize_t)reading->bytes;
}

bool tcp_bare_read(struct side *ffn, int fd, void *data_p, size_t bytes)
{
    struct reading reading = {fd, bytes};

    return tcp_until(&ffn, 1, is_here, &reading) &&
           recv(fd, data_p, bytes, MSG_DONTWAIT) == (ssize_t)bytes;
}

int tcp_bare(struct side *ffn, uint32_t peer, uint32_t connection)
{
    struct stepaf_tcp_hello hello = tcp_hello(ffn, peer, connection);
    struct stepaf_tcp_challenge challenge;
    struct stepaf_tcp_answer answer, welcome;
    int fd = tcp_bare_dial(ffn);

    tcp_bare_send(fd, &hello, sizeof hello);
    side_must(tcp_bare_read(ffn, fd, &challenge, sizeof challenge) &&
                  challenge.magic == stepaf_tcp_challenge_magic,
              "the hello is not taken");
    answer = tcp_answer(ffn, &hello, &challenge);
    tcp_bare_send(fd, &answer, sizeof answer);
    side_must(tcp_bare_read(ffn, fd, &welcome, sizeof welcome) &&
                  welcome.magic == stepaf_tcp_welcome_magic,
              "the answer is not taken");
    return fd;
}

static bool is_closed(void *arg)
{
    uint8_t sink[256];
    ssize_t got = recv(*(int *)arg, sink, sizeof sink, MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

bool tcp_bare_is_closed(struct side *ffn, int fd)
{
    return tcp_until(&ffn, 1, is_closed, &fd);
}

void tcp_reset(int fd)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    side_must(!setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), "linger");
    close(fd);
}

int tcp_open_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = 0;

    side_must(directory != NULL, "/proc/self/fd");
    while (readdir(directory))
        n++;
    closedir(directory);
    return n;
}

static uint8_t *put(uint8_t *to, const void *data, size_t bytes)
{
    if (bytes)
        memcpy(to, data, bytes);
    return to + bytes;
}

size_t tcp_frame(uint8_t *frame_p, uint32_t region, uint64_t offset, const void *data,
                 uint32_t bytes, uint32_t parts, uint32_t seq)
{
    struct stepaf_tcp_head head = {.kind = STEPAF_TCP_FRAME, .n_xfer = 1, .parts = parts};
    struct stepaf_tcp_descriptor descriptor = {region, bytes, offset};
    struct stepaf_tcp_tail tail = {.head = STEPAF_MSG_START, .seq = seq};
    uint8_t *to = put(frame_p, &head, sizeof head);

    to = put(to, &descriptor, sizeof descriptor);
    to = put(to, data, bytes);
    to = put(to, &tail, sizeof tail);
    while ((size_t)(to - frame_p) % STEPAF_TCP_ALIGN)
        *to++ = 0xee; /* whatever it is */
    return (size_t)(to - frame_p);
}
