#include "nearest/nearest_probe.h"

/* Keeps what is near enough of a list of pairs of one run. Returns as `sj_nearest_take`. */
static int take_list(sj_nearest_probe *probe, int64_t run, const int32_t *probes, const int32_t *rows, int64_t count)
{
    double distances[SJ_LISTED_PAIRS];
    int64_t ties[SJ_TIES][SJ_LISTED_PAIRS];
    int32_t selected[SJ_LISTED_PAIRS], positions[SJ_LISTED_PAIRS], near_rows[SJ_LISTED_PAIRS], run_numbers[SJ_LISTED_PAIRS];
    probe->distances.selection = (sj_selection){.count = count, .rows = rows, .run_numbers = NULL, .run_number = run};
    probe->distances.positions = probes;
    const int status = sj_distances_fill(&probe->distances, distances);
    if (status) {
        return status < 0 ? -2 : status;
    }
    sj_near_pairs pairs = {.count = count, .positions = probes, .distances = distances};
    pairs.count = sj_nearest_select(probe->nearest, &pairs, selected);
    if (pairs.count < 0) {
        return -2;
    }
    for (int64_t near = 0; near < pairs.count; near++) {
        const int32_t pair = selected[near]; /* never before `near` */
        positions[near] = probes[pair];
        distances[near] = distances[pair];
        near_rows[near] = rows[pair];
        run_numbers[near] = (int32_t)run;
    }
    for (int tie = 0; tie < SJ_TIES; tie++) {
        const int64_t *values = probe->ties[tie] ? (const int64_t *)probe->ties[tie]->addresses[run] : NULL;
        for (int64_t near = 0; near < pairs.count; near++) {
            ties[tie][near] = values ? values[near_rows[near]] : 0;
        }
        pairs.ties[tie] = ties[tie];
    }
    pairs.positions = positions;
    pairs.run_numbers = run_numbers;
    pairs.rows = near_rows;
    return sj_nearest_keep(probe->nearest, &pairs) ? -2 : 0;
}

int sj_nearest_take(sj_nearest_probe *probe, sj_runs *runs)
{
    int32_t probes[SJ_LISTED_PAIRS], rows[SJ_LISTED_PAIRS];
    for (;;) {
        const int64_t count = sj_runs_next(runs, probes, rows, SJ_LISTED_PAIRS);
        if (count <= 0) {
            return (int)count;
        }
        for (int64_t at = 0; at < count; at++) {
            probes[at] += (int32_t)runs->slice_begin;
        }
        const int status = take_list(probe, runs->run, probes, rows, count);
        if (status) {
            return status;
        }
    }
}
