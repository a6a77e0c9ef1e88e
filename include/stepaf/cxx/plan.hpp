/* SPDX-License-Identifier: Apache-2.0 */
/* C++: plans, for host calls and for streams. */
#ifndef STEPAF_CXX_PLAN_HPP
#define STEPAF_CXX_PLAN_HPP

#include <stepaf/cxx/request.hpp>
#include <stepaf/plan.h>
#include <stepaf/stream.h>

namespace stepaf
{

/** Differences of one start from its plan: start_params().wait(limit).push(tensors). */
class start_params
{
  public:
    /** Wait for a free slot, at most @a limit. */
    start_params &wait(timeout limit = timeout_default) noexcept
    {
        c_.field_mask |= STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_TIMEOUT;
        c_.flags |= STEPAF_START_WAIT;
        c_.timeout_us = limit.count();
        return *this;
    }
    /** Skip lost FFN ranks while any other is left. */
    start_params &skip_lost() noexcept
    {
        c_.field_mask |= STEPAF_START_PARAM_FLAGS;
        c_.flags |= STEPAF_START_SKIP_LOST;
        return *this;
    }
    /** Number of answers that complete the operation, and time to wait for the others; as for
     *  set_answers. */
    start_params &answers(int n, timeout patience = {}) noexcept
    {
        c_.field_mask |= STEPAF_START_PARAM_ANSWERS | STEPAF_START_PARAM_PATIENCE;
        c_.n_answers = n;
        c_.patience_us = patience.count();
        return *this;
    }
    /** Sources and sizes that differ from the plan. The array is not copied. */
    start_params &push(span<const tensor> tensors) noexcept
    {
        c_.field_mask |= STEPAF_START_PARAM_PUSH;
        c_.push = tensors.data();
        c_.n_push = detail::count(tensors);
        return *this;
    }
    const stepaf_start_params_t *get() const noexcept { return &c_; }

  private:
    stepaf_start_params_t c_{};
};

namespace detail
{

[[gnu::noinline]] inline void destroy(stepaf_plan_h handle)
{
    end_quietly([=] { return stepaf_plan_destroy(handle); });
}

} // namespace detail

/** A compiled push_pull, destroyed when it goes out of scope. If stepaf_plan_destroy fails, because
 *  an operation is in flight, the plan lasts as long as its context. */
class plan : public detail::owner<stepaf_plan_h, detail::destroy>
{
  public:
    using owner::owner;

    /** As stepaf_start. */
    result<request> try_start() noexcept
    {
        return detail::try_make<request>(
            [&](stepaf_request_h *handle) { return stepaf_start(handle_, handle); });
    }
    /** As stepaf_start_with. */
    result<request> try_start(const start_params &params) noexcept
    {
        return detail::try_make<request>([&](stepaf_request_h *handle) {
            return stepaf_start_with(handle_, params.get(), handle);
        });
    }
    /** Start an operation that no object owns. This form is cheaper for requests in an array.
     *  @param ref_p  set to refer to the operation's request; unchanged on failure. */
    result<void> try_start(request_ref &ref_p) noexcept
    {
        return ref_p.set_by(stepaf_start, handle_);
    }
    /** The same, with the differences in @a params. */
    result<void> try_start(const start_params &params, request_ref &ref_p) noexcept
    {
        return ref_p.set_by(stepaf_start_with, handle_, params.get());
    }
    /** As stepaf_plan_destroy. After a failure this object still owns the plan. */
    result<void> try_destroy() noexcept
    {
        stepaf_status_t status = stepaf_plan_destroy(handle_);
        if (!detail::failed(status))
            handle_ = nullptr;
        return status;
    }
    /** As stepaf_plan_set_answers. */
    result<void> try_set_answers(int n, timeout patience = {}) noexcept
    {
        return stepaf_plan_set_answers(handle_, n, patience.count());
    }
    /** As stepaf_plan_depth. */
    unsigned depth() const noexcept { return stepaf_plan_depth(handle_); }

