/* SPDX-License-Identifier: Apache-2.0 */
/* Reports in the agreement on links: writing and reading them. */
#include "wireup/agree.h"

#include <endian.h>
#include <string.h>

#include "base/hash.h"

uint64_t stepaf_agree_link(int attention, int ffn, const char *transport)
{
    uint32_t ranks[2] = {htole32((uint32_t)attention), htole32((uint32_t)ffn)};

    return stepaf_hash(stepaf_hash(STEPAF_HASH_START, ranks, sizeof(ranks)), transport,
                       strlen(transport));
}

void stepaf_agree_pack(const struct stepaf_agree_report *report, struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, (uint32_t)report->status);
    stepaf_pack_text(pack, report->status ? report->text : "");
    stepaf_pack_u32(pack, report->pending);
    stepaf_pack_u64(pack, report->sum);
    stepaf_pack_u32(pack, report->left_ms);
    stepaf_pack_u32(pack, report->n_taken);
    stepaf_pack_bytes(pack, report->taken, report->n_taken);
}

bool stepaf_agree_read(const void *blob, size_t bytes, struct stepaf_agree_report *report_p)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(blob, bytes);

    report_p->status = stepaf_status_from(stepaf_unpack_u32(&unpack));
    stepaf_unpack_text(&unpack, report_p->text, sizeof(report_p->text));
    report_p->pending = stepaf_unpack_u32(&unpack) != 0;
    report_p->sum = stepaf_unpack_u64(&unpack);
    report_p->left_ms = stepaf_unpack_u32(&unpack);
    report_p->n_taken = stepaf_unpack_u32(&unpack);
    report_p->taken = stepaf_unpack_bytes(&unpack, report_p->n_taken);
    return !unpack.failed && unpack.at == unpack.end;
}
