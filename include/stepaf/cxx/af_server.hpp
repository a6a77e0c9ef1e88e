/* SPDX-License-Identifier: Apache-2.0 */
/* C++: AFTensorServer. */
#ifndef STEPAF_CXX_AF_SERVER_HPP
#define STEPAF_CXX_AF_SERVER_HPP

#include <atomic>
#include <exception>

#include <stepaf/cxx/af_types.hpp>

namespace stepaf::af
{

/** The FFN rank's side of an operation. */
class AFTensorServer
{
  public:
    /** Callback for each batch. */
    using RequestHandle = std::function<void(const AFTensorMeta &, AFTensorServer *)>;

    /** @param ctx   of an FFN rank; must outlive this object.
     *  @param sync  called by Response with need_event before tensors are read. Returns when the
     *               work that writes the tensors on the caller's stream is complete. Empty: the
     *               tensors are already written. */
    explicit AFTensorServer(context &ctx, std::function<void()> sync = {})
        : ctx_(ctx), sync_(std::move(sync))
    {
    }
    AFTensorServer(const AFTensorServer &) = delete;
    AFTensorServer &operator=(const AFTensorServer &) = delete;
    /** Removes the callback, and waits for as long as a call of it still runs in another thread. */
    ~AFTensorServer()
    {
        /* TIMEOUT: the callback is removed, and still runs in another thread. */
        while (handle_ &&
               stepaf_batch_set_handler(ctx_.get(), nullptr, nullptr) == STEPAF_ERR_TIMEOUT)
            ;
    }

    /** Call @a handle for every batch from now on; an empty @a handle returns to GetBatch.
     *
     *  In inline mode, @a handle runs within Progress and the calls that wait; otherwise, in the
     *  progress thread. Progress throws what @a handle throws. Must not be called by @a handle
     *  itself. Throws as stepaf_batch_set_handler fails. */
    void SetRequestHandle(RequestHandle handle)
    {
        check(stepaf_batch_set_handler(ctx_.get(), nullptr, nullptr));
        handle_ = std::move(handle);
        if (handle_)
            check(stepaf_batch_set_handler(ctx_.get(), arrived, this));
    }

    /** Make progress on operations, and call the callback for batches that have arrived.
     *
     *  Throws the first exception that the callback has thrown since the last call; whether that
     *  batch is answered is up to the callback. Does not block. */
    void Progress()
    {
        ctx_.progress();
        if (has_thrown_.load(std::memory_order_acquire)) {
            std::exception_ptr what = std::exchange(thrown_, nullptr);
            has_thrown_.store(false, std::memory_order_release);
            std::rethrow_exception(what);
        }
    }

    /** Return one batch of each worker of the epoch, in rank order. Throws timeout_error, peer_lost_error, or as
     *  stepaf_recv fails. Blocks for at most @a timeout_ms. */
    std::vector<AFTensorMeta> GetBatch(std::uint64_t timeout_ms = 10000)
    {
        std::vector<batch> batches(static_cast<std::size_t>(ctx_.n_peers()));
        int n = ctx_.recv(STEPAF_FROM_EACH, batches, detail::milliseconds(timeout_ms));
        std::vector<AFTensorMeta> metas;
        metas.reserve(static_cast<std::size_t>(n));
        for (int i = 0; i < n; i++) /* none of a worker that the epoch continues without */
            if (batches[static_cast<std::size_t>(i)])
                metas.push_back(describe(batches[static_cast<std::size_t>(i)]));
        for (batch &one : batches)
            (void)one.detach();
        return metas;
    }

    /** Answer a batch, and release its receive buffers.
     *  @param tensors  one for each tensor that the batch pulls, found by their keys, in any order;
     *                  none for a batch that only pushes.
     *  @return a reference with which to wait until the sources may be overwritten; empty if there
     *  are no sources.
     *
     *  Throws as stepaf_respond fails. Never blocks, except in @a sync. */
    request_ref Response(const AFTensorMeta &meta, const std::vector<KeyTensor> &tensors = {},
                         bool need_event = true)
    {
        tensor answers[STEPAF_MAX_TENSORS];
        stepaf_request_h request;
        if (meta.pull_tensors.empty() && tensors.empty()) {
            check(stepaf_release(meta.batch));
            return {};
        }
        int n = detail::convert(tensors, answers, STEPAF_MAX_TENSORS);
        sort(meta.pull_tensors, answers, n);
        if (need_event && sync_)
            sync_();
        check(stepaf_respond(meta.batch, answers, n, STEPAF_RESPOND_RELEASE, &request));
        return request_ref(request);
    }

    /** Receive what worker worker_ranks[i] pushes with keys[i] in the i-th of equal chunks of
     *  @a tensor. In force from the next commit.
     *
     *  The memory is registered if necessary, and must outlive the context. Throws as
     *  stepaf_register and stepaf_key_set_recv fail; chunks before the one that failed stay set. */
    void RegisterRecvTensor(const Tensor &tensor, const std::vector<int> &worker_ranks,
                            const std::vector<Key> &keys)
    {
        if (keys.empty() || worker_ranks.size() != keys.size() || tensor.bytes % keys.size() != 0)
            throw error(STEPAF_ERR_INVALID, true);
        std::size_t bytes = tensor.bytes / keys.size();
        for (std::size_t i = 0; i < keys.size(); i++) {
            void *chunk = static_cast<char *>(tensor.data) + i * bytes;
            auto set = ctx_.try_key_set_recv(keys[i], chunk, bytes, {&worker_ranks[i], 1});
            if (set.error() == STEPAF_ERR_UNREGISTERED && i == 0) {
                registered_.push_back(ctx_.register_memory(tensor.data, tensor.bytes));
                set = ctx_.try_key_set_recv(keys[i], chunk, bytes, {&worker_ranks[i], 1});
            }
            check(set.error());
        }
    }

  private:
    static AFTensorMeta describe(const batch &one)
    {
        stepaf_batch_info_t info = one.query();
        AFTensorMeta meta;
        meta.sender_rank = info.attention_rank;
        meta.batch = one.get();
        for (int i = 0; i < info.n_tensors; i++)
            meta.push_tensors.add(one.tensor(i));
        for (int i = 0; i < info.n_answers; i++)
            meta.pull_tensors.add(one.answer(i));
        return meta;
    }

    /** Called by C, so no exception may pass through this function. */
    static void arrived(stepaf_batch_h handle, void *arg) noexcept
    {
        auto *self = static_cast<AFTensorServer *>(arg);
        batch one(handle);
        try {
            AFTensorMeta meta = describe(one);
            (void)one.detach();
            self->handle_(meta, self);
        } catch (...) {
            if (!self->has_thrown_.load(std::memory_order_acquire)) {
                self->thrown_ = std::current_exception();
                self->has_thrown_.store(true, std::memory_order_release);
            }
        }
    }

    /** Put @a answers into the order that the batch expects. The library reports an answer that the
     *  batch does not expect. */
    static void sort(const KeyTensors &expected, tensor *answers, int n) noexcept
    {
        for (int i = 0; i < n && static_cast<std::size_t>(i) < expected.size(); i++)
            for (int j = i; j < n; j++)
                if (answers[j].key == expected[static_cast<std::size_t>(i)].key) {
                    std::swap(answers[i], answers[j]);
                    break;
                }
    }

    context &ctx_;
    std::function<void()> sync_;
    RequestHandle handle_;
    std::vector<registration> registered_;
    std::exception_ptr thrown_;
    std::atomic<bool> has_thrown_{false};
};

} // namespace stepaf::af

#endif
