/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank learns from its launcher's variables and from stepaf-run itself, and what srun's list
 * of plugins comes to. */
#include "fail.h"
#include "launcher.h"
#include "rank.h"
#include "spec.h"
#include "unit.h"
#include "words.h"

struct row {
    const char *environment;
    int local;
    int local_ranks;
    int world;
};

static void variables(void)
{
    static const struct row rows[] = {
        {"HOME=/", -1, 0, -1},
        {"OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=4", 2, 4, -1},
        {"OMPI_COMM_WORLD_RANK=5", -1, 0, 5},
        {"MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", 0, 1, -1},
        {"SLURM_LOCALID=1 SLURM_NODEID=2 SLURM_PROCID=9 SLURM_STEP_TASKS_PER_NODE=4(x2),3", 1, 3,
         9},
        {"SLURM_LOCALID=3 SLURM_NODEID=0 SLURM_PROCID=3 SLURM_TASKS_PER_NODE=4(x2)", 3, 4, 3},
        /* The step counts, not the job. */
        {"SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_TASKS_PER_NODE=9 SLURM_STEP_TASKS_PER_NODE=2", 0, 2,
         -1},
        /* mpirun in an allocation has its daemons started by srun. */
        {"SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=1(x2) "
         "OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=4 OMPI_COMM_WORLD_RANK=6 "
         "SLURM_PROCID=1",
         2, 4, 6},
        /* Half of it, or nonsense, is as good as none. */
        {"OMPI_COMM_WORLD_LOCAL_RANK=2", -1, 0, -1},
        {"OMPI_COMM_WORLD_LOCAL_RANK=4 OMPI_COMM_WORLD_LOCAL_SIZE=4", -1, 0, -1},
        {"MPI_LOCALRANKID=x MPI_LOCALNRANKS=1", -1, 0, -1},
        {"MPI_LOCALRANKID=0x MPI_LOCALNRANKS=1", -1, 0, -1},
        {"SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2 SLURM_PROCID=-1", -1, 0, -1},
        {"SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=2", -1, 0, -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct run_words environment = {0};
        struct run_rank rank;
        run_words_split(&environment, rows[i].environment);
        run_rank_find(environment.word, &rank);
        CU_ASSERT_EQUAL(rank.local, rows[i].local);
        CU_ASSERT_EQUAL(rank.local_ranks, rows[i].local_ranks);
        CU_ASSERT_EQUAL(rank.world, rows[i].world);
        run_words_free(&environment);
    }
}

static void tasks(void)
{
    CU_ASSERT_EQUAL(run_rank_tasks("2(x3),1", 0), 2);
    CU_ASSERT_EQUAL(run_rank_tasks("2(x3),1", 2), 2);
    CU_ASSERT_EQUAL(run_rank_tasks("2(x3),1", 3), 1);
    CU_ASSERT_EQUAL(run_rank_tasks("2(x3),1", 4), 0);
    CU_ASSERT_EQUAL(run_rank_tasks("2,3,4", 1), 3);
    static const char *const bad[] = {"",      "x",    "0",       "-1", "2(x",
                                      "2(x0)", "2(x2", "2(x2),,", ",2", "99999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        CU_ASSERT_EQUAL(run_rank_tasks(bad[i], i < 3 ? 0 : 2), 0);
}

static void specs(void)
{
    static const char *const good[] = {
        "bind=auto",
        "bind=none,role=ffn",
        "bind=gpu,devices,verbose,role=attention",
        "bind=core,program=attention:4:3,program=ffn:1048576:1",
    };
    static const char *const bad[] = {
        "",
        "bind=",
        "bind=socket",
        "role=both",
        "devices=1",
        "bind=core,",
        "program=attention",
        "program=attention:1",
        "program=attention:0:1",
        "program=attention:1:0",
        "program=attention:1:1x",
        "program=both:1:1",
        "program=ffn:1048577:1",
    };
    struct run_spec spec;
    char text[RUN_SPEC_MAX];
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        CU_ASSERT_EQUAL_FATAL(run_spec_parse(good[i], &spec), 0);
        run_spec_format(&spec, text, sizeof(text));
        UNIT_STRING(text, good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        CU_ASSERT_EQUAL(run_spec_parse(bad[i], &spec), -1);
    memset(text, ',', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    CU_ASSERT_EQUAL(run_spec_parse(text, &spec), -1);

    /* As long as it can get. */
    spec = (struct run_spec){.bind = RUN_BIND_NUMA, .devices = 1, .verbose = 1};
    for (int i = 0; i < RUN_PROGRAMS_MAX; i++)
        spec.programs[spec.n_programs++] =
            (struct run_spec_program){RUN_ROLE_ATTENTION, RUN_RANKS_MAX, RUN_RANKS_MAX};
    run_spec_format(&spec, text, sizeof(text));
    CU_ASSERT_EQUAL_FATAL(run_spec_parse(text, &spec), 0);
    CU_ASSERT_EQUAL(spec.n_programs, RUN_PROGRAMS_MAX);
    CU_ASSERT_EQUAL(spec.programs[RUN_PROGRAMS_MAX - 1].words, RUN_RANKS_MAX);
}

static void plugins(void)
{
    static const char *const good[][2] = {
        {"MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions "
         "available: pmix_v3,pmix_v4\n",
         "pmix"},
        {"srun: MPI types are...\nsrun: pmix_v3\nsrun: pmix_v4\nsrun: pmix_v2\nsrun: none\n",
         "pmix_v4"},
        {"MPI plugin types are...\n\tcray_shasta\n\tnone\n\tpmi2\n", "pmi2"},
        {"pmi2 pmix_v2", "pmix_v2"},
        {"pmix pmi2", "pmix"},
    };
    static const char *const bad[] = {"", "\n", "MPI plugin types are...\n\tcray_shasta\n\tnone\n",
                                      "pmixture", "pmi"};
    char mpi[64] = "as it was";
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        CU_ASSERT_EQUAL(run_launcher_pick_mpi(bad[i], mpi), -1);
    UNIT_STRING(mpi, "as it was");
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        CU_ASSERT_EQUAL(run_launcher_pick_mpi(good[i][0], mpi), 0);
        UNIT_STRING(mpi, good[i][1]);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {{"variables", variables},
                           {"tasks", tasks},
                           {"specs", specs},
                           {"plugins", plugins},
                           CU_TEST_INFO_NULL};
    return unit_run(tests);
}
