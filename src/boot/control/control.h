/* SPDX-License-Identifier: Apache-2.0 */
/* Control connections: the library's own connections between ranks, separate from the data plane.
 * README.md describes the design. The caller of every function here holds the lock. */
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
    STEPAF_CONTROL_ROUNDS = 17,  /* distances double in each: enough for more than 65536 ranks */
    STEPAF_CONTROL_EXCHANGE = 0, /* the channels: exchanges, then the barriers of each group */
    STEPAF_CONTROL_CHANNELS = 4,
    STEPAF_CONTROL_PARCELS_MAX = 64 /* by which one rank can be ahead */
};

enum stepaf_control_state {
    STEPAF_CONTROL_CLOSED,
    STEPAF_CONTROL_CALLING,    /* connect() is in progress */
    STEPAF_CONTROL_GREETING,   /* the hello is sent, the challenge is awaited */
    STEPAF_CONTROL_STRANGER,   /* has connected; the hello is awaited */
    STEPAF_CONTROL_CHALLENGED, /* the answer is awaited */
    STEPAF_CONTROL_ANSWERED,   /* the welcome is awaited */
    STEPAF_CONTROL_UP          /* both ends have proved that they know the secret, and know that */
};

/* A frame that waits until a function asks for it. */
struct stepaf_control_parcel {
    struct stepaf_control_parcel *next;
    uint32_t type, number, detail;
    size_t bytes;
    uint8_t data[];
};

/* The data of a frame, before they are sealed: shared by all links that are to send the same. */
struct stepaf_control_load {
    unsigned n_items; /* that refer to it */
    size_t bytes;
    uint8_t data[];
};

/* A frame that waits to be sealed and sent. */
struct stepaf_control_item {
    struct stepaf_control_item *next;
    struct stepaf_control_frame frame;
    struct stepaf_control_load *load;
    size_t at; /* how much of the load is sealed */
    struct stepaf_proof_pieces pieces;
};

/* The seal of one direction. */
struct stepaf_control_seal {
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
    uint64_t n; /* frames sealed so far */
};

struct stepaf_control_link {
    struct stepaf_control *control;
    struct stepaf_control_link *next; /* among strangers or arrivals */
    enum stepaf_control_state state;
    int fd;
    int rank;         /* of the other end; -1: a stranger's */
    bool has_called;  /* this end has called */
    bool has_been_up; /* its end is the end of a rank, not only of a call */
    bool has_left;    /* the other end has said goodbye */
    bool wants_out;   /* epoll is to report space to send */
    bool has_ended;   /* noticed by rank 0, while ranks meet */
    /* A stranger's time limit. While ranks meet: how long the rank will wait or, after the
     * connection has ended, how long others wait for another process in its place. */
    int64_t until_ns;
    const char *trouble; /* why the link is closed; NULL: see error */
    int error;
    struct stepaf_control_hello hello;
    uint8_t nonce[STEPAF_CONTROL_NONCE_BYTES];
    struct stepaf_control_seal seal_in, seal_out;
    struct stepaf_tcp_watch watch;
    uint8_t *in;
    size_t have, room;
    struct stepaf_pack out; /* sealed */
    /* How much of that is sent; and frames behind it, which are sealed as the socket takes them. */
    struct {
        size_t sent;
        struct stepaf_control_item *first, *last;
    } queue;
    struct {
        struct stepaf_control_parcel *first; /* in order */
        unsigned n;
    } parcels;
    struct {
        uint32_t tokens[STEPAF_CONTROL_ROUNDS]; /* not yet taken */
        /* The rank that the other end waits for: see waits.c. */
        int waits_for;
        int64_t said_ns; /* when it said so */
    } channels[STEPAF_CONTROL_CHANNELS];
};

/* The rank for which this rank waits in a channel, and what it has told others of that. */
struct stepaf_control_waiting {
    bool is_on; /* this rank waits */
    int rank;
    int said; /* the rank that it has named to others */
    int64_t said_ns;
};

