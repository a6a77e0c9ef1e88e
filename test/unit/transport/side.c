/* SPDX-License-Identifier: Apache-2.0 */
#include "side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct stepaf_transport_ops *side_ops = &stepaf_shm_ops;
bool side_initiates;
const char *side_cma = "auto";
const char *side_slots = "4";
const char *side_gpu;
const char *const *side_settings;

void side_must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "the fixture fails: %s: %s\n", what, stepaf_last_error()->text);
    exit(99);
}

static const char *get(const char *name, void *arg)
{
    (void)arg;
    for (const char *const *setting = side_settings; setting && *setting; setting += 2)
        if (strcmp(name, setting[0]) == 0)
            return setting[1];
    if (strcmp(name, "STEPAF_SHM_CMA") == 0)
        return side_cma;
    if (strcmp(name, "STEPAF_SHM_RING_SLOTS") == 0)
        return side_slots;
    return strcmp(name, "STEPAF_SHM_FRAGMENT_BYTES") == 0 ? "4096" : NULL;
}

static void deliver(struct stepaf_upcalls *up, struct stepaf_link *link,
                    const struct stepaf_msg *msg)
{
    struct side *side = (struct side *)up;

    side_must(side->links[link->peer] == link && side->n_messages < SIDE_MESSAGES, "deliver");
    side->messages[side->n_messages++] = *msg;
}

/* Written down as the 32 bits say it: a START. */
static void deliver_imm(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_msg msg = {.type = STEPAF_MSG_START,
                             .plan = stepaf_imm_plan(imm),
                             .seq = imm >> STEPAF_IMM_SEQ_SHIFT & STEPAF_IMM_SEQ_MASK};

    side_must(up->polled != 0, "when it has come");
    deliver(up, link, &msg);
    ((struct side *)up)->n_by_imm++;
}

static void lost(struct stepaf_upcalls *up, struct stepaf_link *link, const char *reason)
{
    struct side *side = (struct side *)up;

    link->dead = true;
    side->n_lost++;
    snprintf(side->lost_reason, sizeof side->lost_reason, "%s", reason);
}

static struct stepaf_target resolve(struct stepaf_upcalls *up, uint32_t id, uint64_t offset,
                                    uint32_t bytes)
{
    struct side *side = (struct side *)up;

    for (unsigned i = 0; i < side->n_regions; i++) {
        const struct stepaf_mem *mem = &side->regions[i];
        uint8_t *base = mem->kind == STEPAF_MEM_HOST ? mem->base : side->bounce;
        if (mem->id == id && offset <= mem->bytes && bytes <= mem->bytes - offset)
            return (struct stepaf_target){base ? base + offset : NULL, mem};
    }
    return (struct stepaf_target){.at = NULL};
}

stepaf_status_t side_try_open(struct side *side, unsigned n_peers)
{
    memset(side, 0, sizeof *side);
    side_must(stepaf_env_load_from(&side->env, get, NULL) == STEPAF_OK, "settings");
    side->topo = (struct stepaf_topo){.node_id = 1, .l2_bytes = 16384};
    side->up = (struct stepaf_upcalls){
        .deliver = deliver,
        .deliver_imm = deliver_imm,
        .lost = lost,
        .resolve = resolve,
        .env = &side->env,
        .topo = &side->topo,
        .gpu = side_gpu,
        .initiates = side_initiates,
    };
    stepaf_status_t status = side_ops->open(&side->up, n_peers, &side->transport);
    if (status)
        stepaf_env_free(&side->env);
    return status;
}

void side_open(struct side *side, unsigned n_peers)
{
    side_must(side_try_open(side, n_peers) == STEPAF_OK, "open");
}

void side_close(struct side *side)
{
    side->transport->ops->close(side->transport);
    for (unsigned i = 0; i < side->n_regions; i++) {
        struct stepaf_mem *region = &side->regions[i];
        struct stepaf_device_mem mem = {
            .base = region->base, .bytes = region->bytes, .fd = region->fd};
        if (region->kind != STEPAF_MEM_HOST)
            continue;
        if (region->fd >= 0)
            stepaf_device_free(&mem);
        else
            free(region->base);
    }
    stepaf_env_free(&side->env);
}

const char *side_connect(struct side *from, uint32_t peer, struct side *to, uint32_t slot,
                         uint32_t pid, const struct stepaf_pack *pack)
{
    static char reason[STEPAF_REASON_MAX];
    struct stepaf_pack own = {0};
    struct stepaf_peer_facts facts = {
        .peer = peer, .index_at_peer = slot, .node_id = 1, .pid = pid};

    if (!pack)
        side_ops->pack_address(to->transport, &own);
    struct stepaf_unpack unpack =
        stepaf_unpack_from(pack ? pack->data : own.data, pack ? pack->bytes : own.bytes);
    snprintf(reason, sizeof reason, "no reason given");
    stepaf_status_t status =
        side_ops->connect(from->transport, &facts, &unpack, &from->links[peer], reason);
    free(own.data);
    side_must(status == STEPAF_OK, "connect");
    return from->links[peer] ? NULL : reason;
}

void side_join(struct side *one, struct side *other)
{
    side_must(!side_connect(one, 0, other, 0, (uint32_t)getpid(), NULL), "join");
    side_must(!side_connect(other, 0, one, 0, (uint32_t)getpid(), NULL), "join");
}

struct stepaf_mem *side_memory(struct side *side, size_t bytes, bool shareable)
{
    struct stepaf_mem *region = &side->regions[side->n_regions];
    struct stepaf_device_mem mem = {.fd = -1, .bytes = bytes};

    side_must(side->n_regions < SIDE_REGIONS, "too many regions");
    if (shareable)
        side_must(stepaf_device_alloc(STEPAF_MEM_HOST, NULL, bytes, &mem) == STEPAF_OK, "memory");
    else
        mem.base = calloc(bytes, 1);
    side_must(mem.base != NULL, "memory");
    *region = (struct stepaf_mem){.id = 100 + side->n_regions++,
                                  .base = mem.base,
                                  .bytes = mem.bytes,
                                  .fd = mem.fd,
                                  .lent = !shareable};
    return region;
}

struct stepaf_rmem *side_import(struct side *from, uint32_t peer, struct side *to,
                                const struct stepaf_mem *region)
{
    struct stepaf_pack pack = {0};
    struct stepaf_rmem *rmem;

    side_ops->pack_mem(to->transport, region, &pack);
    struct stepaf_unpack unpack = stepaf_unpack_from(pack.data, pack.bytes);
    side_must(side_ops->import_mem(from->links[peer], region->id, region->bytes, &unpack, &rmem) ==
                  STEPAF_OK,
              "import");
    free(pack.data);
    return rmem;
}

enum stepaf_post_state side_say(struct side *from, uint32_t peer, uint32_t seq)
{
    struct stepaf_post post = {.link = from->links[peer]}, *posts[] = {&post};

    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START,
                                   .flags = 7,
                                   .epoch = 0x1234,
                                   .plan = 0x5678,
                                   .slot = 9,
                                   .n = 3,
                                   .seq = seq,
                                   .n_words = STEPAF_MSG_WORDS};
    for (uint32_t i = 0; i < STEPAF_MSG_WORDS; i++)
        post.msg.word[i] = seq * 31 + i;
    side_ops->post(posts, 1);
    return (enum stepaf_post_state)post.state;
}

unsigned side_progress(struct side *side)
{
    return side_ops->progress(side->transport, 1);
}
