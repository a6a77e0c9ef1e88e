/* SPDX-License-Identifier: Apache-2.0 */
/* Workers, and one end that takes the batch of any of them, in streams: several batches are
 * received before as many answers, which follow each other as programmatic successors. */
#include "kernels_machine/any.h"

/* What a tensor of one peer and slot has in an operation. */
struct Content {
    unsigned proto; /* 0: there, 1: back */
    unsigned peer, tensor, operation;
};

static uint8_t byte_of(const Content &content, uint32_t at)
{
    uint64_t word = ((content.proto * 31 + content.peer) * 31 + content.tensor) * UINT64_C(1000003);

    word = (word + content.operation) * UINT64_C(6364136223846793005) + at * UINT64_C(1442695041);
    word ^= word >> 29;
    word *= UINT64_C(0xbf58476d1ce4e5b9);
    word ^= word >> 32;
    return word % 4 ? static_cast<uint8_t>(word >> 8) : 0xff;
}

static void fill(const stepaf_kernel_tensor &tensor, const Content &content)
{
    for (uint32_t at = 0; at < tensor.bytes; at++)
        tensor.data[at] = byte_of(content, at);
}

/* It has come, and no more; then its place is as nothing had. */
static void verify(uint8_t *data, uint32_t bytes, uint32_t room, const Content &content)
{
    for (uint32_t at = 0; at < room + BEYOND; at++)
        if (data[at] != (at < bytes ? byte_of(content, at) : uint8_t{POISON})) {
            printf("FAIL: way %u, peer %u, tensor %u, operation %u: byte %u of %u\n", content.proto,
                   content.peer, content.tensor, content.operation, at, bytes);
            exit(1);
        }
    memset(data, POISON, room + BEYOND);
}

/* One direction: of each peer as many slots as the plan is deep, evenly apart in memory. */
struct Side {
    unsigned depth;
    std::vector<std::unique_ptr<Exchange>> slots;
    std::vector<std::vector<uint8_t>> memory;

    Side(const std::vector<Tensor> &tensors, unsigned its_depth);
    Exchange &at(unsigned peer, unsigned slot)
    {
        return *slots[peer * depth + slot];
    }

  private:
    void lay_evenly(unsigned peer, unsigned tensor);
};

/* The first peer plans all that there is room for, the others less. */
Side::Side(const std::vector<Tensor> &tensors, unsigned its_depth) : depth(its_depth)
{
    for (unsigned p = 0; p < PEERS; p++) {
        std::vector<Tensor> its = tensors;
        for (Tensor &tensor : its)
            tensor.planned = p == 0 ? tensor.room : pick(tensor.room + 1);
        for (unsigned s = 0; s < depth; s++)
            slots.emplace_back(new Exchange(its));
        for (unsigned i = 0; i < tensors.size(); i++)
            lay_evenly(p, i);
    }
}

void Side::lay_evenly(unsigned peer, unsigned tensor)
{
    const Tensor &its = slots[0]->tensors[tensor];
    size_t mailbox = STEPAF_HEAD_BYTES + (its.proto == STEPAF_PROTO_CHUNKS
                                              ? static_cast<size_t>(stepaf_chunks_room(its.room))
                                              : groups(its.room) * size_t{STEPAF_GROUP_BYTES});
    size_t place = (its.room + BEYOND + size_t{127}) / 128 * 128;

    memory.emplace_back(depth * mailbox + 128, 0);
    uint8_t *mailboxes = aligned(memory.back());
    memory.emplace_back(depth * place + 128, 0);
    uint8_t *sources = aligned(memory.back());
    memory.emplace_back(depth * place + 128, static_cast<uint8_t>(POISON));
    uint8_t *places = aligned(memory.back());
    readable.push_back({mailboxes, mailboxes + depth * mailbox});
    for (unsigned s = 0; s < depth; s++) {
        stepaf_kernel_tensor &out = at(peer, s).sender->args.tensors[tensor];
        stepaf_kernel_tensor &in = at(peer, s).receiver->args.tensors[tensor];
        out.head = in.head = mailboxes + s * mailbox;
        out.data = sources + s * place;
        in.data = places + s * place;
        in.body = in.head + STEPAF_HEAD_BYTES;
        out.body = its.proto == STEPAF_PROTO_ZCOPY ? in.data : in.body;
    }
}

