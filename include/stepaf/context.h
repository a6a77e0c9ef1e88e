/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: a rank's membership in a job, its role and groups, and the collective commit.
 *
 * Thread safety, unless a function says otherwise: calls on one context must not overlap. In a
 * context made with STEPAF_THREADS_MULTIPLE or STEPAF_PROGRESS_THREAD, any thread may call at any
 * time. Different contexts are independent. */
#ifndef STEPAF_CONTEXT_H
#define STEPAF_CONTEXT_H

#include <stepaf/boot.h>
#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which thread makes operations progress. */
typedef enum stepaf_progress_mode {
    STEPAF_PROGRESS_INLINE = 0, /* the caller's thread, while it waits or calls stepaf_progress */
    STEPAF_PROGRESS_THREAD = 1, /* a progress thread; implies STEPAF_THREADS_MULTIPLE */
    STEPAF_PROGRESS_AUTO = 2    /* by the setting STEPAF_PROGRESS (inline unless set) */
} stepaf_progress_mode_t;

/** Which threads may call. */
typedef enum stepaf_threads {
    STEPAF_THREADS_SINGLE = 0,  /* one at a time; calls take no lock */
    STEPAF_THREADS_MULTIPLE = 1 /* any at any time; calls take a spin lock of the context */
} stepaf_threads_t;

enum {
    STEPAF_PARAM_ROLE = 1 << 0,
    STEPAF_PARAM_PROGRESS = 1 << 1,
    STEPAF_PARAM_THREADS = 1 << 2,
    STEPAF_PARAM_SPLIT = 1 << 3,
    STEPAF_PARAM_ALL = (1 << 4) - 1
};

/** Parameters of stepaf_init. Only fields named in @a field_mask are read. */
typedef struct stepaf_params {
    uint64_t field_mask; /* STEPAF_PARAM_*; unknown bits are STEPAF_ERR_INVALID */
    stepaf_role_t role;
    stepaf_progress_mode_t progress;
    stepaf_threads_t threads;
    const char *split; /* as STEPAF_SPLIT, which it overrides: "attn=4,ffn=2[,interleave]"; NULL or
                        * empty: STEPAF_SPLIT */
} stepaf_params_t;

/** Join the job: find the other ranks and agree on roles. Collective, one exchange.
 *
 *  The role comes from the first of these that is given: params->role; the setting STEPAF_ROLE;
 *  params->split; STEPAF_SPLIT; the MPMD application number (0 attention, 1 FFN), unless all ranks
 *  have the same one. The split must be the same on all ranks. If some ranks give their own role,
 *  the number of ranks in each role must still match the split.
 *
 *  If @a boot is NULL, STEPAF_BOOT names the bootstrap. If STEPAF_BOOT is unset, the first match is
 *  used: STEPAF_LOCAL_SIZE (that many processes on this machine; STEPAF_LOCAL_RANK is this one's
 *  rank); STEPAF_MEET or torchrun's variables (TCP); an MPI library in the program (MPI_COMM_WORLD;
 *  MPI must be initialized); PMIx. For MPI and PMIx, libstepaf_mpi or libstepaf_pmix is loaded.
 *  @param boot    NULL selects a bootstrap. Copied. Its @a self belongs to the context until
 *                 finalize, which closes it; on failure @a self remains the caller's.
 *  @param params  NULL for defaults; copied.
 *  @param ctx_p   owned by the caller until stepaf_finalize.
 *  @return STEPAF_OK; STEPAF_ERR_INVALID; STEPAF_ERR_SETTING (a bad value, or a lane without ranks
 *  of both roles); STEPAF_ERR_SPLIT (no role known, numbers that do not add up to the world or a
 *  node, or a role without ranks); STEPAF_ERR_MISMATCH (library versions, map files or settings
 *  that must agree differ; names rank and setting); STEPAF_ERR_BOOT (also if @a boot is NULL and no
 *  launcher started this process, or the library for the launcher cannot be loaded);
 *  STEPAF_ERR_TIMEOUT; STEPAF_ERR_CANCELED (stepaf_set_interrupt); STEPAF_ERR_LIMIT (64 contexts in
 *  a process); STEPAF_ERR_NO_MEMORY. A failure that one rank finds in its own input is reported to
 *  all, and every rank returns a failure.
 *
 *  On failure, nothing is left behind. Any thread. Blocks for at most STEPAF_INIT_TIMEOUT_US. */
STEPAF_API stepaf_status_t stepaf_init(const stepaf_boot_t *boot, const stepaf_params_t *params,
                                       stepaf_context_h *ctx_p);

