/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of the library's own between ranks, beside the data plane: README.md has the
 * design. Whoever calls anything here holds the lock. */
#ifndef STEPAF_BOOT_CONTROL_CONTROL_H
#define STEPAF_BOOT_CONTROL_CONTROL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/types.h>

#include "base/pack.h"
#include "base/tcp_watch.h"
#include "boot/control/place.h"
#include "boot/control/socket.h"
#include "boot/control/wire.h"

enum {
    STEPAF_CONTROL_ROUNDS = 17,  /* distances double in each: more than 65536 ranks */
    STEPAF_CONTROL_EXCHANGE = 0, /* the channels: exchanges, then the barriers of each group */
    STEPAF_CONTROL_CHANNELS = 4,
    STEPAF_CONTROL_PARCELS_MAX = 64 /* that one rank can be ahead */
};

enum stepaf_control_state {
    STEPAF_CONTROL_CLOSED,
    STEPAF_CONTROL_CALLING,    /* connect() is under way */
    STEPAF_CONTROL_GREETING,   /* the hello is sent, the challenge is awaited */
    STEPAF_CONTROL_STRANGER,   /* has connected; the hello is awaited */
    STEPAF_CONTROL_CHALLENGED, /* the answer is awaited */
    STEPAF_CONTROL_ANSWERED,   /* the welcome is awaited */
    STEPAF_CONTROL_UP          /* both ends have shown that they know the secret, and know it */
};

/* A frame that waits for whoever asked for it. */
struct stepaf_control_parcel {
    struct stepaf_control_parcel *next;
    uint32_t type, number, detail;
    size_t bytes;
    uint8_t data[];
};

/* Of one direction. */
struct stepaf_control_seal {
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
    uint64_t n; /* frames */
};

struct stepaf_control_link {
    struct stepaf_control *control;
    struct stepaf_control_link *next; /* among strangers or arrivals */
    enum stepaf_control_state state;
    int fd;
    int rank;         /* of the other end; -1: a stranger's */
    bool has_called;  /* this end has */
    bool has_been_up; /* so that its end is that of a rank, not of a call */
    bool has_left;    /* the other end has said goodbye */
    bool wants_out;   /* epoll is to tell when there is room to send */
    bool has_ended;   /* noticed by rank 0, while ranks meet */
    int64_t until_ns; /* a stranger's time; while ranks meet, how long the rank will wait, or after
                          * its end, how long others wait for another process in its place */
    const char *trouble; /* why it is closed; NULL: errno says */
    int error;
    struct stepaf_control_hello hello;
    uint8_t nonce[STEPAF_CONTROL_NONCE_BYTES];
    struct stepaf_control_seal seal_in, seal_out;
    struct stepaf_tcp_watch watch;
    uint8_t *in;
    size_t have, room;
    struct stepaf_pack out;
    size_t sent;
    struct {
        struct stepaf_control_parcel *first; /* in order */
        unsigned n;
    } parcels;
    struct {
        uint32_t tokens[STEPAF_CONTROL_ROUNDS]; /* not yet taken */
        int waits_for;                          /* as waits.c has it */
        int64_t said_ns;                        /* when */
    } channels[STEPAF_CONTROL_CHANNELS];
};

/* Whom this rank waits for in a channel, and what it has said of that. */
struct stepaf_control_waiting {
    bool is_on; /* it does */
    int rank;
    int said; /* the rank that it has said */
    int64_t said_ns;
};

/* Why a channel is of no use any more; all ranks are told. */
struct stepaf_control_failure {
    stepaf_status_t status; /* STEPAF_OK: it is */
    int rank;               /* whose failure it is, or -1 */
    char text[STEPAF_CONTROL_TEXT_MAX];
};

/* What is known of another rank. */
enum { STEPAF_CONTROL_IS_LOST = 1, STEPAF_CONTROL_HAS_LEFT = 2, STEPAF_CONTROL_IS_REPORTED = 4 };

/* Who listens where no exchange is waited for. */
struct stepaf_control_user {
    void *arg;
    /* False: what has come does not fit. */
    bool (*take)(void *arg, int rank, const struct stepaf_control_frame *frame, const void *data);
    /* A connection to @a rank has ended, or the rank has said goodbye. */
    void (*ended)(void *arg, int rank, bool has_left);
    /* take and ended for guests, and, at a guest, for members until it is one; frames of guests'
     * kinds may also come late. */
    bool (*take_guest)(void *arg, struct stepaf_control_link *link,
                       const struct stepaf_control_frame *frame, const void *data);
    void (*guest_ended)(void *arg, struct stepaf_control_link *link);
};

