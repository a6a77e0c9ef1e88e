/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric with several rails: which domains they are, and what goes by each of them. */
#include "base/time.h"
#include "ofi_fabric.h"
#include "unit.h"

enum { OPS = 3000, SHARE = 256 };

static const char *const domains[] = {"d0", "d1", "d2", "d3", "d4", NULL};
static struct side a, b;
static char reason[STEPAF_REASON_MAX];

/* The domains that are chosen, in words; "": none, and the reason says why. */
static const char *choose(const char *names, const char *gpu)
{
    static char text[128];
    struct stepaf_env env = {.ofi_provider = (char *)"", .ofi_domains = (char *)(uintptr_t)names};
    struct fi_info *infos[STEPAF_OFI_RAILS];
    char refused[STEPAF_REASON_MAX];
    size_t used = 0;

    reason[0] = text[0] = '\0';
    unsigned n = stepaf_ofi_choose(&ofi_fabric_library, &env, gpu, false, infos, refused, reason);
    for (unsigned i = 0; i < n; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? " " : "",
                                 infos[i]->domain_attr->name);
        ofi_fabric_library.freeinfo(infos[i]);
    }
    return text;
}

static void domains_are_those_of_the_settings(void)
{
    ofi_fabric_reset(41);
    ofi_fabric.domains = domains;
    UNIT_STRING(choose("", NULL), "d0");
    UNIT_STRING(choose("d3", NULL), "d3");
    UNIT_STRING(choose("d2,d0,d1", NULL), "d2 d0 d1");
    UNIT_STRING(choose("d2,d", NULL), "");
    UNIT_STRING(reason, "STEPAF_OFI_DOMAINS: provider efa has no domain \"d\"; its domains of one "
                        "kind: d0 d1 d2 d3 d4");
    UNIT_STRING(choose("d7", NULL), "");
    UNIT_CONTAINS(reason, "has no domain \"d7\"; its domains of one kind: d0 d1");
    UNIT_STRING(choose("d0,,d1", NULL), "");
    UNIT_CONTAINS(reason, "has no domain \"\"");
    UNIT_STRING(choose("d0,", NULL), "");
    UNIT_CONTAINS(reason, "has no domain \"\"");
    UNIT_STRING(choose("d1,d0,d1", NULL), "");
    UNIT_STRING(reason, "STEPAF_OFI_DOMAINS: d1 is listed twice");
    UNIT_STRING(choose("d0,d1,d2,d3,d4", NULL), "");
    UNIT_STRING(reason, "STEPAF_OFI_DOMAINS: more than 4 domains");
}

/* Two cards for each GPU of such a machine. */
static void else_of_the_nearest_cards(void)
{
    static const int buses[] = {0xa2, 0x52, 0x5a, 0x62, 0x6a, 0xaa, 0xb2, 0xba};
    static char names[16][2][16];
    static const char *nics[17], *of_nics[17];

    for (int i = 0; i < 16; i++) {
        snprintf(names[i][0], sizeof(names[i][0]), "rdmap%ds0", buses[i / 2] + i % 2);
        snprintf(names[i][1], sizeof(names[i][1]), "rdmap%ds0-rdm", buses[i / 2] + i % 2);
        nics[i] = names[i][0];
        of_nics[i] = names[i][1];
    }
    ofi_fabric_reset(42);
    ofi_fabric.domains = of_nics;
    ofi_fabric.nics = nics;
    ofi_fabric.topology = "p5en.xml";
    UNIT_STRING(choose("", "0000:54:00.0"), "rdmap82s0-rdm rdmap83s0-rdm");
    UNIT_STRING(choose("", "0000:a4:00.0"), "rdmap162s0-rdm rdmap163s0-rdm");
    UNIT_STRING(choose("rdmap163s0-rdm", "0000:54:00.0"), "rdmap163s0-rdm");
}

static void set_domains(const char *names)
{
    static const char *settings[] = {"STEPAF_TRANSPORTS", "ofi", "STEPAF_OFI_DOMAINS", NULL, NULL};

    settings[3] = names;
    side_settings = settings;
}

