#include "nearest/nearest.h"

#include <math.h>

/* Whether every position is that of a probe. */
static int are_inside(const sj_nearest *nearest, const sj_near_pairs *pairs)
{
    int outside = 0;
    for (int64_t pair = 0; pair < pairs->count; pair++) {
        outside |= (uint64_t)(int64_t)pairs->positions[pair] >= (uint64_t)nearest->count;
    }
    return !outside;
}

/* Puts a distance in the place of the greatest of a heap. */
static void sink_distance(double *heap, int64_t count, double distance)
{
    int64_t place = 0;
    for (int64_t child = 1; child < count; child = 2 * place + 1) {
        child += child + 1 < count && heap[child + 1] > heap[child];
        if (heap[child] <= distance) {
            break;
        }
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = distance;
}

/* Adds a distance to a heap of `count`. */
static void rise_distance(double *heap, int64_t count, double distance)
{
    int64_t place = count;
    while (place && heap[(place - 1) / 2] < distance) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = distance;
}

/* Returns the first pair behind `begin` that is of another probe. */
static int64_t stretch_end(const sj_near_pairs *pairs, int64_t begin)
{
    int64_t end = begin + 1;
    while (end < pairs->count && pairs->positions[end] == pairs->positions[begin]) {
        end++;
    }
    return end;
}

/* Puts the distances of one probe into its heap. */
static void see(sj_nearest *nearest, int64_t probe, const double *distances, int64_t count)
{
    const int64_t k = nearest->k;
    double *heap = nearest->distances + probe * k;
    if (k == 1) {
        double least = nearest->seen[probe] ? heap[0] : INFINITY;
        int is_known = nearest->seen[probe];
        for (int64_t at = 0; at < count; at++) {
            is_known |= !isnan(distances[at]);
            least = distances[at] < least ? distances[at] : least;
        }
        heap[0] = least;
        nearest->seen[probe] = is_known;
        return;
    }
    for (int64_t at = 0; at < count; at++) {
        const double distance = distances[at];
        if (nearest->seen[probe] == k) {
            if (distance < heap[0]) {
                sink_distance(heap, k, distance);
            }
        } else if (!isnan(distance)) {
            rise_distance(heap, nearest->seen[probe]++, distance);
        }
    }
}

int64_t sj_nearest_select(sj_nearest *nearest, const sj_near_pairs *pairs, int32_t *selected)
{
    if (!are_inside(nearest, pairs)) {
        return -1;
    }
    for (int64_t begin = 0, end; begin < pairs->count; begin = end) {
        end = stretch_end(pairs, begin);
        see(nearest, pairs->positions[begin], pairs->distances + begin, end - begin);
    }
    int64_t written = 0;
    for (int64_t begin = 0, end; begin < pairs->count; begin = end) {
        const int64_t probe = pairs->positions[begin];
        const double most = nearest->seen[probe] == nearest->k ? nearest->distances[probe * nearest->k] : INFINITY;
        end = stretch_end(pairs, begin);
        for (int64_t pair = begin; pair < end; pair++) {
            selected[written] = (int32_t)pair;
            written += pairs->distances[pair] <= most;
        }
    }
    return written;
}

/* Whether a pair is nearer than another. */
static int is_nearer(const sj_near *left, const sj_near *right)
{
    if (left->distance != right->distance) {
        return left->distance < right->distance;
    }
    for (int tie = 0; tie < SJ_TIES; tie++) {
        if (left->ties[tie] != right->ties[tie]) {
            return left->ties[tie] < right->ties[tie];
        }
    }
    return 0;
}

static void sink(sj_near *heap, int64_t count, sj_near pair)
{
    int64_t place = 0;
    for (int64_t child = 1; child < count; child = 2 * place + 1) {
        child += child + 1 < count && is_nearer(&heap[child], &heap[child + 1]);
        if (!is_nearer(&pair, &heap[child])) {
            break;
        }
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = pair;
}

static void rise(sj_near *heap, int64_t count, sj_near pair)
{
    int64_t place = count;
    while (place && is_nearer(&heap[(place - 1) / 2], &pair)) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = pair;
}

int sj_nearest_keep(sj_nearest *nearest, const sj_near_pairs *pairs)
{
    const int64_t k = nearest->k;
    if (!are_inside(nearest, pairs)) {
        return -1;
    }
    for (int64_t number = 0; number < pairs->count; number++) {
        const int64_t probe = pairs->positions[number];
        sj_near pair = {.distance = pairs->distances[number],
                        .run_number = pairs->run_numbers[number],
                        .row = pairs->rows[number]};
        for (int tie = 0; tie < SJ_TIES; tie++) {
            pair.ties[tie] = pairs->ties[tie][number];
        }
        sj_near *heap = nearest->kept + probe * k;
        if (nearest->used[probe] < k) {
            rise(heap, nearest->used[probe]++, pair);
        } else if (is_nearer(&pair, &heap[0])) {
            sink(heap, k, pair);
        }
    }
    return 0;
}

int64_t sj_nearest_total(const sj_nearest *nearest)
{
    int64_t total = 0;
    for (int64_t probe = 0; probe < nearest->count; probe++) {
        total += nearest->used[probe];
    }
    return total;
}

void sj_nearest_rank(sj_nearest *nearest, int32_t *run_numbers, int32_t *rows)
{
    int64_t written = 0;
    for (int64_t probe = 0; probe < nearest->count; probe++) {
        sj_near *heap = nearest->kept + probe * nearest->k;
        for (int64_t last = nearest->used[probe] - 1; last > 0; last--) {
            const sj_near farthest = heap[0];
            sink(heap, last, heap[last]);
            heap[last] = farthest;
        }
        for (int64_t place = 0; place < nearest->used[probe]; place++, written++) {
            run_numbers[written] = heap[place].run_number;
            rows[written] = heap[place].row;
        }
    }
}
