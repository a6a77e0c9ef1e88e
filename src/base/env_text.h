/* SPDX-License-Identifier: Apache-2.0 */
/* The form of settings that are text. Whether what they name exists is not checked. */
#ifndef STEPAF_BASE_ENV_TEXT_H
#define STEPAF_BASE_ENV_TEXT_H

#include <stdbool.h>
#include <stdint.h>

enum { STEPAF_ENV_NAME_MAX = 64 };

/* Parse "first-last", or one port; "" is 0 to 0. Returns false, with nothing set, if the text is
 * neither. */
bool stepaf_env_ports(const char *text, uint16_t *first_p, uint16_t *last_p);

struct stepaf_env_subnet {
    int family; /* AF_INET or AF_INET6 */
    uint8_t bytes[16];
    uint8_t prefix;
};

/* Parse a subnet such as "10.0.0.0/8". Returns false, with nothing set, if the text is no
 * subnet. */
bool stepaf_env_subnet(const char *text, struct stepaf_env_subnet *subnet_p);

enum stepaf_env_form {
    STEPAF_ENV_FORM_ANY_TEXT,
    STEPAF_ENV_FORM_PORTS,
    STEPAF_ENV_FORM_NETWORK, /* an interface, or a subnet */
    STEPAF_ENV_FORM_INDEX,
    STEPAF_ENV_FORM_NAME,  /* at most STEPAF_ENV_NAME_MAX letters, digits and the like */
    STEPAF_ENV_FORM_NAMES, /* between commas or blanks, each once */
    STEPAF_ENV_FORM_SECRET /* any text; never shown */
};

/* Return why @a text does not have the form, in words; NULL if it does. Empty text has every
 * form. */
const char *stepaf_env_text_trouble(enum stepaf_env_form form, const char *text);

#endif
