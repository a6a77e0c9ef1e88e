/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tcp_watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* Data sent after the last acknowledgement is unanswered. So is data that the kernel could not even
 * retransmit, for example because this host's interface is down: then nothing is later than that
 * acknowledgement. */
bool stepaf_tcp_is_unanswered(const struct tcp_info *info, struct stepaf_tcp_watch *watch,
                              uint32_t since_ms)
{
    watch->heard = info->tcpi_last_ack_recv <= since_ms;
    if (!info->tcpi_unacked || watch->heard)
        watch->stuck = false;
    else if (info->tcpi_retransmits > watch->timeouts && info->tcpi_last_data_sent > since_ms)
        watch->stuck = true;
    watch->timeouts = info->tcpi_retransmits;
    return info->tcpi_probes ||
           (info->tcpi_unacked &&
            (watch->stuck || info->tcpi_last_ack_recv > info->tcpi_last_data_sent));
}

/* Each poll sees one moment, in which the latest data is often not acknowledged yet. So whatever
 * arrived since the poll before counts as an answer as well; otherwise a host that answers all the
 * time would be silent by a few such moments. */
bool stepaf_tcp_watch_is_silent(struct stepaf_tcp_watch *watch, int fd,
                                const struct stepaf_tcp_look *look)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) ||
        !stepaf_tcp_is_unanswered(&info, watch, look->since_ms))
        watch->since = 0;
    else if (!watch->since || watch->heard || look->is_first)
        watch->since = look->now;
    else
        return look->now - watch->since >= look->timeout;
    return false;
}
