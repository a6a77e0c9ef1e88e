/* SPDX-License-Identifier: Apache-2.0 */
/* Withdrawal of keys. */
#ifndef STEPAF_CORE_KEY_REMOVE_H
#define STEPAF_CORE_KEY_REMOVE_H

#include "core/key.h"

/* Withdraw a key. Peers know the key until the next commit, where stepaf_keys_free_withdrawn frees
 * it. */
stepaf_status_t stepaf_key_remove(struct stepaf_ctx *ctx, uint64_t id);
void stepaf_keys_free_withdrawn(struct stepaf_ctx *ctx);
void stepaf_keys_free(struct stepaf_ctx *ctx);

#endif
