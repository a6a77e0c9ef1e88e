/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of endpoints, and links made from them. */
#include <string.h>

#include "transport/ofi/ofi.h"

void stepaf_ofi_address_text(const struct stepaf_ofi *ofi, char *text)
{
    char whole[STEPAF_OFI_ADDRESS] = "";
    size_t bytes = sizeof(whole);

    if (FI_CHECK_OP(ofi->rails[0].av->ops, struct fi_ops_av, straddr))
        (void)fi_av_straddr(ofi->rails[0].av, ofi->rails[0].address, whole, &bytes);
    whole[sizeof(whole) - 1] = '\0';
    const char *behind = strstr(whole, "://"); /* after the name of the format */
    snprintf(text, STEPAF_LINK_ADDRESS, "%.47s", behind ? behind + 3 : whole);
}

/* Return where the slots of a link are, for its peer. */
static uint64_t ring_of(const struct stepaf_ofi_link *link)
{
    const struct stepaf_ofi_registration *slots = link->slots->mem.registration[0];
    uint64_t row = link->shared.sender - link->slots->first;

    return slots->base + row * STEPAF_OFI_PLACES * STEPAF_FABRIC_SLOT;
}

/* Return whether a process that takes a lost peer's place is to use another sender number than its
 * index. */
static bool is_renumbered(const struct stepaf_ofi_link *link)
{
    return link->shared.sender != link->shared.base.peer && !link->shared.base.ops;
}

static void pack_renumbered(const struct stepaf_ofi *ofi, struct stepaf_pack *pack)
{
    uint32_t n = 0;

    for (uint32_t p = 0; p < ofi->shared.n_peers; p++)
        n += is_renumbered(stepaf_ofi_link(ofi, p));
    stepaf_pack_u32(pack, n);
    for (uint32_t p = 0; n && p < ofi->shared.n_peers; p++) {
        const struct stepaf_ofi_link *link = stepaf_ofi_link(ofi, p);
        if (!is_renumbered(link))
            continue;
        const struct stepaf_ofi_registration *slots = link->slots->mem.registration[0];
        stepaf_pack_u32(pack, p);
        stepaf_pack_u32(pack, link->shared.sender);
        stepaf_pack_u64(pack, ring_of(link));
        for (unsigned r = 0; r < ofi->n_rails; r++)
            stepaf_pack_u64(pack, slots->rails[r].key);
    }
}

void stepaf_ofi_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    const struct stepaf_ofi_link *first = stepaf_ofi_sender(ofi, 0);
    const struct stepaf_ofi_registration *slots = first->slots->mem.registration[0];

    stepaf_pack_text(pack, ofi->shared.name);
    stepaf_pack_u64(pack, ofi->shared.token);
    stepaf_pack_u64(pack, ofi->shared.pids);
    stepaf_pack_u32(pack, ofi->is_wide);
    stepaf_pack_u32(pack, ofi->rails[0].info->addr_format);
    stepaf_pack_u64(pack, ring_of(first));
    stepaf_pack_u32(pack, ofi->n_rails);
    for (unsigned r = 0; r < ofi->n_rails; r++)
        stepaf_pack_u64(pack, slots->rails[r].key);
    pack_renumbered(ofi, pack);
    for (unsigned r = 0; r < ofi->n_rails; r++) {
        stepaf_pack_u32(pack, (uint32_t)ofi->rails[r].address_bytes);
        stepaf_pack_bytes(pack, ofi->rails[r].address, ofi->rails[r].address_bytes);
    }
}

/* Return whether the provider can read an address: it is as long as its own, or text. */
static bool address_is_sound(const struct stepaf_ofi_rail *rail, const uint8_t *address,
                             uint32_t bytes)
{
    if (!address || !bytes || bytes > STEPAF_OFI_ADDRESS)
        return false;
    if (rail->info->addr_format == FI_ADDR_STR)
        return memchr(address, 0, bytes) == address + bytes - 1;
    return bytes == rail->address_bytes;
}

/* Read the keys of the peer's slots, one a rail of the peer's; those of this link if @a is_own. */
static void read_ring_keys(struct stepaf_ofi_link *link, uint32_t n_rails, bool is_own,
                           struct stepaf_unpack *unpack)
{
    for (uint32_t r = 0; r < n_rails && !unpack->failed; r++) {
        uint64_t key = stepaf_unpack_u64(unpack);
        if (is_own && r < link->n_paths)
            link->paths[r].ring_key = key;
    }
}

/* Read where the peer's slots for this rank are, and with which sender number this rank writes.
 * Returns false if the number is impossible. */
