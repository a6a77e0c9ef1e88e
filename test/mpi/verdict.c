/* SPDX-License-Identifier: Apache-2.0 */
/* Whose time it was: delays of several kinds are put in, one at a time and two at once, and the verdict on the
 * operation has to name the right phase and rank. Between them, and with --quiet-s alone, nobody is to be accused of
 * what he has not done: FFN ranks say what they know of themselves, and nothing is slow about the network.
 *
 * --times N        delays of each kind and size, at each attention rank in turn
 * --work-us N      how long an FFN rank takes for a batch
 * --kinds LIST     such as start,work; else all that the transport allows
 * --busy-s N       before, so long FFN ranks take four times as long, as on a machine that has been busy
 * --percent N      of each kind so many are to be right
 * --pairs 0|1      two at once as well
 * --quiet-s N      instead, so long without any delay
 * --pause-us N     before each operation, else 500
 * --bytes N        of each tensor, else next to none
 * --rails 2        there are so many: one of them is slow as well
 * --netem-there LIST, --netem-back LIST  interfaces, one for each rail, on which netem makes the network slow
 * --look-us N      FFN ranks look so often and sleep meanwhile; else they wait in the library
 * --by core        take the core from who is to be starved, instead of stopping him; takes the right to */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verdict.h"

enum {
    WARM_UP = 48,
    BETWEEN = 5, /* operations without a delay between two with one */
    TRIES = 4,   /* where the machine has disturbed one */
    MORE = 2,    /* where too few were right: one may be by chance */
    PAUSE_US = 500,
    LATELY = 15, /* operations that the median is of */
    READ = 64
};

struct vd_shared *vd_shared;

static const char *const names[VD_KINDS] = {"start", "there",   "queue",      "work",     "back",
                                            "wait",  "starved", "rail-there", "rail-back"};
static const stepaf_verdict_phase_t phases[VD_KINDS] = {
    STEPAF_VERDICT_START,    STEPAF_VERDICT_THERE, STEPAF_VERDICT_FFN_QUEUE,
    STEPAF_VERDICT_FFN_WORK, STEPAF_VERDICT_BACK,  STEPAF_VERDICT_WAIT,
    STEPAF_VERDICT_STARVED,  STEPAF_VERDICT_THERE, STEPAF_VERDICT_BACK};

struct delay {
    int64_t ns[VD_KINDS];
    int ffn, rail;
};

struct tally {
    int right, wrong, disturbed;
};

struct attention {
    struct hs_job *job;
    stepaf_plan_h plan;
    struct vd_push *push;
    uint32_t sequence; /* of the next operation */
    int64_t pause_us;  /* before each start */
    int64_t median_ns;
    int64_t took_ns; /* the last operation */
    int64_t work_ns; /* what an FFN rank takes */
    int64_t
        starved_ns; /* this thread had no core for so long in the last operation, says the kernel */
    struct tally tally;
};

/* How long this thread has waited for a core, ever. */
static int64_t read_starved_ns(void)
{
    long long ran_ns, waited_ns = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");

    if (file && fscanf(file, "%lld %lld", &ran_ns, &waited_ns) != 2)
        waited_ns = 0;
    if (file)
        fclose(file);
    return waited_ns;
}

/* ---- operations ---- */

static bool is_of_network(int kind)
{
    return kind == VD_THERE || kind == VD_BACK || kind == VD_RAIL_THERE || kind == VD_RAIL_BACK;
}

static bool is_of_rail(int kind)
{
    return kind == VD_RAIL_THERE || kind == VD_RAIL_BACK;
}

static bool is_by_netem(int kind)
{
    return vd_netem_is_open() && is_of_network(kind);
}

/* Begin the delays of the network that are netem's; @a ends: or end them, when what they hold has gone, since RDMA would
 * take what overtakes it for lost packets. */
