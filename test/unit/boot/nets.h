/* SPDX-License-Identifier: Apache-2.0 */
/* Members that know each other, without a context. */
#ifndef STEPAF_TEST_NETS_H
#define STEPAF_TEST_NETS_H

#include "boot/member_net_inside.h"
#include "unit.h"

enum { NETS_MAX = 16 };

static inline void open_nets(struct stepaf_env *env, struct stepaf_member_net **nets, int n)
{
    struct stepaf_member_contact contacts[NETS_MAX];
    char reason[STEPAF_MEMBER_NET_REASON_MAX];

    CU_ASSERT_FATAL(n <= NETS_MAX);
    CU_ASSERT_EQUAL_FATAL(stepaf_env_load(env), STEPAF_OK);
    CU_ASSERT_FATAL(stepaf_proof_ready());
    for (int r = 0; r < n; r++) {
        nets[r] = stepaf_member_net_open(env, r, n, &contacts[r], reason);
        CU_ASSERT_PTR_NOT_NULL_FATAL(nets[r]);
    }
    for (int r = 0; r < n; r++)
        CU_ASSERT_FATAL(stepaf_member_net_meet(nets[r], contacts));
}

#endif
