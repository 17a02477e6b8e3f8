/* Values as unsigned integers in the same order; sorts and merges compare these. */
#ifndef SJ_ORDER_KEYS_H
#define SJ_ORDER_KEYS_H

#include <string.h>

#include "scan/band.h"

SJ_INLINE uint64_t float_key(double value)
{
    uint64_t bits;
    if (value != value) {
        return UINT64_MAX; /* NaN last */
    }
    value += 0.0; /* -0.0 becomes 0.0 */
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | ((uint64_t)1 << 63);
}

SJ_INLINE uint64_t int_key(int64_t value) { return (uint64_t)value ^ ((uint64_t)1 << 63); }

SJ_INLINE uint64_t second_key(const double *float_second, const int64_t *int_second, int64_t row)
{
    return float_second ? float_key(float_second[row]) : int_key(int_second[row]);
}

#endif
