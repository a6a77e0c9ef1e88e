/* SPDX-License-Identifier: Apache-2.0 */
/* Delays are put in: one kind at a time, and two at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verdict_ask.h"

enum {
    BETWEEN = 5, /* operations without a delay between two with one */
    TRIES = 4,   /* where the machine has disturbed one */
    MORE = 2,    /* where too few were right: one may be by chance */
    FEW = 10,    /* of less than that, all may be disturbed */
    LATELY = 15  /* operations that the median is of */
};

/* Go on without a delay until it is this rank's turn to put one in: one at a time, or ranks would
 * see that of others. */
static bool take_turn(struct vd_attention *self)
{
    int nobody = 0, n = 0;
    int64_t took;

    while (n++ < BETWEEN ||
           !atomic_compare_exchange_strong(&vd_shared->turn, &nobody, self->job->index + 1)) {
        nobody = 0;
        if (hs_hopeless(self->job) || !vd_operate(self, NULL, false, &took))
            return false;
    }
    return true;
}

/* Put one in. The machine may be slow beside: then something else is true as well, and it is tried
 * anew. */
static bool put_in_one(struct vd_attention *self, const struct vd_delay *delay)
{
    static const struct vd_delay none;
    stepaf_verdict_t verdict;
    int64_t took, put = 0;

    for (int k = 0; k < VD_KINDS; k++)
        put += delay->ns[k];
    for (int i = 0; i < TRIES; i++) {
        if (!take_turn(self))
            return false;
        vd_set_order(self, delay, self->sequence + 1);
        if (!vd_operate(self, NULL, false, &took))
            return false;
        uint32_t sequence = self->sequence;
        if (!vd_operate(self, delay, false, &took))
            return false;
        vd_set_order(self, &none, 0);
        bool found = vd_find_verdict(self, sequence, &verdict);
        vd_shared->turn = 0;
        int64_t over = found ? verdict.took_ns - verdict.usual_ns : 0;
        if (found && vd_is_right(delay, &verdict)) {
            self->tally.right++;
            return true;
        }
        if (found && (over > put + put / 2 || over < put / 2 || vd_admits(self, &verdict))) {
            self->tally.disturbed++;
            vd_describe(self, "disturbed", delay, &verdict);
            continue;
        }
        self->tally.wrong++;
        vd_describe(self, "wrong", delay, found ? &verdict : NULL);
        return true;
    }
    return true;
}

static bool is_enough(const struct vd_attention *self, long long percent)
{
    return self->tally.right * 100 >= (self->tally.right + self->tally.wrong) * percent;
}

/* All attention ranks put in theirs by turns, so that what one does is not what another one sees.
 * @a medians: how long each kind is to be, in medians as they are lately: how busy the machine is
 * changes. */
static bool put_in_all(struct vd_attention *self, const char *name, const int *medians,
                       long long times)
{
    struct hs_job *job = self->job;
    long long percent = hs_option_int(job, "--percent", 50);

    self->tally = (struct vd_tally){0, 0, 0};
    for (long long i = 0; i < times || (i < times + MORE && !is_enough(self, percent)); i++) {
        struct vd_delay one = {.ffn = (int)((i + job->index) % job->ffn),
                               .rail = (int)((i + (job->ffn % 2 ? 0 : i / job->ffn)) % VD_RAILS)};
        if (!vd_measure(self, LATELY))
            return false;
        for (int k = 0; k < VD_KINDS; k++)
            one.ns[k] = medians[k] * self->median_ns;
        if (!put_in_one(self, &one))
            return false;
    }
    printf("attention %d of %dA%dF: %s: %d of %d right, %d disturbed\n", job->index, job->attn,
           job->ffn, name, self->tally.right, self->tally.right + self->tally.wrong,
           self->tally.disturbed);
    fflush(stdout);
    /* What is disturbed nearly always is no chance: the verdict is wrong. */
    if (times >= FEW)
        HS_INT(2LL * (self->tally.right + self->tally.wrong), >=, times);
    return HS_TRUE(is_enough(self, percent));
}

/* Whether the list has the word. */
static bool lists(const char *list, const char *word)
{
    size_t bytes = strlen(word);

    for (const char *at = list; at; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, word, bytes) == 0 && (at[bytes] == ',' || !at[bytes]))
            return true;
    return false;
}

static bool allows(const struct hs_job *job, int kind)
{
    const char *transports = getenv("STEPAF_TRANSPORTS"),
               *kinds = hs_option_text(job, "--kinds", "");
    bool by_tcp = transports && strcmp(transports, "tcp") == 0;

    return (!*kinds || lists(kinds, vd_kind_name(kind))) &&
           (by_tcp || vd_is_by_netem(kind) || !vd_is_of_network(kind)) &&
           (!vd_is_of_rail(kind) || hs_option_int(job, "--rails", 1) == VD_RAILS);
}

void vd_put_in(struct vd_attention *self)
{
    static const int pairs[][2] = {{VD_START, VD_WORK}, {VD_THERE, VD_WORK}, {VD_WORK, VD_BACK},
                                   {VD_QUEUE, VD_BACK}, {VD_QUEUE, VD_WORK}, {VD_START, VD_THERE}};
    long long times = hs_option_int(self->job, "--times", 2);
    bool good = true;
    char name[64];

    for (int k = 0; good && k < VD_KINDS; k++)
        for (int size = 2; good && allows(self->job, k) && size <= 10; size += 8) {
            int medians[VD_KINDS] = {0};
            medians[k] = size;
            snprintf(name, sizeof(name), "%s, %dx", vd_kind_name(k), size);
            good = put_in_all(self, name, medians, times);
        }
    for (size_t i = 0;
         good && hs_option_int(self->job, "--pairs", 1) && i < sizeof(pairs) / sizeof(pairs[0]);
         i++)
        for (int which = 0;
             good && allows(self->job, pairs[i][0]) && allows(self->job, pairs[i][1]) && which < 2;
             which++) {
            int medians[VD_KINDS] = {0};
            medians[pairs[i][which]] = 8;
            medians[pairs[i][!which]] = 3;
            snprintf(name, sizeof(name), "%s 8x and %s 3x", vd_kind_name(pairs[i][which]),
                     vd_kind_name(pairs[i][!which]));
            good = put_in_all(self, name, medians, times);
        }
}
