/* SPDX-License-Identifier: Apache-2.0 */
#include "ofi_fabric.h"

#include <stdlib.h>
#include <string.h>

#include "ofi_gpu.h"
#include "ofi_infos.h"

enum {
    ENDPOINTS = 16,
    REGIONS = 128,
    WRITES = 4096,
    PARTS = 4,
    STEPS = 12,
    QUEUE = 1 << 15,
    EVENTS = 64
};

struct ofi_fabric ofi_fabric;

struct region {
    struct fid_mr mr; /* first */
    bool used, enabled;
    uint8_t *base;
    size_t bytes;
};

struct queue {
    struct fid_cq cq; /* first */
    struct fi_cq_data_entry entries[QUEUE];
    unsigned n;
    struct fi_cq_err_entry errors[WRITES];
    unsigned n_errors;
};

/* Errors that belong to no operation. */
struct events {
    struct fid_eq eq; /* first */
    int errors[EVENTS];
    unsigned n;
};

struct endpoint {
    struct fid_ep ep; /* first */
    struct events *events;
    bool for_gpu, used, enabled;
    struct queue *queue;
    unsigned under_way;
    unsigned more; /* FI_MORE writes since the last other one */
};

struct write {
    struct endpoint *from, *to;
    const uint8_t *source;
    uint8_t *target;             /* NULL: it is refused */
    const struct region *region; /* of the target */
    size_t bytes;
    unsigned placed; /* a bit for each part */
    uint64_t data;
    uint64_t number;
    void *context;
    bool used, rung, fails, told_target, told_source;
};

static struct endpoint endpoints[ENDPOINTS];
static struct region regions[REGIONS];
static struct write writes[WRITES];
static unsigned n_active, active[WRITES];
static uint32_t random_state;
static uint64_t write_number, key_number;

uint32_t ofi_fabric_random(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(random_state >> 4) * below >> 28);
}

static bool refuses_call(void)
{
    return ofi_fabric.refuse_call && !--ofi_fabric.refuse_call;
}

/* ---- the network ---- */

static void complete(struct queue *queue, void *context, uint64_t flags, uint64_t data)
{
    side_must(queue->n < QUEUE, "a completion queue overflows");
    queue->entries[queue->n++] =
        (struct fi_cq_data_entry){.op_context = context,
                                  .flags = flags,
                                  .data = ofi_fabric.cuts_data ? (uint32_t)data : data};
}

static void fail(struct queue *queue, void *context, int error)
{
    side_must(queue->n_errors < WRITES, "too many errors");
    queue->errors[queue->n_errors++] =
        (struct fi_cq_err_entry){.op_context = context, .err = error, .flags = FI_WRITE | FI_RMA};
}

static void place(struct write *write, unsigned part)
{
    size_t from = write->bytes * part / PARTS, to = write->bytes * (part + 1) / PARTS;

    memcpy(write->target + from, write->source + from, to - from);
    write->placed |= 1u << part;
}

static bool is_overtaking(const struct write *write)
{
    for (unsigned i = 0; i < n_active; i++) {
        const struct write *other = &writes[active[i]];
        if (other->from == write->from && other->to == write->to && other->number < write->number &&
            !other->told_target)
            return true;
    }
    return false;
}

static void end_write(struct write *write, unsigned at)
{
    write->used = false;
    write->from->under_way--;
    active[at] = active[--n_active];
}

static bool is_stuck(const struct write *write)
{
    return !write->rung || ofi_fabric.mute & 1u << (write->from - endpoints) ||
           ofi_fabric.stuck_to & 1u << (write->to - endpoints);
}

/* Whether a write ends by an error. */
static bool fails(struct write *write, unsigned at)
{
    if (!write->fails && write->target && write->to->used &&
        !(ofi_fabric.dead & 1u << (write->to - endpoints)))
        return false;
    fail(write->from->queue, write->context, write->target ? FI_ECONNRESET : FI_EACCES);
    end_write(write, at);
    return true;
}

