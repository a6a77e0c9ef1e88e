/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving large payloads with the help of other threads (copiers.h). A poll leaves the large
 * payloads that it finds, and reads them here at its end, all at the same time. A thread uses the
 * place of one payload and its socket, nothing else, and only while nothing else happens here:
 * until the thread is done, no link ends, no memory is withdrawn, no message is delivered. */
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "transport/tcp/tcp.h"

/* Return whether another thread is worth its cost. A closed connection must be read to be
 * noticed. */
static bool has_much(const struct stepaf_tcp_connection *connection)
{
    int bytes = 0;

    return !ioctl(connection->fd, FIONREAD, &bytes) && bytes >= STEPAF_TCP_SHARED_BYTES;
}

static bool is_to_be_read(struct stepaf_tcp_connection *connection)
{
    return !connection->link->base.dead && connection->fd >= 0 &&
           stepaf_tcp_is_at_large(connection) && stepaf_tcp_find_place(connection);
}

unsigned stepaf_tcp_receive_large(struct stepaf_tcp *tcp)
{
    struct {
        struct stepaf_tcp_connection *connection;
        const struct stepaf_tcp_copy *offered; /* NULL: this thread does it */
        struct stepaf_tcp_copy copy;
        struct iovec iov;
    } reads[STEPAF_TCP_COPIES + 1];
    unsigned n = 0, happened = 0;
    bool has_own = false; /* so far, for this thread */

    /* The core is asked before the reads, and notified after them. */
    for (unsigned i = 0; i < tcp->copiers.n_large; i++)
        if (is_to_be_read(tcp->copiers.large[i]))
            reads[n++].connection = tcp->copiers.large[i];
    for (unsigned i = 0; i < n; i++) {
        struct stepaf_tcp_connection *connection = reads[i].connection;
        bool is_much = has_much(connection);
        reads[i].iov = (struct iovec){connection->place, connection->left};
        reads[i].copy = (struct stepaf_tcp_copy){
            .fd = connection->fd, .receives = true, .n_iov = 1, .iov = &reads[i].iov};
        reads[i].offered =
            is_much && has_own ? stepaf_tcp_copiers_offer(tcp->copiers.it, &reads[i].copy) : NULL;
        has_own = has_own || is_much;
    }
    for (unsigned i = 0; i < n; i++)
        if (!reads[i].offered)
            stepaf_tcp_copy_run(&reads[i].copy);
    stepaf_tcp_copiers_join(tcp->copiers.it);
    for (unsigned i = 0; i < n; i++)
        if (reads[i].offered)
            reads[i].copy = *reads[i].offered;
    for (unsigned i = 0; i < n; i++)
        happened += stepaf_tcp_take_copy(reads[i].connection, &reads[i].copy);
    return happened;
}
