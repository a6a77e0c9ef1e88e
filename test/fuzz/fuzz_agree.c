/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of links, as exchanged by a first commit: edits to a good one, or, if the first byte is
 * above 127, the blob itself. It is refused, or what is read of it is within it. */
#include "edit.h"
#include "wireup/agree.h"

enum { PEERS = 5 };

static struct stepaf_pack valid;

static void make_valid(void)
{
    static const uint8_t taken[PEERS] = {0, 1, 2, 1, 0};
    struct stepaf_agree_report report = {.pending = true, .sum = 4711};

    if (valid.data)
        return;
    report.n_taken = PEERS;
    report.taken = taken;
    stepaf_agree_pack(&report, &valid);
    FUZZ_CHECK(!valid.failed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stepaf_agree_report report;
    size_t blob_bytes;

    if (!bytes)
        return 0;
    make_valid();
    uint8_t *blob = data[0] > 127
                        ? edit_copy(data + 1, bytes - 1, NULL, 0, &blob_bytes)
                        : edit_copy(valid.data, valid.bytes, data + 1, bytes - 1, &blob_bytes);
    if (stepaf_agree_read(blob, blob_bytes, &report)) {
        FUZZ_CHECK(report.status <= STEPAF_OK);
        FUZZ_CHECK(stepaf_status_from((uint32_t)report.status) == report.status);
        FUZZ_CHECK(memchr(report.text, '\0', sizeof report.text));
        FUZZ_CHECK(!report.n_taken ||
                   (report.taken >= blob && report.taken + report.n_taken == blob + blob_bytes));
    }
    free(blob);
    return 0;
}