/* One thing happens to a write: a part of it lands, or one end hears of it. */
static void advance(unsigned at)
{
    struct write *write = &writes[active[at]];
    unsigned part = ofi_fabric_random(PARTS);

    if (is_stuck(write) || (ofi_fabric.in_order && is_overtaking(write)))
        return;
    if (fails(write, at))
        return;
    if (write->placed != (1u << PARTS) - 1) {
        while (write->placed & 1u << part)
            part = (part + 1) % PARTS;
        place(write, part);
        return;
    }
    if (!write->told_target && (write->told_source || ofi_fabric_random(2))) {
        ofi_fabric.n_overtaken += is_overtaking(write);
        complete(write->to->queue, NULL, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, write->data);
        write->told_target = true;
    } else if (!write->told_source) {
        complete(write->from->queue, write->context, FI_RMA | FI_WRITE, 0);
        write->told_source = true;
    }
    if (write->told_target && write->told_source)
        end_write(write, at);
}

static void advance_some(void)
{
    for (unsigned steps = ofi_fabric_random(STEPS); steps && n_active && !ofi_fabric.holds; steps--)
        advance(ofi_fabric_random(n_active));
}

/* ---- endpoints ---- */

static uint8_t *target_of(const struct fi_rma_iov *there, const struct region **region_p)
{
    for (unsigned i = 0; i < REGIONS; i++) {
        struct region *region = &regions[i];
        uint64_t base =
            ofi_fabric.mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)region->base : 0;
        if (region->used && region->enabled && region->mr.key == there->key &&
            there->addr >= base && there->addr - base <= region->bytes &&
            there->len <= region->bytes - (there->addr - base)) {
            *region_p = region;
            return region->base + (there->addr - base);
        }
    }
    return NULL;
}

static bool is_own(const void *source, size_t bytes, const void *desc)
{
    for (unsigned i = 0; i < REGIONS; i++)
        if (regions[i].used && &regions[i] == desc && (const uint8_t *)source >= regions[i].base &&
            (const uint8_t *)source + bytes <= regions[i].base + regions[i].bytes)
            return true;
    return false;
}

/* All of the write, at once. */
static void do_write(unsigned at)
{
    struct write *write = &writes[active[at]];

    if (fails(write, at))
        return;
    memcpy(write->target, write->source, write->bytes);
    complete(write->to->queue, NULL, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, write->data);
    complete(write->from->queue, write->context, FI_RMA | FI_WRITE, 0);
    end_write(write, at);
}

/* The earliest write of all. */
static unsigned earliest(void)
{
    unsigned at = 0;

    for (unsigned i = 1; i < n_active; i++)
        if (writes[active[i]].number < writes[active[at]].number)
            at = i;
    return at;
}

static void ring(const struct endpoint *from)
{
    ofi_fabric.n_rung++;
    for (unsigned i = 0; i < n_active; i++)
        if (writes[active[i]].from == from)
            writes[active[i]].rung = true;
    while (ofi_fabric.prompt && n_active)
        do_write(earliest());
}

static ssize_t do_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    struct endpoint *from = (struct endpoint *)ep;
    unsigned at = 0;

    if (ofi_fabric.refuse_write)
        return -ofi_fabric.refuse_write;
    if ((ofi_fabric.refuse_one_in && !ofi_fabric_random(ofi_fabric.refuse_one_in)) ||
        (ofi_fabric.depth && from->under_way >= ofi_fabric.depth)) {
        ofi_fabric.n_refused++;
        return -FI_EAGAIN;
    }
    while (at < WRITES && writes[at].used)
        at++;
    side_must(at < WRITES && from->enabled && msg->iov_count == 1 && msg->rma_iov_count == 1 &&
                  msg->addr < ENDPOINTS && msg->msg_iov->iov_len <= ofi_fabric.max_msg,
              "a write");
    struct write *write = &writes[at];
    const struct region *region = NULL;
    uint8_t *target = target_of(msg->rma_iov, &region);
    *write = (struct write){.from = from,
                            .to = &endpoints[msg->addr],
                            .source = msg->msg_iov->iov_base,
                            .target = target,
                            .region = region,
                            .bytes = msg->msg_iov->iov_len,
                            .data = msg->data,
                            .number = write_number++,
                            .context = msg->context,
                            .used = true};
    if (!write->target || !is_own(write->source, write->bytes, *msg->desc))
        ofi_fabric.n_foreign++;
    write->fails = ofi_fabric.fail_after && !--ofi_fabric.fail_after;
    active[n_active++] = at;
    from->under_way++;
    ofi_fabric.n_writes++;
    from->more = flags & FI_MORE ? from->more + 1 : 0;
    if (from->more > ofi_fabric.more_run)
        ofi_fabric.more_run = from->more;
    if (!from->more)
        ring(from);
    return 0;
}

