/* SPDX-License-Identifier: Apache-2.0 */
/* C++: results and exceptions. See stepaf_cxx(7). */
#ifndef STEPAF_CXX_RESULT_HPP
#define STEPAF_CXX_RESULT_HPP

#if __cplusplus < 201703L
#error "stepaf.hpp takes C++17 or newer"
#endif

#include <chrono>
#include <cstdint>
#include <cstring>
#include <ratio>
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
 *  once, and so does a negative duration, such as the time to a deadline that has passed. A
 *  duration that is too long becomes the longest timeout. */
class timeout
{
  public:
    constexpr timeout() noexcept = default;
    explicit constexpr timeout(std::int64_t us) noexcept : us_(us > 0 ? us : 0) {}
    template <class Rep, class Period,
              class = std::enable_if_t<std::is_integral_v<Rep> &&
                                       std::is_convertible_v<std::chrono::duration<Rep, Period>,
                                                             std::chrono::microseconds>>>
    constexpr timeout(std::chrono::duration<Rep, Period> duration) noexcept
        : us_(in_us(duration.count(), std::ratio_divide<Period, std::micro>::num))
    {
    }
    /** The timeout that stands for the setting STEPAF_TIMEOUT_US. */
    static constexpr timeout by_default() noexcept
    {
        timeout made;
        made.us_ = STEPAF_TIMEOUT_DEFAULT;
        return made;
    }
    /** The timeout of the C API: microseconds, or STEPAF_TIMEOUT_DEFAULT. */
    constexpr std::int64_t count() const noexcept { return us_; }

  private:
    template <class Rep>
    static constexpr std::int64_t in_us(Rep n, std::intmax_t factor) noexcept
    {
        if (!(n > 0))
            return 0;
        return static_cast<std::uint64_t>(n) > static_cast<std::uint64_t>(INT64_MAX / factor)
                   ? INT64_MAX
                   : static_cast<std::int64_t>(n) * factor;
    }
    std::int64_t us_ = 0;
};

/** The timeout that stands for the setting STEPAF_TIMEOUT_US. */
inline constexpr timeout timeout_default = timeout::by_default();

namespace detail
{

constexpr bool failed(stepaf_status_t status) noexcept
{
    return __builtin_expect(status != STEPAF_OK, 0) != 0;
}

/** A status, and whether stepaf_last_error describes it: a poll that found nothing is not recorded,
 *  nor is a failure that the C++ layer detects by itself. */
class outcome
{
  public:
    constexpr outcome(stepaf_status_t status) noexcept : code_(status) {}
    /** Of a failure. */
    static constexpr outcome unrecorded(stepaf_status_t status) noexcept
    {
        outcome made(status);
        made.code_ &= ~recorded;
        return made;
    }
    /** Of a wait of the C API for @a limit, which polls if that is 0. */
    static constexpr outcome of_wait(stepaf_status_t status, timeout limit) noexcept
    {
        if (detail::failed(status) && status == STEPAF_ERR_TIMEOUT && limit.count() == 0)
            return unrecorded(status);
        return status;
    }
    constexpr bool failed() const noexcept { return __builtin_expect(code_ != STEPAF_OK, 0) != 0; }
    constexpr stepaf_status_t status() const noexcept
    {
        return static_cast<stepaf_status_t>(code_ < 0 ? code_ | recorded : code_);
    }
    constexpr bool is_recorded() const noexcept { return code_ >= 0 || (code_ & recorded) != 0; }

  private:
    static constexpr int recorded = 1 << 30; /* set in all failures, which are negative */
    int code_;
};

/** For a value that a C function is about to set: the value is not initialized first. */
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

/** End something at the end of a scope. A failure of @a end is ignored: the thread's last failure
 *  stays what it was, which the library keeps in memory that is not const. */
template <class F>
void end_quietly(F &&end) noexcept
{
    const stepaf_error_t kept = *stepaf_last_error();
    if (failed(end()))
        const_cast<stepaf_error_t &>(*stepaf_last_error()) = kept;
}

} // namespace detail

#if STEPAF_CXX_EXCEPTIONS

/** A failure: a copy of stepaf_last_error at the time of the throw. what() is the sentence. */
class error : public std::exception
{
  public:
    /** @param status   of the call that failed.
     *  @param is_poll  stepaf_last_error does not record the status: a poll found nothing. */
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

/** Throw the exception for a status that is not STEPAF_OK. */
[[noreturn, gnu::cold, gnu::noinline]] inline void raise(detail::outcome failure)
{
    stepaf_status_t status = failure.status();
    bool is_poll = !failure.is_recorded();

    switch (status) {
    case STEPAF_ERR_TIMEOUT:
        throw timeout_error(status, is_poll);
    case STEPAF_ERR_PEER_LOST:
        throw peer_lost_error(status, is_poll);
    case STEPAF_ERR_CANCELED:
        throw canceled_error(status, is_poll);
    case STEPAF_ERR_WOULD_BLOCK:
        throw would_block_error(status, is_poll);
    default:
        throw error(status, is_poll);
    }
}

/** Throw unless the status of a C API function is STEPAF_OK. */
inline void check(detail::outcome outcome)
{
    if (outcome.failed())
        raise(outcome);
}

/** The same. @param is_poll  stepaf_last_error does not record it: a poll found nothing. */
inline void check(stepaf_status_t status, bool is_poll)
{
    if (detail::failed(status))
        raise(is_poll ? detail::outcome::unrecorded(status) : detail::outcome(status));
}

#endif

/** A value, or the status that says why there is none.
 *
 *  Every call that throws has a variant that returns a result and does not throw: try_start for
 *  start. As in C, details are in stepaf_last_error. */
template <class T>
class [[nodiscard]] result
{
  public:
    result(stepaf_status_t status) noexcept : outcome_(status) {}
    result(detail::outcome outcome) noexcept : outcome_(outcome) {}
    result(T &&value) noexcept : value_(std::move(value)), outcome_(STEPAF_OK) {}
    /** @param set  sets a T and returns a status. */
    template <class F>
    result(detail::set_by, F &&set) noexcept
        : value_(detail::make_unset<T>()), outcome_(set(value_))
    {
    }

    bool has_value() const noexcept { return !outcome_.failed(); }
    explicit operator bool() const noexcept { return has_value(); }
    /** STEPAF_OK if there is a value. */
    stepaf_status_t error() const noexcept { return outcome_.status(); }
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
        check(outcome_);
        return value_;
    }
    T &&value() &&
    {
        check(outcome_);
        return std::move(value_);
    }
#endif

  private:
    T value_{};
    detail::outcome outcome_;
};

/** A result without a value. */
template <>
class [[nodiscard]] result<void>
{
  public:
    result(stepaf_status_t status) noexcept : outcome_(status) {}
    result(detail::outcome outcome) noexcept : outcome_(outcome) {}
    bool has_value() const noexcept { return !outcome_.failed(); }
    explicit operator bool() const noexcept { return has_value(); }
    stepaf_status_t error() const noexcept { return outcome_.status(); }
#if STEPAF_CXX_EXCEPTIONS
    void value() const
    {
        check(outcome_);
    }
#endif

  private:
    detail::outcome outcome_;
};

} // namespace stepaf

#endif