static void set_netem(const struct delay *delay, bool ends)
{
    for (int k = 0; delay && k < VD_KINDS; k++)
        if (delay->ns[k] && is_by_netem(k) && ends)
            hs_sleep_us(delay->ns[k] / 1000);
    for (int k = 0; delay && k < VD_KINDS; k++)
        if (delay->ns[k] && is_by_netem(k))
            vd_netem_delay(k == VD_BACK || k == VD_RAIL_BACK,
                           is_of_rail(k) ? delay->rail : VD_ALL_RAILS, ends ? 0 : delay->ns[k]);
}

static void set_order(struct attention *self, const struct delay *delay, uint32_t sequence)
{
    struct vd_order *order = &vd_shared->orders[self->job->index];

    for (int k = 0; k < VD_KINDS; k++)
        order->delay_ns[k] = is_by_netem(k) ? 0 : delay->ns[k];
    order->ffn = delay->ffn;
    order->rail = delay->rail;
    order->sequence = sequence;
}

/* One operation, which is slow as @a delay says; NULL: it is not. */
static bool operate(struct attention *self, const struct delay *delay, bool last, int64_t *took_p)
{
    struct vd_order *order = &vd_shared->orders[self->job->index];
    stepaf_request_h request;

    int64_t starved = delay ? read_starved_ns() : 0;

    *self->push = (struct vd_push){self->sequence, last};
    set_netem(delay, false);
    hs_sleep_us(self->pause_us + (delay ? delay->ns[VD_START] / 1000 : 0));
    int64_t began = hs_now_ns();
    if (!HS_OK(stepaf_start(self->plan, &request)))
        return false;
    order->started_ns = began;
    order->started = self->sequence + 1;
    if (delay && delay->ns[VD_WAIT])
        hs_sleep_us((self->median_ns + delay->ns[VD_WAIT]) / 1000);
    if (delay && delay->ns[VD_STARVED])
        vd_shared->stop_ns[self->job->index] = self->median_ns + delay->ns[VD_STARVED];
    if (!HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
        return false;
    *took_p = self->took_ns = hs_now_ns() - began;
    set_netem(delay, true);
    self->starved_ns = delay ? read_starved_ns() - starved : 0;
    self->sequence++;
    return true;
}

/* The verdict on operation @a sequence; false: none has come. */
static bool find_verdict(struct attention *self, uint32_t sequence, stepaf_verdict_t *verdict_p)
{
    stepaf_verdict_t verdicts[READ];
    int64_t until = hs_now_ns() + 1500000000;
    size_t n;

    do {
        if (!HS_OK(stepaf_progress(self->job->ctx)) ||
            !HS_OK(stepaf_verdict_read(self->job->ctx, verdicts, sizeof(verdicts[0]), READ, &n)))
            return false;
        for (size_t i = n; i-- > 0;)
            if (verdicts[i].sequence == sequence) {
                *verdict_p = verdicts[i];
                return true;
            }
        hs_sleep_us(200);
    } while (hs_now_ns() < until);
    return false;
}

/* ---- one kind at a time, and two at once ---- */

static bool is_at_peer(int kind)
{
    return is_of_network(kind) || kind == VD_QUEUE || kind == VD_WORK;
}

static void describe(const struct attention *self, const char *what, const struct delay *delay,
                     const stepaf_verdict_t *verdict)
{
    char text[512] = "";
    size_t at = 0;

    for (int k = 0; k < VD_KINDS; k++)
        if (delay->ns[k])
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %s %lld us", names[k],
                                   (long long)delay->ns[k] / 1000);
    at += (size_t)snprintf(text + at, sizeof(text) - at, " at FFN %d, rail %d:", delay->ffn,
                           delay->rail);
    if (verdict)
        at += (size_t)snprintf(
            text + at, sizeof(text) - at, " %s, peer %d, rail %d, %lld us instead of %lld;",
            stepaf_verdict_phase_name((stepaf_verdict_phase_t)verdict->phase), verdict->peer,
            verdict->rail, (long long)verdict->took_ns / 1000, (long long)verdict->usual_ns / 1000);
    for (int i = 0; verdict && i < STEPAF_VERDICT_LAST; i++)
        if (verdict->over_ns[i])
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %s %lld",
                                   stepaf_verdict_phase_name((stepaf_verdict_phase_t)i),
                                   (long long)verdict->over_ns[i] / 1000);
    if (!verdict)
        snprintf(text + at, sizeof(text) - at, " no verdict, took %lld us, and %lld lately",
                 (long long)self->took_ns / 1000, (long long)self->median_ns / 1000);
    printf("  attention %d, %s:%s\n", self->job->index, what, text);
}

