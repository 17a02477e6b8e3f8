#include "simd/dispatch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

uint8_t sj_set_bits[256][8];

static sj_implementation implementations[3];
static int implementation_count;
static sj_cpu_feature features[8];
static int feature_count;

#define SJ_ADD(NAME)                                                                                      \
    do {                                                                                                  \
        const sj_implementation entry = {#NAME, sj_scan_fill_##NAME, sj_grid_fill_##NAME,                 \
                                         sj_scan_roof_##NAME, sj_bucket_fill_##NAME, sj_near_fill_##NAME, \
                                         sj_scan_count_##NAME, sj_grid_count_##NAME,                      \
                                         sj_bucket_count_##NAME, sj_fold_##NAME};                         \
        implementations[implementation_count++] = entry;                                                  \
    } while (0)

#if defined(__x86_64__)
/* CPUID and XGETBV are executed here, because __builtin_cpu_supports needs libgcc, which zig does not link. */
enum {
    STATE_XMM_YMM = 0x06,   /* XCR0 bits 1-2 */
    STATE_OPMASK_ZMM = 0xe0 /* XCR0 bits 5-7 */
};

static int add_feature(const char *name, unsigned int word, int bit, int usable)
{
    const sj_cpu_feature entry = {name, (int)(word >> bit & 1) && usable};
    features[feature_count++] = entry;
    return entry.present;
}

/* The register states that the operating system saves (the lower half of XCR0). Other registers cannot be used. */
static unsigned int saved_states(unsigned int leaf_1_ecx)
{
    unsigned int low = 0;
    unsigned int high;
    if (leaf_1_ecx >> 27 & 1) { /* OSXSAVE: XGETBV may be executed */
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    }
    return low;
}

static void add_wide_implementations(void)
{
    unsigned int eax, ebx, ecx, edx;
    unsigned int ecx_1 = 0;
    unsigned int ebx_7 = 0;
    __get_cpuid(1, &eax, &ebx, &ecx_1, &edx);
    __get_cpuid_count(7, 0, &eax, &ebx_7, &ecx, &edx); /* without a leaf 7, ebx_7 stays zero */
    const unsigned int states = saved_states(ecx_1);
    const int ymm = (states & STATE_XMM_YMM) == STATE_XMM_YMM && (ecx_1 >> 28 & 1); /* bit 28: AVX itself */
    const int zmm = ymm && (states & STATE_OPMASK_ZMM) == STATE_OPMASK_ZMM;
    const int popcnt = add_feature("popcnt", ecx_1, 23, 1);
    const int bmi = add_feature("bmi", ebx_7, 3, 1);
    const int bmi2 = add_feature("bmi2", ebx_7, 8, 1);
    const int avx2 = add_feature("avx2", ebx_7, 5, ymm);
    const int foundation = add_feature("avx512f", ebx_7, 16, zmm);
    const int lengths = add_feature("avx512vl", ebx_7, 31, zmm);
    const int words = add_feature("avx512bw", ebx_7, 30, zmm);
    const int doublewords = add_feature("avx512dq", ebx_7, 17, zmm);
    if (avx2 && popcnt && bmi && bmi2) {
        SJ_ADD(avx2);
        if (foundation && lengths && words && doublewords) {
            SJ_ADD(avx512);
        }
    }
}
#endif

static void list_set_bits(void)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        int count = 0;
        for (unsigned bit = 0; bit < 8; bit++) {
            if (byte >> bit & 1) {
                sj_set_bits[byte][count++] = (uint8_t)bit;
            }
        }
    }
}

void sj_dispatch_init(void)
{
    list_set_bits();
    implementation_count = 0;
    feature_count = 0;
    SJ_ADD(scalar);
#if defined(__x86_64__)
    add_wide_implementations();
#endif
}

int sj_implementation_count(void) { return implementation_count; }
const sj_implementation *sj_implementation_at(int index) { return &implementations[index]; }
int sj_cpu_feature_count(void) { return feature_count; }
const sj_cpu_feature *sj_cpu_feature_at(int index) { return &features[index]; }
