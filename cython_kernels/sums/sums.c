#include "sums/sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 wide;

static const int64_t LOW = ((int64_t)1 << SJ_LIMB_BITS) - 1;
/* A limb grows by at most 2^40 with each number, so it is below 2^63 when it is carried. */
static const int64_t MOST_ADDED = (int64_t)1 << 22;
static const int64_t MOST_AT_ONCE = (int64_t)1 << 40;

int sj_positions_fit(const int32_t *positions, int64_t n, int64_t count)
{
    int outside = 0;
    for (int64_t i = 0; i < n; i++) outside |= (int64_t)(uint32_t)positions[i] >= count;
    return !outside;
}

static int has_room(sj_sums *sums, int limb, int limbs)
{
    for (int each = limb; each < limb + limbs; each++) {
        if (sums->limbs[each]) continue;
        sums->limbs[each] = calloc((size_t)sums->count, sizeof(int64_t));
        if (!sums->limbs[each]) return 0;
    }
    return 1;
}

/* Adds a number times 2^(30 * limb) to a group; there is room. */
static inline void put(sj_sums *sums, int64_t group, int limb, wide sum)
{
    sums->limbs[limb][group] += (int64_t)sum & LOW;
    sums->limbs[limb + 1][group] += (int64_t)(sum >> SJ_LIMB_BITS) & LOW;
    sums->limbs[limb + 2][group] += (int64_t)(sum >> (2 * SJ_LIMB_BITS));
}

/* Carries all limbs but the highest, and that one too where it has become large. */
static int carry(sj_sums *sums)
{
    int lowest, limbs = sj_sums_limbs(sums, &lowest);
    for (int limb = lowest; limb < lowest + limbs; limb++) {
        int64_t *own = sums->limbs[limb], most = 0;
        if (!own) continue;
        if (limb + 1 == lowest + limbs) {
            for (int64_t group = 0; group < sums->count; group++) {
                const int64_t size = own[group] < 0 ? -own[group] : own[group];
                if (size > most) most = size;
            }
            if (most <= LOW) break;
        }
        if (!has_room(sums, limb + 1, 1)) return -1;
        int64_t *next = sums->limbs[limb + 1];
        for (int64_t group = 0; group < sums->count; group++) {
            next[group] += own[group] >> SJ_LIMB_BITS;
            own[group] &= LOW;
        }
    }
    sums->added = 0;
    return 0;
}

/* Returns how many of the next `n` numbers can be added before limbs must be carried, which is done here; -1: no memory. */
static int64_t next_piece(sj_sums *sums, int64_t n)
{
    if (sums->added >= MOST_ADDED && carry(sums)) return -1;
    const int64_t free_now = MOST_ADDED - sums->added;
    const int64_t piece = n < free_now ? n : free_now;
    sums->added += piece;
    return piece;
}

static int floats(sj_sums *sums, const int32_t *positions, const double *values, int64_t n)
{
    int32_t group = 0;
    int limb = -1;
    wide sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        const uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
        unsigned exponent = (unsigned)(bits >> 52) & 0x7FF;
        if (exponent == 0x7FF) {
            if (!sums->beyond && !(sums->beyond = calloc((size_t)sums->count, 1))) return -1;
            sums->beyond[positions[i]] |= fraction ? 4 : bits >> 63 ? 2 : 1;
            continue;
        }
        if (!(bits << 1)) continue; /* a zero would only change the limb */
        const uint64_t whole = fraction | (uint64_t)(exponent != 0) << 52;
        exponent += exponent == 0;
        /* The value is `whole` times 2^(exponent - 1075), and the lowest limb is that of 2^-1080. */
        const unsigned place = exponent + 5;
        const int own_limb = (int)(place / SJ_LIMB_BITS);
        const unsigned shift = place % SJ_LIMB_BITS;
        if (positions[i] != group || own_limb != limb) {
            if (limb >= 0) put(sums, group, limb, sum);
            sum = 0;
            group = positions[i];
            if (own_limb != limb) {
                limb = own_limb;
                if (!has_room(sums, limb, 3)) return -1;
            }
        }
        const wide shifted = (wide)whole << shift;
        sum += bits >> 63 ? -shifted : shifted;
    }
    if (limb >= 0) put(sums, group, limb, sum);
    return 0;
}

/* Adds a sum of integers to a group; a small one goes to one limb uncut, since most are small. */
static inline void put_integer(sj_sums *sums, int64_t group, wide sum)
{
    if (sum > -MOST_AT_ONCE && sum < MOST_AT_ONCE)
        sums->limbs[SJ_SUM_ONES][group] += (int64_t)sum;
    else
        put(sums, group, SJ_SUM_ONES, sum);
}

static int integers(sj_sums *sums, const int32_t *positions, const int64_t *values, int64_t n)
{
    int32_t group = 0;
    wide sum = 0;
    if (!has_room(sums, SJ_SUM_ONES, 3)) return -1;
    for (int64_t i = 0; i < n; i++) {
        if (positions[i] != group) {
            put_integer(sums, group, sum);
            sum = 0;
            group = positions[i];
        }
        sum += values[i];
    }
    put_integer(sums, group, sum);
    return 0;
}

