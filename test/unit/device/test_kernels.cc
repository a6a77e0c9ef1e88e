/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels themselves, on a machine that is made up:
 * kernels_machine/device/cuda/kernels_machine.cuh. Tensors go from one side's kernel args to the
 * other's, by every way, while senders and receivers take turns at random. */
#include "kernels_machine/any.h"

static void check_any(const char *what, const std::vector<Tensor> &there,
                      const std::vector<Tensor> &back, uint32_t batches)
{
    std::vector<std::unique_ptr<Exchange>> pushes, pulls;
    alignas(16) stepaf_any_entry ring[RING] = {};
    stepaf_any_next next[PEERS + 1] = {};
    stepaf_kernel_args sent[PEERS];
    bool pending[PEERS] = {};
    uint32_t origin[2];

    for (int p = 0; p < PEERS; p++) {
        pushes.emplace_back(new Exchange(there));
        pulls.emplace_back(new Exchange(back));
    }
    std::unique_ptr<Any> in = make_any(pushes, 1, false, ring, next, origin);
    std::unique_ptr<Any> out = make_any(pulls, 1, true, ring, next, origin);
    for (uint32_t n = 1; n <= batches; n++) {
        uint32_t one = pick(PEERS);
        for (uint32_t p = 0; p < PEERS; p++)
            if (!pending[p] && (p == one || pick(2))) {
                sent[p] = pushes[p]->fill(n % 3 != 0);
                pushes[p]->begin_send(sent[p]);
                pending[p] = true;
            }
        begin_receive(
            in->gate_threads, [&in] { stepaf_gate_any(in->args); }, in->n_blocks,
            [&in] { unpack_any(*in); });
        run();
        uint32_t peer = origin[0];
        if (peer >= PEERS || !pending[peer] || in->failed[0])
            fail("a batch that nobody has sent");
        pushes[peer]->verify(sent[peer], &in->landed[peer * there.size()]);
        pending[peer] = false;
        stepaf_kernel_args answer = pulls[peer]->fill(false);
        for (unsigned b = 0; b < out->n_blocks; b++)
            launch(out->n_blocks, b, STEPAF_WARP, [&out] { send_any(*out); });
        pulls[peer]->begin_receive();
        run();
        pulls[peer]->verify(answer, pulls[peer]->receiver->landed.data());
    }
    printf("ok: %s\n", what);
}

static void check(const char *what, const std::vector<Tensor> &tensors, uint32_t operations)
{
    Exchange exchange(tensors);

    for (uint32_t n = 1; n <= operations; n++)
        exchange.operate(n % 3 != 0);
    printf("ok: %s\n", what);
}

/* Tensors without blocks are of peers that are gone: nothing comes, nothing is waited for, and what
 * there is goes on. */
static void check_gaps(const char *what, const std::vector<Tensor> &tensors, uint32_t operations)
{
    Exchange exchange(tensors);
    stepaf_kernel_args &args = exchange.receiver->args;

    for (size_t i = 0; i < tensors.size(); i++)
        if (!tensors[i].blocks) {
            uint8_t *data = args.tensors[i].data;
            args.tensors[i] = {};
            args.tensors[i].data = data;
        }
    stepaf_kernel_tensors_fill(&args);
    for (uint32_t n = 1; n <= operations; n++)
        exchange.operate(n % 3 != 0);
    printf("ok: %s\n", what);
}

static void expect_fault(const char *what, const End &in, uint32_t fault)
{
    if (!in.failed[0] || in.watch.fault != fault || in.watch.peer != 3)
        fail(what);
}

static void set_limit(End &in)
{
    in.args.timeout_ns = 100000;
    for (uint32_t i = 0; i < in.args.n_tensors; i++)
        in.args.tensors[i].peer = 3;
}

/* Nobody sends, or one piece does not come: the wait ends, and says whom it was for. */
static void check_ends(const std::vector<Tensor> &tensors)
{
    for (int aborted = 0; aborted < 2; aborted++) {
        Exchange exchange(tensors);
        End &in = *exchange.receiver;
        set_limit(in);
        if (aborted) {
            in.args.timeout_ns = 0;
            in.watch.abort = 1;
        }
        launch(1, 0, in.gate_threads, [&in] { stepaf_gate(in.args); });
        run();
        expect_fault("a wait without an end", in,
                     aborted ? STEPAF_FAULT_ABORTED : STEPAF_FAULT_TIMEOUT);
    }
    printf("ok: a wait that is in vain\n");
}