/* Whether the verdict is what the delay was. */
static bool is_right(const struct delay *delay, const stepaf_verdict_t *verdict)
{
    int most = 0;

    for (int k = 1; k < VD_KINDS; k++)
        if (delay->ns[k] > delay->ns[most])
            most = k;
    for (int k = 0; k < VD_KINDS; k++)
        if (delay->ns[k] && verdict->over_ns[phases[k]] < delay->ns[k] / 2)
            return false;
    return verdict->phase == phases[most] &&
           verdict->peer == (is_at_peer(most) ? delay->ffn : -1) &&
           verdict->rail == (is_of_rail(most) ? delay->rail : -1);
}

/* Whether who is accused has seen it himself: an FFN rank, or the kernel of this one. */
static bool admits(const struct attention *self, const stepaf_verdict_t *verdict)
{
    int64_t over = verdict->over_ns[verdict->phase];

    if (verdict->peer < 0)
        return verdict->phase == STEPAF_VERDICT_STARVED && self->starved_ns >= over / 2;
    const struct vd_truth *truth =
        &vd_shared->truths[verdict->peer][self->job->index][verdict->sequence % VD_TRUTHS];
    if (truth->sequence != verdict->sequence + 1)
        return false;
    return (verdict->phase == STEPAF_VERDICT_FFN_QUEUE && truth->away_ns >= over / 2) ||
           (verdict->phase == STEPAF_VERDICT_FFN_WORK &&
            truth->work_ns - self->work_ns >= over / 2);
}

/* Go on without a delay until it is this rank's turn to put one in: one at a time, or ranks would see that of
 * others. */
static bool take_turn(struct attention *self)
{
    int nobody = 0, n = 0;
    int64_t took;

    while (n++ < BETWEEN ||
           !atomic_compare_exchange_strong(&vd_shared->turn, &nobody, self->job->index + 1)) {
        nobody = 0;
        if (hs_hopeless(self->job) || !operate(self, NULL, false, &took))
            return false;
    }
    return true;
}

/* Put one in. The machine may be slow beside: then something else is true as well, and it is tried anew. */
static bool put_in(struct attention *self, const struct delay *delay)
{
    static const struct delay none;
    stepaf_verdict_t verdict;
    int64_t took, put = 0;

    for (int k = 0; k < VD_KINDS; k++)
        put += delay->ns[k];
    for (int i = 0; i < TRIES; i++) {
        if (!take_turn(self))
            return false;
        set_order(self, delay, self->sequence + 1);
        if (!operate(self, NULL, false, &took))
            return false;
        uint32_t sequence = self->sequence;
        if (!operate(self, delay, false, &took))
            return false;
        set_order(self, &none, 0);
        bool found = find_verdict(self, sequence, &verdict);
        vd_shared->turn = 0;
        int64_t over = found ? verdict.took_ns - verdict.usual_ns : 0;
        if (found && is_right(delay, &verdict)) {
            self->tally.right++;
            return true;
        }
        if (found && (over > put + put / 2 || over < put / 2 || admits(self, &verdict))) {
            self->tally.disturbed++;
            describe(self, "disturbed", delay, &verdict);
            continue;
        }
        self->tally.wrong++;
        describe(self, "wrong", delay, found ? &verdict : NULL);
        return true;
    }
    return true;
}

