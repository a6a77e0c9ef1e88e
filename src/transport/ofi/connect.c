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

void stepaf_ofi_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    const struct stepaf_ofi_registration *slots = ofi->slots_mem.registration[0];

    stepaf_pack_text(pack, ofi->shared.name);
    stepaf_pack_u64(pack, ofi->shared.token);
    stepaf_pack_u64(pack, ofi->shared.pids);
    stepaf_pack_u64(pack, slots->base);
    stepaf_pack_u32(pack, ofi->is_wide);
    stepaf_pack_u32(pack, ofi->rails[0].info->addr_format);
    stepaf_pack_u32(pack, ofi->n_rails);
    for (unsigned r = 0; r < ofi->n_rails; r++) {
        stepaf_pack_u64(pack, slots->rails[r].key);
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

/* Read the paths. Rails have the same numbers at both ends; if one end has fewer, the rest is not
 * used. Returns NULL, or what is wrong. */
static const char *read_paths(struct stepaf_ofi *ofi, struct stepaf_ofi_link *link,
                              struct stepaf_unpack *unpack)
{
    uint32_t n = stepaf_unpack_u32(unpack);

    link->n_paths = n < ofi->n_rails ? n : ofi->n_rails;
    for (uint32_t r = 0; r < link->n_paths; r++) {
        struct stepaf_ofi_path *path = &link->paths[r];
        uint8_t copy[STEPAF_OFI_ADDRESS + 1] = {0};
        path->ring_key = stepaf_unpack_u64(unpack);
        uint32_t bytes = stepaf_unpack_u32(unpack);
        const uint8_t *address = stepaf_unpack_bytes(unpack, bytes);
        if (unpack->failed || !address_is_sound(&ofi->rails[r], address, bytes))
            return "its address is malformed";
        memcpy(copy, address, bytes);
        if (fi_av_insert(ofi->rails[r].av, copy, 1, &path->to, 0, NULL) != 1)
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
    struct stepaf_ofi_link *link = &ofi->links[facts->peer];
    const char *own = ofi->shared.name;
    char provider[STEPAF_OFI_PROVIDER];

    *link_p = NULL;
    stepaf_unpack_text(unpack, provider, sizeof(provider));
    uint64_t token = stepaf_unpack_u64(unpack);
    uint64_t pids = stepaf_unpack_u64(unpack);
    link->ring = stepaf_unpack_u64(unpack);
    bool is_wide = stepaf_unpack_u32(unpack);
    uint32_t format = stepaf_unpack_u32(unpack);

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
    const char *wrong = read_paths(ofi, link, unpack);
    if (wrong) {
        link->n_paths = 0;
        snprintf(reason, STEPAF_REASON_MAX, "%s", wrong);
        return STEPAF_OK;
    }
    stepaf_fabric_connect(&link->shared, facts, token, pids);
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
