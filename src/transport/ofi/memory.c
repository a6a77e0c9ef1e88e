/* SPDX-License-Identifier: Apache-2.0 */
/* Registration of memory, as the provider requires. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "device/gpu.h"
#include "transport/ofi/ofi.h"

enum { KEY_TRIES = 8 };

/* Draw a key that the provider does not choose: as long as the provider allows, and hard to guess
 * if that is long. */
static bool draw_key(const struct stepaf_ofi_rail *rail, uint64_t *key_p)
{
    size_t bytes = rail->info->domain_attr->mr_key_size;

    *key_p = 0;
    if (rail->info->domain_attr->mr_mode & FI_MR_PROV_KEY)
        return true;
    bytes = bytes && bytes < sizeof(*key_p) ? bytes : sizeof(*key_p);
    return getrandom(key_p, bytes, 0) == (ssize_t)bytes;
}

static int register_once(const struct stepaf_ofi_rail *rail, struct fi_mr_attr *attr,
                         struct fid_mr **mr_p)
{
    if (!draw_key(rail, &attr->requested_key))
        return -FI_EAGAIN;
    int error = fi_mr_regattr(rail->domain, attr, 0, mr_p);
    if (error || !(rail->info->domain_attr->mr_mode & FI_MR_ENDPOINT))
        return error;
    error = fi_mr_bind(*mr_p, &rail->ep->fid, 0);
    if (!error)
        error = fi_mr_enable(*mr_p);
    if (error)
        (void)fi_close(&(*mr_p)->fid);
    return error;
}

static int register_at(const struct stepaf_ofi_rail *rail, struct fi_mr_attr *attr,
                       struct stepaf_ofi_mr *mr_p)
{
    int error = -FI_ENOKEY;

    for (int i = 0; i < KEY_TRIES && error == -FI_ENOKEY; i++)
        error = register_once(rail, attr, &mr_p->mr);
    if (!error && fi_mr_key(mr_p->mr) == FI_KEY_NOTAVAIL) {
        (void)fi_close(&mr_p->mr->fid);
        error = -FI_ENOKEY;
    }
    if (!error)
        mr_p->key = fi_mr_key(mr_p->mr);
    return error;
}

static void close_mrs(struct stepaf_ofi_mr *mrs, unsigned *n_p)
{
    while (*n_p)
        (void)fi_close(&mrs[--*n_p].mr->fid);
}

static struct stepaf_ofi_mr *formers_of(const struct stepaf_ofi *ofi,
                                        struct stepaf_ofi_registration *registration)
{
    return registration->rails + ofi->n_rails;
}

/* A registration with all rails. */
struct registering {
    struct stepaf_ofi *ofi;
    struct stepaf_ofi_registration *registration;
    struct fi_mr_attr attr;
    int error;
};

static void register_rails(void *arg)
{
    struct registering *job = arg;
    struct stepaf_ofi_registration *registration = job->registration;

    while (registration->n < job->ofi->n_rails && !job->error) {
        unsigned r = registration->n;
        job->error = register_at(&job->ofi->rails[r], &job->attr, &registration->rails[r]);
        registration->n += !job->error;
    }
}

/* Register with the GPU current: the provider asks the GPU's driver about the memory, which answers
 * only then. Returns false if the memory is not registered; ofi->gpu.why says why. */
static bool register_inside(struct registering *job)
{
    const struct stepaf_mem *mem = job->registration->mem;
    struct stepaf_ofi *ofi = job->ofi;

    if (!stepaf_ofi_gpu_attr(ofi, mem, &job->attr))
        return false;
    if (stepaf_gpu_inside(mem->gpu, register_rails, job))
        snprintf(ofi->gpu.why, sizeof(ofi->gpu.why), "%.180s", stepaf_last_error()->text);
    else if (job->error)
        snprintf(ofi->gpu.why, sizeof(ofi->gpu.why), "cannot register GPU memory: %s",
                 ofi->calls->strerror(-job->error));
    return job->registration->n == ofi->n_rails;
}

/* Register with all rails. Returns false if that fails: nothing is registered then. *error_p: 0 for
 * GPU memory that is not accepted. */
static bool register_all(struct stepaf_ofi *ofi, struct stepaf_ofi_registration *registration,
                         int *error_p)
{
    const struct stepaf_mem *mem = registration->mem;
    struct iovec iov = {mem->base, mem->bytes};
    struct registering job = {
        .ofi = ofi,
        .registration = registration,
        .attr = {.mr_iov = &iov, .iov_count = 1, .access = FI_WRITE | FI_REMOTE_WRITE}};
    bool is_there;

    *error_p = 0;
    if (mem->kind == STEPAF_MEM_CUDA) {
        is_there = register_inside(&job);
    } else {
        register_rails(&job);
        *error_p = job.error;
        is_there = !job.error;
    }
    if (!is_there)
        close_mrs(registration->rails, &registration->n);
    return is_there;
}

