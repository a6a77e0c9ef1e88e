/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for a bootstrap in a process that takes a lost rank's place. It gives the rank, the
 * size, and the addresses of the members; everything after that is between the members. */
#ifndef STEPAF_BOOT_BOOT_RETURN_H
#define STEPAF_BOOT_BOOT_RETURN_H

#include <stepaf/boot.h>

#include "base/proof.h"
#include "settings/settings.h"

struct stepaf_boot_return {
    uint8_t key[STEPAF_PROOF_KEY_BYTES]; /* made from the secret */
    char *join;                          /* the text of STEPAF_JOIN */
};

/* Fill *boot_p according to STEPAF_JOIN and the related settings. Does not block. Returns
 * STEPAF_ERR_SETTING, STEPAF_ERR_BOOT or STEPAF_ERR_NO_MEMORY; *boot_p is then unchanged. */
stepaf_status_t stepaf_boot_return(const struct stepaf_env *env, stepaf_boot_t *boot_p);
/* Make the key with which such a process proves that it knows the secret, from the secret that the
 * settings name. *has_secret_p: there is a secret. Returns STEPAF_ERR_SETTING or
 * STEPAF_ERR_BOOT. */
stepaf_status_t stepaf_boot_return_key(const struct stepaf_env *env, bool *has_secret_p,
                                       uint8_t key_p[STEPAF_PROOF_KEY_BYTES]);
/* Return the stand-in behind @a boot. NULL: @a boot is an ordinary bootstrap. */
const struct stepaf_boot_return *stepaf_boot_returns(const stepaf_boot_t *boot);

#endif
