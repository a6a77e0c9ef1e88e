/* SPDX-License-Identifier: Apache-2.0 */
#include "options_table.h"

#include <stddef.h>

const struct argp_option options_table[] = {
    {NULL, 0, NULL, 0, "What to decode:", 1},
    {"model", KEY_MODEL, "DIR", 0,
     "model in the Hugging Face layout (the MoE model that comes "
     "with stepaf_decode)",
     1},
    {"prompt", KEY_PROMPT, "TEXT", 0, "continue TEXT; may be repeated", 1},
    {"prompt-ids", KEY_PROMPT_IDS, "IDS", 0,
     "continue these token ids, such as 73,110; may be repeated", 1},
    {"tokens", KEY_TOKENS, "N", 0, "make N tokens for each sequence (64)", 1},
    {"batch", KEY_BATCH, "B", 0,
     "decode B sequences at once, taking the prompts in turn (one "
     "for each prompt)",
     1},
    {"temperature", KEY_TEMPERATURE, "T", 0, "draw tokens at temperature T (0: the likeliest)", 1},
    {"seed", KEY_SEED, "S", 0, "seed of the draws (0)", 1},
    {"ignore-eos", KEY_IGNORE_EOS, NULL, 0, "continue after an end-of-sequence token", 1},
    {NULL, 0, NULL, 0, "How:", 2},
    {"split", KEY_SPLIT, "SPLIT", 0, "roles of the ranks: attn=A,ffn=F[,interleave] or map=FILE",
     2},
    {"procs", KEY_PROCS, "N", 0, "fork N ranks here instead of being started by a launcher", 2},
    {"single", KEY_SINGLE, NULL, 0, "run all in one process, without the library", 2},
    {"microbatches", KEY_MICROBATCHES, "M", 0, "microbatches in flight at each attention rank (3)",
     2},
    {"scatter", KEY_SCATTER, NULL, 0, "send each FFN rank only the rows that its experts are for",
     2},
    {"replicas", KEY_REPLICAS, "R", 0,
     "R FFN ranks have each expert, and the job goes on without those that are lost (1)", 2},
    {"kill-after", KEY_KILL_AFTER, "N", 0,
     "with --procs and --replicas: FFN rank 0 is ended by SIGKILL after N batches, and started "
     "again",
     2},
    {"address-file", KEY_ADDRESS_FILE, "FILE", 0,
     "with --replicas: write to FILE the value of STEPAF_JOIN for a process that takes a lost FFN "
     "rank's place",
     2},
    {"chunk", KEY_CHUNK, "ROWS", 0, "rows of a step in which prompts are read (128)", 2},
    {"threads", KEY_THREADS, "N", 0, "threads of each rank's matrix products (cores by ranks)", 2},
    {"timeout", KEY_TIMEOUT_S, "S", 0, "give up on a rank after S seconds (10)", 2},
    {"load-timeout", KEY_LOAD_TIMEOUT_S, "S", 0, "the same while weights are read (600)", 2},
    {"ffn-delay-us", KEY_FFN_DELAY_US, "N", 0,
     "hold each answer of an FFN rank back until N us "
     "after its batch came, as a longer way would (0)",
     2},
    {NULL, 0, NULL, 0, "What to show:", 3},
    {"verify", KEY_VERIFY, "FILE", 0,
     "compare with this file, like the models' reference.json; "
     "without prompts, take its",
     3},
    {"json", KEY_JSON, "FILE", 0, "write measurements and results to FILE", 3},
    {"trace", KEY_TRACE, "FILE", 0,
     "write all ranks' doings to FILE, for chrome://tracing or "
     "Perfetto",
     3},
    {"quiet", KEY_QUIET, NULL, 0, "do not show the text of the first sequence", 3},
    {"progress", KEY_PROGRESS, NULL, 0, "show how far loading is, even if not on a terminal", 3},
    {0},
};

const char options_doc[] =
    "Decode a mixture-of-experts or dense language model across attention and FFN ranks.\v"
    "Examples:\n"
    "  mpirun -n 4 stepaf_decode --split attn=2,ffn=2 --prompt 'In the beginning'\n"
    "  stepaf_decode --procs 4 --split attn=2,ffn=2 --scatter --temperature 0.6\n"
    "\n"
    "Exit status: 0, 1 if something failed or differed from the reference, 2 if the options or "
    "the files cannot be used.";
