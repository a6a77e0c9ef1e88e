/* SPDX-License-Identifier: Apache-2.0 */
/* C++: memory of a context, and registrations of the caller's memory. */
#ifndef STEPAF_CXX_MEMORY_HPP
#define STEPAF_CXX_MEMORY_HPP

#include <stepaf/cxx/span.hpp>
#include <stepaf/memory.h>

namespace stepaf
{

namespace detail
{

/** A range of memory that is known to a context until @a End. */
template <stepaf_status_t (*End)(stepaf_context_h, void *)>
class range
{
  public:
    range() noexcept = default;
    /** Take ownership of a range that a function of the C API has made. */
    range(stepaf_context_h ctx, void *data, std::size_t bytes) noexcept
        : ctx_(ctx), data_(data), bytes_(bytes)
    {
    }
    range(range &&other) noexcept : range(other.ctx_, other.data_, other.bytes_)
    {
        other.data_ = nullptr;
    }
    range &operator=(range &&other) noexcept
    {
        if (this != &other) {
            reset();
            ctx_ = other.ctx_;
            bytes_ = other.bytes_;
            data_ = std::exchange(other.data_, nullptr);
        }
        return *this;
    }
    range(const range &) = delete;
    range &operator=(const range &) = delete;
    ~range() { reset(); }

    void *data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return data_ != nullptr ? bytes_ : 0; }
    explicit operator bool() const noexcept { return data_ != nullptr; }

    /** The whole range as elements of type @a T. */
    template <class T>
    span<T> as() const noexcept
    {
        return {static_cast<T *>(data_), bytes() / sizeof(T)};
    }
    /** End the range; if that fails, this object still owns it. */
    result<void> try_end() noexcept
    {
        stepaf_status_t status = End(ctx_, data_);
        if (!failed(status))
            data_ = nullptr;
        return status;
    }
    /** End the range, as going out of scope does. A range that the library cannot end, because a
     *  plan uses it, lasts until the context ends. */
    void reset() noexcept
    {
        if (data_ != nullptr)
            end_quietly([this] { return End(ctx_, std::exchange(data_, nullptr)); });
    }
#if STEPAF_CXX_EXCEPTIONS
    void end()
    {
        check(try_end().error());
    }
#endif

  private:
    stepaf_context_h ctx_ = nullptr;
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
};

} // namespace detail

/** Memory from stepaf_alloc; end() is stepaf_free. */
using memory = detail::range<stepaf_free>;

/** A registration by stepaf_register; end() is stepaf_deregister. If a plan may still use the
 *  memory at the end, the memory must outlive the context: declare the memory before the
 *  context. */
using registration = detail::range<stepaf_deregister>;

} // namespace stepaf

#endif