/* FFN ranks are slow for a while, all operations alike: what is usual over half a minute is long from then on. */
static bool be_busy(const struct hs_job *job, struct attention *self)
{
    int64_t until = hs_now_ns() + hs_option_int(job, "--busy-s", 0) * 1000000000, took;
    bool good = true;

    while (good && hs_now_ns() < until)
        good = operate(self, NULL, false, &took);
    vd_shared->busy--;
    return good;
}

/* The median of some operations without a delay. */
static bool measure(struct attention *self, int n)
{
    int64_t took[WARM_UP];

    for (int i = 0; i < n; i++) {
        int at = i;
        int64_t ns;
        if (!operate(self, NULL, false, &ns))
            return false;
        for (; at > 0 && took[at - 1] > ns; at--)
            took[at] = took[at - 1];
        took[at] = ns;
    }
    self->median_ns = took[n / 2];
    return true;
}

static bool is_enough(const struct attention *self, long long percent)
{
    return self->tally.right * 100 >= (self->tally.right + self->tally.wrong) * percent;
}

/* All attention ranks put in theirs by turns, so that what one does is not what another one sees. @a medians: how long
 * each kind is to be, in medians as they are lately: how busy the machine is changes. */
static bool put_in_all(struct attention *self, const char *name, const int *medians,
                       long long times)
{
    struct hs_job *job = self->job;
    long long percent = hs_option_int(job, "--percent", 50);

    self->tally = (struct tally){0, 0, 0};
    for (long long i = 0; i < times || (i < times + MORE && !is_enough(self, percent)); i++) {
        struct delay one = {.ffn = (int)((i + job->index) % job->ffn),
                            .rail = (int)((i + (job->ffn % 2 ? 0 : i / job->ffn)) % VD_RAILS)};
        if (!measure(self, LATELY))
            return false;
        for (int k = 0; k < VD_KINDS; k++)
            one.ns[k] = medians[k] * self->median_ns;
        if (!put_in(self, &one))
            return false;
    }
    printf("attention %d of %dA%dF: %s: %d of %d right, %d disturbed\n", job->index, job->attn,
           job->ffn, name, self->tally.right, self->tally.right + self->tally.wrong,
           self->tally.disturbed);
    fflush(stdout);
    return HS_TRUE(is_enough(self, percent));
}

/* Whether the list has the word. */
static bool lists(const char *list, const char *word)
{
    size_t bytes = strlen(word);

    for (const char *at = list; at; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, word, bytes) == 0 && (at[bytes] == ',' || !at[bytes]))
            return true;
    return false;
}

static bool allows(const struct hs_job *job, int kind)
{
    const char *transports = getenv("STEPAF_TRANSPORTS"),
               *kinds = hs_option_text(job, "--kinds", "");
    bool by_tcp = transports && strcmp(transports, "tcp") == 0;

    return (!*kinds || lists(kinds, names[kind])) &&
           (by_tcp || is_by_netem(kind) || !is_of_network(kind)) &&
           (!is_of_rail(kind) || hs_option_int(job, "--rails", 1) == VD_RAILS);
}

