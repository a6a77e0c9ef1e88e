/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, registered as the provider asks. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "transport/ofi/ofi.h"

enum { KEY_TRIES = 8 };

/* A key that is not the provider's: as long as it takes, and not to be guessed where that is
 * long. */
static bool draw_key(const struct stepaf_ofi *ofi, uint64_t *key_p)
{
    size_t bytes = ofi->f.info->domain_attr->mr_key_size;

    *key_p = 0;
    if (ofi->f.info->domain_attr->mr_mode & FI_MR_PROV_KEY)
        return true;
    bytes = bytes && bytes < sizeof(*key_p) ? bytes : sizeof(*key_p);
    return getrandom(key_p, bytes, 0) == (ssize_t)bytes;
}

static int register_once(struct stepaf_ofi *ofi, void *base, size_t bytes, struct fid_mr **mr_p)
{
    uint64_t key;

    if (!draw_key(ofi, &key))
        return -FI_EAGAIN;
    int error =
        fi_mr_reg(ofi->f.domain, base, bytes, FI_WRITE | FI_REMOTE_WRITE, 0, key, 0, mr_p, NULL);
    if (error || !(ofi->f.info->domain_attr->mr_mode & FI_MR_ENDPOINT))
        return error;
    error = fi_mr_bind(*mr_p, &ofi->f.ep->fid, 0);
    if (!error)
        error = fi_mr_enable(*mr_p);
    if (error)
        (void)fi_close(&(*mr_p)->fid);
    return error;
}

struct stepaf_ofi_registration *stepaf_ofi_register(struct stepaf_ofi *ofi, void *base,
                                                    size_t bytes, int *error_p)
{
    struct stepaf_ofi_registration *registration = calloc(1, sizeof(*registration));

    *error_p = -FI_ENOMEM;
    if (!registration)
        return NULL;
    for (int i = 0; i < KEY_TRIES; i++) {
        *error_p = register_once(ofi, base, bytes, &registration->mr);
        if (*error_p != -FI_ENOKEY)
            break;
    }
    if (!*error_p && fi_mr_key(registration->mr) == FI_KEY_NOTAVAIL) {
        (void)fi_close(&registration->mr->fid);
        *error_p = -FI_ENOKEY;
    }
    if (*error_p) {
        free(registration);
        return NULL;
    }
    registration->key = fi_mr_key(registration->mr);
    if (ofi->f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        registration->base = (uint64_t)(uintptr_t)base;
    registration->next = ofi->registrations;
    registration->back = &ofi->registrations;
    if (registration->next)
        registration->next->back = &registration->next;
    ofi->registrations = registration;
    return registration;
}

void stepaf_ofi_unregister(struct stepaf_ofi_registration *registration)
{
    *registration->back = registration->next;
    if (registration->next)
        registration->next->back = registration->back;
    (void)fi_close(&registration->mr->fid);
    free(registration);
}

stepaf_status_t stepaf_ofi_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    int error;

    mem->registration[transport->index] = stepaf_ofi_register(ofi, mem->base, mem->bytes, &error);
    if (mem->registration[transport->index])
        return STEPAF_OK;
    if (error == -FI_ENOMEM)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_NONE,
                            "ofi: cannot register %zu bytes: %s", mem->bytes,
                            ofi->f.calls->strerror(-error));
}

void stepaf_ofi_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    if (mem->registration[transport->index])
        stepaf_ofi_unregister(mem->registration[transport->index]);
    mem->registration[transport->index] = NULL;
}

void stepaf_ofi_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack)
{
    const struct stepaf_ofi_registration *registration = mem->registration[transport->index];

    stepaf_pack_u64(pack, registration->base);
    stepaf_pack_u64(pack, registration->key);
}

stepaf_status_t stepaf_ofi_import_mem(struct stepaf_link *link, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p)
{
    struct stepaf_ofi_rmem *rmem = calloc(1, sizeof(*rmem));

    (void)link;
    if (!rmem)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    rmem->base = (struct stepaf_rmem){id, bytes};
    rmem->address = stepaf_unpack_u64(unpack);
    rmem->key = stepaf_unpack_u64(unpack);
    *rmem_p = &rmem->base;
    return STEPAF_OK;
}

void stepaf_ofi_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem)
{
    (void)link;
    free(rmem);
}
