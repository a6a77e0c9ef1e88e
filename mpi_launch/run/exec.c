/* SPDX-License-Identifier: Apache-2.0 */
#include "exec.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stepaf/status.h>

#include "fail.h"
#include "place.h"
#include "rank.h"
#include "spec.h"
#include "topo/sys.h"
#include "topo/topo.h"

/* Select the program that this rank runs among several; the words of the others are cut off. */
static int choose_program(const struct run_spec *spec, const struct run_rank *rank, int argc,
                          char **argv, enum run_role *role_p, char ***program_p)
{
    int ranks = 0;
    int words = 0;

    *role_p = spec->role;
    *program_p = argv;
    if (spec->n_programs == 0)
        return argc > 0 ? 0 : run_fail("--exec: no program is given");
    if (rank->world < 0)
        return run_fail(
            "this rank has no number (OMPI_COMM_WORLD_RANK, STEPAF_RANK, SLURM_PROCID)");
    for (int i = 0; i < spec->n_programs; i++) {
        const struct run_spec_program *program = &spec->programs[i];
        if (program->words > argc - words)
            break;
        if (rank->world < ranks + program->ranks) {
            *role_p = program->role;
            *program_p = argv + words;
            argv[words + program->words] = NULL;
            return 0;
        }
        ranks += program->ranks;
        words += program->words;
    }
    return run_fail("rank %d has no program", rank->world);
}

/* Only the first rank of a node reports what is the same for all. */
static void print_warnings(const struct run_place *place, const struct run_rank *rank)
{
    for (int i = 0; i < place->n_warnings && rank->local == 0; i++)
        fprintf(stderr, "stepaf-run: %s\n", place->warning[i]);
}

static void print_place(const struct run_place *place, const struct run_rank *rank)
{
    const char *progress = getenv("STEPAF_PROGRESS_CORES");
    const char *device = getenv("CUDA_VISIBLE_DEVICES");
    const char *nics = getenv("STEPAF_NET_DEVICES");
    int is_ours = nics && *place->nics && strcmp(nics, place->nics) == 0;
    char host[HOST_NAME_MAX + 1] = "?";

    gethostname(host, sizeof(host));
    fprintf(
        stderr,
        "stepaf-run: %s, rank %d of %d there: cores %s, progress thread %s, GPU %s, NIC %s%s%s\n",
        host, rank->local, rank->local_ranks, *place->cores ? place->cores : "all",
        progress ? progress : "near", device ? device : "all", nics ? nics : "near",
        is_ours ? " " : "", is_ours ? place->nics_why : "");
}

/* A rank runs even if it cannot have its place: a slow job is more informative than none. */
static void take_place(const struct run_spec *spec, const struct run_rank *rank)
{
    struct run_place_query query = {.bind = spec->bind,
                                    .devices = spec->devices,
                                    .local = rank->local,
                                    .local_ranks = rank->local_ranks,
                                    .quota = stepaf_sys_cpu_quota(""),
                                    .visible = getenv("CUDA_VISIBLE_DEVICES")};
    struct run_place place;

    if (rank->local < 0) {
        fprintf(stderr,
                "stepaf-run: no launcher sets the local rank of this process: it is not bound\n");
        return;
    }
    if (run_place_find(&query, &place) != 0) {
        fprintf(stderr, "stepaf-run: %s: not bound\n", run_fail_text());
        return;
    }
    if (*place.cores && stepaf_topo_bind_thread(place.cores) != STEPAF_OK) {
        fprintf(stderr, "stepaf-run: %s\n", stepaf_last_error()->text);
        place.cores[0] = '\0';
    }
    if (*place.device) {
        setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
        setenv("CUDA_VISIBLE_DEVICES", place.device, 1);
    }
    if (*place.progress)
        setenv("STEPAF_PROGRESS_CORES", place.progress, 0);
    if (*place.nics)
        setenv("STEPAF_NET_DEVICES", place.nics, 0);
    print_warnings(&place, rank);
    if (spec->verbose)
        print_place(&place, rank);
}

int run_exec(int argc, char **argv)
{
    struct run_spec spec;
    struct run_rank rank;
    enum run_role role;
    char **program;

    run_rank_find(environ, &rank);
    if (argc < 1)
        run_fail_set("--exec: this is for stepaf-run's own use");
    if (argc < 1 || run_spec_parse(argv[0], &spec) != 0 ||
        choose_program(&spec, &rank, argc - 1, argv + 1, &role, &program) != 0) {
        fprintf(stderr, "stepaf-run: %s\n", run_fail_text());
        return RUN_EXIT_USAGE;
    }
    if (role != RUN_ROLE_NONE)
        setenv("STEPAF_ROLE", run_role_word(role), 1);
    if (spec.bind != RUN_BIND_NONE || spec.devices)
        take_place(&spec, &rank);
    execvp(program[0], program);
    return run_fail_program(program[0]);
}
