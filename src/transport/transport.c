/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "transport/transport.h"

#include <string.h>

#include "base/error.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#ifdef HAVE_VERBS
#include "transport/verbs/verbs.h"
#endif

const struct stepaf_transport_ops *const stepaf_transports[] = {
    &stepaf_shm_ops,
#ifdef HAVE_VERBS
    &stepaf_verbs_ops,
#endif
    &stepaf_tcp_ops,
    NULL,
};

/* Give the next name of a comma list and move *list_p behind it; NULL at the end. */
static const char *next_name(const char **list_p, size_t *length_p)
{
    const char *name = *list_p + strspn(*list_p, ", ");

    if (!*name)
        return NULL;
    *length_p = strcspn(name, ", ");
    *list_p = name + *length_p;
    return name;
}

static bool same_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && !memcmp(name, text, length);
}

bool stepaf_transport_admitted(const struct stepaf_env *env, const char *name)
{
    const char *list = env->transports;
    const char *word;
    size_t length;

    if (!list[0])
        return true;
    while ((word = next_name(&list, &length)))
        if (same_name(name, word, length))
            return true;
    return false;
}

stepaf_status_t stepaf_transport_check_names(const struct stepaf_env *env)
{
    const char *list = env->transports;
    const char *word;
    size_t length;

    while ((word = next_name(&list, &length))) {
        bool known = false;
        for (int i = 0; stepaf_transports[i]; i++)
            known = known || same_name(stepaf_transports[i]->name, word, length);
        if (!known)
            return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                    "STEPAF_TRANSPORTS: \"%.*s\" is not a transport of this build",
                                    (int)length, word);
    }
    return STEPAF_OK;
}
