/* Two pairs at a time, which every x86-64 and ARM64 can. */
#define NAME(base) base##_scalar
#define LANE_BYTES 16

#include "globe/near_template.h"