static void disturb(struct attention *self)
{
    static const int pairs[][2] = {{VD_START, VD_WORK}, {VD_THERE, VD_WORK}, {VD_WORK, VD_BACK},
                                   {VD_QUEUE, VD_BACK}, {VD_QUEUE, VD_WORK}, {VD_START, VD_THERE}};
    long long times = hs_option_int(self->job, "--times", 2);
    bool good = true;
    char name[64];

    for (int k = 0; good && k < VD_KINDS; k++)
        for (int size = 2; good && allows(self->job, k) && size <= 10; size += 8) {
            int medians[VD_KINDS] = {0};
            medians[k] = size;
            snprintf(name, sizeof(name), "%s, %dx", names[k], size);
            good = put_in_all(self, name, medians, times);
        }
    for (size_t i = 0;
         good && hs_option_int(self->job, "--pairs", 1) && i < sizeof(pairs) / sizeof(pairs[0]);
         i++)
        for (int which = 0;
             good && allows(self->job, pairs[i][0]) && allows(self->job, pairs[i][1]) && which < 2;
             which++) {
            int medians[VD_KINDS] = {0};
            medians[pairs[i][which]] = 8;
            medians[pairs[i][!which]] = 3;
            snprintf(name, sizeof(name), "%s 8x and %s 3x", names[pairs[i][which]],
                     names[pairs[i][!which]]);
            good = put_in_all(self, name, medians, times);
        }
}

/* ---- nothing is slow ---- */

static void stay_quiet(struct attention *self, int64_t for_s)
{
    int64_t until = hs_now_ns() + for_s * 1000000000, took;
    uint64_t by_phase[STEPAF_VERDICT_PHASES] = {0}, late = 0, falsely = 0;
    uint32_t next = self->sequence, first = next;
    stepaf_verdict_t verdicts[READ];
    size_t n;

    while (hs_now_ns() < until) {
        if (!operate(self, NULL, false, &took) ||
            !HS_OK(stepaf_verdict_read(self->job->ctx, verdicts, sizeof(verdicts[0]), READ, &n)))
            return;
        for (size_t i = 0; i < n; i++) {
            const stepaf_verdict_t *one = &verdicts[i];
            if (one->sequence < next)
                continue;
            next = one->sequence + 1;
            late++;
            by_phase[one->phase]++;
            if (one->peer >= 0 && !admits(self, one)) {
                static const struct delay none;
                falsely++;
                describe(self, "falsely accused", &none, one);
            }
        }
    }
    printf("attention %d of %dA%dF: undisturbed: %u operations, %llu late, %llu peers falsely "
           "accused;",
           self->job->index, self->job->attn, self->job->ffn, self->sequence - first,
           (unsigned long long)late, (unsigned long long)falsely);
    for (int i = 0; i < STEPAF_VERDICT_LAST; i++)
        printf(" %s %llu", stepaf_verdict_phase_name((stepaf_verdict_phase_t)i),
               (unsigned long long)by_phase[i]);
    printf("\n");
    fflush(stdout);
    HS_INT(falsely, ==, 0);
}

/* ---- */

/* Of each tensor. */
static size_t tensor_bytes(const struct hs_job *job)
{
    return (size_t)hs_option_int(job, "--bytes", 64);
}

static bool make_plan(struct attention *self, uint8_t *memory)
{
    size_t bytes = tensor_bytes(self->job);
    stepaf_tensor_t push = {VD_PUSH_KEY, memory, bytes}, pull[HS_MAX_RANKS];

    self->push = (struct vd_push *)memory;
    for (int p = 0; p < self->job->peers; p++)
        pull[p] = (stepaf_tensor_t){VD_PULL_KEY, memory + bytes * (size_t)(p + 1), bytes};
    return HS_OK(
        stepaf_plan_create(self->job->ctx, &push, 1, pull, self->job->peers, 0, &self->plan));
}

