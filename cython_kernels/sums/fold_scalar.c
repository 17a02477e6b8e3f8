#include "simd/lanes_scalar.h"

#include "sums/fold_template.h"