static ssize_t ep_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    return ofi_fabric.only_writedata ? -FI_EBADFLAGS : do_writemsg(ep, msg, flags);
}

static ssize_t ep_writedata(struct fid_ep *ep, const void *source, size_t bytes, void *desc,
                            uint64_t data, fi_addr_t to, uint64_t address, uint64_t key,
                            void *context)
{
    const struct iovec iov = {(void *)(uintptr_t)source, bytes};
    const struct fi_rma_iov there = {address, bytes, key};
    const struct fi_msg_rma msg = {.msg_iov = &iov,
                                   .desc = &desc,
                                   .iov_count = 1,
                                   .addr = to,
                                   .rma_iov = &there,
                                   .rma_iov_count = 1,
                                   .context = context,
                                   .data = data};

    return ofi_fabric.only_writedata ? do_writemsg(ep, &msg, 0) : -FI_ENOSYS;
}

struct fi_ops_rma ofi_fabric_rma = {
    .size = sizeof(ofi_fabric_rma), .writemsg = ep_writemsg, .writedata = ep_writedata};

static int ep_getname(fid_t fid, void *address, size_t *bytes)
{
    uint64_t name[2] = {0x6f6666, (uint64_t)((struct endpoint *)(void *)fid - endpoints)};

    side_must(*bytes >= sizeof(name), "room for a name");
    memcpy(address, name, sizeof(name));
    *bytes = sizeof(name);
    return refuses_call() ? -FI_ENOMEM : 0;
}

static struct fi_ops_cm cm_ops = {.size = sizeof(cm_ops), .getname = ep_getname};

static int ep_close(struct fid *fid)
{
    struct endpoint *endpoint = (struct endpoint *)(void *)fid;

    for (unsigned i = n_active; i-- > 0;)
        if (writes[active[i]].from == endpoint)
            end_write(&writes[active[i]], i);
    *endpoint = (struct endpoint){.used = false};
    ofi_fabric.n_open--;
    return 0;
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    if (flags)
        ((struct endpoint *)(void *)fid)->queue = (struct queue *)(void *)other;
    else if (other->fclass == FI_CLASS_EQ)
        ((struct endpoint *)(void *)fid)->events = (struct events *)(void *)other;
    return refuses_call() ? -FI_ENOMEM : 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
    (void)arg;
    side_must(command == FI_ENABLE, "control");
    if (((struct endpoint *)(void *)fid)->for_gpu && ofi_gpu.refuse_enable)
        return ofi_gpu.refuse_enable;
    ((struct endpoint *)(void *)fid)->enabled = true;
    return refuses_call() ? -FI_ENOMEM : 0;
}

static struct fi_ops ep_fid_ops = {
    .size = sizeof(ep_fid_ops), .close = ep_close, .bind = ep_bind, .control = ep_control};

static int domain_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep_p,
                           void *context)
{
    unsigned at = 0;

    (void)domain;
    (void)context;
    if (refuses_call())
        return -FI_ENOMEM;
    while (at < ENDPOINTS && endpoints[at].used)
        at++;
    side_must(at < ENDPOINTS, "endpoints");
    endpoints[at] = (struct endpoint){.used = true, .for_gpu = info->caps & FI_HMEM};
    endpoints[at].ep.fid.ops = &ep_fid_ops;
    endpoints[at].ep.ops = &ofi_gpu_ep;
    endpoints[at].ep.cm = &cm_ops;
    endpoints[at].ep.rma = &ofi_fabric_rma;
    *ep_p = &endpoints[at].ep;
    ofi_fabric.n_open++;
    return 0;
}

