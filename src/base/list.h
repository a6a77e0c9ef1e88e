/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive circular doubly linked list. */
#ifndef STEPAF_BASE_LIST_H
#define STEPAF_BASE_LIST_H

#include <stddef.h>

struct stepaf_list {
    struct stepaf_list *next;
    struct stepaf_list *prev;
};

#define stepaf_container_of(ptr_, type_, member_) \
    ((type_ *)(void *)((char *)(ptr_)-offsetof(type_, member_)))

static inline void stepaf_list_init(struct stepaf_list *list)
{
    list->next = list;
    list->prev = list;
}

static inline int stepaf_list_empty(const struct stepaf_list *list)
{
    return list->next == list;
}

static inline void stepaf_list_append(struct stepaf_list *list, struct stepaf_list *node)
{
    node->prev = list->prev;
    node->next = list;
    list->prev->next = node;
    list->prev = node;
}

/* Remove @a node from its list. Harmless if it is initialized and in no list. */
static inline void stepaf_list_remove(struct stepaf_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    stepaf_list_init(node);
}

#endif