/* Why a channel can no longer be used; all ranks are told. */
struct stepaf_control_failure {
    stepaf_status_t status; /* STEPAF_OK: the channel can be used */
    int rank;               /* the rank that failed, or -1 */
    char text[STEPAF_CONTROL_TEXT_MAX];
};

/* What is known about another rank: a set of these. */
enum { STEPAF_CONTROL_IS_LOST = 1, STEPAF_CONTROL_HAS_LEFT = 2, STEPAF_CONTROL_IS_REPORTED = 4 };

/* The user of the connections outside of exchanges. */
struct stepaf_control_user {
    void *arg;
    /* Takes a frame. Returns false if the frame is invalid. */
    bool (*take)(void *arg, int rank, const struct stepaf_control_frame *frame, const void *data);
    /* A connection to @a rank has ended, or the rank has said goodbye. */
    void (*ended)(void *arg, int rank, bool has_left);
    /* take and ended for guests and, at a guest, for members until the guest is a member. Frames of
     * the guests' kinds may also arrive late. */
    bool (*take_guest)(void *arg, struct stepaf_control_link *link,
                       const struct stepaf_control_frame *frame, const void *data);
    void (*guest_ended)(void *arg, struct stepaf_control_link *link);
};

/* Processes that want the places of lost ranks: they know the job's secret, but not its session. */
struct stepaf_control_guests {
    bool is_one;  /* this process is a guest */
    bool may_ask; /* the job has a secret */
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
    struct stepaf_control_link **links; /* by the rank whose place is wanted; NULL: no guest */
    /* A guest's first call, to any process that listens; or NULL. */
    struct stepaf_control_link *look;
    const uint32_t *lives; /* by rank: calls from an earlier life are rejected */
    uint32_t size_there; /* at a guest: the job's size, if a member has told another; 0: none has */
};

struct stepaf_control {
    pthread_mutex_t lock;
    struct stepaf_control_user user; /* for frames between members; take is NULL in a bootstrap */
    struct stepaf_place place;
    uint8_t session[STEPAF_CONTROL_NONCE_BYTES];
    bool has_met; /* the table is complete */
    int epoll_fd;
    int listener; /* -1: no connection is accepted */
    uint16_t port;
    struct {
        bool has_warned;  /* that no connection can be accepted */
        int error;        /* why none can be accepted at the moment; 0: they can */
        int64_t again_ns; /* when to try again */
    } accept;
    struct {
        int64_t looked_ms;                /* when it was checked that all hosts answer */
        struct stepaf_control_load *load; /* large and still to be sent; NULL: none is */
    } last;
    struct {
        unsigned n; /* waiting threads */
        /* Those that sleep: what arrives wakes them, and they handle it. */
        _Atomic unsigned n_asleep;
    } waiters;
    bool gives_up; /* this call waits no longer, as stepaf_boot_advance says */
    struct stepaf_control_entry *entries;
    struct stepaf_control_address host_address; /* at which this rank has reached rank 0 */
    struct stepaf_control_link **links;         /* by rank; NULL: not needed so far */
    struct stepaf_control_link **calls;         /* calls accepted, by rank; NULL: see links */
    struct stepaf_control_link *strangers;      /* newest first */
    unsigned n_strangers;
    struct stepaf_control_link *arrivals; /* proven before there is a table */
    int refused_rank; /* the rank claimed by a caller with another secret; -1: none */
    uint8_t *fates;   /* by rank */
    struct stepaf_control_failure failures[STEPAF_CONTROL_CHANNELS];
    struct stepaf_control_waiting waiting[STEPAF_CONTROL_CHANNELS];
    uint32_t n_exchanges; /* exchanges begun */
    struct stepaf_control_guests guests;
};

/* ---- link.c ---- */

/* Watch @a link's file descriptor, with @a out also for space to send. Returns false if the kernel
 * has no memory. */
