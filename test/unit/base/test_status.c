/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the public enumerations, and the last error. */
#include <pthread.h>

#include <stepaf/stepaf.h>

#include "base/error.h"
#include "unit.h"

static void names_of_statuses(void)
{
#define CHECK(name_, number_, text_)                \
    CU_ASSERT_EQUAL(name_, number_);                \
    UNIT_STRING(stepaf_status_name(name_), #name_); \
    UNIT_STRING(stepaf_status_text(name_), text_);
    STEPAF_STATUS_MAP(CHECK)
#undef CHECK
    UNIT_STRING(stepaf_status_text((stepaf_status_t)-1000), "unknown status");
    UNIT_STRING(stepaf_status_text((stepaf_status_t)2), "unknown status");
    UNIT_STRING(stepaf_status_name((stepaf_status_t)-1000), "?");
}

/* Programs hold on to the numbers: these lines may only ever grow. */
static void numbers_never_change(void)
{
    CU_ASSERT_EQUAL(STEPAF_INPROGRESS, 1);
    CU_ASSERT_EQUAL(STEPAF_OK, 0);
    CU_ASSERT_EQUAL(STEPAF_ERR_INVALID, -1);
    CU_ASSERT_EQUAL(STEPAF_ERR_HANDLE, -2);
    CU_ASSERT_EQUAL(STEPAF_ERR_ROLE, -3);
    CU_ASSERT_EQUAL(STEPAF_ERR_STATE, -4);
    CU_ASSERT_EQUAL(STEPAF_ERR_KEY, -5);
    CU_ASSERT_EQUAL(STEPAF_ERR_SIZE, -6);
    CU_ASSERT_EQUAL(STEPAF_ERR_UNREGISTERED, -7);
    CU_ASSERT_EQUAL(STEPAF_ERR_PULLS, -8);
    CU_ASSERT_EQUAL(STEPAF_ERR_MISMATCH, -9);
    CU_ASSERT_EQUAL(STEPAF_ERR_SPLIT, -10);
    CU_ASSERT_EQUAL(STEPAF_ERR_SETTING, -11);
    CU_ASSERT_EQUAL(STEPAF_ERR_WOULD_BLOCK, -12);
    CU_ASSERT_EQUAL(STEPAF_ERR_TIMEOUT, -13);
    CU_ASSERT_EQUAL(STEPAF_ERR_PEER_LOST, -14);
    CU_ASSERT_EQUAL(STEPAF_ERR_CANCELED, -15);
    CU_ASSERT_EQUAL(STEPAF_ERR_NO_MEMORY, -16);
    CU_ASSERT_EQUAL(STEPAF_ERR_LIMIT, -17);
    CU_ASSERT_EQUAL(STEPAF_ERR_BOOT, -18);
    CU_ASSERT_EQUAL(STEPAF_ERR_TRANSPORT, -19);
    CU_ASSERT_EQUAL(STEPAF_ERR_NO_TRANSPORT, -20);
    CU_ASSERT_EQUAL(STEPAF_ERR_UNSUPPORTED, -21);
    CU_ASSERT_EQUAL(STEPAF_ERR_PROTOCOL, -22);
}

static void names_of_the_rest(void)
{
#define CHECK(name_, text_) UNIT_STRING(stepaf_phase_name(name_), text_);
    STEPAF_PHASE_MAP(CHECK)
#undef CHECK
#define CHECK(name_, text_) UNIT_STRING(stepaf_event_name(name_), text_);
    STEPAF_EVENT_MAP(CHECK)
#undef CHECK
#define CHECK(name_, text_, bytes_)               \
    UNIT_STRING(stepaf_dtype_name(name_), text_); \
    CU_ASSERT_EQUAL(stepaf_dtype_bytes(name_), bytes_);
    STEPAF_DTYPE_MAP(CHECK)
#undef CHECK
    UNIT_STRING(stepaf_phase_name(STEPAF_PHASE_LAST), "?");
    UNIT_STRING(stepaf_phase_name((stepaf_phase_t)-1), "?");
    UNIT_STRING(stepaf_event_name(STEPAF_EVENT_LAST), "?");
    UNIT_STRING(stepaf_dtype_name(STEPAF_DTYPE_LAST), "?");
    CU_ASSERT_EQUAL(stepaf_dtype_bytes(STEPAF_DTYPE_LAST), 0);
    CU_ASSERT_EQUAL(stepaf_dtype_bytes((stepaf_dtype_t)-1), 0);
}

static void version_is_the_headers(void)
{
    char version[64];
    snprintf(version, sizeof version, "%d.%d.%d", STEPAF_VERSION_MAJOR, STEPAF_VERSION_MINOR,
             STEPAF_VERSION_PATCH);
    UNIT_STRING(stepaf_version(), STEPAF_VERSION_STRING);
    CU_ASSERT_EQUAL(strncmp(stepaf_version(), version, strlen(version)), 0);
}

static void last_error_keeps_what_was_set(void)
{
    const stepaf_error_t *error = stepaf_last_error();
    CU_ASSERT_PTR_NOT_NULL(error);
    if (!error)
        return;

    CU_ASSERT_EQUAL(stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_COMMIT, "key %d", 7),
                    STEPAF_ERR_KEY);
    CU_ASSERT_EQUAL(error->status, STEPAF_ERR_KEY);
    CU_ASSERT_EQUAL(error->phase, STEPAF_PHASE_COMMIT);
    CU_ASSERT_EQUAL(error->peer_role, -1);
    CU_ASSERT_EQUAL(error->peer_rank, -1);
    CU_ASSERT_EQUAL(error->peer_world_rank, -1);
    UNIT_STRING(error->text, "key 7");

    struct stepaf_who who = {STEPAF_FFN, 2, 5};
    CU_ASSERT_EQUAL(stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_PUSH, who, "gone"),
                    STEPAF_ERR_PEER_LOST);
    CU_ASSERT_EQUAL(error->peer_role, STEPAF_FFN);
    CU_ASSERT_EQUAL(error->peer_rank, 2);
    CU_ASSERT_EQUAL(error->peer_world_rank, 5);

    /* The text of the last error may be part of the next one. */
    stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT, "because: %s", error->text);
    UNIT_STRING(error->text, "because: gone");
    CU_ASSERT_EQUAL(error->peer_rank, -1);

    stepaf_error_t copy = *error;
    stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_COMMIT, "other");
    CU_ASSERT_EQUAL(stepaf_error_raise(&copy), STEPAF_ERR_BOOT);
    UNIT_STRING(error->text, "because: gone");

    CU_ASSERT_EQUAL(stepaf_boot_set_error(STEPAF_ERR_TIMEOUT, "no answer"), STEPAF_ERR_TIMEOUT);
    UNIT_STRING(error->text, "no answer");
    CU_ASSERT_EQUAL(stepaf_boot_set_error(STEPAF_ERR_BOOT, NULL), STEPAF_ERR_BOOT);
    UNIT_STRING(error->text, "");
}

