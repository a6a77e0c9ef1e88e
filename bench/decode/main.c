/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_decode: decode a language model across attention and FFN ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "agree.h"
#include "rank.h"
#include "report.h"
#include "single.h"

enum { RESTARTS = 100 };

static const char program[] = "stepaf_decode";

/* What the command line gave, or why it could not be read. */
struct command {
    struct options options;
    int result;
    struct reason reason;
};

/* Whether this rank reports a failure: rank 0, or rank 1 if rank 0 is lost. */
static int teller(int lost)
{
    return lost == 0 ? 1 : 0;
}

/* Print one line from one rank. A rank reports its own failure: the others only know that it is
 * gone. */
static void tell(const struct rank *rank, const struct trouble *trouble)
{
    if (rank->text.file && rank->place.index == 0 && rank->text.sequence == 0)
        fputc('\n', rank->text.file); /* end the text at the current position */
    if (trouble->lost < 0 || rank->place.world == teller(trouble->lost))
        fprintf(stderr, "%s: %s\n", program, trouble->reason.text);
}

/* Do everything up to decoding. On failure all ranks have the same reason. */
static int prepare(struct rank *rank, const struct command *command)
{
    int result = command->result;
    if (result == 0)
        result = job_load(rank->options, &rank->job, rank->reason);
    if (result == 0 && rank->launch->channel.rank == 0)
        result = report_try(rank->options->json, rank->reason) ||
                         report_try(rank->options->trace, rank->reason)
                     ? -1
                     : 0;
    if (agree(rank->launch, result, 0, rank->options->load_timeout_us, rank->reason))
        return -1;
    return rank_join(rank) || rank_prepare(rank) ? -1 : 0;
}

static int run(struct launch *launch, void *arg)
{
    struct command *command = arg;
    struct reason reason = command->reason;
    struct rank rank = {.launch = launch, .options = &command->options, .reason = &reason};
    struct trouble trouble;
    int result = prepare(&rank, command);
    if (result == 0 && rank_run(&rank, &trouble)) {
        tell(&rank, &trouble);
        launch->broken = 1;
        rank_leave(&rank);
        return trouble.reason.code;
    }
    if (result == 0)
        result = rank_report(&rank);
    if (result && (launch->returns || launch->channel.rank == teller(launch->missing)))
        fprintf(stderr, "%s: %s\n", program, reason.text);
    rank_leave(&rank);
    return result ? reason.code : CODE_OK;
}

/* Check that the requested ways to start are available. */
static int check_start(const struct options *options, struct reason *reason)
{
    if (options->procs && launch_detected())
        return reason_bad_input(reason, "--procs forks its own ranks: omit it under a launcher");
    if (!options->procs && !launch_detected())
        return reason_bad_input(reason, "no launcher has started this: use mpirun -n N, or --procs "
                                        "N, or --single");
    return 0;
}

int main(int argc, char **argv)
{
    struct command command = {0};
    const struct options *options = &command.options;
    struct reason *reason = &command.reason;
    int code;
    command.result = options_parse(argc, argv, &command.options, reason);
    /* Ranks that survive another's death have their own deadline, and a farewell. */
    struct launch_params params = {program, CODE_FAILED, options->timeout_us + 5000000, 0};
    int is_return = getenv("STEPAF_JOIN") != NULL;
    if (options->replicas.n > 1)
        params.restarts = RESTARTS;
    if (options->single && command.result == 0) {
        code = single_run(options);
    } else if (is_return && command.result == 0) {
        code = launch_return(&params, run, &command);
    } else if (command.result == 0 && check_start(options, reason)) {
        if (launch_detected_rank() == 0)
            fprintf(stderr, "%s: %s\n", program, reason->text);
        code = reason->code;
    } else if (command.result && !launch_detected()) {
        fprintf(stderr, "%s: %s\n", program, reason->text);
        code = reason->code;
    } else if (options->procs && command.result == 0) {
        code = launch_fork(&params, options->procs, run, &command);
    } else {
        code = launch_mpi(&params, &argc, &argv, run, &command);
    }
    options_free(&command.options);
    return code;
}
