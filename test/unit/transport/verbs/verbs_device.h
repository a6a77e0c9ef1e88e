/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices made of this process's memory, in the place of libibverbs. What is posted is done at
 * once, unless a test holds it back; keys, bounds and states are checked as a device does. */
#ifndef STEPAF_TEST_VERBS_DEVICE_H
#define STEPAF_TEST_VERBS_DEVICE_H

#include "transport/verbs/provider.h"

/* What the devices do, and what was done with them. verbs_device_reset sets all to the defaults. */
struct verbs_device {
    int n_devices;            /* named fake0, fake1 ... */
    const char *const *names; /* unless these are the names */
    const char *topology;     /* of the machine, a file of test/unit/topo; NULL: nothing is known */
    int core;                 /* on it, this rank's */
    unsigned down;            /* devices whose port is not active, a bit each */
    bool is_efa;              /* they have no connections */
    bool no_access;           /* opening them is refused */
    bool is_iwarp;            /* no immediates, and no receives without a place */
    bool is_mixed;            /* only every other device is iWARP */
    bool no_cm;               /* the library is built without librdmacm */
    bool no_mlx5;             /* and without libmlx5 */
    bool is_mlx5;
    unsigned lag_ports; /* that a bond has; 0: it is none */
    int refuse_lag;     /* errno of setting a queue pair's port */
    bool no_port;       /* none is active */
    bool is_infiniband; /* ports are, and not of RoCE */
    uint8_t port_flags;
    int n_gids;                       /* the last is RoCEv2 over IPv4, */
    const struct ibv_gid_entry *gids; /* unless this is the table */
    const uint16_t *pkeys;            /* of the port, */
    int n_pkeys;                      /* so many; 0: one, of the default partition */
    uint64_t refuse_gids;             /* entries by which nothing can be sent, a bit each, */
    int refuse_gids_by;               /* by this errno */
    uint16_t lid;
    int n_vectors;   /* completion vectors */
    int refuse_fork; /* errno of ibv_fork_init */
    enum ibv_mtu mtu;
    uint32_t max_inline;
    uint32_t max_msg;
    int max_cqe;
    unsigned refuse_device; /* devices that have no protection domain, a bit each */
    int refuse_qp;          /* creating the n-th from now fails, by ENOMEM; 0: none does */
    int refuse_mr;          /* registering likewise */
    int refuse_cq;          /* making a completion queue likewise */
    int refuse_access;      /* and these flags, */
    int refuse_access_by;   /* by this errno */
    int refuse_dmabuf;      /* errno of registering a dma-buf */
    const void *gpu;        /* memory of a GPU from here on, */
    size_t gpu_bytes;       /* so many: no device can register it like host memory, */
    bool peermem;           /* unless there is a peer-memory module */
    int refuse_rtr;         /* errno of making a queue pair ready */
    int refuse_post;        /* errno of posting sends, */
    uint32_t refuse_qpn;    /* if this is not 0: on this queue pair only */
    int refuse_error;       /* errno of making a queue pair fail */
    int refuse_channel;     /* errno of making a completion channel */
    int refuse_arm;         /* errno of arming a completion queue */
    int fail_after;         /* the n-th work request from now ends by fail_status; 0: none does */
    enum ibv_wc_status fail_status;
    unsigned dead;      /* devices over which nothing goes any more, a bit each */
    unsigned silent;    /* and of those not even that is told */
    int dies;           /* this device dies, in both ends, */
    int dies_after;     /* when it has the n-th work request from now on; 0: never */
    bool dies_late;     /* once this has arrived, before that is acknowledged */
    bool no_flush;      /* what was posted is never heard of again after an error */
    bool holds;         /* sends stay posted, and nothing arrives, until verbs_device_go */
    uint32_t holds_qpn; /* the same for this queue pair only; 0: none */
    /* counts */
    unsigned n_requests;
    unsigned n_doorbells;
    unsigned n_imms;
    unsigned n_sends;
    unsigned n_reads;
    unsigned n_inline;
    unsigned n_signaled;
    unsigned n_unready;    /* notifications that found no receive */
    unsigned n_on_port[3]; /* queue pairs put on port 1 and 2 of a bond */
    unsigned n_global;     /* queue pairs whose packets have a global header */
    unsigned n_overflow;   /* posts beyond a queue's depth, and lost completions */
    int n_open;            /* objects of all kinds that are not destroyed */
    unsigned n_registered; /* regions, ever */
    struct ibv_qp_attr at_init, at_rtr, at_rts; /* of the last queue pair in that state */
    int last_vector;                            /* of a completion queue */
    unsigned n_forks;                           /* ibv_fork_init */
    int last_access;                            /* flags of the last one, */
    struct ibv_mr last_mr;                      /* and what it covers */
    int last_fd;                                /* of the last dma-buf */
};

extern struct verbs_device verbs_device;
extern struct stepaf_verbs_provider verbs_device_provider;

/* Take the libraries' place. */
void verbs_device_reset(void);
/* Again, after no_cm or no_mlx5 has changed. */
void verbs_device_take_place(void);
/* Let go what is held. */
void verbs_device_go(void);
/* Let go the first one that a queue pair holds, one of those that hold any. False: none does. */
bool verbs_device_go_one(unsigned pick);
/* A notification out of nowhere: it takes a receive of @a qpn. */
void verbs_device_notify(uint32_t qpn, uint32_t imm);
/* The next event of the devices, whoever asks first. */
void verbs_device_event(enum ibv_event_type type, uint32_t qpn);
/* Every access to this key is refused from now on. */
void verbs_device_revoke(uint32_t key);

#endif
