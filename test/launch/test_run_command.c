/* SPDX-License-Identifier: Apache-2.0 */
/* The line that is made for each launcher and each option. */
#include <stdlib.h>

#include "command.h"
#include "fail.h"
#include "unit.h"

static const struct run_launcher openmpi = {.kind = RUN_OPENMPI, .program = "mpirun"};
static const struct run_launcher hydra = {.kind = RUN_HYDRA, .program = "mpiexec"};
static const struct run_launcher intel = {.kind = RUN_INTEL, .program = "mpiexec.hydra"};
static const struct run_launcher by_ssh = {.kind = RUN_SSH, .program = "ssh"};
static const struct run_launcher slurm = {.kind = RUN_SLURM, .program = "srun", .mpi = "pmix"};
static const struct run_launcher slurm_as_told = {.kind = RUN_SLURM, .program = "srun"};

/* Make the command of @a line, words between blanks, on a machine of 4 cores with @a environment,
 * assignments between blanks. The text is the caller's to free; NULL if it was refused. */
static char *make_line(const struct run_launcher *launcher, const char *environment, int is_root,
                       const char *line)
{
    struct run_words words = {0};
    struct run_words variables = {0};
    struct run_options options;
    struct run_command command;
    char *none[] = {NULL};
    char *text = NULL;
    size_t bytes;

    run_words_add(&words, "stepaf-run");
    run_words_split(&words, line);
    run_words_split(&variables, environment);
    char **argv = calloc((size_t)words.n + 1, sizeof(*argv));
    CU_ASSERT_PTR_NOT_NULL_FATAL(argv);
    memcpy(argv, words.word, (size_t)words.n * sizeof(*argv));
    struct run_facts facts = {.self = "/opt/bin/stepaf-run",
                              .environment = variables.n ? variables.word : none,
                              .cores = 4,
                              .is_root = is_root};

    run_options_parse(words.n, argv, &options);
    if (run_command_make(&options, launcher, &facts, &command) == 0) {
        FILE *stream = open_memstream(&text, &bytes);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stream);
        run_command_print(&command, stream);
        fclose(stream);
        text[strcspn(text, "\n")] = '\0';
        run_command_free(&command);
    }
    run_options_free(&options);
    run_words_free(&words);
    run_words_free(&variables);
    free(argv);
    return text;
}

struct row {
    const struct run_launcher *launcher;
    const char *environment;
    const char *line;
    const char *command;
};

static void check_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *text = make_line(rows[i].launcher, rows[i].environment, 0, rows[i].line);
        CU_ASSERT_PTR_NOT_NULL(text);
        UNIT_STRING(text ? text : run_fail_text(), rows[i].command);
        free(text);
    }
}

#define CHECK_ROWS(rows_) check_rows(rows_, sizeof(rows_) / sizeof(*(rows_)))
#define RANK "/opt/bin/stepaf-run --exec bind="

