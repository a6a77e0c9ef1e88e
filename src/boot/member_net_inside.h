/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of net have in common. */
#ifndef STEPAF_BOOT_MEMBER_NET_INSIDE_H
#define STEPAF_BOOT_MEMBER_NET_INSIDE_H

#include "boot/control/control.h"
#include "boot/member_net.h"
#include "boot/member_net_gather.h"
#include "boot/member_net_return.h"

enum {
    MEMBER_CONNECT_NS = 2000000000 /* for one address: who does not answer for so long, while this
                                      rank looks, is not there */
};

/* What waits for a connection. */
struct member_queued {
    struct member_queued *next;
    uint32_t type; /* of its frame */
    size_t bytes;
    uint8_t data[];
};

/* What a rank has said last on one channel. */
struct member_said {
    uint64_t stamp; /* 0: nothing */
    struct stepaf_consensus_blob words;
    bool is_short;    /* of memory: the words are not there */
    bool is_answered; /* what came of it was said to that rank */
    int hinted;       /* whom it has been told to wait for; -1: nobody */
};

/* Another rank. */
struct member_other {
    struct stepaf_consensus_addresses addresses;
    unsigned at;                        /* the address that is called, or is to be */
    int64_t spent_ns;                   /* on it; only while this rank was there to look */
    int64_t looked_ns;                  /* when that was, last */
    int64_t again_ns;                   /* when to call there again; 0: it has not been */
    bool lacks;                         /* this rank itself lacks what it takes to call */
    bool is_refused;                    /* nobody listens at an address that was called */
    bool is_over;                       /* at a guest: so it was when all had been called */
    uint32_t called;                    /* the rank's life in which it was called last */
    struct member_queued *queue, *last; /* what is to be said to it, in order; its end */
    bool awaits_losses;   /* it is to hear then who is lost: as it is known by that time */
    bool is_new;          /* it has been admitted by the last decision, and is to be told */
    bool was_at_home;     /* and this member was its home */
    uint32_t admitted_by; /* a decision; 0: it has been a member from the beginning */
    uint64_t guest_id;    /* its own, when it was a guest */
    bool leaves;          /* it has said so */
    bool has_left;
    char reason[STEPAF_MEMBER_NET_REASON_MAX];  /* why it is lost */
    char trouble[STEPAF_MEMBER_NET_REASON_MAX]; /* why the last call has come to nothing */
    struct member_said said[STEPAF_MEMBER_GATHERINGS];
};

/* A process that wants a rank's place. */
struct member_guest {
    bool asks; /* to be admitted: until then it only looks */
    uint64_t id;
    struct stepaf_consensus_blob words; /* data is NULL at members that are not its home */
};

/* This process, while it is a guest. */
struct member_return {
    enum stepaf_member_admission admission;
    bool has_state;
    bool is_told; /* the last call has brought a member's answer why not */
    bool asks;
    uint64_t id;
    struct stepaf_consensus_blob words;
    int64_t again_ns; /* when to look after that again */
    int home;         /* the member that is to tell the others what this process says */
    int64_t asked_ns; /* when the home was asked last, */
    bool is_answered; /* and whether it has answered since */
    int other;        /* the member that was asked last in its place */
    uint32_t *asked;  /* by rank: the life in which it was */
    char text[STEPAF_MEMBER_NET_REASON_MAX];
};

/* What members gather on one channel; member_net_gather.c has the rules. A stamp is an epoch and how
 * many gatherings there have been in it, so that it grows. */
struct member_gathering {
    uint64_t stamp;         /* of the last that this rank has begun; 0: none */
    int first;              /* of its group: what has come of it only that one says */
    bool is_said;           /* this rank's words are on their way, and so is the answer */
    bool is_over;           /* the answer has been looked at */
    stepaf_status_t status; /* the answer; STEPAF_INPROGRESS: there is none yet */
    int rank;               /* whose loss it is; who has not come, as far as is known */
    uint32_t n_told;        /* losses that others have been told of in this epoch */
    struct stepaf_consensus_blob answer, value; /* whole, as it was said; what all have said */
    /* At the first, for those who come late, or ask again. */
    uint64_t complete; /* the last to which all have come */
    stepaf_status_t completed;
    bool fails; /* and all that follow in this epoch, since that rank is lost */
    int lost;
};

struct stepaf_member_net {
    struct stepaf_control control;
    struct stepaf_consensus consensus;
    struct stepaf_consensus_addresses own;
    struct member_other *others; /* by rank */
    struct stepaf_consensus_blob *cards;
    struct member_guest *guests;   /* by the rank whose place they want */
    uint32_t n_asked;              /* guests, ever, and who has said that it leaves */
    uint32_t epoch, n_commits;     /* as the context counts them: what guests are told */
    struct member_return *returns; /* NULL: this process is no guest, and was none */
    struct member_gathering gatherings[STEPAF_MEMBER_GATHERINGS];
};

/* ---- member_net_call.c ---- */

/* Say something to a rank: at once, or when there is a connection. False: no memory. */
bool stepaf_member_net_say(struct stepaf_member_net *net, int to, uint32_t type,
                           const uint8_t *data, size_t bytes);
/* The connection to a rank; NULL: there is none. */
struct stepaf_control_link *stepaf_member_net_way(const struct stepaf_member_net *net, int rank);
/* Whether it can be told now who is lost. If not, it is told once there is a connection. */
bool stepaf_member_net_can_say_losses(struct stepaf_member_net *net, int to);
/* Drop what waits for one. */
void stepaf_member_net_drop(struct stepaf_member_net *net, int rank);
/* How the call to a rank goes on, for which something waits. */
void stepaf_member_net_look_after(struct stepaf_member_net *net, int rank);
/* Call it at its addresses from the first on. */
void stepaf_member_net_call_anew(struct stepaf_member_net *net, int rank);
/* The key that all members have, and what follows from it. */
void stepaf_member_net_set_key(struct stepaf_member_net *net, const uint8_t *key);

/* ---- member_net_gather.c ---- */

/* Another member says what it has to say on a channel, or what all have. False: it does not fit. */
bool stepaf_member_gather_take(struct stepaf_member_net *net, int from,
                               const struct stepaf_control_frame *frame, const void *data);
void stepaf_member_gather_free(struct stepaf_member_net *net);

/* ---- member_net_host.c, member_net_guest.c, member_net_ask.c ---- */

/* A guest has said something to this member. False: it does not fit. */
bool stepaf_member_host_take(struct stepaf_member_net *net, struct stepaf_control_link *link,
                             const struct stepaf_control_frame *frame, const void *data);
void stepaf_member_host_forget(struct stepaf_member_net *net, int rank);
/* A guest's connection has ended, or is to, since another process asks for the place. */
void stepaf_member_host_part(struct stepaf_member_net *net, struct stepaf_control_link *link);
/* An admitted guest asks again, by the connection that is the rank's by now. False: it does not
 * fit. */
bool stepaf_member_host_tell_again(struct stepaf_member_net *net, struct stepaf_control_link *link,
                                   const void *data, size_t bytes);
/* A member has said something to this guest, over @a link. */
bool stepaf_member_guest_take(struct stepaf_member_net *net, const struct stepaf_control_link *link,
                              const struct stepaf_control_frame *frame, const void *data);
/* What a guest does without waiting: ask whom it has not asked. */
void stepaf_member_guest_pump(struct stepaf_member_net *net);

#endif
