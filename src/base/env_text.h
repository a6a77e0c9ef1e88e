/* SPDX-License-Identifier: Apache-2.0 */
/* What settings that are text have to look like. Whether there is what they name is not looked
 * at. */
#ifndef STEPAF_BASE_ENV_TEXT_H
#define STEPAF_BASE_ENV_TEXT_H

#include <stdbool.h>
#include <stdint.h>

enum { STEPAF_ENV_NAME_MAX = 64 };

/* "first-last", or one port; "" is 0 to 0. False, and nothing set, if it is neither. */
bool stepaf_env_ports(const char *text, uint16_t *first_p, uint16_t *last_p);

struct stepaf_env_subnet {
    int family; /* AF_INET or AF_INET6 */
    uint8_t bytes[16];
    uint8_t prefix;
};

/* A subnet, "10.0.0.0/8"; false, and nothing set, if the text is none. */
bool stepaf_env_subnet(const char *text, struct stepaf_env_subnet *subnet_p);

enum stepaf_env_form {
    STEPAF_ENV_FORM_ANY_TEXT,
    STEPAF_ENV_FORM_PORTS,
    STEPAF_ENV_FORM_NETWORK, /* an interface, or a subnet */
    STEPAF_ENV_FORM_INDEX,
    STEPAF_ENV_FORM_NAME,  /* at most STEPAF_ENV_NAME_MAX letters, digits and the like */
    STEPAF_ENV_FORM_NAMES, /* between commas or blanks, each once */
    STEPAF_ENV_FORM_SECRET /* any text, and shown nowhere */
};

/* Why @a text is not of the form, in words; NULL if it is. Empty text is of every form. */
const char *stepaf_env_text_trouble(enum stepaf_env_form form, const char *text);

#endif