bool stepaf_control_watch(struct stepaf_control_link *link, bool out);
/* Stop watching a file descriptor before it is closed: as long as a child that has just been forked
 * has a copy, epoll would continue to report events. */
void stepaf_control_unwatch(struct stepaf_control *control, int fd);
struct stepaf_control_link *stepaf_control_link_new(struct stepaf_control *control, int fd,
                                                    enum stepaf_control_state state);
/* Return whether the link's hello is a guest's, which knows the job's secret, but has no session to
 * name. */
bool stepaf_control_is_by_guest(const struct stepaf_control_link *link);
/* Return whether the link still belongs to a guest, at either end: it has not been admitted. */
bool stepaf_control_is_guest(const struct stepaf_control_link *link);
/* Return whether both ends have proved that they know the secret: frames may arrive. */
bool stepaf_control_is_proven(const struct stepaf_control_link *link);
/* Return whether the link is the connection to its rank, or a guest's. */
bool stepaf_control_is_placed(const struct stepaf_control_link *link);
/* Close the connection, in any state; the reason is kept. */
void stepaf_control_link_close(struct stepaf_control_link *link, const char *trouble, int error);
void stepaf_control_link_free(struct stepaf_control_link *link);
/* Queue a frame, and send what the socket accepts. Errors are noticed when the link is read. Of a
 * large frame that is sent to many, all have one copy until their sockets accept more. */
void stepaf_control_send(struct stepaf_control_link *link, const struct stepaf_control_frame *frame,
                         const void *data);
void stepaf_control_flush(struct stepaf_control_link *link);
/* Return whether the socket has not accepted all yet. */
bool stepaf_control_has_unsent(const struct stepaf_control_link *link);

/* ---- load.c ---- */

enum { STEPAF_CONTROL_PIECE = 64 << 10 }; /* bytes that are sealed at a time */

/* Queue a frame to be sealed later. Returns false if there is no memory. */
bool stepaf_control_put_off(struct stepaf_control_link *link,
                            const struct stepaf_control_frame *frame, const void *data);
/* Seal the next piece of what is queued into the link's out, which is empty. Returns false if there
 * is nothing, or no memory. */
bool stepaf_control_seal_more(struct stepaf_control_link *link);
void stepaf_control_drop_queue(struct stepaf_control_link *link);

/* ---- link.c ---- */

/* Welcome a caller that has a place here: its frames count from now on. */
void stepaf_control_welcome(struct stepaf_control_link *link);
/* Take the first parcel of this kind that has arrived; NULL: there is none. The caller frees the
 * parcel. */
struct stepaf_control_parcel *stepaf_control_take(struct stepaf_control_link *link, uint32_t type,
                                                  uint32_t number, uint32_t detail);

/* ---- news.c: news that all ranks are told ---- */

void stepaf_control_note_lost(struct stepaf_control *control, int rank);
void stepaf_control_note_failure(struct stepaf_control *control, int channel,
                                 stepaf_status_t status, int rank, const char *text);
void stepaf_control_tell_failure(struct stepaf_control_link *link, int channel);
/* Set the channel's failure as this thread's error; return its status, STEPAF_OK if there is
 * none. */
stepaf_status_t stepaf_control_raise(const struct stepaf_control *control, int channel);

/* ---- waits.c: which rank all wait for ---- */

/* Return the time from which a wait that ends at @a deadline_ns is a long one: from then on, ranks
 * say which rank they wait for. */
int64_t stepaf_control_waits_from(int64_t deadline_ns);
/* Tell all connected ranks which rank this rank waits for in @a channel, if it waits, unless it has
 * just said so. */
void stepaf_control_say_waits(struct stepaf_control *control, int channel);
/* Take what @a link's rank says that it waits for. Returns false if the frame is invalid. */
bool stepaf_control_hear_waits(struct stepaf_control_link *link, uint32_t channel, uint32_t rank);
/* Follow the chain of ranks that wait, from @a rank: return the rank that @a rank waits for, or the
 * rank that this one waits for, and so on; @a rank itself if it has not said. */