/* Each byte is looked at by what this calls. All rails have had their part. */
static void exchange_by(const char *names, unsigned n_rails)
{
    struct stepaf_rail_count rails[STEPAF_LINK_RAILS];
    uint64_t bytes = 0;

    for (int s = 0; s < FABRIC_SIDES; s++)
        ofi_of(&fabric_sides[s])->share_min = SHARE;
    fabric_order_exchange(fabric_order_ops(OPS));
    CU_ASSERT_EQUAL(side_ops->count_rails(fabric_sides[0].links[1], rails), n_rails);
    for (unsigned r = 0; r < n_rails; r++) {
        CU_ASSERT(rails[r].is_up && strstr(names, rails[r].name));
        CU_ASSERT(rails[r].bytes_sent > fabric_sides[0].links[1]->bytes_sent / (2 * n_rails));
        bytes += rails[r].bytes_sent;
    }
    CU_ASSERT_EQUAL(bytes, fabric_sides[0].links[1]->bytes_sent);
    fabric_order_end(NULL);
    CU_ASSERT(ofi_fabric.n_overtaken > 0);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ofi_fabric.n_foreign, 0);
    CU_ASSERT(ofi_fabric.more_run < STEPAF_OFI_MORE_MAX);
    side_settings = NULL;
}

static void begin_order(uint32_t seed, const char *names, size_t data_bytes)
{
    ofi_fabric_reset(seed);
    ofi_fabric.domains = domains;
    ofi_fabric.cq_data_size = data_bytes;
    set_domains(names);
    fabric_order_begin();
}

static void all_rails_have_their_part(void)
{
    begin_order(43, "d1,d3", 4);
    exchange_by("d1,d3", 2);
    begin_order(44, "d0,d1,d2,d3", 8);
    exchange_by("d0,d1,d2,d3", 4);
}

static void also_where_there_is_no_room_for_a_while(void)
{
    begin_order(45, "d0,d1,d2", 8);
    ofi_fabric.refuse_one_in = 3;
    exchange_by("d0,d1,d2", 3);
    begin_order(46, "d0,d1", 8);
    ofi_fabric.depth = 2 * STEPAF_OFI_MORE_MAX;
    exchange_by("d0,d1", 2);
}

/* Rails whose memory has keys and addresses of other kinds. */
static void memory_is_registered_at_each(void)
{
    ofi_fabric_reset(47);
    ofi_fabric.mr_mode = FI_MR_ENDPOINT;
    ofi_fabric.domains = domains;
    set_domains("d0,d1,d2");
    fabric_order_begin();
    exchange_by("d0,d1,d2", 3);
}

static void open_pair(const char *one, const char *other)
{
    ofi_fabric_reset(48);
    ofi_fabric.domains = domains;
    set_domains(one);
    fabric_open(&a, 1);
    set_domains(other);
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
}

static void close_pair(void)
{
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
    side_settings = NULL;
}

/* Who has more rails leaves the others alone. */
static void ends_may_have_different_numbers(void)
{
    open_pair("d0,d1,d2", "d1,d2");
    fabric_prove((struct side *[]){&a, &b}, 2);
    CU_ASSERT(ofi_link(&a, 0)->n_paths == 2 && ofi_link(&b, 0)->n_paths == 2);
    side_ops->describe(a.transport, reason);
    UNIT_STRING(reason, "efa, domains d0, d1, d2");
    fabric_check_link(&a, 0, &b);
    close_pair();
}

