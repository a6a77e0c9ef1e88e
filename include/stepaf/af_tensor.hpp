/* SPDX-License-Identifier: Apache-2.0 */
/* C++: the interface of StepMesh's AFTensorWorker and AFTensorServer, for code written for them.
 *
 * Members have StepMesh's names and order of arguments. Differences: failures are exceptions and do
 * not end the process; the context comes from stepaf::context; keys are declared there; all ranks
 * commit once before the first operation (docs/stepmesh.md). Requires exceptions, but not torch:
 * see Tensor. Thread safety is that of the context; an object of these classes counts as one of its
 * callers. */
#ifndef STEPAF_AF_TENSOR_HPP
#define STEPAF_AF_TENSOR_HPP

#include <stepaf/cxx/af_server.hpp>
#include <stepaf/cxx/af_worker.hpp>

#endif
