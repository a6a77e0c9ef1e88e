/* SPDX-License-Identifier: Apache-2.0 */
/* One end that asks some peers, and goes on when enough of them have answered. Peers answer when
 * they like, also while a start waits for them, or not at all. Heads, pieces, chunks and copy
 * engines' words come in any order. */
#include "kernels_machine/exchange.h"

enum { N_EACH = 2, DEADLINE_TURNS = 400000, NS_OF_TURN = 10 };

static stepaf_kernel_args with_some(const stepaf_kernel_args &from, stepaf_some *some, bool sends)
{
    stepaf_kernel_args args = from;

    if (sends)
        args.asked = some;
    else
        args.awaited = some;
    return args;
}

/* Answers to an attention rank: the peers' ends as the args of one launch, of which a peer's blocks
 * begin by themselves. */
class Job
{
  public:
    Job(const std::vector<Tensor> &of_a_peer, unsigned n_peers, unsigned need);
    void operate(uint64_t first, uint64_t late, bool gives_up);
    void lose(uint64_t peers);
    void timeout(uint64_t n_turns)
    {
        in_.timeout_ns = n_turns * NS_OF_TURN;
    }
    void expect_over(uint64_t first, uint32_t peer);
    stepaf_some_slot &slot()
    {
        return some_.slots[0];
    }
    stepaf_some some_ = {};
    stepaf_gpu_watch &watch()
    {
        return exchange_.receiver->watch;
    }
    uint64_t all;

  private:
    void answer(uint64_t peers);
    void answer_one(unsigned peer);
    void gate();
    void settle();
    void verify(uint64_t peers) const;

    static std::vector<Tensor> repeat(const std::vector<Tensor> &tensors, unsigned n)
    {
        std::vector<Tensor> many;
        for (unsigned i = 0; i < n; i++)
            many.insert(many.end(), tensors.begin(), tensors.end());
        return many;
    }

    unsigned n_peers_;
    Exchange exchange_;
    stepaf_kernel_args out_, in_; /* of the peers; of the one end */
    unsigned n_unpack_ = 0;
    bool has_chunks_;
};

Job::Job(const std::vector<Tensor> &of_a_peer, unsigned n_peers, unsigned need)
    : all((UINT64_C(1) << n_peers) - 1), n_peers_(n_peers), exchange_(repeat(of_a_peer, n_peers)),
      has_chunks_(has_chunks(exchange_.sender->args))
{
    stepaf_kernel_args &args = exchange_.receiver->args;

    if (of_a_peer.size() != N_EACH)
        fail("a peer has another number of tensors");
    for (unsigned i = 0; i < args.n_tensors; i++) {
        stepaf_kernel_tensor &in = args.tensors[i], &out = exchange_.sender->args.tensors[i];
        const Tensor &tensor = exchange_.tensors[i];
        in.peer = out.peer = static_cast<uint16_t>(i / N_EACH);
        in.first = static_cast<uint16_t>(n_unpack_);
        in.n = static_cast<uint16_t>(tensor.proto == STEPAF_PROTO_INLINE ? 0 : tensor.blocks);
        n_unpack_ += in.n;
        /* The last tensor of a peer that a copy engine writes is where all of them are told of. */
        if (tensor.copied)
            in.copied = out.copied = static_cast<uint8_t>(i / N_EACH * N_EACH + N_EACH);
    }
    args.gate_takes = 0;
    args.timeout_ns = UINT64_C(4) * TURNS * NS_OF_TURN;
    some_.need = need;
    some_.n_each = N_EACH;
    exchange_.receiver->gate_threads = (args.n_tensors * OCTET + 31) / 32 * 32;
    in_ = with_some(args, &some_, false);
}

/* What one peer sends, by its own kernels or a copy engine. */
void Job::answer_one(unsigned peer)
{
    const stepaf_kernel_args *args = &out_;
    bool copies = false;

    for (unsigned i = peer * N_EACH; i < (peer + 1) * N_EACH; i++) {
        const stepaf_kernel_tensor &tensor = args->tensors[i];
        copies = copies || tensor.copied;
        for (unsigned b = 0; b < tensor.n; b++)
            launch(exchange_.sender->n_blocks, tensor.first + b, STEPAF_WARP,
                   [args] { ::send(*args); });
    }
    if (!copies)
        return;
    launch(1, 0, 1, [this, peer] {
        stepaf_kernel_args its = out_;
        for (unsigned i = 0; i < its.n_tensors; i++)
            if (i / N_EACH != peer)
                its.tensors[i].copied = 0;
        copy_all(its, exchange_.sender->args);
    });
}

