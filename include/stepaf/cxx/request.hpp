/* SPDX-License-Identifier: Apache-2.0 */
/* C++: requests. */
#ifndef STEPAF_CXX_REQUEST_HPP
#define STEPAF_CXX_REQUEST_HPP

#include <stepaf/cxx/span.hpp>
#include <stepaf/request.h>
#include <stepaf/timeline.h>

namespace stepaf
{

/** A request that another object owns, or none: an answer's, or one that has been waited for.
 *  Copies refer to the same request. Valid as long as the C handle; see stepaf_start and
 *  stepaf_respond. */
class request_ref
{
  public:
    constexpr request_ref() noexcept = default;
    explicit constexpr request_ref(stepaf_request_h handle) noexcept : handle_(handle) {}
    constexpr stepaf_request_h get() const noexcept { return handle_; }
    /** Refer to the request that a function of the C API makes: stepaf_start_with, or another whose
     *  last parameter is the request. */
    template <class F, class... Arguments>
    stepaf_status_t set_by(F *make, Arguments... arguments) noexcept
    {
        return make(arguments..., &handle_);
    }

    /** As stepaf_wait. */
    result<void> try_wait(timeout limit = timeout_default) const noexcept
    {
        return detail::outcome::of_wait(stepaf_wait(handle_, limit.count()), limit);
    }
    /** As stepaf_wait_peer. */
    result<void> try_wait_peer(int ffn_rank, timeout limit = timeout_default) const noexcept
    {
        return detail::outcome::of_wait(stepaf_wait_peer(handle_, ffn_rank, limit.count()), limit);
    }
    /** As stepaf_wait_tensor. */
    result<void> try_wait_tensor(int index, timeout limit = timeout_default) const noexcept
    {
        return detail::outcome::of_wait(stepaf_wait_tensor(handle_, index, limit.count()), limit);
    }
    /** As stepaf_wait_push. */
    result<void> try_wait_push(int ffn_rank, timeout limit = timeout_default) const noexcept
    {
        return detail::outcome::of_wait(stepaf_wait_push(handle_, ffn_rank, limit.count()), limit);
    }
    /** As stepaf_wait_rest. */
    result<void> try_wait_rest(timeout limit = timeout_default) const noexcept
    {
        return detail::outcome::of_wait(stepaf_wait_rest(handle_, limit.count()), limit);
    }
    /** As stepaf_request_answers. */
    result<void> try_answers(span<std::uint64_t> mask) const noexcept
    {
        return stepaf_request_answers(handle_, mask.data(), detail::count(mask));
    }
    /** As stepaf_test; STEPAF_INPROGRESS is an error() too. */
    result<void> try_test() const noexcept { return stepaf_test(handle_); }
    /** As stepaf_request_sent. */
    result<void> try_sent() const noexcept { return stepaf_request_sent(handle_); }
    /** As stepaf_request_tensor; STEPAF_INPROGRESS is an error() too. */
    result<tensor_info> try_tensor(int index) const noexcept
    {
        return detail::try_fill<tensor_info>(
            [&](tensor_info *info) { return stepaf_request_tensor(handle_, index, info); });
    }
    /** As stepaf_request_peer. */
    result<void> try_peer(int ffn_rank) const noexcept
    {
        return stepaf_request_peer(handle_, ffn_rank);
    }
    /** As stepaf_timeline_query. */
    result<stepaf_timeline_t> try_timeline(int ffn_rank) const noexcept
    {
        return detail::try_fill<stepaf_timeline_t>([&](stepaf_timeline_t *info) {
            return stepaf_timeline_query(handle_, ffn_rank, info);
        });
    }
    /** As stepaf_request_slot: -1 for none. */
    int slot() const noexcept { return stepaf_request_slot(handle_); }

#if STEPAF_CXX_EXCEPTIONS
    void wait(timeout limit = timeout_default) const
    {
        check(detail::outcome::of_wait(stepaf_wait(handle_, limit.count()), limit));
    }
    void wait_peer(int ffn_rank, timeout limit = timeout_default) const
    {
        check(detail::outcome::of_wait(stepaf_wait_peer(handle_, ffn_rank, limit.count()), limit));
    }
    void wait_tensor(int index, timeout limit = timeout_default) const
    {
        check(detail::outcome::of_wait(stepaf_wait_tensor(handle_, index, limit.count()), limit));
    }
    void wait_push(int ffn_rank, timeout limit = timeout_default) const
    {
        check(detail::outcome::of_wait(stepaf_wait_push(handle_, ffn_rank, limit.count()), limit));
    }
    void wait_rest(timeout limit = timeout_default) const
    {
        check(detail::outcome::of_wait(stepaf_wait_rest(handle_, limit.count()), limit));
    }
    /** Fill @a mask: one bit for each peer whose tensors have arrived. */
    void answers(span<std::uint64_t> mask) const
    {
        check(try_answers(mask).error());
    }
    /** Return whether the request is complete; throws its failure. */
    bool test() const
    {
        return is_done(stepaf_test(handle_));
    }
    /** Return whether the sources may be overwritten. */
    bool sent() const
    {
        return is_done(stepaf_request_sent(handle_));
    }
    /** Describe pull tensor @a index, which has arrived. */
    tensor_info tensor(int index) const
    {
        return try_tensor(index).value();
    }
    /** Return whether FFN rank @a ffn_rank has answered. */
    bool peer(int ffn_rank) const
    {
        return is_done(stepaf_request_peer(handle_, ffn_rank));
    }
    stepaf_timeline_t timeline(int ffn_rank) const
    {
        return try_timeline(ffn_rank).value();
    }