class Job
{
  public:
    Job(const std::vector<Tensor> &there, const std::vector<Tensor> &back, uint8_t depth,
        unsigned n);
    void run(unsigned ahead);

  private:
    void enqueue_worker(unsigned peer);
    void enqueue_send(unsigned peer, unsigned n);
    void worker_works(unsigned peer, unsigned n);
    void receive();
    void ffn_works();

    unsigned depth_, n_, seen_[PEERS] = {};
    alignas(16) stepaf_any_entry ring_[RING] = {};
    stepaf_any_next next_[PEERS + 1] = {};
    uint32_t origin_[2];
    Side push_, pull_;
    std::unique_ptr<Any> in_, out_;
    std::vector<stepaf_kernel_args> sends_[PEERS]; /* of each operation */
    Stream workers_[PEERS], ffn_;
};

Job::Job(const std::vector<Tensor> &there, const std::vector<Tensor> &back, uint8_t depth,
         unsigned n)
    : depth_(depth), n_(n), push_(there, depth), pull_(back, depth)
{
    const uint8_t *ring = reinterpret_cast<const uint8_t *>(ring_);
    readable.push_back({ring, ring + sizeof ring_});
    in_ = make_any(push_.slots, depth, false, ring_, next_, origin_);
    out_ = make_any(pull_.slots, depth, true, ring_, next_, origin_);
    for (unsigned p = 0; p < PEERS; p++)
        for (unsigned i = 0; i < n; i++) {
            stepaf_kernel_args args = push_.at(p, i % depth).sender->args;
            for (unsigned t = 0; t < args.n_tensors; t++)
                if (pick(3) == 0)
                    args.tensors[t].bytes = pick(args.tensors[t].bytes + 1);
            sends_[p].push_back(args);
        }
}

/* Let the next kernel begin while this one works; it works when all before is done. */
static bool begin_work()
{
    let_successor_begin();
    await_predecessor();
    return threadIdx.x == 0;
}

void Job::enqueue_send(unsigned peer, unsigned n)
{
    const stepaf_kernel_args *args = &sends_[peer][n];

    workers_[peer].enqueue(push_.at(peer, n % depth_).sender->n_blocks, STEPAF_WARP, true,
                           [args] { ::send(*args); });
}

/* Operation @a n is over; operation @a n + depth is made. */
void Job::worker_works(unsigned peer, unsigned n)
{
    const Exchange &slot = pull_.at(peer, n % depth_);

    for (unsigned i = 0; i < slot.tensors.size(); i++) {
        uint32_t bytes = slot.receiver->args.landed[i];
        if (bytes != slot.sender->args.tensors[i].bytes)
            fail("an answer has another size");
        verify(slot.receiver->args.tensors[i].data, bytes, slot.tensors[i].room, {1, peer, i, n});
    }
    for (unsigned i = 0; n + depth_ < n_ && i < sends_[peer][n].n_tensors; i++)
        fill(sends_[peer][n + depth_].tensors[i], {0, peer, i, n + depth_});
}

void Job::enqueue_worker(unsigned peer)
{
    Stream &stream = workers_[peer];

    for (unsigned n = 0; n < depth_ && n < n_; n++) {
        for (unsigned i = 0; i < sends_[peer][n].n_tensors; i++)
            fill(sends_[peer][n].tensors[i], {0, peer, i, n});
        enqueue_send(peer, n);
    }
    for (unsigned n = 0; n < n_; n++) {
        const End *in = pull_.at(peer, n % depth_).receiver.get();
        stream.enqueue(1, in->gate_threads, false, [in] { stepaf_gate(in->args); });
        if (in->n_blocks)
            stream.enqueue(in->n_blocks, STEPAF_WARP, true, [in] { ::unpack(in->args); });
        stream.enqueue(1, STEPAF_WARP, true, [this, peer, n] {
            if (begin_work())
                worker_works(peer, n);
        });
        if (n + depth_ < n_)
            enqueue_send(peer, n + depth_);
    }
}

