/* SPDX-License-Identifier: Apache-2.0 */
/* Priority flow control of an interface, read as "dcb pfc show" does: data center bridging over
 * netlink. */
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include "rdma.h"

struct question {
    struct nlmsghdr header;
    struct dcbmsg dcb;
    struct rtattr name;
    char text[IFNAMSIZ];
};

/* Find the attribute @a type within @a bytes of attributes; returns NULL if it is absent. */
static const struct rtattr *find_attribute(const void *at, size_t bytes, unsigned type)
{
    const char *place = at;

    while (bytes >= sizeof(struct rtattr)) {
        const struct rtattr *attribute = (const void *)place;
        size_t length = attribute->rta_len;
        if (length < sizeof *attribute || length > bytes)
            return NULL;
        if ((attribute->rta_type & NLA_TYPE_MASK) == type)
            return attribute;
        length = RTA_ALIGN(length);
        if (length > bytes)
            return NULL;
        place += length;
        bytes -= length;
    }
    return NULL;
}

static int parse_answer(const void *answer, size_t bytes, unsigned *priorities_p)
{
    const struct nlmsghdr *header = answer;
    const size_t before = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct dcbmsg));

    if (bytes < before || header->nlmsg_len < before || header->nlmsg_len > bytes ||
        header->nlmsg_type == NLMSG_ERROR)
        return 0;
    const struct rtattr *ieee =
        find_attribute((const char *)answer + before, header->nlmsg_len - before, DCB_ATTR_IEEE);
    const struct rtattr *pfc =
        ieee ? find_attribute(RTA_DATA(ieee), RTA_PAYLOAD(ieee), DCB_ATTR_IEEE_PFC) : NULL;
    struct ieee_pfc values;
    if (!pfc || RTA_PAYLOAD(pfc) < sizeof values)
        return 0;
    memcpy(&values, RTA_DATA(pfc), sizeof values);
    *priorities_p = values.pfc_en;
    return 1;
}

static int ask(const char *netdev, unsigned *priorities_p)
{
    union {
        char bytes[8192];
        struct nlmsghdr header;
    } answer;
    struct question question = {
        .header = {.nlmsg_len = sizeof question,
                   .nlmsg_type = RTM_GETDCB,
                   .nlmsg_flags = NLM_F_REQUEST},
        .dcb = {.dcb_family = AF_UNSPEC, .cmd = DCB_CMD_IEEE_GET},
        .name = {.rta_len = RTA_LENGTH(IFNAMSIZ), .rta_type = DCB_ATTR_IFNAME}};
    struct timeval limit = {.tv_sec = 1};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    int told = 0;

    if (fd < 0)
        return 0;
    snprintf(question.text, sizeof question.text, "%s", netdev);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
        send(fd, &question, sizeof question, 0) == (ssize_t)sizeof question) {
        ssize_t n = recv(fd, &answer, sizeof answer, 0);
        told = n > 0 && parse_answer(&answer, (size_t)n, priorities_p);
    }
    close(fd);
    return told;
}

int doctor_read_pfc(const struct doctor *doctor, const char *netdev, unsigned *priorities_p)
{
    char name[DOCTOR_NAME], text[32];
    long long mask;

    if (!doctor_is_test(doctor))
        return ask(netdev, priorities_p);
    snprintf(name, sizeof name, "pfc.%s", netdev);
    if (!doctor_read_tried(doctor, text, sizeof text, name) || !doctor_parse(text, &mask) ||
        mask < 0 || mask > 255)
        return 0;
    *priorities_p = (unsigned)mask;
    return 1;
}
