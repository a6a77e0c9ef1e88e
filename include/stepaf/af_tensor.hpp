/* SPDX-License-Identifier: Apache-2.0 */
/* C++: the shape of StepMesh's AFTensorWorker and AFTensorServer, for code that is written for them. Names
 * of members and their order of arguments are StepMesh's; failures are exceptions and end no process. What
 * is different: the context comes from stepaf::context, keys are declared there, and all ranks commit once
 * before the first operation (docs/stepmesh.md). Takes exceptions; not torch: see Tensor. Thread safety is
 * that of the context, an object of these classes counting as one of its callers. */
#ifndef STEPAF_AF_TENSOR_HPP
#define STEPAF_AF_TENSOR_HPP

#include <stepaf/cxx/af_server.hpp>
#include <stepaf/cxx/af_worker.hpp>

#endif
