/* SPDX-License-Identifier: Apache-2.0 */
/* The roles of all ranks: by their own request, by the split, by application numbers. */
#include "wireup/roles.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"

static const char *role_name(unsigned role)
{
    return role == STEPAF_FFN ? "FFN" : "attention";
}

stepaf_role_t stepaf_role_said(const stepaf_params_t *params, const struct stepaf_env *env)
{
    stepaf_role_t from_env = STEPAF_ROLE_AUTO;

    if (env->role != STEPAF_ENV_ROLE_auto)
        from_env = env->role == STEPAF_ENV_ROLE_attention ? STEPAF_ATTENTION : STEPAF_FFN;
    if (!(params->field_mask & STEPAF_PARAM_ROLE) || params->role == STEPAF_ROLE_AUTO)
        return from_env;
    if (from_env != STEPAF_ROLE_AUTO && from_env != params->role)
        stepaf_log_info("the program's parameters make this rank %s; STEPAF_ROLE would make it %s",
                        role_name(params->role), role_name(from_env));
    return params->role;
}

/* Log that the role a rank requests itself overrides @a source. */
static void note_override(unsigned said, unsigned other, const char *source)
{
    if (said != other)
        stepaf_log_info("this rank's own role, %s, overrides %s, by which it would be %s",
                        role_name(said), source, role_name(other));
}

/* Return whether application numbers distinguish ranks. A single program has number 0 everywhere,
 * and so has every program under srun. */
static bool numbers_differ(const struct stepaf_hello *hellos, int n)
{
    for (int r = 1; r < n; r++)
        if (hellos[r].app_number != hellos[0].app_number)
            return true;
    return false;
}

static stepaf_status_t no_role(const struct stepaf_hello *hellos, int n, int rank)
{
    int ffn = n / 2, number = hellos[rank].app_number;

    if (n == 1)
        return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                                "the job has one process, but requires at least one of each role: "
                                "start several with mpirun, srun or stepaf-run");
    if (numbers_differ(hellos, n))
        return stepaf_error_set(
            STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
            "no role for rank %d: its application number is %d, and only 0 "
            "(attention) and 1 (FFN) are roles; set STEPAF_SPLIT or STEPAF_ROLE",
            rank, number);
    if (number >= 0)
        return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                                "no role for rank %d: all ranks have application number %d, as "
                                "under srun and with one program; set a split (such as "
                                "STEPAF_SPLIT=attn=%d,ffn=%d), or STEPAF_ROLE for each program",
                                rank, number, n - ffn, ffn);
    return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                            "no role for rank %d: set a split (such as "
                            "STEPAF_SPLIT=attn=%d,ffn=%d), a role, or start two programs",
                            rank, n - ffn, ffn);
}

static stepaf_status_t decide_by_number(const struct stepaf_hello *hellos, int n, int own_rank,
                                        uint8_t *roles_p)
{
    bool differ = numbers_differ(hellos, n);

    for (int r = 0; r < n; r++) {
        bool is_role = differ && (hellos[r].app_number == 0 || hellos[r].app_number == 1);
        unsigned by_number = hellos[r].app_number == 1 ? STEPAF_FFN : STEPAF_ATTENTION;
        if (hellos[r].said != STEPAF_ROLE_AUTO) {
            roles_p[r] = (uint8_t)hellos[r].said;
            if (r == own_rank && is_role)
                note_override(hellos[r].said, by_number, "the application number");
        } else if (is_role) {
            roles_p[r] = (uint8_t)by_number;
        } else {
            return no_role(hellos, n, r);
        }
    }
    return STEPAF_OK;
}

static stepaf_status_t apply_split(const struct stepaf_hello *hellos, int n,
                                   const struct stepaf_split *split, uint8_t *roles_p)
{
    struct stepaf_split_rank *ranks = malloc((size_t)n * sizeof(*ranks));
    stepaf_status_t status;

    if (!ranks)
        return stepaf_error_no_memory(STEPAF_PHASE_INIT);
    for (int r = 0; r < n; r++)
        ranks[r] = (struct stepaf_split_rank){hellos[r].node_id, hellos[r].host};
    status = stepaf_split_deal(split, ranks, n, roles_p);
    free(ranks);
    return status;
}

static int count_attention(const uint8_t *roles, int n)
{
    int count = 0;

    for (int r = 0; r < n; r++)
        count += roles[r] == STEPAF_ATTENTION;
    return count;
}

static stepaf_status_t decide_by_split(const struct stepaf_hello *hellos, int n, int own_rank,
                                       const struct stepaf_split *split, uint8_t *roles_p)
{
    stepaf_status_t status = apply_split(hellos, n, split, roles_p);
    unsigned number = hellos[own_rank].app_number == 1 ? STEPAF_FFN : STEPAF_ATTENTION;

    if (status)
        return status;
    int by_split = count_attention(roles_p, n);
    if (hellos[own_rank].said != STEPAF_ROLE_AUTO)
        note_override(hellos[own_rank].said, roles_p[own_rank], "the split");
    else if (numbers_differ(hellos, n) && roles_p[own_rank] != number)
        stepaf_log_info("the split makes this rank %s; its application number would make it %s",
                        role_name(roles_p[own_rank]), role_name(number));
    for (int r = 0; r < n; r++)
        if (hellos[r].said != STEPAF_ROLE_AUTO)
            roles_p[r] = (uint8_t)hellos[r].said;
    int attention = count_attention(roles_p, n);
    if (attention != by_split)
        return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                                "split \"%.64s\" makes %d attention and %d FFN ranks, but with the "
                                "ranks' own roles (STEPAF_ROLE) there are %d and %d",
                                split->text, by_split, n - by_split, attention, n - attention);
    return STEPAF_OK;
}

static stepaf_status_t check_both(const uint8_t *roles, int n, int n_said)
{
    int attention = count_attention(roles, n);

    if (attention > 0 && attention < n)
        return STEPAF_OK;
    if (n_said == n)
        return stepaf_error_set(
            STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
            "all %d ranks have the role %s (STEPAF_ROLE or params.role): a job requires both roles",
            n, role_name(roles[0]));
    return stepaf_error_set(STEPAF_ERR_SPLIT, STEPAF_PHASE_INIT,
                            "%d attention and %d FFN ranks: a job requires both", attention,
                            n - attention);
}

stepaf_status_t stepaf_roles_decide(const struct stepaf_hello *hellos, int n, int own_rank,
                                    const struct stepaf_split *split, uint8_t *roles_p)
{
    stepaf_status_t status;
    int n_said = 0;

    for (int r = 0; r < n; r++)
        n_said += hellos[r].said != STEPAF_ROLE_AUTO;
    /* If every rank requests its own role, nothing is left to split. */
    if (split->kind != STEPAF_SPLIT_NONE && n_said == n)
        stepaf_log_info("split \"%.64s\" is not used: every rank sets its own role", split->text);
    if (split->kind != STEPAF_SPLIT_NONE && n_said < n)
        status = decide_by_split(hellos, n, own_rank, split, roles_p);
    else
        status = decide_by_number(hellos, n, own_rank, roles_p);
    return status ? status : check_both(roles_p, n, n_said);
}