static void check_missing_piece(uint32_t bytes)
{
    Exchange exchange({{bytes, bytes, STEPAF_PROTO_LL, 3, false, 0}});
    End &in = *exchange.receiver;
    stepaf_kernel_args args = exchange.fill(false);

    set_limit(in);
    exchange.begin_send(args);
    run();
    memset(in.args.tensors[0].body + 5 * STEPAF_GROUP_BYTES + 40 * 16, 0, 16);
    exchange.begin_receive();
    run();
    expect_fault("a piece that is not there", in, STEPAF_FAULT_TIMEOUT);
    printf("ok: a piece that does not come\n");
}

static void check_missing_chunk()
{
    Exchange exchange({{9000, 9000, STEPAF_PROTO_CHUNKS, 3, false, 0}});
    End &in = *exchange.receiver;
    stepaf_kernel_args args = exchange.fill(false);

    set_limit(in);
    exchange.begin_send(args);
    run();
    memset(in.args.tensors[0].body + 5 * (STEPAF_CHUNK_LEAST + STEPAF_CHUNK_TELLS) +
               STEPAF_CHUNK_LEAST,
           0, 16);
    exchange.begin_receive();
    run();
    expect_fault("a chunk that is not there", in, STEPAF_FAULT_TIMEOUT);
    printf("ok: a chunk that does not come\n");
}

/* What the host has not brought yet is waited for, though the head is there. */
static void check_missing_part()
{
    Exchange exchange({{9000, 9000, STEPAF_PROTO_PARTS, 3, false, 0}});
    End &in = *exchange.receiver;
    stepaf_kernel_args args = exchange.fill(false);

    set_limit(in);
    exchange.begin_send(args);
    run();
    memset(in.args.tensors[0].head + STEPAF_HEAD_BYTES + 5 * STEPAF_PART_TELLS, 0, 16);
    exchange.begin_receive();
    run();
    expect_fault("a part that is not there", in, STEPAF_FAULT_TIMEOUT);
    printf("ok: a part that does not come\n");
}

static bool are_all(const std::vector<uint8_t> &bytes, uint8_t value)
{
    for (uint8_t byte : bytes)
        if (byte != value)
            return false;
    return true;
}

/* A plan that has failed sends nothing, and takes nothing. */
static void check_failed()
{
    Exchange exchange({{84, 84, STEPAF_PROTO_INLINE, 1, false, 0},
                       {30000, 30000, STEPAF_PROTO_LL, 3, false, 0},
                       {3000, 3000, STEPAF_PROTO_CHUNKS, 2, false, 0},
                       {3000, 3000, STEPAF_PROTO_BCOPY, 2, false, 0}});
    End &out = *exchange.sender, &in = *exchange.receiver;
    stepaf_kernel_args args = exchange.fill(false);

    out.failed[0] = 1;
    exchange.begin_send(args);
    run();
    for (const auto &mailbox : exchange.mailboxes)
        if (!are_all(mailbox, 0))
            fail("a plan that has failed sends");
    out.failed[0] = 0;
    exchange.begin_send(args);
    run();
    in.failed[0] = 1;
    in.landed.assign(in.landed.size(), 3000);
    exchange.begin_receive();
    run();
    for (const auto &place : exchange.places)
        if (!are_all(place, POISON))
            fail("a plan that has failed receives");
    printf("ok: a plan that has failed\n");
}

static const uint64_t *head_words(Exchange &exchange, size_t i, size_t at)
{
    return reinterpret_cast<const uint64_t *>(aligned(exchange.mailboxes[i]) + at);
}

