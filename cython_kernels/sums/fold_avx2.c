#if defined(__x86_64__)
#include "simd/lanes_avx2.h"

#include "sums/fold_template.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int sj_nothing_here; /* ISO C wants a declaration in every file */
#endif
