/* SPDX-License-Identifier: Apache-2.0 */
/* Who is there, as the page says that all see. */
#include "chaos.h"

int chaos_place(const struct chaos_page *page, int rank)
{
    return atomic_load(&page->ranks[rank].place);
}

int chaos_count_serving(const struct chaos_page *page, bool attention, bool ffn)
{
    int n = 0;

    for (int r = 0; r < chaos_places(page); r++)
        n += chaos_place(page, r) == CHAOS_SERVING &&
             (chaos_is_attention(page, r) ? attention : ffn);
    return n;
}

int chaos_count_begun(const struct chaos_page *page)
{
    int n = 0;

    for (int r = 0; r < chaos_places(page); r++)
        n += atomic_load(&page->ranks[r].has_begun);
    return n;
}

bool chaos_all_serve(const struct chaos_page *page)
{
    return chaos_count_serving(page, true, true) == chaos_count_begun(page);
}

bool chaos_all_have_committed(const struct chaos_page *page)
{
    int generation = atomic_load(&page->generation);

    for (int r = 0; r < chaos_places(page); r++)
        if (chaos_place(page, r) == CHAOS_SERVING && atomic_load(&page->ranks[r].done) < generation)
            return false;
    return true;
}
