/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of the public enumerations, all from their X-macros. */
#include <stepaf/status.h>
#include <stepaf/trace.h>
#include <stepaf/types.h>
#include <stepaf/verdict.h>
#include <stepaf/version.h>

const char *stepaf_status_text(stepaf_status_t status)
{
    switch ((int)status) {
#define TEXT(name_, number_, text_) \
    case number_:                   \
        return text_;
        STEPAF_STATUS_MAP(TEXT)
#undef TEXT
    default:
        return "unknown status";
    }
}

const char *stepaf_status_name(stepaf_status_t status)
{
    switch ((int)status) {
#define NAME(name_, number_, text_) \
    case number_:                   \
        return #name_;
        STEPAF_STATUS_MAP(NAME)
#undef NAME
    default:
        return "?";
    }
}

const char *stepaf_phase_name(stepaf_phase_t phase)
{
    switch ((int)phase) {
#define TEXT(name_, text_) \
    case name_:            \
        return text_;
        STEPAF_PHASE_MAP(TEXT)
#undef TEXT
    default:
        return "?";
    }
}

const char *stepaf_dtype_name(stepaf_dtype_t dtype)
{
    switch ((int)dtype) {
#define TEXT(name_, text_, bytes_) \
    case name_:                    \
        return text_;
        STEPAF_DTYPE_MAP(TEXT)
#undef TEXT
    default:
        return "?";
    }
}

size_t stepaf_dtype_bytes(stepaf_dtype_t dtype)
{
    switch ((int)dtype) {
#define BYTES(name_, text_, bytes_) \
    case name_:                     \
        return bytes_;
        STEPAF_DTYPE_MAP(BYTES)
#undef BYTES
    default:
        return 0;
    }
}

const char *stepaf_event_name(stepaf_event_t event)
{
    switch ((int)event) {
#define TEXT(name_, text_) \
    case name_:            \
        return text_;
        STEPAF_EVENT_MAP(TEXT)
#undef TEXT
    default:
        return "?";
    }
}

const char *stepaf_verdict_phase_name(stepaf_verdict_phase_t phase)
{
    switch ((int)phase) {
#define TEXT(name_, text_) \
    case name_:            \
        return text_;
        STEPAF_VERDICT_PHASE_MAP(TEXT)
#undef TEXT
    default:
        return "?";
    }
}

const char *stepaf_version(void)
{
    return STEPAF_VERSION_STRING;
}