/* A link is proven if all of its rails are. */
static void a_rail_that_carries_nothing_is_found(void)
{
    stepaf_status_t status = STEPAF_INPROGRESS;
    char ignored[STEPAF_REASON_MAX];
    uint32_t peer;

    open_pair("d0,d1", "d0,d1");
    a.env.ofi_peer_timeout_us = 20000;
    ofi_fabric.mute = 1u << ofi_fabric_number_of(&b, 1);
    for (int i = 0; i < 100000000 && status == STEPAF_INPROGRESS; i++) {
        status = side_ops->prove_links(a.transport, true, &peer, reason);
        (void)side_ops->prove_links(b.transport, true, &peer, ignored);
    }
    CU_ASSERT_EQUAL(status, STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(reason, "efa: no data gets through: it has not written");
    close_pair();
}

/* An error by any of them is the link's. */
static void a_rail_that_fails_is_noticed(void)
{
    open_pair("d0,d1", "d0,d1");
    fabric_prove((struct side *[]){&a, &b}, 2);
    ofi_fabric.dead = 1u << ofi_fabric_number_of(&b, 1);
    (void)side_say(&a, 0, 1);
    (void)side_say(&a, 0, 2);
    for (int i = 0; i < 100000 && !a.n_lost; i++)
        (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_STRING(a.lost_reason, "efa: the connection was reset");
    close_pair();
}

/* Nothing is said of it, by anybody, and the other rail goes on: both sides miss what should have
 * come by it. */
static void a_rail_that_falls_silent_is_noticed(void)
{
    open_pair("d0,d1", "d0,d1");
    fabric_prove((struct side *[]){&a, &b}, 2);
    a.env.ofi_peer_timeout_us = b.env.ofi_peer_timeout_us = 40000;
    ofi_fabric.mute = 1u << ofi_fabric_number_of(&a, 1) | 1u << ofi_fabric_number_of(&b, 1);
    (void)side_say(&a, 0, 1);
    (void)side_say(&a, 0, 2);
    int64_t end_ns = stepaf_monotonic_ns() + 10000000000;
    while (!(a.n_lost && b.n_lost) && stepaf_monotonic_ns() < end_ns) {
        (void)side_progress(&a);
        (void)side_progress(&b);
        side_ops->check_peers(a.transport);
        side_ops->check_peers(b.transport);
    }
    CU_ASSERT(a.n_lost == 1 && b.n_lost == 1);
    UNIT_STRING(a.lost_reason, "it accepts no data");
    close_pair();
}

/* The rest of a post whose peer is lost never goes: what of it waits for a doorbell is rung for by
 * what goes to others. */
static void a_doorbell_that_is_owed_is_rung(void)
{
    static struct side c;
    static struct side *const all[] = {&a, &b, &c};
    struct stepaf_xfer xfers[3];
    uint32_t peer;

    ofi_fabric_reset(49);
    ofi_fabric.domains = domains;
    set_domains("d0,d1");
    fabric_open(&a, 2);
    fabric_open(&b, 1);
    fabric_open(&c, 1);
    fabric_join(&a, 0, &b, 0);
    fabric_join(&a, 1, &c, 0);
    fabric_prove(all, 3);
    fabric_check_link(&a, 0, &b); /* the next goes by the second rail */
    struct stepaf_mem *from = fabric_memory(&a, 4096), *to = fabric_memory(&b, 4096);
    struct stepaf_rmem *there = side_import(&a, 0, &b, to);
    for (int i = 0; i < 3; i++)
        xfers[i] = (struct stepaf_xfer){
            .src = from->base, .src_mem = from, .dst = there, .dst_offset = 0, .bytes = 64};
    struct stepaf_post post = {.link = a.links[0], .xfer = xfers, .n_xfer = 3}, *posts[] = {&post};
    ofi_fabric.depth = 2;
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 1);
    ofi_fabric.depth = 0;
    a.links[0]->dead = true;
    a.env.ofi_peer_timeout_us = c.env.ofi_peer_timeout_us = 40000;
    int64_t end_ns = stepaf_monotonic_ns() + 10000000000;
    while (!side_ops->is_quiet(a.transport, false, &peer) && stepaf_monotonic_ns() < end_ns) {
        (void)side_progress(&b);
        (void)side_progress(&c);
        side_ops->check_peers(a.transport);
        side_ops->check_peers(c.transport);
    }
    CU_ASSERT(side_ops->is_quiet(a.transport, false, &peer));
    CU_ASSERT_EQUAL(a.n_lost, 0);
    side_ops->release_mem(a.links[0], there);
    side_close(&c);
    close_pair();
}

static unsigned n_held_up, last_rail;
static uint64_t last_ticks;
static bool last_was_imm;

static void note_held_up(struct stepaf_upcalls *up, struct stepaf_link *link,
                         const struct stepaf_msg *msg, uint32_t imm, unsigned rail, uint64_t ticks)
{
    CU_ASSERT(up == &b.up && link == b.links[0]);
    CU_ASSERT(msg ? msg->seq == n_held_up : (imm >> STEPAF_IMM_SEQ_SHIFT) == n_held_up);
    n_held_up++;
    last_rail = rail;
    last_ticks = ticks;
    last_was_imm = !msg;
}

static void go_on(void)
{
    for (int i = 0; i < 1000; i++) {
        (void)side_progress(&a);
        (void)side_progress(&b);
    }
}

/* Send a tensor by both rails, one of which is late with its share; and two messages behind it, one
 * by each, if @a more. */
static void send_late(const struct stepaf_xfer *xfer, uint32_t seq, bool is_short, unsigned late,
                      bool more)
{
    struct stepaf_post behind[2], *next[] = {&behind[0], &behind[1]};
    struct stepaf_xfer xfers[1] = {*xfer};
    struct stepaf_post post = {.link = a.links[0],
                               .xfer = xfers,
                               .n_xfer = 1,
                               .is_short = is_short,
                               .imm = stepaf_imm_make(STEPAF_IMM_START, 0, seq, 0),
                               .msg = {.type = STEPAF_MSG_START, .seq = seq}},
                       *posts[] = {&post};
    unsigned before = b.n_messages;

    for (int i = 0; i < 2; i++)
        behind[i] = (struct stepaf_post){.link = a.links[0], .msg = {.type = STEPAF_MSG_START}};
    ofi_fabric.mute = 1u << ofi_fabric_number_of(&a, late);
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    go_on();
    CU_ASSERT_EQUAL(side_ops->post(next, more ? 2 : 0), 0);
    go_on();
    CU_ASSERT_EQUAL(b.n_messages, before);
    ofi_fabric.mute = 0;
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, before + (more ? 3 : 1)));
    while (post.state == STEPAF_POST_POSTED)
        (void)side_progress(&a);
}

