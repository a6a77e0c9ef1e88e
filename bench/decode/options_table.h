/* SPDX-License-Identifier: Apache-2.0 */
/* The options and their help. */
#ifndef DECODE_OPTIONS_TABLE_H
#define DECODE_OPTIONS_TABLE_H

#include <argp.h>

enum option_key {
    KEY_MODEL = 256,
    KEY_SPLIT,
    KEY_PROMPT,
    KEY_PROMPT_IDS,
    KEY_TOKENS,
    KEY_BATCH,
    KEY_MICROBATCHES,
    KEY_CHUNK,
    KEY_SCATTER,
    KEY_REPLICAS,
    KEY_KILL_AFTER,
    KEY_ADDRESS_FILE,
    KEY_SINGLE,
    KEY_PROCS,
    KEY_IGNORE_EOS,
    KEY_QUIET,
    KEY_THREADS,
    KEY_PROGRESS,
    KEY_VERIFY,
    KEY_TRACE,
    KEY_JSON,
    KEY_TEMPERATURE,
    KEY_SEED,
    KEY_FFN_DELAY_US,
    KEY_TIMEOUT_S,
    KEY_LOAD_TIMEOUT_S
};

extern const struct argp_option options_table[];

/* Text of --help before and after the table. */
extern const char options_doc[];

#endif
