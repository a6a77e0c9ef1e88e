/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: a rank's membership in a job, its role and groups, and the collective commit.
 *
 * Thread safety, unless a function says otherwise: calls on one context must not overlap, except
 * in a context made with STEPAF_THREADS_MULTIPLE or STEPAF_PROGRESS_THREAD, where any thread may
 * call at any time. Different contexts are independent. */
#ifndef STEPAF_CONTEXT_H
#define STEPAF_CONTEXT_H

#include <stepaf/boot.h>
#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which thread makes operations progress. */
typedef enum stepaf_progress_mode {
    STEPAF_PROGRESS_INLINE = 0, /* the caller's, while it waits or calls stepaf_progress */
    STEPAF_PROGRESS_THREAD = 1, /* one of the library; implies STEPAF_THREADS_MULTIPLE */
    STEPAF_PROGRESS_AUTO = 2    /* by the setting STEPAF_PROGRESS (inline unless set) */
} stepaf_progress_mode_t;

/** Which threads may call. */
typedef enum stepaf_threads {
    STEPAF_THREADS_SINGLE = 0,  /* one at a time; takes no lock */
    STEPAF_THREADS_MULTIPLE = 1 /* any at any time; takes a spin lock of the context */
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
    const char *split; /* as STEPAF_SPLIT, which it overrides: "attn=4,ffn=2[,interleave]" */
} stepaf_params_t;

/** Join the job: find the other ranks and agree on roles. Collective, one exchange.
 *
 *  The role comes from the first of these that is given: params->role; the setting STEPAF_ROLE;
 *  params->split; STEPAF_SPLIT; the MPMD application number (0 attention, 1 FFN), unless all ranks
 *  have the same. The split must be the same on all ranks. If some ranks give their own role, the
 *  numbers of ranks still have to match the split.
 *  @param boot    copied; its @a self belongs to the context until finalize, which closes it. On
 *                 failure the caller keeps it. NULL: the bootstrap that STEPAF_BOOT names. Unless
 *                 it is set, that is: if STEPAF_LOCAL_SIZE is set, so many processes of this
 *                 machine, which STEPAF_LOCAL_RANK numbers; else, if STEPAF_MEET is set or
 *                 torchrun has started the process, those that meet over TCP; else
 *                 MPI_COMM_WORLD in a program with an MPI library (MPI must be initialized);
 *                 else PMIx. For the latter two, libstepaf_mpi or libstepaf_pmix is loaded.
 *  @param params  NULL for defaults; copied.
 *  @param ctx_p   owned by the caller until stepaf_finalize.
 *  @return STEPAF_OK; STEPAF_ERR_INVALID; STEPAF_ERR_SETTING (a bad value, or a lane without
 *  ranks of both roles); STEPAF_ERR_SPLIT (no role known, numbers that do not add up to the
 *  world or a node, or a role without ranks); STEPAF_ERR_MISMATCH (library versions, map files
 *  or settings that must agree differ; names rank and setting); STEPAF_ERR_BOOT (also if @a boot
 *  is NULL and no launcher started this process, or the library for it cannot be loaded);
 *  STEPAF_ERR_TIMEOUT; STEPAF_ERR_LIMIT (64 contexts in a process); STEPAF_ERR_NO_MEMORY. A
 *  failure that one rank finds in its own input is reported to all, and every rank returns a
 *  failure. Nothing is left behind. Any thread. Blocks for at most STEPAF_INIT_TIMEOUT_US. */
STEPAF_API stepaf_status_t stepaf_init(const stepaf_boot_t *boot, const stepaf_params_t *params,
                                       stepaf_context_h *ctx_p);

/** Leave the job and free everything that belongs to @a ctx: plans, keys, memory, registrations.
 *
 *  Peers that still need this rank get STEPAF_ERR_PEER_LOST. Afterwards no peer on the node
 *  writes to host memory that the caller had registered; a write in progress is waited for, for
 *  at most a second (a peer that is stopped during a write is logged). Not collective; every
 *  wait has a deadline.
 *
 *  From its beginning on all handles of the context are invalid. Where several threads may call,
 *  calls of other threads that are under way end first: those that wait return
 *  STEPAF_ERR_HANDLE within about a millisecond, or when the bootstrap lets them go. A call of the
 *  batch handler is waited for. If one does not return within STEPAF_TIMEOUT_US, that is logged,
 *  and what belongs to the context stays allocated.
 *
 *  The batch handler cannot finalize the context that calls it: that changes nothing, is logged,
 *  and stepaf_last_error is STEPAF_ERR_STATE. An invalid handle is ignored, a second call
 *  therefore, and so is one that a process has inherited from its parent. */
STEPAF_API void stepaf_finalize(stepaf_context_h ctx);

