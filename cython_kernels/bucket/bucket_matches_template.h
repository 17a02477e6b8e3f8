/* The probe of a bucket grid that writes rows of a result, for one width of lanes. Include after the pairs' template. */
#include <string.h>

#include "bucket/bucket_matches.h"

#define NOTED_CHUNKS 16 /* tested chunks whose columns are on their way from memory */

/* A chunk with matches; bit n of `ring` stands for the n-th row of its ring. */
typedef struct {
    int64_t chunk;
    int32_t probe;
    unsigned ring;
    int head;
} noted_chunk;

/* Asks for the columns of a chunk that the test did not read; the others are in cache, where asking costs little. */
SJ_INLINE void ask_for_columns(const sj_match_rows *rows, int64_t chunk)
{
    for (int64_t c = 0; c < rows->column_count; c++) {
        const int64_t bytes = (int64_t)rows->item_bytes[c] * SJ_CHUNK_ROWS;
        const unsigned char *from = rows->columns[c * rows->column_step] + chunk * bytes;
        for (int64_t line = 0; line < bytes; line += LINE_BYTES) {
            __builtin_prefetch(from + line);
        }
    }
}

#define COPY_LANES(item)                                                    \
    for (int n = 0; n < count; n++) {                                       \
        memcpy(to + n * (item), from + (int64_t)lanes[n] * (item), (item)); \
    }

/* Copies the items of some lanes. */
SJ_INLINE void copy_lanes(const unsigned char *from, const int32_t *lanes, int count, int item_bytes, unsigned char *to)
{
    switch (item_bytes) {
    case 1: COPY_LANES(1) break;
    case 2: COPY_LANES(2) break;
    case 4: COPY_LANES(4) break;
    case 8: COPY_LANES(8) break;
    default: COPY_LANES(16) break;
    }
}

/* Copies a chunk's matches, column by column, in the order of its ring. */
SJ_INLINE void copy_matches(const noted_chunk *noted, sj_match_rows *rows)
{
    int32_t lanes[SJ_CHUNK_ROWS], unused[SJ_CHUNK_ROWS];
    const int count = (int)emit_chunk(noted->ring, 0, noted->head, 0, unused, lanes);
#if LANES == 8
    /* Items of 4 and 8 bytes are put in place by one permutation each, and whole registers are stored. */
    const __m512i all = _mm512_loadu_si512(lanes);
    const __m512i first = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(all));
    const __m512i last = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(all, 1));
#endif
    for (int64_t c = 0; c < rows->column_count; c++) {
        const int item_bytes = rows->item_bytes[c];
        const unsigned char *from = rows->columns[c * rows->column_step] + noted->chunk * SJ_CHUNK_ROWS * item_bytes;
        unsigned char *to = rows->to[c] + rows->written * item_bytes;
#if LANES == 8
        if (item_bytes == 4) {
            _mm512_storeu_si512(to, _mm512_permutexvar_epi32(all, _mm512_loadu_si512(from)));
            continue;
        }
        if (item_bytes == 8) {
            const __m512i low = _mm512_loadu_si512(from), high = _mm512_loadu_si512(from + LINE_BYTES);
            _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, first, high));
            _mm512_storeu_si512(to + LINE_BYTES, _mm512_permutex2var_epi64(low, last, high));
            continue;
        }
#endif
        copy_lanes(from, lanes, count, item_bytes, to);
    }
    rows->written += count;
    sj_add_stretch(rows, noted->probe, count);
}

int NAME(sj_bucket_match)(sj_bucket_probe *probe, sj_match_rows *rows)
{
    noted_chunk noted[NOTED_CHUNKS];
    uint64_t copied = 0, end = 0;
    ready_probe ready;
    sj_chunk_span *span;
    int64_t taken = rows->written; /* rows, with those that are noted */
    int is_full = 0;
    ready.probe = -1;
    for (; !is_full && (span = ready_span(probe, &ready)); probe->tested += !is_full) {
        while (ready.may_match && span->chunk != SJ_NO_CHUNK) {
            is_full = rows->capacity - taken < SJ_CHUNK_ROWS;
            if (is_full) {
                break;
            }
            const sj_chunk chunk = entered_chunk(probe, span->chunk);
            const unsigned ring = chunk_ring(probe, &ready.bounds, span->chunk, chunk);
            if (ring) {
                const noted_chunk next = {span->chunk, span->probe, ring, chunk.head};
                ask_for_columns(rows, span->chunk);
                noted[end++ % NOTED_CHUNKS] = next;
                taken += bits_set(ring);
            }
            if (end - copied == NOTED_CHUNKS) {
                copy_matches(&noted[copied++ % NOTED_CHUNKS], rows);
            }
            span->chunk = chunk.next;
        }
    }
    while (copied < end) {
        copy_matches(&noted[copied++ % NOTED_CHUNKS], rows);
    }
    return is_full;
}
