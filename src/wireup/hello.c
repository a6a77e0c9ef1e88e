/* SPDX-License-Identifier: Apache-2.0 */
/* Hellos: writing this rank's, reading those of others, and checking that they agree. */
#include "wireup/hello.h"

#include <stdlib.h>
#include <string.h>

#include <stepaf/version.h>

#include "base/error.h"

enum {
    INTRODUCE_MAGIC = 0x53544146,
    FIRST_WITH_NAME = 2, /* first wire version with the library's version */
    PROXIES = 1,         /* bits */
    HAS_SECRET = 2,
    VALUE_MAX = 128,
    CORES_MAX = 1024
};

void stepaf_hello_pack(const struct stepaf_hello *hello, const struct stepaf_env *env,
                       struct stepaf_pack *pack)
{
    char value[VALUE_MAX];

    stepaf_pack_u32(pack, INTRODUCE_MAGIC);
    stepaf_pack_u32(pack, STEPAF_WIRE_VERSION);
    stepaf_pack_text(pack, STEPAF_VERSION_STRING);
    stepaf_pack_u32(pack, (uint32_t)hello->status);
    stepaf_pack_text(pack, hello->text);
    stepaf_pack_u32(pack, hello->said);
    stepaf_pack_u32(pack, (uint32_t)hello->app_number);
    stepaf_pack_u64(pack, hello->map_digest);
    stepaf_pack_u32(pack, hello->pid);
    stepaf_pack_u64(pack, hello->node_id);
    stepaf_pack_u32(pack, (hello->proxies ? PROXIES : 0u) | (hello->has_secret ? HAS_SECRET : 0u));
    stepaf_member_contact_pack(&hello->contact, pack);
    stepaf_pack_text(pack, hello->mute);
    stepaf_pack_text(pack, hello->host);
    stepaf_pack_text(pack, hello->binding);
    if (hello->status)
        return;
    stepaf_pack_u64(pack, stepaf_env_digest(env));
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        stepaf_env_format(env, i, value, sizeof(value));
        stepaf_pack_text(pack, value);
    }
}

/* Read the wire version and the library version of the sender. */
static bool read_versions(struct stepaf_unpack *unpack, struct stepaf_hello *hello)
{
    if (stepaf_unpack_u32(unpack) != INTRODUCE_MAGIC)
        return false;
    hello->wire = stepaf_unpack_u32(unpack);
    strcpy(hello->version, "of an unknown version");
    if (hello->wire >= FIRST_WITH_NAME)
        stepaf_unpack_text(unpack, hello->version, sizeof(hello->version));
    for (char *at = hello->version; *at; at++)
        if (*at < ' ' || *at > '~') /* it is printed in error texts */
            *at = '?';
    return !unpack->failed;
}

/* Read where members can call the rank. */
static bool read_card(struct stepaf_unpack *unpack, struct stepaf_hello *hello)
{
    if (!stepaf_member_contact_read(unpack, &hello->contact))
        return false;
    stepaf_unpack_text(unpack, hello->mute, sizeof(hello->mute));
    for (char *at = hello->mute; *at; at++)
        if (*at < ' ' || *at > '~') /* it is printed in error texts */
            *at = '?';
    return !unpack->failed;
}

bool stepaf_hello_read(const void *blob, size_t bytes, struct stepaf_hello *intro_p)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(blob, bytes);
    struct stepaf_hello hello = {0};

    if (!read_versions(&unpack, &hello))
        return false;
    if (hello.wire != STEPAF_WIRE_VERSION) {
        *intro_p = hello;
        return true;
    }
    hello.status = stepaf_status_from(stepaf_unpack_u32(&unpack));
    stepaf_unpack_text(&unpack, hello.text, sizeof(hello.text));
    hello.said = stepaf_unpack_u32(&unpack);
    hello.app_number = (int32_t)stepaf_unpack_u32(&unpack);
    hello.map_digest = stepaf_unpack_u64(&unpack);
    hello.pid = stepaf_unpack_u32(&unpack);
    hello.node_id = stepaf_unpack_u64(&unpack);
    uint32_t bits = stepaf_unpack_u32(&unpack);
    hello.proxies = bits & PROXIES;
    hello.has_secret = bits & HAS_SECRET;
    if (!read_card(&unpack, &hello))
        return false;
    stepaf_unpack_text(&unpack, hello.host, sizeof(hello.host));
    stepaf_unpack_text(&unpack, hello.binding, sizeof(hello.binding));
    if (!hello.status)
        hello.digest = stepaf_unpack_u64(&unpack);
    hello.settings = unpack;
    if (unpack.failed || (!hello.status && hello.said > STEPAF_ROLE_AUTO))
        return false;
    *intro_p = hello;
    return true;
}

struct stepaf_hello stepaf_hello_vacant(const struct stepaf_hello *others, int n)
{
    struct stepaf_hello hello = {.wire = others[0].wire,
                                 .said = STEPAF_ROLE_AUTO,
                                 .app_number = -1,
                                 .map_digest = others[0].map_digest,
                                 .node_id = others[0].node_id,
                                 .is_vacant = true,
                                 .has_secret = others[0].has_secret,
                                 .digest = others[0].digest,
                                 .settings = others[0].settings};

    for (int r = 1; r < n; r++)
        if (others[r].node_id != others[0].node_id)
            hello.node_id = 0;
    memcpy(hello.version, others[0].version, sizeof(hello.version));
    return hello;
}

/* Return the rank to name where rank @a rank differs from rank 0. */
static struct stepaf_who who_differs(int rank, int own_rank)
{
    return (struct stepaf_who){-1, -1, rank == own_rank ? 0 : rank};
}

