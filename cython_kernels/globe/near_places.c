#include "globe/near_places.h"

#include <string.h>

static sj_selection part_of(const sj_selection *all, int64_t from, int64_t count)
{
    sj_selection part = *all;
    part.count = count;
    part.rows = all->rows + from;
    part.run_numbers = all->run_numbers ? all->run_numbers + from : NULL;
    return part;
}

int sj_near_places_fill(const sj_near_places *places, uint8_t *out)
{
    sj_near_block block;
    uint8_t answers[SJ_NEAR_PAIRS];
    memset(&block, 0, sizeof block);
    unsigned char *left[2] = {(unsigned char *)block.column[0], (unsigned char *)block.column[1]};
    unsigned char *right[2] = {(unsigned char *)block.column[2], (unsigned char *)block.column[3]};
    const int64_t count = places->left_rows.count;
    for (int64_t from = 0; from < count; from += SJ_NEAR_PAIRS) {
        const int64_t pairs = count - from < SJ_NEAR_PAIRS ? count - from : SJ_NEAR_PAIRS;
        const sj_selection left_rows = part_of(&places->left_rows, from, pairs);
        const sj_selection right_rows = part_of(&places->right_rows, from, pairs);
        if (sj_gather_columns(places->left, &left_rows, left) < 0) {
            return -1;
        }
        if (sj_gather_columns(places->right, &right_rows, right) < 0) {
            return -1;
        }
        places->fill(&places->bounds, &block, answers);
        memcpy(out + from, answers, (size_t)pairs);
    }
    return 0;
}
