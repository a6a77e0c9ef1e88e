/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded run of a fuzzer without libFuzzer: all files of its corpus, then mutations of them
 * until the time is up.
 *
 *   fuzz_NAME [SECONDS [SEED [CORPUS_DIRECTORY]]]     or     fuzz_NAME FILE
 *
 * Without arguments: 2 seconds, seed 1, $top_srcdir/test/fuzz/corpus/NAME. The sequence of inputs
 * depends on the seed alone. An input that ends the process is left in fuzz-finding.PID in the
 * working directory; run the fuzzer with that file to see it again. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

enum { INPUT_MAX = 4096, CORPUS_MAX = 256 };

struct input {
    size_t bytes;
    uint8_t data[INPUT_MAX];
};

static struct input corpus[CORPUS_MAX];
static size_t corpus_count;
static struct input current;
static char finding[64];

/* xorshift64*: any good generator does, but it must be the same everywhere. */
static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1du;
}

static size_t random_below(size_t n)
{
    return n ? (size_t)(random_next() >> 33) % n : 0;
}

/* Only what a signal handler may call. */
static void save_finding(void)
{
    static const char text[] = "the input that did it is in ";
    int fd = open(finding, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, current.data, current.bytes) != (ssize_t)current.bytes ||
        write(STDERR_FILENO, text, sizeof text - 1) < 0 ||
        write(STDERR_FILENO, finding, strlen(finding)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        _exit(99);
}

static void on_signal(int number)
{
    save_finding();
    signal(number, SIG_DFL);
    raise(number);
}

/* There in a build with a sanitizer, which may end the process without a signal. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void catch_findings(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    snprintf(finding, sizeof finding, "fuzz-finding.%ld", (long)getpid());
    signal(SIGABRT, on_signal);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(save_finding);
        return;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], on_signal);
}

static int read_input(const char *path, struct input *input_p)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    input_p->bytes = fread(input_p->data, 1, sizeof input_p->data, file);
    fclose(file);
    return 1;
}

static void read_corpus(const char *directory)
{
    struct dirent **entries;
    int n = scandir(directory, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && corpus_count < CORPUS_MAX)
            corpus_count += (size_t)read_input(path, &corpus[corpus_count]);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void insert_bytes(struct input *input, const uint8_t *data, size_t bytes)
{
    size_t at = random_below(input->bytes + 1);
    if (bytes > INPUT_MAX - input->bytes)
        bytes = INPUT_MAX - input->bytes;
    memmove(input->data + at + bytes, input->data + at, input->bytes - at);
    memcpy(input->data + at, data, bytes);
    input->bytes += bytes;
}

static void erase_bytes(struct input *input)
{
    size_t at = random_below(input->bytes);
    size_t bytes = random_below(input->bytes - at + 1);
    memmove(input->data + at, input->data + at + bytes, input->bytes - at - bytes);
    input->bytes -= bytes;
}

/* Something from another file of the corpus. */
static void splice_other(struct input *input)
{
    const struct input *other = &corpus[random_below(corpus_count)];
    size_t at = random_below(other->bytes);
    insert_bytes(input, other->data + at, random_below(other->bytes - at + 1));
}

static void mutate(struct input *input)
{
    static const char *const tokens[] = {
        "0", "1", "-1", "4294967296", "9223372036854775808",
        ",", "=", "\n", "%p",         "\xff\xff\xff\xff",
        "#",
    };
    uint8_t byte = (uint8_t)random_next();
    const char *token = tokens[random_below(sizeof tokens / sizeof *tokens)];
    switch (random_below(6)) {
    case 0:
        insert_bytes(input, &byte, 1);
        break;
    case 1:
        insert_bytes(input, (const uint8_t *)token, strlen(token));
        break;
    case 2:
        erase_bytes(input);
        break;
    case 3:
        splice_other(input);
        break;
    case 4:
        if (input->bytes)
            input->data[random_below(input->bytes)] ^= (uint8_t)(1u << random_below(8));
        break;
    default:
        if (input->bytes)
            input->data[random_below(input->bytes)] = byte;
        break;
    }
}

static void run_one(void)
{
    /* A copy of the exact size lets a sanitizer see what is read past its end. */
    uint8_t *copy = malloc(current.bytes ? current.bytes : 1);
    memcpy(copy, current.data, current.bytes);
    LLVMFuzzerTestOneInput(copy, current.bytes);
    free(copy);
}

static long run_mutations(double seconds)
{
    struct timespec start;
    struct timespec now;
    long count = 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; i < 64; i++, count++) {
            current = corpus[random_below(corpus_count)];
            for (size_t changes = 1 + random_below(8); changes > 0; changes--)
                mutate(&current);
            run_one();
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec) <
             seconds);
    return count;
}

/* Where the corpus of this program is in the source tree. libtool may have put lt- before the
 * program's name. */
static const char *default_corpus(const char *program)
{
    static char path[4096];
    const char *top = getenv("top_srcdir");
    const char *name = strstr(program, "fuzz_");
    for (const char *next = name; next; next = strstr(next + 1, "fuzz_"))
        name = next;
    snprintf(path, sizeof path, "%s/test/fuzz/corpus/%s", top ? top : ".",
             name ? name + strlen("fuzz_") : "");
    return path;
}

int main(int argc, char **argv)
{
    struct stat info;
    if (argc == 2 && stat(argv[1], &info) == 0 && S_ISREG(info.st_mode)) {
        if (!read_input(argv[1], &current))
            return 99;
        run_one();
        return 0;
    }
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 2;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    random_state = seed ? seed : 1;
    const char *directory = argc > 3 ? argv[3] : default_corpus(argv[0]);
    read_corpus(directory);
    if (corpus_count == 0) {
        fprintf(stderr, "no corpus in %s\n", directory);
        return 99;
    }
    catch_findings();
    for (size_t i = 0; i < corpus_count; i++) {
        current = corpus[i];
        run_one();
    }
    long count = run_mutations(seconds);
    printf("%zu files and %ld mutations, seed %llu: nothing found\n", corpus_count, count,
           (unsigned long long)seed);
    return 0;
}