/* ---- completion queues ---- */

static ssize_t cq_read(struct fid_cq *cq, void *entries, size_t n)
{
    struct queue *queue = (struct queue *)cq;

    if (ofi_fabric.broken)
        return -FI_EIO;
    advance_some();
    if (queue->n_errors)
        return -FI_EAVAIL;
    if (!queue->n)
        return -FI_EAGAIN;
    if (!ofi_fabric.prompt)
        n = 1 + ofi_fabric_random((uint32_t)n);
    n = n < queue->n ? n : queue->n;
    memcpy(entries, queue->entries, n * sizeof(*queue->entries));
    queue->n -= (unsigned)n;
    memmove(queue->entries, queue->entries + n, queue->n * sizeof(*queue->entries));
    return (ssize_t)n;
}

static ssize_t cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t flags)
{
    struct queue *queue = (struct queue *)cq;

    (void)flags;
    if (!queue->n_errors)
        return -FI_EAGAIN;
    *entry = queue->errors[--queue->n_errors];
    return 1;
}

struct fi_ops_cq ofi_fabric_cq = {
    .size = sizeof(ofi_fabric_cq), .read = cq_read, .readerr = cq_readerr};

static int free_close(struct fid *fid)
{
    ofi_fabric.n_open--;
    free(fid);
    return 0;
}

static struct fi_ops free_ops = {.size = sizeof(free_ops), .close = free_close};

/* A new object, or NULL, which begins with a fid. */
static void *make(size_t bytes)
{
    struct fid *fid = refuses_call() ? NULL : calloc(1, bytes);

    if (fid) {
        fid->ops = &free_ops;
        ofi_fabric.n_open++;
    }
    return fid;
}

/* ---- events ---- */

static ssize_t eq_read(struct fid_eq *eq, uint32_t *event, void *entry, size_t bytes,
                       uint64_t flags)
{
    (void)event;
    (void)entry;
    (void)bytes;
    (void)flags;
    return ((struct events *)eq)->n ? -FI_EAVAIL : -FI_EAGAIN;
}

static ssize_t eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *entry, uint64_t flags)
{
    struct events *events = (struct events *)eq;

    (void)flags;
    side_must(events->n, "an error to read");
    entry->err = events->errors[--events->n];
    return sizeof(*entry);
}

static struct fi_ops_eq eq_ops = {.size = sizeof(eq_ops), .read = eq_read, .readerr = eq_readerr};

static int eq_close(struct fid *fid)
{
    for (unsigned i = 0; i < ENDPOINTS; i++)
        side_must(!endpoints[i].used || &endpoints[i].events->eq.fid != fid,
                  "the endpoint is closed before its events");
    return free_close(fid);
}

static struct fi_ops eq_fid_ops = {.size = sizeof(eq_fid_ops), .close = eq_close};

static int fabric_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq_p,
                          void *context)
{
    struct events *events = make(sizeof(*events));

    (void)fabric;
    (void)context;
    side_must(attr->wait_obj == FI_WAIT_NONE, "events that are polled");
    if (!events)
        return -FI_ENOMEM;
    events->eq.fid.fclass = FI_CLASS_EQ;
    events->eq.fid.ops = &eq_fid_ops;
    events->eq.ops = &eq_ops;
    *eq_p = &events->eq;
    return 0;
}

static int domain_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq_p,
                          void *context)
{
    struct queue *queue;

    (void)domain;
    (void)context;
    if (ofi_fabric.queue_max && attr->size > ofi_fabric.queue_max)
        return -FI_EINVAL;
    queue = make(sizeof(*queue));
    ofi_fabric.queue = attr->size;
    side_must(attr->format == FI_CQ_FORMAT_DATA, "completions with data");
    if (!queue)
        return -FI_ENOMEM;
    queue->cq.ops = &ofi_fabric_cq;
    *cq_p = &queue->cq;
    return 0;
}