/* What a network card brings: the head alone is written, and says where the source is. */
static void check_sources()
{
    Exchange exchange({{5000, 5000, STEPAF_PROTO_RDMA, 1, false, 3},
                       {30, 20, STEPAF_PROTO_RDMA, 1, false, 0},
                       {84, 84, STEPAF_PROTO_INLINE, 1, false, 0}});
    End &out = *exchange.sender;

    out.failed[0] = 1;
    for (uint32_t n = 0; n < 3; n++) {
        stepaf_kernel_args args = exchange.fill(false);
        uint64_t stamp = stepaf_stamp(EPOCH, n + 1); /* what has failed counts, too */
        args.tensors[0].guarded = 1;
        args.tensors[1].guarded = 0;
        exchange.begin_send(args);
        run();
        for (size_t i = 0; i < 2; i++) {
            const uint64_t *tells = head_words(exchange, i, STEPAF_HEAD_TELLS);
            const uint64_t *source = head_words(exchange, i, STEPAF_HEAD_SOURCE);
            uint64_t at = reinterpret_cast<uint64_t>(args.tensors[i].data);
            if (n == 0 && (tells[1] || source[1]))
                fail("a plan that has failed tells of a source");
            if (n > 0 && (tells[0] != args.tensors[i].bytes || tells[1] != stamp ||
                          source[0] != (i ? at : at | STEPAF_SOURCE_GUARDED) || source[1] != stamp))
                fail("a head that does not say where the source is");
            for (size_t at_byte = STEPAF_HEAD_BYTES; at_byte < exchange.tensors[i].room; at_byte++)
                if (aligned(exchange.mailboxes[i])[at_byte])
                    fail("the card's work is done by a kernel");
        }
        out.failed[0] = 0;
    }
    printf("ok: sources that a card reads\n");
}

