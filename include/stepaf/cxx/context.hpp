/* SPDX-License-Identifier: Apache-2.0 */
/* C++: contexts. */
#ifndef STEPAF_CXX_CONTEXT_HPP
#define STEPAF_CXX_CONTEXT_HPP

#include <stepaf/clock.h>
#include <stepaf/counters.h>
#include <stepaf/cxx/batch.hpp>
#include <stepaf/cxx/memory.hpp>
#include <stepaf/cxx/params.hpp>
#include <stepaf/cxx/plan.hpp>
#include <stepaf/link.h>
#include <stepaf/members.h>
#include <stepaf/verdict.h>

#include <string>

namespace stepaf
{

/** A rank's membership in a job.
 *
 *  A context that goes out of scope leaves the job, as stepaf_finalize does. Objects made from it
 *  then become invalid, and may go out of scope later. Members have the contract, the statuses and
 *  the thread safety of the C function of the same name. */
class context : public detail::owner<stepaf_context_h, stepaf_finalize>
{
  public:
    using owner::owner;

    /** As stepaf_init; @a boot NULL: the bootstrap that stepaf_init selects. */
    static result<context> try_init(const params &how = {},
                                    const stepaf_boot_t *boot = nullptr) noexcept
    {
        return detail::try_make<context>(
            [&](stepaf_context_h *handle) { return stepaf_init(boot, how.get(), handle); });
    }

    stepaf_role_t role() const noexcept { return stepaf_role(handle_); }
    int rank(stepaf_group_t group) const noexcept { return stepaf_rank(handle_, group); }
    int size(stepaf_group_t group) const noexcept { return stepaf_size(handle_, group); }
    int world_rank(stepaf_group_t group, int rank) const noexcept
    {
        return stepaf_world_rank(handle_, group, rank);
    }
    int n_peers() const noexcept { return stepaf_n_peers(handle_); }
    int peer_rank(int index) const noexcept { return stepaf_peer_rank(handle_, index); }
    int peer_index(int rank) const noexcept { return stepaf_peer_index(handle_, rank); }
    std::uint32_t epoch() const noexcept { return stepaf_epoch(handle_); }
    std::int64_t clock_ns() const noexcept { return stepaf_clock_ns(handle_); }
    /** As stepaf_default_timeout_us: the time that timeout_default stands for. */
    std::chrono::microseconds default_timeout() const noexcept
    {
        return std::chrono::microseconds(stepaf_default_timeout_us(handle_));
    }
    const char *transport_name(int rank) const noexcept
    {
        return stepaf_transport_name(handle_, rank);
    }

