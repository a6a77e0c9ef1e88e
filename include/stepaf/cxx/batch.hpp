/* SPDX-License-Identifier: Apache-2.0 */
/* C++: batches, on FFN ranks. */
#ifndef STEPAF_CXX_BATCH_HPP
#define STEPAF_CXX_BATCH_HPP

#include <stepaf/batch.h>
#include <stepaf/cxx/request.hpp>

namespace stepaf
{

namespace detail
{

[[gnu::noinline]] inline void release(stepaf_batch_h handle)
{
    end_quietly([=] { return stepaf_release(handle); });
}

} // namespace detail

/** One operation of one attention rank, as it arrived.
 *
 *  A batch that goes out of scope is released; if it expects answers and has none, its operation is
 *  canceled at the attention rank. An answer also releases the batch, unless its flags are 0, and
 *  leaves this object empty. A release leaves this object empty whether or not it succeeds. */
class [[nodiscard]] batch : public detail::owner<stepaf_batch_h, detail::release>
{
  public:
    using owner::owner;

    /** As stepaf_batch_query. */
    result<stepaf_batch_info_t> try_query() const noexcept
    {
        return detail::try_fill<stepaf_batch_info_t>(
            [&](stepaf_batch_info_t *info) { return stepaf_batch_query(handle_, info); });
    }
    /** As stepaf_batch_tensor. */
    result<tensor_info> try_tensor(int index) const noexcept
    {
        return detail::try_fill<tensor_info>(
            [&](tensor_info *info) { return stepaf_batch_tensor(handle_, index, info); });
    }
    /** As stepaf_batch_answer. */
    result<tensor_info> try_answer(int index) const noexcept
    {
        return detail::try_fill<tensor_info>(
            [&](tensor_info *info) { return stepaf_batch_answer(handle_, index, info); });
    }
    /** As stepaf_respond, without a request. */
    result<void> try_respond(span<const tensor> tensors,
                             std::uint32_t flags = STEPAF_RESPOND_RELEASE) noexcept
    {
        stepaf_status_t status =
            stepaf_respond(handle_, tensors.data(), detail::count(tensors), flags, nullptr);
        if (!detail::failed(status) && (flags & STEPAF_RESPOND_RELEASE))
            handle_ = nullptr;
        return status;
    }
    /** As stepaf_respond, with the request to wait for before the sources are overwritten. */
    result<request_ref> try_respond_request(span<const tensor> tensors,
                                            std::uint32_t flags = STEPAF_RESPOND_RELEASE) noexcept
    {
        stepaf_request_h handle;
        stepaf_status_t status =
            stepaf_respond(handle_, tensors.data(), detail::count(tensors), flags, &handle);
        if (detail::failed(status))
            return status;
        if (flags & STEPAF_RESPOND_RELEASE)
            handle_ = nullptr;
        return request_ref(handle);
    }
    /** As stepaf_respond_tensor; the batch must still be answered. */
    result<void> try_respond_tensor(int index, const stepaf_tensor_t &source) noexcept
    {
        return stepaf_respond_tensor(handle_, index, &source);
    }
    /** As stepaf_confirm. */
    result<void> try_confirm() noexcept { return stepaf_confirm(handle_); }
    /** As stepaf_release. */
    result<void> try_release() noexcept { return stepaf_release(detach()); }

#if STEPAF_CXX_EXCEPTIONS
    stepaf_batch_info_t query() const
    {
        return *filled(try_query());
    }
    /** Describe pushed tensor @a index; its data is in the receive buffer, until the release. */
    tensor_info tensor(int index) const
    {
        return detail::fill<tensor_info>(
            [&](tensor_info *info) { return stepaf_batch_tensor(handle_, index, info); });
    }
    /** Describe expected answer @a index; its data is NULL. */
    tensor_info answer(int index) const
    {
        return detail::fill<tensor_info>(
            [&](tensor_info *info) { return stepaf_batch_answer(handle_, index, info); });
    }
    void respond(span<const stepaf_tensor_t> tensors, std::uint32_t flags = STEPAF_RESPOND_RELEASE)
    {
        check(stepaf_respond(handle_, tensors.data(), detail::count(tensors), flags, nullptr));
        if (flags & STEPAF_RESPOND_RELEASE)
            handle_ = nullptr;
    }
    request_ref respond_request(span<const stepaf_tensor_t> tensors,
                                std::uint32_t flags = STEPAF_RESPOND_RELEASE)
    {
        stepaf_request_h handle;
        check(stepaf_respond(handle_, tensors.data(), detail::count(tensors), flags, &handle));
        if (flags & STEPAF_RESPOND_RELEASE)
            handle_ = nullptr;
        return request_ref(handle);
    }
    /** Send tensor @a index of the answer before the others; the batch must still be answered. */
    void respond_tensor(int index, const stepaf_tensor_t &source)
    {
        check(stepaf_respond_tensor(handle_, index, &source));
    }
    /** Confirm to the attention rank that the push has arrived. */
    void confirm()
    {
        check(stepaf_confirm(handle_));
    }
    void release()
    {
        check(stepaf_release(detach()));
    }

  private:
    template <class R>
    static R &&filled(R &&outcome)
    {
        check(outcome.error());
        return std::forward<R>(outcome);
    }
#endif
};

static_assert(sizeof(batch) == sizeof(stepaf_batch_h) && std::is_standard_layout_v<batch>,
              "an array of batches is one of handles");

/** Answer @a batches with consecutive row slices of @a tensors, as stepaf_respond_many. If @a flags
 *  release the batches, those that are answered are empty afterwards.
 *  @param rows     number of rows for each batch; empty: as many as its first pushed tensor has.
 *  @param results  a result for each batch.
 *  @return as for stepaf_respond_many; STEPAF_ERR_INVALID also if the numbers of elements differ.
 *
 *  Does not block. */
inline result<void> try_respond_many(span<batch> batches, span<const tensor> tensors,
                                     span<const std::uint32_t> rows, span<stepaf_status_t> results,
                                     std::uint32_t flags = STEPAF_RESPOND_RELEASE) noexcept
{
    if (results.size() != batches.size() || (!rows.empty() && rows.size() != batches.size()))
        return detail::outcome::unrecorded(STEPAF_ERR_INVALID);
    for (stepaf_status_t &one : results)
        one = STEPAF_INPROGRESS; /* if nothing is sent, the C function writes no results */
    stepaf_status_t status =
        stepaf_respond_many(reinterpret_cast<const stepaf_batch_h *>(batches.data()),
                            detail::count(batches), tensors.data(), detail::count(tensors),
                            rows.empty() ? nullptr : rows.data(), flags, results.data());
    for (std::size_t i = 0; i < batches.size(); i++)
        if (results[i] == STEPAF_OK && (flags & STEPAF_RESPOND_RELEASE))
            (void)batches[i].detach();
    return status;
}

#if STEPAF_CXX_EXCEPTIONS
/** As try_respond_many, but throws the first failure; @a results has one result for each batch. */
inline void respond_many(span<batch> batches, span<const tensor> tensors,
                         span<const std::uint32_t> rows, span<stepaf_status_t> results,
                         std::uint32_t flags = STEPAF_RESPOND_RELEASE)
{
    try_respond_many(batches, tensors, rows, results, flags).value();
}
#endif

} // namespace stepaf

#endif
