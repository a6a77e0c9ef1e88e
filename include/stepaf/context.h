/* SPDX-License-Identifier: Apache-2.0 */
/* The context: a rank's membership in a job, its role, its groups, and the collective commit.
 *
 * Thread safety, unless a function says otherwise: calls on one context must not overlap, except
 * in a context made with threads = STEPAF_THREADS_MULTIPLE, where any thread may call at any
 * time. Different contexts are independent. */
#ifndef STEPAF_CONTEXT_H
#define STEPAF_CONTEXT_H

#include <stepaf/boot.h>
#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Who makes operations advance. */
typedef enum stepaf_progress_mode {
    STEPAF_PROGRESS_INLINE = 0, /* the thread that waits or calls stepaf_progress */
    STEPAF_PROGRESS_THREAD = 1, /* a thread of the library's; implies THREADS_MULTIPLE */
    STEPAF_PROGRESS_AUTO = 2    /* by the setting STEPAF_PROGRESS (inline unless set) */
} stepaf_progress_mode_t;

/** How many threads call. */
typedef enum stepaf_threads {
    STEPAF_THREADS_SINGLE = 0,  /* one at a time: no lock on the hot path */
    STEPAF_THREADS_MULTIPLE = 1 /* any at any time: a spin lock per context */
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
    const char *split; /* as STEPAF_SPLIT, and stronger than it: "attn=4,ffn=2[,interleave]" */
} stepaf_params_t;

/** Join the job: find the other ranks and agree on roles. Collective, one exchange.
 *
 *  The role comes from, in order: params->role, the environment's STEPAF_ROLE, params->split,
 *  STEPAF_SPLIT, the MPMD application number (0 attention, 1 FFN; of no use where all ranks have
 *  the same). The split has to be the same on all ranks. Where some ranks say their own role, the
 *  counts still have to be the split's.
 *  @param boot    copied; its @a self belongs to the context until finalize, which closes it. On
 *                 failure the caller keeps it. NULL: that of whatever has launched the process, as
 *                 STEPAF_BOOT says: where STEPAF_LOCAL_SIZE is set, that many processes of this
 *                 machine, each told its number by STEPAF_LOCAL_RANK; else MPI_COMM_WORLD in a
 *                 program that has an MPI library (MPI must be initialized), else PMIx.
 *                 libstepaf_mpi or libstepaf_pmix is loaded for those.
 *  @param params  NULL for defaults.
 *  @return STEPAF_OK; STEPAF_ERR_INVALID; STEPAF_ERR_SETTING (a bad value, or lanes without a
 *  rank of both roles); STEPAF_ERR_SPLIT (no role known, counts that do not add up to the world or
 *  a node, or a role with no rank); STEPAF_ERR_MISMATCH (library versions, map files or settings
 *  that must agree differ, naming rank and setting); STEPAF_ERR_BOOT (among others, @a boot is NULL
 *  and nothing has launched this process, or the library for it cannot be loaded);
 *  STEPAF_ERR_TIMEOUT; STEPAF_ERR_LIMIT (64 contexts a process); STEPAF_ERR_NO_MEMORY. A failure
 *  that one rank finds in its own input is told to all, and every rank returns a failure. Nothing
 *  is left behind.
 *  Any thread. Blocks for at most STEPAF_INIT_TIMEOUT_US. */
STEPAF_API stepaf_status_t stepaf_init(const stepaf_boot_t *boot, const stepaf_params_t *params,
                                       stepaf_context_h *ctx_p);

/** Leave the job and free everything of @a ctx: plans, keys, memory, registrations. Peers that
 *  still need this rank get STEPAF_ERR_PEER_LOST. Host memory that the caller had registered is
 *  its own again then, and no peer on the node writes to it any more: one that is writing is
 *  waited for, for a second at most (a peer that is stopped in the midst of it is logged). Not
 *  collective; never hangs. A NULL or invalid handle is ignored, and so is one that a process has from
 *  its parent. */
STEPAF_API void stepaf_finalize(stepaf_context_h ctx);

/** Return this rank's role; STEPAF_ROLE_AUTO for an invalid handle. Never blocks. */
STEPAF_API stepaf_role_t stepaf_role(stepaf_context_h ctx);

/** Return this rank's index in @a group: its instance index where the group is its role's own;
 *  -1 if it is not a member or an argument is invalid. Never blocks. */
