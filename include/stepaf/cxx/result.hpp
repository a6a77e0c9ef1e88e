/* SPDX-License-Identifier: Apache-2.0 */
/* C++: results and exceptions. See stepaf_cxx(7). */
#ifndef STEPAF_CXX_RESULT_HPP
#define STEPAF_CXX_RESULT_HPP

#if __cplusplus < 201703L
#error "stepaf.hpp takes C++17 or newer"
#endif

#include <chrono>
#include <cstring>
#include <type_traits>
#include <utility>

#include <stepaf/types.h>

#if defined(__cpp_exceptions)
#define STEPAF_CXX_EXCEPTIONS 1
#include <exception>
#else
#define STEPAF_CXX_EXCEPTIONS 0
#endif

namespace stepaf
{

/** A timeout. Any std::chrono duration of whole microseconds or coarser converts to it. 0 polls
 *  once. */
using timeout = std::chrono::microseconds;

/** The timeout that stands for the setting STEPAF_TIMEOUT_US. */
inline constexpr timeout timeout_default{STEPAF_TIMEOUT_DEFAULT};

namespace detail
{

constexpr bool failed(stepaf_status_t status) noexcept
{
    return __builtin_expect(status != STEPAF_OK, 0) != 0;
}

/** For a value that a C function is about to set: it is not initialized first. */
struct unset {
};

template <class T>
T make_unset() noexcept
{
    if constexpr (std::is_constructible_v<T, unset>)
        return T(unset{});
    else
        return T();
}

/** For a result whose value a function sets in place. */
struct set_by {
};

} // namespace detail

#if STEPAF_CXX_EXCEPTIONS

/** A failure: a copy of stepaf_last_error at the time of the throw. what() is the sentence. */
class error : public std::exception
{
  public:
    /** @param status   of the call that failed.
     *  @param is_poll  the call was a poll that found nothing, which stepaf_last_error does not
     *                  record. */
    explicit error(stepaf_status_t status, bool is_poll = false) noexcept
    {
        const stepaf_error_t *last = stepaf_last_error();
        if (!is_poll && last->status == status) {
            details_ = *last;
            return;
        }
        details_ = {status, STEPAF_PHASE_NONE, -1, -1, -1, {}};
        std::strncpy(details_.text, stepaf_status_text(status), sizeof(details_.text) - 1);
    }
    const char *what() const noexcept override { return details_.text; }
    stepaf_status_t status() const noexcept { return details_.status; }
    stepaf_phase_t phase() const noexcept { return details_.phase; }
    /** Rank of the peer within its role's group, or -1. */
    int peer_rank() const noexcept { return details_.peer_rank; }
    const stepaf_error_t &details() const noexcept { return details_; }

  private:
    stepaf_error_t details_;
};

/** STEPAF_ERR_TIMEOUT: the caller can wait again. */
class timeout_error : public error
{
    using error::error;
};

/** STEPAF_ERR_PEER_LOST. */
class peer_lost_error : public error
{
    using error::error;
};

/** STEPAF_ERR_CANCELED. */
class canceled_error : public error
{
    using error::error;
};

/** STEPAF_ERR_WOULD_BLOCK. */
class would_block_error : public error
{
    using error::error;
};

/** Throw the exception for @a status, which is not STEPAF_OK. */
[[noreturn, gnu::cold, gnu::noinline]] inline void raise(stepaf_status_t status,
                                                         bool is_poll = false)
{
    switch (status) {
    case STEPAF_ERR_TIMEOUT:
        throw timeout_error(status, is_poll);
    case STEPAF_ERR_PEER_LOST:
        throw peer_lost_error(status);
    case STEPAF_ERR_CANCELED:
        throw canceled_error(status);
    case STEPAF_ERR_WOULD_BLOCK:
        throw would_block_error(status);
    default:
        throw error(status);
    }
}

/** Throw unless @a status, of a function of the C API, is STEPAF_OK. */
inline void check(stepaf_status_t status, bool is_poll = false)
{
    if (detail::failed(status))
        raise(status, is_poll);
}

#endif

/** A value, or the status that says why there is none. Every call that throws has a variant that
 *  returns a result and does not throw: try_start for start. Details are in stepaf_last_error, as
 *  in C. */
template <class T>
class [[nodiscard]] result
{
  public:
    result(stepaf_status_t status) noexcept : status_(status) {}
    result(T &&value) noexcept : value_(std::move(value)), status_(STEPAF_OK) {}
    /** @param set  sets a T and returns a status. */
    template <class F>
    result(detail::set_by, F &&set) noexcept : value_(detail::make_unset<T>()), status_(set(value_))
    {
    }

    bool has_value() const noexcept { return status_ == STEPAF_OK; }
    explicit operator bool() const noexcept { return has_value(); }
    /** STEPAF_OK if there is a value. */
    stepaf_status_t error() const noexcept { return status_; }
    /** The value; only if there is one. */
    T &operator*() &noexcept { return value_; }
    const T &operator*() const &noexcept { return value_; }
    T &&operator*() &&noexcept { return std::move(value_); }
    T *operator->() noexcept { return &value_; }
    const T *operator->() const noexcept { return &value_; }
#if STEPAF_CXX_EXCEPTIONS
    /** The value. Throws the exception of error() if there is none. */
    T &value() &
    {
        check(status_);
        return value_;
    }
    T &&value() &&
    {
        check(status_);
        return std::move(value_);
    }
#endif

  private:
    T value_{};
    stepaf_status_t status_;
};

/** A result without a value. */
template <>
class [[nodiscard]] result<void>
{
  public:
    result(stepaf_status_t status) noexcept : status_(status) {}
    bool has_value() const noexcept { return status_ == STEPAF_OK; }
    explicit operator bool() const noexcept { return has_value(); }
    stepaf_status_t error() const noexcept { return status_; }
#if STEPAF_CXX_EXCEPTIONS
    void value() const
    {
        check(status_);
    }
#endif

  private:
    stepaf_status_t status_;
};

} // namespace stepaf

#endif
