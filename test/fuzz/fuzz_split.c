/* SPDX-License-Identifier: Apache-2.0 */
/* Split strings and map files: the first byte is the size of the job, the second one says what the
 * rest is, a string if it is odd and a map file's text if it is even; its higher bits scatter the
 * ranks over nodes. All roles are written, both of them, or nothing is. */
#include <string.h>

#include "base/error.h"
#include "boot/split.h"
#include "fuzz.h"

enum { UNTOUCHED = 0x5a };

static void check_roles(const uint8_t *roles, int size)
{
    int counts[2] = {0, 0};
    for (int i = 0; i < size; i++) {
        FUZZ_CHECK(roles[i] == STEPAF_ATTENTION || roles[i] == STEPAF_FFN);
        counts[roles[i]]++;
    }
    FUZZ_CHECK(counts[STEPAF_ATTENTION] > 0 && counts[STEPAF_FFN] > 0);
}

static void check_untouched(const uint8_t *roles, int size)
{
    for (int i = 0; i < size; i++)
        FUZZ_CHECK(roles[i] == UNTOUCHED);
    FUZZ_CHECK(stepaf_last_error()->status == STEPAF_ERR_SPLIT);
    FUZZ_CHECK(!strpbrk(stepaf_last_error()->text, "\n\r"));
}

/* Each node has both roles, too. */
static void check_nodes(const struct stepaf_split_rank *ranks, const uint8_t *roles, int size)
{
    for (int r = 0; r < size; r++) {
        int counts[2] = {0, 0};
        for (int i = 0; i < size; i++)
            if (ranks[i].node_id == ranks[r].node_id)
                counts[roles[i]]++;
        FUZZ_CHECK(counts[STEPAF_ATTENTION] > 0 && counts[STEPAF_FFN] > 0);
    }
}

static stepaf_status_t split_up(const char *text, int scatter, int size, uint8_t *roles)
{
    struct stepaf_split_rank *ranks = malloc((size_t)size * sizeof *ranks);
    struct stepaf_split split;
    stepaf_status_t status = stepaf_split_parse(text, size, &split);

    for (int r = 0; r < size; r++)
        ranks[r] = (struct stepaf_split_rank){
            (uint64_t)(scatter & 2 ? r / 4 : r % (1 + (scatter >> 2 & 3))), "node"};
    if (status == STEPAF_OK && split.kind == STEPAF_SPLIT_NONE)
        status = stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT, "none");
    else if (status == STEPAF_OK)
        status = stepaf_split_deal(&split, ranks, size, roles);
    if (status == STEPAF_OK && split.kind == STEPAF_SPLIT_NODES)
        check_nodes(ranks, roles, size);
    if (status == STEPAF_OK)
        stepaf_split_free(&split);
    free(ranks);
    return status;
}

static stepaf_status_t parse_string(const uint8_t *data, size_t bytes, int scatter, int size,
                                    uint8_t *roles)
{
    stepaf_status_t status = STEPAF_ERR_SPLIT;
    char *text = malloc(bytes + 1);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (strncmp(text, "map=", 4) != 0) /* no file of this machine is any of our business */
        status = split_up(text, scatter, size, roles);
    else
        stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT, "not tried");
    free(text);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    /* Printable corpus files: '2' is a job of two ranks. */
    int size = data[0] >= '1' && data[0] <= '9' ? data[0] - '0' : data[0] + 1;
    uint8_t *roles = malloc((size_t)size);
    memset(roles, UNTOUCHED, (size_t)size);
    stepaf_status_t status =
        data[1] & 1 ? parse_string(data + 2, bytes - 2, data[1] >> 1, size, roles)
                    : stepaf_split_parse_map((const char *)data + 2, bytes - 2, size, roles);
    if (status == STEPAF_OK)
        check_roles(roles, size);
    else
        check_untouched(roles, size);
    free(roles);
    return 0;
}
