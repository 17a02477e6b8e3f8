#include "simd/lanes_scalar.h"

#include "grid/grid_probe_template.h"