/* The window and its cells say the same as the verdicts. */
static void check_window(const struct attention *self)
{
    stepaf_verdict_window_t window = {.size = sizeof(window)};
    stepaf_verdict_peer_t peer = {.size = sizeof(peer)};
    uint64_t of_peers = 0, by_phase = 0;

    if (!HS_OK(stepaf_verdict_query(self->job->ctx, &window)))
        return;
    for (int p = 0; p < self->job->peers; p++) {
        if (!HS_OK(stepaf_verdict_peer(self->job->ctx, stepaf_peer_rank(self->job->ctx, p), &peer)))
            return;
        of_peers += peer.late;
        printf("attention %d, FFN %d: %llu late:", self->job->index,
               stepaf_peer_rank(self->job->ctx, p), (unsigned long long)peer.late);
        for (int i = 0; i < STEPAF_VERDICT_LAST; i++)
            if (peer.by_phase[i])
                printf(" %s %llu", stepaf_verdict_phase_name((stepaf_verdict_phase_t)i),
                       (unsigned long long)peer.by_phase[i]);
        printf("\n");
    }
    for (int i = 0; i < STEPAF_VERDICT_LAST; i++)
        by_phase += window.by_phase[i];
    HS_INT(by_phase, ==, window.late);
    HS_INT(of_peers, <=, window.late);
    HS_INT(window.operations, >, 0);
}

static void ask_for(struct hs_job *job, uint8_t *memory, int64_t work_ns)
{
    struct attention self = {
        .job = job, .work_ns = work_ns, .pause_us = hs_option_int(job, "--pause-us", PAUSE_US)};
    bool by_core = strcmp(hs_option_text(job, "--by", "stop"), "core") == 0;
    const char *netem = hs_option_text(job, "--netem-there", "");
    int64_t took, quiet_s = hs_option_int(job, "--quiet-s", 0);
    pid_t child;

    if (!make_plan(&self, memory) || !HS_OK(stepaf_commit(job->ctx)))
        return;
    child = quiet_s ? -1 : vd_stop_fork(job->index, by_core);
    if (*netem)
        HS_TRUE(vd_netem_open(netem, hs_option_text(job, "--netem-back", "")));
    vd_shared->busy++;
    hs_step("put in delays");
    if (be_busy(job, &self) && measure(&self, WARM_UP)) {
        printf("attention %d: median %lld us\n", job->index, (long long)self.median_ns / 1000);
        if (quiet_s)
            stay_quiet(&self, quiet_s);
        else
            disturb(&self);
        check_window(&self);
    }
    (void)operate(&self, NULL, true, &took);
    vd_netem_close();
    if (child > 0) {
        kill(child, SIGTERM);
        (void)waitpid(child, NULL, 0);
    }
}

static void body(struct hs_job *job)
{
    int64_t work_ns = hs_option_int(job, "--work-us", 3000) * 1000;
    stepaf_verdict_window_t window = {.size = sizeof(window)};
    size_t bytes = tensor_bytes(job);
    void *memory;

    setenv("STEPAF_VERDICT", "on", 1);
    if (!hs_open(job) ||
        !HS_OK(stepaf_key_declare(job->ctx, VD_PUSH_KEY, STEPAF_PUSH, bytes, NULL)) ||
        !HS_OK(stepaf_key_declare(job->ctx, VD_PULL_KEY, STEPAF_PULL, bytes, NULL)) ||
        !HS_OK(stepaf_alloc(job->ctx, bytes * (HS_MAX_RANKS + 1), STEPAF_MEM_HOST, &memory)))
        return;
    if (job->role == STEPAF_ATTENTION) {
        ask_for(job, memory, work_ns);
    } else if (HS_OK(stepaf_commit(job->ctx))) {
        hs_step("serve");
        vd_serve(job, memory, bytes, work_ns);
        if (HS_OK(stepaf_verdict_query(job->ctx, &window)))
            printf("FFN %d was told of %llu late operations\n", job->index,
                   (unsigned long long)window.late);
    }
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "verdict",
                                        .options = "--times --work-us --kinds --busy-s --percent "
                                                   "--pairs --quiet-s --pause-us --look-us --by "
                                                   "--bytes --rails --netem-there --netem-back",
                                        .limit_s = 7200,
                                        .n_boots = 1,
                                        .body = body};

    vd_shared =
        mmap(NULL, sizeof(*vd_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (vd_shared == MAP_FAILED)
        return 1;
    return hs_main(argc, argv, &test);
}
