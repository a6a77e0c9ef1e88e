/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ API, for C++17 and newer: owners, spans and exceptions over the C API, at no extra cost.
 * Headers only: a program links the same libraries as a C program. See stepaf_cxx(7).
 * stepaf/mpi.hpp and stepaf/pmix.hpp create contexts over MPI and PMIx. */
#ifndef STEPAF_STEPAF_HPP
#define STEPAF_STEPAF_HPP

#include <stepaf/cxx/context.hpp>
#include <stepaf/stepaf.h>

#endif