/* A constant comes after what was set, and before what is set next. */
static void last_error_may_be_a_constant(void)
{
    static const stepaf_error_t full = {
        .status = STEPAF_ERR_WOULD_BLOCK, .peer_rank = -1, .text = "it is full"};

    stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_NONE, "a key");
    CU_ASSERT_EQUAL(stepaf_error_fixed(&full), STEPAF_ERR_WOULD_BLOCK);
    UNIT_STRING(stepaf_last_error()->text, "it is full");
    CU_ASSERT_EQUAL(stepaf_error_in(STEPAF_ERR_WOULD_BLOCK, STEPAF_PHASE_START), full.status);
    CU_ASSERT_EQUAL(stepaf_error_raise(stepaf_last_error()), STEPAF_ERR_WOULD_BLOCK);
    UNIT_STRING(stepaf_last_error()->text, "it is full");
    stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_NONE, "%s, by a byte", full.text);
    UNIT_STRING(stepaf_last_error()->text, "it is full, by a byte");
    CU_ASSERT_EQUAL(stepaf_last_error()->status, STEPAF_ERR_SIZE);
}

static void last_error_is_one_short_line(void)
{
    char longer[2 * STEPAF_ERROR_TEXT_MAX];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_NONE, "%s", longer);
    CU_ASSERT_EQUAL(strlen(stepaf_last_error()->text), STEPAF_ERROR_TEXT_MAX - 1);
    CU_ASSERT_STRING_EQUAL(stepaf_last_error()->text + STEPAF_ERROR_TEXT_MAX - 5, "x...");

    stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_NONE, "a%sb", "\n\r\t\x1b");
    UNIT_STRING(stepaf_last_error()->text, "a????b");
}

static void *error_of_a_new_thread(void *arg)
{
    *(stepaf_error_t *)arg = *stepaf_last_error();
    stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_NONE, "the thread's");
    return NULL;
}

static void last_error_is_the_threads_own(void)
{
    pthread_t thread;
    stepaf_error_t seen = {.status = STEPAF_ERR_LIMIT};
    stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_NONE, "ours");
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, error_of_a_new_thread, &seen), 0);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(seen.status, STEPAF_OK);
    CU_ASSERT_EQUAL(seen.peer_world_rank, -1);
    UNIT_STRING(seen.text, "");
    UNIT_STRING(stepaf_last_error()->text, "ours");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"names of statuses", names_of_statuses},
        {"numbers never change", numbers_never_change},
        {"names of phases, events, element types", names_of_the_rest},
        {"version is the headers'", version_is_the_headers},
        {"last error keeps what was set", last_error_keeps_what_was_set},
        {"last error may be a constant", last_error_may_be_a_constant},
        {"last error is one short line", last_error_is_one_short_line},
        {"last error is the thread's own", last_error_is_the_threads_own},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