    result<void> try_key_declare(std::uint64_t key, stepaf_direction_t direction,
                                 std::size_t max_bytes, const key_params &how = {}) noexcept
    {
        return stepaf_key_declare(handle_, key, direction, max_bytes, how.get());
    }
    result<void> try_key_withdraw(std::uint64_t key) noexcept
    {
        return stepaf_key_withdraw(handle_, key);
    }
    /** As stepaf_key_set_recv; @a ranks empty: all peers. */
    result<void> try_key_set_recv(std::uint64_t key, void *buffer, std::size_t bytes,
                                  span<const int> ranks = {}) noexcept
    {
        return stepaf_key_set_recv(handle_, key, buffer, bytes,
                                   ranks.empty() ? nullptr : ranks.data(), detail::count(ranks));
    }
    result<memory> try_alloc(std::size_t bytes, stepaf_mem_kind_t kind = STEPAF_MEM_HOST) noexcept
    {
        void *data;
        stepaf_status_t status = stepaf_alloc(handle_, bytes, kind, &data);
        if (detail::failed(status))
            return status;
        return memory(handle_, data, bytes);
    }
    /** As stepaf_register. The name register is a keyword in C++. */
    result<registration> try_register_memory(void *data, std::size_t bytes) noexcept
    {
        stepaf_status_t status = stepaf_register(handle_, data, bytes);
        if (detail::failed(status))
            return status;
        return registration(handle_, data, bytes);
    }
    result<plan> try_plan_create(span<const tensor> push, span<const tensor> pull,
                                 std::uint32_t flags = 0) noexcept
    {
        return detail::try_make<plan>([&](stepaf_plan_h *handle) {
            return stepaf_plan_create(handle_, push.data(), detail::count(push), pull.data(),
                                      detail::count(pull), flags, handle);
        });
    }
    result<plan> try_plan_create_ffn(span<const std::uint64_t> keys, span<const tensor> answers,
                                     std::uint32_t flags = STEPAF_PLAN_STREAM) noexcept
    {
        return detail::try_make<plan>([&](stepaf_plan_h *handle) {
            return stepaf_plan_create_ffn(handle_, keys.data(), detail::count(keys), answers.data(),
                                          detail::count(answers), flags, handle);
        });
    }
    result<void> try_commit() noexcept { return stepaf_commit(handle_); }
    result<void> try_commit(stepaf_commit_lost_t lost) noexcept
    {
        stepaf_commit_params_t params{STEPAF_COMMIT_LOST, lost, STEPAF_COMMIT_KEEP_OUT, 0};
        return stepaf_commit_with(handle_, &params);
    }
    result<void> try_commit(stepaf_commit_lost_t lost, stepaf_commit_return_t returning) noexcept
    {
        stepaf_commit_params_t params{STEPAF_COMMIT_LOST | STEPAF_COMMIT_RETURN, lost, returning,
                                      0};
        return stepaf_commit_with(handle_, &params);
    }
    result<void> try_leave() noexcept
    {
        stepaf_commit_params_t params{STEPAF_COMMIT_LEAVING, STEPAF_COMMIT_REFUSE_LOST,
                                      STEPAF_COMMIT_KEEP_OUT, 1};
        return stepaf_commit_with(handle_, &params);
    }
    result<void> try_barrier(stepaf_group_t group, timeout limit = timeout_default) noexcept
    {
        return stepaf_barrier(handle_, group, limit.count());
    }
    result<void> try_progress() noexcept { return stepaf_progress(handle_); }
    result<request> try_push_pull(span<const tensor> push, span<const tensor> pull) noexcept
    {
        return detail::try_make<request>([&](stepaf_request_h *handle) {
            return stepaf_push_pull(handle_, push.data(), detail::count(push), pull.data(),
                                    detail::count(pull), handle);
        });
    }
    /** Receive one batch of any attention rank. */
    result<batch> try_recv(timeout limit = timeout_default) noexcept
    {
        int n;
        return detail::try_make<batch>([&](stepaf_batch_h *handle) {
            return detail::outcome::of_wait(
                stepaf_recv(handle_, STEPAF_FROM_ANY, 0, limit.count(), handle, 1, &n), limit);
        });
    }
    /** As stepaf_recv. Batches that are still in @a batches are released first.
     *  @return the number of batches. */
    result<int> try_recv(stepaf_from_t from, span<batch> batches, timeout limit = timeout_default,
                         std::uint32_t flags = 0) noexcept
    {
        int n;
        for (batch &old : batches)
            old.reset();
        stepaf_status_t status = stepaf_recv(handle_, from, flags, limit.count(),
                                             reinterpret_cast<stepaf_batch_h *>(batches.data()),
                                             detail::count(batches), &n);
        if (detail::failed(status))
            return detail::outcome::of_wait(status, limit);
        return n;
    }
    /** Set the batch callback: @a handler, which takes a batch by value and is noexcept, is called
     *  for each batch from now on.
     *  @param handler  remains the caller's; must stay valid until another callback is set. */
    template <class F>
    result<void> try_set_handler(F &handler) noexcept
    {
        static_assert(std::is_nothrow_invocable_v<F &, batch>,
                      "a handler is noexcept: it is called from C");
        return stepaf_batch_set_handler(
            handle_,
            [](stepaf_batch_h arrived, void *arg) { (*static_cast<F *>(arg))(batch(arrived)); },
            &handler);
    }
    /** Remove the batch callback, and return to recv. */
    result<void> try_clear_handler() noexcept
    {
        return stepaf_batch_set_handler(handle_, nullptr, nullptr);
    }
    result<stepaf_counters_t> try_counters() const noexcept
    {
        return detail::try_fill<stepaf_counters_t>(
            [&](stepaf_counters_t *facts) { return stepaf_counters_query(handle_, facts); });
    }
    result<stepaf_verdict_window_t> try_verdict() const noexcept
    {
        return detail::try_fill<stepaf_verdict_window_t>(
            [&](stepaf_verdict_window_t *window) { return stepaf_verdict_query(handle_, window); });
    }
    result<stepaf_verdict_peer_t> try_verdict(int peer_rank) const noexcept
    {
        return detail::try_fill<stepaf_verdict_peer_t>([&](stepaf_verdict_peer_t *peer) {
            return stepaf_verdict_peer(handle_, peer_rank, peer);
        });
    }
    result<stepaf_memory_use_t> try_memory_use() const noexcept
    {
        return detail::try_fill<stepaf_memory_use_t>(
            [&](stepaf_memory_use_t *facts) { return stepaf_memory_query(handle_, facts); });
    }
    result<stepaf_members_t> try_members() const noexcept
    {
        return detail::try_fill<stepaf_members_t>([&](stepaf_members_t *facts) {
            return stepaf_members_query(handle_, facts, nullptr, 0);
        });
    }
    /** As stepaf_members_query: the states of the first world ranks, as many as the span has
     *  elements. */
    result<void> try_member_states(span<stepaf_member_state_t> states) const noexcept
    {
        stepaf_members_t facts{};
        facts.size = sizeof(facts);
        return stepaf_members_query(handle_, &facts, states.data(), detail::count(states));
    }
    /** As stepaf_members_address. */
    result<std::string> try_members_address() const
    {
        char text[1024];
        stepaf_status_t status = stepaf_members_address(handle_, text, sizeof text);
        if (detail::failed(status))
            return status;
        return std::string(text);
    }
    /** As stepaf_members_reason. */
    const char *members_reason(int world_rank) const noexcept
    {
        return stepaf_members_reason(handle_, world_rank);
    }
    /** As stepaf_members_fd. */
    int members_fd() const noexcept { return stepaf_members_fd(handle_); }
    /** As stepaf_members_set_callback. */
    result<void> try_set_members_callback(stepaf_members_cb_t callback, void *arg) noexcept
    {
        return stepaf_members_set_callback(handle_, callback, arg);
    }
    result<stepaf_link_info_t> try_link(int rank) const noexcept
    {
        return detail::try_fill<stepaf_link_info_t>(
            [&](stepaf_link_info_t *info) { return stepaf_link_query(handle_, rank, info); });
    }

#if STEPAF_CXX_EXCEPTIONS
    /** Join the job, as stepaf_init; @a boot NULL: the bootstrap that stepaf_init selects. */
    static context init(const params &how = {}, const stepaf_boot_t *boot = nullptr)
    {
        return try_init(how, boot).value();
    }
    void key_declare(std::uint64_t key, stepaf_direction_t direction, std::size_t max_bytes,
                     const key_params &how = {})
    {
        try_key_declare(key, direction, max_bytes, how).value();
    }
    void key_withdraw(std::uint64_t key)
    {
        try_key_withdraw(key).value();
    }
    void key_set_recv(std::uint64_t key, void *buffer, std::size_t bytes,
                      span<const int> ranks = {})
    {
        try_key_set_recv(key, buffer, bytes, ranks).value();
    }
    memory alloc(std::size_t bytes, stepaf_mem_kind_t kind = STEPAF_MEM_HOST)
    {
        return try_alloc(bytes, kind).value();
    }
    registration register_memory(void *data, std::size_t bytes)
    {
        return try_register_memory(data, bytes).value();
    }
    plan plan_create(span<const tensor> push, span<const tensor> pull, std::uint32_t flags = 0)
    {
        return try_plan_create(push, pull, flags).value();
    }
    plan plan_create_ffn(span<const std::uint64_t> keys, span<const tensor> answers,
                         std::uint32_t flags = STEPAF_PLAN_STREAM)
    {
        return try_plan_create_ffn(keys, answers, flags).value();
    }
    void commit()
    {
        try_commit().value();
    }
    /** @param lost  STEPAF_COMMIT_LEAVE_LOST: proceed without lost ranks. */
    void commit(stepaf_commit_lost_t lost)
    {
        try_commit(lost).value();
    }
    /** @param returning  STEPAF_COMMIT_ADMIT: admit processes that replace lost ranks. */
    void commit(stepaf_commit_lost_t lost, stepaf_commit_return_t returning)
    {
        try_commit(lost, returning).value();
    }
    /** Leave the job by a commit; the other ranks proceed without this one. Afterwards, this
     *  context can only be destroyed. */
    void leave()
    {
        try_leave().value();
    }
    stepaf_members_t members() const
    {
        return try_members().value();
    }
    /** Report the states of the first world ranks, as many as the span has elements. */
    void member_states(span<stepaf_member_state_t> states) const
    {
        try_member_states(states).value();
    }
    std::string members_address() const
    {
        return try_members_address().value();
    }
    void set_members_callback(stepaf_members_cb_t callback, void *arg)
    {
        try_set_members_callback(callback, arg).value();
    }
    void barrier(stepaf_group_t group, timeout limit = timeout_default)
    {
        check(stepaf_barrier(handle_, group, limit.count()));
    }
    void progress()
    {
        try_progress().value();
    }
    request push_pull(span<const tensor> push, span<const tensor> pull)
    {
        return try_push_pull(push, pull).value();
    }
    batch recv(timeout limit = timeout_default)
    {
        int n;
        return detail::make<batch>([&](stepaf_batch_h *handle) {
            return detail::outcome::of_wait(
                stepaf_recv(handle_, STEPAF_FROM_ANY, 0, limit.count(), handle, 1, &n), limit);
        });
    }
    int recv(stepaf_from_t from, span<batch> batches, timeout limit = timeout_default,
             std::uint32_t flags = 0)
    {
        return try_recv(from, batches, limit, flags).value();
    }
    template <class F>
    void set_handler(F &handler)
    {
        try_set_handler(handler).value();
    }
    void clear_handler()
    {
        try_clear_handler().value();
    }
    stepaf_counters_t counters() const
    {
        return try_counters().value();
    }
    stepaf_verdict_window_t verdict() const
    {
        return try_verdict().value();
    }
    stepaf_verdict_peer_t verdict(int peer_rank) const
    {
        return try_verdict(peer_rank).value();
    }
    stepaf_memory_use_t memory_use() const
    {
        return try_memory_use().value();
    }
    stepaf_link_info_t link(int rank) const
    {
        return try_link(rank).value();
    }
#endif
};

} // namespace stepaf

#endif
