/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, and the details of the last failure. */
#ifndef STEPAF_STATUS_H
#define STEPAF_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* No function throws an exception; C++ compilers may rely on it. */
#if defined(__GNUC__)
#define STEPAF_API __attribute__((visibility("default"), nothrow))
#else
#define STEPAF_API
#endif

/** All statuses: enumerator, number, text. 0 is success, failures are negative, "in progress" is
 *  positive. Numbers are part of the ABI and are never reused. */
#define STEPAF_STATUS_MAP(_)                                                                     \
    _(STEPAF_INPROGRESS, 1, "operation still in progress")                                       \
    _(STEPAF_OK, 0, "success")                                                                   \
    _(STEPAF_ERR_INVALID, -1, "invalid argument")                                                \
    _(STEPAF_ERR_HANDLE, -2, "handle is NULL, foreign or no longer valid")                       \
    _(STEPAF_ERR_ROLE, -3, "call is not for a rank of this role")                                \
    _(STEPAF_ERR_STATE, -4, "call is not allowed in this state")                                 \
    _(STEPAF_ERR_KEY, -5, "key is not declared")                                                 \
    _(STEPAF_ERR_SIZE, -6, "tensor does not fit its buffer")                                     \
    _(STEPAF_ERR_UNREGISTERED, -7, "pointer is not in registered memory")                        \
    _(STEPAF_ERR_PULLS, -8, "number of pulls is not a multiple of the number of FFN ranks")      \
    _(STEPAF_ERR_MISMATCH, -9, "ranks disagree")                                                 \
    _(STEPAF_ERR_SPLIT, -10, "split does not describe this job")                                 \
    _(STEPAF_ERR_SETTING, -11, "setting has a bad value")                                        \
    _(STEPAF_ERR_WOULD_BLOCK, -12, "no free buffer slot: the peer still holds the last batches") \
    _(STEPAF_ERR_TIMEOUT, -13, "deadline passed")                                                \
    _(STEPAF_ERR_PEER_LOST, -14, "peer is lost")                                                 \
    _(STEPAF_ERR_CANCELED, -15, "operation was canceled")                                        \
    _(STEPAF_ERR_NO_MEMORY, -16, "out of memory")                                                \
    _(STEPAF_ERR_LIMIT, -17, "a fixed limit of the library is exceeded")                         \
    _(STEPAF_ERR_BOOT, -18, "bootstrap failed")                                                  \
    _(STEPAF_ERR_TRANSPORT, -19, "transport failed")                                             \
    _(STEPAF_ERR_NO_TRANSPORT, -20, "no transport reaches the peer")                             \
    _(STEPAF_ERR_UNSUPPORTED, -21, "not supported by this build or machine")                     \
    _(STEPAF_ERR_PROTOCOL, -22, "peer sent something malformed")

/** Result of every call that can fail. */
typedef enum stepaf_status {
#define STEPAF_STATUS_ENUM(name_, number_, text_) name_ = (number_),
    STEPAF_STATUS_MAP(STEPAF_STATUS_ENUM)
#undef STEPAF_STATUS_ENUM
} stepaf_status_t;

/** All phases of a context or an operation in which a failure can occur: enumerator and text. */
#define STEPAF_PHASE_MAP(_)                                    \
    _(STEPAF_PHASE_NONE, "none")                               \
    _(STEPAF_PHASE_INIT, "init")                               \
    _(STEPAF_PHASE_COMMIT, "commit")                           \
    _(STEPAF_PHASE_START, "start")                             \
    _(STEPAF_PHASE_PUSH, "push")                               \
    _(STEPAF_PHASE_RESPONSE, "waiting for the response")       \
    _(STEPAF_PHASE_RECV, "waiting for a batch")                \
    _(STEPAF_PHASE_RESPOND, "respond")                         \
    _(STEPAF_PHASE_RELEASE, "waiting for the batch's release") \
    _(STEPAF_PHASE_BARRIER, "barrier")                         \
    _(STEPAF_PHASE_FINALIZE, "finalize")

/** Phase of a failure. */
typedef enum stepaf_phase {
#define STEPAF_PHASE_ENUM(name_, text_) name_,
    STEPAF_PHASE_MAP(STEPAF_PHASE_ENUM)
#undef STEPAF_PHASE_ENUM
        STEPAF_PHASE_LAST
} stepaf_phase_t;

#define STEPAF_ERROR_TEXT_MAX 320

/** Details of a failure. Owned by the library, which may append fields. */
typedef struct stepaf_error {
    stepaf_status_t status;
    stepaf_phase_t phase;
    int peer_role;                    /* stepaf_role_t of the peer, or -1 */
    int peer_rank;                    /* rank of the peer within its role's group, or -1 */
    int peer_world_rank;              /* rank of the peer in the world, or -1 */
    char text[STEPAF_ERROR_TEXT_MAX]; /* one sentence, no newline */
} stepaf_error_t;

/** Return the text of @a status.
 *  @param status  any value; unknown values give "unknown status".
 *  @return a literal that is never freed.
 *
 *  Any thread. Does not block. Cannot fail. */
STEPAF_API const char *stepaf_status_text(stepaf_status_t status);

/** Return the name of @a status as spelled in C, such as "STEPAF_ERR_TIMEOUT".
 *  @return a literal that is never freed.
 *
 *  Any thread. Does not block. Cannot fail. */
STEPAF_API const char *stepaf_status_name(stepaf_status_t status);

/** Return the text of @a phase.
 *  @return a literal that is never freed.
 *
 *  Any thread. Does not block. Cannot fail. */
STEPAF_API const char *stepaf_phase_name(stepaf_phase_t phase);

/** Return the details of the most recent failure in the calling thread.
 *
 *  A poll that finds nothing (STEPAF_INPROGRESS, or STEPAF_ERR_TIMEOUT with a timeout of 0) does
 *  not change the details.
 *  @return never NULL; status is STEPAF_OK if no call has failed in this thread. Owned by the
 *  library; overwritten by the thread's next failure.
 *
 *  Any thread. Does not block. Cannot fail. */
STEPAF_API const stepaf_error_t *stepaf_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