/* Processes that want the places of lost ranks: they know the job's secret, but not its session. */
struct stepaf_control_guests {
    bool is_one;  /* this process is */
    bool may_ask; /* the job has a secret */
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
    struct stepaf_control_link **links; /* by the rank whose place they want; NULL: nobody does */
    struct stepaf_control_link *look;   /* a guest's first call, to whoever listens; NULL: none */
    const uint32_t *lives; /* by rank: of who calls in an earlier one, nothing is taken */
};

struct stepaf_control {
    pthread_mutex_t lock;
    struct stepaf_control_user user; /* of members' talk; take is NULL in a bootstrap */
    struct stepaf_place place;
    uint8_t session[STEPAF_CONTROL_NONCE_BYTES];
    bool has_met; /* the table is there */
    int epoll_fd;
    int listener; /* -1: nobody is let in */
    uint16_t port;
    struct {
        bool has_warned;  /* that no connection can be accepted */
        int error;        /* why not, at the moment; 0: they are */
        int64_t again_ns; /* when to try again */
    } accept;
    int64_t looked_ms; /* whether all hosts answer */
    struct {
        unsigned n;                /* threads that wait */
        _Atomic unsigned n_asleep; /* of these: they wake up by what comes, and see to it */
    } waiters;
    bool gives_up; /* as stepaf_boot_advance says: this call does not wait any more */
    struct stepaf_control_entry *entries;
    struct stepaf_control_address host_address; /* by which this rank has reached rank 0 */
    struct stepaf_control_link **links;         /* by rank; NULL: none was needed yet */
    struct stepaf_control_link **calls;    /* by rank, of those who have called; NULL: see links */
    struct stepaf_control_link *strangers; /* newest first */
    unsigned n_strangers;
    struct stepaf_control_link *arrivals; /* proven before there is a table */
    int refused_rank; /* who said it was that rank had another secret; -1: nobody */
    uint8_t *fates;   /* by rank */
    struct stepaf_control_failure failures[STEPAF_CONTROL_CHANNELS];
    struct stepaf_control_waiting waiting[STEPAF_CONTROL_CHANNELS];
    uint32_t n_exchanges; /* begun */
    struct stepaf_control_guests guests;
};

/* ---- link.c ---- */

/* Let @a link's descriptor be watched, also for room to send. False: no memory in the kernel. */
bool stepaf_control_watch(struct stepaf_control_link *link, bool out);
/* Before a descriptor is closed: as long as a child that has just been forked has a copy, epoll would
 * go on to tell of it. */
void stepaf_control_unwatch(struct stepaf_control *control, int fd);
struct stepaf_control_link *stepaf_control_link_new(struct stepaf_control *control, int fd,
                                                    enum stepaf_control_state state);
/* Whether its hello is that of a guest, who knows the job's secret, but has no session to name. */
bool stepaf_control_is_by_guest(const struct stepaf_control_link *link);
/* Whether it is a guest's still, at either end: nobody has admitted it. */
bool stepaf_control_is_guest(const struct stepaf_control_link *link);
/* Whether both ends have shown that they know the secret: frames may come. */
bool stepaf_control_is_proven(const struct stepaf_control_link *link);
/* Whether it is the connection to its rank, or a guest's. */
bool stepaf_control_is_placed(const struct stepaf_control_link *link);
/* Close the connection, whatever it was; why it was stays. */
void stepaf_control_link_close(struct stepaf_control_link *link, const char *trouble, int error);
void stepaf_control_link_free(struct stepaf_control_link *link);
/* Queue a frame, and send what the socket takes. What fails is noticed by whoever reads. */
void stepaf_control_send(struct stepaf_control_link *link, const struct stepaf_control_frame *frame,
                         const void *data);
void stepaf_control_flush(struct stepaf_control_link *link);
/* To one that has called, and has a place here: what it says counts from now on. */
void stepaf_control_welcome(struct stepaf_control_link *link);
/* Take the first parcel of this kind from what has come; NULL: not there. The caller's to free. */
struct stepaf_control_parcel *stepaf_control_take(struct stepaf_control_link *link, uint32_t type,
                                                  uint32_t number, uint32_t detail);

/* ---- news.c: what all ranks are told ---- */

void stepaf_control_note_lost(struct stepaf_control *control, int rank);
void stepaf_control_note_failure(struct stepaf_control *control, int channel,
                                 stepaf_status_t status, int rank, const char *text);
