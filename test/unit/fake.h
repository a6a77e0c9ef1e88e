/* SPDX-License-Identifier: Apache-2.0 */
/* A job with one real rank: its context is the library's own; a bootstrap and a transport that
 * the test controls emulate all other ranks. */
#ifndef STEPAF_TEST_FAKE_H
#define STEPAF_TEST_FAKE_H

#include "core/ctx.h"

enum { FAKE_RECORDS = 256, FAKE_SAYINGS = 64, FAKE_ENDLESS = 1 << 30 };

/* A post that the transport has accepted. */
struct fake_record {
    uint32_t peer;
    struct stepaf_msg msg;
    unsigned n_xfer;
    struct stepaf_xfer xfer[STEPAF_MAX_TENSORS];
};

/* A link. Its fields control what the transport does with posts. */
struct fake_link {
    struct stepaf_link base;
    int room;                 /* posts accepted before it returns QUEUED */
    bool holds;               /* posts with writes stay POSTED until fake_complete */
    bool loses;               /* posts are not executed, although it returns SENT */
    bool breaks;              /* the next post finds that the peer is lost */
    bool cannot_read;         /* the next post with writes finds that its sources are not mapped */
    struct stepaf_post *held; /* the post that is POSTED; one at a time */
};

/* A peer's memory: a buffer of this process, so that a sanitizer sees writes that miss it. */
struct fake_rmem {
    struct stepaf_rmem base;
    uint8_t *memory;
};

struct fake_saying {
    uint32_t peer;
    struct stepaf_msg msg;
};

struct fake_job {
    struct stepaf_ctx *ctx;
    stepaf_context_h handle;
    struct fake_job *counterpart;   /* whose advert represents all ranks of the other role */
    stepaf_status_t others_status;  /* what the other ranks say at the next exchange */
    stepaf_status_t barrier_status; /* result of the bootstrap's barrier */
    int64_t barrier_us;             /* and its last timeout */
    const char *join_reason;        /* the next join fails with this; NULL: it succeeds */
    const char *import_reason;      /* likewise for the next import */
    unsigned n_idle;                /* calls of check_peers */
    unsigned n_flushes;             /* that order devices' writes to the GPU */
    unsigned n_severed;             /* and of fence */
    unsigned unquiet;               /* polls for which the last peer has not acknowledged all */
    int wake_fd;                    /* file descriptor for sleeping; 0: none */
    unsigned n_armed;               /* and how often it was requested */
    unsigned n_registered[2];       /* after fake_split: what each transport has registered */
    bool refuses_mem;               /* the second one registers nothing more */
    unsigned n_records;             /* posts accepted since fake_forget */
    struct fake_record records[FAKE_RECORDS]; /* the first of them */
    unsigned n_sayings;
    struct fake_saying sayings[FAKE_SAYINGS];  /* messages that progress will deliver */
    uint32_t sayings_wait_for;                 /* but not before this epoch */
    void (*on_progress)(struct fake_job *job); /* called by progress when nothing is left */
};

/* End the program if the fixture itself fails. */
void fake_must(bool good, const char *what);

/* Make a job with this rank as the first of @a role. Ends the program on failure. */
struct fake_job *fake_open(stepaf_role_t role, int n_attention, int n_ffn);
/* Finalize, and free. NULL is ignored. */
void fake_close(struct fake_job *job);

/* Have @a counterpart's advert represent the other role in the next commits. */
void fake_pair(struct fake_job *job, struct fake_job *counterpart);
/* The same, and commit; the other ranks are QUIESCED and READY immediately. */
stepaf_status_t fake_commit(struct fake_job *job, struct fake_job *counterpart);

/* Declare one key of @a bytes bytes and @a depth on both sides. */
void fake_key(struct fake_job *job, struct fake_job *counterpart, uint64_t id,
              stepaf_direction_t direction, uint32_t bytes, uint32_t depth);

/* fake_transport.c: replace the transport that the context would open at its first commit;
 * control the replacement. */
void fake_transport_install(struct fake_job *job);
/* From now on it transfers GPU memory directly. */
void fake_take_gpu(struct fake_job *job);
/* From now on it registers memory, and makes templates for plans; peer @a peer is reached over
 * another transport of that kind beside it. Call before the first commit. */
void fake_split(struct fake_job *job, uint32_t peer);
struct fake_link *fake_link(struct fake_job *job, uint32_t peer);
/* Complete the held post. */
void fake_complete(struct fake_job *job, uint32_t peer);

/* Deliver a message of @a peer to the core. */
void fake_tell(struct fake_job *job, uint32_t peer, const struct stepaf_msg *msg);
/* Have the next progress deliver it. */
void fake_say(struct fake_job *job, uint32_t peer, const struct stepaf_msg *msg);
/* Make a message of the current epoch. */
struct stepaf_msg fake_msg(const struct fake_job *job, enum stepaf_msg_type type, uint32_t plan,
                           uint32_t slot, uint32_t seq);
void fake_forget(struct fake_job *job);
/* Count the posts of one type accepted since fake_forget. */
unsigned fake_count(const struct fake_job *job, enum stepaf_msg_type type);
const struct fake_record *fake_last(const struct fake_job *job);

#endif