/** Return this rank's role; STEPAF_ROLE_AUTO for an invalid handle. Never blocks. */
STEPAF_API stepaf_role_t stepaf_role(stepaf_context_h ctx);

/** Return this rank's index in @a group; -1 if it is not a member or an argument is invalid. Never
 *  blocks. */
STEPAF_API int stepaf_rank(stepaf_context_h ctx, stepaf_group_t group);

/** Return the number of ranks in @a group; -1 if an argument is invalid. Never blocks. */
STEPAF_API int stepaf_size(stepaf_context_h ctx, stepaf_group_t group);

/** Return the world rank of member @a rank of @a group; -1 if there is none. Never blocks. */
STEPAF_API int stepaf_world_rank(stepaf_context_h ctx, stepaf_group_t group, int rank);

/** Return the number of this rank's peers, the ranks of the other role that it exchanges tensors
 *  with; -1 for an invalid handle.
 *
 *  In a full mesh these are all ranks of the other role. With STEPAF_MESH=lane, attention rank i
 *  and FFN rank f are peers if i and f are equal modulo the number of lanes. Every rank has at
 *  least one. Never blocks. */
STEPAF_API int stepaf_n_peers(stepaf_context_h ctx);

/** Return the rank, in the other role's group, of peer @a index (0 .. stepaf_n_peers - 1); -1 if
 *  there is no such peer.
 *
 *  Ranks ascend with the index; in a full mesh they are equal to it. Everything that is listed
 *  peer by peer (the pulls of a plan, the batches of STEPAF_FROM_EACH) is in this order. Never
 *  blocks. */
STEPAF_API int stepaf_peer_rank(stepaf_context_h ctx, int index);

/** Return the index of the peer that is rank @a rank of the other role's group, the inverse of
 *  stepaf_peer_rank; -1 if it is not a peer. Never blocks. */
STEPAF_API int stepaf_peer_index(stepaf_context_h ctx, int rank);

/** Exchange all addresses: after a commit, the keys, memory and plans that were declared before can
 *  be used.
 *
 *  Collective over the world; one exchange for any number of keys, and at the first commit another
 *  one or two, in which all ranks agree on their links: both ends of a link take the best transport
 *  that works both ways. Further calls add or remove keys, memory and plans: each begins a new
 *  epoch, and messages of an older one are dropped. Existing plans stay valid.
 *  @return STEPAF_OK; STEPAF_ERR_STATE (some rank has an operation in flight or a batch not
 *  released; or nothing has changed on any rank since the last commit); STEPAF_ERR_MISMATCH (a
 *  key's declarations differ, or a receive slice is smaller than what is pushed into it, naming
 *  key and ranks); STEPAF_ERR_KEY (a key that is pushed is not declared at an FFN rank of the
 *  mesh); STEPAF_ERR_UNSUPPORTED (stream plans with peers that are reached through the host,
 *  without a progress thread or beside plans without streams in GPU memory, see
 *  stepaf_stream(7)); STEPAF_ERR_SETTING, STEPAF_ERR_TRANSPORT or STEPAF_ERR_NO_TRANSPORT (a
 *  transport cannot be opened, or none reaches a peer); STEPAF_ERR_PEER_LOST;
 *  STEPAF_ERR_TIMEOUT; STEPAF_ERR_BOOT; STEPAF_ERR_PROTOCOL; STEPAF_ERR_NO_MEMORY. A failure in
 *  what was declared, or of a transport that a rank cannot open, is the same on every rank and
 *  leaves the last epoch in force, and so is a rank that is lost when a later commit begins: see
 *  stepaf_commit_with, which goes on without it. After STEPAF_ERR_TIMEOUT or STEPAF_ERR_BOOT, after
 *  STEPAF_ERR_PEER_LOST in the first commit, and after a failure to connect or to allocate that follows the exchange, the
 *  context can only be finalized: starts and commits are STEPAF_ERR_STATE. Blocks for at most
 *  STEPAF_COMMIT_TIMEOUT_US, and with it other threads' calls on the context. */
STEPAF_API stepaf_status_t stepaf_commit(stepaf_context_h ctx);

/** What a commit does about ranks that are lost. */
typedef enum stepaf_commit_lost {
    STEPAF_COMMIT_REFUSE_LOST = 0, /* refuse, and stay in the epoch before */
    STEPAF_COMMIT_LEAVE_LOST = 1   /* go on without them */
} stepaf_commit_lost_t;

/** What a commit does about processes that ask to take lost ranks' places (STEPAF_MEMBER_ASKS). */
typedef enum stepaf_commit_return {
    STEPAF_COMMIT_KEEP_OUT = 0, /* let them wait */
    STEPAF_COMMIT_ADMIT = 1     /* take them in */
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
    stepaf_commit_lost_t lost;        /* else by the setting STEPAF_LOST (refuse unless set) */
    stepaf_commit_return_t returning; /* else by STEPAF_RETURN (keep_out unless set) */
    int leaving;                      /* 1: this rank leaves the job by this commit; 0 unless set */
} stepaf_commit_params_t;

