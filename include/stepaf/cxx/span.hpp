/* SPDX-License-Identifier: Apache-2.0 */
/* C++: views of memory, and tensors. */
#ifndef STEPAF_CXX_SPAN_HPP
#define STEPAF_CXX_SPAN_HPP

#include <cstddef>
#include <iterator>
#include <type_traits>
#if __cplusplus > 201703L && __has_include(<span>)
#include <span>
#endif

#include <stepaf/cxx/result.hpp>

namespace stepaf
{

#if defined(__cpp_lib_span)

/** A view of consecutive elements: std::span from C++20 on. */
template <class T>
using span = std::span<T>;

#else

/** A view of consecutive elements: the part of std::span that this API needs, which C++17 lacks. */
template <class T>
class span
{
  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;

    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <std::size_t N>
    constexpr span(T (&array)[N]) noexcept : data_(array), size_(N)
    {
    }
    /** Of any container that has data() and size(): vector, array, another span. */
    template <class C, class U = std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>,
              class = std::enable_if_t<std::is_convertible_v<U (*)[], T (*)[]>>>
    constexpr span(C &&container) noexcept
        : data_(std::data(container)), size_(std::size(container))
    {
    }
    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const noexcept { return data_[i]; }
    constexpr T &front() const noexcept { return data_[0]; }
    constexpr T &back() const noexcept { return data_[size_ - 1]; }
    constexpr span first(std::size_t n) const noexcept { return {data_, n}; }
    constexpr span last(std::size_t n) const noexcept { return {data_ + (size_ - n), n}; }
    constexpr span subspan(std::size_t offset) const noexcept
    {
        return {data_ + offset, size_ - offset};
    }
    constexpr span subspan(std::size_t offset, std::size_t n) const noexcept
    {
        return n == static_cast<std::size_t>(-1) ? subspan(offset) : span(data_ + offset, n);
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

#endif

/** A tensor that the caller passes. */
using tensor = stepaf_tensor_t;

/** Return the tensor of @a key whose bytes are in @a data: a span, a vector or an array, in
 *  registered memory. The data of a pull must not be const. Any thread. Does not block. Cannot
 *  fail. */
template <class C>
tensor make_tensor(std::uint64_t key, C &&data) noexcept
{
    using element = std::remove_pointer_t<decltype(std::data(data))>;
    static_assert(std::is_trivially_copyable_v<element>, "a tensor is plain bytes");
    return {key, const_cast<std::remove_const_t<element> *>(std::data(data)),
            std::size(data) * sizeof(element)};
}

/** A tensor that the library describes. */
struct tensor_info : stepaf_tensor_info_t {
    tensor_info() noexcept { size = sizeof(stepaf_tensor_info_t); }

    /** The elements as @a T, without an incomplete one at the end. Host memory. */
    template <class T>
    span<T> as() const noexcept
    {
        return {static_cast<T *>(data), bytes / sizeof(T)};
    }
    /** The sizes of its dimensions. */
    template <class T = const std::int64_t>
    span<T> dims() const noexcept
    {
        return {shape, static_cast<std::size_t>(ndim)};
    }
};

namespace detail
{

/** The count for a C function. A count too large for an int exceeds every limit of the library. */
template <class S>
constexpr int count(const S &elements) noexcept
{
    return elements.size() > 0x7fffffff ? -1 : static_cast<int>(elements.size());
}

/** A handle of the C API that its owner ends with @a End. Movable; empty after the move. */
template <class Handle, void (*End)(Handle)>
class owner
{
  public:
    constexpr owner() noexcept : handle_(nullptr) {}
    /** Take ownership of a handle of the C API. */
    explicit constexpr owner(Handle handle) noexcept : handle_(handle) {}
    explicit owner(unset) noexcept {}
    owner(owner &&other) noexcept : handle_(other.take()) {}
    owner &operator=(owner &&other) noexcept
    {
        Handle handle = other.take();
        reset();
        handle_ = handle;
        return *this;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner() { reset(); }

    /** The handle, for functions of the C API; NULL if this is empty. */
    constexpr Handle get() const noexcept { return handle_; }
    explicit constexpr operator bool() const noexcept { return handle_ != nullptr; }
    /** End the owned handle, if there is one. */
    void reset() noexcept
    {
        if (handle_ != nullptr)
            End(take());
    }
    /** Give ownership of the handle to the caller. */
    [[nodiscard]] constexpr Handle detach() noexcept { return take(); }

  protected:
    constexpr Handle take() noexcept
    {
        Handle handle = handle_;
        handle_ = nullptr;
        return handle;
    }
    friend struct access;
    Handle handle_;
};

/** Owners of handles that a C function makes. The function writes the handle directly into the
 *  owner: a copy in a register would cost an instruction. */
struct access {
    /** @param make  writes a handle to its argument, and returns a status. */
    template <class Owner, class F>
    [[gnu::always_inline]] static outcome set(Owner &made, F &&make) noexcept
    {
        outcome status = make(&made.handle_);
        if (status.failed())
            made.handle_ = nullptr;
        return status;
    }
};

template <class Owner, class F>
[[gnu::always_inline]] inline result<Owner> try_make(F &&make) noexcept
{
    return {set_by{}, [&](Owner &made) { return access::set(made, make); }};
}

/** Describe something with a C function that fills a structure. */
template <class T, class F>
[[gnu::always_inline]] inline result<T> try_fill(F &&fill) noexcept
{
    return {set_by{}, [&](T &facts) {
                facts.size = sizeof(facts);
                return fill(&facts);
            }};
}

#if STEPAF_CXX_EXCEPTIONS
template <class Owner, class F>
[[gnu::always_inline]] inline Owner make(F &&make)
{
    Owner made{unset{}};
    check(access::set(made, make));
    return made;
}

template <class T, class F>
[[gnu::always_inline]] inline T fill(F &&fill)
{
    T facts;
    facts.size = sizeof(facts);
    check(fill(&facts));
    return facts;
}
#endif
} // namespace detail
} // namespace stepaf

#endif
