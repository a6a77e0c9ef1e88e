/* SPDX-License-Identifier: Apache-2.0 */
/* All C headers except those for MPI and PMIx; see stepaf/mpi.h and stepaf/pmix.h. */
#ifndef STEPAF_STEPAF_H
#define STEPAF_STEPAF_H

#include <stepaf/batch.h>
#include <stepaf/boot.h>
#include <stepaf/clock.h>
#include <stepaf/context.h>
#include <stepaf/counters.h>
#include <stepaf/key.h>
#include <stepaf/link.h>
#include <stepaf/log.h>
#include <stepaf/members.h>
#include <stepaf/memory.h>
#include <stepaf/plan.h>
#include <stepaf/request.h>
#include <stepaf/status.h>
#include <stepaf/stream.h>
#include <stepaf/timeline.h>
#include <stepaf/trace.h>
#include <stepaf/types.h>
#include <stepaf/verdict.h>
#include <stepaf/version.h>

#endif
