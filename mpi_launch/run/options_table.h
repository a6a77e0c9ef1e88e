/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RUN_OPTIONS_TABLE_H
#define RUN_OPTIONS_TABLE_H

#include <argp.h>

/* Options without a letter. */
enum {
    KEY_INTERLEAVE = 256,
    KEY_PER_NODE,
    KEY_HOSTS,
    KEY_HOSTFILE,
    KEY_SLURM,
    KEY_LAUNCHER,
    KEY_PASS,
    KEY_BIND,
    KEY_DEVICE_PER_RANK,
    KEY_ENV,
    KEY_OVERSUBSCRIBE,
    KEY_ALLOW_ROOT,
    KEY_TIMEOUT,
    KEY_DRY_RUN
};

/* The options for --help, ended by an empty entry. */
extern const struct argp_option run_option_table[];

#endif
