/* SPDX-License-Identifier: Apache-2.0 */
/* C++: start-up over MPI, by libstepaf_mpi. */
#ifndef STEPAF_MPI_HPP
#define STEPAF_MPI_HPP

/* MPI's own C++ interface, which MPI 3 removed, would require one more library to link. */
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif

#include <stepaf/mpi.h>
#include <stepaf/stepaf.hpp>

namespace stepaf
{

/** Join the job that @a comm spans; as stepaf_init_mpi. */
inline result<context> try_init_mpi(MPI_Comm comm, const params &how = {}) noexcept
{
    stepaf_context_h handle;
    stepaf_status_t status = stepaf_init_mpi(comm, how.get(), &handle);
    if (detail::failed(status))
        return status;
    return context(handle);
}

/** Return a communicator that spans @a group; as stepaf_comm. */
inline result<MPI_Comm> try_comm(const context &ctx, stepaf_group_t group) noexcept
{
    MPI_Comm comm;
    stepaf_status_t status = stepaf_comm(ctx.get(), group, &comm);
    if (detail::failed(status))
        return status;
    return comm;
}

#if STEPAF_CXX_EXCEPTIONS
inline context init_mpi(MPI_Comm comm, const params &how = {})
{
    return try_init_mpi(comm, how).value();
}

inline MPI_Comm comm(const context &ctx, stepaf_group_t group)
{
    return try_comm(ctx, group).value();
}
#endif

} // namespace stepaf

#endif
