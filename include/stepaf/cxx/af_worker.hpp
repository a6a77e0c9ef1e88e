/* SPDX-License-Identifier: Apache-2.0 */
/* C++: AFTensorWorker. */
#ifndef STEPAF_CXX_AF_WORKER_HPP
#define STEPAF_CXX_AF_WORKER_HPP

#include <thread>

#include <stepaf/cxx/af_types.hpp>

namespace stepaf::af
{

/** The attention rank's side of an operation. */
class AFTensorWorker
{
  public:
    /** @param ctx         of an attention rank; must outlive this object.
     *  @param sync        called by ZBatchPushPull with need_event before tensors are read. Returns
     *                     when the work that writes the tensors on the caller's stream is complete.
     *                     Empty: the tensors are already written.
     *  @param n_handlers  number of handlers that are kept; Wait for an older one is
     *                     STEPAF_ERR_HANDLE. */
    explicit AFTensorWorker(context &ctx, std::function<void()> sync = {},
                            std::size_t n_handlers = 4096)
        : ctx_(ctx), sync_(std::move(sync)), kept_(n_handlers > 0 ? n_handlers : 1)
    {
    }

    /** Push @a push to every server, and pull into @a pull, server by server: entry s * B + i is
     *  tensor i of server s, as in stepaf_push_pull.
     *  @return a handler, for Wait.
     *
     *  Throws as stepaf_push_pull fails. Never blocks, except in @a sync. */
    int ZBatchPushPull(const std::vector<KeyTensor> &push, const std::vector<KeyTensor> &pull,
                       bool need_event = true)
    {
        tensor to[STEPAF_MAX_TENSORS];
        int n_push = detail::convert(push, to, STEPAF_MAX_TENSORS);
        stepaf_request_h request;
        if (pull_.size() < pull.size())
            pull_.resize(pull.size());
        int n_pull = detail::convert(pull, pull_.data(), pull_.size());
        if (need_event && sync_)
            sync_();
        check(stepaf_push_pull(ctx_.get(), to, n_push, pull_.data(), n_pull, &request));
        return keep(request, whole, n_pull);
    }

    /** Wait for an operation, or for one of its pull tensors (GetAllHandlers).
     *  @param timeout_ms  0 polls once.
     *
     *  Throws timeout_error, after which the caller can wait again; otherwise as stepaf_wait or
     *  stepaf_request_tensor fails; STEPAF_ERR_HANDLE for a handler that is not kept. */
    void Wait(int handler, std::uint64_t timeout_ms = 10000)
    {
        const kept &one = find(handler);
        timeout limit = detail::milliseconds(timeout_ms);
        if (one.index == whole)
            check(stepaf::detail::outcome::of_wait(stepaf_wait(one.request, limit.count()), limit));
        else
            wait_tensor(one, limit);
    }

    /** Return a handler for each pull tensor of an operation, in the order of its call; for an
     *  operation that pulls nothing, the operation's own handler. */
    std::vector<int> GetAllHandlers(int handler)
    {
        const kept one = find(handler);
        std::vector<int> handlers;
        if (one.index != whole || one.n_pull == 0)
            return {handler};
        for (int i = 0; i < one.n_pull; i++)
            handlers.push_back(keep(one.request, i, one.n_pull));
        return handlers;
    }

    /** Return the times of an operation at the server of rank @a server_rank; see
     *  stepaf_timeline_query. */
    stepaf_timeline_t FetchTrace(int handler, int server_rank)
    {
        return request_ref(find(handler).request).timeline(server_rank);
    }

    /** Wait for all workers, all servers, or both; as stepaf_barrier. */
    void Barrier(bool include_server, bool include_worker, std::uint64_t timeout_ms = 10000)
    {
        if (include_server || include_worker)
            ctx_.barrier(!include_server  ? STEPAF_GROUP_ATTENTION
                         : include_worker ? STEPAF_GROUP_WORLD
                                          : STEPAF_GROUP_FFN,
                         detail::milliseconds(timeout_ms));
    }

  private:
    enum { whole = -1 };

    struct kept {
        int handler = -1;
        int index = whole;
        int n_pull = 0;
        stepaf_request_h request = nullptr;
    };

    int keep(stepaf_request_h request, int index, int n_pull) noexcept
    {
        int handler = next_;
        next_ = next_ == 0x7fffffff ? 0 : next_ + 1;
        kept_[static_cast<std::size_t>(handler) % kept_.size()] = {handler, index, n_pull, request};
        return handler;
    }

    const kept &find(int handler) const
    {
        const kept &one = kept_[static_cast<std::size_t>(handler < 0 ? 0 : handler) % kept_.size()];
        if (handler < 0 || one.handler != handler)
            throw error(STEPAF_ERR_HANDLE, true);
        return one;
    }

    void wait_tensor(const kept &one, timeout limit)
    {
        auto start = std::chrono::steady_clock::now();
        for (unsigned n = 1;; n++) {
            stepaf_status_t status = stepaf_request_tensor(one.request, one.index, nullptr);
            if (status != STEPAF_INPROGRESS)
                return check(status);
            ctx_.progress();
            if (n % 64 != 0 && limit.count() != 0)
                continue;
            if (std::chrono::steady_clock::now() - start >=
                std::chrono::microseconds(limit.count())) {
                status = stepaf_request_tensor(one.request, one.index, nullptr);
                return check(status == STEPAF_INPROGRESS
                                 ? stepaf::detail::outcome::unrecorded(STEPAF_ERR_TIMEOUT)
                                 : status);
            }
            /* Other threads may wait for this core, sometimes threads of another session. */
            if (n % 4096 == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            else
                std::this_thread::yield();
        }
    }

    context &ctx_;
    std::function<void()> sync_;
    std::vector<kept> kept_;
    std::vector<tensor> pull_;
    int next_ = 0;
};

} // namespace stepaf::af

#endif