/** Commit, as stepaf_commit, in a way that @a params describes.
 *
 *  From the second commit on, ranks may be lost. If all that are left say STEPAF_COMMIT_LEAVE_LOST, the
 *  commit goes on without those: all agree on one list of members, even if more ranks die while they do,
 *  and whatever bootstrap has started them. More than half of the members of the epoch before have to be
 *  left, or half of them with the first: of a job whose network is cut in two, one part goes on at most,
 *  and a rank of the other one gets STEPAF_ERR_PEER_LOST. Who has been given up by some is given up by
 *  all.
 *
 *  Ranks keep their numbers, and lost ones stay peers that are lost: counts and indices do not change,
 *  the pulls of a plan still name a destination for each, which is not written any more, and plans, keys
 *  and memory of before go on. A start leaves out the ranks that the epoch goes on without, and
 *  stepaf_recv does not wait for them; the answer of such a rank is STEPAF_ERR_PEER_LOST, as that of
 *  one that is lost in the operation.
 *
 *  A rank that says that it leaves is a member until this commit, and after it out (STEPAF_MEMBER_LEFT), as a
 *  lost one would be; the others need not say anything. They see STEPAF_MEMBER_LEAVES while it waits for them in
 *  its commit, so that they know when to commit. Nothing is in flight then, and so nothing is lost. After STEPAF_OK
 *  its context can only be finalized.
 *
 *  If some rank refuses, the commit is STEPAF_ERR_PEER_LOST at all that are left, and the last epoch stays
 *  in force. A rank that is lost in the middle of a commit is as one that is lost after it, unless it had
 *  not yet told what it declares.
 *  A process that asks to take a lost rank's place is admitted by the next commit that all members enter with
 *  STEPAF_COMMIT_ADMIT, if its peers know that the rank is lost, and what it declares fits; else it waits, or
 *  is turned away, and the commit goes on. It is in its own first commit then, which ends with this one. It has
 *  the rank's number and role, and keys and plans that it has declared itself, and takes part in operations from
 *  then on. That is for shared memory, TCP and RDMA by verbs: not over ofi, ucx or what librdmacm connects, and not
 *  where plans that the host starts use GPU memory.
 *  @param params  NULL for defaults.
 *  @return as stepaf_commit; also STEPAF_ERR_INVALID; STEPAF_ERR_STATE also if a rank leaves in the first commit, or
 *  the last one of its role. After STEPAF_ERR_PEER_LOST the context can only be
 *  finalized if this rank has been given up, or if too few are left; else it goes on. Blocks for at most
 *  STEPAF_COMMIT_TIMEOUT_US. */
STEPAF_API stepaf_status_t stepaf_commit_with(stepaf_context_h ctx,
                                              const stepaf_commit_params_t *params);

/** Return the number of successful commits; 0 before the first or for an invalid handle. */
STEPAF_API uint32_t stepaf_epoch(stepaf_context_h ctx);

/** Return what STEPAF_TIMEOUT_DEFAULT stands for in @a ctx, in microseconds; -1 for an invalid handle.
 *
 *  For callers that cut a wait into shorter ones, to look at signals in between. Never blocks. */
STEPAF_API int64_t stepaf_default_timeout_us(stepaf_context_h ctx);

/** Wait until every member of @a group has called this. What this rank has posted is sent first.
 *
 *  Meanwhile operations make progress and the batch handler is called, as in other waits, if the
 *  bootstrap calls stepaf_boot_advance. The library's own do.
 *  It goes by the bootstrap until a commit goes on without a rank, or takes one back: from then on it is
 *  among the members of the epoch, whichever process they are.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (group); STEPAF_ERR_ROLE (not a
 *  member); STEPAF_ERR_TIMEOUT (among the members, call it again to go on waiting; by the bootstrap,
 *  the group's barrier cannot be used until a commit changes the members); STEPAF_ERR_PEER_LOST (a
 *  member of the group was lost before it called this; commit without it, stepaf_commit_with);
 *  STEPAF_ERR_STATE (this rank has left, or another thread has committed meanwhile); STEPAF_ERR_BOOT;
 *  STEPAF_ERR_NO_MEMORY. Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_barrier(stepaf_context_h ctx, stepaf_group_t group,
                                          int64_t timeout_us);

/** Make progress on all operations, and call the batch handler for batches that have arrived.
 *  Needed only in inline mode, by a rank that neither waits nor receives for a long time.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE. Never blocks. */
STEPAF_API stepaf_status_t stepaf_progress(stepaf_context_h ctx);

#ifdef __cplusplus
}
#endif
#endif
