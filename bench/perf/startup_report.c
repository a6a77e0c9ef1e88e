/* SPDX-License-Identifier: Apache-2.0 */
/* The report of rank 0 on starting. */
#include <math.h>
#include <stdio.h>

#include "startup.h"

static double ratio_of(const struct perf_startup *startup)
{
    return (startup->init_us + startup->commit_us) / startup->mpi_init_us;
}

static void print_step(const char *step, double us, const struct perf_startup_exchanges *exchanges)
{
    printf("%-28s%14.1f", step, us);
    if (exchanges != NULL)
        printf("%12d%14.0f%14.0f", exchanges->calls, exchanges->bytes, exchanges->all_bytes);
    printf("\n");
}

/* Return how often n log n a time has grown. */
static double growth_of(double us, double few_us, uint64_t keys)
{
    double n = (double)keys, few = n / PERF_GROWTH_TIMES;

    return us / few_us / (n * log(n) / (few * log(few)));
}

static void print_growth(const char *step, double us, double few_us, uint64_t keys)
{
    printf("%-28s%14.1f%14.1f%14.2f\n", step, few_us, us, growth_of(us, few_us, keys));
}

static void print_all_growth(const struct perf_options *options, const struct perf_startup *startup,
                             const struct perf_startup *few)
{
    uint64_t keys = options->keys;

    printf("%-28s%14s%14s%14s\n", "growth: step", "an eighth", "all keys", "/ n log n");
    print_growth("declare keys and plans", startup->declare_us, few->declare_us, keys);
    print_growth("commit", startup->commit_us, few->commit_us, keys);
    print_growth("register regions", startup->register_us, few->register_us, keys);
    print_growth("deregister regions", startup->deregister_us, few->deregister_us, keys);
    print_growth("withdraw", startup->withdraw_us, few->withdraw_us, keys);
    print_growth("commit again", startup->commit_again_us, few->commit_again_us, keys);
}

void perf_startup_print(const struct perf_options *options, const struct perf_startup *startup,
                        const struct perf_startup *few)
{
    struct perf_startup_exchanges both = {.calls = startup->init.calls + startup->commit.calls,
                                          .bytes = startup->init.bytes + startup->commit.bytes,
                                          .all_bytes =
                                              startup->init.all_bytes + startup->commit.all_bytes};

    printf("# most of all ranks; %llu keys; links: %s\n", (unsigned long long)options->keys,
           startup->transport);
    printf("%-28s%14s%12s%14s%14s\n", "step", "time[usec]", "exchanges", "bytes given", "of all");
    if (startup->mpi_init_us > 0)
        print_step("MPI_Init", startup->mpi_init_us, NULL);
    print_step("init", startup->init_us, &startup->init);
    print_step("declare keys and plans", startup->declare_us, NULL);
    print_step("commit", startup->commit_us, &startup->commit);
    print_step("register as many regions", startup->register_us, NULL);
    print_step("deregister them", startup->deregister_us, NULL);
    print_step("withdraw", startup->withdraw_us, NULL);
    print_step("commit again", startup->commit_again_us, NULL);
    print_step("init + commit", startup->init_us + startup->commit_us, &both);
    if (startup->mpi_init_us > 0)
        printf("%-28s%14.3f\n", "init + commit / MPI_Init", ratio_of(startup));
    printf("%-28s%14.0f\n", "sockets of a rank", startup->sockets);
    printf("%-28s%14.0f\n", "open files of a rank", startup->files);
    printf("%-28s%14.0f\n", "memory of a rank, bytes", startup->fixed_bytes);
    printf("%-28s%14.0f\n", "and for each peer", startup->per_peer_bytes);
    if (options->keys >= PERF_GROWTH_KEYS)
        print_all_growth(options, startup, few);
}

static void set_exchanges(json_t *object, const char *step,
                          const struct perf_startup_exchanges *exchanges)
{
    char name[40];

    snprintf(name, sizeof(name), "%s_exchanges", step);
    json_object_set_new(object, name, json_integer(exchanges->calls));
    snprintf(name, sizeof(name), "%s_bytes", step);
    json_object_set_new(object, name, json_integer((json_int_t)exchanges->bytes));
    snprintf(name, sizeof(name), "%s_all_bytes", step);
    json_object_set_new(object, name, json_integer((json_int_t)exchanges->all_bytes));
}

json_t *perf_startup_json(const struct perf_options *options, const struct perf_place *place,
                          const struct perf_startup *startup, const struct perf_startup *few)
{
    json_t *object = json_object();

    if (object == NULL)
        return NULL;
    json_object_set_new(object, "test", json_string("startup"));
    json_object_set_new(object, "transport", json_string(startup->transport));
    json_object_set_new(object, "attn", json_integer(place->attn));
    json_object_set_new(object, "ffn", json_integer(place->ffn));
    json_object_set_new(object, "keys", json_integer((json_int_t)options->keys));
    json_object_set_new(object, "init_us", json_real(startup->init_us));
    json_object_set_new(object, "declare_us", json_real(startup->declare_us));
    json_object_set_new(object, "commit_us", json_real(startup->commit_us));
    json_object_set_new(object, "register_us", json_real(startup->register_us));
    json_object_set_new(object, "deregister_us", json_real(startup->deregister_us));
    json_object_set_new(object, "withdraw_us", json_real(startup->withdraw_us));
    json_object_set_new(object, "commit_again_us", json_real(startup->commit_again_us));
    if (options->keys >= PERF_GROWTH_KEYS) {
        json_object_set_new(object, "few_declare_us", json_real(few->declare_us));
        json_object_set_new(object, "few_commit_us", json_real(few->commit_us));
        json_object_set_new(object, "few_register_us", json_real(few->register_us));
        json_object_set_new(object, "few_deregister_us", json_real(few->deregister_us));
        json_object_set_new(object, "few_withdraw_us", json_real(few->withdraw_us));
        json_object_set_new(object, "few_commit_again_us", json_real(few->commit_again_us));
    }
    set_exchanges(object, "init", &startup->init);
    set_exchanges(object, "commit", &startup->commit);
    json_object_set_new(object, "sockets", json_integer((json_int_t)startup->sockets));
    json_object_set_new(object, "files", json_integer((json_int_t)startup->files));
    json_object_set_new(object, "fixed_bytes", json_integer((json_int_t)startup->fixed_bytes));
    json_object_set_new(object, "per_peer_bytes",
                        json_integer((json_int_t)startup->per_peer_bytes));
    if (startup->mpi_init_us > 0) {
        json_object_set_new(object, "mpi_init_us", json_real(startup->mpi_init_us));
        json_object_set_new(object, "ratio", json_real(ratio_of(startup)));
    }
    return object;
}