int stepaf_control_last_of(const struct stepaf_control *control, int channel, int rank);

/* ---- greet.c ---- */

/* Send the caller's hello, once the connection is established. */
void stepaf_control_greet(struct stepaf_control_link *link);
/* Continue the greeting with what has arrived. */
void stepaf_control_greeted(struct stepaf_control_link *link);

/* ---- frame.c ---- */

/* Take all whole frames from what has arrived. */
void stepaf_control_parse(struct stepaf_control_link *link);

/* ---- pump.c ---- */

/* Accept connections to the listener from now on, or no longer. Returns false if the kernel has no
 * memory. */
bool stepaf_control_open_door(struct stepaf_control *control);
void stepaf_control_shut_door(struct stepaf_control *control);
/* Do what can be done without waiting; return whether there was anything to do. */
bool stepaf_control_pump(struct stepaf_control *control);
/* Pump and, if there was nothing to do, wait for an event without the lock, while the rank goes on
 * (stepaf_boot_advance). Returns false after the deadline, or if another thread finalizes the
 * context. */
bool stepaf_control_wait(struct stepaf_control *control, int64_t deadline_ns);

/* ---- meet_table.c ---- */

/* Make the table at rank 0, from the addresses at which it sees the others, and send it to them. */
bool stepaf_control_give_table(struct stepaf_control *control);
/* Take the table from what rank 0 has sent; returns false if it is invalid. */
bool stepaf_control_take_table(struct stepaf_control *control,
                               const struct stepaf_control_parcel *parcel);

/* ---- meet_host.c, meet_guest.c: for rank 0, and for the others ---- */

stepaf_status_t stepaf_control_meet_host(struct stepaf_control *control, int64_t deadline_ns);
stepaf_status_t stepaf_control_meet_guest(struct stepaf_control *control, int64_t deadline_ns);

/* ---- reach.c ---- */

/* The calls of one rank to another. */
struct stepaf_control_try {
    int64_t again_ns;  /* when the next call is due */
    int64_t silent_ns; /* since when a call is known to be in progress; 0: none is */
    bool is_own;       /* this rank itself lacks something for a call */
    char why[160];     /* why the last call failed; empty: it has not */
};

/* Wait for an event, as stepaf_control_wait does; while there is no connection to @a rank, call it
 * again and again, if it is this rank's part to call. Returns false after the deadline. */
bool stepaf_control_move_on(struct stepaf_control *control, int rank, int channel,
                            struct stepaf_control_try *attempt, int64_t deadline_ns);
/* Return a connection to @a rank over which frames can be sent, made if there is none; NULL if
 * there will be none, or none by the deadline. To read what has arrived, no open connection is
 * needed any more: see links. */
struct stepaf_control_link *stepaf_control_reach(struct stepaf_control *control, int rank,
                                                 int channel, int64_t deadline_ns);
/* Return whether @a channel goes on: none of the @a n @a ranks (NULL: the first n) is lost, and @a
 * awaited has not left either. Other ranks may have left, if they have sent what all needed from
 * them. */
bool stepaf_control_goes_on(struct stepaf_control *control, int channel, const int *ranks, int n,
                            int awaited);
/* Fail the channel, since @a rank, or the rank at the end of its chain of waits, has not come by
 * the deadline; after the first @a round, some other rank may know why. */
void stepaf_control_give_up(struct stepaf_control *control, int channel, int rank, int round);

/* ---- gather.c, token.c: as in stepaf_boot_t ---- */

stepaf_status_t stepaf_control_allgather(struct stepaf_control *control, const void *data,
                                         size_t bytes, void **all_p, size_t *offsets_p,
                                         int64_t deadline_ns);
stepaf_status_t stepaf_control_barrier(struct stepaf_control *control, int channel,
                                       const int *ranks, int n, int64_t deadline_ns);

#endif
