/* SPDX-License-Identifier: Apache-2.0 */
/* Who talks to whom: ranks to indices and back, for all small jobs and lanes; and what is
 * refused. */
#include "base/error.h"
#include "core/mesh.h"
#include "unit.h"

enum { GROUP_MAX = 12 };

static struct stepaf_env lanes_of(int mesh, int64_t lanes)
{
    return (struct stepaf_env){.mesh = mesh, .lanes = lanes};
}

static struct stepaf_mesh make(uint32_t n_attention, uint32_t n_ffn, uint32_t lanes, uint32_t rank)
{
    struct stepaf_env env = lanes_of(STEPAF_ENV_MESH_lane, lanes);
    struct stepaf_mesh mesh;

    CU_ASSERT_EQUAL_FATAL(stepaf_mesh_make(&env, n_attention, n_ffn, rank, &mesh), STEPAF_OK);
    return mesh;
}

/* The peers of one rank are those of its lane, and each of them has it at the index that it thinks
 * that they have it at. */
static int check_rank(uint32_t n_own, uint32_t n_other, uint32_t lanes, uint32_t rank)
{
    struct stepaf_mesh mesh = make(n_own, n_other, lanes, rank);
    uint32_t n = 0;
    int wrong = 0;

    for (uint32_t other = 0; other < n_other; other++) {
        bool is_peer = other % lanes == rank % lanes;
        wrong += stepaf_mesh_has(&mesh, other) != is_peer;
        if (!is_peer)
            continue;
        struct stepaf_mesh its = make(n_own, n_other, lanes, other);
        wrong += stepaf_mesh_index(&mesh, other) != n;
        wrong += stepaf_mesh_rank(&mesh, n) != other;
        wrong += stepaf_mesh_rank(&its, mesh.slot) != rank;
        wrong += stepaf_mesh_index(&its, rank) != mesh.slot;
        n++;
    }
    wrong += stepaf_mesh_peers(&mesh, n_other) != n || n == 0;
    return wrong;
}

static void ranks_and_indices_are_opposites(void)
{
    int wrong = 0;

    for (uint32_t a = 1; a <= GROUP_MAX; a++)
        for (uint32_t f = 1; f <= GROUP_MAX; f++)
            for (uint32_t lanes = 1; lanes <= (a < f ? a : f); lanes++) {
                for (uint32_t rank = 0; rank < a; rank++)
                    wrong += check_rank(a, f, lanes, rank);
                for (uint32_t rank = 0; rank < f; rank++)
                    wrong += check_rank(f, a, lanes, rank);
            }
    CU_ASSERT_EQUAL(wrong, 0);
}

static void a_full_mesh_is_one_lane(void)
{
    struct stepaf_env env = lanes_of(STEPAF_ENV_MESH_full, 0);
    struct stepaf_mesh mesh;

    CU_ASSERT_EQUAL(stepaf_mesh_make(&env, 5, 3, 4, &mesh), STEPAF_OK);
    CU_ASSERT(mesh.lanes == 1 && mesh.lane == 0 && mesh.slot == 4);
    CU_ASSERT_EQUAL(stepaf_mesh_peers(&mesh, 3), 3);
    for (uint32_t f = 0; f < 3; f++)
        CU_ASSERT(stepaf_mesh_rank(&mesh, f) == f && stepaf_mesh_index(&mesh, f) == f);
}

static void no_number_means_the_greatest_common_divisor(void)
{
    static const uint32_t cases[][3] = {{4, 2, 2}, {2, 4, 2},  {6, 4, 2}, {3, 3, 3},
                                        {3, 2, 1}, {12, 8, 4}, {1, 9, 1}, {1000, 350, 50}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CU_ASSERT_EQUAL(make(cases[i][0], cases[i][1], 0, 0).lanes, cases[i][2]);
}

static void refuse(int mesh, int64_t lanes, uint32_t a, uint32_t f, const char *words)
{
    struct stepaf_env env = lanes_of(mesh, lanes);
    struct stepaf_mesh untouched = {77, 78, 79};

    CU_ASSERT_EQUAL(stepaf_mesh_make(&env, a, f, 0, &untouched), STEPAF_ERR_SETTING);
    CU_ASSERT(untouched.lanes == 77 && untouched.lane == 78 && untouched.slot == 79);
    UNIT_CONTAINS(stepaf_last_error()->text, words);
}

static void empty_lanes_are_named(void)
{
    refuse(STEPAF_ENV_MESH_lane, 4, 4, 2, "lanes 2 to 3 have no FFN rank in a job of 4 attention");
    refuse(STEPAF_ENV_MESH_lane, 4, 2, 4, "lanes 2 to 3 have no attention rank");
    refuse(STEPAF_ENV_MESH_lane, 6, 2, 4, "lanes 2 to 5 have no attention rank");
    refuse(STEPAF_ENV_MESH_lane, 4, 3, 3, "at most 3 lanes have both");
    refuse(STEPAF_ENV_MESH_full, 2, 4, 4, "STEPAF_LANES=2 requires STEPAF_MESH=lane");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"ranks and indices are opposites", ranks_and_indices_are_opposites},
        {"a full mesh is one lane", a_full_mesh_is_one_lane},
        {"no number means the greatest common divisor",
         no_number_means_the_greatest_common_divisor},
        {"empty lanes are named", empty_lanes_are_named},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
