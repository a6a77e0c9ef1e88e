/* SPDX-License-Identifier: Apache-2.0 */
/* What comes over TCP connections, greeting and frames, cut at any places.
 *
 *   even, SEED, 104 bytes, FRAMES...   one connection: 64 bytes are turned in a good hello and, where
 *                                      that is taken, 40 in a good answer; frames follow; once in one
 *                                      piece, once in pieces by the seed, to the same end
 *   odd, {CONNECTION, LENGTH, BYTES...}...     three proven connections, piece after piece
 *
 * Memory that was not offered stays as it is; a message is whole or not delivered. */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "transport/tcp/tcp_side.h"

enum {
    REGION = 100,
    BYTES = 1000,
    MANY = 3,
    HELLO = sizeof(struct stepaf_tcp_hello),
    ANSWER = sizeof(struct stepaf_tcp_answer)
};

static struct side one, many;

/* What came of a stream of bytes. */
struct outcome {
    bool whole; /* it is to come in one piece */
    bool up;
    unsigned n_lost, n_messages;
    uint64_t n_dropped;
    struct stepaf_msg messages[256];
    uint8_t memory[BYTES];
};

static void open_sides(void)
{
    if (one.transport)
        return;
    tcp_set_defaults();
    tcp_open(&one, false, 1);
    (void)side_memory(&one, BYTES, false);
    tcp_set("STEPAF_TCP_CONNECTIONS", "3");
    tcp_open(&many, false, 1);
    (void)side_memory(&many, BYTES, false);
    FUZZ_CHECK(one.regions[0].id == REGION && tcp_of(&many)->n_connections == MANY);
}

static void begin(struct side *side)
{
    side->n_messages = 0;
    side->n_lost = 0;
    side->up.dropped_malformed = 0;
    memset(side->regions[0].base, 0x5a, BYTES);
    tcp_expect_bare(side, 0);
}

static void end(struct side *side)
{
    if (side->n_lost)
        for (unsigned i = 0; i < tcp_of(side)->n_connections; i++)
            FUZZ_CHECK(tcp_link(side, 0)->connections[i].fd < 0);
    FUZZ_CHECK(side->n_lost <= 1 && tcp_of(side)->count.tails == 0);
    for (unsigned i = 0; i < side->n_messages; i++)
        FUZZ_CHECK(side->messages[i].type < STEPAF_MSG_TRANSPORT &&
                   side->messages[i].n_words <= STEPAF_MSG_WORDS);
    stepaf_tcp_unlisten(tcp_of(side));
    side->transport->ops->disconnect(side->links[0]);
    FUZZ_CHECK(tcp_of(side)->count.links == 0 && tcp_of(side)->count.opening == 0);
}

/* A stranger at the other end of what is returned. */
static int meet(struct side *side)
{
    struct stepaf_tcp_stranger *stranger = &tcp_of(side)->strangers[0];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = stranger};
    int fds[2];

    FUZZ_CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    *stranger = (struct stepaf_tcp_stranger){
        .watched = STEPAF_TCP_STRANGER, .fd = fds[0], .until = UINT64_MAX / 2};
    FUZZ_CHECK(!epoll_ctl(tcp_of(side)->epoll_fd, EPOLL_CTL_ADD, fds[0], &event));
    return fds[1];
}

static void tell(struct side *side, int fd, const uint8_t *data, size_t bytes)
{
    /* It may have closed its end already. */
    if (bytes && send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)bytes)
        return;
    while (side_progress(side)) {
    }
}

/* The answer to the challenge that has come for @a hello; false if none has. */
static bool answer_to(struct side *side, int fd, const struct stepaf_tcp_hello *hello,
                      struct stepaf_tcp_answer *answer_p)
{
    struct stepaf_tcp_challenge challenge;

    if (recv(fd, &challenge, sizeof challenge, MSG_DONTWAIT) != (ssize_t)sizeof challenge)
        return false;
    *answer_p = tcp_answer(side, hello, &challenge);
    return true;
}

/* A greeting turned by @a turns, then the frames; in pieces if there is a seed. */
static void run_stream(const uint8_t *turns, const uint8_t *frames, size_t bytes, uint32_t seed,
                       struct outcome *outcome_p)
{
    struct stepaf_tcp_hello hello = tcp_hello(&one, 0, 0);
    struct stepaf_tcp_answer answer = {0};
    uint8_t *stream = malloc(HELLO + ANSWER + bytes);
    size_t total = HELLO;
    bool answered = false;