  private:
    static bool is_done(stepaf_status_t status)
    {
        if (status == STEPAF_INPROGRESS)
            return false;
        check(status);
        return true;
    }
#endif

  private:
    stepaf_request_h handle_ = nullptr;
};

namespace detail
{

[[gnu::noinline]] inline void cancel(stepaf_request_h handle)
{
    end_quietly([=] { return stepaf_cancel(handle); });
}

} // namespace detail

/** An operation in flight.
 *
 *  A request that goes out of scope before it has been waited for cancels its operation; detach()
 *  prevents that. A successful wait leaves this object empty and returns a reference for access to
 *  the tensors; a failed wait does neither. */
class [[nodiscard]] request : public detail::owner<stepaf_request_h, detail::cancel>
{
  public:
    using owner::owner;

    /** Give up ownership; the operation continues. */
    [[nodiscard]] request_ref detach() noexcept { return request_ref(take()); }
    /** The same request, which this object still owns. */
    request_ref ref() const noexcept { return request_ref(handle_); }

    /** As stepaf_wait. */
    result<request_ref> try_wait(timeout limit = timeout_default) noexcept
    {
        return ended(detail::outcome::of_wait(stepaf_wait(handle_, limit.count()), limit));
    }
    /** As stepaf_test; STEPAF_INPROGRESS is an error() too. */
    result<request_ref> try_test() noexcept { return ended(stepaf_test(handle_)); }
    /** As stepaf_cancel. The caller still waits for the request, or drops it. */
    result<void> try_cancel() noexcept { return stepaf_cancel(handle_); }
    /** As stepaf_request_slot: -1 for none. */
    int slot() const noexcept { return stepaf_request_slot(handle_); }

#if STEPAF_CXX_EXCEPTIONS
    request_ref wait(timeout limit = timeout_default)
    {
        check(detail::outcome::of_wait(stepaf_wait(handle_, limit.count()), limit));
        return detach();
    }
    /** Return whether the request is complete; then this object is empty. Throws its failure. */
    bool test()
    {
        if (!ref().test())
            return false;
        handle_ = nullptr;
        return true;
    }
    /** Return whether the sources may be overwritten. */
    bool sent() const
    {
        return ref().sent();
    }
    void cancel()
    {
        check(stepaf_cancel(handle_));
    }
#endif

  private:
    result<request_ref> ended(detail::outcome outcome) noexcept
    {
        if (outcome.failed())
            return outcome;
        return detach();
    }
};

/** The first request of several to end. */
struct ended_request {
    int index;
    stepaf_status_t status; /* its result, as for stepaf_wait */
    request_ref ref;        /* for access to its tensors */
};

/** Wait until one of @a requests, of one context, has ended, whether or not it failed. Empty
 *  requests are ignored. The request that has ended is empty afterwards.
 *  @return as for stepaf_wait_any, if no request has ended: STEPAF_ERR_TIMEOUT, STEPAF_ERR_STATE,
 *  STEPAF_ERR_INVALID.
 *
 *  Blocks for at most @a limit. */
inline result<ended_request> try_wait_any(span<request> requests,
                                          timeout limit = timeout_default) noexcept
{
    static_assert(sizeof(request) == sizeof(stepaf_request_h) && std::is_standard_layout_v<request>,
                  "an array of requests is one of handles");
    auto handles = reinterpret_cast<const stepaf_request_h *>(requests.data());
    int index = -1;
    stepaf_status_t status =
        stepaf_wait_any(handles, detail::count(requests), limit.count(), &index);
    if (index < 0)
        return detail::outcome::of_wait(status, limit);
    return ended_request{index, status, requests[static_cast<std::size_t>(index)].detach()};
}

#if STEPAF_CXX_EXCEPTIONS
inline ended_request wait_any(span<request> requests, timeout limit = timeout_default)
{
    return try_wait_any(requests, limit).value();
}
#endif

} // namespace stepaf

#endif
