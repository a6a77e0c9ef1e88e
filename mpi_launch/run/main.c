/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf-run: finds the launcher, builds its command line, and becomes it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "exec.h"
#include "fail.h"
#include "launcher.h"
#include "options.h"
#include "place.h"
#include "resolve.h"
#include "serve.h"
#include "ssh.h"

/* Whether @a name, looked up as execvp does, can be executed. */
static int can_run(const char *name)
{
    const char *path = getenv("PATH");

    if (strchr(name, '/'))
        return access(name, X_OK) == 0;
    for (path = path ? path : "/bin:/usr/bin"; *path;) {
        char file[PATH_MAX];
        int bytes = (int)strcspn(path, ":");
        snprintf(file, sizeof(file), "%.*s/%s", bytes, bytes ? path : ".", name);
        if (access(file, X_OK) == 0)
            return 1;
        path += bytes + (path[bytes] == ':');
    }
    return 0;
}

/* If all ranks are on this machine, a missing program can be reported immediately. */
static int check_programs(const struct run_options *options, const struct run_launcher *launcher)
{
    if (options->hosts || options->hostfile || launcher->kind == RUN_SLURM ||
        getenv("SLURM_JOB_ID"))
        return 0;
    for (int i = 0; i < options->n_programs; i++) {
        const char *name = options->programs[i].words[0];
        if (!can_run(name))
            return run_fail("cannot run %s: %s", name,
                            strchr(name, '/') ? strerror(errno) : "not found in PATH");
    }
    return 0;
}

/* The name by which ranks, perhaps on other nodes, find this program. */
static int find_self(char *path_p, size_t capacity)
{
    ssize_t bytes = readlink("/proc/self/exe", path_p, capacity - 1);

    if (bytes < 0)
        return run_fail("cannot find the path of stepaf-run: %s", strerror(errno));
    path_p[bytes] = '\0';
    return 0;
}

static int prepare(const struct run_options *options, struct run_command *command_p)
{
    char self[PATH_MAX];
    struct run_launcher launcher;

    if (find_self(self, sizeof(self)) != 0 || run_launcher_find(options, environ, &launcher) != 0 ||
        check_programs(options, &launcher) != 0)
        return -1;
    struct run_facts facts = {.self = self,
                              .environment = environ,
                              .cores = run_place_count_cores(),
                              .is_root = geteuid() == 0};
    if (options->verbose)
        fprintf(stderr, "stepaf-run: %s\n", launcher.reason);
    if (*launcher.doubt)
        fprintf(stderr, "stepaf-run: %s\n", launcher.doubt);
    if (run_command_make(options, &launcher, &facts, command_p) != 0)
        return -1;
    /* A line that is only shown may be for another machine. */
    if (options->dry_run || run_resolve_hosts(options, &launcher, environ) == 0)
        return 0;
    run_command_free(command_p);
    return -1;
}

/* Become the launcher. Returns only on failure. */
static int launch(struct run_command *command)
{
    for (int i = 0; i < command->env.n; i++)
        putenv(command->env.word[i]);
    fflush(stderr);
    execvp(command->argv.word[0], command->argv.word);
    return run_fail_program(command->argv.word[0]);
}

int main(int argc, char **argv)
{
    struct run_options options;
    struct run_command command;
    int code = RUN_EXIT_OK;

    if (argc > 1 && strcmp(argv[1], "--exec") == 0)
        return run_exec(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "--ssh") == 0)
        return run_ssh(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "--serve") == 0)
        return run_serve();
    run_options_parse(argc, argv, &options);
    if (prepare(&options, &command) != 0) {
        fprintf(stderr, "stepaf-run: %s\n", run_fail_text());
        run_options_free(&options);
        return RUN_EXIT_USAGE;
    }
    if (options.dry_run) {
        run_command_print(&command, stdout);
        if (fflush(stdout) != 0) {
            fprintf(stderr, "stepaf-run: cannot write: %s\n", strerror(errno));
            code = RUN_EXIT_USAGE;
        }
    } else {
        if (options.verbose)
            run_command_print(&command, stderr);
        code = launch(&command);
    }
    run_command_free(&command);
    run_options_free(&options);
    return code;
}
