/* XXH3 (Yann Collet's xxHash, doc/xxhash_spec.md), 64 bits, seed 0: the hash that a window keeps of a string key. Saved
 * states hold such hashes, so this is the published function, bit for bit. The twin calls the xxhash library. */
#include <string.h>

#include "gather/bytes.h"

#define PRIME32_1 0x9E3779B1u
#define PRIME32_2 0x85EBCA77u
#define PRIME32_3 0xC2B2AE3Du
#define PRIME64_1 0x9E3779B185EBCA87u
#define PRIME64_2 0xC2B2AE3D27D4EB4Fu
#define PRIME64_3 0x165667B19E3779F9u
#define PRIME64_4 0x85EBCA77C2B2AE63u
#define PRIME64_5 0x27D4EB2F165667C5u
#define PRIME_MX1 0x165667919E3779F9u
#define PRIME_MX2 0x9FB21C651E98DF25u

#define SECRET_BYTES 192
#define STRIPE_BYTES 64
#define STRIPES 16 /* in a block: (SECRET_BYTES - STRIPE_BYTES) / 8 */
#define LANES_OF_STRIPE 8

static const unsigned char SECRET[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

__extension__ typedef unsigned __int128 sj_uint128;

SJ_INLINE uint32_t read32(const unsigned char *from)
{
    uint32_t value;
    memcpy(&value, from, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    return value;
}

SJ_INLINE uint64_t read64(const unsigned char *from)
{
    uint64_t value;
    memcpy(&value, from, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

SJ_INLINE uint64_t turned(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

/* Multiplies to 128 bits; returns the xor of the product's two halves. */
SJ_INLINE uint64_t folded(uint64_t left, uint64_t right)
{
    const sj_uint128 product = (sj_uint128)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

SJ_INLINE uint64_t avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= PRIME_MX1;
    return hash ^ hash >> 32;
}

/* XXH64's avalanche, for values shorter than four bytes. */
SJ_INLINE uint64_t avalanche_short(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= PRIME64_2;
    hash ^= hash >> 29;
    hash *= PRIME64_3;
    return hash ^ hash >> 32;
}

SJ_INLINE uint64_t mixed(const unsigned char *input, const unsigned char *secret)
{
    return folded(read64(input) ^ read64(secret), read64(input + 8) ^ read64(secret + 8));
}

SJ_INLINE uint64_t hash_to_16(const unsigned char *input, int64_t size)
{
    if (size > 8) {
        const uint64_t low = read64(input) ^ read64(SECRET + 24) ^ read64(SECRET + 32);
        const uint64_t high = read64(input + size - 8) ^ read64(SECRET + 40) ^ read64(SECRET + 48);
        return avalanche((uint64_t)size + __builtin_bswap64(low) + high + folded(low, high));
    }
    if (size >= 4) {
        const uint64_t both = (uint64_t)read32(input) << 32 | read32(input + size - 4);
        uint64_t hash = both ^ read64(SECRET + 8) ^ read64(SECRET + 16);
        hash ^= turned(hash, 49) ^ turned(hash, 24);
        hash *= PRIME_MX2;
        hash ^= (hash >> 35) + (uint64_t)size;
        hash *= PRIME_MX2;
        return hash ^ hash >> 28;
    }
    if (size) {
        const uint32_t bytes = (uint32_t)input[0] << 16 | (uint32_t)input[size >> 1] << 24 | input[size - 1] |
                               (uint32_t)size << 8;
        return avalanche_short((uint64_t)(bytes ^ read32(SECRET) ^ read32(SECRET + 4)));
    }
    return avalanche_short(read64(SECRET + 56) ^ read64(SECRET + 64));
}

static uint64_t hash_to_128(const unsigned char *input, int64_t size)
{
    uint64_t hash = (uint64_t)size * PRIME64_1;
    for (int64_t pair = (size - 1) / 32; pair >= 0; pair--) {
        hash += mixed(input + 16 * pair, SECRET + 32 * pair);
        hash += mixed(input + size - 16 * (pair + 1), SECRET + 32 * pair + 16);
    }
    return avalanche(hash);
}

static uint64_t hash_to_240(const unsigned char *input, int64_t size)
{
    uint64_t hash = (uint64_t)size * PRIME64_1;
    for (int64_t part = 0; part < 8; part++) {
        hash += mixed(input + 16 * part, SECRET + 16 * part);
    }
    hash = avalanche(hash);
    for (int64_t part = 8; part < size / 16; part++) {
        hash += mixed(input + 16 * part, SECRET + 16 * (part - 8) + 3);
    }
    return avalanche(hash + mixed(input + size - 16, SECRET + 136 - 17));
}

static void add_stripe(uint64_t *sums, const unsigned char *input, const unsigned char *secret)
{
    for (int lane = 0; lane < LANES_OF_STRIPE; lane++) {
        const uint64_t value = read64(input + 8 * lane);
        const uint64_t keyed = value ^ read64(secret + 8 * lane);
        sums[lane ^ 1] += value;
        sums[lane] += (keyed & 0xffffffffu) * (keyed >> 32);
    }
}

static uint64_t hash_long(const unsigned char *input, int64_t size)
{
    uint64_t sums[LANES_OF_STRIPE] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    const int64_t stripes = (size - 1) / STRIPE_BYTES;
    for (int64_t stripe = 0; stripe < stripes; stripe++) {
        add_stripe(sums, input + STRIPE_BYTES * stripe, SECRET + 8 * (stripe % STRIPES));
        if (stripe % STRIPES < STRIPES - 1) {
            continue;
        }
        for (int lane = 0; lane < LANES_OF_STRIPE; lane++) {
            const uint64_t key = read64(SECRET + SECRET_BYTES - STRIPE_BYTES + 8 * lane);
            sums[lane] = (sums[lane] ^ sums[lane] >> 47 ^ key) * PRIME32_1;
        }
    }
    add_stripe(sums, input + size - STRIPE_BYTES, SECRET + SECRET_BYTES - STRIPE_BYTES - 7);
    uint64_t hash = (uint64_t)size * PRIME64_1;
    for (int pair = 0; pair < LANES_OF_STRIPE / 2; pair++) {
        const unsigned char *secret = SECRET + 11 + 16 * pair;
        hash += folded(sums[2 * pair] ^ read64(secret), sums[2 * pair + 1] ^ read64(secret + 8));
    }
    return avalanche(hash);
}

void sj_hash_bytes(const sj_byte_column *column, int64_t *hashes)
{
    for (int64_t row = 0; row < column->rows; row++) {
        const unsigned char *input = column->data + column->offsets[row];
        const int64_t size = column->offsets[row + 1] - column->offsets[row];
        uint64_t hash;
        if (size <= 16) {
            hash = hash_to_16(input, size);
        } else if (size <= 128) {
            hash = hash_to_128(input, size);
        } else {
            hash = size <= 240 ? hash_to_240(input, size) : hash_long(input, size);
        }
        hashes[row] = (int64_t)hash;
    }
}
