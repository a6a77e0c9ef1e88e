/* SPDX-License-Identifier: Apache-2.0 */
/* A job of which one rank is real: its context is the library's own, all other ranks are made up
 * by a bootstrap and a transport that do what the test says. */
#ifndef STEPAF_TEST_FAKE_H
#define STEPAF_TEST_FAKE_H

#include "core/ctx.h"

enum { FAKE_RECORDS = 256, FAKE_SAYINGS = 64, FAKE_ENDLESS = 1 << 30 };

/* A post that the transport has taken. */
struct fake_record {
    uint32_t peer;
    struct stepaf_msg msg;
    unsigned n_xfer;
    struct stepaf_xfer xfer[STEPAF_MAX_TENSORS];
};

/* A link. Its fields steer what the transport does with posts. */
struct fake_link {
    struct stepaf_link base;
    int room;                 /* posts that it still takes before it says QUEUED */
    bool holds;               /* posts with writes stay POSTED until fake_complete */
    bool loses;               /* posts' bytes go nowhere, though it says SENT */
    bool breaks;              /* the next post finds that the peer is lost */
    bool cannot_read;         /* the next post with writes finds that its sources are not mapped */
    struct stepaf_post *held; /* the one that is POSTED; one at a time */
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
    struct fake_job *counterpart;   /* whose advert stands for all ranks of the other role */
    stepaf_status_t others_status;  /* what the others say at the next exchange */
    stepaf_status_t barrier_status; /* how the bootstrap's barrier ends */
    int64_t barrier_us;             /* and what it was last given */
    const char *join_reason;        /* the next join fails so; NULL: it does not */
    const char *import_reason;      /* the next import likewise */
    unsigned n_idle;                /* calls of check_peers */
    unsigned n_flushes;             /* of what devices have written to the GPU */
    unsigned n_severed;             /* and of fence */
    unsigned unquiet;               /* looks for which the last peer has not acknowledged all */
    int wake_fd;                    /* what the transport names for sleeping; 0: nothing */
    unsigned n_armed;               /* and how often it was asked */
    unsigned n_registered[2];       /* after fake_split: what each transport has registered */
    bool refuses_mem;               /* the second of them registers nothing more */
    unsigned n_records;             /* posts taken since fake_forget */
    struct fake_record records[FAKE_RECORDS]; /* the first of them */
    unsigned n_sayings;
    struct fake_saying sayings[FAKE_SAYINGS];  /* what progress will deliver */
    uint32_t sayings_wait_for;                 /* but not before this epoch */
    void (*on_progress)(struct fake_job *job); /* called by progress when nothing is left */
};

/* End the program if the fixture itself fails. */
void fake_must(bool good, const char *what);

/* Make a job with this rank as the first of @a role. Ends the program if that cannot be done. */
struct fake_job *fake_open(stepaf_role_t role, int n_attention, int n_ffn);
/* Finalize, and free. NULL is ignored. */
void fake_close(struct fake_job *job);

/* Have @a counterpart's advert stand for the other role in the commits to come. */
void fake_pair(struct fake_job *job, struct fake_job *counterpart);
/* The same, and commit; the other ranks are QUIESCED and READY at once. */
stepaf_status_t fake_commit(struct fake_job *job, struct fake_job *counterpart);

/* Declare one key of @a bytes bytes and @a depth at both. */
void fake_key(struct fake_job *job, struct fake_job *counterpart, uint64_t id,
              stepaf_direction_t direction, uint32_t bytes, uint32_t depth);

/* fake_transport.c: put the fake in the place of what the context would open at its first commit;
 * steer it. */
void fake_transport_install(struct fake_job *job);
/* From now on it carries GPU memory as it is. */
void fake_take_gpu(struct fake_job *job);
/* From now on it registers memory, and makes templates for plans; and peer @a peer is reached by
 * another transport of that kind beside it. Before the first commit. */
void fake_split(struct fake_job *job, uint32_t peer);
struct fake_link *fake_link(struct fake_job *job, uint32_t peer);
/* The held post has left. */
void fake_complete(struct fake_job *job, uint32_t peer);

/* Hand a message of @a peer to the core. */
void fake_tell(struct fake_job *job, uint32_t peer, const struct stepaf_msg *msg);
/* Have the next progress deliver it. */
void fake_say(struct fake_job *job, uint32_t peer, const struct stepaf_msg *msg);
/* A message of the current epoch. */
struct stepaf_msg fake_msg(const struct fake_job *job, enum stepaf_msg_type type, uint32_t plan,
                           uint32_t slot, uint32_t seq);
void fake_forget(struct fake_job *job);
/* Posts taken since then of one type. */
unsigned fake_count(const struct fake_job *job, enum stepaf_msg_type type);
const struct fake_record *fake_last(const struct fake_job *job);

#endif