/** Leave the job, and free everything that belongs to @a ctx: plans, keys, memory, registrations.
 *
 *  Not collective. Peers that still need this rank get STEPAF_ERR_PEER_LOST. Afterwards, no peer on
 *  the node writes to host memory that the caller had registered. The call waits for a write in
 *  progress, for at most a second; a peer that is stopped during a write is logged.
 *
 *  All handles of the context become invalid when the call begins. Calls in progress in other
 *  threads finish first: waits return STEPAF_ERR_HANDLE within about a millisecond, or when the
 *  bootstrap function that they are in returns; a running batch callback is waited for. If one of
 *  these calls does not return within STEPAF_TIMEOUT_US, a message is logged, and what belongs to
 *  the context stays allocated.
 *
 *  Calling this function from a callback of the context has no effect: the call is logged, and
 *  stepaf_last_error is STEPAF_ERR_STATE. An invalid handle, a second call and a handle inherited
 *  by fork are ignored.
 *
 *  Every wait has a deadline. */
STEPAF_API void stepaf_finalize(stepaf_context_h ctx);

/** Return this rank's role; STEPAF_ROLE_AUTO for an invalid handle. Does not block. */
STEPAF_API stepaf_role_t stepaf_role(stepaf_context_h ctx);

/** Return this rank's index in @a group; -1 if this rank is not a member or an argument is invalid.
 *  Does not block. */
STEPAF_API int stepaf_rank(stepaf_context_h ctx, stepaf_group_t group);

/** Return the number of ranks in @a group; -1 if an argument is invalid. Does not block. */
STEPAF_API int stepaf_size(stepaf_context_h ctx, stepaf_group_t group);

/** Return the world rank of member @a rank of @a group; -1 if there is none. Does not block. */
STEPAF_API int stepaf_world_rank(stepaf_context_h ctx, stepaf_group_t group, int rank);

/** Return the number of this rank's peers: the ranks of the other role with which it exchanges
 *  tensors; -1 for an invalid handle.
 *
 *  In a full mesh, the peers are all ranks of the other role. With STEPAF_MESH=lane, attention rank
 *  i and FFN rank f are peers if i and f are equal modulo the number of lanes. Every rank has at
 *  least one peer.
 *
 *  Does not block. */
STEPAF_API int stepaf_n_peers(stepaf_context_h ctx);

/** Return the rank, in the other role's group, of peer @a index (0 .. stepaf_n_peers - 1); -1 if
 *  there is no such peer.
 *
 *  Ranks ascend with the index; in a full mesh they are equal to the index. Everything that is
 *  listed peer by peer (the pulls of a plan, the batches of STEPAF_FROM_EACH) is in this order.
 *
 *  Does not block. */
STEPAF_API int stepaf_peer_rank(stepaf_context_h ctx, int index);

/** Return the index of the peer that is rank @a rank of the other role's group, the inverse of
 *  stepaf_peer_rank; -1 if that rank is not a peer. Does not block. */
STEPAF_API int stepaf_peer_index(stepaf_context_h ctx, int rank);

/** Exchange all addresses: after a commit, the keys, memory and plans that were declared before the
 *  commit can be used.
 *
 *  Collective over the world; one exchange for any number of keys. The first commit takes one or
 *  two more exchanges, in which all ranks agree on their links: both ends of a link use the best
 *  transport that works in both directions. Later commits add or remove keys, memory and plans.
 *  Each commit begins a new epoch, and messages of an older epoch are dropped. Existing plans stay
 *  valid.
 *
 *  A stream plan with peers that are reached through the host requires a progress thread. It must
 *  not be a plan with STEPAF_PLAN_ANY, or one that does not wait for all answers
 *  (stepaf_plan_set_answers). See stepaf_stream(7).
 *  @return STEPAF_OK; STEPAF_ERR_STATE (some rank has an operation in flight or a batch not
 *  released; or nothing has changed on any rank since the last commit); STEPAF_ERR_MISMATCH (a
 *  key's declarations differ, or a receive slice is smaller than what is pushed into it; names key
 *  and ranks); STEPAF_ERR_KEY (a key that is pushed is not declared at an FFN rank of the mesh);
 *  STEPAF_ERR_UNSUPPORTED (a stream plan has peers that are reached through the host, and does not
 *  meet the conditions above; or a setting requests a network device, or a feature of one, that
 *  cannot be used); STEPAF_ERR_SETTING, STEPAF_ERR_TRANSPORT or STEPAF_ERR_NO_TRANSPORT (a
 *  transport cannot be opened, or none reaches a peer); STEPAF_ERR_PEER_LOST; STEPAF_ERR_TIMEOUT;
 *  STEPAF_ERR_BOOT; STEPAF_ERR_CANCELED (stepaf_set_interrupt); STEPAF_ERR_PROTOCOL;
 *  STEPAF_ERR_LIMIT (the adverts of all ranks are too large; this rank is lost to the others);
 *  STEPAF_ERR_NO_MEMORY.
 *
 *  Errors in declarations, and a transport that some rank cannot open, are reported on every rank,
 *  and the previous epoch stays in force. The same holds if a rank is already lost when a later
 *  commit begins; stepaf_commit_with can proceed without the lost rank. After STEPAF_ERR_TIMEOUT,
 *  STEPAF_ERR_CANCELED or STEPAF_ERR_BOOT, after STEPAF_ERR_PEER_LOST in the first commit, and
 *  after a failure to connect or to allocate that follows the exchange, the context can only be
 *  finalized: starts and commits return STEPAF_ERR_STATE.
 *
 *  Blocks for at most STEPAF_COMMIT_TIMEOUT_US; other threads' calls on the context block
 *  meanwhile. */
