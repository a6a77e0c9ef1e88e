/* SPDX-License-Identifier: Apache-2.0 */
/* A network card made of software, in the place of libibverbs: its functions are here by the names
 * that they have there, linked into a program or loaded before the library (LD_PRELOAD). README.md
 * says what it does and what can be set.
 *
 * Each process has a *port*: a file of shared memory by its process number, with its queue pairs,
 * completion queues and registrations, so that the engine of a peer finds them. */
#ifndef STEPAF_TEST_SOFTNIC_H
#define STEPAF_TEST_SOFTNIC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

enum {
    SOFTNIC_DEVICES = 4,
    SOFTNIC_QPS = 256,
    SOFTNIC_CQS = 32,
    SOFTNIC_MRS = 2048,
    SOFTNIC_RECVS = 1024,  /* of a queue pair */
    SOFTNIC_SENDS = 1024,  /* likewise */
    SOFTNIC_WCS = 1 << 14, /* of a completion queue */
    SOFTNIC_INLINE = 256,
    SOFTNIC_HANDLE = 64,
    SOFTNIC_PEERS = 64
};

/* ---- shared ---- */

struct softnic_recv {
    uint64_t wr_id;
    uint64_t addr; /* 0: none */
    uint32_t bytes;
};

struct softnic_shared_qp {
    _Atomic int state; /* ibv_qp_state */
    uint32_t cq;       /* index: where its receives complete */
    uint32_t device;
    uint32_t first, n; /* of the ring */
    struct softnic_recv recvs[SOFTNIC_RECVS];
};

struct softnic_shared_cq {
    _Atomic uint32_t head, tail; /* entries from tail to head */
    _Atomic bool armed;
    struct ibv_wc wcs[SOFTNIC_WCS];
};

struct softnic_shared_mr {
    _Atomic uint32_t key; /* 0: none */
    bool on_gpu;
    uint64_t addr, bytes;
    int32_t ordinal;                /* on_gpu: of the GPU */
    uint64_t offset;                /* in its allocation */
    uint8_t handle[SOFTNIC_HANDLE]; /* of that */
};

struct softnic_port {
    _Atomic bool ready;
    _Atomic uint32_t wakes; /* a futex of the engine */
    _Atomic bool asleep;
    _Atomic uint32_t dead;         /* devices over which nothing goes any more, a bit each */
    pthread_mutex_t lock;          /* robust: of the rings of receives and completions */
    _Atomic uint32_t n_registered; /* regions, ever */
    struct softnic_shared_mr mrs[SOFTNIC_MRS];
    struct softnic_shared_qp qps[SOFTNIC_QPS];
    struct softnic_shared_cq cqs[SOFTNIC_CQS];
};

/* ---- this process's ---- */

/* A work request as it was posted. */
struct softnic_send {
    uint64_t wr_id;
    enum ibv_wr_opcode opcode;
    bool signaled;
    uint32_t imm; /* as given: network order */
    uint32_t bytes;
    uint64_t addr; /* 0: inline */
    uint64_t remote;
    uint32_t lkey, rkey;
    uint64_t posted_ns;
    uint64_t deliver_ns, ack_ns; /* when it is at the peer, and known to be */
    uint64_t run_bytes;          /* it ends a run of so many */
    enum ibv_wc_status status;
    uint8_t data[SOFTNIC_INLINE];
};

struct softnic_qp {
    struct ibv_qp qp; /* first */
    uint32_t index, device;
    uint32_t send_cq, recv_cq;
    bool sig_all;
    uint32_t peer_pid, peer_qp; /* index there */
    struct softnic_send *sends; /* ring */
    _Atomic uint32_t posted;    /* how many, ever; the rest is the engine's */
    _Atomic uint32_t done;
    uint32_t copied, delivered;
    uint32_t n_mapped; /* of the peer's regions, ever, as far as they were looked at */
    uint64_t rnr_ns;   /* since when there is no receive; 0: there is one */
};

struct softnic_cq {
    struct ibv_cq cq; /* first */
    uint32_t index;
    int told_fd; /* the channel's other end; -1: it has none */
};

struct softnic_mr {
    struct ibv_mr mr; /* first */
    uint32_t index;
};

struct softnic {
    uint32_t pid;
    struct softnic_port *port;
    struct softnic_qp *qps[SOFTNIC_QPS];
    struct softnic_cq *cqs[SOFTNIC_CQS];
    pthread_mutex_t lock;    /* of all that is this process's, but for posting */
    _Atomic unsigned wanted; /* threads that want it, for which the engine steps back */
    pthread_t engine;
    _Atomic bool stops;
    unsigned n_open;
    /* settings */
    unsigned n_devices;
    double ns_per_byte;
    uint64_t latency_ns;
    bool in_order, spins;
    unsigned dies, dies_after; /* device, and after how many requests; 0: never */
    uint64_t seed;
    uint64_t busy_ns[SOFTNIC_DEVICES]; /* until when the wire is taken */
    uint32_t n_requests[SOFTNIC_DEVICES];
};
extern struct softnic softnic;

uint64_t softnic_now_ns(void);
uint64_t softnic_random(void);

/* port.c */
bool softnic_port_open(void);
void softnic_port_close(void);
/* The port of another process; NULL: it is gone. */
struct softnic_port *softnic_port_of(uint32_t pid);
bool softnic_is_alive(uint32_t pid);
void softnic_wake(struct softnic_port *port);
void softnic_sleep(uint64_t most_ns);
void softnic_port_lock(struct softnic_port *port);
void softnic_complete(struct softnic_port *port, uint32_t cq, const struct ibv_wc *wc);

/* engine.c */
bool softnic_engine_start(void);
void softnic_engine_stop(void);
void softnic_enter(void); /* take the lock from it */
void softnic_leave(void);
/* End all that a queue pair has to do; the lock is held. */
void softnic_flush(struct softnic_qp *qp);

/* copy.c: bring bytes to a peer. 0, or the status. @a src: NULL: lkey and addr say where. */
enum ibv_wc_status softnic_copy(uint32_t pid, const struct softnic_port *port,
                                const struct softnic_send *send, uint64_t at, uint32_t offset,
                                uint32_t bytes);
enum ibv_wc_status softnic_copy_to(uint32_t pid, uint64_t at, const struct softnic_send *send);
void softnic_copy_sync(void);
enum ibv_wc_status softnic_check(const struct softnic_port *port, uint32_t key, uint64_t at,
                                 uint64_t bytes);

/* gpu.c: NULL or false where there is no CUDA. */
bool softnic_gpu_export(uint64_t addr, struct softnic_shared_mr *mr_p);
bool softnic_gpu_is(uint64_t addr);
/* The peer's memory in this process; 0: it cannot be mapped. */
uint64_t softnic_gpu_map(uint32_t pid, const struct softnic_shared_mr *mr);
bool softnic_gpu_copy(uint64_t dst, uint64_t src, uint64_t bytes);
bool softnic_gpu_sync(void);

/* stats.c */
void softnic_note(uint64_t bytes, uint64_t ns);
void softnic_report(void);

#endif