    FUZZ_CHECK(stream);
    begin(&one);
    int fd = meet(&one);
    for (size_t i = 0; i < HELLO; i++)
        stream[i] = turns[i] ^ ((const uint8_t *)&hello)[i];
    for (size_t at = 0, piece; at < total; at += piece) {
        seed = seed * 1664525u + 1013904223u;
        piece = seed & 0x10000 ? 1 + (seed >> 24) % 7 : 1 + (seed >> 20) % 200;
        piece = outcome_p->whole || piece > total - at ? total - at : piece;
        tell(&one, fd, stream + at, piece);
        if (answered || at + piece < HELLO || !answer_to(&one, fd, &hello, &answer))
            continue;
        answered = true;
        for (size_t i = 0; i < ANSWER; i++)
            stream[HELLO + i] = turns[HELLO + i] ^ ((const uint8_t *)&answer)[i];
        if (bytes)
            memcpy(stream + HELLO + ANSWER, frames, bytes);
        total = HELLO + ANSWER + bytes;
    }
    outcome_p->up = tcp_link(&one, 0)->up || one.n_lost;
    outcome_p->n_lost = one.n_lost;
    outcome_p->n_messages = one.n_messages;
    outcome_p->n_dropped = one.up.dropped_malformed;
    FUZZ_CHECK(one.n_messages <= sizeof outcome_p->messages / sizeof *outcome_p->messages);
    memcpy(outcome_p->messages, one.messages, one.n_messages * sizeof one.messages[0]);
    memcpy(outcome_p->memory, one.regions[0].base, BYTES);
    close(fd);
    while (one.n_lost == 0 && outcome_p->up)
        side_progress(&one);
    end(&one);
    free(stream);
}

static void fuzz_stream(const uint8_t *data, size_t bytes)
{
    static struct outcome whole, pieces;
    bool good = true;

    if (bytes < 1 + HELLO + ANSWER)
        return;
    for (size_t i = 0; i < HELLO + ANSWER; i++)
        good = good && !data[1 + i];
    const uint8_t *frames = data + 1 + HELLO + ANSWER;
    whole.whole = true;
    run_stream(data + 1, frames, bytes - 1 - HELLO - ANSWER, 0, &whole);
    run_stream(data + 1, frames, bytes - 1 - HELLO - ANSWER, data[0], &pieces);
    FUZZ_CHECK(whole.up == good && pieces.up == good);
    FUZZ_CHECK(whole.n_lost == pieces.n_lost && whole.n_messages == pieces.n_messages &&
               whole.n_dropped == pieces.n_dropped && !memcmp(whole.memory, pieces.memory, BYTES));
    for (unsigned i = 0; i < whole.n_messages; i++) {
        const struct stepaf_msg *msg = &whole.messages[i], *same = &pieces.messages[i];
        FUZZ_CHECK(!memcmp(msg, same, offsetof(struct stepaf_msg, word)) &&
                   !memcmp(msg->word, same->word, msg->n_words * sizeof msg->word[0]));
    }
}

static void fuzz_pieces(const uint8_t *data, size_t bytes)
{
    int fds[MANY];

    begin(&many);
    for (uint32_t i = 0; i < MANY; i++) {
        struct stepaf_tcp_hello hello = tcp_hello(&many, 0, i);
        fds[i] = meet(&many);
        struct stepaf_tcp_answer answer;
        tell(&many, fds[i], (const uint8_t *)&hello, sizeof hello);
        FUZZ_CHECK(answer_to(&many, fds[i], &hello, &answer));
        tell(&many, fds[i], (const uint8_t *)&answer, sizeof answer);
    }
    FUZZ_CHECK(tcp_link(&many, 0)->up);
    for (size_t at = 0; bytes - at >= 2;) {
        size_t piece = data[at + 1] < bytes - at - 2 ? data[at + 1] : bytes - at - 2;
        tell(&many, fds[data[at] % MANY], data + at + 2, piece);
        at += 2 + piece;
    }
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    end(&many);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    open_sides();
    if (bytes && data[0] % 2)
        fuzz_pieces(data + 1, bytes - 1);
    else if (bytes)
        fuzz_stream(data + 1, bytes - 1);
    return 0;
}
