/* Matches that a probe writes as rows of a result: no list of pairs is made, and nothing is gathered afterwards.
 *
 *   chunk tested ──► lanes noted, lines of its columns asked for ──► columns copied     16 chunks with matches later
 *
 * The columns of the probes' own side stand still while a probe meets its partners. So of them only stretches are
 * written: a probe, and how many rows in a row are its matches.
 */
#ifndef SJ_BUCKET_MATCHES_H
#define SJ_BUCKET_MATCHES_H

#include "bucket/bucket_grid.h"

/* Rows behind the capacity that may be written to: whole registers are stored. */
#define SJ_MATCH_SLACK 64

typedef struct {
    int64_t column_count;
    const unsigned char *const *columns; /* of the window; those of the run in work are `column_step` apart */
    int64_t column_step;
    const int *item_bytes;
    unsigned char *const *to; /* columns of the result, with room for capacity + SJ_MATCH_SLACK rows */
    int64_t capacity;
    int64_t written;
    int32_t *probes; /* of each stretch; there is room for `capacity` stretches */
    int32_t *lengths;
    int64_t stretches;
    int32_t first_probe; /* number of the probe that the kernel calls 0 */
} sj_match_rows;

/* Writes the next matches; returns whether it stopped because room ran out. */
typedef int (*sj_bucket_match)(sj_bucket_probe *probe, sj_match_rows *rows);

int sj_bucket_match_scalar(sj_bucket_probe *probe, sj_match_rows *rows);
#if defined(__x86_64__)
int sj_bucket_match_avx2(sj_bucket_probe *probe, sj_match_rows *rows);
int sj_bucket_match_avx512(sj_bucket_probe *probe, sj_match_rows *rows);
#endif

/* Adds rows of one probe to the stretches. */
SJ_INLINE void sj_add_stretch(sj_match_rows *rows, int32_t probe, int32_t count)
{
    const int64_t last = rows->stretches - 1;
    probe += rows->first_probe;
    if (last >= 0 && rows->probes[last] == probe) {
        rows->lengths[last] += count;
    } else {
        rows->probes[last + 1] = probe;
        rows->lengths[last + 1] = count;
        rows->stretches++;
    }
}

#endif
