/* SPDX-License-Identifier: Apache-2.0 */
/* What stands for a bootstrap where a process takes a lost rank's place: its rank and size, and how
 * to call the members, among whom everything goes on from then on. */
#ifndef STEPAF_BOOT_BOOT_RETURN_H
#define STEPAF_BOOT_BOOT_RETURN_H

#include <stepaf/boot.h>

#include "base/proof.h"
#include "settings/settings.h"

struct stepaf_boot_return {
    uint8_t key[STEPAF_PROOF_KEY_BYTES]; /* made of the secret */
    char *join;                          /* as STEPAF_JOIN */
};

/* Fill *boot_p as STEPAF_JOIN and the settings beside it say. Does not block. STEPAF_ERR_SETTING,
 * STEPAF_ERR_BOOT, STEPAF_ERR_NO_MEMORY; *boot_p is unchanged then. */
stepaf_status_t stepaf_boot_return(const struct stepaf_env *env, stepaf_boot_t *boot_p);
/* The key that such a process shows to have, of the secret that the settings name; *has_secret_p:
 * there is one. STEPAF_ERR_SETTING, STEPAF_ERR_BOOT. */
stepaf_status_t stepaf_boot_return_key(const struct stepaf_env *env, bool *has_secret_p,
                                       uint8_t key_p[STEPAF_PROOF_KEY_BYTES]);
/* What is behind it; NULL: it is an ordinary bootstrap. */
const struct stepaf_boot_return *stepaf_boot_returns(const stepaf_boot_t *boot);

#endif
