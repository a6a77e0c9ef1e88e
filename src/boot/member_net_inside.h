/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the member_net files. */
#ifndef STEPAF_BOOT_MEMBER_NET_INSIDE_H
#define STEPAF_BOOT_MEMBER_NET_INSIDE_H

#include "boot/control/control.h"
#include "boot/member_net.h"
#include "boot/member_net_gather.h"
#include "boot/member_net_return.h"

enum {
    /* For one address: if the host does not answer for so long while this rank is polling, it is
     * not there. */
    MEMBER_CONNECT_NS = 2000000000
};

/* A message that waits for a connection. */
struct member_queued {
    struct member_queued *next;
    uint32_t type; /* of its frame */
    size_t bytes;
    uint8_t data[];
};

/* The last words of a rank on one channel. */
struct member_said {
    uint64_t stamp; /* 0: nothing */
    struct stepaf_consensus_blob words;
    bool is_short;    /* no memory: the words are not there */
    bool is_answered; /* the result was sent to that rank */
    int hinted;       /* the rank that it has been told to wait for; -1: none */
};

/* Another rank. */
struct member_other {
    struct stepaf_consensus_addresses addresses;
    unsigned at;       /* index of the address that is being called, or is to be */
    int64_t spent_ns;  /* on that address; only while this rank was polling */
    int64_t looked_ns; /* when this rank last polled */
    int64_t again_ns;  /* when to call there again; 0: not called yet */
    bool lacks;        /* this rank itself lacks what a call needs */
    bool is_refused;   /* no process listens at an address of its host that was called */
    bool is_over;      /* at a guest: is_refused when all addresses had been called */
    uint32_t called;   /* the rank's life in which it was called last */
    struct member_queued *queue, *last; /* messages for the rank, in order; the last of them */
    bool awaits_losses;                 /* is to be told the losses known by the time it connects */
    bool is_new;                        /* admitted by the last decision, and still to be told */
    bool was_at_home;                   /* and this member was its home */
    uint32_t admitted_by;               /* number of a decision; 0: a member from the beginning */
    uint64_t guest_id;                  /* the rank's own id when it was a guest */
    bool leaves;                        /* the rank has said that it leaves */
    bool has_left;
    char reason[STEPAF_MEMBER_NET_REASON_MAX];  /* why the rank is lost */
    char trouble[STEPAF_MEMBER_NET_REASON_MAX]; /* why the last call has failed */
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
    uint64_t seen; /* digest of that state */
    bool is_told;  /* a member's answer to the last call said why not */
    bool asks;
    uint64_t id;
    struct stepaf_consensus_blob words;
    int64_t again_ns;        /* when to check again */
    int home;                /* the member that is to tell the others this process's words */
    int64_t asked_ns;        /* when the home was last asked */
    bool is_answered;        /* the home has answered since */
    int other;               /* the member that was last asked in place of the home */
    uint32_t *asked;         /* by rank: the life in which the rank was asked */
    stepaf_status_t refused; /* if it is turned away */
    int refused_for;         /* world rank that it does not fit with; -1: none */
    char text[STEPAF_ERROR_TEXT_MAX];
};

/* One channel on which members gather; member_net_gather.c has the rules. A stamp is made of an
 * epoch and the number of gatherings in it, so that stamps grow. */
struct member_gathering {
    uint64_t stamp;         /* of the last gathering that this rank has begun; 0: none */
    int first;              /* the first of the group: only its answer counts */
    bool is_said;           /* this rank's words are in flight, and so is the answer */
    bool is_over;           /* the answer has been read */
    stepaf_status_t status; /* the answer; STEPAF_INPROGRESS: there is none yet */
    int rank;               /* the lost rank; or the awaited one, as far as is known */
    uint32_t n_told;        /* losses of which others have been told in this epoch */
    struct stepaf_consensus_blob answer, value; /* the whole answer as sent; what all have said */
    /* At the first, for ranks that come late, or ask again. */
    uint64_t complete; /* stamp of the last to which all have come */
    stepaf_status_t completed;
    bool fails; /* this and all that follow in this epoch, since lost is lost */
    int lost;
};

