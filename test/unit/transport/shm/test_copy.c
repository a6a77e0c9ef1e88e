/* SPDX-License-Identifier: Apache-2.0 */
/* Copies past the cache: every byte, and none beyond, at any alignment; and from which size on. */
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"
#include "transport/shm/copy.h"
#include "unit.h"

enum { ROOM = 1024 };

static void fill(uint8_t *bytes, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

static void all_bytes_and_none_beyond(void)
{
    static uint8_t src[ROOM], dst[ROOM], expected[ROOM];
    static const size_t sizes[] = {0, 1, 15, 63, 64, 65, 127, 128, 200, 640, 777};
    int wrong = 0;

    fill(src, ROOM, 1);
    for (size_t from = 0; from < 70; from += 3)
        for (size_t to = 0; to < 70; to++)
            for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                fill(dst, ROOM, 2);
                memcpy(expected, dst, ROOM);
                memcpy(expected + to, src + from, sizes[s]);
                stepaf_shm_copy_uncached(dst + to, src + from, sizes[s]);
                wrong += memcmp(dst, expected, ROOM) != 0;
            }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* The source is fetched ahead, beyond its end. */
static void nothing_is_read_beyond_the_source(void)
{
    static uint8_t dst[4096];
    uint8_t *src = aligned_alloc(64, 4096);

    CU_ASSERT_PTR_NOT_NULL_FATAL(src);
    fill(src, 4096, 3);
    stepaf_shm_copy_uncached(dst, src, 4096);
    CU_ASSERT_EQUAL(memcmp(dst, src, 4096), 0);
    free(src);
}

static void half_of_what_the_cores_can_use(void)
{
    static const size_t MIB = 1 << 20;
    struct stepaf_topo topo = {.cores_machine = 64, .l3_bytes = 32 * MIB};

    CU_ASSERT_EQUAL(stepaf_shm_uncached_bytes(&topo, 0), 16 * MIB);
    topo.l3_bytes = 480 * MIB;
    CU_ASSERT_EQUAL(stepaf_shm_uncached_bytes(&topo, 0), 240 * MIB);
    topo.cores_machine = 2; /* a virtual machine that is told its host's */
    CU_ASSERT_EQUAL(stepaf_shm_uncached_bytes(&topo, 0), 16 * MIB);
    topo.l3_bytes = 0;
    CU_ASSERT_EQUAL(stepaf_shm_uncached_bytes(&topo, 0), 16 * MIB);
    CU_ASSERT_EQUAL(stepaf_shm_uncached_bytes(&topo, 12345), 12345);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"all bytes and none beyond", all_bytes_and_none_beyond},
        {"nothing is read beyond the source", nothing_is_read_beyond_the_source},
        {"half of what the cores can use", half_of_what_the_cores_can_use},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