static void lines_of_openmpi(void)
{
    static const struct row rows[] = {
        {&openmpi, "", "-a 2 -f 2 ./app x -a 9",
         "STEPAF_SPLIT=attn=2,ffn=2 mpirun --bind-to none -x STEPAF_SPLIT -n 4 " RANK
         "auto ./app x -a 9"},
        {&openmpi, "", "-a4 -f 1 --bind none -- ./app --",
         "STEPAF_SPLIT=attn=4,ffn=1 mpirun --oversubscribe --bind-to none -x STEPAF_SPLIT -n 5 "
         "./app --"},
        {&openmpi, "SLURM_JOB_ID=7", "-a 4 -f 4 --bind=none ./app",
         "STEPAF_SPLIT=attn=4,ffn=4 mpirun --bind-to none -x STEPAF_SPLIT -n 8 ./app"},
        {&openmpi, "", "--attn 1 --ffn 1 --interleave --oversubscribe --bind numa app",
         "STEPAF_SPLIT=attn=1,ffn=1,interleave mpirun --oversubscribe --bind-to none "
         "-x STEPAF_SPLIT -n 2 " RANK "numa app"},
        {&openmpi, "STEPAF_DEPTH=2 HOME=/ STEPAF_BACKOFF=spin STEPAF_SPLIT=attn=9,ffn=9",
         "-a 1 -f 1 --env A=1 --env A=2 --bind none --timeout 90 --pass --mca --pass btl ./app",
         "STEPAF_SPLIT=attn=1,ffn=1 A=1 A=2 mpirun --timeout 90 --bind-to none -x A "
         "-x STEPAF_BACKOFF -x STEPAF_DEPTH -x STEPAF_SPLIT --mca btl -n 2 ./app"},
        {&openmpi, "", "-a 1 -f 1 --env STEPAF_SECRET=s --bind none app",
         "STEPAF_SPLIT=attn=1,ffn=1 STEPAF_SECRET=... mpirun --bind-to none -x STEPAF_SECRET "
         "-x STEPAF_SPLIT -n 2 app"},
        {&openmpi, "STEPAF_SECRET=s STEPAF_SECRET_FILE=f", "-a 1 -f 1 --bind none app",
         "STEPAF_SPLIT=attn=1,ffn=1 mpirun --bind-to none -x STEPAF_SECRET -x STEPAF_SECRET_FILE "
         "-x STEPAF_SPLIT -n 2 app"},
        {&openmpi, "", "-a 3 -f 3 --hosts h1:4,h2:4,h3:4 --device-per-rank --bind gpu -v ./app",
         "STEPAF_SPLIT=attn=3,ffn=3 mpirun --map-by slot --bind-to none -x STEPAF_SPLIT "
         "--host h1:4,h2:2 -n 6 " RANK "gpu,devices,verbose ./app"},
        {&openmpi, "", "-a 2 -f 1 --per-node --interleave --hosts h1,h2 --bind none ./app",
         "STEPAF_SPLIT=attn=per-node:2,ffn=per-node:1,interleave mpirun --map-by slot "
         "--bind-to none -x STEPAF_SPLIT --host h1:3,h2:3 -n 6 ./app"},
        {&openmpi, "SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=3", "-a 2 -f 1 --per-node --bind none app",
         "STEPAF_SPLIT=attn=per-node:2,ffn=per-node:1 mpirun --map-by ppr:3:node --bind-to none "
         "-x STEPAF_SPLIT -n 9 app"},
        {&openmpi, "", "-a 2 -f 1 --per-node --bind none app",
         "STEPAF_SPLIT=attn=per-node:2,ffn=per-node:1 mpirun --bind-to none -x STEPAF_SPLIT -n 3 "
         "app"},
        {&openmpi, "STEPAF_DEPTH=2", "-a 2 ./attn x : -f 1 ./ffn y : -f 1 ./ffn z",
         "mpirun --bind-to none -x STEPAF_DEPTH -n 4 " RANK
         "auto,program=attention:2:2,program=ffn:1:2,program=ffn:1:2 ./attn x ./ffn y ./ffn z"},
        {&openmpi, "STEPAF_SPLIT=attn=1,ffn=1", "--bind none --hosts h1:2,h2:1 -f 2 f : -a 1 -- a",
         "STEPAF_SPLIT= mpirun --map-by slot --bind-to none -x STEPAF_SPLIT --host h1:2,h2:1 -n "
         "3 " RANK "none,program=ffn:2:1,program=attention:1:1 f a"},
    };
    CHECK_ROWS(rows);
}

static void lines_of_hydra(void)
{
    static const struct row rows[] = {
        {&hydra, "", "-a 20 -f 2 ./app",
         "mpiexec -bind-to none -genv STEPAF_SPLIT attn=20,ffn=2 -n 22 " RANK "auto ./app"},
        {&hydra, "STEPAF_SECRET=s STEPAF_SECRET_FILE=f", "-a 1 -f 1 --bind none ./app",
         "mpiexec -bind-to none -genv STEPAF_SECRET_FILE f -genv STEPAF_SPLIT attn=1,ffn=1 -n 2 "
         "./app"},
        {&hydra, "STEPAF_DEPTH=2 B=3", "-a 1 -f 1 --env A=1 --bind none --timeout 9 --pass -l app",
         "A=1 MPIEXEC_TIMEOUT=9 mpiexec -bind-to none -genv STEPAF_DEPTH 2 -genv "
         "STEPAF_SPLIT attn=1,ffn=1 -l -n 2 app"},
        {&hydra, "STEPAF_SECRET=s HOME=/",
         "-a 1 -f 1 --env STEPAF_SECRET --env HOME --bind none app",
         "mpiexec -bind-to none -genv STEPAF_SPLIT attn=1,ffn=1 -n 2 app"},
        {&hydra, "STEPAF_SECRET=s", "-a 1 -f 1 --env STEPAF_SECRET=t --bind none app",
         "STEPAF_SECRET=... mpiexec -bind-to none -genv STEPAF_SPLIT attn=1,ffn=1 -n 2 app"},
        {&hydra, "", "-a 3 -f 2 --hosts h1:4,h2:4 --bind none app",
         "mpiexec -hosts h1:4,h2:1 -bind-to none -genv STEPAF_SPLIT attn=3,ffn=2 -n 5 app"},
        {&hydra, "SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2", "-a 3 -f 2 --per-node --bind none app",
         "mpiexec -ppn 5 -bind-to none -genv STEPAF_SPLIT attn=per-node:3,ffn=per-node:2 -n 10 "
         "app"},
        {&hydra, "STEPAF_SPLIT=map=x", "-a 2 --bind=core ./attn : -f 1 ./ffn",
         "mpiexec -bind-to none -genv STEPAF_SPLIT '' -n 2 " RANK
         "core,role=attention ./attn : -n 1 " RANK "core,role=ffn ./ffn"},
        {&intel, "", "-a 3 -f 2 --hosts h1:3,h2:3 --bind none app",
         "mpiexec.hydra -hosts h1,h2 -ppn 3 -genv I_MPI_PIN off -genv STEPAF_SPLIT attn=3,ffn=2 "
         "-n 5 app"},
    };
    setenv("STEPAF_SECRET", "s", 1);
    CHECK_ROWS(rows);
}

