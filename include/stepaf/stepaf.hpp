/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ API, from C++17 on: owners, spans and exceptions over the C API, at no extra cost.
 * Headers only: a program links what a C program links. See stepaf_cxx(7). stepaf/mpi.hpp and
 * stepaf/pmix.hpp create contexts over MPI and PMIx. */
#ifndef STEPAF_STEPAF_HPP
#define STEPAF_STEPAF_HPP

#include <stepaf/cxx/context.hpp>
#include <stepaf/stepaf.h>

#endif
