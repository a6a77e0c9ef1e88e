/* SPDX-License-Identifier: Apache-2.0 */
/* Introductions, as exchanged by init: edits to a good one, or, if the first byte is above 127, the
 * blob itself. It is refused, or every rank comes to the same outcome of the check. */
#include <string.h>

#include "base/error.h"
#include "edit.h"
#include "wireup/hello.h"

enum { RANKS = 3 };

static struct stepaf_pack valid;
static struct stepaf_hello others;

static const char *get(const char *name, void *arg)
{
    (void)name, (void)arg;
    return NULL;
}

static void make_valid(void)
{
    struct stepaf_hello hello = {.said = STEPAF_FFN, .pid = 4711, .node_id = 815};
    struct stepaf_env env;

    if (valid.data)
        return;
    strcpy(hello.host, "somewhere");
    strcpy(hello.binding, "0-3,8");
    FUZZ_CHECK(stepaf_env_load_from(&env, get, NULL) == STEPAF_OK);
    stepaf_hello_pack(&hello, &env, &valid);
    stepaf_env_free(&env);
    FUZZ_CHECK(stepaf_hello_read(valid.data, valid.bytes, &others));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    size_t blob_bytes;

    if (!bytes)
        return 0;
    make_valid();
    struct stepaf_hello all[RANKS] = {others, others, others};
    int at = data[0] % RANKS;
    uint8_t *blob = data[0] > 127
                        ? edit_copy(data + 1, bytes - 1, NULL, 0, &blob_bytes)
                        : edit_copy(valid.data, valid.bytes, data + 1, bytes - 1, &blob_bytes);
    if (stepaf_hello_read(blob, blob_bytes, &all[at])) {
        const struct stepaf_hello *it = &all[at];
        FUZZ_CHECK(it->status || it->said <= STEPAF_ROLE_AUTO);
        FUZZ_CHECK(memchr(it->text, '\0', sizeof it->text));
        FUZZ_CHECK(memchr(it->version, '\0', sizeof it->version));
        FUZZ_CHECK(memchr(it->host, '\0', sizeof it->host));
        FUZZ_CHECK(memchr(it->binding, '\0', sizeof it->binding));
        stepaf_status_t outcome = stepaf_hellos_check(all, RANKS, 0);
        FUZZ_CHECK(stepaf_status_from((uint32_t)outcome) == outcome);
        FUZZ_CHECK(!outcome || !strpbrk(stepaf_last_error()->text, "\n\r"));
        for (int r = 1; r < RANKS; r++)
            FUZZ_CHECK(stepaf_hellos_check(all, RANKS, r) == outcome);
        for (int r = 0; r < RANKS; r++) {
            int sharing = stepaf_hellos_sharing(all, RANKS, r);
            FUZZ_CHECK(sharing >= 0 && sharing <= RANKS);
        }
    }
    free(blob);
    return 0;
}