struct stepaf_member_net {
    struct stepaf_control control;
    struct stepaf_consensus consensus;
    struct stepaf_consensus_addresses own;
    struct member_other *others; /* by rank */
    struct stepaf_consensus_blob *cards;
    struct member_guest *guests;   /* by the rank whose place they want */
    uint32_t n_asked;              /* guests and ranks that have said that they leave, ever */
    uint32_t epoch, n_commits;     /* as the context counts them: told to guests */
    struct member_return *returns; /* NULL: this process is not, and was not, a guest */
    struct member_gathering gatherings[STEPAF_MEMBER_GATHERINGS];
};

/* ---- member_net_call.c ---- */

/* Send a message to a rank: immediately, or once there is a connection. Returns false if there is
 * no memory. */
bool stepaf_member_net_say(struct stepaf_member_net *net, int to, uint32_t type,
                           const uint8_t *data, size_t bytes);
/* Return the connection to a rank; NULL: there is none. */
struct stepaf_control_link *stepaf_member_net_way(const struct stepaf_member_net *net, int rank);
/* Return whether the losses can be sent to @a to now. If not, they are sent once there is a
 * connection. */
bool stepaf_member_net_can_say_losses(struct stepaf_member_net *net, int to);
/* Drop the messages that wait for a rank. */
void stepaf_member_net_drop(struct stepaf_member_net *net, int rank);
/* Continue the call to a rank for which messages wait. */
void stepaf_member_net_look_after(struct stepaf_member_net *net, int rank);
/* Call a rank at its addresses, from the first on. */
void stepaf_member_net_call_anew(struct stepaf_member_net *net, int rank);
/* Set the key that all members have, and what is derived from it. */
void stepaf_member_net_set_key(struct stepaf_member_net *net, const uint8_t *key);

/* ---- member_net_gather.c ---- */

/* Take a frame of another member: its words on a channel, or the words of all. Returns false if the
 * frame is invalid. */
bool stepaf_member_gather_take(struct stepaf_member_net *net, int from,
                               const struct stepaf_control_frame *frame, const void *data);
void stepaf_member_gather_free(struct stepaf_member_net *net);

/* ---- member_net_decide.c ---- */

/* The first word of an ASK: whether the guest asks to be admitted, and whether it says which state
 * it has. */
enum { STEPAF_ASK_ADMISSION = 1, STEPAF_ASK_HAS_SEEN = 2 };
/* Return the digest of a STATE without a decision. A member whose state has the digest that an ASK
 * names answers with that digest alone. */
uint64_t stepaf_member_digest(const void *state, size_t bytes);
/* Return whether a STATE is only the digest of one that this guest has, or had when it asked: since
 * then another member may have told it a different one. */
bool stepaf_member_guest_has_state(const struct stepaf_member_net *net, const void *data,
                                   size_t bytes);

/* ---- member_net_host.c, member_net_guest.c, member_net_ask.c ---- */

/* Take a guest's frame at this member. Returns false if the frame is invalid. */
bool stepaf_member_host_take(struct stepaf_member_net *net, struct stepaf_control_link *link,
                             const struct stepaf_control_frame *frame, const void *data);
void stepaf_member_host_forget(struct stepaf_member_net *net, int rank);
/* Part with a guest: its connection has ended, or is to end, since another process asks for the
 * place. */
void stepaf_member_host_part(struct stepaf_member_net *net, struct stepaf_control_link *link);
/* Tell an admitted guest again, which asks over the connection that now belongs to the rank.
 * Returns false if the frame is invalid. */
bool stepaf_member_host_tell_again(struct stepaf_member_net *net, struct stepaf_control_link *link,
                                   const void *data, size_t bytes);
/* Take a member's frame at this guest, which has arrived over @a link. */
bool stepaf_member_guest_take(struct stepaf_member_net *net, const struct stepaf_control_link *link,
                              const struct stepaf_control_frame *frame, const void *data);
/* Do what a guest can do without waiting: ask the members that it has not asked. */
void stepaf_member_guest_pump(struct stepaf_member_net *net);

#endif
