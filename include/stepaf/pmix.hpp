/* SPDX-License-Identifier: Apache-2.0 */
/* C++: start-up over PMIx, by libstepaf_pmix. */
#ifndef STEPAF_PMIX_HPP
#define STEPAF_PMIX_HPP

#include <stepaf/pmix.h>
#include <stepaf/stepaf.hpp>

namespace stepaf
{

/** Join the job of this process; as stepaf_init_pmix. */
inline result<context> try_init_pmix(const params &how = {}) noexcept
{
    stepaf_context_h handle;
    stepaf_status_t status = stepaf_init_pmix(how.get(), &handle);
    if (detail::failed(status))
        return status;
    return context(handle);
}

#if STEPAF_CXX_EXCEPTIONS
inline context init_pmix(const params &how = {})
{
    return try_init_pmix(how).value();
}
#endif

} // namespace stepaf

#endif