#define SRUN " --export=ALL --kill-on-bad-exit=1 --cpu-bind=none"

static void lines_of_slurm(void)
{
    static const struct row rows[] = {
        {&slurm, "", "-a 4 -f 2 --slurm ./app x",
         "STEPAF_SPLIT=attn=4,ffn=2 srun --mpi=pmix" SRUN " --ntasks=6 " RANK "auto ./app x"},
        {&slurm_as_told, "", "-a 4 -f 2 --slurm=--mpi=pmi2 --bind none app",
         "STEPAF_SPLIT=attn=4,ffn=2 srun" SRUN " --mpi=pmi2 --ntasks=6 app"},
        {&slurm, "", "-a 4 -f 2 --slurm --pass=-p --pass=gpu --oversubscribe -N 2 --timeout 90 app",
         "STEPAF_SPLIT=attn=4,ffn=2 srun --mpi=pmix" SRUN
         " --overcommit --time=1:30 --nodes=2 -p gpu --ntasks=6 " RANK "auto app"},
        {&slurm, "", "-a 4 -f 2 --slurm --per-node -N 3 --bind none app",
         "STEPAF_SPLIT=attn=per-node:4,ffn=per-node:2 srun --mpi=pmix" SRUN
         " --nodes=3 --ntasks-per-node=6 --ntasks=18 app"},
        {&slurm, "SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2", "-a 4 -f 2 --per-node --bind none app",
         "STEPAF_SPLIT=attn=per-node:4,ffn=per-node:2 srun --mpi=pmix" SRUN
         " --nodes=2 --ntasks-per-node=6 --ntasks=12 app"},
        {&slurm, "", "-a 4 -f 2 --hosts n1:4,n2:4 --bind none app",
         "STEPAF_SPLIT=attn=4,ffn=2 srun --mpi=pmix" SRUN
         " --nodes=2 --distribution=arbitrary --nodelist n1,n1,n1,n1,n2,n2 --ntasks=6 app"},
        {&slurm, "", "-a 1 -f 1 --per-node --hosts n1,n3 --bind none app",
         "STEPAF_SPLIT=attn=per-node:1,ffn=per-node:1 srun --mpi=pmix" SRUN
         " --nodes=2 --ntasks-per-node=2 --nodelist n1,n3 --ntasks=4 app"},
        {&slurm, "", "-a 4 --device-per-rank ./attn x y : -f 2 ./ffn",
         "srun --mpi=pmix" SRUN " --ntasks=6 " RANK
         "auto,devices,program=attention:4:3,program=ffn:2:1 ./attn x y ./ffn"},
        {&slurm, "SLURM_JOB_ID=7 SLURM_HET_SIZE=2", "-a 4 ./attn x : -f 2 ./ffn",
         "srun --mpi=pmix" SRUN " --het-group=0 --ntasks=4 " RANK
         "auto,role=attention ./attn x : --mpi=pmix" SRUN " --het-group=1 --ntasks=2 " RANK
         "auto,role=ffn ./ffn"},
    };
    CHECK_ROWS(rows);
}

static void root_is_asked(void)
{
    static const char allowed[] = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    static const char line[] = "STEPAF_SPLIT=attn=1,ffn=1 mpirun --bind-to none -x STEPAF_SPLIT "
                               "-n 2 app";
    char *text = make_line(&openmpi, "", 1, "-a 1 -f 1 --bind none app");
    CU_ASSERT_PTR_NULL(text);
    UNIT_CONTAINS(run_fail_text(), "--allow-root");
    text = make_line(&openmpi, allowed, 1, "-a 1 -f 1 --bind none app");
    UNIT_STRING(text ? text : "", line);
    free(text);
    text = make_line(&openmpi, "", 0, "-a 1 -f 1 --bind none --allow-root app");
    UNIT_STRING(text ? text : "", line);
    free(text);
    text = make_line(&openmpi, "", 1, "-a 1 -f 1 --bind none --allow-root app");
    UNIT_STRING(text ? text : "", "STEPAF_SPLIT=attn=1,ffn=1 mpirun --allow-run-as-root --bind-to "
                                  "none -x STEPAF_SPLIT -n 2 app");
    free(text);
    text = make_line(&hydra, "", 1, "-a 1 -f 1 --bind none app");
    CU_ASSERT_PTR_NOT_NULL(text);
    free(text);
}