void Job::answer(uint64_t peers)
{
    for (unsigned p = 0; p < n_peers_; p++)
        if (peers >> p & 1)
            answer_one(p);
}

void Job::gate()
{
    ::begin_receive(
        exchange_.receiver->gate_threads, [this] { stepaf_gate_some(in_); }, n_unpack_,
        [this] { has_chunks_ ? stepaf_unpack_some_chunks(in_) : stepaf_unpack_some(in_); });
}

void Job::settle()
{
    ::begin_receive(
        exchange_.receiver->gate_threads, [this] { stepaf_settle(in_); }, n_unpack_,
        [this] { has_chunks_ ? stepaf_unpack_some_chunks(in_) : stepaf_unpack_some(in_); });
}

/* Theirs has come, of others nothing. */
void Job::verify(uint64_t peers) const
{
    for (size_t i = 0; i < exchange_.tensors.size(); i++) {
        const stepaf_kernel_tensor &sent = out_.tensors[i];
        const uint8_t *came = in_.tensors[i].data;
        uint32_t bytes = peers >> (i / N_EACH) & 1 ? sent.bytes : 0;
        if (in_.landed[i] != bytes)
            fail("a size is wrong");
        for (uint32_t at = 0; at < bytes + BEYOND; at++)
            if (came[at] != (at < bytes ? sent.data[at] : uint8_t{POISON})) {
                printf("FAIL: tensor %zu (%u bytes, way %d): byte %u is %u\n", i, bytes, sent.proto,
                       at, came[at]);
                exit(1);
            }
    }
}

/* An operation: those who are @a first answer at once, then, when it is complete, and the next
 * start waits for them, the @a late ones; or they do not answer, and are given up. */
void Job::operate(uint64_t first, uint64_t late, bool gives_up)
{
    uint64_t gone = some_.gone, n_late = some_.late, already = 0;
    unsigned chosen;

    out_ = exchange_.fill(true);
    for (unsigned i = 0; i < out_.n_tensors;
         i++) /* as blocks count for each operation, whoever answers */
        out_.tensors[i].peer = static_cast<uint16_t>(i / N_EACH);
    gate();
    answer(first);
    if (pick(2)) { /* some of the late ones are under way already, and may be in time */
        already = late & random_bits();
        answer(already);
    }
    run();
    uint64_t mask = slot().mask;
    chosen = count_bits(mask);
    if (exchange_.receiver->failed[0] || (mask & ~(first | already)) || chosen < some_.need ||
        (mask & gone) || slot().given_up != gone)
        fail("other answers are there than can be");
    if (watch().answers[0].mask != mask || watch().answers[0].given_up != gone)
        fail("the host is told something else");
    verify(mask);
    uint64_t missing = all & ~gone & ~mask;
    if (slot().missing != missing)
        fail("others are late than are");
    for (size_t i = 0; i < exchange_.tensors.size(); i++)
        memset(in_.tensors[i].data, POISON, exchange_.tensors[i].room + BEYOND);
    settle();
    answer(late & ~already);
    run();
    uint64_t came = missing & (first | late);
    if (exchange_.receiver->failed[0] || some_.late != n_late + count_bits(came) ||
        some_.gone != (gone | (missing & ~came)) || (some_.gone != gone) != gives_up)
        fail("late answers are not counted as they are");
    if (came)
        verify(came);
}

void Job::lose(uint64_t peers)
{
    watch().lost |= peers;
}

/* So few answer that nothing comes of it, because of @a peer. */
void Job::expect_over(uint64_t first, uint32_t peer)
{
    out_ = exchange_.fill(false);
    gate();
    answer(first);
    run();
    if (!exchange_.receiver->failed[0] || !watch().fault || watch().peer != peer)
        fail("the plan is not over, or somebody else is to blame");
}

static void check(const char *what, const std::vector<Tensor> &tensors)
{
    Job job(tensors, 3, 2);

    for (int n = 0; n < 12; n++) {
        uint64_t late = n % 4 == 3 ? 0 : UINT64_C(1) << pick(3);
        job.operate(job.all & ~late, late, false);
    }
    job.some_.patience_ns = UINT64_C(30) * DEADLINE_TURNS * NS_OF_TURN; /* all are waited for */
    job.operate(job.all, 0, false);
    if (job.slot().mask != job.all)
        fail("patience is over before its time");
    printf("ok: %s\n", what);
}