/* A batch is there; its answer is made. */
void Job::ffn_works()
{
    uint32_t peer = origin_[0], slot = origin_[1];

    if (peer >= PEERS || in_->failed[0] || slot != seen_[peer] % depth_)
        fail("a batch of nobody");
    unsigned n = seen_[peer]++;
    const stepaf_kernel_args &sent = sends_[peer][n], &answer = pull_.at(peer, slot).sender->args;
    const Exchange &push = push_.at(peer, slot);
    const uint32_t *landed = &in_->landed[slot * STEPAF_KERNEL_TENSORS + peer * sent.n_tensors];
    for (unsigned i = 0; i < sent.n_tensors; i++) {
        if (landed[i] != sent.tensors[i].bytes)
            fail("a tensor of a batch has another size");
        verify(push.receiver->args.tensors[i].data, landed[i], push.tensors[i].room,
               {0, peer, i, n});
    }
    for (unsigned i = 0; i < answer.n_tensors; i++)
        fill(answer.tensors[i], {1, peer, i, n});
}

void Job::receive()
{
    ffn_.enqueue(1, in_->gate_threads, false, [this] { stepaf_gate_any(in_->args); });
    if (in_->n_blocks)
        ffn_.enqueue(in_->n_blocks, STEPAF_WARP, true, [this] { unpack_any(*in_); });
    ffn_.enqueue(1, STEPAF_WARP, true, [this] {
        if (begin_work())
            ffn_works();
    });
}

/* Of the last batches so many need not be there at once. */
void Job::run(unsigned ahead)
{
    unsigned total = PEERS * n_, sure = n_;

    for (unsigned p = 0; p < PEERS; p++)
        enqueue_worker(p);
    for (unsigned k = 0, m; k < total; k += m) {
        m = k < sure && ahead < total - k ? ahead : 1;
        for (unsigned i = 0; i < m; i++)
            receive();
        for (unsigned i = 0; i < m; i++)
            ffn_.enqueue(out_->n_blocks, STEPAF_WARP, true, [this] { send_any(*out_); });
    }
    run_streams({&ffn_, &workers_[0], &workers_[1], &workers_[2]});
}

static void check(const char *what, const std::vector<Tensor> &there,
                  const std::vector<Tensor> &back)
{
    for (uint8_t depth = 1; depth <= MAX_DEPTH; depth++)
        for (unsigned ahead = 1; ahead <= PEERS; ahead++) {
            readable.clear();
            Job(there, back, depth, 4).run(ahead);
        }
    printf("ok: %s\n", what);
}

int main()
{
    const stepaf_proto HEAD = STEPAF_PROTO_INLINE, PIECES = STEPAF_PROTO_LL,
                       PLACE = STEPAF_PROTO_ZCOPY, MAILBOX = STEPAF_PROTO_BCOPY,
                       CHUNKS = STEPAF_PROTO_CHUNKS;

    check("heads", {{84, 84, HEAD, 1, false, 0}, {8, 8, HEAD, 1, false, 0}},
          {{60, 60, HEAD, 1, false, 0}});
    check("pieces that gates take",
          {{4096, 4096, PIECES, 1, false, 0},
           {60, 60, HEAD, 1, false, 0},
           {3000, 3000, PIECES, 1, false, 0}},
          {{2000, 2000, PIECES, 2, false, 0}});
    check("pieces", {{30000, 30000, PIECES, 3, false, 0}, {60, 60, HEAD, 1, false, 0}},
          {{20000, 20000, PIECES, 3, false, 0}, {84, 84, HEAD, 1, false, 0}});
    check("places and mailboxes",
          {{3000, 3000, MAILBOX, 2, false, 0}, {900, 900, PLACE, 1, false, 0}},
          {{5000, 5000, PLACE, 3, false, 0}, {700, 700, MAILBOX, 1, false, 0}});
    check("chunks", {{9000, 9000, CHUNKS, 3, false, 0}, {60, 60, HEAD, 1, false, 0}},
          {{5001, 5001, CHUNKS, 2, false, 0}, {2000, 2000, PIECES, 1, false, 0}});
    return 0;
}