/* ---- addresses ---- */

static int av_insert(struct fid_av *av, const void *address, size_t n, fi_addr_t *addr_p,
                     uint64_t flags, void *context)
{
    uint64_t name[2];

    (void)av;
    (void)flags;
    (void)context;
    memcpy(name, address, sizeof(name));
    if (n != 1 || name[0] != 0x6f6666 || name[1] >= ENDPOINTS)
        return 0;
    *addr_p = name[1];
    ofi_fabric.n_addresses++;
    return 1;
}

static int av_remove(struct fid_av *av, fi_addr_t *addr, size_t n, uint64_t flags)
{
    (void)av;
    (void)flags;
    side_must(n == 1 && *addr < ENDPOINTS, "an address to remove");
    for (unsigned i = 0; i < n_active; i++)
        side_must(writes[active[i]].to != &endpoints[*addr], "its writes are through");
    ofi_fabric.n_addresses--;
    return 0;
}

static const char *av_straddr(struct fid_av *av, const void *address, char *text, size_t *bytes)
{
    uint64_t name[2];

    (void)av;
    memcpy(name, address, sizeof(name));
    side_must(name[0] == 0x6f6666, "an address of an endpoint");
    *bytes = (size_t)snprintf(text, *bytes, "fi_made_up://endpoint %d", (int)name[1]) + 1;
    return text;
}

static struct fi_ops_av av_ops = {
    .size = sizeof(av_ops), .insert = av_insert, .remove = av_remove, .straddr = av_straddr};

static int domain_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av_p,
                          void *context)
{
    struct fid_av *av = make(sizeof(*av));

    (void)domain;
    (void)attr;
    (void)context;
    if (!av)
        return -FI_ENOMEM;
    av->ops = &av_ops;
    *av_p = av;
    return 0;
}

/* ---- memory ---- */

static int mr_close(struct fid *fid)
{
    for (unsigned i = 0; i < n_active; i++) /* their key is gone */
        if (writes[active[i]].region == (const struct region *)(void *)fid)
            writes[active[i]].target = NULL;
    *(struct region *)(void *)fid = (struct region){.used = false};
    ofi_fabric.n_open--;
    return 0;
}

static int mr_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    (void)fid;
    (void)other;
    (void)flags;
    return refuses_call() ? -FI_ENOMEM : 0;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
    (void)arg;
    side_must(command == FI_ENABLE, "control");
    ((struct region *)(void *)fid)->enabled = true;
    return refuses_call() ? -FI_ENOMEM : 0;
}

static struct fi_ops mr_fid_ops = {
    .size = sizeof(mr_fid_ops), .close = mr_close, .bind = mr_bind, .control = mr_control};

/* A key that the provider chooses. */
static uint64_t key_of(const void *base)
{
    for (unsigned i = 0; ofi_fabric.same_keys && i < REGIONS; i++)
        if (regions[i].used && regions[i].base == base && regions[i].mr.key)
            return regions[i].mr.key;
    return ++key_number << 8;
}

static int domain_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                          struct fid_mr **mr_p)
{
    unsigned at = 0;

    (void)fid;
    (void)flags;
    int error = ofi_gpu_register(attr);
    if (error)
        return error;
    if (refuses_call())
        return -FI_ENOMEM;
    if (ofi_fabric.taken_keys && ofi_fabric.taken_keys--)
        return -FI_ENOKEY;
    while (at < REGIONS && regions[at].used)
        at++;
    side_must(at < REGIONS && attr->iov_count == 1 && attr->access == (FI_WRITE | FI_REMOTE_WRITE),
              "a registration");
    regions[at] = (struct region){.used = true,
                                  .enabled = !(ofi_fabric.mr_mode & FI_MR_ENDPOINT),
                                  .base = attr->mr_iov->iov_base,
                                  .bytes = attr->mr_iov->iov_len};
    regions[at].mr.fid.ops = &mr_fid_ops;
    regions[at].mr.key =
        ofi_fabric.mr_mode & FI_MR_PROV_KEY ? key_of(regions[at].base) : attr->requested_key;
    regions[at].mr.mem_desc = &regions[at];
    *mr_p = &regions[at].mr;
    ofi_fabric.n_open++;
    return 0;
}

