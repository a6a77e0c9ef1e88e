/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that runs out anywhere while a side lives, which has one link and one region. */
#include <stdlib.h>

#include "fabric_side.h"
#include "starve.h"
#include "unit.h"

static struct side one, other;

static bool is_no_memory(stepaf_status_t status)
{
    return status == STEPAF_ERR_NO_MEMORY || status == STEPAF_ERR_NO_TRANSPORT;
}

/* Open, connect, register, import; NULL, or what went wrong in another way than for memory. */
static const char *live(const struct stepaf_pack *address)
{
    struct stepaf_mem mem = {.base = (uint8_t *)&other, .bytes = 64, .fd = -1};
    struct stepaf_pack pack = {0};
    struct stepaf_rmem *rmem = NULL;
    const char *wrong = NULL;
    stepaf_status_t status = side_try_open(&one, 1);

    if (status)
        return is_no_memory(status) ? NULL : "open";
    if (side_connect(&one, 0, &other, 0, 0, address))
        wrong = "connect";
    status = wrong ? STEPAF_OK : side_ops->reg_mem(one.transport, &mem);
    if (status && !is_no_memory(status))
        wrong = "register";
    if (!wrong && !status) {
        side_ops->pack_mem(one.transport, &mem, &pack);
        struct stepaf_unpack unpack = stepaf_unpack_from(pack.data, pack.bytes);
        if (!pack.failed)
            status = side_ops->import_mem(one.links[0], 1, 64, &unpack, &rmem);
        if (status && !is_no_memory(status))
            wrong = "import";
        if (rmem)
            side_ops->release_mem(one.links[0], rmem);
    }
    free(pack.data);
    side_ops->dereg_mem(one.transport, &mem);
    side_ops->shrink(one.transport);
    side_close(&one);
    return wrong;
}

void fabric_ask_starved(const char *name, void (*reset)(void), const int *n_open)
{
    const char *const asked[] = {"STEPAF_TRANSPORTS", name, NULL};
    unsigned n = 0;
    bool struck = true;

    side_settings = asked;
    reset();
    fabric_open(&other, 1);
    int before = *n_open;
    struct stepaf_pack address = {0};
    side_ops->pack_address(other.transport, &address);
    (void)live(&address);
    for (uint64_t nth = SIDE_OF_SETTINGS + 1; struck; nth++, n++) {
        starve_begin(nth, false);
        const char *wrong = live(&address);
        struck = starve_has_struck();
        starve_end();
        if (wrong)
            UNIT_STRING(wrong, "");
        CU_ASSERT_EQUAL(starve_leaks(), 0);
        CU_ASSERT_EQUAL(*n_open, before);
    }
    CU_ASSERT(n > 4);
    free(address.data);
    side_close(&other);
    side_settings = NULL;
}
