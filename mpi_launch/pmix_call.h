/* SPDX-License-Identifier: Apache-2.0 */
/* PMIx's fence and get with a deadline of the library's own, since not every server honours
 * PMIx's. Memory that PMIx still holds when the deadline has passed is freed once PMIx releases
 * it. */
#ifndef STEPAF_PMIX_CALL_H
#define STEPAF_PMIX_CALL_H

#include "pmix_session.h"

/* Wait until all ranks of the job have called this, and bring the data that each has put to all
 * of them. Returns STEPAF_ERR_PEER_LOST as soon as one of them is reported lost. There is no
 * fence of some ranks, nor one without data: Slurm's lets ranks of other nodes pass before all
 * have arrived. */
stepaf_status_t stepaf_pmix_fence(const struct stepaf_pmix_session *session, int64_t deadline_ns,
                                  const char *what);

/* The values that the ranks have put under one key each. */
struct stepaf_pmix_value {
    char *data; /* malloc; NULL: not requested */
    size_t bytes;
};

/* Get key @a key from every rank of the job for which @a wanted is set (NULL: from all) into
 * values_p[rank].data, whose memory belongs to the caller. Failure sets nothing. */
stepaf_status_t stepaf_pmix_get(const struct stepaf_pmix_session *session, const char *key,
                                const unsigned char *wanted, struct stepaf_pmix_value *values_p,
                                int64_t deadline_ns);

/* Ask without waiting whether ranks @a first to @a first + @a n - 1 have put @a key since the
 * last fence. answers_p[i] is 1, or 0 where the server says that the rank has not, which ends
 * the question. While there is no answer, it is -1 if one is certain to arrive, and -2 if one
 * may not arrive before the rank has put the key. All are set on failure too, which is reported
 * for the action @a what. */
stepaf_status_t stepaf_pmix_ask(const struct stepaf_pmix_session *session, const char *key,
                                int first, int n, int64_t deadline_ns, const char *what,
                                signed char *answers_p);

/* Return the first of @a ranks (NULL: of all) that is reported lost; -1: none. The second
 * function returns the status for that. */
int stepaf_pmix_first_lost(const struct stepaf_pmix_session *session, const int *ranks, int n);
stepaf_status_t stepaf_pmix_lost(int rank, const char *what);

#endif