/* Fail for the first rank that has another library version than rank 0. */
static stepaf_status_t judge_versions(const struct stepaf_hello *hellos, int n, int own_rank)
{
    for (int r = 1; r < n; r++)
        if (hellos[r].wire != hellos[0].wire || strcmp(hellos[r].version, hellos[0].version) != 0)
            return stepaf_error_set_peer(
                STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT, who_differs(r, own_rank),
                "libstepaf differs: %s (wire version %u) at rank 0, %s (wire "
                "version %u) at rank %d",
                hellos[0].version, hellos[0].wire, hellos[r].version, hellos[r].wire, r);
    return STEPAF_OK;
}

/* Fail for the first rank that has a secret where rank 0 has none, or the other way round. Which
 * secret it is, ranks do not tell each other. */
static stepaf_status_t judge_secrets(const struct stepaf_hello *hellos, int n, int own_rank)
{
    for (int r = 1; r < n; r++)
        if (hellos[r].has_secret != hellos[0].has_secret)
            return stepaf_error_set_peer(
                STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT, who_differs(r, own_rank),
                "STEPAF_SECRET or STEPAF_SECRET_FILE is set at rank %d, and neither at rank %d: "
                "does the launcher pass it to all hosts?",
                hellos[0].has_secret ? 0 : r, hellos[0].has_secret ? r : 0);
    return STEPAF_OK;
}

/* Return the name of a setting in error texts. */
static const char *name_of(int index, const struct stepaf_env_info *info)
{
    return index == STEPAF_ENV_SPLIT ? "STEPAF_SPLIT or params.split" : info->name;
}

/* Fail for the first setting in which rank @a rank differs from rank 0. */
static stepaf_status_t name_difference(const struct stepaf_hello *first, int rank,
                                       const struct stepaf_hello *other, int own_rank)
{
    struct stepaf_unpack one = first->settings, two = other->settings;
    char a[VALUE_MAX], b[VALUE_MAX];

    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        stepaf_env_describe(i, &info);
        stepaf_unpack_text(&one, a, sizeof(a));
        stepaf_unpack_text(&two, b, sizeof(b));
        if (info.must_agree && strcmp(a, b))
            return stepaf_error_set_peer(STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT,
                                         who_differs(rank, own_rank),
                                         "%s differs: \"%.60s\" at rank 0, \"%.60s\" at rank %d",
                                         name_of(i, &info), a, b, rank);
    }
    return stepaf_error_set_peer(STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT,
                                 who_differs(rank, own_rank),
                                 "settings differ between rank 0 and rank %d", rank);
}

/* Return the value of setting @a index at the rank of @a hello. */
static const char *value_of(const struct stepaf_hello *hello, int index, char *value)
{
    struct stepaf_unpack settings = hello->settings;

    for (int i = 0; i <= index; i++)
        stepaf_unpack_text(&settings, value, VALUE_MAX);
    return value;
}

stepaf_status_t stepaf_hellos_check(const struct stepaf_hello *hellos, int n, int own_rank)
{
    stepaf_status_t versions = judge_versions(hellos, n, own_rank);
    char split[VALUE_MAX];

    if (versions)
        return versions;
    for (int r = 0; r < n; r++) {
        if (!hellos[r].status)
            continue;
        if (r == own_rank)
            return stepaf_error_set(hellos[r].status, STEPAF_PHASE_INIT, "%s", hellos[r].text);
        return stepaf_error_set_peer(hellos[r].status, STEPAF_PHASE_INIT, who_differs(r, own_rank),
                                     "rank %d: %.300s", r, hellos[r].text);
    }
    for (int r = 1; r < n; r++)
        if (hellos[r].digest != hellos[0].digest)
            return name_difference(&hellos[0], r, &hellos[r], own_rank);
    for (int r = 1; r < n; r++)
        if (hellos[r].map_digest != hellos[0].map_digest)
            return stepaf_error_set_peer(
                STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT, who_differs(r, own_rank),
                "the map file of split \"%.120s\" differs between rank %d and rank 0",
                value_of(&hellos[0], STEPAF_ENV_SPLIT, split), r);
    return judge_secrets(hellos, n, own_rank);
}

/* Set the bits of the cores in a list such as "0-3,8". An invalid list stands for all cores. */
static void parse_cores(const char *list, uint8_t *cores_p)
{
    memset(cores_p, 0, CORES_MAX / 8);
    while (*list) {
        char *end;
        unsigned long from = strtoul(list, &end, 10), to = from;
        if (end != list && *end == '-')
            to = strtoul(end + 1, &end, 10);
        if (end == list || from > to || to >= CORES_MAX || (*end && *end != ',')) {
            memset(cores_p, 0xff, CORES_MAX / 8);
            return;
        }
        for (unsigned long core = from; core <= to; core++)
            cores_p[core / 8] |= (uint8_t)(1u << core % 8);
        list = *end ? end + 1 : end;
    }
}

int stepaf_hellos_sharing(const struct stepaf_hello *hellos, int n, int own_rank)
{
    uint8_t mine[CORES_MAX / 8], its[CORES_MAX / 8];
    int sharing = 0;

    parse_cores(hellos[own_rank].binding, mine);
    for (int r = 0; r < n; r++) {
        bool overlap = false;
        if (hellos[r].node_id != hellos[own_rank].node_id)
            continue;
        parse_cores(hellos[r].binding, its);
        for (int i = 0; i < CORES_MAX / 8; i++)
            overlap = overlap || (mine[i] & its[i]);
        sharing += overlap;
    }
    return sharing;
}