int main()
{
    const stepaf_proto HEAD = STEPAF_PROTO_INLINE, PIECES = STEPAF_PROTO_LL,
                       PLACE = STEPAF_PROTO_ZCOPY, MAILBOX = STEPAF_PROTO_BCOPY,
                       CHUNKS = STEPAF_PROTO_CHUNKS, PARTS = STEPAF_PROTO_PARTS;

    check("tensors in heads",
          {{84, 84, HEAD, 1, false, 0},
           {8, 8, HEAD, 1, false, 0},
           {1, 1, HEAD, 1, false, 0},
           {83, 60, HEAD, 1, false, 0},
           {12, 12, HEAD, 1, false, 0}},
          300);
    check("in heads, anywhere", {{84, 84, HEAD, 1, false, 3}, {13, 13, HEAD, 1, false, 4}}, 300);
    check("pieces that the gate takes",
          {{4096, 4096, PIECES, 1, false, 0},
           {1008, 1008, PIECES, 1, false, 0},
           {8, 8, HEAD, 1, false, 0},
           {1009, 1009, PIECES, 1, false, 0}},
          100);
    check("pieces",
          {{30000, 30000, PIECES, 3, false, 0},
           {60, 60, HEAD, 1, false, 0},
           {9000, 8000, PIECES, 11, false, 0}},
          60);
    check("pieces, anywhere",
          {{20001, 20001, PIECES, 2, false, 5}, {1007, 1007, PIECES, 1, false, 1}}, 40);
    check("places and mailboxes",
          {{5000, 5000, PLACE, 3, false, 0},
           {3000, 3000, MAILBOX, 2, false, 0},
           {777, 777, PLACE, 1, false, 0}},
          100);
    check("chunks",
          {{30000, 30000, CHUNKS, 7, false, 0},
           {60, 60, HEAD, 1, false, 0},
           {85, 85, CHUNKS, 1, false, 0},
           {5000, 4096, CHUNKS, 2, false, 0}},
          60);
    check("chunks, anywhere",
          {{20001, 20001, CHUNKS, 3, false, 5}, {1025, 1025, CHUNKS, 2, false, 1}}, 60);
    check("larger chunks", {{300000, 262145, CHUNKS, 40, false, 0}}, 6);
    check("parts",
          {{30000, 30000, PARTS, 7, false, 0},
           {1024, 1024, PARTS, 1, false, 0},
           {85, 85, PARTS, 1, false, 0},
           {5000, 4096, PARTS, 2, false, 0}},
          60);
    check("parts, anywhere", {{20001, 20001, PARTS, 3, false, 5}, {1025, 1025, PARTS, 2, false, 1}},
          60);
    check("larger parts", {{300000, 262145, PARTS, 40, false, 0}}, 6);
    check("parts and other ways",
          {{9000, 9000, PARTS, 3, false, 0},
           {3000, 3000, STEPAF_PROTO_BCOPY, 2, false, 0},
           {60, 60, HEAD, 1, false, 0}},
          60);
    check("chunks and other ways",
          {{9000, 9000, CHUNKS, 3, false, 0},
           {9000, 9000, PIECES, 3, false, 0},
           {20000, 20000, PIECES, 5, false, 0},
           {5000, 5000, PLACE, 3, false, 0},
           {3000, 3000, MAILBOX, 2, false, 0}},
          40);
    check("copies",
          {{5000, 5000, PLACE, 1, true, 0},
           {8, 8, HEAD, 1, false, 0},
           {300, 200, PLACE, 1, true, 0},
           {3000, 2000, MAILBOX, 2, true, 0}},
          100);
    check("one copy", {{300, 300, PLACE, 1, true, 0}}, 3000);
    check("more heads than a warp takes",
          {{84, 84, HEAD, 1, false, 0},
           {500, 500, PLACE, 1, true, 0},
           {84, 84, HEAD, 1, false, 0},
           {84, 84, HEAD, 1, false, 0},
           {600, 600, PLACE, 1, true, 0},
           {700, 700, PLACE, 1, true, 0},
           {84, 84, HEAD, 1, false, 0}},
          100);
    check_any("any peer's batch", {{4000, 4000, PIECES, 1, false, 0}, {60, 60, HEAD, 1, false, 0}},
              {{20000, 20000, PIECES, 3, false, 0}}, 100);
    check_any("any peer's, of every way",
              {{9000, 9000, PIECES, 2, false, 0},
               {9000, 9000, PIECES, 3, false, 0},
               {84, 84, HEAD, 1, false, 0},
               {2000, 2000, PLACE, 1, true, 0},
               {1000, 1000, MAILBOX, 1, true, 0}},
              {{84, 84, HEAD, 1, false, 0}, {3000, 3000, PLACE, 2, false, 0}}, 60);
    check_any("any peer's, in chunks",
              {{9000, 9000, CHUNKS, 3, false, 0},
               {2001, 2001, CHUNKS, 2, false, 0},
               {84, 84, HEAD, 1, false, 0}},
              {{5000, 5000, CHUNKS, 2, false, 0}, {3000, 3000, PLACE, 2, false, 0}}, 60);
    check("as many pieces as the gate takes", {{16128, 16128, PIECES, 3, false, 0}}, 20);
    check("one more", {{16129, 16129, PIECES, 3, false, 0}}, 20);
    check_gaps("gaps among heads",
               {{84, 0, PLACE, 0, false, 0},
                {84, 84, HEAD, 1, false, 0},
                {8, 8, HEAD, 1, false, 0},
                {84, 0, PLACE, 0, false, 0}},
               100);
    check_gaps("gaps among pieces",
               {{4096, 4096, PIECES, 1, false, 0},
                {4096, 0, PLACE, 0, false, 0},
                {30000, 30000, PIECES, 3, false, 0},
                {60, 60, HEAD, 1, false, 0}},
               60);
    check_gaps("gaps among all ways",
               {{9000, 0, MAILBOX, 0, false, 0},
                {3000, 3000, MAILBOX, 2, false, 0},
                {20001, 20001, CHUNKS, 3, false, 5},
                {9000, 0, PLACE, 0, false, 0},
                {5000, 5000, PLACE, 3, false, 0}},
               60);
    check_gaps("gaps among copies",
               {{300, 0, PLACE, 0, false, 0},
                {5000, 5000, PLACE, 1, true, 0},
                {300, 200, PLACE, 1, true, 0},
                {300, 0, MAILBOX, 0, false, 0}},
               100);
    check_ends({{84, 84, HEAD, 1, false, 0}, {9000, 9000, PIECES, 2, false, 0}});
    check_ends({{9000, 9000, PIECES, 2, false, 0}});
    check_ends({{9000, 9000, PLACE, 2, false, 0}});
    check_missing_piece(9000);
    check_missing_piece(30000);
    check_missing_chunk();
    check_missing_part();
    check_failed();
    check_sources();
    return 0;
}