/* Of messages in 32 bits, and of others, whatever has come behind them meanwhile; of what goes by one
 * rail there is nothing to tell. */
static void it_is_told_which_rail_was_late(void)
{
    open_pair("d0,d1", "d0,d1");
    fabric_prove((struct side *[]){&a, &b}, 2);
    ofi_of(&a)->share_min = SHARE;
    struct stepaf_mem *from = fabric_memory(&a, 4096), *to = fabric_memory(&b, 4096);
    struct stepaf_rmem *there = side_import(&a, 0, &b, to);
    const struct stepaf_xfer xfer = {
        .src = from->base, .src_mem = from, .dst = there, .bytes = 2 * SHARE};

    b.up.held_up = note_held_up;
    n_held_up = 0;
    for (uint32_t i = 0; i < 16; i++) {
        bool is_short = i / 2 % 2;
        uint64_t began = stepaf_ticks();
        send_late(&xfer, i, is_short, i % 2, i / 4 % 2);
        CU_ASSERT_EQUAL(n_held_up, i + 1);
        CU_ASSERT_EQUAL(last_rail, i % 2);
        CU_ASSERT(last_ticks > 0 && last_ticks < stepaf_ticks() - began);
        CU_ASSERT(is_short || !last_was_imm);
        fabric_check_link(&a, 0, &b);
        CU_ASSERT_EQUAL(n_held_up, i + 1);
    }
    side_ops->release_mem(a.links[0], there);
    close_pair();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"domains are those of the settings", domains_are_those_of_the_settings},
        {"else of the nearest cards", else_of_the_nearest_cards},
        {"all rails have their part", all_rails_have_their_part},
        {"also where there is no room for a while", also_where_there_is_no_room_for_a_while},
        {"memory is registered at each", memory_is_registered_at_each},
        {"ends may have different numbers", ends_may_have_different_numbers},
        {"a rail that carries nothing is found", a_rail_that_carries_nothing_is_found},
        {"a rail that fails is noticed", a_rail_that_fails_is_noticed},
        {"a rail that falls silent is noticed", a_rail_that_falls_silent_is_noticed},
        {"a doorbell that is owed is rung", a_doorbell_that_is_owed_is_rung},
        {"it is told which rail was late", it_is_told_which_rail_was_late},
        CU_TEST_INFO_NULL,
    };
    unit_with_xml();
    return unit_run(tests);
}