static struct fi_ops_mr mr_ops = {.size = sizeof(mr_ops), .regattr = domain_regattr};
static struct fi_ops_domain domain_ops = {.size = sizeof(domain_ops),
                                          .av_open = domain_av_open,
                                          .cq_open = domain_cq_open,
                                          .endpoint = domain_endpoint};

/* ---- the library ---- */

static int fabric_domain(struct fid_fabric *fabric, struct fi_info *info,
                         struct fid_domain **domain_p, void *context)
{
    struct fid_domain *domain = make(sizeof(*domain));

    (void)fabric;
    (void)info;
    (void)context;
    if (!domain)
        return -FI_ENOMEM;
    domain->ops = &domain_ops;
    domain->mr = &mr_ops;
    *domain_p = domain;
    return 0;
}

static struct fi_ops_fabric fabric_ops = {
    .size = sizeof(fabric_ops), .domain = fabric_domain, .eq_open = fabric_eq_open};

static int library_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric_p, void *context)
{
    struct fid_fabric *fabric = make(sizeof(*fabric));

    (void)attr;
    (void)context;
    if (!fabric)
        return -FI_ENOMEM;
    fabric->ops = &fabric_ops;
    *fabric_p = fabric;
    return 0;
}

const struct stepaf_ofi_library ofi_fabric_library = {.getinfo = ofi_infos_getinfo,
                                                      .freeinfo = ofi_infos_freeinfo,
                                                      .dupinfo = ofi_infos_dupinfo,
                                                      .fabric = library_fabric,
                                                      .strerror = ofi_infos_strerror,
                                                      .nearest = ofi_infos_nearest,
                                                      .core = ofi_infos_core};

void ofi_fabric_reset(uint32_t seed)
{
    static const char *const names[] = {"efa", NULL}, *const domains[] = {"made-up", NULL};

    side_must(!ofi_fabric.n_open, "all is closed");
    memset(writes, 0, sizeof(writes));
    n_active = 0;
    random_state = seed;
    ofi_gpu = (struct ofi_gpu){.n_listed = 0};
    ofi_fabric = (struct ofi_fabric){.names = names,
                                     .domains = domains,
                                     .mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
                                                FI_MR_PROV_KEY,
                                     .cq_data_size = 4,
                                     .key_bytes = 8,
                                     .max_msg = 1 << 20};
    stepaf_ofi_library_fake = &ofi_fabric_library;
    side_ops = &stepaf_ofi_ops;
}

unsigned ofi_fabric_number_of(const struct side *side, unsigned rail)
{
    return (unsigned)((struct endpoint *)ofi_of(side)->rails[rail].ep - endpoints);
}

unsigned ofi_fabric_number(const struct side *side)
{
    return ofi_fabric_number_of(side, 0);
}

void ofi_fabric_say(const struct side *side, uint64_t data)
{
    ofi_fabric_guess(side,
                     stepaf_ofi_hide(data, ofi_of(side)->shared.token, ofi_of(side)->is_wide));
}

void ofi_fabric_guess(const struct side *side, uint64_t data)
{
    complete((struct queue *)ofi_of(side)->rails[0].cq, NULL,
             FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, data);
}

void ofi_fabric_say_error(const struct side *side, void *context, int error)
{
    fail((struct queue *)ofi_of(side)->rails[0].cq, context, error);
}

void ofi_fabric_say_event(const struct side *side, int error)
{
    struct events *events = endpoints[ofi_fabric_number(side)].events;

    side_must(events && events->n < EVENTS, "efa ends the process");
    events->errors[events->n++] = error;
}

struct stepaf_ofi *ofi_of(const struct side *side)
{
    return (struct stepaf_ofi *)side->transport;
}

struct stepaf_ofi_link *ofi_link(const struct side *side, uint32_t peer)
{
    return (struct stepaf_ofi_link *)side->links[peer];
}
