/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, and links made from them. */
#include <string.h>

#include "transport/ofi/ofi.h"

void stepaf_ofi_address_text(const struct stepaf_ofi *ofi, char *text)
{
    char whole[STEPAF_OFI_ADDRESS] = "";
    size_t bytes = sizeof(whole);

    if (FI_CHECK_OP(ofi->f.av->ops, struct fi_ops_av, straddr))
        (void)fi_av_straddr(ofi->f.av, ofi->f.address, whole, &bytes);
    whole[sizeof(whole) - 1] = '\0';
    const char *behind = strstr(whole, "://"); /* the name of the format */
    snprintf(text, STEPAF_LINK_ADDRESS, "%.47s", behind ? behind + 3 : whole);
}

void stepaf_ofi_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    const struct stepaf_ofi_registration *slots = ofi->slots_mem.registration[0];

    stepaf_pack_text(pack, ofi->f.info->fabric_attr->prov_name);
    stepaf_pack_u64(pack, ofi->shared.token);
    stepaf_pack_u64(pack, ofi->shared.pids);
    stepaf_pack_u64(pack, slots->base);
    stepaf_pack_u64(pack, slots->key);
    stepaf_pack_u32(pack, ofi->is_wide);
    stepaf_pack_u32(pack, (uint32_t)ofi->f.address_bytes);
    stepaf_pack_bytes(pack, ofi->f.address, ofi->f.address_bytes);
}

/* Whether the provider can read an address, which is as long as its own, or a text. */
static bool address_is_sound(const struct stepaf_ofi *ofi, const uint8_t *address, uint32_t bytes)
{
    if (!address || !bytes || bytes > STEPAF_OFI_ADDRESS)
        return false;
    if (ofi->f.info->addr_format == FI_ADDR_STR)
        return memchr(address, 0, bytes) == address + bytes - 1;
    return bytes == ofi->f.address_bytes;
}

stepaf_status_t stepaf_ofi_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    struct stepaf_ofi_link *link = &ofi->links[facts->peer];
    char provider[STEPAF_OFI_PROVIDER];
    uint8_t copy[STEPAF_OFI_ADDRESS + 1] = {0};

    *link_p = NULL;
    stepaf_unpack_text(unpack, provider, sizeof(provider));
    uint64_t token = stepaf_unpack_u64(unpack);
    uint64_t pids = stepaf_unpack_u64(unpack);
    link->ring = stepaf_unpack_u64(unpack);
    link->ring_key = stepaf_unpack_u64(unpack);
    bool is_wide = stepaf_unpack_u32(unpack);
    uint32_t bytes = stepaf_unpack_u32(unpack);
    const uint8_t *address = stepaf_unpack_bytes(unpack, bytes);

    if (unpack->failed || facts->index_at_peer >= STEPAF_FABRIC_PEERS) {
        snprintf(reason, STEPAF_REASON_MAX, "its address is malformed");
        return STEPAF_OK;
    }
    if (strcmp(provider, ofi->f.info->fabric_attr->prov_name) != 0) {
        snprintf(reason, STEPAF_REASON_MAX, "its provider is %.40s, not %.40s", provider,
                 ofi->f.info->fabric_attr->prov_name);
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
    if (!address_is_sound(ofi, address, bytes)) {
        snprintf(reason, STEPAF_REASON_MAX, "its address is malformed");
        return STEPAF_OK;
    }
    memcpy(copy, address, bytes);
    if (fi_av_insert(ofi->f.av, copy, 1, &link->to, 0, NULL) != 1) {
        snprintf(reason, STEPAF_REASON_MAX, "libfabric does not take its address");
        return STEPAF_OK;
    }
    stepaf_fabric_connect(&link->shared, facts, token, pids);
    snprintf(link->shared.base.name, sizeof(link->shared.base.name), "ofi;%.26s", provider);
    stepaf_ofi_address_text(ofi, link->shared.base.address);
    *link_p = &link->shared.base;
    return STEPAF_OK;
}

void stepaf_ofi_disconnect(struct stepaf_link *link)
{
    stepaf_fabric_disconnect((struct stepaf_fabric_link *)link);
}