void stepaf_control_tell_failure(struct stepaf_control_link *link, int channel);
/* The channel's failure as this thread's; its status, STEPAF_OK if there is none. */
stepaf_status_t stepaf_control_raise(const struct stepaf_control *control, int channel);

/* ---- waits.c: whom all wait for ---- */

/* Since when a wait that ends at @a deadline_ns is a long one: whom for is said then. */
int64_t stepaf_control_waits_from(int64_t deadline_ns);
/* Say whom this rank waits for in @a channel, if it does, to all that it is connected to, unless it
 * has just said so. */
void stepaf_control_say_waits(struct stepaf_control *control, int channel);
/* False: what @a link's rank says makes no sense. */
bool stepaf_control_hear_waits(struct stepaf_control_link *link, uint32_t channel, uint32_t rank);
/* The rank that @a rank waits for, or which that one waits for, and so on; @a rank itself if it
 * has not said. */
int stepaf_control_last_of(const struct stepaf_control *control, int channel, int rank);

/* ---- greet.c ---- */

/* The caller's first word, once the connection is there. */
void stepaf_control_greet(struct stepaf_control_link *link);
/* Go on with what has come. */
void stepaf_control_greeted(struct stepaf_control_link *link);

/* ---- frame.c ---- */

/* Take all whole frames from what has come. */
void stepaf_control_parse(struct stepaf_control_link *link);

/* ---- pump.c ---- */

/* Let whoever connects to the listener in, or nobody any more. False: no memory in the kernel. */
bool stepaf_control_open_door(struct stepaf_control *control);
void stepaf_control_shut_door(struct stepaf_control *control);
/* Do what can be done without waiting; whether anything was. */
bool stepaf_control_pump(struct stepaf_control *control);
/* Pump, and if there was nothing to do, wait for something without the lock, while the rank goes on
 * (stepaf_boot_advance). False after the deadline, or where another thread finalizes the
 * context. */
bool stepaf_control_wait(struct stepaf_control *control, int64_t deadline_ns);

/* ---- meet_table.c ---- */

/* Make the table, from what this rank 0 sees of all others, and give it to them. */
bool stepaf_control_give_table(struct stepaf_control *control);
/* Take it from what rank 0 has sent; false if it is none. */
bool stepaf_control_take_table(struct stepaf_control *control,
                               const struct stepaf_control_parcel *parcel);

/* ---- meet_host.c, meet_guest.c: rank 0's part, and the others' ---- */

stepaf_status_t stepaf_control_meet_host(struct stepaf_control *control, int64_t deadline_ns);
stepaf_status_t stepaf_control_meet_guest(struct stepaf_control *control, int64_t deadline_ns);

/* ---- reach.c ---- */

/* Calls of one rank to another. */
struct stepaf_control_try {
    int64_t again_ns; /* when the next is due */
    bool is_own;      /* this rank lacks something for a call */
    char why[160];    /* the last came to nothing; empty: it has not */
};

/* Wait for something, as stepaf_control_wait; call @a rank again and again while there is no
 * connection, if it is this one's part. False after the deadline. */
bool stepaf_control_move_on(struct stepaf_control *control, int rank, int channel,
                            struct stepaf_control_try *attempt, int64_t deadline_ns);
/* A connection to @a rank that can be sent to, made if there is none; NULL if there will be none,
 * or none by the deadline. To hear what has come, none has to be there any more: see links. */
struct stepaf_control_link *stepaf_control_reach(struct stepaf_control *control, int rank,
                                                 int channel, int64_t deadline_ns);
/* Whether @a channel goes on: none of the @a n @a ranks (NULL: the first n) is lost, and @a awaited
 * has not left either. Others may have, if they have given what all needed of them. */
bool stepaf_control_goes_on(struct stepaf_control *control, int channel, const int *ranks, int n,
                            int awaited);
/* Give the channel up, since @a rank has not come by the deadline, or whom that one waits for; after
 * the first @a round some other may know why. */
void stepaf_control_give_up(struct stepaf_control *control, int channel, int rank, int round);

/* ---- gather.c, token.c: as stepaf_boot_t has it ---- */

stepaf_status_t stepaf_control_allgather(struct stepaf_control *control, const void *data,
                                         size_t bytes, void **all_p, size_t *offsets_p,
                                         int64_t deadline_ns);
stepaf_status_t stepaf_control_barrier(struct stepaf_control *control, int channel,
                                       const int *ranks, int n, int64_t deadline_ns);

#endif