static int wides(sj_sums *sums, const int32_t *positions, const int64_t *words, int64_t n)
{
    int32_t group = 0;
    wide lower = 0, upper = 0; /* upper: times 2^64, which is 16 in the limb of 2^60 */
    if (!has_room(sums, SJ_SUM_ONES, 5)) return -1;
    for (int64_t i = 0; i < n; i++) {
        if (positions[i] != group) {
            put(sums, group, SJ_SUM_ONES, lower);
            put(sums, group, SJ_SUM_ONES + 2, upper * 16);
            lower = upper = 0;
            group = positions[i];
        }
        lower += (uint64_t)words[2 * i];
        upper += words[2 * i + 1];
    }
    put(sums, group, SJ_SUM_ONES, lower);
    put(sums, group, SJ_SUM_ONES + 2, upper * 16);
    return 0;
}

int sj_sums_floats(sj_sums *sums, const int32_t *positions, const double *values, int64_t n)
{
    while (n > 0) {
        const int64_t piece = next_piece(sums, n);
        if (piece < 0 || floats(sums, positions, values, piece)) return -1;
        positions += piece, values += piece, n -= piece;
    }
    return 0;
}

int sj_sums_integers(sj_sums *sums, const int32_t *positions, const int64_t *values, int64_t n)
{
    while (n > 0) {
        const int64_t piece = next_piece(sums, n);
        if (piece < 0 || integers(sums, positions, values, piece)) return -1;
        positions += piece, values += piece, n -= piece;
    }
    return 0;
}

int sj_sums_wide(sj_sums *sums, const int32_t *positions, const int64_t *words, int64_t n)
{
    while (n > 0) {
        const int64_t piece = next_piece(sums, n);
        if (piece < 0 || wides(sums, positions, words, piece)) return -1;
        positions += piece, words += 2 * piece, n -= piece;
    }
    return 0;
}

int sj_sums_limbs(const sj_sums *sums, int *lowest)
{
    int highest = SJ_SUM_LIMBS - 1;
    *lowest = 0;
    while (*lowest < SJ_SUM_LIMBS && !sums->limbs[*lowest]) ++*lowest;
    while (highest >= *lowest && !sums->limbs[highest]) highest--;
    return highest - *lowest + 1;
}

void sj_sums_digits(const sj_sums *sums, int lowest, int rows, int64_t *digits)
{
    for (int row = 0; row < rows; row++) {
        const int64_t *limb = lowest + row < SJ_SUM_LIMBS ? sums->limbs[lowest + row] : NULL;
        int64_t *out = digits + row * sums->count;
        for (int64_t group = 0; group < sums->count; group++) {
            out[group] = limb ? limb[group] : 0;
            if (!row) continue;
            int64_t *below = out + group - sums->count;
            out[group] += *below >> SJ_LIMB_BITS;
            *below &= LOW;
        }
    }
}

void sj_sums_beyond(const sj_sums *sums, double *out)
{
    for (int64_t group = 0; group < sums->count; group++) {
        const int has = sums->beyond ? sums->beyond[group] : 0;
        out[group] = !has ? 0.0 : has == 1 ? INFINITY : has == 2 ? -INFINITY : NAN;
    }
}

void sj_sums_free(sj_sums *sums)
{
    for (int limb = 0; limb < SJ_SUM_LIMBS; limb++) free(sums->limbs[limb]);
    free(sums->beyond);
}

void sj_tally(const int32_t *positions, int64_t n, int64_t *counts)
{
    int64_t begin = 0;
    for (int64_t i = 1; i <= n; i++) {
        if (i < n && positions[i] == positions[begin]) continue;
        counts[positions[begin]] += i - begin;
        begin = i;
    }
}

static inline int64_t ordered(double value)
{
    int64_t bits;
    if (value != value) value = NAN;
    memcpy(&bits, &value, sizeof bits);
    return bits ^ ((bits >> 63) & INT64_MAX);
}

/* One group's number stays in a register while its values follow each other. Larger numbers are compared as smaller ones:
 * ~x reverses the order of int64. */
#define EXTREMES(NUMBER)                                      \
    const int64_t reversed = largest ? -1 : 0;                \
    if (n <= 0) return;                                       \
    int32_t group = positions[0];                             \
    int64_t least = best[group] ^ reversed;                   \
    for (int64_t i = 0; i < n; i++) {                         \
        if (positions[i] != group) {                          \
            best[group] = least ^ reversed;                   \
            group = positions[i];                             \
            least = best[group] ^ reversed;                   \
        }                                                     \
        const int64_t number = (NUMBER) ^ reversed;           \
        least = number < least ? number : least;              \
    }                                                         \
    best[group] = least ^ reversed;

void sj_extremes_float(const int32_t *positions, const double *values, int64_t n, int largest, int64_t *best)
{
    EXTREMES(ordered(values[i]))
}

void sj_extremes_int(const int32_t *positions, const int64_t *values, int64_t n, int largest, int64_t *best)
{
    EXTREMES(values[i])
}
