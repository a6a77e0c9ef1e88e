/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is killed in the middle of decoding: the others stop within their deadline, and one of
 * them says in one line which rank it was. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "process.h"

enum { START_SECONDS = 60, END_SECONDS = 30 };

static const char prompt[] = "And it came to pass";
static int failures;

/* Wait until some tokens have been shown: the ranks are in the middle of it. */
static int wait_for_text(const struct process *process)
{
    double deadline = process_now() + START_SECONDS;
    while (process_now() < deadline && !process_ended(process)) {
        char *text = process_text(process->out);
        const char *begin = strstr(text, prompt);
        int shown = begin && strlen(begin) > strlen(prompt) + 4;
        free(text);
        if (shown)
            return 0;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    return -1;
}

static void lose(const char *split, const char *ranks, int victim, const char *name,
                 const char *mode)
{
    /* The delay keeps them busy for long enough; --timeout is the deadline. */
    const char *args[] = {
        "--procs", ranks,      "--split", split,          "--prompt",       prompt, "--batch",
        "5",       "--tokens", "900",     "--ignore-eos", "--ffn-delay-us", "2000", "--timeout",
        "5",       mode,       NULL};
    struct process process;
    char expected[128], title[32];
    int is_ffn = strncmp(name, "FFN", 3) == 0;
    snprintf(title, sizeof(title), "stepaf-%s%s", is_ffn ? "ffn" : "attn", strchr(name, ' ') + 1);
    snprintf(expected, sizeof(expected), "stepaf_decode: rank %d (%s) was lost while decoding\n",
             victim, name);
    process_start(args, &process);
    pid_t pid = process_rank(&process, title);
    int started = pid > 0 && wait_for_text(&process) == 0;
    if (started)
        kill(pid, SIGKILL);
    double begin = process_now();
    int code = process_wait(&process, END_SECONDS);
    char *err = process_text(process.err);
    if (!started || code != 1 || strcmp(err, expected) != 0) {
        process_complain(&process, "FAILED: %s, rank %d killed: exit code %d; wanted 1 and: %s",
                         split, victim, code, expected);
        failures++;
    } else {
        printf("%s: %.3f s later: %s", split, process_now() - begin, err);
    }
    free(err);
}

int main(void)
{
    lose("attn=1,ffn=1", "2", 0, "attention 0", NULL);
    lose("attn=1,ffn=1", "2", 1, "FFN 0", NULL);
    lose("attn=2,ffn=2", "4", 0, "attention 0", "--scatter");
    lose("attn=2,ffn=2", "4", 1, "attention 1", NULL);
    lose("attn=2,ffn=2", "4", 2, "FFN 0", NULL);
    lose("attn=2,ffn=2", "4", 3, "FFN 1", "--scatter");
    return failures ? 1 : 0;
}