static void refusals(void)
{
    static const struct row rows[] = {
        {&openmpi, "STEPAF_ROLE=ffn", "-a 1 -f 1 app", "STEPAF_ROLE=ffn is in the environment"},
        {&openmpi, "", "-a 1 -f 1 -N 2 app", "--nodes is for Slurm"},
        {&slurm, "", "-a 1 -f 1 --per-node app", "give --nodes"},
        {&slurm, "SLURM_HET_SIZE=2", "-a 1 a : -f 1 b : -f 1 c", "heterogeneous job of 2 parts"},
        {&slurm, "", "-a 1048576 -f 1 --per-node -N 2 app", "are more than 1048576"},
        {&openmpi, "", "-a 2 -f 1 --per-node --hosts h1:3,h2:2 app", "host h2 takes 2 ranks"},
        {&openmpi, "", "-a 4 -f 1 --hosts h1:2,h2:2 app", "the hosts take 4 ranks"},
        {&intel, "", "-a 3 -f 2 --hosts h1:2,h2:3 app", "Intel MPI requires the same number"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char *text = make_line(rows[i].launcher, rows[i].environment, 0, rows[i].line);
        CU_ASSERT_PTR_NULL(text);
        UNIT_CONTAINS(run_fail_text(), rows[i].command);
        free(text);
    }
    char *text = make_line(&openmpi, "STEPAF_ROLE=auto", 0, "-a 1 -f 1 app");
    CU_ASSERT_PTR_NOT_NULL(text);
    free(text);
}

static void quoting(void)
{
    static const char *const words[][2] = {
        {"plain-1.0_a/b:c,d=e+%@", "plain-1.0_a/b:c,d=e+%@"},
        {"", "''"},
        {"a b", "'a b'"},
        {"it's", "'it'\\''s'"},
        {"$(rm)", "'$(rm)'"},
        {"a\nb", "'a\nb'"},
        {"*", "'*'"},
        {"~", "'~'"},
        {"\xc3\xa4", "'\xc3\xa4'"},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        char text[64] = "";
        FILE *stream = fmemopen(text, sizeof(text), "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(stream);
        run_quote(words[i][0], stream);
        fclose(stream);
        UNIT_STRING(text, words[i][1]);
        stream = fmemopen(text, sizeof(text), "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(stream);
        run_quote_assignment("A=b c=d", stream);
        fclose(stream);
        UNIT_STRING(text, "A='b c=d'");
    }
}

static void lines_of_ssh(void)
{
    static const struct row rows[] = {
        {&by_ssh, "", "-a 2 -f 2 --hosts h1,h2 ./app x",
         "STEPAF_SPLIT=attn=2,ffn=2 /opt/bin/stepaf-run --ssh h1:2,h2:2 -xSTEPAF_SPLIT -- " RANK
         "auto ./app x"},
        {&by_ssh, "STEPAF_SECRET=s STEPAF_DEPTH=2 HOME=/",
         "-a 1 -f 1 --hosts h1:1,h2:1 --bind none --timeout 9 --env A=1 --env HOME "
         "--pass -oPort=2222 -- ./app -- -x",
         "STEPAF_SPLIT=attn=1,ffn=1 A=1 /opt/bin/stepaf-run --ssh h1:1,h2:1 -t9 -xA -xHOME "
         "-xSTEPAF_DEPTH -xSTEPAF_SECRET -xSTEPAF_SPLIT -o-oPort=2222 -- ./app -- -x"},
        {&by_ssh, "", "-a 1 -f 1 --per-node --hosts h1,h2 --bind none app",
         "STEPAF_SPLIT=attn=per-node:1,ffn=per-node:1 /opt/bin/stepaf-run --ssh h1:2,h2:2 "
         "-xSTEPAF_SPLIT -- app"},
        {&by_ssh, "", "-a 2 --hosts h1,h2 --bind none a x : -f 1 f",
         "/opt/bin/stepaf-run --ssh h1:2,h2:1 -- " RANK
         "none,program=attention:2:2,program=ffn:1:1 a x f"},
    };
    CHECK_ROWS(rows);
}

int main(void)
{
    CU_TestInfo tests[] = {{"lines of Open MPI", lines_of_openmpi},
                           {"lines of Hydra", lines_of_hydra},
                           {"lines of Slurm", lines_of_slurm},
                           {"lines of ssh", lines_of_ssh},
                           {"root is asked", root_is_asked},
                           {"refusals", refusals},
                           {"quoting", quoting},
                           CU_TEST_INFO_NULL};
    return unit_run(tests);
}
