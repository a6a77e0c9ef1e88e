/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pack.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

void stepaf_pack_bytes(struct stepaf_pack *pack, const void *data, size_t bytes)
{
    if (pack->failed || !bytes)
        return;
    if (pack->capacity - pack->bytes < bytes) {
        size_t capacity = pack->capacity ? pack->capacity : 256;
        while (capacity - pack->bytes < bytes)
            capacity *= 2;
        uint8_t *grown = realloc(pack->data, capacity);
        if (!grown) {
            pack->failed = true;
            return;
        }
        pack->data = grown;
        pack->capacity = capacity;
    }
    memcpy(pack->data + pack->bytes, data, bytes);
    pack->bytes += bytes;
}

void stepaf_pack_u32(struct stepaf_pack *pack, uint32_t value)
{
    value = htole32(value);
    stepaf_pack_bytes(pack, &value, sizeof(value));
}

void stepaf_pack_u64(struct stepaf_pack *pack, uint64_t value)
{
    value = htole64(value);
    stepaf_pack_bytes(pack, &value, sizeof(value));
}

void stepaf_pack_text(struct stepaf_pack *pack, const char *text)
{
    size_t bytes = strlen(text);

    stepaf_pack_u32(pack, (uint32_t)bytes);
    stepaf_pack_bytes(pack, text, bytes);
}

const void *stepaf_unpack_bytes(struct stepaf_unpack *unpack, size_t bytes)
{
    if (unpack->failed || (size_t)(unpack->end - unpack->at) < bytes) {
        unpack->failed = true;
        return NULL;
    }
    const void *place = unpack->at;
    unpack->at += bytes;
    return place;
}

uint32_t stepaf_unpack_u32(struct stepaf_unpack *unpack)
{
    uint32_t value = 0;
    const void *place = stepaf_unpack_bytes(unpack, sizeof(value));

    if (place)
        memcpy(&value, place, sizeof(value));
    return le32toh(value);
}

uint64_t stepaf_unpack_u64(struct stepaf_unpack *unpack)
{
    uint64_t value = 0;
    const void *place = stepaf_unpack_bytes(unpack, sizeof(value));

    if (place)
        memcpy(&value, place, sizeof(value));
    return le64toh(value);
}

void stepaf_unpack_text(struct stepaf_unpack *unpack, char *text_p, size_t capacity)
{
    uint32_t bytes = stepaf_unpack_u32(unpack);
    const char *place = stepaf_unpack_bytes(unpack, bytes);
    size_t kept = 0;

    if (place)
        kept = bytes < capacity ? bytes : capacity - 1;
    if (kept)
        memcpy(text_p, place, kept);
    text_p[kept] = '\0';
}
