/* SPDX-License-Identifier: Apache-2.0 */
/* What engine.c has besides its loops: a model with known results, the deliberate failures, and the
 * exit of the program on an error. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/stepaf.h>

enum { LAYERS = 24, MICROBATCHES = 3, ROWS = 48, WIDTH = 256, N = ROWS * WIDTH, PATIENCE = 100 };
enum { ROW_BYTES = WIDTH * sizeof(float), BYTES = N * sizeof(float), STOP = -1 /* not a layer */ };

static stepaf_context_h ctx;
static const char *trouble = ""; /* the program's argument */

static void check(stepaf_status_t status)
{
    if (status == STEPAF_OK)
        return;
    fprintf(stderr, "%s: %s\n", stepaf_status_name(status), stepaf_last_error()->text);
    exit(1);
}

static void *allocate(size_t bytes)
{
    void *memory;
    check(stepaf_alloc(ctx, bytes, STEPAF_MEM_HOST, &memory));
    return memory;
}

static int is_lost(int peer)
{
    stepaf_link_info_t link = {.size = sizeof(link)};
    check(stepaf_link_query(ctx, stepaf_peer_rank(ctx, peer), &link));
    return link.is_lost;
}

/* Only once: a rank that was stopped continues afterwards. */
static void suffer(const char *word, int signal)
{
    if (strcmp(trouble, word) != 0)
        return;
    trouble = "";
    raise(signal);
}

/* The model, and the result of one process for number i of microbatch m. */
static float input(int m, int i)
{
    return (float)(m + i % 64);
}
static float attention(float x)
{
    return 0.5F * x + 1;
}
static float experts(float x, int layer)
{
    return 0.25F * x - (float)layer;
}
static float expected(int m, int i)
{
    float x = input(m, i);
    for (int layer = 0; layer < LAYERS; layer++) {
        x = attention(x);
        x += experts(x, layer);
    }
    return x;
}
