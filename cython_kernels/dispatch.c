#include "dispatch.h"

static sj_implementation implementations[3];
static int implementation_count;
static sj_cpu_feature features[8];
static int feature_count;

static void add_implementation(const char *name, sj_scan_fill scan_fill, sj_grid_fill grid_fill)
{
    const sj_implementation entry = {name, scan_fill, grid_fill};
    implementations[implementation_count++] = entry;
}

#if defined(__x86_64__)
static int add_feature(const char *name, int present)
{
    const sj_cpu_feature entry = {name, present != 0};
    features[feature_count++] = entry;
    return entry.present;
}
#endif

void sj_dispatch_init(void)
{
    implementation_count = 0;
    feature_count = 0;
    add_implementation("scalar", sj_scan_fill_scalar, sj_grid_fill_scalar);
#if defined(__x86_64__)
    /* libgcc asks CPUID and also XGETBV: the operating system must save the wide registers as well. */
    __builtin_cpu_init();
    const int popcnt = add_feature("popcnt", __builtin_cpu_supports("popcnt"));
    const int bmi = add_feature("bmi", __builtin_cpu_supports("bmi"));
    const int avx2 = add_feature("avx2", __builtin_cpu_supports("avx2"));
    const int foundation = add_feature("avx512f", __builtin_cpu_supports("avx512f"));
    const int lengths = add_feature("avx512vl", __builtin_cpu_supports("avx512vl"));
    const int words = add_feature("avx512bw", __builtin_cpu_supports("avx512bw"));
    const int doublewords = add_feature("avx512dq", __builtin_cpu_supports("avx512dq"));
    if (avx2 && popcnt && bmi) {
        add_implementation("avx2", sj_scan_fill_avx2, sj_grid_fill_avx2);
        if (foundation && lengths && words && doublewords) {
            add_implementation("avx512", sj_scan_fill_avx512, sj_grid_fill_avx512);
        }
    }
#endif
}

int sj_implementation_count(void) { return implementation_count; }
const sj_implementation *sj_implementation_at(int index) { return &implementations[index]; }
int sj_cpu_feature_count(void) { return feature_count; }
const sj_cpu_feature *sj_cpu_feature_at(int index) { return &features[index]; }
