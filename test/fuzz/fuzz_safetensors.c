/* SPDX-License-Identifier: Apache-2.0 */
/* Files of weights: the first 8 bytes are the header's length in decimal digits if they are digits,
 * so that mutations keep hitting it, else they are taken as they are. What is accepted lies within
 * the file, piece by piece, and can be found and converted. */
#include <string.h>

#include "bench/decode/convert.h"
#include "bench/decode/safetensors.h"
#include "fuzz.h"

static void write_length(uint8_t *file, size_t bytes)
{
    uint64_t length = 0;
    if (bytes < 8)
        return;
    for (int i = 0; i < 8; i++) {
        if (file[i] < '0' || file[i] > '9')
            return;
        length = length * 10 + (uint64_t)(file[i] - '0');
    }
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)(length >> (8 * i));
}

static void check_entry(const struct safetensors *st, const struct safetensors_entry *entry,
                        const uint8_t *file, size_t bytes)
{
    FUZZ_CHECK(entry->begin >= 8 && entry->begin <= entry->end && entry->end <= bytes);
    FUZZ_CHECK(safetensors_find(st, entry->name) == entry);
    FUZZ_CHECK(entry->ndim >= 0 && entry->ndim <= SAFETENSORS_MAX_DIMS);
    if (!convert_knows(entry->dtype))
        return;
    size_t count = (size_t)(entry->end - entry->begin) / convert_bytes(entry->dtype);
    float *values = malloc((count + 1) * sizeof(*values));
    FUZZ_CHECK(values != NULL);
    convert_to_float(entry->dtype, file + entry->begin, count, values);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct safetensors st = {0};
    struct reason reason = {0};
    uint8_t *file = malloc(bytes + 1);
    FUZZ_CHECK(file != NULL);
    memcpy(file, data, bytes);
    write_length(file, bytes);
    if (safetensors_parse(file, bytes, "file", &st, &reason) == 0) {
        uint64_t total = 0;
        for (size_t i = 0; i < st.count; i++) {
            check_entry(&st, &st.entries[i], file, bytes);
            total += st.entries[i].end - st.entries[i].begin;
        }
        FUZZ_CHECK(total <= bytes);
        safetensors_free(&st);
    } else {
        FUZZ_CHECK(st.entries == NULL && st.header == NULL);
        FUZZ_CHECK(reason.code != CODE_OK && reason.text[0] && !strpbrk(reason.text, "\n\r"));
    }
    free(file);
    return 0;
}