    /** As stepaf_start_on_stream, without a request. */
    result<void> try_start_on_stream(stepaf_stream_t stream) noexcept
    {
        return stepaf_start_on_stream(handle_, nullptr, stream, nullptr);
    }
    /** The same, with the differences in @a params. */
    result<void> try_start_on_stream(const start_params &params, stepaf_stream_t stream) noexcept
    {
        return stepaf_start_on_stream(handle_, params.get(), stream, nullptr);
    }
    /** As stepaf_start_on_stream, with a request for the host to wait for. */
    result<request_ref> try_start_on_stream_request(const start_params &params,
                                                    stepaf_stream_t stream) noexcept
    {
        stepaf_request_h handle;
        stepaf_status_t status = stepaf_start_on_stream(handle_, params.get(), stream, &handle);
        if (detail::failed(status))
            return status;
        return request_ref(handle);
    }
    /** As stepaf_wait_on_stream. */
    result<void> try_wait_on_stream(stepaf_stream_t stream) noexcept
    {
        return stepaf_wait_on_stream(handle_, stream);
    }
    /** As stepaf_recv_on_stream. */
    result<void> try_recv_on_stream(stepaf_stream_t stream) noexcept
    {
        return stepaf_recv_on_stream(handle_, stream);
    }
    /** As stepaf_respond_on_stream; @a tensors: NULL, or as many as described there. */
    result<void> try_respond_on_stream(stepaf_stream_t stream,
                                       const tensor *tensors = nullptr) noexcept
    {
        return stepaf_respond_on_stream(handle_, tensors, stream);
    }
    /** As stepaf_plan_tensor. */
    result<tensor_info> try_tensor(unsigned slot, int peer, int index) const noexcept
    {
        return detail::try_fill<tensor_info>([&](tensor_info *info) {
            return stepaf_plan_tensor(handle_, slot, peer, index, info);
        });
    }
    /** As stepaf_plan_status. */
    result<void> try_status() const noexcept { return stepaf_plan_status(handle_); }
    /** As stepaf_plan_bytes: in GPU memory, or NULL. */
    const std::uint32_t *bytes(unsigned slot) const noexcept
    {
        return stepaf_plan_bytes(handle_, slot);
    }
    /** As stepaf_plan_answers: in GPU memory, or NULL. */
    const stepaf_answers_t *answers(unsigned slot) const noexcept
    {
        return stepaf_plan_answers(handle_, slot);
    }
    /** As stepaf_plan_origin: in GPU memory, or NULL. */
    const stepaf_origin_t *origin() const noexcept { return stepaf_plan_origin(handle_); }

#if STEPAF_CXX_EXCEPTIONS
    request start()
    {
        return detail::make<request>(
            [&](stepaf_request_h *handle) { return stepaf_start(handle_, handle); });
    }
    request start(const start_params &params)
    {
        return detail::make<request>([&](stepaf_request_h *handle) {
            return stepaf_start_with(handle_, params.get(), handle);
        });
    }
    void start(request_ref &ref_p)
    {
        check(ref_p.set_by(stepaf_start, handle_));
    }
    void start(const start_params &params, request_ref &ref_p)
    {
        check(ref_p.set_by(stepaf_start_with, handle_, params.get()));
    }
    void set_answers(int n, timeout patience = {})
    {
        check(try_set_answers(n, patience).error());
    }
    void destroy()
    {
        check(try_destroy().error());
    }
    void start_on_stream(stepaf_stream_t stream)
    {
        try_start_on_stream(stream).value();
    }
    void start_on_stream(const start_params &params, stepaf_stream_t stream)
    {
        try_start_on_stream(params, stream).value();
    }
    request_ref start_on_stream_request(const start_params &params, stepaf_stream_t stream)
    {
        return try_start_on_stream_request(params, stream).value();
    }
    void wait_on_stream(stepaf_stream_t stream)
    {
        try_wait_on_stream(stream).value();
    }
    void recv_on_stream(stepaf_stream_t stream)
    {
        try_recv_on_stream(stream).value();
    }
    void respond_on_stream(stepaf_stream_t stream, const stepaf_tensor_t *tensors = nullptr)
    {
        try_respond_on_stream(stream, tensors).value();
    }
    tensor_info tensor(unsigned slot, int peer, int index) const
    {
        return try_tensor(slot, peer, index).value();
    }
    /** Throws if a stream plan has failed. */
    void status() const
    {
        try_status().value();
    }
#endif
};

} // namespace stepaf

#endif