STEPAF_API stepaf_status_t stepaf_commit(stepaf_context_h ctx);

/** How a commit treats lost ranks. */
typedef enum stepaf_commit_lost {
    STEPAF_COMMIT_REFUSE_LOST = 0, /* fail, and stay in the previous epoch */
    STEPAF_COMMIT_LEAVE_LOST = 1   /* proceed without them */
} stepaf_commit_lost_t;

/** How a commit treats processes that ask to replace lost ranks (STEPAF_MEMBER_ASKS). */
typedef enum stepaf_commit_return {
    STEPAF_COMMIT_KEEP_OUT = 0, /* leave them waiting */
    STEPAF_COMMIT_ADMIT = 1     /* admit them */
} stepaf_commit_return_t;

enum {
    STEPAF_COMMIT_LOST = 1 << 0,
    STEPAF_COMMIT_RETURN = 1 << 1,
    STEPAF_COMMIT_LEAVING = 1 << 2,
    STEPAF_COMMIT_ALL = (1 << 3) - 1
};

/** Parameters of stepaf_commit_with. Only fields named in @a field_mask are read. */
typedef struct stepaf_commit_params {
    uint64_t field_mask;              /* STEPAF_COMMIT_*; unknown bits are STEPAF_ERR_INVALID */
    stepaf_commit_lost_t lost;        /* default: the setting STEPAF_LOST (refuse unless set) */
    stepaf_commit_return_t returning; /* default: STEPAF_RETURN (keep_out unless set) */
    int leaving;                      /* 1: this rank leaves the job by this commit; default: 0 */
} stepaf_commit_params_t;

/** Commit as stepaf_commit does, and change the members of the job as @a params describes.
 *
 *  Lost ranks (from the second commit on): if all surviving ranks pass STEPAF_COMMIT_LEAVE_LOST,
 *  the commit proceeds without the lost ones. All survivors agree on one member list, even if more
 *  ranks die meanwhile, and under any bootstrap. A rank that some declare lost is declared lost by
 *  all. A majority of the previous epoch's members must survive, or exactly half including the
 *  first. If a network partition splits the job, at most one side continues; ranks of the other get
 *  STEPAF_ERR_PEER_LOST. If a survivor does not pass STEPAF_COMMIT_LEAVE_LOST, the commit returns
 *  STEPAF_ERR_PEER_LOST at all survivors, and the previous epoch stays in force. A rank that is
 *  lost during a commit counts as lost after the commit, or as lost before it if the rank had not
 *  yet sent its declarations.
 *
 *  Ranks keep their numbers. Lost ranks remain peers, so counts and indices do not change. A plan's
 *  pulls still name a destination for each lost rank, which is no longer written. Existing plans,
 *  keys and memory stay valid. Starts skip excluded ranks, stepaf_recv does not wait for them, and
 *  their answers are STEPAF_ERR_PEER_LOST, like those of a rank lost during the operation.
 *
 *  Leaving: a leaving rank is a member until this commit completes. Afterwards it is
 *  STEPAF_MEMBER_LEFT and excluded like a lost rank; after STEPAF_OK its context can only be
 *  finalized. Other ranks need no special parameters: they see STEPAF_MEMBER_LEAVES while the
 *  leaving rank waits in its commit, so they know when to commit. No operation is in flight then,
 *  so none is lost.
 *
 *  Replacing a lost rank: the next commit that all members enter with STEPAF_COMMIT_ADMIT admits a
 *  process that asks for the lost rank's place, if the lost rank's peers know that it is lost and
 *  the process's declarations fit. Otherwise the process waits or is rejected, and the commit
 *  proceeds. For the new process this is its first commit, which ends with that of the members. The
 *  process takes over the rank's number and role, uses the keys and plans that it has declared
 *  itself, and takes part in operations from then on. Supported over shared memory, TCP, RDMA verbs
 *  and libfabric (ofi). Not supported over ucx or connections by librdmacm, and not where plans
 *  without STEPAF_PLAN_STREAM use GPU memory.
 *  @param params  NULL for defaults.
 *  @return as for stepaf_commit; also STEPAF_ERR_INVALID; STEPAF_ERR_STATE also if a rank leaves in
 *  the first commit, or is the last one of its role, or the job's ranks cannot contact each other.
 *
 *  After STEPAF_ERR_PEER_LOST, the context can only be finalized if this rank has been declared
 *  lost or too few ranks survive; otherwise it stays usable. Blocks for at most
 *  STEPAF_COMMIT_TIMEOUT_US. */
