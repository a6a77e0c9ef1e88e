/* SPDX-License-Identifier: Apache-2.0 */
/* C++: parameters of a context and of a key. */
#ifndef STEPAF_CXX_PARAMS_HPP
#define STEPAF_CXX_PARAMS_HPP

#include <initializer_list>

#include <stepaf/context.h>
#include <stepaf/cxx/span.hpp>
#include <stepaf/key.h>

namespace stepaf
{

/** Parameters of a context: params().role(STEPAF_FFN).threads(STEPAF_THREADS_MULTIPLE). */
class params
{
  public:
    params &role(stepaf_role_t role) noexcept
    {
        c_.field_mask |= STEPAF_PARAM_ROLE;
        c_.role = role;
        return *this;
    }
    params &progress(stepaf_progress_mode_t progress) noexcept
    {
        c_.field_mask |= STEPAF_PARAM_PROGRESS;
        c_.progress = progress;
        return *this;
    }
    params &threads(stepaf_threads_t threads) noexcept
    {
        c_.field_mask |= STEPAF_PARAM_THREADS;
        c_.threads = threads;
        return *this;
    }
    /** @param split  as STEPAF_SPLIT, which holds if this is NULL or empty; not copied. */
    params &split(const char *split) noexcept
    {
        c_.field_mask |= STEPAF_PARAM_SPLIT;
        c_.split = split;
        return *this;
    }
    const stepaf_params_t *get() const noexcept { return &c_; }

  private:
    stepaf_params_t c_{};
};

/** Optional properties of a key: key_params().dtype(STEPAF_BF16).shape({128, 7168}).depth(3). */
class key_params
{
  public:
    key_params &dtype(stepaf_dtype_t dtype) noexcept
    {
        c_.field_mask |= STEPAF_KEY_DTYPE;
        c_.dtype = dtype;
        return *this;
    }
    /** @param sizes  1 .. STEPAF_MAX_DIMS; another number is STEPAF_ERR_INVALID later. */
    key_params &shape(std::initializer_list<std::int64_t> sizes) noexcept
    {
        c_.field_mask |= STEPAF_KEY_SHAPE;
        c_.ndim = 0;
        for (std::int64_t size : sizes) {
            if (c_.ndim < STEPAF_MAX_DIMS)
                c_.shape[c_.ndim] = size;
            c_.ndim++;
        }
        return *this;
    }
    key_params &depth(unsigned depth) noexcept
    {
        c_.field_mask |= STEPAF_KEY_DEPTH;
        c_.depth = depth;
        return *this;
    }
    key_params &mem_kind(stepaf_mem_kind_t kind) noexcept
    {
        c_.field_mask |= STEPAF_KEY_MEM_KIND;
        c_.mem_kind = kind;
        return *this;
    }
    const stepaf_key_params_t *get() const noexcept { return &c_; }

  private:
    stepaf_key_params_t c_{};
};

} // namespace stepaf

#endif