struct stepaf_ofi_registration *stepaf_ofi_register(struct stepaf_ofi *ofi,
                                                    const struct stepaf_mem *mem, int *error_p)
{
    struct stepaf_ofi_registration *registration = calloc(
        1, sizeof(*registration) + (size_t)2 * ofi->n_rails * sizeof(registration->rails[0]));

    *error_p = -FI_ENOMEM;
    if (!registration)
        return NULL;
    registration->mem = mem;
    if (!register_all(ofi, registration, error_p)) {
        free(registration);
        return NULL;
    }
    if (ofi->rails[0].info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        registration->base = (uint64_t)(uintptr_t)mem->base;
    registration->next = ofi->registrations;
    registration->back = &ofi->registrations;
    if (registration->next)
        registration->next->back = &registration->next;
    ofi->registrations = registration;
    return registration;
}

void stepaf_ofi_unregister(struct stepaf_ofi *ofi, struct stepaf_ofi_registration *registration)
{
    *registration->back = registration->next;
    if (registration->next)
        registration->next->back = registration->back;
    close_mrs(registration->rails, &registration->n);
    close_mrs(formers_of(ofi, registration), &registration->n_former);
    free(registration);
}

static bool has_former_key(const struct stepaf_ofi *ofi,
                           const struct stepaf_ofi_registration *registration)
{
    for (unsigned r = 0; r < registration->n; r++)
        if (registration->rails[r].key == registration->rails[ofi->n_rails + r].key)
            return true;
    return false;
}

/* Register one memory again. On failure it is registered as before. */
static int register_again(struct stepaf_ofi *ofi, struct stepaf_ofi_registration *registration)
{
    struct stepaf_ofi_mr *formers = formers_of(ofi, registration);
    size_t bytes = ofi->n_rails * sizeof(*formers);
    int error;

    if (registration->n_former) { /* no peer has imported these keys */
        close_mrs(registration->rails, &registration->n);
    } else {
        memcpy(formers, registration->rails, bytes);
        registration->n_former = registration->n;
        registration->n = 0;
    }
    if (register_all(ofi, registration, &error))
        return 0;
    memcpy(registration->rails, formers, bytes);
    registration->n = registration->n_former;
    registration->n_former = 0;
    return error ? error : -FI_EACCES;
}

int stepaf_ofi_register_anew(struct stepaf_ofi *ofi, bool *same_p)
{
    int error = 0;

    *same_p = false;
    for (struct stepaf_ofi_registration *it = ofi->registrations; it && !error; it = it->next) {
        if (it->is_fixed)
            continue;
        error = register_again(ofi, it);
        *same_p = *same_p || (!error && has_former_key(ofi, it));
    }
    return error;
}

void stepaf_ofi_end_former(struct stepaf_ofi *ofi)
{
    for (struct stepaf_ofi_registration *it = ofi->registrations; it; it = it->next)
        close_mrs(formers_of(ofi, it), &it->n_former);
}

stepaf_status_t stepaf_ofi_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    int error;
    struct stepaf_ofi_registration *registration = stepaf_ofi_register(ofi, mem, &error);

    mem->registration[transport->index] = registration;
    if (error == -FI_ENOMEM)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    if (mem->kind == STEPAF_MEM_CUDA)
        return stepaf_ofi_note_gpu(ofi, mem, registration != NULL);
    if (registration)
        return STEPAF_OK;
    return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_NONE,
                            "ofi: cannot register %zu bytes: %s", mem->bytes,
                            ofi->calls->strerror(-error));
}

void stepaf_ofi_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    if (mem->registration[transport->index])
        stepaf_ofi_unregister((struct stepaf_ofi *)transport, mem->registration[transport->index]);
    mem->registration[transport->index] = NULL;
}

void stepaf_ofi_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack)
{
    const struct stepaf_ofi_registration *registration = mem->registration[transport->index];

    stepaf_pack_u64(pack, registration->base);
    stepaf_pack_u32(pack, registration->n);
    for (unsigned r = 0; r < registration->n; r++)
        stepaf_pack_u64(pack, registration->rails[r].key);
}

stepaf_status_t stepaf_ofi_import_mem(struct stepaf_link *base, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p)
{
    const struct stepaf_ofi_link *link = (const struct stepaf_ofi_link *)base;
    struct stepaf_ofi_rmem *rmem = calloc(1, sizeof(*rmem) + link->n_paths * sizeof(rmem->keys[0]));

    if (!rmem)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    rmem->base = (struct stepaf_rmem){id, bytes};
    rmem->address = stepaf_unpack_u64(unpack);
    uint32_t n = stepaf_unpack_u32(unpack);
    for (uint32_t r = 0; r < n && !unpack->failed; r++) {
        uint64_t key = stepaf_unpack_u64(unpack);
        if (r < link->n_paths)
            rmem->keys[r] = key;
    }
    if (unpack->failed || n < link->n_paths) {
        free(rmem);
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "ofi: its keys are malformed");
    }
    *rmem_p = &rmem->base;
    return STEPAF_OK;
}

void stepaf_ofi_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem)
{
    (void)link;
    free(rmem);
}
