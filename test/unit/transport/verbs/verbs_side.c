/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *vside_settings = "";
const char *vside_gpu;
bool vside_initiates = false;

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "the fixture fails: %s: %s\n", what, stepaf_last_error()->text);
    exit(99);
}

static const char *get(const char *name, void *arg)
{
    static char value[64];
    size_t length = strlen(name) - strlen("STEPAF_");
    const char *at = vside_settings;

    (void)arg;
    for (; *at; at += strcspn(at, " "), at += *at == ' ')
        if (!strncmp(at, name + strlen("STEPAF_"), length) && at[length] == '=') {
            snprintf(value, sizeof(value), "%.*s", (int)strcspn(at + length + 1, " "),
                     at + length + 1);
            return value;
        }
    return NULL;
}

static void deliver(struct stepaf_upcalls *up, struct stepaf_link *link,
                    const struct stepaf_msg *msg)
{
    struct vside *side = (struct vside *)up;

    must(side->links[link->peer] == link && side->n_messages < VSIDE_MESSAGES, "deliver");
    side->messages[side->n_messages++] = *msg;
    if (side->taken)
        side->taken(side, msg);
}

static void lost(struct stepaf_upcalls *up, struct stepaf_link *link, const char *reason)
{
    struct vside *side = (struct vside *)up;

    link->dead = true;
    side->n_lost++;
    snprintf(side->lost_reason, sizeof(side->lost_reason), "%s", reason);
}

static struct stepaf_target resolve(struct stepaf_upcalls *up, uint32_t id, uint64_t offset,
                                    uint32_t bytes)
{
    (void)up, (void)id, (void)offset, (void)bytes;
    return (struct stepaf_target){.at = NULL};
}

static bool expand(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm,
                   struct stepaf_msg *msg_p)
{
    struct vside *side = (struct vside *)up;

    (void)link;
    side->n_by_imm++;
    side->last_imm = imm;
    *msg_p =
        (struct stepaf_msg){.type = STEPAF_MSG_START,
                            .plan = (uint16_t)(imm >> STEPAF_IMM_PLAN_SHIFT),
                            .seq = imm >> STEPAF_IMM_SEQ_SHIFT & ((1u << STEPAF_IMM_SEQ_BITS) - 1)};
    return !side->senseless;
}

static void deliver_imm(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_msg msg;

    if (expand(up, link, imm, &msg))
        deliver(up, link, &msg);
}

stepaf_status_t vside_try(struct vside *side, unsigned n_peers)
{
    memset(side, 0, sizeof(*side));
    must(stepaf_env_load_from(&side->env, get, NULL) == STEPAF_OK, "settings");
    side->up = (struct stepaf_upcalls){
        .deliver = deliver,
        .lost = lost,
        .resolve = resolve,
        .deliver_imm = deliver_imm,
        .env = &side->env,
        .topo = &side->topo,
        .gpu = vside_gpu,
        .initiates = vside_initiates,
    };
    stepaf_status_t status = stepaf_verbs_ops.open(&side->up, n_peers, &side->transport);
    if (status)
        stepaf_env_free(&side->env);
    return status;
}

void vside_open(struct vside *side, unsigned n_peers)
{
    must(vside_try(side, n_peers) == STEPAF_OK, "open");
}

void vside_close(struct vside *side)
{
    stepaf_verbs_ops.close(side->transport);
    for (unsigned i = 0; i < side->n_regions; i++)
        free(side->regions[i].base);
    stepaf_env_free(&side->env);
}

struct stepaf_pack vside_pack(const struct vside *side)
{
    struct stepaf_pack pack = {0};

    stepaf_verbs_ops.pack_address(side->transport, &pack);
    must(!pack.failed, "pack");
    return pack;
}

const char *vside_connect(struct vside *from, uint32_t peer, struct vside *to, uint32_t slot,
                          const struct stepaf_pack *pack)
{
    static char reason[STEPAF_REASON_MAX];
    struct stepaf_pack own = pack ? (struct stepaf_pack){0} : vside_pack(to);
    struct stepaf_peer_facts facts = {.peer = peer, .index_at_peer = slot};
    struct stepaf_unpack unpack =
        stepaf_unpack_from(pack ? pack->data : own.data, pack ? pack->bytes : own.bytes);

    snprintf(reason, sizeof(reason), "no reason given");
    stepaf_status_t status =
        stepaf_verbs_ops.connect(from->transport, &facts, &unpack, &from->links[peer], reason);
    free(own.data);
    must(status == STEPAF_OK, "connect");
    return from->links[peer] ? NULL : reason;
}

void vside_join(struct vside *one, struct vside *other)
{
    struct stepaf_pack pack = vside_pack(one);

    must(!vside_connect(one, 0, other, 0, NULL), "join");
    must(!vside_connect(other, 0, one, 0, &pack), "join");
    free(pack.data);
}

struct stepaf_mem *vside_memory(struct vside *side, size_t bytes)
{
    struct stepaf_mem *region = &side->regions[side->n_regions];

    must(side->n_regions < VSIDE_REGIONS, "too many regions");
    *region = (struct stepaf_mem){
        .id = 100 + side->n_regions++, .base = calloc(bytes, 1), .bytes = bytes, .fd = -1};
    must(region->base && !stepaf_verbs_ops.reg_mem(side->transport, region), "memory");
    return region;
}

struct stepaf_rmem *vside_import(struct vside *from, uint32_t peer, struct vside *to,
                                 const struct stepaf_mem *region)
{
    struct stepaf_pack pack = {0};
    struct stepaf_rmem *rmem;

    stepaf_verbs_ops.pack_mem(to->transport, region, &pack);
    struct stepaf_unpack unpack = stepaf_unpack_from(pack.data, pack.bytes);
    must(!stepaf_verbs_ops.import_mem(from->links[peer], region->id, region->bytes, &unpack, &rmem),
         "import");
    free(pack.data);
    return rmem;
}

struct stepaf_post vside_post(struct vside *from, uint32_t peer, struct stepaf_xfer *xfers,
                              unsigned n, uint32_t bytes, const struct stepaf_rmem *rmem)
{
    for (unsigned i = 0; i < n; i++)
        xfers[i] = (struct stepaf_xfer){.src = from->regions[0].base + (size_t)i * bytes,
                                        .src_mem = &from->regions[0],
                                        .dst = rmem,
                                        .dst_offset = (uint64_t)i * bytes,
                                        .bytes = bytes};
    return (struct stepaf_post){.link = from->links[peer],
                                .xfer = xfers,
                                .n_xfer = (uint8_t)n,
                                .msg = {.type = STEPAF_MSG_START, .epoch = 1, .plan = 3}};
}

enum stepaf_post_state vside_send(struct stepaf_post *post)
{
    struct stepaf_post *posts[] = {post};

    post->is_short = stepaf_msg_to_imm(&post->msg, &post->imm);
    stepaf_verbs_ops.post(posts, 1);
    return (enum stepaf_post_state)post->state;
}

unsigned vside_progress(struct vside *side)
{
    return stepaf_verbs_ops.progress(side->transport, 1);
}

struct stepaf_verbs_link *vside_link(const struct vside *side, uint32_t peer)
{
    return (struct stepaf_verbs_link *)side->links[peer];
}
