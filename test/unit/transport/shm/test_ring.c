/* SPDX-License-Identifier: Apache-2.0 */
/* The rings between two threads, and the credits that go through them: no byte of a message, nor of
 * a buffer that a message gives away, is read before it is written or written while it is read. The
 * memory has one address at both ends, as it has not between processes: so ThreadSanitizer sees
 * each access, and judges by the order that the code asks for, whatever the processor does. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "transport/shm/shm.h"
#include "unit.h"

enum { SLOTS = 4, DEPTH = 2, BYTES = 200 };

/* An end of a link, and whose messages it takes. */
struct end {
    struct stepaf_transport transport;
    struct stepaf_upcalls up;
    struct stepaf_shm_link link;
    uint64_t n; /* operations taken, or answers */
    uint64_t notes;
    uint64_t wrong; /* bytes */
};

static struct stepaf_shm_slot inbox[2][SLOTS];
static struct stepaf_shm_words words[2];
static uint8_t buffer[DEPTH][BYTES]; /* where tensors land: of who has the credit */
static uint8_t answer[DEPTH][BYTES];

/* What is in byte i of a tensor that goes there, or back. */
static uint8_t byte_of(uint64_t n, size_t i, bool back)
{
    return (uint8_t)(n * 31 + i * 7 + (back ? 101 : 0));
}

static void fill(uint8_t *bytes, uint64_t n, bool back)
{
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = byte_of(n, i, back);
}

static uint64_t count_wrong(const uint8_t *bytes, uint64_t n, bool back)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < BYTES; i++)
        wrong += bytes[i] != byte_of(n, i, back);
    return wrong;
}

/* Beside each push go notes, which nobody answers: only the ring's own words say when there is room
 * again. */
enum { OPERATION = 1, NOTE = 2, NOTES = 5 };

static void send(struct end *end, uint8_t type, uint64_t n)
{
    struct stepaf_msg msg = {
        .type = type, .slot = (uint8_t)(n % DEPTH), .seq = (uint32_t)n, .n_words = 4};
    for (unsigned i = 0; i < 4; i++)
        msg.word[i] = (uint32_t)n * type + i;
    while (!stepaf_shm_slot_free(&end->link)) /* there are fewer slots than messages are sent */
        sched_yield();
    stepaf_shm_slot_write(&end->link, &msg);
}

/* It is the next one of its kind, and has its words. */
static void look(struct end *end, const struct stepaf_msg *msg)
{
    uint64_t n = msg->type == NOTE ? end->notes++ : end->n;
    end->wrong += msg->seq != (uint32_t)n || msg->slot != n % DEPTH;
    for (unsigned i = 0; i < 4; i++)
        end->wrong += msg->word[i] != (uint32_t)n * msg->type + i;
}

/* At the FFN rank: answer, and give the buffer back by the same message. */
static void take_push(struct stepaf_upcalls *up, struct stepaf_link *link,
                      const struct stepaf_msg *msg)
{
    struct end *end = (struct end *)link->transport;
    (void)up;
    look(end, msg);
    if (msg->type == NOTE)
        return;
    end->wrong += count_wrong(buffer[end->n % DEPTH], end->n, false);
    fill(answer[end->n % DEPTH], end->n, true);
    memset(buffer[end->n % DEPTH], 0, BYTES); /* the buffer is this rank's to write */
    send(end, OPERATION, end->n++);
}

static void take_answer(struct stepaf_upcalls *up, struct stepaf_link *link,
                        const struct stepaf_msg *msg)
{
    struct end *end = (struct end *)link->transport;
    (void)up;
    look(end, msg);
    end->wrong += count_wrong(answer[end->n % DEPTH], end->n, true);
    end->n++;
}

static void set_up(struct end *end, int mine,
                   void (*take)(struct stepaf_upcalls *, struct stepaf_link *,
                                const struct stepaf_msg *))
{
    *end = (struct end){.up = {.deliver = take},
                        .link = {.rx = inbox[mine],
                                 .rx_words = &words[mine],
                                 .tx = inbox[!mine],
                                 .tx_words = &words[!mine],
                                 .mask = SLOTS - 1}};
    end->transport.up = &end->up;
    end->link.base.transport = &end->transport;
}

static uint64_t n_operations = 200000;

static void *ffn_rank(void *arg)
{
    struct end *end = arg;
    while (end->n < n_operations || end->notes < n_operations * NOTES)
        if (!stepaf_shm_drain(&end->link))
            sched_yield();
    return NULL;
}

static void nothing_is_read_too_early_or_written_too_soon(void)
{
    static struct end attention, ffn;
    uint64_t started = 0;
    pthread_t thread;

    if (getenv("TEST_LIGHT"))
        n_operations = 20000;
    set_up(&attention, 0, take_answer);
    set_up(&ffn, 1, take_push);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, ffn_rank, &ffn), 0);
    while (attention.n < n_operations) {
        bool idle = !stepaf_shm_drain(&attention.link);
        while (started < n_operations && started < attention.n + DEPTH) {
            fill(buffer[started % DEPTH], started, false);
            send(&attention, OPERATION, started);
            for (uint64_t i = 0; i < NOTES; i++)
                send(&attention, NOTE, started * NOTES + i);
            started++;
            idle = false;
        }
        if (idle)
            sched_yield();
    }
    pthread_join(thread, NULL);
    printf("%llu operations, %llu messages, %llu and %llu wrong bytes ",
           (unsigned long long)n_operations, (unsigned long long)n_operations * (2 + NOTES),
           (unsigned long long)attention.wrong, (unsigned long long)ffn.wrong);
    CU_ASSERT_EQUAL(attention.wrong, 0);
    CU_ASSERT_EQUAL(ffn.wrong, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing is read too early or written too soon",
         nothing_is_read_too_early_or_written_too_soon},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
