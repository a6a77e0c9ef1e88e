/* SPDX-License-Identifier: Apache-2.0 */
/* A list of two to six words, (auto, on, off), as constants and as text. Words must not be names of
 * macros. */
#ifndef STEPAF_BASE_ENV_WORDS_H
#define STEPAF_BASE_ENV_WORDS_H

/* PREFIX_auto, PREFIX_on, PREFIX_off */
#define STEPAF_ENV_WORD_NAMES(prefix, words) \
    STEPAF_ENV_NAMES_OF(prefix, STEPAF_ENV_WORDS_BARE words)

/* "auto|on|off" */
#define STEPAF_ENV_WORD_TEXT(words) STEPAF_ENV_TEXT_OF(STEPAF_ENV_WORDS_BARE words)

#define STEPAF_ENV_WORDS_BARE(...) __VA_ARGS__

/* Choose the macro for the number of words. */
#define STEPAF_ENV_WORDS_CHOOSE(a, b, c, d, e, f, macro, ...) macro

#define STEPAF_ENV_NAMES_OF(prefix, ...)                                                  \
    STEPAF_ENV_WORDS_CHOOSE(__VA_ARGS__, STEPAF_ENV_NAMES_6, STEPAF_ENV_NAMES_5,          \
                            STEPAF_ENV_NAMES_4, STEPAF_ENV_NAMES_3, STEPAF_ENV_NAMES_2, ) \
    (prefix, __VA_ARGS__)
#define STEPAF_ENV_NAMES_2(prefix, a, b) prefix##a, prefix##b
#define STEPAF_ENV_NAMES_3(prefix, a, ...) prefix##a, STEPAF_ENV_NAMES_2(prefix, __VA_ARGS__)
#define STEPAF_ENV_NAMES_4(prefix, a, ...) prefix##a, STEPAF_ENV_NAMES_3(prefix, __VA_ARGS__)
#define STEPAF_ENV_NAMES_5(prefix, a, ...) prefix##a, STEPAF_ENV_NAMES_4(prefix, __VA_ARGS__)
#define STEPAF_ENV_NAMES_6(prefix, a, ...) prefix##a, STEPAF_ENV_NAMES_5(prefix, __VA_ARGS__)

#define STEPAF_ENV_TEXT_OF(...)                                                                   \
    STEPAF_ENV_WORDS_CHOOSE(__VA_ARGS__, STEPAF_ENV_TEXT_6, STEPAF_ENV_TEXT_5, STEPAF_ENV_TEXT_4, \
                            STEPAF_ENV_TEXT_3, STEPAF_ENV_TEXT_2, )                               \
    (__VA_ARGS__)
#define STEPAF_ENV_TEXT_2(a, b) #a "|" #b
#define STEPAF_ENV_TEXT_3(a, ...) #a "|" STEPAF_ENV_TEXT_2(__VA_ARGS__)
#define STEPAF_ENV_TEXT_4(a, ...) #a "|" STEPAF_ENV_TEXT_3(__VA_ARGS__)
#define STEPAF_ENV_TEXT_5(a, ...) #a "|" STEPAF_ENV_TEXT_4(__VA_ARGS__)
#define STEPAF_ENV_TEXT_6(a, ...) #a "|" STEPAF_ENV_TEXT_5(__VA_ARGS__)

#endif