static bool read_its_ring(struct stepaf_ofi_link *link, uint32_t index, uint32_t n_rails,
                          uint64_t ring, struct stepaf_unpack *unpack)
{
    link->ring = ring + (uint64_t)index * STEPAF_OFI_PLACES * STEPAF_FABRIC_SLOT;
    link->shared.sender_at_peer = index;
    read_ring_keys(link, n_rails, true, unpack);
    uint32_t n = stepaf_unpack_u32(unpack);
    for (uint32_t i = 0; i < n && !unpack->failed; i++) {
        bool is_own = stepaf_unpack_u32(unpack) == index;
        uint32_t sender = stepaf_unpack_u32(unpack);
        ring = stepaf_unpack_u64(unpack);
        read_ring_keys(link, n_rails, is_own, unpack);
        if (!is_own)
            continue;
        link->ring = ring;
        link->shared.sender_at_peer = sender;
    }
    return link->shared.sender_at_peer < STEPAF_FABRIC_PEERS;
}

/* Read the paths. Rails have the same numbers at both ends; if one end has fewer, the rest is not
 * used. Returns NULL, or what is wrong. */
static const char *read_paths(struct stepaf_ofi *ofi, struct stepaf_ofi_link *link, uint32_t index,
                              struct stepaf_unpack *unpack)
{
    uint64_t ring = stepaf_unpack_u64(unpack);
    uint32_t n = stepaf_unpack_u32(unpack);

    link->n_paths = n < ofi->n_rails ? n : ofi->n_rails;
    if (!read_its_ring(link, index, n, ring, unpack))
        return "its address is malformed";
    for (uint32_t r = 0; r < link->n_paths; r++) {
        uint8_t copy[STEPAF_OFI_ADDRESS + 1] = {0};
        uint32_t bytes = stepaf_unpack_u32(unpack);
        const uint8_t *address = stepaf_unpack_bytes(unpack, bytes);
        if (unpack->failed || !address_is_sound(&ofi->rails[r], address, bytes))
            return "its address is malformed";
        memcpy(copy, address, bytes);
        if (fi_av_insert(ofi->rails[r].av, copy, 1, &link->paths[r].to, 0, NULL) != 1)
            return "libfabric rejects its address";
    }
    return n && !unpack->failed ? NULL : "its address is malformed";
}

stepaf_status_t stepaf_ofi_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    struct stepaf_ofi_link *link = stepaf_ofi_link(ofi, facts->peer);
    const char *own = ofi->shared.name;
    char provider[STEPAF_OFI_PROVIDER];

    *link_p = NULL;
    stepaf_unpack_text(unpack, provider, sizeof(provider));
    uint64_t token = stepaf_unpack_u64(unpack);
    uint64_t pids = stepaf_unpack_u64(unpack);
    bool is_wide = stepaf_unpack_u32(unpack);
    uint32_t format = stepaf_unpack_u32(unpack);

    if (link->shared.base.ops) { /* of the process before; reopen has failed */
        snprintf(reason, STEPAF_REASON_MAX, "there is no room for another process in its place");
        return STEPAF_OK;
    }
    if (unpack->failed || facts->index_at_peer >= STEPAF_FABRIC_PEERS) {
        snprintf(reason, STEPAF_REASON_MAX, "its address is malformed");
        return STEPAF_OK;
    }
    if (strcmp(provider, own) != 0) {
        snprintf(reason, STEPAF_REASON_MAX, "its provider is %.40s, not %.40s", provider, own);
        return STEPAF_OK;
    }
    if (is_wide != ofi->is_wide) {
        snprintf(reason, STEPAF_REASON_MAX, "its writes carry %d bits, not %d", is_wide ? 64 : 32,
                 ofi->is_wide ? 64 : 32);
        return STEPAF_OK;
    }
    if (!strcmp(provider, "shm") && facts->node_id != transport->up->topo->node_id) {
        snprintf(reason, STEPAF_REASON_MAX, "on another node");
        return STEPAF_OK;
    }
    if (format != ofi->rails[0].info->addr_format) { /* as of IPv4 and IPv6 */
        snprintf(reason, STEPAF_REASON_MAX,
                 "its addresses are of another kind (STEPAF_OFI_DOMAINS)");
        return STEPAF_OK;
    }
    const char *wrong = read_paths(ofi, link, facts->index_at_peer, unpack);
    if (wrong) {
        link->n_paths = 0;
        snprintf(reason, STEPAF_REASON_MAX, "%s", wrong);
        return STEPAF_OK;
    }
    stepaf_fabric_connect(&link->shared, facts, token, pids);
    /* Attention ranks connect first. Provider tcp (2.x) may close a good connection where a
     * connection crosses it to a process that has taken a place. */
    link->shared.proof.answers = stepaf_ofi_has_sockets(ofi) && !transport->up->initiates;
    ofi->settled = false;
    ofi->is_due = true;
    stepaf_ofi_note_hellos(link); /* some may have arrived before */
    snprintf(link->shared.base.name, sizeof(link->shared.base.name), "ofi;%.26s", provider);
    stepaf_ofi_address_text(ofi, link->shared.base.address);
    *link_p = &link->shared.base;
    return STEPAF_OK;
}

void stepaf_ofi_disconnect(struct stepaf_link *link)
{
    stepaf_fabric_disconnect((struct stepaf_fabric_link *)link);
}