/* The receiver's counts go on, and its mailboxes are as at first, as if it had taken an
 * operation. */
static void skip(Exchange &exchange)
{
    for (uint32_t &count : exchange.receiver->counts)
        count++;
    for (std::vector<uint8_t> &mailbox : exchange.mailboxes)
        std::fill(mailbox.begin(), mailbox.end(), uint8_t{0});
}

/* What is sent does not touch who is given up, and all count, also those blocks that send
 * nothing. */
static void check_sending(const char *what, const std::vector<Tensor> &tensors)
{
    Exchange exchange(tensors);
    stepaf_some some = {};
    stepaf_kernel_args args;
    std::vector<uint8_t> before = exchange.mailboxes[1];

    for (unsigned n = 0; n < 4; n++) {
        some.gone = n % 2 ? 2 : 0; /* the peer of the second tensor */
        args = with_some(exchange.fill(false), &some, true);
        for (unsigned i = 0; i < args.n_tensors; i++)
            args.tensors[i].peer = static_cast<uint16_t>(i);
        before = exchange.mailboxes[1];
        for (unsigned b = 0; b < exchange.sender->n_blocks; b++)
            launch(exchange.sender->n_blocks, b, STEPAF_WARP, [&args] {
                has_chunks(args) ? stepaf_send_some_chunks(args) : stepaf_send_some(args);
            });
        if (!some.gone)
            exchange.begin_receive();
        run();
        if (!some.gone)
            exchange.verify(args, exchange.receiver->landed.data());
        else if (exchange.mailboxes[1] != before)
            fail("something is sent to who is given up");
        for (unsigned b = 0; b < exchange.sender->n_blocks; b++)
            if (exchange.sender->counts[1 + b] != n + 1)
                fail("a block does not count");
        if (some.gone) /* the receiver has to come along */
            skip(exchange);
    }
    printf("ok: sending %s\n", what);
}

/* Somebody does not come back: given up when half of the deadline has passed, and not asked
 * again. */
static void check_given_up(const std::vector<Tensor> &tensors)
{
    Job job(tensors, 4, 2);

    job.operate(job.all, 0, false);
    job.timeout(2 * DEADLINE_TURNS);
    job.operate(7, 0, true);
    if (job.some_.gone != 8)
        fail("another one is given up");
    job.operate(3, 4, false);
    job.lose(4);
    job.operate(3, 0, true);
    job.expect_over(1, 1);
    printf("ok: peers that are given up\n");
}

int main()
{
    const stepaf_proto HEAD = STEPAF_PROTO_INLINE, PIECES = STEPAF_PROTO_LL,
                       MAILBOX = STEPAF_PROTO_BCOPY, CHUNKS = STEPAF_PROTO_CHUNKS;

    check("heads", {{84, 84, HEAD, 1, false, 0}, {8, 8, HEAD, 1, false, 0}});
    check("odd places", {{61, 61, HEAD, 1, false, 3}, {3001, 3001, PIECES, 2, false, 5}});
    check("pieces", {{30000, 30000, PIECES, 3, false, 0}, {60, 60, HEAD, 1, false, 0}});
    check("mailboxes", {{5000, 5000, MAILBOX, 3, false, 0}, {900, 900, PIECES, 1, false, 0}});
    check("chunks", {{9000, 9000, CHUNKS, 3, false, 0}, {60, 60, HEAD, 1, false, 0}});
    check("copy engines", {{5000, 5000, MAILBOX, 2, true, 0}, {2000, 2000, MAILBOX, 1, true, 0}});
    check_sending("heads", {{84, 84, HEAD, 1, false, 0}, {8, 8, HEAD, 1, false, 0}});
    check_sending("pieces", {{9000, 9000, PIECES, 2, false, 0}, {3000, 3000, PIECES, 2, false, 0}});
    check_sending("mailboxes",
                  {{9000, 9000, MAILBOX, 2, false, 0}, {3000, 3000, MAILBOX, 2, false, 0}});
    check_sending("chunks", {{9000, 9000, CHUNKS, 2, false, 0}, {3000, 3000, CHUNKS, 2, false, 0}});
    check_given_up({{3000, 3000, PIECES, 2, false, 0}, {60, 60, HEAD, 1, false, 0}});
    return 0;
}
