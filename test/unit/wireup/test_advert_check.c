/* SPDX-License-Identifier: Apache-2.0 */
/* The check of the commit: what ranks may declare differently, and that all come to the same
 * outcome. */
#include <stdlib.h>

#include "core/key.h"
#include "gpu/feature.h"
#include "unit.h"
#include "world.h"

static const stepaf_status_t none[RANKS];

/* Judge as every rank does, one rank's failure in @a failing; all outcomes must be alike, whether
 * equal keys are read once or twice. */
static stepaf_status_t judge_some(struct world *world, const stepaf_status_t *failing, bool share)
{
    struct stepaf_advert adverts[RANKS];
    struct stepaf_pack packs[RANKS] = {{0}};
    stepaf_status_t outcomes[RANKS];
    char texts[RANKS][STEPAF_ERROR_TEXT_MAX];

    for (int r = 0; r < RANKS; r++) {
        if (failing[r])
            stepaf_error_set(failing[r], STEPAF_PHASE_COMMIT, "what rank %d says", r);
        stepaf_advert_pack(world->job[r]->ctx, failing[r], &packs[r]);
        world_read(world, r, &packs[r], share && r == 1 ? &adverts[0] : NULL, &adverts[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        outcomes[r] = stepaf_adverts_check(adverts, RANKS, r, &stepaf_gpu_feature);
        strcpy(texts[r], outcomes[r] ? stepaf_last_error()->text : "");
        if (outcomes[r] && outcomes[r] != STEPAF_ERR_STATE && !failing[r]) {
            /* It is about another rank, by its number in the world. */
            int peer = stepaf_last_error()->peer_world_rank;
            char name[24];
            CU_ASSERT(peer >= 0 && peer < RANKS && peer != r);
            snprintf(name, sizeof(name), "world rank %d", peer);
            UNIT_CONTAINS(texts[r], name);
        }
        CU_ASSERT_EQUAL(outcomes[r], outcomes[0]);
        if (failing[r] && failing[r] == outcomes[r])
            UNIT_CONTAINS(texts[r], "what rank");
        else
            UNIT_STRING(texts[r], failing[0] ? texts[1] : texts[0]);
    }
    for (int r = 0; r < RANKS; r++) {
        stepaf_advert_free(&adverts[r]);
        free(packs[r].data);
    }
    return outcomes[0];
}

static stepaf_status_t check_all(struct world *world, const stepaf_status_t *failing)
{
    stepaf_status_t outcome = judge_some(world, failing, false);

    CU_ASSERT_EQUAL(judge_some(world, failing, true), outcome);
    return outcome;
}

static void agreement_is_fine(void)
{
    struct world world = world_open();

    CU_ASSERT_EQUAL(check_all(&world, none), STEPAF_OK);
    /* What an FFN rank alone declares, and what is pulled, need not be known to the others. */
    CU_ASSERT_EQUAL(stepaf_key_declare(world.job[2]->handle, 50, STEPAF_PUSH, 5, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_declare(world.job[1]->handle, 51, STEPAF_PULL, 5, NULL), STEPAF_OK);
    CU_ASSERT_EQUAL(check_all(&world, none), STEPAF_OK);
    world_close(&world);
}

/* One field of a key differs at one rank. */
static void every_difference_is_a_mismatch(void)
{
    static const uint64_t keys[] = {PUSHED, PULLED, SHAPED};

    for (int rank = 0; rank < RANKS; rank++)
        for (int k = 0; k < 3; k++)
            for (int field = 0; field < 6; field++) {
                struct world world = world_open();
                struct stepaf_key *key = stepaf_key_find(world.job[rank]->ctx, keys[k]);
                static const char *const words[] = {"a push", "elements of i64", "bytes",
                                                    "depth",  "shape (",         "shape ("};
                char name[16];
                if (field == 0)
                    key->direction = key->direction == STEPAF_PUSH ? STEPAF_PULL : STEPAF_PUSH;
                else if (field == 1)
                    key->dtype = STEPAF_I64;
                else if (field == 2)
                    key->max_bytes++;
                else if (field == 3)
                    key->depth++;
                else if (field == 4)
                    key->ndim--;
                else
                    key->shape[key->ndim - 1]++;
                CU_ASSERT_EQUAL(check_all(&world, none), STEPAF_ERR_MISMATCH);
                snprintf(name, sizeof name, "key %d", (int)keys[k]);
                UNIT_CONTAINS(stepaf_last_error()->text, name);
                UNIT_CONTAINS(stepaf_last_error()->text, words[field]);
                world_close(&world);
            }
}

static void a_push_needs_a_receiver(void)
{

    for (int rank = 0; rank < 2; rank++) {
        struct world world = world_open();
        CU_ASSERT_EQUAL(stepaf_key_declare(world.job[rank]->handle, 50, STEPAF_PUSH, 5, NULL),
                        STEPAF_OK);
        CU_ASSERT_EQUAL(check_all(&world, none), STEPAF_ERR_KEY);
        UNIT_CONTAINS(stepaf_last_error()->text, "key 50");
        UNIT_CONTAINS(stepaf_last_error()->text,
                      rank ? "pushed by world rank 1" : "pushed by world rank 0");
        world_close(&world);
    }
}

static void epochs_must_agree(void)
{
    for (int rank = 0; rank < RANKS; rank++) {
        struct world world = world_open();
        world.job[rank]->ctx->epoch = 3;
        CU_ASSERT_EQUAL(check_all(&world, none), STEPAF_ERR_MISMATCH);
        UNIT_CONTAINS(stepaf_last_error()->text, "epoch");
        world.job[rank]->ctx->epoch = 0;
        world_close(&world);
    }
}

static void a_commit_needs_a_change(void)
{
    struct world world = world_open();

    for (int r = 0; r < RANKS; r++)
        world.job[r]->ctx->commit.changed = false;
    CU_ASSERT_EQUAL(check_all(&world, none), STEPAF_OK); /* the first one always counts */
    for (int r = 0; r < RANKS; r++)
        world.job[r]->ctx->epoch = 1;
    CU_ASSERT_EQUAL(check_all(&world, none), STEPAF_ERR_STATE);
    for (int r = 0; r < RANKS; r++) {
        world.job[r]->ctx->commit.changed = true;
        CU_ASSERT_EQUAL(check_all(&world, none), STEPAF_OK);
        world.job[r]->ctx->commit.changed = false;
    }
    for (int r = 0; r < RANKS; r++)
        world.job[r]->ctx->epoch = 0; /* there is no thread to stop */
    world_close(&world);
}

/* What a rank found wrong alone is everybody's outcome; the first such rank decides. */
static void one_rank_fails_all(void)
{
    struct world world = world_open();

    for (int rank = 0; rank < RANKS; rank++) {
        stepaf_status_t failing[RANKS] = {STEPAF_OK};
        failing[rank] = STEPAF_ERR_STATE;
        CU_ASSERT_EQUAL(check_all(&world, failing), STEPAF_ERR_STATE);
    }
    stepaf_status_t several[RANKS] = {STEPAF_OK, STEPAF_ERR_NO_MEMORY, STEPAF_ERR_STATE};
    CU_ASSERT_EQUAL(check_all(&world, several), STEPAF_ERR_NO_MEMORY);
    world.job[2]->ctx->epoch = 3; /* also before anything else is compared */
    CU_ASSERT_EQUAL(check_all(&world, several), STEPAF_ERR_NO_MEMORY);
    world.job[2]->ctx->epoch = 0;
    world_close(&world);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"agreement is fine", agreement_is_fine},
        {"every difference is a mismatch", every_difference_is_a_mismatch},
        {"a push needs a receiver", a_push_needs_a_receiver},
        {"epochs must agree", epochs_must_agree},
        {"a commit needs a change", a_commit_needs_a_change},
        {"one rank fails all", one_rank_fails_all},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