STEPAF_API stepaf_status_t stepaf_commit_with(stepaf_context_h ctx,
                                              const stepaf_commit_params_t *params);

/** Return the number of successful commits; 0 before the first or for an invalid handle. */
STEPAF_API uint32_t stepaf_epoch(stepaf_context_h ctx);

/** Return the time that STEPAF_TIMEOUT_DEFAULT stands for in @a ctx, in microseconds; -1 for an
 *  invalid handle.
 *
 *  For callers that divide a wait into shorter ones, to check for signals in between.
 *
 *  Does not block. */
STEPAF_API int64_t stepaf_default_timeout_us(stepaf_context_h ctx);

/** Callback that decides whether a waiting call must return: non-zero ends the call. Called in the
 *  thread that waits. Must not call the library, except functions that need no context. */
typedef int (*stepaf_interrupt_cb_t)(void *arg);

/** Set the callback that long calls of this thread ask whether to continue; NULL removes it.
 *
 *  For programs whose signals are handled between calls, such as interpreters, and for programs
 *  that may be told to stop while they start. stepaf_init, stepaf_commit, stepaf_commit_with,
 *  stepaf_barrier and stepaf_map_check call @a callback about every 50 ms while they wait for other
 *  ranks. Once it returns non-zero, the call ends as at its deadline and returns
 *  STEPAF_ERR_CANCELED, unless it has succeeded by then. Other ranks are notified that this one has
 *  abandoned the call, or that it is missing, as far as the bootstrap can tell. Waits for
 *  operations and batches do not call @a callback: they can be called again after a short timeout.
 *
 *  This thread only. Does not block. Cannot fail. */
STEPAF_API void stepaf_set_interrupt(stepaf_interrupt_cb_t callback, void *arg);

/** Wait until every member of @a group has called this function. What this rank has posted is sent
 *  first.
 *
 *  Meanwhile operations make progress and the batch callback is called, as in other waits, if the
 *  bootstrap calls stepaf_boot_advance; the library's own bootstraps do.
 *
 *  The barrier uses the bootstrap until a commit excludes a rank or admits a replacement. From then
 *  on it is an exchange among the members of the epoch, whichever processes they are.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (group); STEPAF_ERR_ROLE (not a
 *  member); STEPAF_ERR_TIMEOUT or, by stepaf_set_interrupt, STEPAF_ERR_CANCELED (among the members:
 *  call again to continue the wait; by the bootstrap: the group's barrier cannot be used until a
 *  commit changes the members); STEPAF_ERR_PEER_LOST (a member of the group was lost before it
 *  called this function; commit without it, see stepaf_commit_with); STEPAF_ERR_STATE (this rank
 *  has left, or another thread has committed meanwhile); STEPAF_ERR_BOOT; STEPAF_ERR_NO_MEMORY.
 *
 *  Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_barrier(stepaf_context_h ctx, stepaf_group_t group,
                                          int64_t timeout_us);

/** Make progress on all operations, and call the batch callback for batches that have arrived.
 *  Required only in inline mode, by a rank that neither waits nor receives for a long time.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_progress(stepaf_context_h ctx);

#ifdef __cplusplus
}
#endif
#endif