STEPAF_API int stepaf_rank(stepaf_context_h ctx, stepaf_group_t group);

/** Return the number of ranks in @a group; -1 if an argument is invalid. Never blocks. */
STEPAF_API int stepaf_size(stepaf_context_h ctx, stepaf_group_t group);

/** Return the world rank of member @a rank of @a group; -1 if there is none. Never blocks. */
STEPAF_API int stepaf_world_rank(stepaf_context_h ctx, stepaf_group_t group, int rank);

/** Return how many ranks of the other role this one talks to: its peers. In a full mesh that is all
 *  of them; with STEPAF_MESH=lane, attention rank i and FFN rank f are peers if i and f, modulo the
 *  number of lanes, are the same. Every rank has at least one. -1 for an invalid handle. Never
 *  blocks. */
STEPAF_API int stepaf_n_peers(stepaf_context_h ctx);

/** Return the rank, in the other role's group, of peer @a index (0 .. stepaf_n_peers - 1), ascending;
 *  in a full mesh that is @a index itself. Wherever something is asked for or listed peer by peer
 *  (a plan's pulls, the batches of STEPAF_FROM_EACH), it is in this order. -1 if there is no such
 *  peer. Never blocks. */
STEPAF_API int stepaf_peer_rank(stepaf_context_h ctx, int index);

/** Return the index of the peer that is rank @a rank of the other role's group: the opposite of
 *  stepaf_peer_rank. -1 if this rank does not talk to it. Never blocks. */
STEPAF_API int stepaf_peer_index(stepaf_context_h ctx, int rank);

/** Exchange all addresses: after it, declared keys, registered memory and plans can be used.
 *
 *  Collective over the world, one exchange however many keys. May be called again, to add
 *  or remove keys, memory and plans: each call begins a new epoch, and what still arrives from an
 *  older one is dropped. Existing plans stay valid.
 *  @return STEPAF_OK; STEPAF_ERR_STATE (some rank has an operation in flight or a batch not
 *  released; or nothing has changed on any rank since the last commit); STEPAF_ERR_MISMATCH (a
 *  key's declarations differ, or a receive slice is smaller than what is pushed into it, naming
 *  key and ranks); STEPAF_ERR_KEY (a key that is pushed is not declared at an FFN rank of the mesh);
 *  STEPAF_ERR_UNSUPPORTED (stream plans that go by way of the host, without the library's thread or
 *  beside plans of the host's with tensors in GPU memory, see stepaf/stream.h);
 *  STEPAF_ERR_SETTING, STEPAF_ERR_TRANSPORT or STEPAF_ERR_NO_TRANSPORT (a transport cannot be opened, or
 *  none reaches a peer); STEPAF_ERR_PEER_LOST; STEPAF_ERR_TIMEOUT; STEPAF_ERR_BOOT;
 *  STEPAF_ERR_PROTOCOL; STEPAF_ERR_NO_MEMORY. A verdict on what was declared, or on a transport that a
 *  rank cannot open, is the same on every rank and leaves the last epoch in force. After PEER_LOST,
 *  TIMEOUT or BOOT, or where connecting to the peers has failed or memory run out once all ranks had met,
 *  the context can only be finalized: starts and commits are STEPAF_ERR_STATE.
 *  Blocks for at most STEPAF_COMMIT_TIMEOUT_US, and with it other threads' calls on the context. */
STEPAF_API stepaf_status_t stepaf_commit(stepaf_context_h ctx);

/** Return the number of successful commits; 0 before the first or for an invalid handle. */
STEPAF_API uint32_t stepaf_epoch(stepaf_context_h ctx);

/** Wait until every member of @a group has called this. What this rank has posted goes out first.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (group); STEPAF_ERR_ROLE (not a
 *  member); STEPAF_ERR_TIMEOUT or STEPAF_ERR_PEER_LOST (the group's barrier cannot be used
 *  again); STEPAF_ERR_BOOT. Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_barrier(stepaf_context_h ctx, stepaf_group_t group,
                                          int64_t timeout_us);

/** Advance whatever can advance, and call the batch handler for what has arrived.
 *  Only needed in inline mode by a rank that neither waits nor receives for a long time.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE. Never blocks. */
STEPAF_API stepaf_status_t stepaf_progress(stepaf_context_h ctx);

#ifdef __cplusplus
}
#endif
#endif
